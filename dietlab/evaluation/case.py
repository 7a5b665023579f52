"""One shape of a contender: its problem, in as many copies as needed, and calls bound to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dietlab.evaluation.contenders import Prepared
from dietlab.evaluation.vendors import Call, Operands, deliver
from dietlab.timing.problem import Problem, Verdict, aligned
from dietlab.workloads import FloatArray

Prepare = Callable[[Operands], Prepared]


@dataclass(frozen=True)
class Copy:
    """The operands and output of one call of a rotation, with the contender prepared for them."""

    prepared: Prepared
    operands: Operands
    out: FloatArray


@dataclass
class Case:
    """A problem, copies of what rotates, calls bound to them, and how many warm up and make a block."""

    problem: Problem
    copies: list[Copy] = field(default_factory=list)
    calls: dict[tuple[int, int | None], list[Call]] = field(default_factory=dict)
    counts: dict[tuple[str, int | None, float], tuple[int, int]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of the case, copies included."""
        return self.problem.bytes + max(0, len(self.copies) - 1) * self.problem.copy_bytes

    def bound(self, copies: int, plan: int | None, prepare: Prepare) -> list[Call]:
        """Calls on that many copies; ``prepare`` makes a contender ready with constant operands."""
        if (copies, plan) not in self.calls:
            while len(self.copies) < copies:
                self.copies.append(self._another(prepare))
            some = self.copies[:copies]
            self.calls[copies, plan] = [c.prepared.bind(c.operands, c.out, plan) for c in some]
        return self.calls[copies, plan]

    def _another(self, prepare: Prepare) -> Copy:
        problem = self.problem
        if not self.copies:
            return Copy(prepare(problem.constants), problem.variables, problem.out)
        if problem.constants:
            # Plain vendors read the weights they are given, so that each call of a rotation needs a copy.
            return Copy(prepare(_copied(problem.constants)), problem.variables, problem.out)
        return Copy(self.copies[0].prepared, _copied(problem.variables), aligned(problem.out))

    def check(self, call: Call) -> Verdict:
        """Judges one call's result."""
        self.problem.poison()
        deliver(call(), self.problem.out)
        return self.problem.verdict()


def _copied(arrays: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: aligned(array) for name, array in arrays.items()}

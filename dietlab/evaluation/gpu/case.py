"""One shape of a contender on a device: operands in as many copies as needed, and calls bound to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dietlab.evaluation.gpu.clock import TimedBlock
from dietlab.evaluation.gpu.tensors import Output, Tensor, Tensors, to_device, to_host
from dietlab.evaluation.vendors import Call
from dietlab.timing.problem import Verdict
from dietlab.timing.sample import SampledProblem

Bind = Callable[[Tensors, Tensor], Call]


@dataclass(frozen=True)
class DeviceCopy:
    """The operands and output of one call of a rotation."""

    operands: Tensors
    out: Output


@dataclass
class DeviceCase:
    """A shape's problem, copies of its operands and output, calls bound to them, and blocks of calls by cache
    state, plan and seconds."""

    torch: Any
    device: str
    sample: SampledProblem
    copies: list[DeviceCopy] = field(default_factory=list)
    calls: dict[tuple[int, int | None], list[Call]] = field(default_factory=dict)
    blocks: dict[tuple[str, int | None, float], TimedBlock] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of the case on the device."""
        return self.sample.bytes * len(self.copies)

    def bound(self, copies: int, plan: int | None, bind: Bind) -> list[Call]:
        """Calls on that many copies; ``bind`` binds one to its operands and its output."""
        if (copies, plan) not in self.calls:
            while len(self.copies) < copies:
                self.copies.append(self._another())
            self.calls[copies, plan] = [bind(c.operands, c.out.tensor) for c in self.copies[:copies]]
        return self.calls[copies, plan]

    def _another(self) -> DeviceCopy:
        sample = self.sample
        operands = {
            name: to_device(self.torch, array, self.device) for name, array in sample.operands.items()
        }
        return DeviceCopy(
            operands, Output.make(self.torch, sample.out_shape, sample.workload.dtype, self.device)
        )

    def check(self, call: Call) -> Verdict:
        """Judges the result of one call, which is bound to the first copy."""
        out = self.copies[0].out
        out.poison()
        result: Any = call()
        if hasattr(result, "data_ptr") and result.data_ptr() != out.tensor.data_ptr():
            out.tensor.copy_(result)
        verdict = self.sample.verdict(to_host(self.torch, out.tensor, self.sample.dtype))
        if verdict.correct and not out.intact:
            return replace(verdict, reason="memory around the output was overwritten")
        return verdict

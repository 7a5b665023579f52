"""Puzzles: each has a statement, a picture, and cases that tell a right answer from a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from numbers import Real
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.view.widgets.explorer import Explorer


TOLERANCE = 1e-9
SHOWN = 160
"""Characters of a value that a message shows at most."""

Answer = Callable[..., Any]
"""The function that a student writes."""

Given = Mapping[str, Any]
"""The arguments of one case by name, in the order of a call."""

Fault = Callable[[Answer, Given], str]
"""What is wrong with an answer on one case; empty if it is right."""


@dataclass(frozen=True, repr=False)
class CheckResult:
    """The result of a check, which is true if an answer is right on every case, with a sentence about it.

    Args:
        passed: cases that were right before the first that was not.
    """

    solved: bool
    passed: int
    text: str

    def __bool__(self) -> bool:
        return self.solved

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: a small function to write.

    Args:
        title: a few words.
        name: of the function to write, as messages call it.
        statement: what the function gets and must return, in plain text.
        cases: arguments to try, simple ones first, then others drawn from a source of random numbers.
        fault: what is wrong with an answer on one case.
        to_frame: returns the table behind the picture.
        plot: the picture of that table.
        praise: one sentence for the student who solved it.
    """

    title: str
    name: str
    statement: str
    cases: Callable[[Random], Iterable[Given]]
    fault: Fault
    to_frame: Callable[[], pd.DataFrame]
    plot: Callable[[pd.DataFrame], go.Figure]
    praise: str

    def show(self) -> Explorer:
        """Returns the statement below its picture, to display in a notebook."""
        from dietlab.view.widgets.explorer import Drawn, Explorer

        frame = self.to_frame()
        drawn = Drawn(self.plot(frame), frame, note=f"{self.title}. {self.statement}")
        return Explorer(lambda: drawn, {})

    def check(self, answer: Answer, seed: int = 0) -> CheckResult:
        """Tries an answer on every case and reports the first that fails.

        Args:
            answer: a function; its arguments are given by position, so their names are free.
            seed: of the random cases.
        """
        passed = 0
        for given in self.cases(Random(seed)):
            try:
                fault = self.fault(answer, given)
            except NotImplementedError:
                return CheckResult(False, passed, f"{self.title}: not solved yet.")
            except Exception as error:  # whatever a student's function raises is news for the student
                fault = f"it raises {type(error).__name__}: {error}"
            if fault:
                before = f" ({passed} cases before it are right.)" if passed else ""
                return CheckResult(
                    False, passed, f"{self.title}: not yet. {self._call(given)}: {fault}.{before}"
                )
            passed += 1
        return CheckResult(True, passed, f"{self.title}: solved, all {passed} cases are right. {self.praise}")

    def _call(self, given: Given) -> str:
        return f"{self.name}({', '.join(f'{name}={said(value)}' for name, value in given.items())})"


def equals(reference: Answer, agrees: Callable[[Any, Any], bool] | None = None) -> Fault:
    """Returns a fault where an answer's value is not that of ``reference``.

    Args:
        agrees: of the found and the expected value (default: :func:`close`).
    """
    same = agrees or close

    def fault(answer: Answer, given: Given) -> str:
        expected = reference(*deepcopy(given).values())
        # A copy: an answer may change its arguments.
        found = answer(*deepcopy(given).values())
        return "" if same(found, expected) else f"expected {said(expected)}, got {said(found)}"

    return fault


def close(found: Any, expected: float) -> bool:
    """Returns whether two numbers are equal but for rounding."""
    return isinstance(found, Real) and abs(float(found) - expected) <= TOLERANCE * max(1.0, abs(expected))


def same_sequence(found: Any, expected: list[int]) -> bool:
    """Returns whether two sequences of any kind hold the same whole numbers in the same order."""
    try:
        return [int(value) for value in found] == expected and all(int(v) == v for v in found)
    except (TypeError, ValueError):
        return False


def said(value: Any) -> str:
    """Returns a value as short text: arrays as lists, floating-point numbers with six digits."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."

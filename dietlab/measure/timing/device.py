"""The interface of a device: it holds operands, clears caches, and times blocks of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dietlab.measure.timing.contender import Array, Call, Operands
from dietlab.measure.timing.disturbance import Taken
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.rotation import Arena
from dietlab.problem import WORKING

GUARD_BYTES = 512
"""The size of the guards before and after an output, in bytes: a multiple of any alignment. A call must not
change the guards."""

GUARD_VALUE = WORKING.guard
"""The value of the guards of floats (:attr:`~dietlab.problem.Precision.guard`)."""


class Output(Protocol):
    """An output with guards around it."""

    array: Array
    """The array that contenders write to."""

    def poison(self) -> None:
        """Fills the output with NaN, or an output of integers with the guards' value, and fills the guards
        with their value."""

    def deliver(self, result: object) -> None:
        """Copies the result of a call to the output, if it is a new tensor."""

    def read(self) -> Any:
        """Returns the output as an array in the host's memory."""

    @property
    def intact(self) -> bool:
        """True if the guards are unchanged since :meth:`poison`."""


class Copy(Protocol):
    """The operands and the output of one call of a rotation."""

    @property
    def constants(self) -> Operands: ...

    @property
    def variables(self) -> Operands: ...

    @property
    def output(self) -> Output: ...


@dataclass(frozen=True)
class Placed:
    """A copy at a fixed place in memory."""

    constants: Operands
    variables: Operands
    output: Output


@dataclass(frozen=True)
class TimedBlock:
    """A block of calls that can be timed repeatedly.

    Args:
        run: a function that runs one block and returns the seconds of a call. A rotation continues where the
            last block stopped.
        calls: the number of calls in a block.
        warm_up: a function that runs before each block and is not timed.
        watched: whether a block counts only if the system took no core away meanwhile.
        graph: whether the calls are replayed from a CUDA graph.
        host_share: the host's time to queue the calls over the device's time to run them, measured in a
            trial.
    """

    run: Callable[[], float]
    calls: int
    warm_up: Callable[[], object] = field(default=lambda: None)
    watched: bool = False
    graph: bool = False
    host_share: float = 0.0


class Device(Protocol):
    """A device that contenders compute on.

    ``cache`` is the state of the caches before a timed call:

    ``hot``
        The same call ran just before. Operands and output are in the nearest cache that holds them. A block
        of calls is timed as a whole.
    ``interleaved`` (CPU)
        The same call ran before, then other data of twice the L2 cache was read (untimed). Operands, output
        and code have left the private caches; the last-level cache still has what fits. Each call is timed
        alone, including one reading of the clock (some 0.3 us); the block's time is their median.
    ``rotating``
        Calls rotate through copies of twice the last-level cache, so that no cache has a copy when its turn
        comes. On a CPU, constant operands are copied, as in a model of many such layers whose inputs and
        outputs stay in cache. On a GPU, or if no operand is constant, all operands and the output are copied.
        The number of copies is limited, which matters for tiny operators.
    """

    states: Sequence[str]
    """The cache states of the device."""

    kept_bytes: int
    """The most bytes of shapes that are kept in memory."""

    slow_first_call: bool
    """Whether a program's first call takes milliseconds to load its code."""

    unprobed: str
    """The reason why the processor is not probed for slow moments; empty if it is probed."""

    @property
    def arena(self) -> Arena | None:
        """The memory that is used in place of copies of packed weights; None if weights are not packed."""

    def copies(self, problem: Problem) -> int:
        """Returns the number of copies that exceed the last-level cache, up to a limit."""

    def copy(self, problem: Problem, first: Copy | None) -> Copy:
        """Returns the problem on the device or, given the ``first`` copy, another copy of the rotating
        operands."""

    def keeps_variables(self, problem: Problem) -> bool:
        """Returns whether copies of a rotation differ in their constant operands only."""

    def block(
        self, calls: Sequence[Call], cache: str, seconds: float, contender: object, about: float | None
    ) -> TimedBlock:
        """Returns a block of about ``seconds``.

        Args:
            calls: the call on each copy; blocks rotate through them.
            about: the seconds of a call, if a call is known to take longer than a block.
        """

    def take(self, block: TimedBlock, usual_probe: float | None) -> Taken:
        """Times one block, and times the block again if it was disturbed."""

    def called(self) -> None:
        """Waits for the end of a first call and of all work that the call started.

        Raises:
            Exception: the device's own, if it has failed.
        """

"""The interface of a device: it holds operands, clears caches, and times blocks of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dietlab.measure.timing.contender import Array, Call, Operands
from dietlab.measure.timing.disturbance import Taken
from dietlab.measure.timing.problem import Problem
from dietlab.problem import WORKING

if TYPE_CHECKING:
    from dietlab.measure.timing.arena import Arena

GUARD_BYTES = 512
"""Bytes around an output that must stay as they are, on each side: a multiple of any alignment that is
needed."""

GUARD_VALUE = WORKING.guard
"""What they hold of floats (:attr:`~dietlab.problem.Precision.guard`)."""


class Output(Protocol):
    """An output with guards around it."""

    array: Array
    """What contenders write."""

    def poison(self) -> None:
        """Writes not-a-number where results belong (of whole numbers the guards' value), and the guards'
        value around them."""

    def deliver(self, result: object) -> None:
        """Copies what a call returned, if that is a fresh tensor."""

    def read(self) -> Any:
        """Returns the output as an array in the host's memory."""

    @property
    def intact(self) -> bool:
        """True if the guards still have the value of :meth:`poison`."""


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
    """A copy that stays where it is in memory."""

    constants: Operands
    variables: Operands
    output: Output


@dataclass(frozen=True)
class TimedBlock:
    """Calls that are ready to be timed together, again and again.

    Args:
        run: the seconds of a call over one block; rotations go on where the last block stopped.
        calls: of one block.
        warm_up: what comes before each block and does not count.
        watched: whether a block counts only if the system took no core away meanwhile.
        graph: whether they are replayed from a CUDA graph.
        host_share: the host's time of queueing a trial of them over the device's time.
    """

    run: Callable[[], float]
    calls: int
    warm_up: Callable[[], object] = field(default=lambda: None)
    watched: bool = False
    graph: bool = False
    host_share: float = 0.0


class Device(Protocol):
    """A device that contenders compute on.

    ``cache`` says what was done before a timed call:

    ``hot``
        The same call ran just before. Operands and output are wherever that call left them: in the
        nearest cache they fit into. A block of calls is timed as a whole.
    ``interleaved`` (CPU)
        The same call ran before, then other data was read, twice the L2 cache (untimed). Operands, output
        and code have left the private caches; what fits the last level of cache is still there. Each call is
        timed alone, one reading of the clock included (some 0.3 us); the block's time is their median.
    ``rotating``
        Calls go round copies that cover twice the last-level cache: none is left in any cache when its turn
        comes. On a CPU, constant operands are copied, as if the model had many such layers with inputs and
        outputs that stay in cache; if nothing is constant, and on a GPU, all operands and the output. There
        are limits to the number of copies, which tiny operators run into.
    """

    states: Sequence[str]
    """The cache states that blocks can be timed in."""

    kept_bytes: int
    """The most bytes of shapes that stay in memory."""

    slow_first_call: bool
    """Whether a program's first call loads its code, which takes milliseconds and tells nothing of the
    rest."""

    unprobed: str
    """Why the processor is not probed for slow moments; empty if it is."""

    @property
    def arena(self) -> Arena | None:
        """The memory that stands for copies of packed weights; None where weights are not packed."""

    def copies(self, problem: Problem) -> int:
        """Returns how many copies of what rotates exceed the last-level cache, up to a limit."""

    def copy(self, problem: Problem, first: Copy | None) -> Copy:
        """Returns the problem on the device, or another copy of what rotates beside the ``first``."""

    def keeps_variables(self, problem: Problem) -> bool:
        """Returns whether copies of the rotation differ in their constant operands only."""

    def block(
        self, calls: Sequence[Call], cache: str, seconds: float, contender: object, about: float | None
    ) -> TimedBlock:
        """Returns a block of about ``seconds``.

        Args:
            calls: the same call, once for each copy; blocks go round them.
            about: seconds of a call, if it is known to be longer than a block.
        """

    def take(self, block: TimedBlock, usual_probe: float | None) -> Taken:
        """Times one block, again if it was disturbed."""

    def called(self) -> None:
        """Waits for a first call's end; what the call started is settled from here on.

        Raises:
            Exception: the device's own, if it has failed.
        """

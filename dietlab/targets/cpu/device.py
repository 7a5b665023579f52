"""The host as a device, with NumPy's arrays, a clock, caches, and a probe that notices when the processor is
slow for moments; and a simple model of such a machine."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dietlab.base.errors import BuildError, MeasureError, MissingDependencyError
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import Call, Operands, make_ready
from dietlab.measure.timing.device import GUARD_BYTES, Copy, Placed, TimedBlock
from dietlab.measure.timing.disturbance import Probe, Taken, fma_probe, take, taken_cores
from dietlab.measure.timing.problem import Problem
from dietlab.measure.timing.protocol import CACHE_STATES as CACHE_STATES
from dietlab.measure.timing.protocol import clock_for
from dietlab.measure.timing.rotation import Arena, copies_beyond, exceeded_bytes
from dietlab.measure.timing.threads import keep_apart
from dietlab.problem import PRECISIONS, FloatArray, Shape, Workload, extents, inside_share
from dietlab.scheme import covers_lines, plan_on
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.space import FMA_LATENCY
from dietlab.targets.cpu.units import LINE_BYTES, WORD_BYTES

APART_SECONDS = 0.001
"""The time that threads run before a block, in seconds, if each is bound to a core: bound threads wake up at
once."""

WAKING_SECONDS = 0.02
"""The same for threads that are not bound: a woken thread starts on its waker's core, and the system takes
some milliseconds to move one of the two."""

FEWEST_ALONE = 9
"""The least number of calls in an interleaved block: fewer give no useful median."""

LONGEST_ALONE = 4
"""Largest factor by which :data:`FEWEST_ALONE` may lengthen a block: long calls vary little."""

SHARE = 1 / 4
"""The least time of a trial from which the time of a call is estimated, as a share of a block's time."""

GROWTH = 8
"""Largest ratio of the number of calls in one trial to that in the trial before."""

SHORTEST = 1e-8
"""The time that counts for a call that takes no time by the clock, in seconds."""

COVERED = 2
"""The number of bytes that are read to empty a cache, as a multiple of L2's size: caches do not always
replace the oldest line."""


class PrivateCaches:
    """Reads other data, as other work between two calls would, until L1 and L2 hold no data of the contender.

    A contender with one thread computes on the caller's core, so only that core's caches are emptied. Threads
    of a pool may run on any processor, so a pinned thread empties the caches of each processor that this
    process may use. With ``on_each`` the pool's own threads read instead: a pool whose threads spin makes
    pinned threads wait for a time slice. All threads read the same data, which takes ``COVERED`` times L2's
    size of the shared last-level cache.

    Args:
        threads: the number of threads that the contender computes with.
        on_each: a function that runs another on each thread of the pool (default: pinned threads read).
    """

    def __init__(
        self, l2_bytes: int, threads: int, on_each: Callable[[Callable[[], object]], None] | None = None
    ) -> None:
        lines = np.ones(COVERED * l2_bytes // WORD_BYTES, np.float32)[:: LINE_BYTES // WORD_BYTES]
        read = partial(np.add.reduce, lines)
        self._read = read if on_each is None else partial(on_each, read)
        processors = sorted(os.sched_getaffinity(0)) if threads > 1 and on_each is None else []
        # Zero names the calling thread, and an executor of one thread keeps to it.
        self._readers = [
            ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {p})) for p in processors
        ]

    def empty(self) -> None:
        """Reads the data, and returns when all threads have finished."""
        if not self._readers:
            self._read()
        for reading in [reader.submit(self._read) for reader in self._readers]:
            reading.result()


class HostOutput:
    """An output in the host's memory, on cache lines, with guards around it. It lies in ``buffer``, of
    :meth:`elements` elements (None: new memory)."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], buffer: FloatArray | None = None
    ) -> None:
        self._guard = GUARD_BYTES // dtype.itemsize
        self.buffer = aligned_empty((self.elements(shape, dtype),), dtype) if buffer is None else buffer
        self.array: FloatArray = self.buffer[self._guard : -self._guard].reshape(shape)
        precision = PRECISIONS[dtype.name]
        self._value = np.array(precision.guard).astype(dtype)  # rounded as outputs are
        self._unwritten = self._value if precision.whole else np.nan

    @staticmethod
    def elements(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Returns the number of elements of an output, guards included."""
        return math.prod(shape) + 2 * (GUARD_BYTES // dtype.itemsize)

    def poison(self) -> None:
        self.buffer[:] = self._value
        self.array.fill(self._unwritten)

    def deliver(self, result: Any) -> None:
        if hasattr(result, "data_ptr") and result.data_ptr() != self.array.ctypes.data:
            fresh = result.contiguous()  # bytes are copied, as NumPy lacks PyTorch's bfloat16
            if tuple(fresh.shape) != self.array.shape or fresh.element_size() != self.array.itemsize:
                rule = f"a result must be {self.array.dtype} {self.array.shape}"
                raise MeasureError(rule, tuple(fresh.shape))
            ctypes.memmove(self.array.ctypes.data, fresh.data_ptr(), self.array.nbytes)

    def read(self) -> FloatArray:
        return self.array

    @property
    def intact(self) -> bool:
        guards = (self.buffer[: self._guard], self.buffer[-self._guard :])
        return all(bool((guard == self._value).all()) for guard in guards)


class Rotated:
    """A copy of a problem in which all operands and the output rotate. Each access to a property returns them
    at the next address in ``read`` (operands) or ``written`` (outputs), memory that all shapes share."""

    def __init__(self, problem: Problem, read: Arena, written: Arena) -> None:
        self._problem, self._read, self._written = problem, read, written
        self.constants: Operands = {}

    @property
    def variables(self) -> Operands:
        return self._read.take(self._problem.variables, packed=False)

    @property
    def output(self) -> HostOutput:
        shape, dtype = self._problem.out_shape, self._problem.dtype
        like = np.broadcast_to(np.empty(1, dtype), (HostOutput.elements(shape, dtype),))
        return HostOutput(shape, dtype, self._written.take({"out": like}, packed=False)["out"])


class Host:
    """The processors of this machine.

    Args:
        cores: the number of cores that a contender computes with.
        l2_bytes: the size of one core's L2 cache, which is emptied between interleaved calls.
        last_level_bytes: the size of the cache that the copies of a rotation exceed.
        probe: a function that times a fixed piece of work (None: slow moments of the processor are not
            noticed).
        unprobed: the reason why there is no probe.
    """

    states: Sequence[str] = CACHE_STATES
    kept_bytes = 1 << 27
    slow_first_call = False

    def __init__(
        self, cores: int, l2_bytes: int, last_level_bytes: int, probe: Probe | None = None, unprobed: str = ""
    ) -> None:
        self.unprobed = unprobed
        self._cores, self._probe, self._clock = cores, probe, clock_for(cores)
        self._l2_bytes, self._last_level_bytes = l2_bytes, last_level_bytes
        # Made before this thread is kept off the cores of other threads: those are emptied, too.
        self._caches = PrivateCaches(l2_bytes, cores)
        self._emptied_by: object = None
        self._apart = False
        # Shared by all blocks, so that no program finds a copy in a cache that another one just used.
        self._positions: Iterator[int] = count()
        self.arena, self._written = Arena(last_level_bytes), Arena(last_level_bytes)

    @classmethod
    def opened(cls, cores: int, options: Mapping[str, Any]) -> Host:
        """Returns the host of a request's options (:func:`host_options`); detects the caches they lack."""
        probe = fma_probe(options["probe"], clock_for(cores)) if options.get("probe") else None
        if not {"l2_bytes", "last_level_bytes"} <= set(options):
            options = {**host_options(Hardware.detect(measure=False)), **options}
        return cls(cores, int(options["l2_bytes"]), int(options["last_level_bytes"]), probe=probe)

    def copies(self, problem: Problem) -> int:
        constants = problem.constant_bytes
        return copies_beyond(constants or problem.bytes, self._last_level_bytes, packed=bool(constants))

    def keeps_variables(self, problem: Problem) -> bool:
        return bool(problem.workload.constants)

    def copy(self, problem: Problem, first: Copy | None) -> Copy:
        if first is None:
            output = HostOutput(problem.out_shape, problem.dtype)
            return Placed(problem.constants, problem.variables, output)
        if self.keeps_variables(problem):
            # Plain vendors read the given weights, so that each call of a rotation needs a copy.
            taken = self.arena.take(problem.constants, packed=True)
            return Placed(taken, first.variables, first.output)
        return Rotated(problem, self.arena, self._written)

    def block(
        self, calls: Sequence[Call], cache: str, seconds: float, contender: object, about: float | None
    ) -> TimedBlock:
        each = about or self._seconds_of_one(calls, seconds)
        waking = math.ceil((APART_SECONDS if self._apart else WAKING_SECONDS) / each)
        if cache == "interleaved":
            each += self._emptying_seconds(contender)
            size = math.ceil(seconds / each)
            size = max(size, min(FEWEST_ALONE, math.ceil(LONGEST_ALONE * seconds / each)))
            run = partial(self._alone, calls[0], size)
        else:
            size = max(1, math.ceil(seconds / each))
            run = partial(self._together, calls, size)
        warm = waking if self._cores > 1 else int(len(calls) == 1 and each < seconds)
        warm_up = partial(self._together, calls, warm) if warm else (lambda: None)
        # A single thread's clock stops while others have its core. Interleaved calls are interrupted on
        # purpose, to empty the caches, and their median passes over other interruptions.
        return TimedBlock(run, size, warm_up, watched=self._cores > 1 and cache != "interleaved")

    def take(self, block: TimedBlock, usual_probe: float | None) -> Taken:
        interruptions: Callable[[], int] = taken_cores if block.watched else lambda: 0
        return take(block.run, self._probe, usual_probe, block.warm_up, interruptions)

    def called(self) -> None:
        if self._cores > 1:
            self._apart = keep_apart() or self._apart

    def _emptying_seconds(self, contender: object) -> float:
        """Returns the seconds of emptying the caches once, with the contender's own threads if it offers
        them."""
        on_each = getattr(contender, "on_each", None) if self._cores > 1 else None
        if on_each is not None and self._emptied_by is not contender:
            self._caches, self._emptied_by = PrivateCaches(self._l2_bytes, self._cores, on_each), contender
        started = self._clock()
        self._caches.empty()
        return self._clock() - started

    def _seconds_of_one(self, calls: Sequence[Call], seconds: float) -> float:
        """Estimates the seconds of a call from a trial that lasts a share of a block's ``seconds``."""
        each = self._together(calls, 1)
        if each >= seconds:  # one call is a block
            return each
        size, each = 1, min(each, self._together(calls, 1))  # the first may be a cold start
        while size * each < SHARE * seconds:
            size = min(GROWTH * size, math.ceil(2 * SHARE * seconds / max(each, SHORTEST)))
            each = self._together(calls, size)
        return max(each, SHORTEST)

    def _together(self, calls: Sequence[Call], size: int) -> float:
        """Returns the mean seconds of ``size`` calls, which continue the last block's rotation."""
        places = [position % len(calls) for position in islice(self._positions, size)]
        # Binding takes longer than a short call, so it is done before. The arena is taken in this order.
        bound = {place: calls[place] for place in dict.fromkeys(places)}
        for call in bound.values():
            make_ready(call)
        chosen = [bound[place] for place in places]
        clock = self._clock
        started = clock()
        for call in chosen:
            call()
        return (clock() - started) / size

    def _alone(self, call: Call, size: int) -> float:
        """Returns the median seconds of ``size`` calls, each with emptied caches."""
        seconds, clock, empty = [], self._clock, self._caches.empty
        make_ready(call)
        for _ in range(size):
            empty()
            started = clock()
            call()
            seconds.append(clock() - started)
        return median(seconds)


def host_options(hardware: Hardware, probe: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the options of :meth:`Host.opened`."""
    return {
        "l2_bytes": cpu_of(hardware).l2_bytes,
        "last_level_bytes": exceeded_bytes(hardware),
        "probe": probe,
    }


START_SECONDS = 30.0
"""The longest that a timing process may take to start, in seconds. It imports TVM, which takes a second on an
idle machine."""

device = Host.opened


def rotated(workload: Workload) -> tuple[str, ...]:
    """Returns the operands that rotate: the constant ones, as if the model had many such layers."""
    return workload.constants


def options(hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
    """Returns two values: options with the sizes of the caches and the probe that notices slow moments of the
    processor, and the reason if the probe does not compile (else an empty text)."""
    kind = {"kind": hardware.kind}
    if folder is None:
        return {**kind, **host_options(hardware)}, ""
    try:
        from dietlab.targets.cpu.probe import compile_fma_probe

        probe = compile_fma_probe(hardware, folder / "fma.so")
    except (BuildError, MissingDependencyError, ImportError) as error:
        return {**kind, **host_options(hardware)}, str(error)
    return {**kind, **host_options(hardware, probe)}, ""


def require_here(hardware: Hardware) -> None:
    """Checks nothing: a program that this CPU cannot run fails in a child process, and becomes a record."""


def seconds(hardware: Hardware, workload: Workload, scheme: CpuScheme, shape: Shape) -> float:
    """Models a call: the padded multiply-adds at a throughput that grows with the register tile, plus one
    fetch of the weights from the last-level cache."""
    sizes, kernel = extents(workload, shape), scheme.kernel
    plan = plan_on(scheme, workload, shape)
    column_tiles = -(-sizes["cols"] // kernel.cols)
    columns_a_core = -(-column_tiles // hardware.cores) * kernel.cols * sizes["batch"]
    inside = inside_share(workload, shape) if covers_lines(scheme, workload) else 1.0
    steps = 2.0 * columns_a_core * sizes["depth"] * inside * plan.lines
    compute = sum(steps * r.executed_rows / _throughput(hardware, r.kernel) for r in plan.regions)
    weights = 4.0 * columns_a_core * sizes["depth"] * (1 if scheme.order == "ws" else plan.tiles)
    stream = (hardware.l3_gbps or 30.0) * 1e9
    return compute + (0.1 if kernel.ahead else 0.3) * weights / stream


def _throughput(hardware: Hardware, kernel: CpuMicroKernel) -> float:
    """Returns flop/s of one core: each step loads ``vectors`` weights and ``rows`` inputs for rows x vectors
    multiply-adds, of which several must overlap."""
    vectors = kernel.vectors(cpu_of(hardware).lanes)
    reuse = kernel.rows * vectors / (kernel.rows * vectors + 0.25 * (kernel.rows + vectors))
    hidden = min(1.0, kernel.rows * vectors / FMA_LATENCY)
    return (hardware.peak_gflops or 100.0) * 1e9 * reuse * hidden * (1 - 0.08 / kernel.unroll)

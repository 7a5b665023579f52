"""Checks one contender's results, then times it, in a separate process.

``python -m dietlab.evaluation.contender_worker`` answers (JSON, a line each)::

    {"op": "open", "contender": "mkl", "workload": {..}, "threads": 1, "options": {}}
        -> {"version", "kind"} or {"absent": reason}
    {"op": "check", "shape": {"T": 5}, "seed": 0}
        -> {"max_error", "tolerance", "correct", "reason"}
    {"op": "time", "shape": {"T": 5}, "cache": "hot", "min_seconds": 0.004, "usual_probe": 6e-5}
        -> {"seconds", "calls", "copies", "retaken", "kept", "probe"}

Contenders are the vendors, ``library`` (``options``: ``{"library": folder}``; ``check`` and ``time``
may name a ``plan``), ``libraries`` (``{"libraries": [folder, ..]}``) and ``ansor`` (``{"library": folder}``);
the last two answer ``{"absent": reason}`` for shapes that none was tuned for. ``options`` may override the
caches' sizes (``l2_bytes``, ``l3_bytes``) and bring a ``probe`` (see
:func:`~dietlab.timing.disturbance.fma_probe`); ``time`` names the ``usual_probe`` and answers the one
around this block. Start the process with :func:`~dietlab.evaluation.vendors.contender_env`.

What ``cache`` says about the moment before a timed call:

``hot``
    The same call ran just before. Operands and output are wherever that call left them: in the
    nearest cache they fit into. A block of calls is timed as a whole; ``seconds`` is their mean.
``interleaved``
    The same call ran before, then other data was read, twice the L2 cache (untimed). Operands, output
    and code have left the private caches; what fits the last level of cache is still there. With
    several threads those of the contender may have gone to sleep too. Each call is timed alone,
    one reading of the clock included (some 0.3 us of CPU time on one thread); ``seconds`` is
    their median.
``rotating``
    Calls go round copies that cover twice the last-level cache: none is left in any cache when its
    turn comes. Copied are constant operands, as if the model had many such layers with inputs and
    outputs that stay in cache; if nothing is constant, all operands and the output. Timed as hot.
    There are limits to the number of copies (``copies``), which tiny operators run into.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import cycle, islice
from typing import Any

from dietlab.errors import MeasureError, MissingDependencyError
from dietlab.evaluation.case import Case
from dietlab.evaluation.contenders import Contender, NotTunedError, make_contender
from dietlab.evaluation.vendors import Call, NoFormError
from dietlab.hardware import Hardware
from dietlab.measure import CACHE_STATES
from dietlab.shapes import Shape
from dietlab.timing.disturbance import Probe, fma_probe, take, taken_cores
from dietlab.timing.lru_by_bytes import LruByBytes
from dietlab.timing.private_caches import PrivateCaches
from dietlab.timing.problem import Problem, rotating_copies
from dietlab.timing.process import serve
from dietlab.timing.protocol import clock_for, time_alone
from dietlab.timing.worker import show_torch
from dietlab.workloads import Workload, workload_from_json

WARM_SECONDS = 0.02
"""Seconds that several threads run before a block: a woken thread starts on its waker's core, and the
system takes some milliseconds to move one of the two."""
FEWEST_ALONE, LONGEST_ALONE = 9, 4
"""The fewest calls of an interleaved block, so that a median means something, and the most that this may
lengthen the block, as a ratio: long calls vary little."""
KEPT_BYTES = 256 << 20
"""The most bytes of prepared shapes that stay in memory."""


class ContenderTimer:
    """An open contender with the shapes it was last asked for.

    Args:
        options: what the module's text says.
        probe: seconds of a fixed piece of work; None times blocks without looking at the processor.
    """

    def __init__(
        self,
        contender: Contender,
        workload: Workload,
        threads: int,
        options: Mapping[str, Any],
        probe: Probe | None = None,
    ) -> None:
        cpu = Hardware.detect(measure=False).cpu
        self.contender = contender
        self._workload = workload
        self._clock, self._threads, self._probe = clock_for(threads), threads, probe
        l2_bytes = int(options.get("l2_bytes") or cpu.l2_bytes)
        self._last_level_bytes = int(options.get("l3_bytes") or cpu.last_level_bytes)
        self._private = PrivateCaches(l2_bytes, threads)
        self._cases: LruByBytes[Case] = LruByBytes(KEPT_BYTES, lambda case: case.bytes)
        self._turn = 0

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compares one call with the float64 reference; see :func:`~dietlab.workloads.tolerance`."""
        case = self._case(request)
        (call,) = self._calls(case, request, 1)
        verdict = case.check(call)
        return {**asdict(verdict), "correct": verdict.correct}

    def time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns seconds a call over one block of calls that was not disturbed; see the module's text."""
        cache, block_seconds = request.get("cache", "hot"), float(request.get("min_seconds", 0.004))
        if cache not in CACHE_STATES:
            raise MeasureError(f"the cache state is one of {', '.join(CACHE_STATES)}", repr(cache))
        case = self._case(request)
        copies = rotating_copies(case.problem, self._last_level_bytes) if cache == "rotating" else 1
        calls = self._calls(case, request, copies)
        run = self._alone if cache == "interleaved" else self._together
        key = (cache, request.get("plan"), block_seconds)
        if key not in case.counts:
            case.counts[key] = self._calibrate(calls, cache, block_seconds)
        warm, count = case.counts[key]
        block, warm_up = partial(run, calls, count), partial(self._warm_up, calls, warm)
        # One thread's clock stops while others have its core. Calls that are timed one by one are
        # interrupted on purpose, to empty the caches, and a median passes over those that were in addition.
        watched = self._threads > 1 and cache != "interleaved"
        interruptions = taken_cores if watched else lambda: 0
        taken = take(block, self._probe, request.get("usual_probe"), warm_up, interruptions)
        return {**asdict(taken), "calls": count, "copies": copies}

    def _warm_up(self, calls: Sequence[Call], count: int) -> None:
        """Calls that do not count, since another contender ran before: enough to wake several threads, and
        one to bring what is hot back to the caches."""
        if self._threads > 1:
            self._together(calls, count)
        elif len(calls) == 1:
            self._together(calls, 1)

    def _case(self, request: Mapping[str, Any]) -> Case:
        shape, seed = Shape.from_json(request["shape"]), int(request.get("seed", 0))
        return self._cases.get((shape, seed), lambda: Case(Problem.make(self._workload, shape, seed)))

    def _calls(self, case: Case, request: Mapping[str, Any], copies: int) -> list[Call]:
        shape = Shape.from_json(request["shape"])
        return case.bound(
            copies, request.get("plan"), lambda w: self.contender.prepare(self._workload, w, shape)
        )

    def _calibrate(self, calls: Sequence[Call], cache: str, block_seconds: float) -> tuple[int, int]:
        """Calls that several threads warm up with, and those of a block that lasts ``block_seconds``."""
        seconds = self._one_call(calls, block_seconds)
        warm = math.ceil(WARM_SECONDS / seconds)
        if cache == "interleaved":
            started = self._clock()
            self._alone(calls, 3)
            each = max((self._clock() - started) / 3, 1e-8)  # other data's reading included
            count = math.ceil(block_seconds / each)
            return warm, max(count, min(FEWEST_ALONE, math.ceil(LONGEST_ALONE * block_seconds / each)))
        return warm, max(1, math.ceil(block_seconds / seconds))

    def _one_call(self, calls: Sequence[Call], block_seconds: float) -> float:
        """Returns about how long a call takes, in seconds, after each copy was touched once."""
        first = self._together(calls, len(calls))
        if first > block_seconds:  # one call is a block
            return first
        trial = max(len(calls), 3)
        seconds = max(self._together(calls, trial), 1e-8)
        if seconds * trial < block_seconds / 4:  # too short to extrapolate from
            seconds = max(self._together(calls, math.ceil(block_seconds / 4 / seconds)), 1e-8)
        return seconds

    def _together(self, calls: Sequence[Call], count: int) -> float:
        """Returns the mean seconds of ``count`` calls; the rotation goes on where the last block stopped."""
        start = self._turn % len(calls)
        self._turn = start + count
        turns = islice(cycle([*calls[start:], *calls[:start]]), count)
        clock = self._clock
        started = clock()
        for call in turns:
            call()
        return (clock() - started) / count

    def _alone(self, calls: Sequence[Call], count: int) -> float:
        """Returns the median seconds of ``count`` calls, each after other data was read."""
        (call,) = calls
        return time_alone(call, self._private.empty, count, self._threads)


class Service:
    """Answers the requests that the module's text lists."""

    def __init__(self) -> None:
        self._bench: ContenderTimer | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            return self._open(request)
        if self._bench is None:
            raise MeasureError("a contender is opened first", request["op"])
        try:
            return self._bench.check(request) if request["op"] == "check" else self._bench.time(request)
        except NotTunedError as error:
            return {"absent": str(error)}

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        threads, options = int(request["threads"]), request.get("options") or {}
        workload = workload_from_json(request["workload"])
        try:
            contender = make_contender(request["contender"], threads, options)
            kind = contender.kind(workload)
        except (MissingDependencyError, NoFormError) as error:
            return {"absent": str(error)}
        probe = fma_probe(options["probe"], clock_for(threads)) if options.get("probe") else None
        self._bench = ContenderTimer(contender, workload, threads, options, probe)
        return {"version": contender.version(), "kind": kind}


if __name__ == "__main__":
    import tvm_ffi  # noqa: F401, before PyTorch shows: workers of other libraries start sooner without it

    show_torch()
    serve(Service())

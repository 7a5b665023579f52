"""One contender in a process of its own: checks what it computes, then times it.

``python -m dietlab.evaluation.contender_worker`` answers (JSON, a line each)::

    {"op": "open", "contender": "mkl", "workload": {..}, "threads": 1, "options": {}}
        -> {"version", "kind"} or {"absent": reason}
    {"op": "check", "shape": {"T": 5}, "seed": 0}
        -> {"max_error", "tolerance", "correct", "reason"}
    {"op": "time", "shape": {"T": 5}, "cache": "hot" | "rotating", "min_seconds": 0.004}
        -> {"seconds", "calls", "copies"}

Contenders are the vendors, ``library`` (``options``: ``{"library": folder, "plan": number or None}``;
``check`` and ``time`` may name a ``plan`` too) and ``ansor`` (``{"library": folder}``), which answers
``{"absent": reason}`` for shapes that were not tuned. ``options["l3_bytes"]`` overrides the size of the
last-level cache. Start the process with :func:`~dietlab.evaluation.vendors.contender_env`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter, thread_time
from typing import Any, Protocol

import numpy as np

from dietlab.errors import MeasureError, MissingDependencyError
from dietlab.evaluation.ansor import load_ansor
from dietlab.evaluation.vendors import VENDORS, Call, Layer, Vendor, deliver
from dietlab.hardware import Hardware
from dietlab.lower.runtime import aligned_empty
from dietlab.measure.process import serve
from dietlab.shapes import Shape
from dietlab.workloads import FloatArray, Workload, tolerance, workload_from_json

GUARD_ROWS = 3
GUARD_VALUE = np.float32(-54321.0)
"""No result of standard normal operands comes near it, so a write beyond ``out`` shows."""
ROTATED_CACHES = 2.0
"""Rotated weights cover this many last-level caches: none is still there when its turn comes."""
MOST_COPIES = 64
WARM_SECONDS = 0.02
KEPT_BYTES = 256 << 20
"""Prepared shapes are kept up to this many bytes; the one in use always is."""


class Contender(Protocol):
    """Whoever takes part: a vendor, a library of ours, or a per-shape tuned program."""

    @property
    def kind(self) -> str:
        """How the report groups it: ``"plain"``, ``"prepacked"`` and so on."""

    def version(self) -> str: ...

    def layer(self, w: FloatArray, bias: FloatArray | None, shape: Shape, rows: int) -> Layer:
        """Weights made ready for calls at ``shape``.

        Raises:
            NotTunedError: if the contender has no program for it.
        """


class NotTunedError(MeasureError):
    """A contender that knows single shapes only was asked for another."""


@dataclass(frozen=True)
class VendorContender:
    vendor: Vendor

    @property
    def kind(self) -> str:
        return self.vendor.kind

    def version(self) -> str:
        return self.vendor.version()

    def layer(self, w: FloatArray, bias: FloatArray | None, shape: Shape, rows: int) -> Layer:
        return self.vendor.prepare(w, bias, rows)


class LibraryContender:
    """A library of ours, as built: micro-kernels and dispatcher."""

    kind = "library"

    def __init__(self, folder: str) -> None:
        from dietlab.dispatch.operator import load

        self._operator = load(folder)

    def version(self) -> str:
        return f"{len(self._operator.micro_kernels)} micro-kernels"

    def layer(self, w: FloatArray, bias: FloatArray | None, shape: Shape, rows: int) -> Layer:
        return self._operator.pack(w, bias)


@dataclass(frozen=True)
class AnsorContender:
    """One statically tuned program for each shape of a folder."""

    folder: str
    kind = "per-shape tuning"

    def version(self) -> str:
        from importlib.metadata import version

        return f"MetaSchedule of TVM {version('apache-tvm')}"

    def layer(self, w: FloatArray, bias: FloatArray | None, shape: Shape, rows: int) -> Layer:
        try:
            operator = load_ansor(self.folder, shape)
        except MeasureError as error:
            raise NotTunedError(error.invariant, error.value, error.remedy) from None
        return operator.pack(w, bias)


def make_contender(name: str, threads: int, options: Mapping[str, Any]) -> Contender:
    """The contender of that name.

    Raises:
        MissingDependencyError: if its library is not installed.
        MeasureError: if there is no such contender.
    """
    if name in VENDORS:
        return VendorContender(VENDORS[name](threads))
    if name == "library":
        return LibraryContender(options["library"])
    if name == "ansor":
        return AnsorContender(options["library"])
    raise MeasureError(f"a contender is one of {', '.join([*VENDORS, 'library', 'ansor'])}", repr(name))


@dataclass
class Case:
    """One shape's operands, output buffer and bound calls, on cache lines for everyone alike."""

    operands: dict[str, FloatArray]
    buffer: FloatArray
    layers: list[Layer] = field(default_factory=list)
    calls: dict[tuple[int, int | None], list[Call]] = field(default_factory=dict)
    calls_per_block: dict[tuple[int, int | None, float], int] = field(default_factory=dict)

    @classmethod
    def make(cls, workload: Workload, shape: Shape, seed: int) -> Case:
        operands = {name: _aligned(v) for name, v in workload.inputs(shape, seed).items()}
        rows, cols = operands["x"].shape[0], operands["w"].shape[0]
        return cls(operands, aligned_empty((rows + GUARD_ROWS, cols)))

    @property
    def out(self) -> FloatArray:
        return self.buffer[:-GUARD_ROWS]

    @property
    def bytes(self) -> int:
        copies = max(1, len(self.layers)) * self.operands["w"].nbytes
        return copies + self.operands["x"].nbytes + self.buffer.nbytes

    def poison(self) -> None:
        """Not-a-number where results belong, the guard's value in the rows after them."""
        self.out.fill(np.nan)
        self.buffer[-GUARD_ROWS:] = GUARD_VALUE

    def guard_holds(self) -> bool:
        return bool((self.buffer[-GUARD_ROWS:] == GUARD_VALUE).all())


def _aligned(array: FloatArray) -> FloatArray:
    copy = aligned_empty(array.shape)
    copy[...] = array
    return copy


class Bench:
    """An open contender with the shapes it was last asked for."""

    def __init__(
        self, contender: Contender, workload: Workload, threads: int, options: Mapping[str, Any]
    ) -> None:
        self.contender = contender
        self._workload = workload
        # A one-thread kernel is timed by its thread's CPU time, which preemption cannot lengthen.
        self._clock: Callable[[], float] = thread_time if threads == 1 else perf_counter
        self._threads = threads
        self._plan = options.get("plan")
        self._l3_bytes = int(options.get("l3_bytes") or _last_level_bytes())
        self._cases: dict[tuple[Shape, int], Case] = {}
        self._turn = 0

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compares one call with the float64 reference; see :func:`~dietlab.workloads.tolerance`."""
        case, plan = self._case(request), request.get("plan", self._plan)
        (call,) = self._calls(case, request, 1, plan)
        case.poison()
        deliver(call(), case.out)
        error = float(np.abs(case.out - self._workload.reference(case.operands)).max(initial=0.0))
        allowed = tolerance(self._workload, case.operands)
        reason = _fault(error, allowed, case.guard_holds())
        return {
            "max_error": error if math.isfinite(error) else math.inf, "tolerance": allowed,
            "correct": not reason, "reason": reason,
        }  # fmt: skip

    def time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Mean seconds a call over one block of calls."""
        case, plan = self._case(request), request.get("plan", self._plan)
        copies = self._copies(case, request.get("cache", "hot"))
        calls = self._calls(case, request, copies, plan)
        key = (copies, plan, float(request.get("min_seconds", 0.004)))
        if key not in case.calls_per_block:
            case.calls_per_block[key] = self._calibrate(calls, key[2])
        count = min(case.calls_per_block[key], int(request.get("max_calls", 1 << 20)))
        self._warm_up(calls, case.calls_per_block[key], key[2])
        return {"seconds": self._block(calls, count), "calls": count, "copies": copies}

    def _warm_up(self, calls: Sequence[Call], calls_per_block: int, block_seconds: float) -> None:
        """Calls that do not count, since another contender ran before: one to bring hot weights back
        to the caches; with several threads more, because a woken thread starts on its waker's core and
        the system takes some milliseconds to move one of the two."""
        if self._threads > 1:
            self._block(calls, math.ceil(calls_per_block * WARM_SECONDS / block_seconds))
        elif len(calls) == 1:
            self._block(calls, 1)

    def _case(self, request: Mapping[str, Any]) -> Case:
        shape, seed = Shape.from_json(request["shape"]), int(request.get("seed", 0))
        case = self._cases.pop((shape, seed), None) or Case.make(self._workload, shape, seed)
        self._cases[shape, seed] = case  # the last one is the one in use
        while len(self._cases) > 1 and sum(c.bytes for c in self._cases.values()) > KEPT_BYTES:
            del self._cases[next(iter(self._cases))]
        return case

    def _copies(self, case: Case, cache: str) -> int:
        """How many packed copies of the weights the calls go round."""
        if cache == "hot":
            return 1
        if cache != "rotating":
            raise MeasureError("the cache state is hot or rotating", repr(cache))
        needed = math.ceil(ROTATED_CACHES * self._l3_bytes / case.operands["w"].nbytes) + 1
        return max(2, min(MOST_COPIES, needed))

    def _calls(self, case: Case, request: Mapping[str, Any], copies: int, plan: int | None) -> list[Call]:
        if (copies, plan) not in case.calls:
            shape = Shape.from_json(request["shape"])
            while len(case.layers) < copies:
                case.layers.append(self._layer(case, shape))
            case.calls[copies, plan] = [_bind(layer, case, plan) for layer in case.layers[:copies]]
        return case.calls[copies, plan]

    def _layer(self, case: Case, shape: Shape) -> Layer:
        # Plain vendors read the weights they are given, so that each layer needs a copy of its own.
        w = _aligned(case.operands["w"]) if case.layers else case.operands["w"]
        return self.contender.layer(w, case.operands.get("bias"), shape, case.operands["x"].shape[0])

    def _calibrate(self, calls: Sequence[Call], min_seconds: float) -> int:
        """Calls that last ``min_seconds`` together, after each copy was touched once."""
        self._block(calls, len(calls))
        probe = max(len(calls), 3)
        seconds = max(self._block(calls, probe), 1e-8)
        if seconds * probe < min_seconds / 4:  # too short to extrapolate from
            probe = math.ceil(min_seconds / 4 / seconds)
            seconds = max(self._block(calls, probe), 1e-8)
        return max(1, math.ceil(min_seconds / seconds))

    def _block(self, calls: Sequence[Call], count: int) -> float:
        """Mean seconds of ``count`` calls; the rotation goes on where the last block stopped."""
        start = self._turn % len(calls)
        self._turn = start + count
        turns = islice(cycle([*calls[start:], *calls[:start]]), count)
        clock = self._clock
        started = clock()
        for call in turns:
            call()
        return (clock() - started) / count


def _bind(layer: Layer, case: Case, plan: int | None) -> Call:
    if plan is None:
        return layer.bind(case.operands["x"], case.out)
    bind: Callable[..., Call] = layer.bind  # only libraries of ours have plans
    return bind(case.operands["x"], case.out, plan=plan)


def _fault(error: float, allowed: float, guarded: bool) -> str:
    if math.isnan(error):
        return "some results were never written, or are not numbers"
    if not error <= allowed:
        return f"an error of {error:.2e} is above {allowed:.2e}"
    return "" if guarded else "rows after the output were overwritten"


def _last_level_bytes() -> int:
    limits = Hardware.detect(measure=False).cpu
    return limits.l3_bytes or limits.l2_bytes


class Service:
    """Answers the requests that the module's text lists."""

    def __init__(self) -> None:
        self._bench: Bench | None = None

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
        try:
            contender = make_contender(request["contender"], threads, options)
        except MissingDependencyError as error:
            return {"absent": str(error)}
        workload = workload_from_json(request["workload"])
        self._bench = Bench(contender, workload, threads, options)
        return {"version": contender.version(), "kind": contender.kind}


if __name__ == "__main__":
    serve(Service())

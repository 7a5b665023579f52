"""A target in one file: a processor that computes nothing, in 1 us a call.

``python -m null_target`` answers for all of its contenders and candidates, which are always right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dietlab.compare.target import WorkerModule
from dietlab.cost.bundle import Bundle, Bundled, Calls, FiveParts
from dietlab.lower.artifact import Artifact
from dietlab.machine import Hardware
from dietlab.machine.limits import Limits
from dietlab.measure import CacheState
from dietlab.measure.timing.process import serve
from dietlab.problem import IntArray, Shape, Workload
from dietlab.scheme import Edge, Limit, MicroKernel, Scheme

SECONDS = 1e-6


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


@dataclass(frozen=True)
class NullLimits(Limits):
    kind = "null"
    on_host = False
    last_level_bytes: ClassVar[int] = 1 << 20  # type: ignore[misc]
    peak_for = always(1e3)


@dataclass(frozen=True, order=True)
class NullKernel(MicroKernel):
    rows: int
    cols: int
    ordered: ClassVar[bool] = False
    example: ClassVar[str] = "null4x8.even"
    granule: ClassVar[int] = 1
    access_pattern: ClassVar[Hashable] = ()
    key = property(lambda self: f"null{self.rows}x{self.cols}")
    tile = property(lambda self: {"rows": self.rows, "cols": self.cols, "depth": 1})

    def scheme_key(self, order: str, edge: str) -> str:
        return ".".join(filter(None, (self.key, edge)))

    @classmethod
    def parse(cls, key: str) -> tuple[NullKernel, str, str] | None:
        match = re.fullmatch(r"null(\d+)x(\d+)(?:\.(\w+))?", key)
        return (cls(int(match[1]), int(match[2])), "", match[3] or "") if match else None


@dataclass(frozen=True)
class NullAdaptation(Bundled):
    workload: Workload
    hardware: Hardware
    kind: str = "streamed"
    cache: CacheState = "hot"
    _alike, _paid = staticmethod(attrgetter("edge")), staticmethod(attrgetter("cover_tile"))

    def with_cache(self, cache: CacheState) -> NullAdaptation:
        return replace(self, cache=cache)

    def _sizes(self, scheme: Scheme) -> dict[str, int]:
        return {"rows": scheme.rows, "cols": scheme.cols, "granule": 1}

    def _flops(self, calls: Calls) -> IntArray:
        return 2 * calls["rows"] * calls["cols"] * calls["depth"]

    def _parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        seconds = self._flops(calls) / bundle.useful(calls) / bundle.speed(bundle["rows"])
        return FiveParts(seconds, *4 * (0.0 * seconds,))

    def _static(self, bundle: Bundle, calls: Calls) -> Any:
        return bundle.useful(calls)

    def _throughput(self, bundle: Bundle, calls: Calls, seconds: Any) -> Any:
        return self._flops(calls) / bundle.useful(calls) / seconds

    def working_shares(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Any:
        return np.ones(len(schemes))


LIMITS, KNOBS, KERNEL, DECIDES, FEATURES = NullLimits, (), NullKernel, False, ("rows", "cols")
CACHE_STATES, START_SECONDS = ("hot", "rotating"), 30.0
VENDORS, DEFAULTS, WORKER = ("nothing",), ("nothing",), WorkerModule("null_target", 30.0)
detect = always(Hardware("a null processor", "made up", 1, NullLimits(), peak_gflops=1e3))
pads, seconds, source_of, DEALT = always(True), always(SECONDS), always("nothing"), 1.0
READ_AS, machine_code = ("a program", "its code"), always(SimpleNamespace(text="", uses={}))
facts = known = to_json = from_json = ansor_tools = always({})
require_here = require_form = ansor_platform = device = always(None)
require_tools = always("")
lacking, runtimes, rotated = always(""), always(()), always(())
levels, loops, operands, options = (always(v) for v in ({}, (0, 1), ("", ""), ({"kind": "null"}, "")))
ceilings = always(())
load = always(SimpleNamespace(run=always(None), plan=always(0), idle=always(0)))
limits = always((Limit("rows of a tile", 8, "rows", lambda scheme: scheme.rows),))
adaptation = NullAdaptation


def measured(processor: Any, *_: Any) -> Any:
    return processor


refined = measured


def expected(cost: Any, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Any:
    return cost.bound(schemes, shapes)


def features(schemes: Sequence[Scheme], *_: Any) -> list[list[float]]:
    return [[float(scheme.rows), float(scheme.cols)] for scheme in schemes]


knobs = features


def candidates(workload: Workload, hardware: Hardware, edges: Sequence[Edge]) -> Iterator[Scheme]:
    return (Scheme(NullKernel(r, c), e) for r in range(1, 13) for c in (8, 16, 32) for e in edges)


def compile_plans(
    workload: Workload, hardware: Hardware, schemes: Sequence[Scheme], tree: object, path: Path, **_: Any
) -> Artifact:
    code = " ".join(scheme.key for scheme in schemes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return Artifact(path, len(code), sha256(code.encode()).hexdigest(), 0.0)


ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "open": {"version": "1", "kind": "plain", "unprobed": ""},
    "check": {"max_error": 0.0, "tolerance": 0.0, "correct": True, "reason": ""},
    "time": {"seconds": SECONDS, "calls": 1, "copies": 1, "retaken": 0, "kept": 0, "probe": None},
}

if __name__ == "__main__":
    serve(lambda request: dict(ANSWERS[request["op"]]))

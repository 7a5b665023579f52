"""A target in one file: a processor that computes nothing, in 1 us a call.

``python -m null_target`` answers for all of its contenders and candidates, which are always right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from dietlab.compare.target import WorkerModule
from dietlab.cost.bundle import Bundle, Calls, FiveParts, Formulas
from dietlab.lower.artifact import Artifact
from dietlab.machine import Hardware
from dietlab.machine.limits import Limits
from dietlab.measure.timing.process import serve
from dietlab.problem import Workload
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

    def scheme_key(self, order: str, edge: str) -> str:
        return f"null{self.rows}x{self.cols}" + f".{edge}" * bool(edge)

    @classmethod
    def parse(cls, key: str) -> tuple[NullKernel, str, str] | None:
        match = re.fullmatch(r"null(\d+)x(\d+)(?:\.(\w+))?", key)
        return (cls(int(match[1]), int(match[2])), "", match[3] or "") if match else None


class NullFormulas(Formulas):
    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        return FiveParts(self.throughput(bundle, calls, bundle.speed(bundle["rows"])))

    def throughput(self, bundle: Bundle, calls: Calls, seconds: Any) -> Any:
        return 2 * calls["rows"] * calls["cols"] * calls["depth"] / bundle.useful(calls) / seconds


LIMITS, KNOBS, KERNEL, DECIDES = NullLimits, (), NullKernel, False
CACHE_STATES, START_SECONDS = ("hot", "rotating"), 30.0
VENDORS, DEFAULTS, WORKER = ("nothing",), ("nothing",), WorkerModule("null_target", 30.0)
detect = measured = always(Hardware("a null processor", "made up", 1, NullLimits(), peak_gflops=1e3))
pads, seconds, source_of, lacking = always(True), always(SECONDS), always("nothing"), always("")
READ_AS, machine_code = ("a program", "its code"), always(SimpleNamespace(text="", uses={}))
facts = ansor_tools = always({})
require_here = require_form = ansor_platform = device = always(None)
rotated = ceilings = runtimes = always(())
operands, options, require_tools = always(("", "")), always(({"kind": "null"}, "")), always("")
load = always(SimpleNamespace(run=always(None), plan=always(0), idle=always(0)))
limits = always((Limit("rows of a tile", 8, "rows", lambda scheme: scheme.rows),))
adaptation = NullFormulas


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

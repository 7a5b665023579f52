"""The lines of the summary and their targets: the one place that holds targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

OfShapes = Literal["regret", "held-out", "padding", "peak", "prime", "cores", "incorrect"]
OfStudy = Literal[
    "tuning", "trials", "measurements", "memory", "kernels", "code", "dispatch", "call", "wrong"
]
Measure = str
"""One of these, ``prepacked`` or ``plain`` for the fastest such vendor, or the name of a contender."""

STUDY_MEASURES: tuple[Measure, ...] = get_args(OfStudy)
"""Measures of a whole study: they have no cache state and no shape."""

Statistic = Literal["geomean", "mean", "worst", "p99", "most", "total"]
COLD = ("interleaved", "rotating")
"""Cache states in which weights come from memory, as in a model with many layers."""


@dataclass(frozen=True)
class Criterion:
    """One line of the summary.

    Args:
        measure: what is looked at; see :mod:`dietlab.compare.results.samples`.
        statistic: how many shapes become one number.
        what: the line's name, for people.
        unit: ``x`` (times), ``%``, ``s``, ``us``, ``ns``, ``KiB``, ``GB``, or nothing.
        lengths: the range of T that counts, both ends included; a value over all lengths counts always.
        by_layer: each layer counts once, with the geometric mean over its lengths.
        at_least, at_most: the target; none if both are None.
        caches: states that the target holds for; in the others the line has no target.
        threads: the target holds on these numbers of threads (empty: on all).
        suites: the target holds in tables of these suites (empty: in all).
        processor: a workload counts if it was run on this kind of processor.
        operators: a workload counts if its operator begins with this.
        dims: a workload counts only if it has these static extents.
        dtypes: a workload counts only if its operands are of one of these types (empty: of any).
        needs: the fewest workloads in the table before the target is judged.
    """

    measure: Measure
    statistic: Statistic
    what: str
    unit: str = "x"
    lengths: tuple[int, int] = (1, 1 << 30)
    by_layer: bool = False
    at_least: float | None = None
    at_most: float | None = None
    caches: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    suites: tuple[str, ...] = ()
    processor: str = "cpu"
    operators: str = "dense"
    dims: tuple[tuple[str, int], ...] = ()
    dtypes: tuple[str, ...] = ()
    needs: int = 1

    @property
    def compares(self) -> bool:
        """True if it compares our time with another's."""
        return self.measure not in (*get_args(OfShapes), *STUDY_MEASURES)

    @property
    def target(self) -> str:
        """``">= 1.10 x"``, or nothing."""
        if self.at_least is not None:
            return f">= {self.at_least:g} {self.unit}".strip()
        return f"<= {self.at_most:g} {self.unit}".strip() if self.at_most is not None else ""

    def met(self, value: float) -> bool:
        """Returns whether a value reaches the target (always, without one)."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


EPILOGUE_AT_MOST = 1.03
"""Most time (x) that a fused epilogue may take, over the bare kernel's: it touches each output once."""

SHORT, SHORTEST, LONG = (1, 128), (1, 32), (129, 2048)
"""The ranges of T that lines of the summary cover, both ends included: the paper's, its shortest, and
beyond it."""

QKV = (("N", 2304), ("K", 768))

FLOATS, HALVES = ("float32",), ("float16", "bfloat16")

CPU_CRITERIA: tuple[Criterion, ...] = (
    Criterion(
        "prepacked",
        "geomean",
        "over the best prepacked vendor, T=1..128",
        lengths=SHORT,
        at_least=1.10,
        caches=COLD,
    ),
    Criterion(
        "prepacked",
        "geomean",
        "over the best prepacked vendor, T<=32",
        lengths=SHORTEST,
        at_least=1.25,
        caches=COLD,
    ),
    Criterion(
        "prepacked",
        "worst",
        "over the best prepacked vendor, worst of T=1..128",
        lengths=SHORT,
        at_least=0.92,
        caches=COLD,
    ),
    Criterion(
        "prepacked",
        "geomean",
        "over the best prepacked vendor, T=129..2048",
        lengths=LONG,
        at_least=1.0,
        caches=COLD,
    ),
    Criterion(
        "prepacked",
        "worst",
        "over the best prepacked vendor, worst of T=129..2048",
        lengths=LONG,
        at_least=0.92,
        caches=COLD,
    ),
    Criterion(
        "plain", "geomean", "over the best plain vendor, T<=64", lengths=(1, 64), at_least=1.6, caches=COLD
    ),
    Criterion(
        "plain",
        "geomean",
        "batched, over the best plain vendor, T=1..128",
        lengths=SHORT,
        operators="batch-matmul",
    ),
    Criterion(
        "plain",
        "worst",
        "batched, over the best plain vendor, worst of T=1..128",
        lengths=SHORT,
        operators="batch-matmul",
    ),
    Criterion("ansor", "geomean", "over per-shape tuning", at_least=1.3, operators=""),
    Criterion("ansor", "worst", "over per-shape tuning, worst", at_least=1.0, operators=""),
    Criterion("regret", "mean", "mean regret", "%", at_most=1.0, operators=""),
    Criterion("regret", "p99", "99th percentile of regret", "%", at_most=5.0, operators=""),
    Criterion(
        "peak",
        "mean",
        "share of the FMA peak, N=2304 K=768, T>=128",
        "%",
        (128, 1 << 30),
        at_least=88.0,
        threads=(1,),
        dims=QKV,
        dtypes=FLOATS,
    ),
    Criterion(
        "peak",
        "worst",
        "share of the FMA peak, N=2304 K=768, worst of T>=128",
        "%",
        (128, 1 << 30),
        threads=(1,),
        dims=QKV,
        dtypes=FLOATS,
    ),
    Criterion(
        "prime",
        "geomean",
        "prime T over the faster neighbouring multiple of 8",
        lengths=(17, 1 << 30),
        at_least=0.95,
    ),
    Criterion(
        "prime",
        "worst",
        "prime T over the faster neighbouring multiple of 8, worst",
        lengths=(17, 1 << 30),
        at_least=0.95,
    ),
    Criterion(
        "cores", "geomean", "two cores over one, T>=32", lengths=(32, 1 << 30), at_least=1.85, operators=""
    ),
    Criterion("cores", "worst", "two cores over one, worst of T>=32", lengths=(32, 1 << 30), operators=""),
    Criterion("tuning", "total", "tuning, all workloads", "s", at_most=600.0, operators="", needs=6),
    Criterion("kernels", "most", "micro-kernels in a library", "", at_most=8.0, operators=""),
    Criterion("code", "most", "machine code of a library", "KiB", at_most=256.0, operators=""),
    Criterion("wrong", "total", "lengths called in 0..8192, wrong results", "", at_most=0.0, operators=""),
)
"""The lines that a CPU is judged by, from top to bottom."""

PAPER_SUITES, LLM_SUITES = ("paper-gpu", "first-gpu"), ("llm-gpu", "first-gpu")
"""The suites with the paper's operators in float32, and with the layers of a served model."""

on_gpu = partial(Criterion, processor="cuda", operators="")

GPU_CRITERIA: tuple[Criterion, ...] = (
    on_gpu("cublas", "geomean", "float32 over cuBLAS", at_least=1.15, dtypes=FLOATS, suites=PAPER_SUITES),
    on_gpu(
        "cublas", "worst", "float32 over cuBLAS, worst", at_least=0.95, dtypes=FLOATS, suites=PAPER_SUITES
    ),
    on_gpu(
        "ansor",
        "geomean",
        "float32 over per-shape tuning",
        at_least=1.3,
        dtypes=FLOATS,
        suites=PAPER_SUITES,
    ),
    on_gpu("cublaslt", "geomean", "halves over cuBLASLt's heuristic", at_least=1.0, dtypes=HALVES),
    on_gpu("cublaslt", "worst", "halves over cuBLASLt's heuristic, worst", at_least=0.85, dtypes=HALVES),
    on_gpu(
        "cublaslt-tuned",
        "geomean",
        "stretch: halves over cuBLASLt tuned for each shape",
        at_least=1.07,
        dtypes=HALVES,
    ),
    on_gpu("held-out", "mean", "mean regret of held-out shapes", "%", at_most=2.0),
    on_gpu(
        "padding",
        "most",
        "executed over useful multiply-adds, serving trace",
        at_most=1.03,
        dtypes=("bfloat16",),
        suites=LLM_SUITES,
    ),
    on_gpu("tuning", "most", "tuning of one operator, with compilation", "s", at_most=600.0),
    on_gpu("trials", "most", "schemes tried for one operator", "", at_most=64.0),
    on_gpu("kernels", "most", "micro-kernels in a library", "", at_most=12.0),
    on_gpu("incorrect", "total", "evaluated shapes, wrong results", "", at_most=0.0),
)
"""The lines that a GPU is judged by, from top to bottom; the targets are set for an H200."""

CRITERIA = (*CPU_CRITERIA, *GPU_CRITERIA)
"""Every line of a summary, but for the suites in SUITE_CRITERIA. A study counts for those of its
kind of processor only."""

dense, batched = partial(Criterion, operators="dense"), partial(Criterion, operators="batch-matmul")
most = partial(Criterion, statistic="most", operators="")
total = partial(Criterion, statistic="total", operators="", at_most=0.0)

LAYER_CRITERIA: tuple[Criterion, ...] = (
    dense("own", "geomean", "over each layer's own library", at_least=0.98, caches=COLD),
    dense(
        "own",
        "worst",
        "over each layer's own library, worst layer",
        by_layer=True,
        at_least=0.95,
        caches=COLD,
    ),
    dense(
        "prepacked",
        "geomean",
        "over the best prepacked vendor, T<=128",
        lengths=SHORT,
        at_least=1.10,
        caches=COLD,
    ),
    dense(
        "prepacked",
        "geomean",
        "over the best prepacked vendor, T>128",
        lengths=LONG,
        at_least=1.0,
        caches=COLD,
    ),
    dense("prepacked", "worst", "over the best prepacked vendor, worst shape", at_least=0.92, caches=COLD),
    batched("plain", "geomean", "batched, over the best plain vendor"),
    batched("plain", "worst", "batched, over the best plain vendor, worst shape"),
    dense("held-out", "mean", "mean regret of held-out shapes and layers", "%", at_most=1.5),
    dense("held-out", "p99", "99th percentile of regret, held-out", "%", at_most=8.0),
    batched("held-out", "mean", "batched, mean regret of held-out shapes", "%", at_most=1.5),
    batched("held-out", "p99", "batched, 99th percentile of regret, held-out", "%", at_most=8.0),
    dense("cores", "geomean", "two cores over one, T>=32", lengths=(32, 1 << 30)),
    most("tuning", what="tuning of dense for every layer", unit="s", at_most=240.0, operators="dense"),
    total("tuning", what="tuning, all three operators", unit="s", at_most=480.0, needs=3),
    most("measurements", what="measurements of one operator", unit="", at_most=1000.0),
    most("memory", what="peak memory of tuning", unit="GB", at_most=2.0),
    most("kernels", what="micro-kernels in a library", unit="", at_most=12.0),
    most("code", what="machine code of a library", unit="KiB", at_most=256.0),
    most("dispatch", what="dispatch in the library", unit="ns", at_most=50.0),
    most("call", what="call from Python without work", unit="us", at_most=2.0),
    total("wrong", what="random shapes called, wrong results", unit="", operators="dense"),
    total("wrong", what="batched, lengths called, wrong results", unit="", operators="batch-matmul"),
    total("incorrect", what="evaluated shapes, wrong results", unit=""),
)
"""The lines of a suite whose layers share one library, from top to bottom."""

SUITE_CRITERIA: Mapping[str, tuple[Criterion, ...]] = dict.fromkeys(
    ("layers", "smoke-layers"), LAYER_CRITERIA
)
"""The lines of suites that have their own, by the suite's name."""


def criteria_of(suite: str) -> tuple[Criterion, ...]:
    """Returns the lines of a suite's summary; those of all others for a table that names no suite."""
    return SUITE_CRITERIA.get(suite, CRITERIA)


LOWER_IS_BETTER: tuple[Measure, ...] = ("regret", "held-out", "padding", "incorrect", *STUDY_MEASURES)
"""Measures whose worst value is the largest."""

NAMES: Mapping[Statistic, str] = {
    "geomean": "geometric mean",
    "mean": "mean",
    "worst": "least",
    "p99": "99th percentile",
    "most": "most",
    "total": "sum",
}
"""What a statistic is called."""

"""The lines of the summary, with all targets."""

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
"""A member of ``OfShapes`` or ``OfStudy``; ``prepacked`` or ``plain`` for the fastest such vendor; or a
contender's name."""

STUDY_MEASURES: tuple[Measure, ...] = get_args(OfStudy)
"""Measures of a whole study, which have no cache state and no shape."""

Statistic = Literal["geomean", "mean", "worst", "p99", "most", "total"]
COLD = ("interleaved", "rotating")
"""Cache states in which weights come from memory, as in a model with many layers."""

EVERY = (1, 1 << 30)
"""A range that includes every T."""


@dataclass(frozen=True)
class Filter:
    """The studies and the lengths that a line of the summary is about.

    Args:
        lengths: the range of T, both ends included; a value over all lengths always counts.
        operators: a prefix of the operator's name.
        processor: the kind of processor.
        dims: static extents that the workload has.
        dtypes: types of the operands (empty: any).
        kernels: the class of a convolution's kernel, as ``samples.kernels_of`` names it (empty: any).
    """

    lengths: tuple[int, int] = EVERY
    operators: str = "dense"
    processor: str = "cpu"
    dims: tuple[tuple[str, int], ...] = ()
    dtypes: tuple[str, ...] = ()
    kernels: str = ""


@dataclass(frozen=True)
class Target:
    """A bound of a line's value.

    Args:
        at_least, at_most: the bound; only one of the two is given.
        caches: cache states that it applies to (empty: all).
        threads: numbers of threads that it applies to (empty: all).
        suites: suites that it applies to (empty: all).
        needs: the least number of workloads in a table to which it applies.
    """

    at_least: float | None = None
    at_most: float | None = None
    caches: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    suites: tuple[str, ...] = ()
    needs: int = 1

    @property
    def bound(self) -> tuple[str, float]:
        """The sign and the number: ``(">=", 1.1)``."""
        return (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most or 0.0)

    def met(self, value: float) -> bool:
        """Returns whether a value meets the bound."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def holds(self, threads: int, cache: str, suite: str) -> bool:
        """Returns whether the target applies to this number of threads, cache state and suite."""
        return (
            (not self.caches or cache in self.caches)
            and (not self.threads or threads in self.threads)
            and (not self.suites or suite in self.suites)
        )


@dataclass(frozen=True)
class Criterion:
    """One line of the summary.

    Args:
        measure: the measure of each shape or study; see :mod:`dietlab.compare.results.samples`.
        statistic: the statistic that makes one number of all values.
        what: the line's name, for people.
        unit: ``x`` (times), ``%``, ``s``, ``us``, ``ns``, ``KiB``, ``GB``, or nothing.
        of: the studies and lengths that count.
        target: the bound of the value; None without a target.
        by_layer: whether each layer counts once, with the geometric mean over its lengths.
    """

    measure: Measure
    statistic: Statistic
    what: str
    unit: str = "x"
    of: Filter = Filter()
    target: Target | None = None
    by_layer: bool = False

    @property
    def compares(self) -> bool:
        """True if it compares our time with a contender's."""
        return self.measure not in (*get_args(OfShapes), *STUDY_MEASURES)

    @property
    def goal(self) -> str:
        """The target as text, such as ``">= 1.1 x"``; empty without one."""
        if self.target is None:
            return ""
        sign, bound = self.target.bound
        return f"{sign} {bound:g} {self.unit}".strip()

    def met(self, value: float) -> bool:
        """Returns whether a value meets the target; True without one."""
        return self.target is None or self.target.met(value)


EPILOGUE_AT_MOST = 1.03
"""Largest ratio of a kernel's time with a fused epilogue to its time without: the epilogue touches each
output once."""

SHORT, SHORTEST, LONG = (1, 128), (1, 32), (129, 2048)
"""Three ranges of T: the paper's range, its shortest lengths, and the lengths beyond it."""

FLOATS, HALVES = ("float32",), ("float16", "bfloat16")

ANY, BATCHED = Filter(operators=""), Filter(operators="batch-matmul")
FROM_17, FROM_32 = Filter((17, 1 << 30)), Filter((32, 1 << 30))
QKV = Filter((128, 1 << 30), dims=(("N", 2304), ("K", 768)), dtypes=FLOATS)

at_least, at_most = Target, partial(Target, None)
cold = partial(Target, caches=COLD)
"""A bound for weights that come from memory."""

prepacked, plain = partial(Criterion, "prepacked"), partial(Criterion, "plain")
regret, held_out = partial(Criterion, "regret", unit="%"), partial(Criterion, "held-out", unit="%")
prime, cores = partial(Criterion, "prime", of=FROM_17), partial(Criterion, "cores")

CPU_CRITERIA: tuple[Criterion, ...] = (
    prepacked("geomean", "over the best prepacked vendor, T=1..128", of=Filter(SHORT), target=cold(1.10)),
    prepacked("geomean", "over the best prepacked vendor, T<=32", of=Filter(SHORTEST), target=cold(1.25)),
    prepacked(
        "worst", "over the best prepacked vendor, worst of T=1..128", of=Filter(SHORT), target=cold(0.92)
    ),
    prepacked("geomean", "over the best prepacked vendor, T=129..2048", of=Filter(LONG), target=cold(1.0)),
    prepacked(
        "worst", "over the best prepacked vendor, worst of T=129..2048", of=Filter(LONG), target=cold(0.92)
    ),
    plain("geomean", "over the best plain vendor, T<=64", of=Filter((1, 64)), target=cold(1.6)),
    plain("geomean", "batched, over the best plain vendor, T=1..128", of=Filter(SHORT, "batch-matmul")),
    plain(
        "worst", "batched, over the best plain vendor, worst of T=1..128", of=Filter(SHORT, "batch-matmul")
    ),
    Criterion("ansor", "geomean", "over per-shape tuning", of=ANY, target=at_least(1.3)),
    Criterion("ansor", "worst", "over per-shape tuning, worst", of=ANY, target=at_least(1.0)),
    regret("mean", "mean regret", of=ANY, target=at_most(1.0)),
    regret("p99", "99th percentile of regret", of=ANY, target=at_most(5.0)),
    Criterion(
        "peak", "mean", "share of the FMA peak, N=2304 K=768, T>=128", "%", QKV, at_least(88.0, threads=(1,))
    ),
    Criterion("peak", "worst", "share of the FMA peak, N=2304 K=768, worst of T>=128", "%", QKV),
    prime("geomean", "prime T over the faster neighbouring multiple of 8", target=at_least(0.95)),
    prime("worst", "prime T over the faster neighbouring multiple of 8, worst", target=at_least(0.95)),
    cores("geomean", "two cores over one, T>=32", of=Filter((32, 1 << 30), ""), target=at_least(1.85)),
    cores("worst", "two cores over one, worst of T>=32", of=Filter((32, 1 << 30), "")),
    Criterion("tuning", "total", "tuning, all workloads", "s", ANY, at_most(600.0, needs=6)),
    Criterion("kernels", "most", "micro-kernels in a library", "", ANY, at_most(8.0)),
    Criterion("code", "most", "machine code of a library", "KiB", ANY, at_most(256.0)),
    Criterion("wrong", "total", "lengths called in 0..8192, wrong results", "", ANY, at_most(0.0)),
)
"""The lines for a CPU, from top to bottom."""

PAPER_SUITES, LLM_SUITES = ("paper-gpu", "first-gpu"), ("llm-gpu", "first-gpu")
"""The suites with the paper's operators in float32, and the suites with the layers of a served model."""

on_gpu = partial(Filter, operators="", processor="cuda")
WHOLE_GPU, GPU_FLOATS, GPU_HALVES = on_gpu(), on_gpu(dtypes=FLOATS), on_gpu(dtypes=HALVES)
in_paper = partial(Target, suites=PAPER_SUITES)

GPU_CRITERIA: tuple[Criterion, ...] = (
    Criterion("cublas", "geomean", "float32 over cuBLAS", of=GPU_FLOATS, target=in_paper(1.15)),
    Criterion("cublas", "worst", "float32 over cuBLAS, worst", of=GPU_FLOATS, target=in_paper(0.95)),
    Criterion("ansor", "geomean", "float32 over per-shape tuning", of=GPU_FLOATS, target=in_paper(1.3)),
    Criterion("cublaslt", "geomean", "halves over cuBLASLt's heuristic", of=GPU_HALVES, target=at_least(1.0)),
    Criterion(
        "cublaslt", "worst", "halves over cuBLASLt's heuristic, worst", of=GPU_HALVES, target=at_least(0.85)
    ),
    Criterion(
        "cublaslt-tuned",
        "geomean",
        "stretch: halves over cuBLASLt tuned for each shape",
        of=GPU_HALVES,
        target=at_least(1.07),
    ),
    held_out("mean", "mean regret of held-out shapes", of=WHOLE_GPU, target=at_most(2.0)),
    Criterion(
        "padding",
        "most",
        "executed over useful multiply-adds, serving trace",
        of=on_gpu(dtypes=("bfloat16",)),
        target=at_most(1.03, suites=LLM_SUITES),
    ),
    Criterion("tuning", "most", "tuning of one operator, with compilation", "s", WHOLE_GPU, at_most(600.0)),
    Criterion("trials", "most", "schemes tried for one operator", "", WHOLE_GPU, at_most(64.0)),
    Criterion("kernels", "most", "micro-kernels in a library", "", WHOLE_GPU, at_most(12.0)),
    Criterion("incorrect", "total", "evaluated shapes, wrong results", "", WHOLE_GPU, at_most(0.0)),
)
"""The lines for a GPU, from top to bottom; targets are those for an H200."""

CRITERIA = (*CPU_CRITERIA, *GPU_CRITERIA)
"""The lines of suites that are not in :data:`SUITE_CRITERIA`. A study counts only in lines for its kind of
processor."""

own = partial(Criterion, "own")

LAYER_CRITERIA: tuple[Criterion, ...] = (
    own("geomean", "over each layer's own library", target=cold(0.98)),
    own("worst", "over each layer's own library, worst layer", target=cold(0.95), by_layer=True),
    prepacked("geomean", "over the best prepacked vendor, T<=128", of=Filter(SHORT), target=cold(1.10)),
    prepacked("geomean", "over the best prepacked vendor, T>128", of=Filter(LONG), target=cold(1.0)),
    prepacked("worst", "over the best prepacked vendor, worst shape", target=cold(0.92)),
    plain("geomean", "batched, over the best plain vendor", of=BATCHED),
    plain("worst", "batched, over the best plain vendor, worst shape", of=BATCHED),
    held_out("mean", "mean regret of held-out shapes and layers", target=at_most(1.5)),
    held_out("p99", "99th percentile of regret, held-out", target=at_most(8.0)),
    held_out("mean", "batched, mean regret of held-out shapes", of=BATCHED, target=at_most(1.5)),
    held_out("p99", "batched, 99th percentile of regret, held-out", of=BATCHED, target=at_most(8.0)),
    cores("geomean", "two cores over one, T>=32", of=FROM_32),
    Criterion("tuning", "most", "tuning of dense for every layer", "s", target=at_most(240.0)),
    Criterion("tuning", "total", "tuning, all three operators", "s", ANY, at_most(480.0, needs=3)),
    Criterion("measurements", "most", "measurements of one operator", "", ANY, at_most(1000.0)),
    Criterion("memory", "most", "peak memory of tuning", "GB", ANY, at_most(2.0)),
    Criterion("kernels", "most", "micro-kernels in a library", "", ANY, at_most(12.0)),
    Criterion("code", "most", "machine code of a library", "KiB", ANY, at_most(256.0)),
    Criterion("dispatch", "most", "dispatch in the library", "ns", ANY, at_most(50.0)),
    Criterion("call", "most", "call from Python without work", "us", ANY, at_most(2.0)),
    Criterion("wrong", "total", "random shapes called, wrong results", "", target=at_most(0.0)),
    Criterion("wrong", "total", "batched, lengths called, wrong results", "", BATCHED, at_most(0.0)),
    Criterion("incorrect", "total", "evaluated shapes, wrong results", "", ANY, at_most(0.0)),
)
"""The lines of suites whose layers share one library, from top to bottom."""

CONVOLVED = Filter(operators="conv")
KERNELS = {
    "3x3 layers": Filter(operators="conv2d", kernels="3x3"),
    "1x1 layers": Filter(operators="conv2d", kernels="1x1"),
    "1-D layers": Filter(operators="conv1d"),
    "depthwise layers": Filter(operators="conv2d", kernels="depthwise"),
}
"""Classes of convolutions, by the name that the summary gives them."""

FASTER: Mapping[str, tuple[float, float | None]] = {
    "3x3 layers": (1.10, 0.95),
    "1x1 layers": (1.20, 0.95),
    "1-D layers": (1.20, 0.95),
    "depthwise layers": (1.0, None),
}
"""Least speedups over the best prepacked vendor: the geometric mean, and the worst."""

BOTH: tuple[tuple[Statistic, str], ...] = (("geomean", ""), ("worst", ", worst"))
"""Two statistics, and what a line's name ends with."""

CONVOLUTION_CRITERIA: tuple[Criterion, ...] = (
    *(
        prepacked(statistic, f"{name}, over the best prepacked vendor{end}", of=of, target=target)
        for name, of in KERNELS.items()
        for number, (statistic, end) in enumerate(BOTH)
        for least in [FASTER[name][number]]
        for target in [None if least is None else at_least(least)]
    ),
    *(
        plain(statistic, f"{name}, over the best plain vendor{end}", of=of)
        for name, of in KERNELS.items()
        for statistic, end in BOTH
    ),
    held_out("mean", "mean regret of held-out sizes", of=CONVOLVED),
    held_out("p99", "99th percentile of regret, held-out", of=CONVOLVED),
    Criterion("peak", "mean", "share of the FMA peak, 3x3 layers", "%", KERNELS["3x3 layers"]),
    Criterion("tuning", "most", "tuning of one layer", "s", CONVOLVED, at_most(120.0)),
    Criterion("tuning", "total", "tuning, all layers", "s", CONVOLVED),
    Criterion("memory", "most", "peak memory of tuning", "GB", CONVOLVED),
    Criterion("kernels", "most", "micro-kernels in a library", "", CONVOLVED),
    Criterion("code", "most", "machine code of a library", "KiB", CONVOLVED, at_most(256.0)),
    Criterion("dispatch", "most", "dispatch in the library", "ns", CONVOLVED, at_most(50.0)),
    Criterion("wrong", "total", "random images called, wrong results", "", CONVOLVED, at_most(0.0)),
    Criterion("incorrect", "total", "evaluated sizes, wrong results", "", CONVOLVED, at_most(0.0)),
)
"""The lines of suites of convolutions, from top to bottom."""

SUITE_CRITERIA: Mapping[str, tuple[Criterion, ...]] = {
    **dict.fromkeys(("layers", "smoke-layers"), LAYER_CRITERIA),
    **dict.fromkeys(
        ("resnet50", "resnet50-layers", "speech", "depthwise", "smoke-conv"), CONVOLUTION_CRITERIA
    ),
}
"""The lines of each suite that does not use :data:`CRITERIA`, by the suite's name."""


def criteria_of(suite: str) -> tuple[Criterion, ...]:
    """Returns the lines of a suite's summary; :data:`CRITERIA` for an empty name."""
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
"""Names of the statistics, for people."""

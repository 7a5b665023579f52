"""Finds dietlab's value for each claim of the paper in a folder of records such as ``data/results``, and
draws figures of reported values and dietlab's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING

from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.criteria import SHORT
from dietlab.compare.results.row import ANSOR, LENGTH, OURS, over_best
from dietlab.lab.models import frame_padding
from dietlab.lab.models.runtimes import ALSO_OURS
from dietlab.lab.reproduce.paper import (
    DENSE,
    DENSE_REPORTED,
    EDGES,
    SENTENCES,
    TREATMENTS,
    Claim,
    reported_speedups,
    reported_throughput,
)
from dietlab.view.figures.table import plot_bars, plot_table
from dietlab.view.pages.bench_text import Table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

FROM_MEMORY = "rotating"
"""The cache state in which weights come from memory, as in a model."""
PAPER_LENGTHS, ALL_LENGTHS, PAPER_TRIALS = 8, 128, 1000
"""The number of lengths that the paper tuned for, the number of all lengths in its range, and Ansor's trials
for each length in the paper."""
TUNED_PER_LENGTH = "bert-ansor"
"""The kind of records that compare BERT with programs tuned for each length. These records cover few
lengths."""
HEADER = ("claim", "reported", "ours", "on", "method", "reached")
"""The columns of the table of claims."""
CHECKED, PARTITIONED, PADDED, _ = TREATMENTS.values()

Speedups = Mapping[int, float]
"""dietlab's speedups (x) by length."""


@dataclass(frozen=True)
class Finding:
    """dietlab's value of a claim on one machine, and the differences between its method and the paper's."""

    where: str
    value: float
    method: str


# --- records ----------------------------------------------------------------------------------------


def tables(results: Path, *kinds: str) -> Iterator[tuple[str, Report]]:
    """Yields the reports of all tables ``MACHINE-KIND.csv.gz`` in a folder, each with its machine."""
    for kind in kinds:
        for path in sorted(results.glob(f"*-{kind}.csv.gz")):
            for report in ResultTable.load(path).reports:
                yield f"{_machine(path)}, {report.used}", report


def models(results: Path, *kinds: str) -> Iterator[tuple[str, Report]]:
    """Yields the reports of some kinds of whole models in a folder, each with its machine."""
    for kind in kinds:
        for path in sorted(results.glob(f"*-{kind}-b*.report.json.gz")):
            report = Report.load(path)
            yield f"{_machine(path)}, {report.used}, batch {report.workload['batch']}", report


def _machine(path: Path) -> str:
    return path.name.split("-")[0].replace("zen", "Zen ").replace("xeon", "Xeon").replace("h200", "H200")


def rivals(report: Report) -> tuple[str, ...]:
    """Returns the contenders that took part for a whole model, except dietlab's and those with programs tuned
    for each length.
    """
    present = (info.name for info in report.contenders if not info.absent)
    return tuple(name for name in present if name not in (OURS, *ALSO_OURS, ANSOR))


def prepacked(report: Report) -> tuple[str, ...]:
    """Returns the contenders that may pack constant weights beforehand, as dietlab does."""
    return tuple(info.name for info in report.contenders if info.kind == "prepacked")


def over(
    report: Report,
    contenders: Collection[str],
    caches: Collection[str] | None = None,
    longest: int = SHORT[1],
) -> Speedups:
    """Returns dietlab's speedup over the fastest of some contenders, by length from 1 to ``longest``
    (default: the end of the paper's range). The report must have exactly one cache state of ``caches``
    (default: all)."""
    besides = {row.contender for row in report.rows} - {*contenders}
    return {
        shape[LENGTH]: speedup
        for (shape, cache), speedup in sorted(over_best(report.rows, besides).items())
        if (caches is None or cache in caches) and SHORT[0] <= shape[LENGTH] <= longest
    }


# --- how each is found ------------------------------------------------------------------------------


def _mean(where: str, found: Speedups, method: str) -> Iterator[Finding]:
    if found:
        least = min(found, key=lambda length: found[length])
        spread = f"{len(found)} lengths, the least {found[least]:.2f}x at T = {least}"
        yield Finding(where, geometric_mean(found.values()), f"{method}; {spread}")


def _best(where: str, found: Speedups, method: str) -> Iterator[Finding]:
    if found:
        length = max(found, key=lambda t: found[t])
        yield Finding(where, found[length], f"{method}; at T = {length}")


Say = Callable[[str, Speedups, str], Iterator[Finding]]


def _bert_vendor(say: Say, results: Path) -> Iterator[Finding]:
    for where, report in _bert(results, "bert"):
        names = rivals(report)
        yield from say(where, over(report, names), f"random weights, over the best of {', '.join(names)}")


def _bert_ansor(say: Say, results: Path) -> Iterator[Finding]:
    for where, report in _bert(results, "bert", TUNED_PER_LENGTH):
        details = [info.detail for info in report.contenders if info.name == ANSOR and info.detail]
        yield from say(where, over(report, [ANSOR]), "; ".join(["random weights, MetaSchedule", *details]))


def _bert(results: Path, *kinds: str) -> list[tuple[str, Report]]:
    return [found for found in models(results, *kinds) if found[1].workload["operator"] == "bert-base"]


def _dense(results: Path, *kinds: str) -> list[tuple[str, Report]]:
    return [found for found in tables(results, *kinds) if found[1].name == DENSE]


def _dense_vendor(results: Path) -> Iterator[Finding]:
    method = "over the best library that packs weights beforehand; rows are tokens, weights from memory"
    for where, report in _dense(results, "bench", "paper"):
        yield from _mean(where, over(report, prepacked(report), [FROM_MEMORY]), method)
    method = "over the faster of {}; rows are those of the paper's sentences, weights from memory"
    for where, report in _dense(results, "first"):
        names = [info.name for info in report.contenders if info.kind == "plain"]
        found = over(report, names, [FROM_MEMORY], longest=SENTENCES * SHORT[1])
        yield from _mean(where, found, method.format(" and ".join(names)))


def _dense_ansor(say: Say, results: Path) -> Iterator[Finding]:
    for where, report in _tuned_per_shape(results):
        method = f"MetaSchedule, {_trials(report)}"
        yield from say(where, over(report, [ANSOR], [FROM_MEMORY]), method)


def _dense_one_schedule(results: Path) -> Iterator[Finding]:
    evaluated = ((path, Report.load(path)) for path in sorted(results.glob("*core.report.json.gz")))
    found = [(f"{_machine(path)}, {report.used}", report) for path, report in evaluated]
    for where, report in (*found, *_dense(results, "paper")):
        speedups = over(report, ["largest-shape"], [FROM_MEMORY])
        yield from _mean(where, speedups, "the largest shape's best plan")


def _tuning(lengths: int, method: str, results: Path) -> Iterator[Finding]:
    """Yields ratios: the seconds of per-shape tuning for some number of lengths over dietlab's seconds for
    all lengths.
    """
    for where, report in _tuned_per_shape(results):
        seconds = report.tuning["ansor_seconds"].values()
        ratio = sum(seconds) / len(seconds) * lengths / report.tuning["total_seconds"]
        yield Finding(where, ratio, f"{method}{_trials(report)}")


def _tuned_per_shape(results: Path) -> list[tuple[str, Report]]:
    return [found for found in _dense(results, ANSOR, "paper") if "ansor_seconds" in found[1].tuning]


def _trials(report: Report) -> str:
    trials = max(report.tuning["ansor_trials"].values())
    return f"{trials} trials a length instead of {PAPER_TRIALS}"


def _padding(operator: str, treatment: str, results: Path) -> Iterator[Finding]:
    """Yields ratios: the time with a treatment of the edge over the time with local padding, on the paper's
    operator.
    """
    for where, report in tables(results, "local-padding"):
        found, extent = _by_treatment(report), EDGES[operator]
        composed, padded = (found.get(name, {}).get(extent) for name in (treatment, PADDED))
        if report.name == operator and composed and padded:
            scheme = next(info.detail for info in report.contenders if info.name == OURS)
            method = f"tiles of {scheme}; composition of exact tiles in place of padding: {composed:.2f}x"
            yield Finding(where, composed / padded, method)


def _padding_most(results: Path) -> Iterator[Finding]:
    best: dict[str, tuple[float, str]] = {}
    for where, report in tables(results, "local-padding", "ablation"):
        found = _by_treatment(report) if report.name.startswith((DENSE, *EDGES)) else {}
        for length in {*found.get(CHECKED, {})} & {*found.get(PADDED, {})}:
            ratio = found[CHECKED][length] / found[PADDED][length]
            best[where] = max(best.get(where, (0.0, "")), (ratio, f"{report.name}, T = {length}"))
    for where, (ratio, method) in best.items():
        yield Finding(where, ratio, method)


def _by_treatment(report: Report) -> dict[str, dict[int, float]]:
    """Returns the time without composition over the time with it, by treatment of the edge and length."""
    found: dict[str, dict[int, float]] = {}
    for row in report.rows:
        if row.correct and row.speedup and row.cache == FROM_MEMORY:
            found.setdefault(row.contender, {})[row.shape[LENGTH]] = row.speedup
    return found


_LAYER, _PRODUCT = EDGES

FINDERS: Mapping[str, Callable[[Path], Iterator[Finding]]] = {
    "bert-vendor": partial(_bert_vendor, _mean),
    "bert-vendor-best": partial(_bert_vendor, _best),
    "bert-ansor": partial(_bert_ansor, _mean),
    "bert-ansor-best": partial(_bert_ansor, _best),
    "dense-vendor": _dense_vendor,
    "dense-ansor": partial(_dense_ansor, _mean),
    "dense-ansor-best": partial(_dense_ansor, _best),
    "dense-one-schedule": _dense_one_schedule,
    "tuning-eight": partial(_tuning, PAPER_LENGTHS, "MetaSchedule, "),
    "tuning-all": partial(_tuning, ALL_LENGTHS, "extrapolated as there; "),
    "checks-dense-3090": partial(_padding, _LAYER, CHECKED),
    "checks-dense-2080": partial(_padding, _LAYER, CHECKED),
    "partitioned-dense-3090": partial(_padding, _LAYER, PARTITIONED),
    "partitioned-dense-2080": partial(_padding, _LAYER, PARTITIONED),
    "checks-batched-3090": partial(_padding, _PRODUCT, CHECKED),
    "checks-batched-2080": partial(_padding, _PRODUCT, CHECKED),
    "checks-most": _padding_most,
}
"""The functions by claim that yield dietlab's values from a folder of records, or no value if nothing was
measured."""


def claims_table(claims: Iterable[Claim], results: Path) -> Table:
    """Returns the header and the rows of the table of claims. Every claim has a row for each machine that
    measured it.
    """
    return HEADER, [row for claim in claims for row in _rows(claim, [*FINDERS[claim.id](results)])]


def _rows(claim: Claim, findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    about = f"{claim.claim} ({claim.source})", f"{claim.reported:g}x"
    if not findings:
        yield (*about, "-", "-", "not measured", "")
    for found in findings:
        reached = "yes" if found.value >= claim.reported else "no"
        yield (*about, f"{found.value:.3f}x", found.where, found.method, reached)
        about = "", ""


# --- figures ----------------------------------------------------------------------------------------

REPORTED = "DietCode, T4 (reported)"
Figures = Iterator[tuple[str, "go.Figure"]]
"""Figures with their headings."""


def dense_figures(table: ResultTable) -> Figures:
    """Yields the dense layer's speedups over vendors, Ansor and one schedule, reported and here."""
    reported = reported_speedups(DENSE_REPORTED)
    for report in table.reports:
        ours = {f"dietlab, {report.used}": report}
        for system, words, contenders in (
            ("vendor", "the vendor", prepacked(report)),
            (ANSOR, "Ansor, tuned for each length", (ANSOR,)),
            ("nimble", "the schedule of the largest shape", ("largest-shape",)),
        ):
            yield from _beside(f"{report.name}: speedup over {words}", reported[system], ours, contenders)


def bert_figures(table: ResultTable) -> Figures:
    """Yields BERT's speedups over vendors and Ansor, reported and here."""
    reported = reported_speedups("bert_base_e2e")
    ours = {f"dietlab, {report.name}, {report.used}": report for report in table.reports}
    vendors = [name for report in table.reports for name in rivals(report)]
    title = "BERT-base from end to end: speedup over"
    yield from _beside(f"{title} the vendor", reported["vendor"], ours, vendors)
    yield from _beside(f"{title} Ansor, tuned for each length", reported[ANSOR], ours, [ANSOR])


def served_figures(table: ResultTable) -> Figures:
    """Yields bars of tokens per second, by padding policy, for each model that runs in a server."""
    for report in table.reports:
        frame = frame_padding(report).pivot(index="policy", columns="contender", values="tokens_per_second")
        title = f"{report.name}, {report.used}: tokens per second by padding policy"
        yield title, plot_bars(frame, title, "tokens per second")


def _beside(
    title: str, reported: pd.Series[float], reports: Mapping[str, Report], contenders: Collection[str]
) -> Figures:
    """Yields a figure of the reported speedups and of dietlab's speedups over the fastest of some contenders,
    if these contenders took part.
    """
    import pandas as pd

    found = {name: pd.Series(over(report, contenders), dtype=float) for name, report in reports.items()}
    ours = {name: values for name, values in found.items() if len(values)}
    if ours:
        frame = pd.DataFrame({REPORTED: reported} | ours).sort_index()
        yield title, plot_table(frame, title, "T (length)", "speedup (x)")


def padding_figures(table: ResultTable) -> Figures:
    """Yields bars of throughput by treatment of the edge, over the throughput with bound checks, reported and
    here.
    """
    for report in table.reports:
        if report.name in EDGES:
            frame = treatments(report)
            title = f"{report.name}: throughput over that with bound checks"
            yield title, plot_bars(frame, title, "throughput (x)")


def treatments(report: Report) -> pd.DataFrame:
    """Returns throughput over the throughput with bound checks (x). A row is a treatment of the edge. The
    columns are the paper's GPUs and this machine, at the same extents.
    """
    import pandas as pd

    extent = EDGES[report.name]
    rate = {row.contender: row.gflops for row in report.rows if row.shape[LENGTH] == extent and row.correct}
    names = [name for name in (*TREATMENTS.values(), OURS) if name in rate]
    here = pd.Series({name: rate[name] / rate[TREATMENTS["predicated"]] for name in names}, dtype=float)
    here = here.rename(index={OURS: "composition"})
    frame = reported_throughput(report.name)
    order = [*dict.fromkeys((*frame.index, *here.index))]
    name = f"{report.processor_name}, {report.used}"
    return frame.rename(columns=lambda gpu: f"{gpu} (reported)").reindex(order).assign(**{name: here})

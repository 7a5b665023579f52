"""Figures that set reported values beside ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.row import ANSOR, LENGTH, OURS
from dietlab.lab.models import frame_padding
from dietlab.lab.reproduce.findings import over, prepacked, rivals
from dietlab.lab.reproduce.paper import EDGES, TREATMENTS, reported_speedups, reported_throughput
from dietlab.view.figures.table import plot_bars, plot_table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

REPORTED = "DietCode, T4 (reported)"
Figures = Iterator[tuple[str, "go.Figure"]]
"""Headings and figures."""


def nothing(table: ResultTable) -> Figures:
    """Returns no figure: public material reports no values of the experiment."""
    yield from ()


def dense(table: ResultTable) -> Figures:
    """Yields the dense layer's speedups over vendors, Ansor and one schedule, reported and here."""
    reported = reported_speedups("dense_16Tx768_2304")
    for report in table.reports:
        ours = {f"dietlab, {report.used}": report}
        for system, words, contenders in (
            ("vendor", "the vendor", prepacked(report)),
            (ANSOR, "Ansor, tuned for each length", (ANSOR,)),
            ("nimble", "the schedule of the largest shape", ("largest-shape",)),
        ):
            yield from _beside(f"{report.name}: speedup over {words}", reported[system], ours, contenders)


def bert(table: ResultTable) -> Figures:
    """Yields BERT's speedups over vendors and Ansor, reported and here."""
    reported = reported_speedups("bert_base_e2e")
    ours = {f"dietlab, {report.name}, {report.used}": report for report in table.reports}
    vendors = [name for report in table.reports for name in rivals(report)]
    title = "BERT-base from end to end: speedup over"
    yield from _beside(f"{title} the vendor", reported["vendor"], ours, vendors)
    yield from _beside(f"{title} Ansor, tuned for each length", reported[ANSOR], ours, [ANSOR])


def served(table: ResultTable) -> Figures:
    """Yields bars of tokens per second, by padding policy, for each model that runs in a server."""
    for report in table.reports:
        frame = frame_padding(report).pivot(index="policy", columns="contender", values="tokens_per_second")
        title = f"{report.name}, {report.used}: tokens per second by padding policy"
        yield title, plot_bars(frame, title, "tokens per second")


def _beside(
    title: str, reported: pd.Series[float], reports: Mapping[str, Report], contenders: Collection[str]
) -> Figures:
    """Yields the figure of reported speedups and those of some reports over the fastest of some contenders;
    none if they did not take part."""
    import pandas as pd

    found = {name: pd.Series(over(report, contenders), dtype=float) for name, report in reports.items()}
    ours = {name: values for name, values in found.items() if len(values)}
    if ours:
        frame = pd.DataFrame({REPORTED: reported} | ours).sort_index()
        yield title, plot_table(frame, title, "T (length)", "speedup (x)")


def local_padding(table: ResultTable) -> Figures:
    """Yields bars of throughput by treatment of the edge, over that with bound checks, reported and here."""
    for report in table.reports:
        if report.name in EDGES:
            frame = treatments(report)
            title = f"{report.name}: throughput over that with bound checks"
            yield title, plot_bars(frame, title, "throughput (x)")


def treatments(report: Report) -> pd.DataFrame:
    """Returns throughput over that with bound checks (x): a row for each treatment of the edge, a column for
    each of the paper's GPUs and for this machine, at the same extents."""
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

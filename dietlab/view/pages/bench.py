"""A bench as one self-contained HTML page: it opens without a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dietlab.base.files import write_whole
from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.table import ResultTable
from dietlab.compare.study import DISPATCHER, MODEL
from dietlab.cost import CostModel
from dietlab.tuning import Dispatcher
from dietlab.view.pages.bench_text import bench_title, machine_lines, notes_of, tables
from dietlab.view.pages.page import figure_markup, render_page

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Section(NamedTuple):
    """A heading and the markup of the figures below it, which are unfolded together."""

    heading: str
    figures: list[str]


def render_bench_page(table: ResultTable, plans: Mapping[str, go.Figure] | None = None) -> str:
    """Returns the page of a bench: the summary, every table, and the figures of each workload.

    Args:
        plans: figures of :func:`plans_in` by heading (default: no such section).
    """
    return render_page(
        "bench.html.j2",
        bench_title(table),
        lines=machine_lines(table),
        tables=tables(table),
        notes=notes_of(table),
        sections=list(_sections(table)),
        plans=[
            (heading, figure_markup(figure, f"plan-{number}"))
            for number, (heading, figure) in enumerate((plans or {}).items())
        ],
    )


def write_bench(table: ResultTable, path: str | Path, plans: Mapping[str, go.Figure] | None = None) -> Path:
    """Writes :func:`render_bench_page` to ``path``, which is replaced whole."""
    target = Path(path)
    write_whole(target, render_bench_page(table, plans))
    return target


def plans_in(folder: str | Path, table: ResultTable) -> dict[str, go.Figure]:
    """Returns, for each study of a bench in ``folder``, a figure of the plan of each length and of the
    predicted parts of its time. Studies of several dynamic dimensions have no figure, since a figure shows a
    single layer."""
    from dietlab.view.figures.plans import plot_plans

    found = {}
    for report in table.reports:
        study = Path(folder) / report.folder
        drawn = report.complete and len(report.operator.dims) == 1
        if drawn and (study / MODEL).exists() and (study / DISPATCHER).exists():
            dispatcher, model = Dispatcher.load(study / DISPATCHER), CostModel.load(study / MODEL)
            found[f"{report.name}, {report.used}"] = plot_plans(dispatcher, model)
    return found


def _sections(table: ResultTable) -> Iterator[Section]:
    """Yields a section for each workload: speedups by threads and cache state, and then shares of the
    roofline. A workload with layers has the speedups of each layer instead."""
    from dietlab.view.figures.bench import bench_layer_figures, plot_bench_roofline, plot_bench_speedup

    measured = [(report.name, report.threads, cache) for report in table.reports for cache in report.caches]
    for number, name in enumerate(sorted({workload for workload, _, _ in measured})):
        turns = sorted((threads, cache) for workload, threads, cache in measured if workload == name)
        dims = table.report(name, turns[0][0]).operator.dims
        if LENGTH not in dims:
            continue  # images: the tables list them
        if len(dims) > 1:
            drawn = [figure for place in turns for figure in bench_layer_figures(table, name, *place)]
        else:
            drawn = [plot_bench_speedup(table, name, threads, cache) for threads, cache in turns]
            drawn += [plot_bench_roofline(table, name, threads) for threads in sorted({t for t, _ in turns})]
        # Numbered: a name out of the table has no place in a script.
        markup = [figure_markup(figure, f"figure-{number}-{i}") for i, figure in enumerate(drawn)]
        yield Section(name, markup)

"""A report as one self-contained HTML page, and as a table for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dietlab.base.cards import Listing, counted
from dietlab.base.files import write_whole
from dietlab.compare.results.first_calls import FIRST_CAPTION, first_listing
from dietlab.compare.results.parts import part_listing
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import uncounted
from dietlab.compare.results.speedups import summary_listing
from dietlab.view.figures.traffic import padding_listing, trace_listing, traffic_words
from dietlab.view.pages.page import figure_markup, render_page
from dietlab.view.progress import duration

if TYPE_CHECKING:
    import plotly.graph_objects as go

TRACE_CAPTION = "time of a mean call over the trace, and the speedup of {} on the same calls"
PARTS_CAPTION = "speedup of {} by {}, in times"
PADDING_CAPTION = "multiply-adds that no output needs, over all executed, over the trace"
SUMMARY_CAPTION = "speedup of {0} over each contender, in times (above 1: {0} is faster)"


class Fact(NamedTuple):
    """A name, and as text the value with its unit."""

    name: str
    value: str


class Numbers(NamedTuple):
    """A table of a report: its name, the heading and the sentence above it, its caption, its header and rows,
    and ``words``: the number of its first columns that hold text and are flush left."""

    name: str
    heading: str
    above: str
    caption: str
    table: Listing
    words: int


def tables_of(report: Report) -> Iterator[Numbers]:
    """Yields the tables of a report that have rows, and the summary in any case."""
    maker, words = report.maker, traffic_words(report)
    summary = summary_listing(report.summary)
    yield Numbers("summary", "Summary", "", SUMMARY_CAPTION.format(maker), summary, 2)
    others = [
        Numbers(f"by-{what}", f"Speedup by {what}", "", PARTS_CAPTION.format(maker, what), listing, 3)
        for what, found in (("layer", report.by_layer), ("length", report.by_length))
        for listing in (part_listing(what, found),)
    ]
    others += [
        Numbers(
            "trace", "Over the trace", words, TRACE_CAPTION.format(maker), trace_listing(report.trace), 2
        ),
        Numbers("padding", "", "", PADDING_CAPTION, padding_listing(report.padding), 1),
        Numbers("first", "First calls", "", FIRST_CAPTION, first_listing(report.first_calls), 2),
    ]
    yield from (shown for shown in others if shown.table.items)


def render_html(report: Report) -> str:
    """Renders the whole report as one HTML page; light or dark as the reader's system is.

    Args:
        report: the report of :func:`~dietlab.evaluate`.
    """
    return render_page(
        "report.html.j2",
        report.title,
        report=report,
        facts=_fact_tables(report),
        numbers=list(tables_of(report)),
        present=[c for c in report.contenders if not c.absent],
        absent=[c for c in report.contenders if c.absent],
        wrong=_uncounted(report, wrong=True),
        missing=_uncounted(report, wrong=False),
        figures=list(_figures(report)),
    )


def write_html(report: Report, path: str | Path) -> Path:
    """Writes :func:`render_html` to ``path`` (about 5 MB, nearly all of it plotly.js).

    Args:
        report: the report of :func:`~dietlab.evaluate`.
        path: the path of the page; an existing file is replaced whole.

    Raises:
        DietlabError: if the page cannot be written; an existing page then stays.
    """
    target = Path(path)
    write_whole(target, render_html(report))
    return target


def render_text(report: Report) -> str:
    """Renders the summary for a terminal: aligned, in plain characters, with units.

    Args:
        report: the report of :func:`~dietlab.evaluate`.
    """
    lines = [
        report.title,
        f"on {report.processor_name}, {report.used}",
        *([f"How far to trust this: {report.trust}."] if report.trust else []),
    ]
    for shown in tables_of(report):
        above = [f"{shown.name}: {shown.above}"] if shown.above else []
        lines += ["", *above, shown.caption, *aligned(shown.table, shown.words)]
    for title, entries in (
        ("contenders", [f"{c.name}: {c.detail or c.version}" for c in report.contenders if not c.absent]),
        ("absent", [f"{c.name}: {c.absent}" for c in report.contenders if c.absent]),
        ("wrong results, not counted", _uncounted(report, wrong=True)),
        ("no results", _uncounted(report, wrong=False)),
        ("quality of dispatch", [": ".join(fact) for fact in facts(report.quality)]),
        ("tuning", [": ".join(fact) for fact in facts(report.tuning)]),
        ("library", [": ".join(fact) for fact in facts(report.library)]),
        ("notes", list(report.remarks)),
    ):
        if entries:
            lines += ["", title, *(f"  {entry}" for entry in entries)]
    return "\n".join(lines) + "\n"


def _uncounted(report: Report, *, wrong: bool) -> list[str]:
    """Lists the contenders with wrong or missing results: the number of such shapes, and the reason on the
    first."""
    return [
        f"{contender} ({cache} cache): {counted(len(rows), 'shape')}, the first {rows[0].shape}"
        + (f": {rows[0].plan}" if rows[0].plan else "")
        for (contender, cache), rows in uncounted(report.rows, wrong=wrong).items()
    ]


def facts(values: Mapping[str, Any], prefix: str = "", unit: str = "") -> list[Fact]:
    """Returns names and values of any JSON object, flattened; a value has the unit that its name ends in.

    ``{"seconds": {"compile": 3.0}}`` gives ``seconds, compile: 3.0 s``."""
    found: list[Fact] = []
    for key, value in values.items():
        own = _unit(key) or unit
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            found += facts(value, f"{name}, ", own)
            amounts = list(value.values())
            if own == "s" and len(amounts) > 1 and "total" not in value and all(map(_is_number, amounts)):
                found.append(Fact(f"{name}, total", duration(sum(amounts))))
        elif value is not None:
            found.append(Fact(name, _with_unit(value, own)))
    return found


def _unit(key: str) -> str:
    words = {"seconds": "s", "bytes": "bytes", "gflops": "GFLOP/s", "gbps": "GB/s", "ns": "ns", "us": "us"}
    return words.get(key.rpartition("_")[2], "")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _with_unit(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not _is_number(value):
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    if unit == "s":
        return duration(value)
    if unit == "bytes":
        return f"{value} bytes" if value < 1024 else f"{value / 1024:.1f} KiB"
    return f"{value:.5g} {unit}".strip() if isinstance(value, float) else f"{value} {unit}".strip()


def _fact_tables(report: Report) -> list[tuple[str, list[Fact]]]:
    return [
        ("Workload", facts(report.workload)),
        ("Hardware", facts(report.hardware)),
        ("Quality of dispatch", facts(report.quality)),
        ("Tuning", facts(report.tuning)),
        ("Library", facts(report.library)),
        ("Versions", facts(report.versions)),
    ]


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    """Yields, for each figure, a heading and a ``div``."""
    drawn = _along_the_length(report) if len(report.dims) < 2 else _over_layers(report)
    # Numbered: a name out of the report has no place in a script.
    for number, (heading, figure) in enumerate(drawn):
        yield heading, figure_markup(figure, f"figure-{number}")


def _along_the_length(report: Report) -> Iterator[tuple[str, go.Figure]]:
    """Yields three figures for each cache state, then padding and traffic."""
    from dietlab.view.figures.results import plot_latency, plot_padding, plot_speedup, plot_throughput
    from dietlab.view.figures.traffic import plot_traffic

    plots = (("speedup", plot_speedup), ("throughput", plot_throughput), ("latency", plot_latency))
    for cache in report.caches:
        for name, plot in plots:
            yield f"{name}, {cache} cache", plot(report, cache)
    if _any_has(report, "padding_waste"):
        yield "padding waste", plot_padding(report)
    if report.padding:
        yield "traffic and padding", plot_traffic(report)


def _over_layers(report: Report) -> Iterator[tuple[str, go.Figure]]:
    """Yields, for each cache state, a figure by layer, a figure by length, and maps."""
    from dietlab.view.figures.layers import plot_layers, plot_lengths
    from dietlab.view.figures.shape_map import LAYER, REPORTED, plot_map

    for cache in report.caches:
        yield f"speedup by layer, {cache} cache", plot_layers(report, cache)
        yield f"speedup by length, {cache} cache", plot_lengths(report, cache)
        for value in REPORTED:
            if value == "speedup" or _any_has(report, value):
                heading = f"{value.replace('_', ' ')}, {cache} cache"
                yield heading, plot_map(report, value, y=LAYER, cache=cache)


def _any_has(report: Report, field: str) -> bool:
    return any(row.contender == report.maker and getattr(row, field) is not None for row in report.rows)


def aligned(table: Listing, words: int) -> list[str]:
    """Returns lines with columns two spaces apart. The first ``words`` columns are flush left, the others
    flush right."""
    rows = table.rows
    widths = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "  ".join(
            cell.ljust(width) if i < words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [table.header, rule, *rows]
    ]

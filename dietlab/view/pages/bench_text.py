"""A bench as Markdown: aligned, so that it reads in a terminal as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from statistics import fmean

from dietlab.base.cards import counted
from dietlab.compare.results.criteria import criteria_of
from dietlab.compare.results.parts import Place, by_place, layer_place, length_place, parts
from dietlab.compare.results.row import ANSOR, LENGTH, uncounted
from dietlab.compare.results.samples import Block, blocks, bounds
from dietlab.compare.results.speedups import JUDGES, summary_listing
from dietlab.compare.results.speedups import SUMMARY_HEADER as CONTENDER_HEADER
from dietlab.compare.results.summary import Line, by_workload, summarise
from dietlab.compare.results.table import ResultTable
from dietlab.machine import above_roofline
from dietlab.problem import Shape
from dietlab.view.progress import duration

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The header and the rows of a table of texts."""

USED = "ran on"
"""The heading of the column that says what a call uses: cores, or one GPU."""

SUMMARY_HEADER = (
    "what",
    USED,
    "cache",
    "shapes",
    "value",
    "95 % interval",
    "worst",
    "at the roofline",
    "target",
    "verdict",
)
PART_COLUMNS = (
    "over its own library",
    "over the best prepacked vendor",
    "worst of these",
    "mean regret",
    "most regret",
)
SHOWN = 8
"""The most shapes with wrong results that are listed."""


def render_bench(table: ResultTable) -> str:
    """Formats the summary with its targets, the summary of each workload, the roofline, and the absent
    contenders."""
    lines = [f"# {bench_title(table)}", "", *machine_lines(table)]
    for heading, content in tables(table):
        lines += ["", f"## {heading}", "", markdown(*content)]
    for heading, notes in notes_of(table):
        lines += ["", f"## {heading}", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def bench_title(table: ResultTable) -> str:
    about = table.about
    return f"Bench {about.get('suite', '')}, effort {about.get('effort', '')}"


def machine_lines(table: ResultTable) -> list[str]:
    """Formats the processor, the date and the versions."""
    names = dict.fromkeys(str(report.hardware.get("name")) for report in table.reports)
    versions = ", ".join(f"{name} {version}" for name, version in table.about.get("versions", {}).items())
    return [f"{', '.join(names) or 'nothing was measured'}; {table.about.get('started', '')}; {versions}"]


def tables(table: ResultTable) -> list[tuple[str, Table]]:
    """Returns the heading and the cells of every table that has rows."""
    found = [
        ("Summary", (SUMMARY_HEADER, [summary_cells(line) for line in summarise(table)])),
        ("By workload", workload_table(table)),
        ("By layer", part_table("layer", table)),
        ("By length", part_table("length", table)),
        ("By contender", contender_table(table)),
        ("Roofline", roofline_table(table)),
        ("Studies", study_table(table)),
        ("Contenders", who_table(table)),
    ]
    return [(heading, content) for heading, content in found if content[1]]


def summary_cells(line: Line) -> tuple[str, ...]:
    """Returns the cells below ``SUMMARY_HEADER``."""
    unit = line.criterion.unit
    between = "" if line.low is None else f"{_number(line.low, unit)} to {_number(line.high, unit)}"
    where = f" {line.worst.shape}" if line.worst.shape.bindings else ""
    return (
        line.criterion.what,
        line.used,
        line.cache or "-",
        str(line.shapes),
        f"{_number(line.value, unit)} {unit}".strip(),
        between,
        f"{_number(line.worst.value, unit)} {line.worst.workload}{where}",
        f"{_number(line.ceiling, unit)} {unit}" if line.ceiling is not None else "",
        line.criterion.goal if line.verdict else "",
        line.verdict,
    )


def workload_table(table: ResultTable) -> Table:
    """Returns the speedups and regrets of the summary, but for each workload by itself."""
    chosen = [
        one
        for one in criteria_of(table.suite)
        if (one.compares and one.measure != ANSOR) or one.measure in ("regret", "held-out")
    ]
    rows = [(line.workloads[0], *summary_cells(line)) for line in by_workload(table, chosen)]
    return ("workload", *SUMMARY_HEADER), rows


def part_table(what: str, table: ResultTable) -> Table:
    """Returns speedups (x) and regrets (%), of each layer over its lengths or of each length over all layers.
    Workloads of one dimension have no rows.

    Args:
        what: the kind of part, ``layer`` or ``length``.
    """
    rows = [
        (block.report.name, block.report.used, block.cache, *cells)
        for block in blocks(table)
        if len(block.report.operator.dims) > 1 and (what == "layer" or LENGTH in block.report.operator.dims)
        for cells in _part_cells(block, layer_place(LENGTH) if what == "layer" else length_place(LENGTH))
    ]
    return ("workload", USED, "cache", what, "held out", "shapes", *PART_COLUMNS), rows


def _part_cells(block: Block, place: Place) -> Iterator[tuple[str, ...]]:
    compared = ((block.cache, name, block.groups.get(name, ())) for name in ("own", JUDGES[0]))
    found = {(part.where, part.summary.contender): part.summary for part in parts(compared, place)}
    for where, ours in by_place(block.ours.values(), place).items():
        own, best = found.get((where, "own")), found.get((where, JUDGES[0]))
        lost = [100 * row.regret for row in ours if row.regret is not None]
        yield (
            where,
            "yes" if all(row.held_out for row in ours) else "",
            str(len(ours)),
            f"{own.geomean_speedup:.3f} x" if own else "-",
            f"{best.geomean_speedup:.3f} x" if best else "-",
            f"{best.worst_speedup:.3f} x" if best else "-",
            f"{fmean(lost):.1f} %" if lost else "-",
            f"{max(lost):.1f} %" if lost else "-",
        )


def contender_table(table: ResultTable) -> Table:
    """Returns two speedups over each contender: over all lengths, and over held-out lengths only."""
    rows = [
        (report.name, report.used, *cells)
        for report in table.reports
        for cells in summary_listing(report.summary).rows
    ]
    return ("workload", USED, *CONTENDER_HEADER), rows


def roofline_table(table: ResultTable) -> Table:
    """Returns the work, the bounds and dietlab's time at some lengths."""
    header = (
        "workload",
        USED,
        "cache",
        *(["layer"] if table.has_layers else []),
        "T",
        "Mflop",
        "MB",
        "compute us",
        "memory us",
        "L3 us",
        "ours us",
        "of FMA peak",
        "of roofline",
    )
    rows = [
        (
            b.workload,
            b.used,
            b.cache,
            *([str(b.shape.without(LENGTH))] if table.has_layers else []),
            str(b.length or "-"),
            f"{b.flops / 1e6:.1f}",
            f"{b.bytes / 1e6:.2f}",
            *map(_microseconds, astuple(b.roofline)),
            _microseconds(b.seconds),
            f"{100 * b.compute_share:.0f} %",
            f"{100 * b.share:.0f} %",
        )
        for b in bounds(table)
    ]
    return header, rows


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def study_table(table: ResultTable) -> Table:
    """Returns the cost of each study, and the peaks of its rooflines."""
    header = (
        "workload",
        USED,
        "tuning",
        "schemes tried",
        "in the library",
        "code",
        "FMA peak",
        "DRAM",
        "L3, one core",
    )
    rows = []
    for report in table.reports:
        if not report.complete:
            continue
        hardware = report.processor
        peaks = ((hardware.total_gflops, "GFLOP/s"), (hardware.dram_gbps, "GB/s"), (hardware.l3_gbps, "GB/s"))
        rows.append(
            (
                report.name,
                report.used,
                duration(report.tuning["total_seconds"]),
                str(report.tuning["trials"]),
                str(report.library["kernels"]),
                f"{report.library['bytes'] / 1024:.0f} KiB",
                *("-" if value is None else f"{value:.0f} {unit}" for value, unit in peaks),
            )
        )
    known = [place for place in range(len(header)) if any(row[place] != "-" for row in rows)]
    return [header[place] for place in known], [[row[place] for place in known] for row in rows]


def who_table(table: ResultTable) -> Table:
    """Returns all contenders with their kinds, versions and details."""
    present = (c for report in table.reports for c in report.contenders if not c.absent)
    rows = dict.fromkeys((c.name, c.kind, c.version, c.detail) for c in present)
    return ("contender", "kind", "version", "detail"), list(rows)


def notes_of(table: ResultTable) -> list[tuple[str, list[str]]]:
    """Returns, under headings, what failed or did not take part; headings without notes are left out."""
    absent = {
        f"{c.name} ({report.name}): {c.absent}": None
        for report in table.reports
        for c in report.contenders
        if c.absent
    }
    absent |= {
        f"own ({report.name}, {layer}): {reason}": None
        for report in table.reports
        for layer, reason in report.tuning.get("own_failures", {}).items()
    }
    failed = [f"{report.name}, {report.used}: {report.failure}" for report in table.failures]
    found = [
        ("Failed", failed),
        ("Wrong results, not counted", list(_uncounted(table, wrong=True))),
        ("No results", list(_uncounted(table, wrong=False))),
        ("Absent", list(absent)),
        ("Roofline", above_roofline(row.roofline for report in table.reports for row in report.ours)),
    ]
    return [(heading, notes) for heading, notes in found if notes]


def _uncounted(table: ResultTable, *, wrong: bool) -> Iterator[str]:
    for report in table.reports:
        for (contender, cache), rows in uncounted(report.rows, wrong=wrong).items():
            shown = _listed(sorted(row.shape for row in rows))
            reason = f": {rows[0].plan}" if rows[0].plan else ""
            where = f"{contender}, {report.name}, {report.used}, {cache}"
            yield f"{where}: {counted(len(rows), 'shape')}, {shown}{reason}"


def _listed(shapes: Sequence[Shape]) -> str:
    """Formats shapes: ``"T=7, 64"`` of one dimension, ``"K=96,N=64,T=7; ..."`` of several."""
    more = ["..."] if len(shapes) > SHOWN else []
    if len(shapes[0].bindings) == 1:
        ((name, _),) = shapes[0].bindings
        return f"{name}=" + ", ".join([*(str(shape[name]) for shape in shapes[:SHOWN]), *more])
    return "; ".join([*map(str, shapes[:SHOWN]), *more])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a Markdown table whose columns are aligned in plain text, too."""
    lines = [header, *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in [cells[0], rule, *cells[1:]]
    )


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if unit == "x" else f"{value:.1f}" if unit else f"{value:.0f}"

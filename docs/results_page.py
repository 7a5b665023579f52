"""The text of ``docs/results.md``: every table of ``data/results`` with its targets, misses plainly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from results_index import Machine, Result
from results_text import DIGITS, MISSED, Place, bare, in_order, misses, number, pivot, value_text

from dietlab.compare.results import Criterion, Line, ResultTable, by_workload, summarise
from dietlab.compare.results.criteria import EPILOGUE_AT_MOST, EVERY, SHORT, criteria_of
from dietlab.compare.results.row import LENGTH, OURS, length_of
from dietlab.compare.results.samples import Block, blocks
from dietlab.compare.results.summary import STATISTICS, interval
from dietlab.compare.results.table import COLUMNS
from dietlab.lab.ablation import SYMBOLIC
from dietlab.measure import read_records
from dietlab.problem import Shape, workload_from_json
from dietlab.view.pages.bench_text import markdown, notes_of, part_table, study_table, who_table

INTRO = Path(__file__).with_name("results_intro.md")
"""The page's first part: what the words mean."""
EPILOGUE_FROM = 32
"""The shortest T (rows) on which an epilogue is judged: shorter calls are too short to tell."""
VARIANT = "variant"
"""Kind of contenders that are our own micro-kernel with an idea less or an epilogue more."""
MEANS = ("mean", "geomean")
ANY = (0, EVERY[1])
"""Every length, and 0, that of an image."""
EPILOGUE = "+"
"""The name of a variant with an epilogue begins with this."""

MEANINGS = {
    "workload": "the operator, as named above",
    "threads": "cores that a call uses; 1 on a GPU, which is used as a whole",
    "cache": "`hot`, `interleaved` or `rotating`",
    "T": "rows: the dynamic extent",
    "held_out": "whether tuning never saw this length",
    "contender": "who ran; `dietlab` is ours, `oracle` the fastest known plan",
    "kind": "`ours`, `plain`, `prepacked`, `scheduler`, `bound`, or `variant`: ours, an idea less or more",
    "correct": "whether the result agreed with the float64 reference; a wrong one counts nowhere",
    "seconds_median": "seconds of one call: the median over blocks of calls",
    "seconds_low": "lower end of the median's 95 % bootstrap interval, seconds",
    "seconds_high": "upper end of that interval, seconds",
    "gflops": "useful operations over the median, GFLOP/s; padding does not count",
    "speedup": "the contender's time over dietlab's, the median over blocks timed together",
    "regret": "of our rows: time over the oracle's, minus 1",
    "roofline": "least time that peak and bandwidth allow over the median, a share of 1",
    "padding_waste": "of our rows: the share of the executed multiply-adds that no output needs",
    "retaken": "blocks that were timed again since the processor was disturbed",
    "again": "of our rows: the same library's time in a second process over ours; older files lack it",
    "first_seconds": "seconds of the first call at this shape, with what was prepared for it alone",
    "plan": "the key of the scheme; of a wrong result, the reason",
}
"""What each column of a table's CSV holds, with its unit."""


def results_page(machines: Sequence[Machine]) -> str:
    """Returns the whole page as Markdown.

    Raises:
        KeyError: if the tables have a column that ``MEANINGS`` does not explain.
    """
    columns = markdown(("column", "meaning"), [(f"`{name}`", MEANINGS[name]) for name in COLUMNS])
    parts = [INTRO.read_text(encoding="utf-8"), f"The columns of the CSV files:\n\n{columns}\n"]
    for machine in machines:
        parts += [_machine_text(machine), *(_result_text(result) for result in machine.results)]
    return "\n".join(parts)


def _machine_text(machine: Machine) -> str:
    hardware = machine.bench.reports[0].processor
    if on_gpu(machine.bench):
        caches = f"L2 {_size(hardware.limits.l2_bytes)}"
    else:
        limits = hardware.limits
        own = f"L1d {_size(limits.l1d_bytes)} and L2 {_size(limits.l2_bytes)} a core"
        caches = f"{own}, L3 {_size(limits.l3_bytes)}"
    return "\n".join([f"## {machine.name}", "", f"{machine.processor}; {machine.setting}. {caches}.", ""])


def on_gpu(table: ResultTable) -> bool:
    """Returns whether a table was measured on a GPU."""
    return not table.reports[0].processor.limits.on_host


def _size(count: int) -> str:
    return f"{count >> 10} KiB" if count < 1 << 20 else f"{count >> 20} MiB"


def _result_text(result: Result) -> str:
    """One section: when and how it was measured, the tables, what was missed, and the notes."""
    lines = [f"### {result.title}", "", f"Measured {result.measured} (UTC), by:", ""]
    lines += ["```sh", *result.commands, "```", ""]
    notes = "\n".join(["Notes:", "", *(f"- {note}" for note in result.notes)]) if result.notes else ""
    for text in [*_findings(result), notes, *_details(result)]:
        lines += [text, ""] if text else []
    return "\n".join(lines)


def _findings(result: Result) -> Iterator[str]:
    """What a result says: one table or two, and what was missed."""
    if not result.is_table:
        yield _peak_text(result)
        return
    table = result.table
    yield _versions(table)
    if _is_ablation(table):
        yield ablation_text(table)
        return
    lines = summarise(
        table,
        [c for c in criteria_of(table.suite) if not result.measures or c.measure in result.measures],
    )
    yield from _summary_tables(lines)
    yield misses(lines)
    if result.measures:
        yield _scheduler_seconds(table)


def _is_ablation(table: ResultTable) -> bool:
    return any(contender.kind == VARIANT for report in table.reports for contender in report.contenders)


def _details(result: Result) -> Iterator[str]:
    """The tables by operator, contender and study, of a result that is shown whole."""
    if not result.is_table or result.measures or _is_ablation(result.table):
        return
    table = result.table
    if on_gpu(table):  # layers of several types, which no mean should mix
        yield from _lengths_text(table)
    else:
        yield _workload_text(table)
        convolved = any("conv" in report.operator.operator for report in table.reports)
        for what in () if convolved else ("layer", "length"):  # every image would be a layer
            header, rows = part_table(what, table)
            yield f"By {what}:\n\n{markdown(header, rows)}" if rows else ""
        what = "Convolutions" if convolved else f"Dense layers, T <= {SHORT[1]}"
        yield f"{what}, over each contender, with the worst {'size' if convolved else 'length'}:"
        yield _contenders(table)
    yield "Studies:\n\n" + markdown(*study_table(table))
    header, rows = who_table(table)
    vendors = [row for row in rows if row[header.index("kind")] not in ("ours", "bound")]
    yield "Contenders:\n\n" + markdown(header, vendors)
    for heading, notes in notes_of(table):
        yield "\n".join([f"{heading}:", "", *(f"- {note}" for note in notes)])


def _versions(table: ResultTable) -> str:
    versions = table.about.get("versions", {})
    return "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."


def _summary_tables(lines: Sequence[Line]) -> Iterator[str]:
    """The criteria over calls, then those over whole studies, each with a column for every place."""
    for chosen in ([line for line in lines if line.cache], [line for line in lines if not line.cache]):
        if chosen:
            yield pivot(chosen, lambda line: line.criterion.what, value_text, with_target=True)


def _workload_text(table: ResultTable) -> str:
    """Mean speedup over the best vendor and mean regret for each operator by itself."""
    chosen = [c for c in criteria_of(table.suite) if c.statistic in MEANS and _by_operator(c)]
    lines = by_workload(table, chosen)
    lines = tuple(sorted(lines, key=lambda line: (line.workloads[0], chosen.index(line.criterion))))
    return "By operator:\n\n" + pivot(
        lines, lambda line: f"`{line.workloads[0]}`: {line.criterion.what}", _plain
    )


def _by_operator(criterion: Criterion) -> bool:
    """Whether the table of operators has this line: a speedup over all short lengths or over a layer's
    own library, or regret."""
    return criterion.measure in ("own", "regret", "held-out") or (
        criterion.measure in ("prepacked", "plain") and criterion.of.lengths in (SHORT, EVERY)
    )


def _plain(line: Line) -> str:
    return number(line.value, line.criterion.unit)


def _contenders(table: ResultTable) -> str:
    """Speedups over each contender on the short lengths of dense layers, or on all images."""
    found: dict[tuple[str, str], dict[Place, list[float]]] = {}
    for block in blocks(table):
        operator = block.report.operator.operator
        if operator == "dense" or "conv" in operator:
            for contender, _, ratio in _speedups(block, SHORT if operator == "dense" else ANY):
                key = (contender, block.report.kind(contender))
                place = Place(block.report.threads, block.report.used, block.cache)
                found.setdefault(key, {}).setdefault(place, []).append(ratio)
    places = in_order({place for cells in found.values() for place in cells})
    rows = [
        (name, kind, *(_mean_and_least(cells.get(place, [])) for place in places))
        for (name, kind), cells in found.items()
    ]
    return markdown(("contender", "kind", *(place.words for place in places)), rows)


def _lengths_text(table: ResultTable) -> Iterator[str]:
    """Our time at each length with operands from memory, and the speedup over each contender."""
    for block in blocks(table):
        if block.cache != "rotating":
            continue
        vendors = list(dict.fromkeys(name for rows in block.rows.values() for name in rows if name != OURS))
        cells = [
            (
                str(shape[LENGTH]),
                number(1e6 * rows[OURS].seconds_median, "us"),
                *(
                    number(rows[name].speedup, "x") if name in rows and rows[name].speedup else ""
                    for name in vendors
                ),
                f"`{rows[OURS].plan}`",
            )
            for shape, rows in sorted(block.rows.items())
        ]
        header = ("T", "dietlab", *(f"over {name}" for name in vendors), "tile")
        yield f"`{block.report.name}`, {block.cache}:\n\n{markdown(header, cells)}"


def _speedups(block: Block, lengths: tuple[int, int] = EVERY) -> Iterator[tuple[str, int, float]]:
    """Contender, length and speedup of each row that is not ours, in a range of lengths."""
    for shape, rows in block.rows.items():
        length = length_of(shape)
        for contender, row in rows.items():
            if contender != OURS and row.speedup and lengths[0] <= length <= lengths[1]:
                yield contender, length, row.speedup


def _mean_and_least(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    values = np.array(ratios)
    return f"{number(STATISTICS['geomean'](values), 'x')} (worst {number(values.min(), 'x')})"


def ablation_text(table: ResultTable) -> str:
    """What a call takes without each idea, and with each epilogue, over the whole micro-kernel's time."""
    return "\n\n".join(part for block in blocks(table) for part in _ablation_parts(block))


def _ablation_parts(block: Block) -> Iterator[str]:
    """The text and the tables of one study in one cache state; only what was measured has a table."""
    (kernel,) = [c.detail for c in block.report.contenders if c.name == OURS]
    ideas: dict[str, list[float]] = {}
    epilogues: dict[str, list[float]] = {}
    symbolic = _symbolic_ratios(block)
    for name, length, ratio in _speedups(block):
        if name in symbolic or name.endswith(SYMBOLIC):
            continue
        if not name.startswith(EPILOGUE):
            ideas.setdefault(name, []).append(ratio)
        elif length >= EPILOGUE_FROM:
            epilogues.setdefault(name, []).append(ratio)
    place = Place(block.report.threads, block.report.used, block.cache).words
    yield (
        f"The micro-kernel `{kernel}` on `{block.report.name}`, {place}: its time without one idea over its "
        "time with all. Padding, bound checks and partitioned loops replace the exact cover by row tiles."
    )
    yield markdown(("without", "time"), [(name, _with_interval(values)) for name, values in ideas.items()])
    if epilogues:
        yield (
            f"Its time with a fused epilogue over that without, T >= {EPILOGUE_FROM}; "
            f"the target is at most {EPILOGUE_AT_MOST:.2f}x."
        )
        yield markdown(("epilogue", "time"), [(name, _judged(values)) for name, values in epilogues.items()])
    if symbolic:
        yield (
            "Tiles compiled for any columns and depth: their time over that of the same tiles compiled for "
            "these alone."
        )
        yield markdown(
            ("tile", "time"), [(name, _with_interval(v, digits=3)) for name, v in symbolic.items()]
        )


def _symbolic_ratios(block: Block) -> dict[str, list[float]]:
    """Returns what symbolic extents cost each height of tiles, and the whole micro-kernel, at each length."""
    found: dict[str, list[float]] = {}
    for rows in block.rows.values():
        for name, row in rows.items():
            constant = rows.get(name.removesuffix(f", {SYMBOLIC}") if name != SYMBOLIC else OURS)
            if name.endswith(SYMBOLIC) and constant and row.seconds_median and constant.seconds_median:
                height = "the micro-kernel" if name == SYMBOLIC else name.removesuffix(f", {SYMBOLIC}")
                found.setdefault(height, []).append(row.seconds_median / constant.seconds_median)
    return found


def _with_interval(ratios: Sequence[float], digits: int = DIGITS["x"]) -> str:
    low, high = interval("geomean", np.array(ratios))
    mean = number(STATISTICS["geomean"](np.array(ratios)), "x", digits)
    between = f" ({bare(low, 'x', digits)} to {bare(high, 'x', digits)})" if low and high else ""
    return mean + between


def _judged(ratios: Sequence[float]) -> str:
    missed = STATISTICS["geomean"](np.array(ratios)) > EPILOGUE_AT_MOST
    return _with_interval(ratios, digits=3) + (f" {MISSED}" if missed else "")


def _scheduler_seconds(table: ResultTable) -> str:
    """How long the per-shape scheduler and dietlab tuned."""
    (report,) = table.reports
    theirs, trials = report.tuning["ansor_seconds"], report.tuning["ansor_trials"]
    (count,) = set(trials.values())
    return (
        f"Ansor tuned {len(theirs)} lengths for {sum(theirs.values()):.0f} s, {count} trials each (about "
        f"1000 are usual); dietlab tuned once, for all lengths, in {report.tuning['total_seconds']:.0f} s."
    )


def _peak_text(result: Result) -> str:
    """The largest share of the FMA peak of any micro-kernel whose operands lie in L2."""
    stored = read_records(result.path)
    workload = workload_from_json(stored.header["workload"])
    times: dict[Shape, list[float]] = {}
    for record in stored.records:
        if record.cached_seconds:
            times.setdefault(record.shape, []).append(record.cached_seconds)
    peak = stored.header["hardware"]["peak_gflops"]
    lines = [
        f"`{workload}`, {shape}: the fastest of {len(found)} micro-kernels reaches "
        f"{100 * workload.flops(shape) / min(found) / 1e9 / peak:.1f} % of the measured FMA peak."
        for shape, found in sorted(times.items())
    ]
    return "\n".join(lines)

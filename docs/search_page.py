"""The text of ``docs/search.md``: strategies, the paper's search, ablations, fleets, from recorded data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dietlab.bench.fleet import Fleet, RoundWork, load_rounds, scaling
from dietlab.bench.method_ablation import MethodAblation
from dietlab.bench.strategies import Comparison, load_comparison
from dietlab.results.statistics import bootstrap
from dietlab.results.table import ResultTable
from dietlab.view.bench_text import markdown
from dietlab.view.strategy_figures import ablation_table, comparison_table

SEARCH_ROUNDS = 8
"""Rounds of the search in ``fleet.json``; the others decide."""

MEASURES = {"0.13 s": 0.13, "0.33 s": 0.33}
"""What a measurement takes: of the effort `full` on a CPU, and with the paper's three repeats of 100 ms."""

DEVICES = (2, 4, 8, 16, 32, 64)

PADDING = ("zen4-ablation.csv.gz", "xeon-ablation.csv.gz")
"""Measured ablations of one scheme, which have the treatments of the edge."""

EDGES = (
    ("composition", "local padding"),
    ("local padding", "bound checks"),
    ("local padding", "loop partitioning"),
)
"""What is taken away, and what stands in its place."""

COMPARED = """*Trials*: until the best schemes tried reach 97 % of the exhaustive optimum, the geometric
mean over the shapes; the median over the seeds and its 95 % interval. *Seconds* until then: recorded
ones of checking and timing, and this run's of fitting and searching. *At the end*: means over the
seeds. The draft alone, without any measurement: **{analytic:.1f} %** of the optimum."""

ABLATED = """## The method without a part

`dietlab ablate RECORDS` replays tuning for every second shape of a survey with `draft`, and judges each
choice by its surveyed times. Values are times over those with the part: 1.10 loses 10 %. Geometric
means over the shapes, then over the seeds, with 95 % intervals over the seeds: a choice that no seed
changes has none."""

EDGE = """### Local padding, measured

What a replay cannot give: one scheme of `Dense(T, N=2304, K=768)` with another treatment of the edge,
in turns with its composition, weights from memory (`dietlab ablate STUDY`). Geometric means over the
lengths, with 95 % intervals over the lengths."""

FLEETS = """## Many devices, simulated

In virtual time (`dietlab.bench.fleet`): the rounds of a `full` tuning, with what they ask for and the
seconds of the tuner itself, on devices that answer 20 ms late, with 16 builders. *A round ahead*: the
tuner fits and searches while the round before is measured, which `tune` does not do. Values are times
faster than one device."""

SERIAL = """The tuner itself takes {search:.1f} s in {searches} rounds of the search and {decide:.0f} s
in {decides} rounds of deciding (calibrating by Gaussian processes, and choosing a library twice a
round). That part does not shrink with devices: tuning stops getting faster where a round's measurements
take as long."""


def search_page(docs: Path, data: Path) -> str:
    """Returns the page as Markdown.

    Args:
        docs: the folder with the texts around the tables.
        data: the folder ``data``.
    """
    intro, paper = ((docs / f"search_{part}.md").read_text(encoding="utf-8") for part in ("intro", "paper"))
    comparisons = [load_comparison(path) for path in sorted((data / "search").glob("strategies-*.json"))]
    ablations = [MethodAblation.load(path) for path in sorted((data / "search").glob("ablation-*.json"))]
    parts = [
        intro.rstrip(),
        *(part for comparison in comparisons for part in _compared(comparison)),
        paper.rstrip(),
        ABLATED,
        *(part for ablation in ablations for part in _ablated(ablation)),
        EDGE,
        markdown(*padding_table(data / "results")),
        FLEETS,
        *_fleets(data / "search" / "fleet.json"),
    ]
    return "\n\n".join(parts) + "\n"


def _compared(comparison: Comparison) -> Iterable[str]:
    seeds = len({course.seed for course in comparison.courses})
    yield f"### On `{comparison.survey}`, {seeds} seeds"
    yield markdown(*comparison_table(comparison))
    yield COMPARED.format(analytic=100 * comparison.analytic)


def _ablated(found: MethodAblation) -> Iterable[str]:
    yield f"### On `{found.survey}`, {len(found.quality)} seeds"
    yield markdown(*ablation_table(found))
    whole = sum(found.quality) / len(found.quality)
    yield f"The whole method reaches {100 * whole:.1f} % of the exhaustive optimum on all shapes."


def padding_table(results: Path) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the header and the rows of the measured treatments of the edge."""
    rows: list[tuple[str, ...]] = []
    for name in PADDING:
        table = ResultTable.load(results / name)
        over = {(e.row.contender, e.length): e.row.speedup for e in table.entries if e.row.speedup}
        lengths = sorted({length for edge, length in over if edge == EDGES[0][1]})
        for without, instead in EDGES:
            rivals = [over[instead, length] for length in lengths]
            ours = [1.0 if without == "composition" else over[without, length] for length in lengths]
            logs = np.log(np.array(rivals) / np.array(ours))
            ends = bootstrap(logs, lambda drawn: np.asarray(drawn.mean(axis=1)))
            mean, low, high = np.exp([logs.mean(), *ends])
            told = f"{mean:.3f} ({low:.3f} to {high:.3f})"
            rows.append((name.split("-")[0], without, instead, str(len(lengths)), told))
    return ("machine", "without", "instead", "lengths", "time (x)"), rows


def _fleets(path: Path) -> Iterable[str]:
    table = []
    for timing, seconds in MEASURES.items():
        rounds = load_rounds(path, seconds)
        for stage, work in (("search", rounds[:SEARCH_ROUNDS]), ("search and deciding", rounds)):
            table += [(timing, stage, *_faster(work, ahead)) for ahead in (False, True)]
    yield markdown(("measurement", "rounds", "tuner", *map(str, DEVICES), "waits, of 16 devices"), table)
    whole = load_rounds(path, 0.0)
    search, decide = whole[:SEARCH_ROUNDS], whole[SEARCH_ROUNDS:]
    yield SERIAL.format(
        search=sum(work.serial for work in search),
        searches=len(search),
        decide=sum(work.serial for work in decide),
        decides=len(decide),
    )


def _faster(rounds: tuple[RoundWork, ...], ahead: bool) -> tuple[str, ...]:
    table = scaling(rounds, Fleet(1), ahead=ahead).set_index("devices")
    shown = tuple(f"{table.loc[count, 'times_faster']:.1f}" for count in DEVICES)
    waits = f"{table.loc[16, 'serial']:.0f} of {table.loc[16, 'seconds']:.0f} s"
    return ("a round ahead" if ahead else "as it is", *shown, waits)

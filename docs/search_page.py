"""The text of ``docs/search.md``: strategies, the paper's search, ablations, fleets, from recorded data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dietlab.base.statistics import mean_interval, median_interval
from dietlab.compare.results.table import ResultTable
from dietlab.lab.strategies.comparison import Comparison, load_comparison
from dietlab.lab.strategies.figures import ablation_table, comparison_table, fleet_table
from dietlab.lab.strategies.fleet import AHEAD, WAITS, Fleet, load_tunings, scaling
from dietlab.lab.strategies.method_ablation import MethodAblation
from dietlab.view.pages.bench_text import markdown

MEASURES = {"0.13 s": 0.13, "0.33 s": 0.33}
"""What a measurement takes: of the effort `full` on a CPU, and with the paper's three repeats of 100 ms."""

PADDING = ("zen4-ablation.csv.gz", "xeon-ablation.csv.gz")
"""Measured ablations of one scheme, which have the treatments of the edge."""

EDGES = (
    ("composition", "local padding"),
    ("local padding", "bound checks"),
    ("local padding", "loop partitioning"),
)
"""What is taken away, and what stands in its place."""

COMPARED = """*Trials*: until the best schemes tried reach 97 % of the exhaustive optimum, the geometric
mean over the shapes; the median over the seeds and its 95 % interval. *Times random's*: that over
random search's, so that less than 1 is fewer. *Seconds* until then: recorded
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

TRANSFER = """## From other records

`dietlab tune --transfer-from`, replayed (`data/search/make_transfer.py`): each of BERT-base's four dense
layers from the other three, and the one layer that surveys of two machines hold, `Dense(T, N=2304, K=768)`,
from the other machine: Zen 4 with weights in cache and local padding, Zen 3 with weights from memory and
composition. Measurements until the scheme that is expected to be fastest on each length is within 97 % of
what a tuning from nothing ends with: medians over the runs, of 5 seeds, with 95 % intervals. *At the end*:
quality over that from nothing, geometric means, and the worst run's. Records of another processor count once
12 pairs are measured."""

TRANSFERRED = """Records of the same machine save most of the measurements, and on average end no worse. Those
of another one save few, and a single run may end worse: they rank less well than fifty measurements do."""

FLEETS = """## Many devices, simulated

Where several devices measure, `tune` proposes *a round ahead*: it fits and searches while they measure the
round before, from what was known before that. With one device it waits for each round: thinking is then a
few percent of the time, and each round knows more. A run that is resumed or replayed gets the same rounds
either way.

In virtual time (`dietlab.lab.strategies.fleet`): rounds of `full` tunings with {seeds} seeds, with what they
ask for and the seconds of the tuner itself, of one thread, on devices that answer 20 ms late, with 16
builders. Whole runs, from the first proposal to the last fit. Values are times faster than one device that is
waited for: medians, and the lowest and highest seed; *waits*: seconds in which the fleet waits for the
tuner."""

SERIAL = """The search alone is {search} times faster with 16 devices at 0.33 s a measurement. The tuner
itself takes {ahead:.0f} s of a run: it does not shrink with devices, so that tuning stops getting faster
where a round's measurements take no longer than the tuner."""

AHEAD_COSTS = """What a round ahead costs, with as many measurements: the library's time over that of a
tuning that waits, geometric means over the lengths and the {seeds} seeds, with 95 % intervals. In the search
alone, `draft ahead` stands beside `draft` in the tables of strategies, and on recorded times *waiting for
each round* among the parts of the method."""

FEW = """### On `{survey}`, with the effort `quick` and what its measurements took

This tuning is for 8 lengths. A round of deciding measures all of them, so that no next round can be proposed
meanwhile, and the devices wait. More devices than a round has measurements save nothing either way."""


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
        *_transferred(data / "search" / "transfer.json"),
        *_fleets(data / "search" / "fleet.json", ablations[0]),
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
            mean, low, high = np.exp([logs.mean(), *mean_interval(logs)])
            told = f"{mean:.3f} ({low:.3f} to {high:.3f})"
            rows.append((name.split("-")[0], without, instead, str(len(lengths)), told))
    return ("machine", "without", "instead", "lengths", "time (x)"), rows


def _transferred(path: Path) -> Iterable[str]:
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for gain in json.loads(path.read_text(encoding="utf-8"))["gains"]:
        found.setdefault((gain["target"], gain["source"]), []).append(gain)
    yield TRANSFER
    rows = []
    for machines, gains in sorted(found.items()):
        needed = [_median([gain[start] for gain in gains]) for start in ("from_nothing", "from_prior")]
        ends = np.log([gain["ends"] for gain in gains])
        mean, low, high = np.exp([ends.mean(), *mean_interval(ends)])
        quality = f"{mean:.3f} ({low:.3f} to {high:.3f})", f"{np.exp(ends.min()):.3f}"
        rows.append((*machines, str(len(gains)), *needed, *quality))
    yield markdown(
        ("tuned on", "records of", "runs", "from nothing", "from these", "at the end", "at worst"), rows
    )
    yield TRANSFERRED


def _median(counts: Sequence[float | None]) -> str:
    """Returns a median with its interval; what was never reached counts as more than all."""
    found = median_interval([np.inf if count is None else count for count in counts])
    return f"{found.median:.0f} ({found.low:.0f} to {found.high:.0f})"


def _fleets(path: Path, ablation: MethodAblation) -> Iterable[str]:
    yield FLEETS.format(seeds=len(load_tunings(path)[WAITS]))
    for told, seconds in MEASURES.items():
        yield f"### {told} a measurement"
        yield markdown(*fleet_table(scaling(load_tunings(path, seconds), Fleet(1))))
    tunings = load_tunings(path, max(MEASURES.values()))
    search = scaling(tunings, Fleet(1), (16,), stage="search").set_index("proposed").loc[AHEAD]
    yield SERIAL.format(
        search=f"{search.times_faster:.1f} ({search.low:.1f} to {search.high:.1f})",
        ahead=np.median([sum(work.serial + work.told for work in rounds) for rounds in tunings[AHEAD]]),
    )
    quality = json.loads(path.read_text(encoding="utf-8"))["quality"]
    costs = []
    for effort, found in quality.items():
        logs = np.log(np.array(found[WAITS]) / np.array(found[AHEAD]))
        mean, low, high = np.exp([logs.mean(), *mean_interval(logs)])
        costs.append((effort, f"{mean:.3f} ({low:.3f} to {high:.3f})"))
    yield AHEAD_COSTS.format(seeds=len(next(iter(quality.values()))[WAITS]))
    yield markdown(("effort", "time (x)"), costs)
    yield FEW.format(survey=ablation.survey)
    yield markdown(*fleet_table(scaling(ablation.tunings, Fleet(1))))

"""The text of ``docs/claims.md``: every claim of the paper with its value and ours, from recorded data."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from dietlab.models import speedups
from dietlab.models.summary import BEST
from dietlab.results import Report, ResultTable
from dietlab.results.criteria import SHORT
from dietlab.results.row import over_best
from dietlab.view.bench_text import cores, markdown

DENSE = "dense-k768-n2304"
"""The dense layer of the paper's figure 10, with as many columns and as deep."""
FROM_MEMORY = "rotating"
"""The cache state in which weights come from memory, as in a model."""
PAPER_LENGTHS, ALL_LENGTHS = 8, 128

INTRO = """# The paper's claims, and ours

Each line has what the DietCode paper reports, on an NVIDIA T4 in float32 with 16 sentences in a batch, and
what was measured here on CPUs; nothing was measured on a GPU yet. All values are times (x): above 1, what was
tuned for all shapes at once is faster, or cheaper to tune. Means are geometric. *Method* says what differs
from the paper's experiment besides the processor.

`python docs/make_results.py` writes this page from `data/paper` and `data/results`.
"""


@dataclass(frozen=True)
class Claim:
    """A line of ``data/paper/claims.csv``."""

    id: str
    claim: str
    source: str
    reported: float


@dataclass(frozen=True)
class Finding:
    """Our value of a claim on one machine, and what differs in how it was found."""

    where: str
    value: float
    method: str


def claims_page(data: Path) -> str:
    """Returns the page as Markdown.

    Args:
        data: the folder ``data``.

    Raises:
        KeyError: if nobody says how a claim's value is found here.
    """
    with (data / "paper" / "claims.csv").open(encoding="utf-8", newline="") as file:
        claims = [Claim(c["id"], c["claim"], c["source"], float(c["reported"])) for c in csv.DictReader(file)]
    rows = [row for claim in claims for row in _rows(claim, [*FINDERS[claim.id](data / "results")])]
    header = ("claim", "reported", "ours", "on", "method", "reached")
    return f"{INTRO}\n{markdown(header, rows)}\n"


def _rows(claim: Claim, findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    for number, found in enumerate(findings or [Finding("-", float("nan"), "not measured")]):
        first = number == 0
        yield (
            f"{claim.claim} ({claim.source})" if first else "",
            f"{claim.reported:g}x" if first else "",
            f"{found.value:.3f}x" if findings else "-",
            found.where,
            found.method,
            "" if not findings else "yes" if found.value >= claim.reported else "no",
        )


# --- how each is found ------------------------------------------------------------------------------


def _models(results: Path) -> Iterator[tuple[str, dict[int, float]]]:
    """Yields where a whole BERT was timed, and our speedup over the best other at each length."""
    for path in sorted(results.glob("*-bert-b*.report.json.gz")):
        report = Report.load(path)
        batch = report.workload["batch"]
        yield f"{_machine(path)}, {cores(report.threads)}, batch {batch}", speedups(report)[BEST]


def _tables(results: Path, kind: str) -> Iterator[tuple[str, Report]]:
    """Yields the dense layer of every table of a kind, with its machine."""
    for path in sorted(results.glob(f"*-{kind}.csv.gz")):
        for report in ResultTable.load(path).reports:
            if report.name == DENSE:
                yield f"{_machine(path)}, {cores(report.threads)}", report


def _machine(path: Path) -> str:
    return path.name.split("-")[0].replace("zen", "Zen ").replace("xeon", "Xeon")


def _over(report: Report, contenders: Collection[str]) -> list[float]:
    """Returns our speedup over the fastest of some contenders, at each length of the paper's range."""
    besides = {row.contender for row in report.rows} - {*contenders}
    best = over_best(report.rows, besides)
    return [
        speedup
        for (shape, cache), speedup in best.items()
        if cache == FROM_MEMORY and SHORT[0] <= shape["T"] <= SHORT[1]
    ]


MODEL_METHOD = "the same model with random weights, over the best of PyTorch's compiler and ONNX Runtime"


def _bert_vendor(results: Path) -> Iterator[Finding]:
    for where, found in _models(results):
        yield Finding(where, geometric_mean(found.values()), f"{MODEL_METHOD}; {len(found)} lengths")


def _bert_vendor_best(results: Path) -> Iterator[Finding]:
    for where, found in _models(results):
        length = max(found, key=lambda t: found[t])
        yield Finding(where, found[length], f"{MODEL_METHOD}; at T = {length}")


def _dense_vendor(results: Path) -> Iterator[Finding]:
    for where, report in _tables(results, "bench"):
        found = _over(report, [info.name for info in report.contenders if info.kind == "prepacked"])
        method = "over the best library that packs weights beforehand; rows are tokens, weights from memory"
        yield Finding(where, geometric_mean(found), f"{method}; {len(found)} lengths")


def _dense_ansor(results: Path) -> Iterator[Finding]:
    for where, report in _tables(results, "ansor"):
        found = _over(report, ["ansor"])
        yield Finding(where, geometric_mean(found), f"MetaSchedule, {_trials(report)} trials a length")


def _dense_one_schedule(results: Path) -> Iterator[Finding]:
    for path in sorted(results.glob("*core.report.json.gz")):
        if "-bert-" not in path.name and FROM_MEMORY in (report := Report.load(path)).caches:
            found = _over(report, ["largest-shape"])
            where = f"{_machine(path)}, {cores(report.threads)}"
            yield Finding(
                where, geometric_mean(found), f"the largest shape's best plan; {len(found)} lengths"
            )


def _tuning_eight(results: Path) -> Iterator[Finding]:
    for where, report in _tables(results, "ansor"):
        yield Finding(where, _ratio(report), f"MetaSchedule, {_trials(report)} trials a length")


def _tuning_all(results: Path) -> Iterator[Finding]:
    for where, report in _tables(results, "ansor"):
        extrapolated = _ratio(report) * ALL_LENGTHS / PAPER_LENGTHS
        yield Finding(where, extrapolated, f"extrapolated as there; {_trials(report)} trials a length")


def _ratio(report: Report) -> float:
    seconds = report.tuning["ansor_seconds"].values()
    return float(sum(seconds) / len(seconds) * PAPER_LENGTHS / report.tuning["total_seconds"])


def _trials(report: Report) -> int:
    return int(max(report.tuning["ansor_trials"].values()))


def _not_measured(results: Path) -> Iterator[Finding]:
    yield from ()


FINDERS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "bert-vendor": _bert_vendor,
    "bert-vendor-best": _bert_vendor_best,
    "bert-ansor": _not_measured,
    "bert-ansor-best": _not_measured,
    "dense-vendor": _dense_vendor,
    "dense-ansor": _dense_ansor,
    "dense-one-schedule": _dense_one_schedule,
    "tuning-eight": _tuning_eight,
    "tuning-all": _tuning_all,
}
"""How our value of each claim is found in ``data/results``; a claim that was not measured has none."""

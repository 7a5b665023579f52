"""The table of ``docs/pytorch.md``: how fast a whole BERT is with tuned layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dietlab.models import frame_models
from dietlab.results import Report
from dietlab.view.bench_text import cores, markdown

START, END = "<!-- models:start -->", "<!-- models:end -->"
HEADER = ("cores", "batch", "lengths", "over", "mean", "95 % interval", "worst", "at T")


def model_table(results: Path) -> str:
    """Returns the table as Markdown; one line for each recorded model and contender, and who they were."""
    reports = [Report.load(path) for path in sorted(results.glob("*-bert-b*.report.json.gz"))]
    versions = dict.fromkeys(
        f"{info.name}: {info.version}" for report in reports for info in report.contenders if not info.absent
    )
    absent = dict.fromkeys(
        f"{info.name} did not take part: {info.absent}"
        for report in reports
        for info in report.contenders
        if info.absent
    )
    notes = "\n".join(f"- {line}" for line in (*versions, *absent))
    return f"{markdown(HEADER, [*_rows(reports)])}\n\n{notes}"


def _rows(reports: Iterable[Report]) -> Iterator[tuple[str, ...]]:
    for row in frame_models(reports).itertuples():
        interval = f"{row.low:.2f}x to {row.high:.2f}x"
        worst = f"{row.worst:.2f}x"
        yield (
            cores(row.cores),
            str(row.batch),
            str(row.lengths),
            row.contender,
            f"{row.geomean:.2f}x",
            interval,
            worst,
            str(row.worst_T),
        )

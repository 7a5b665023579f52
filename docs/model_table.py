"""The table of ``docs/pytorch.md``: how fast whole models are with tuned layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dietlab.compare.results import Report
from dietlab.compare.results.row import ANSOR
from dietlab.lab.models import frame_models
from dietlab.lab.reproduce.findings import TUNED_PER_LENGTH, models
from dietlab.view.pages.bench_text import markdown

START, END = "<!-- models:start -->", "<!-- models:end -->"
KINDS = ("bert", TUNED_PER_LENGTH, "decoder", "experts", "resnet50", "whisper-base", "whisper-front")
HEADER = ("model", "on", "lengths", "over", "mean", "95 % interval", "worst", "at")


def model_table(results: Path) -> str:
    """Returns the table as Markdown; one line for each recorded model and contender, and who they were."""
    found = [*models(results, *KINDS)]
    reports = [report for _, report in found]
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
    return f"{markdown(HEADER, [*_rows(found)])}\n\n{notes}"


def _rows(found: Iterable[tuple[str, Report]]) -> Iterator[tuple[str, ...]]:
    for where, report in found:
        frame = frame_models([report])
        if any(info.name == ANSOR for info in report.contenders):
            frame = frame[frame["contender"] == ANSOR]  # its other rivals have a record of more lengths
        for row in frame.itertuples():
            yield (
                row.model,
                where,
                str(row.lengths),
                row.contender,
                f"{row.geomean:.2f}x",
                f"{row.low:.2f}x to {row.high:.2f}x",
                f"{row.worst:.2f}x",
                str(row.worst_T),
            )

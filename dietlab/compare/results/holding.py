"""Reports are not replaced by what holds less."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import RecordError
from dietlab.problem import Shape

if TYPE_CHECKING:
    from dietlab.compare.results.report import Report

OF = ("workload", "hardware")
"""What reports of the same thing have in common, besides the micro-kernels of their library."""


def lacks(report: Report, path: str | Path) -> str:
    """Returns in words what the report in a file holds besides all results of another; nothing if it holds no
    more, lacks one of them, is of another library, or cannot be read, or if the other has none.

    Args:
        report: the other, which is to take the file's place.
        path: of the file; there may be none.
    """
    if not Path(path).exists():
        return ""
    try:
        known = type(report).load(path)
    except RecordError:
        return ""
    same = all(getattr(report, name) == getattr(known, name) for name in OF)
    if not same or report.library.get("micro_kernels") != known.library.get("micro_kernels"):
        return ""
    mine, theirs = _results(report), _results(known)
    if not mine or not mine < theirs:
        return ""
    names = dict.fromkeys(name for name, *_ in sorted(theirs - mine))
    return f"it has {len(theirs)} results, of which this one has {len(mine)}: not all of {', '.join(names)}"


def _results(report: Report) -> set[tuple[str, str, Shape]]:
    return {(row.contender, row.cache, row.shape) for row in report.rows if row.correct}

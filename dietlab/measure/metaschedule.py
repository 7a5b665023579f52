"""Reads databases of MetaSchedule as tables. Each of their programs is tuned for one shape.

A database is a folder of two files with a line of JSON for each entry. Its programs are not loaded or run::

    database_workload.json        ["<hash>", "<program>"]
    database_tuning_record.json   [<workload>, [<trace>, [<seconds>, ..], <target>, [<argument>, ..]]]
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.base.files import parse_json, read_lines, reading

if TYPE_CHECKING:
    import pandas as pd

WORKLOADS = "database_workload.json"
TUNED = "database_tuning_record.json"

COLUMNS = ("record", "workload", "workload_hash", "arguments", "seconds", "spread", "steps", "target")


def frame_metaschedule(folder: str | Path) -> pd.DataFrame:
    """Returns a table with a row for each program in a database of MetaSchedule.

    Columns: ``record`` (its number, from 1), ``workload`` (its number, from 0) and ``workload_hash``,
    ``arguments`` as ``float32[5,768] float32[768,2304]``, ``seconds`` of a call (the median of its runs;
    missing if it failed), ``spread`` (the slowest run over the fastest, minus 1), ``steps`` of its trace and
    ``target``.

    If a file was cut off, its complete lines are used and a :class:`~dietlab.base.errors.DietlabWarning`
    reports the loss.

    Raises:
        RecordError: if a file is missing, a line has another form, or the workload of a program is missing.
    """
    import pandas as pd

    folder = Path(folder)
    workloads = [_hash(number, entry, folder) for number, entry in _lines(folder / WORKLOADS)]
    rows = [_row(number, entry, workloads, folder) for number, entry in _lines(folder / TUNED)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _hash(number: int, entry: Any, folder: Path) -> str:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
        raise RecordError(
            f"line {number} of {WORKLOADS} must have a hash and a program", f"{folder}: {entry!r:.80}"
        )
    return entry[0]


def _row(number: int, entry: Any, workloads: list[str], folder: Path) -> tuple[Any, ...]:
    try:
        workload, (trace, runs, target, arguments) = entry
        if not 0 <= workload < len(workloads):
            raise RecordError(
                f"{WORKLOADS} must have the workload of each program in {TUNED}",
                f"{folder}: {len(workloads)} workloads, and line {number} is of workload {workload}, from 0",
                "Copy both files whole, of the same database.",
            )
        seconds = [float(run) for run in runs or ()]
        failed = not seconds or max(seconds) >= 1e9  # MetaSchedule's marks of a program that did not run
        return (
            number,
            workload,
            workloads[workload],
            " ".join(f"{dtype}[{','.join(map(str, shape))}]" for _, dtype, shape in arguments or ()),
            None if failed else median(seconds),
            None if failed else max(seconds) / min(seconds) - 1,
            len(trace[0]),
            target if isinstance(target, str) else json.dumps(target, sort_keys=True),
        )
    except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(
            f"line {number} of {TUNED} must have a workload, a trace, seconds, a target and arguments",
            f"{folder}: {error!r}",
        ) from None


def _lines(path: Path) -> list[tuple[int, Any]]:
    """Returns the values of a file's lines, each with its number from 1."""
    with reading(RecordError, f"a database of MetaSchedule must have {WORKLOADS} and {TUNED}", path):
        lines = read_lines(path) if path.stat().st_size else ()  # a new database has empty files
    return [(number, _parsed(path, number, line)) for number, line in enumerate(lines, 1) if line.strip()]


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError:
        raise RecordError(
            "every line of a database must be JSON", f"{path}, line {number}: {line!r:.80}"
        ) from None

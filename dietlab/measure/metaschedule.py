"""MetaSchedule's databases, read as tables: programs that were tuned for one shape each.

A database is a folder of two files with a line of JSON for each entry. No program in it is loaded or run::

    database_workload.json        ["<hash>", "<program>"]
    database_tuning_record.json   [<workload>, [<trace>, [<seconds>, ..], <target>, [<argument>, ..]]]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dietlab.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd

WORKLOADS, TUNED = "database_workload.json", "database_tuning_record.json"

COLUMNS = ("record", "workload", "workload_hash", "arguments", "seconds", "spread", "steps", "target")


def frame_metaschedule(folder: str | Path) -> pd.DataFrame:
    """Returns a table with one row for each program that a database of MetaSchedule has.

    Columns: ``record`` (its number, from 1), ``workload`` (its number, from 0) and ``workload_hash``,
    ``arguments`` as ``float32[5,768] float32[768,2304]``, ``seconds`` of a call (the median of its runs;
    missing if it failed), ``spread`` (the slowest run over the fastest, minus 1), ``steps`` of its trace and
    ``target``.

    Raises:
        RecordError: if a file is missing, or a line is not what such a database has.
    """
    import pandas as pd

    folder = Path(folder)
    workloads = [str(entry[0]) for _, entry in _lines(folder / WORKLOADS)]
    rows = [_row(number, entry, workloads, folder) for number, entry in _lines(folder / TUNED)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(number: int, entry: Any, workloads: list[str], folder: Path) -> tuple[Any, ...]:
    try:
        workload, (trace, runs, target, arguments) = entry
        seconds = [float(run) for run in runs or ()]
        failed = not seconds or max(seconds) >= 1e9  # so it writes down a program that did not run
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
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RecordError(
            f"line {number} of {TUNED} has a workload, a trace, seconds, a target and arguments",
            f"{folder}: {error!r}",
        ) from None


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields the lines of a file with their numbers, from 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecordError(
            "a database of MetaSchedule is a folder with " + f"{WORKLOADS} and {TUNED}", f"{path}: {error}"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield number, json.loads(line)
        except ValueError:
            raise RecordError(
                "every line of a database is JSON", f"{path}, line {number}: {line!r:.80}"
            ) from None

"""The machines and tables of ``data/results``, as its ``index.json`` lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dietlab.base.errors import RecordError
from dietlab.compare.results import ResultTable

INDEX = "index.json"
RECORDS = ".jsonl.gz"
"""Ending of a file that holds records of single micro-kernels instead of a bench's table."""
REPORTS = ".report.json.gz"
"""Ending of the reports that notebooks read; they are no part of the results page."""


@dataclass(frozen=True)
class Result:
    """One measured file with what it does not say about itself.

    Args:
        path: of the table (``.csv.gz``) or of the records (``.jsonl.gz``).
        title: heading of its section.
        measured: date and time (UTC) of the measurement.
        commands: what was typed to measure it.
        measures: measures of the summary that are shown; all of them if it is empty.
        notes: sentences for the reader, without figures: those are computed from the data.
    """

    path: Path
    title: str
    measured: str
    commands: tuple[str, ...]
    measures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether it is a bench's table."""
        return not self.path.name.endswith(RECORDS)

    @cached_property
    def table(self) -> ResultTable:
        """The bench's table, read once.

        Raises:
            RecordError: if the file or the facts beside it cannot be read.
        """
        return ResultTable.load(self.path)


@dataclass(frozen=True)
class Machine:
    """A processor with its results; the first one is the bench that the README shows.

    Args:
        name: short, for headings of columns.
        processor: its full name.
        setting: what else ran there and how many cores were available.
        results: from the most general to the most special.
    """

    name: str
    processor: str
    setting: str
    results: tuple[Result, ...]

    @property
    def bench(self) -> ResultTable:
        """The table that the README shows."""
        return self.results[0].table


def read_index(folder: Path) -> tuple[Machine, ...]:
    """Returns the machines that ``index.json`` in ``folder`` lists, in its order.

    Raises:
        RecordError: if the index and the files in the folder differ.
    """
    listed = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    machines = tuple(_machine(value, folder) for value in listed["machines"])
    named = sorted(result.path.name for machine in machines for result in machine.results)
    found = sorted(path.name for path in folder.glob("*.gz") if not path.name.endswith(REPORTS))
    if named != found:
        difference = sorted({*named} ^ {*found}) or "a file that is listed twice"
        raise RecordError(f"{INDEX} lists every result once", difference, f"Edit {folder / INDEX}.")
    return machines


def _machine(value: Mapping[str, Any], folder: Path) -> Machine:
    results = tuple(_result(entry, folder) for entry in value["tables"])
    return Machine(value["name"], value["processor"], value["setting"], results)


def _result(entry: Mapping[str, Any], folder: Path) -> Result:
    return Result(
        path=folder / entry["file"],
        title=entry["title"],
        measured=entry["measured"],
        commands=tuple(entry["commands"]),
        measures=tuple(entry.get("measures", ())),
        notes=tuple(entry.get("notes", ())),
    )

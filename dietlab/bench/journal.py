"""The bench's append-only journal: a run that was killed goes on at the next shape.

The first line says what is run and where. Every other line is one study's facts or all rows of one
workload, number of threads, cache state and shape: they were measured in turns, so they count
together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dietlab.bench.table import BenchTable, Entry, StudyFacts
from dietlab.errors import RecordError, StudyError
from dietlab.evaluation import Row
from dietlab.measure.store import append_line, repair
from dietlab.shapes import Shape

SCHEMA_VERSION = 1


class Turn(NamedTuple):
    """What is measured at once."""

    workload: str
    threads: int
    cache: str
    shape: Shape


class Journal:
    """Rows and facts in memory and on disk.

    Args:
        path: the file; it is made if missing, and a torn last line is cut off.
        about: what is run; must equal the first line of an existing file, but for ``started``
            and ``versions``, which are those of the first run.

    Raises:
        StudyError: if the file is of another bench.
        RecordError: if it is damaged before its last line, or cannot be written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.rows: dict[Turn, tuple[Row, ...]] = {}
        self.studies: dict[tuple[str, int], StudyFacts] = {}
        self.about: Mapping[str, Any] = {"schema_version": SCHEMA_VERSION, **about}
        if path.exists() and repair(path):
            self._read()
        else:
            self._append(self.about)

    @property
    def table(self) -> BenchTable:
        entries = [
            Entry(turn.workload, turn.threads, row) for turn, rows in self.rows.items() for row in rows
        ]
        return BenchTable(tuple(entries), tuple(self.studies.values()), self.about)

    def add_study(self, facts: StudyFacts) -> None:
        """Keeps what is known about a study; later facts replace earlier ones."""
        self._append({"study": facts.to_json()})
        self.studies[facts.name, facts.threads] = facts

    def add_rows(self, turn: Turn, rows: Sequence[Row]) -> None:
        """Keeps all rows of one turn."""
        value = {**turn._asdict(), "shape": turn.shape.to_json(), "rows": [row.to_json() for row in rows]}
        self._append(value)
        self.rows[turn] = tuple(rows)

    def _append(self, value: Mapping[str, Any]) -> None:
        try:
            append_line(self.path, value)
        except OSError as error:
            if self.path.exists():
                repair(self.path)
            raise RecordError(
                "rows can be written", f"{self.path}: {error}",
                "Free some space and run the same command again: it goes on from here.",
            ) from error  # fmt: skip

    def _read(self) -> None:
        about, *values = read_lines(self.path)
        self._check(about)
        self.about = about
        for value in values:
            if "study" in value:
                facts = StudyFacts.from_json(value["study"])
                self.studies[facts.name, facts.threads] = facts
            else:
                shape = Shape.from_json(value["shape"])
                turn = Turn(value["workload"], value["threads"], value["cache"], shape)
                self.rows[turn] = tuple(Row.from_json(row) for row in value["rows"])

    def _check(self, found: Mapping[str, Any]) -> None:
        for name, mine in self.about.items():
            if name not in ("started", "versions") and found.get(name) != json.loads(json.dumps(mine)):
                raise StudyError(
                    f"the bench in {self.path.parent} has the same {name}", mine,
                    f"It has {found.get(name)}. Choose another --out.",
                )  # fmt: skip


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The values of a journal's whole lines.

    Raises:
        RecordError: if one of them is no JSON.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise RecordError(
            "every line of a bench's rows is JSON", f"{path}: {error}",
            "Remove the line: only the last one can be torn by a crash.",
        ) from None  # fmt: skip

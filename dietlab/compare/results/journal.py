"""The append-only journal of a bench or an evaluation, from which a killed run goes on at the next shape.

The first line says what is run and where. Every other line has the facts of one study, or all rows of one
turn: the rows of a turn were measured in the same blocks, so they count together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dietlab.base.errors import RecordError, StudyError
from dietlab.base.files import append_line, cut_truncated, parse_json, read_lines, reading
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import Row
from dietlab.compare.results.table import ResultTable
from dietlab.problem import Shape

SCHEMA_VERSION = 1


class Turn(NamedTuple):
    """The contenders of one task on one shape, cache state and number of threads, measured together."""

    workload: str
    threads: int
    cache: str
    shape: Shape


@dataclass(frozen=True)
class Kept:
    """The contents of a journal."""

    about: Mapping[str, Any]
    rows: dict[Turn, tuple[Row, ...]]
    studies: dict[tuple[str, int], Report]

    @property
    def table(self) -> ResultTable:
        rows: dict[tuple[str, int], list[Row]] = {study: [] for study in self.studies}
        for turn, found in self.rows.items():
            if (turn.workload, turn.threads) not in rows:
                raise RecordError("a journal must have the study of each of its rows", turn)
            rows[turn.workload, turn.threads] += found
        reports = (replace(facts, rows=tuple(rows[study])) for study, facts in self.studies.items())
        return ResultTable(tuple(reports), self.about)


class Journal:
    """Rows and facts in memory and on disk.

    Args:
        path: the file, which is made if missing; a torn last line is cut off. None: in memory only.
        about: what is run. It must equal the first line of an existing file, except for ``started`` and
            ``versions``, which stay as the first run wrote them.

    Raises:
        StudyError: if the file is of another bench.
        RecordError: if it is damaged before its last line, or cannot be written.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path = path
        self.kept = Kept({"schema_version": SCHEMA_VERSION, **about}, {}, {})
        if path is not None and path.exists() and cut_truncated(path):
            found = read_journal(path)
            _require_same(found.about, self.kept.about, path)
            self.kept = found
        else:
            self._append(self.kept.about)

    @property
    def rows(self) -> Mapping[Turn, Sequence[Row]]:
        return self.kept.rows

    @property
    def studies(self) -> Mapping[tuple[str, int], Report]:
        """Reports without rows, by name and threads."""
        return self.kept.studies

    def add_study(self, facts: Report) -> None:
        """Keeps a report without its rows, in place of an earlier one of the same study."""
        self._append({"study": facts.facts})
        self.kept.studies[facts.name, facts.threads] = facts

    def add_rows(self, turn: Turn, rows: Sequence[Row]) -> None:
        """Keeps all rows of one turn."""
        value = {**turn._asdict(), "shape": turn.shape.to_json(), "rows": [row.to_json() for row in rows]}
        self._append(value)
        self.kept.rows[turn] = tuple(rows)

    def measured(self, turn: Turn, measure: Callable[[], Sequence[Row]]) -> Sequence[Row]:
        """Returns the rows of one turn: from the journal if it has them, else measured now and appended."""
        if turn not in self.rows:
            self.add_rows(turn, measure())
        return self.rows[turn]

    def _append(self, value: Mapping[str, Any]) -> None:
        if self.path is not None:
            append_line(self.path, value, "rows")


def resumed(path: Path, **about: Any) -> Journal:
    """Returns the journal of the same work that was stopped; else a new journal, which replaces the file."""
    try:
        return Journal(path, about)
    except (RecordError, StudyError):
        path.unlink(missing_ok=True)  # there is none if it could not be begun
        return Journal(path, about)


def read_journal(path: Path) -> Kept:
    """Reads a journal, also while it is being written: a torn last line is left out, with a warning.

    Raises:
        RecordError: if it is missing, or damaged before its last line.
    """
    if not path.exists():
        raise RecordError(
            "a bench must have been begun in the folder",
            f"{path.parent}: no {path.name}",
            "`dietlab bench --out FOLDER` begins one.",
        )
    about, *values = _lines(path)
    kept = Kept(about, {}, {})
    with reading(RecordError, "every line of a bench's rows must have all its fields", path):
        for value in values:
            if "study" in value:
                facts = Report.of_facts(value["study"])
                kept.studies[facts.name, facts.threads] = facts
            else:
                shape = Shape.from_json(value["shape"])
                turn = Turn(value["workload"], value["threads"], value["cache"], shape)
                kept.rows[turn] = tuple(Row.from_json(row) for row in value["rows"])
    return kept


def _lines(path: Path) -> list[dict[str, Any]]:
    rule, remedy = "every line of a bench's rows is JSON", "Remove a damaged line: only the last can be torn."
    with reading(RecordError, rule, path, remedy):
        values: list[dict[str, Any]] = [parse_json(line) for line in read_lines(path)]
        schema = values[0].get("schema_version") if values else None
    if schema != SCHEMA_VERSION:
        raise RecordError(
            f"a bench's rows must begin with a header of schema {SCHEMA_VERSION}", f"{path}: {schema}"
        )
    return values


def _require_same(found: Mapping[str, Any], mine: Mapping[str, Any], path: Path) -> None:
    for name, value in mine.items():
        if name not in ("started", "versions") and found.get(name) != json.loads(json.dumps(value)):
            raise StudyError(
                f"the bench in {path.parent} must be continued with its own {name}",
                value,
                f"It has {found.get(name)}. Choose another --out.",
            )

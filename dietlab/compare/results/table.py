"""The result of a bench: a table (CSV) and the facts of its studies (JSON of the same name)."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dietlab.base.errors import RecordError
from dietlab.base.files import read_json, read_text, reading, write_json, write_whole
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import LENGTH, Row, length_of, with_reasons
from dietlab.compare.results.summary import summarise
from dietlab.problem import Shape

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 2
DIGITS = 7
"""The number of significant digits of a number in the CSV: far more than repeated measurements share."""

COLUMNS = (
    "workload",
    "threads",
    "cache",
    LENGTH,
    "held_out",
    "contender",
    "kind",
    "correct",
    "seconds_median",
    "seconds_low",
    "seconds_high",
    "gflops",
    "speedup",
    "regret",
    "roofline",
    "padding_waste",
    "retaken",
    "again",
    "first_seconds",
    "plan",
)

TIMES = ("seconds_median", "seconds_low", "seconds_high")
"""Columns of times."""

NUMBERS = (*TIMES, "gflops", "speedup", "regret", "roofline", "padding_waste", "again", "first_seconds")
"""Columns of numbers that may be unknown."""

LATER = ("again", "first_seconds")
"""Columns that older files lack."""


class Entry(NamedTuple):
    """A ``row`` of the table, with the ``report`` that it belongs to."""

    report: Report
    row: Row

    @property
    def length(self) -> int:
        """The extent of T."""
        return length_of(self.row.shape)


@dataclass(frozen=True)
class ResultTable:
    """The reports of several studies as one table.

    Args:
        reports: one report for each study.
        about: the command and versions that made it.
    """

    reports: tuple[Report, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every row."""
        return tuple(Entry(report, row) for report in self.reports for row in report.rows)

    @property
    def caches(self) -> tuple[str, ...]:
        """The cache states, in the order of their rows."""
        return tuple(dict.fromkeys(entry.row.cache for entry in self.entries))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the CSV: :data:`COLUMNS`, with other dynamic dimensions after the length."""
        return columns_with(name for report in self.reports for name in report.operator.dims)

    @property
    def has_layers(self) -> bool:
        """True if a workload has other dynamic dimensions than the length."""
        return self.columns != COLUMNS

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of cores that were measured, ascending."""
        return tuple(sorted({report.threads for report in self.reports if report.rows}))

    @property
    def suite(self) -> str:
        """The name of the suite; empty if it is unknown."""
        return str(self.about.get("suite", ""))

    @property
    def failures(self) -> tuple[Report, ...]:
        """Reports of studies that could not be measured."""
        return tuple(report for report in self.reports if report.failure)

    @property
    def wrong(self) -> tuple[Entry, ...]:
        """The rows of makers with a wrong result, or without one."""
        return tuple(Entry(r, row) for r in self.reports for row in r.ours if not row.correct)

    def report(self, name: str, threads: int) -> Report:
        """Returns the report of one study, its rows by shape.

        Raises:
            RecordError: if the table has no such study.
        """
        for report in self.reports:
            if (report.name, report.threads) == (name, threads):
                rows = tuple(sorted(report.rows, key=lambda row: row.shape))
                return replace(report, rows=rows, versions=report.versions or self.about.get("versions", {}))
        known = ", ".join(f"{report.name} ({report.used})" for report in self.reports)
        raise RecordError("the study must be in the table", f"{name}, {threads} threads", f"It has {known}.")

    def to_frame(self) -> pd.DataFrame:
        """Returns the CSV as a pandas table: times in seconds, shares from 0 to 1.

        The columns ``scheme``, its parameters, and ``reason`` replace the plan; a row with a reason has no
        result and is not ``correct``.
        """
        import pandas as pd

        frame = pd.read_csv(io.StringIO(self.to_csv()))
        frame = frame.astype(dict.fromkeys(set(self.columns) - set(COLUMNS), "Int64"))
        kinds = dict.fromkeys(report.processor.kind for report in self.reports)
        return with_reasons(frame.assign(correct=frame["correct"].eq(True)), kinds)

    def summary_frame(self) -> pd.DataFrame:
        """Returns the summary as a table: a row for each criterion, number of threads and cache state
        (:func:`~dietlab.compare.results.summarise`).

        ``value``, its 95 % interval ``low`` to ``high``, ``target``, ``worst`` and ``ceiling`` (at the
        roofline) are numbers in ``unit``; ``better`` is ``higher`` or ``lower``. ``target`` and ``met`` are
        missing where a target is not judged, ``worst_T`` where the worst is a whole study or layer.
        ``worst_layer`` exists if workloads have layers.
        """
        import pandas as pd

        lines = [line.columns for line in summarise(self)]
        frame = pd.DataFrame(lines).drop(columns=["worst_layer"] if lines and not self.has_layers else [])
        types = {"low": float, "high": float, "target": float, "ceiling": float}
        return frame.astype({**types, "met": "boolean", "worst_T": "Int64"} if len(frame) else {})

    def to_csv(self) -> str:
        """Returns the table as CSV. Its columns and the order of its rows do not depend on what was measured
        first."""
        import pandas as pd

        ordered = sorted(
            self.entries, key=lambda e: (e.report.name, e.report.threads, e.row.cache, e.row.shape)
        )
        values = [
            {
                **vars(row),
                **row.shape.to_json(),
                "workload": report.name,
                "threads": report.threads,
                "kind": report.kind(row.contender),
            }
            for report, row in ordered
        ]
        extents = {LENGTH, *(name for report in self.reports for name in report.operator.dims)}
        types = {**dict.fromkeys(NUMBERS, float), **dict.fromkeys(extents, "Int64")}
        cells = pd.DataFrame(values, columns=list(self.columns)).astype(types)
        finite = cells.replace([math.inf, -math.inf], math.nan)
        text: str = finite.to_csv(index=False, lineterminator="\n", float_format=f"%.{DIGITS}g")
        return text

    def save(self, path: str | Path) -> None:
        """Writes ``path`` (``.csv`` or ``.csv.gz``) and the facts beside it as ``.json``. Each file is
        replaced whole or not at all."""
        target = Path(path)
        data = self.to_csv().encode()
        write_whole(target, gzip.compress(data, mtime=0) if target.suffix == ".gz" else data, RecordError)
        facts = {
            "schema_version": SCHEMA_VERSION,
            "about": dict(self.about),
            "studies": [{**report.facts, "threads": report.threads} for report in self.reports],
        }
        write_json(facts_path(target), facts, error=RecordError)

    @classmethod
    def load(cls, path: str | Path) -> ResultTable:
        """Returns the table in ``path`` with the facts beside it.

        Raises:
            RecordError: if a file is missing, damaged, or of another schema.
        """
        source = Path(path)
        rule = "a bench must be a readable CSV with its JSON beside it"
        with reading(RecordError, rule, source):
            text = read_text(source)
            if not text.endswith("\n"):
                raise ValueError(f"its last line is cut off: {text.rpartition(chr(10))[2]!r:.60}")
        with reading(RecordError, rule, facts_path(source)):
            facts = read_json(facts_path(source))
        if not isinstance(facts, dict) or facts.get("schema_version") != SCHEMA_VERSION:
            raise RecordError(f"a bench needs schema {SCHEMA_VERSION}", facts_path(source), "Run it again.")
        with reading(RecordError, "the facts of a bench must have all their fields", facts_path(source)):
            reports, about = tuple(map(Report.of_facts, facts["studies"])), facts["about"]
        rows = _rows(text, reports, source)
        found = (replace(r, rows=tuple(rows.get((r.name, r.threads), ()))) for r in reports)
        return cls(tuple(found), about)


CORRECT = {"True": True, "False": False, "": None}
"""Values of the column ``correct`` by its text; the text is empty if there was no result."""


def columns_with(dims: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns of a table whose workloads have these dynamic dimensions."""
    behind = COLUMNS.index(LENGTH) + 1
    others = (name for name in dict.fromkeys(dims) if name != LENGTH)
    return (*COLUMNS[:behind], *others, *COLUMNS[behind:])


def facts_path(table: Path) -> Path:
    """Returns ``bench.json`` for ``bench.csv`` and ``bench.csv.gz``."""
    return table.with_name(table.name.removesuffix(".gz").removesuffix(".csv") + ".json")


def _rows(text: str, reports: Sequence[Report], source: Path) -> dict[tuple[str, int], list[Row]]:
    """Returns the rows of a CSV by name and threads of their study."""
    dims = {report.name: tuple(report.operator.dims) for report in reports}
    columns = columns_with(name for names in dims.values() for name in names)
    reader = csv.DictReader(io.StringIO(text))
    found = tuple(reader.fieldnames or ())
    if found != tuple(name for name in columns if name in found or name not in LATER):
        raise RecordError("a bench's CSV must have the right columns", reader.fieldnames, ", ".join(columns))
    known: dict[tuple[str, int], list[Row]] = {(report.name, report.threads): [] for report in reports}
    for number, cells in enumerate(reader, 2):
        try:
            known[cells["workload"], int(cells["threads"])].append(_row(cells, dims[cells["workload"]]))
        except (KeyError, TypeError, ValueError) as error:
            where = f"{source}, line {number}: {error!r}"
            raise RecordError("every line of a bench's CSV must be a row", where) from None
    return known


def _row(cells: Mapping[str, str], dims: Sequence[str]) -> Row:
    numbers = {name: float(cells[name]) if cells.get(name) else None for name in NUMBERS}
    values: dict[str, Any] = {
        **numbers,
        **{name: math.nan for name in TIMES if numbers[name] is None},
        "gflops": numbers["gflops"] or 0.0,
        "shape": Shape.of(**{name: int(cells[name]) for name in dims}),
        "held_out": cells["held_out"] == "True",
        "contender": cells["contender"],
        "cache": cells["cache"],
        "correct": CORRECT[cells["correct"]],
        "plan": cells["plan"] or None,
        "retaken": int(cells["retaken"] or 0),
    }
    return Row(**values)

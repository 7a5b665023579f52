"""The bench's result: a tidy table (CSV) and the facts behind it (JSON of the same name)."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.errors import RecordError
from dietlab.files import write_whole
from dietlab.hardware import Hardware
from dietlab.results.report import OURS, ContenderInfo, Report, Row, with_reasons
from dietlab.shapes import Shape
from dietlab.workloads import Workload, workload_from_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 2
DIGITS = 7
"""Significant digits of a number in the CSV: far below what repeats."""

LENGTH = "T"
"""The dimension that is called a *length*; the others of a shape make its layer."""

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
    "plan",
)


@dataclass(frozen=True)
class Entry:
    """One row of the table: a contender's :class:`~dietlab.evaluation.Row` with whose it is."""

    workload: str
    threads: int
    row: Row

    @property
    def length(self) -> int:
        """The extent of T."""
        return self.row.shape[LENGTH]


@dataclass(frozen=True)
class StudyFacts:
    """The facts of one workload on one number of threads, besides its rows.

    ``tuning`` and ``library`` are the sections of a report; ``failure`` says why there are no rows.
    """

    name: str
    threads: int
    workload: Mapping[str, Any]
    hardware: Mapping[str, Any]
    contenders: tuple[ContenderInfo, ...] = ()
    tuning: Mapping[str, Any] = field(default_factory=dict)
    library: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def operator(self) -> Workload:
        return workload_from_json(self.workload)

    @property
    def processor(self) -> Hardware:
        return Hardware.from_json(self.hardware)

    @property
    def folder(self) -> str:
        """The study's folder inside the bench's folder."""
        return study_folder(self.name, self.threads)

    @property
    def complete(self) -> bool:
        """True if it was tuned, built and measured without failure."""
        return bool(self.tuning and self.library) and not self.failure

    def kind(self, contender: str) -> str:
        """Returns ``"plain"``, ``"prepacked"`` and so on; empty if it is unknown."""
        return next((c.kind for c in self.contenders if c.name == contender), "")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "contenders": [asdict(c) for c in self.contenders]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StudyFacts:
        return cls(**{**value, "contenders": tuple(ContenderInfo(**c) for c in value["contenders"])})


@dataclass(frozen=True)
class BenchTable:
    """A table of every measured row, the facts of each study, and the command and versions (``about``)."""

    entries: tuple[Entry, ...]
    studies: tuple[StudyFacts, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def caches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.row.cache for entry in self.entries))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the CSV: :data:`COLUMNS`, and behind the length any other dynamic dimension of a
        workload."""
        return columns_with(name for facts in self.studies for name in facts.operator.dims)

    @property
    def has_layers(self) -> bool:
        """True if a workload has other dynamic dimensions than the length."""
        return self.columns != COLUMNS

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(sorted({entry.threads for entry in self.entries}))

    @property
    def failures(self) -> tuple[StudyFacts, ...]:
        """Studies that could not be measured."""
        return tuple(facts for facts in self.studies if facts.failure)

    @property
    def wrong(self) -> tuple[Entry, ...]:
        """Our own rows that have no time: a wrong result, or none."""
        return tuple(e for e in self.entries if e.row.contender == OURS and not e.row.correct)

    def facts(self, workload: str, threads: int) -> StudyFacts:
        """Returns the facts of one study.

        Raises:
            RecordError: if the table has none.
        """
        for facts in self.studies:
            if (facts.name, facts.threads) == (workload, threads):
                return facts
        raise RecordError("the facts name every study of the table", f"{workload}, {threads} threads")

    def report(self, workload: str, threads: int) -> Report:
        """Returns one study's rows as an evaluation's report, for its figures."""
        facts = self.facts(workload, threads)
        rows = [e.row for e in self.entries if (e.workload, e.threads) == (workload, threads)]
        return Report(
            facts.workload,
            facts.hardware,
            self.about.get("versions", {}),
            facts.tuning,
            facts.library,
            tuple(sorted(rows, key=lambda row: row.shape)),
            facts.contenders,
        )

    def to_frame(self) -> pd.DataFrame:
        """Returns the CSV as a pandas table: times in seconds, shares of 1.

        In place of the plan there are its ``scheme`` with the parameters, and the ``reason`` where
        there was no result, which is not ``correct``.
        """
        import pandas as pd

        frame = pd.read_csv(io.StringIO(self.to_csv()))
        frame = frame.astype(dict.fromkeys(set(self.columns) - set(COLUMNS), "Int64"))
        kinds = dict.fromkeys(facts.processor.kind for facts in self.studies)
        return with_reasons(frame.assign(correct=frame["correct"].eq(True)), kinds)

    def summary_frame(self) -> pd.DataFrame:
        """Returns the summary as a table: one row for each criterion, number of threads and cache state
        (:func:`~dietlab.bench.summarise`).

        ``value``, its 95 % interval ``low`` to ``high``, ``target``, ``worst`` and ``ceiling`` (at the
        roofline) are numbers in ``unit``; ``better`` is ``higher`` or ``lower``. A target that is not judged
        is missing, as is ``met``; ``worst_T`` is missing where the worst is a whole study or layer.
        ``worst_layer`` is there if workloads have layers.
        """
        import pandas as pd

        from dietlab.results.summary import summarise  # it reads this module's tables

        lines = [line.columns for line in summarise(self)]
        frame = pd.DataFrame(lines).drop(columns=["worst_layer"] if lines and not self.has_layers else [])
        types = {"low": float, "high": float, "target": float, "ceiling": float}
        return frame.astype({**types, "met": "boolean", "worst_T": "Int64"} if len(frame) else {})

    def to_csv(self) -> str:
        """Returns the table, with the same columns and the same order of rows whatever was measured first."""
        kinds = {(f.name, f.threads, c.name): c.kind for f in self.studies for c in f.contenders}
        ordered = sorted(self.entries, key=lambda e: (e.workload, e.threads, e.row.cache, e.row.shape))
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_cells(e, kinds.get((e.workload, e.threads, e.row.contender), "")) for e in ordered)
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Writes ``path`` (``.csv`` or ``.csv.gz``) and, beside it, the facts as ``.json``; each file is
        replaced whole or not at all."""
        target = Path(path)
        data = self.to_csv().encode()
        _replace(target, gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
        facts = {
            "schema_version": SCHEMA_VERSION,
            "about": dict(self.about),
            "studies": [facts.to_json() for facts in self.studies],
        }
        _replace(facts_path(target), (json.dumps(facts, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> BenchTable:
        """Returns the table in ``path`` with the facts beside it.

        Raises:
            RecordError: if a file is missing, damaged, or of another schema.
        """
        source = Path(path)
        try:
            data = source.read_bytes()
            text = (gzip.decompress(data) if source.suffix == ".gz" else data).decode()
            facts = json.loads(facts_path(source).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError("a bench is a readable CSV with its JSON beside it", error) from None
        if not isinstance(facts, dict) or facts.get("schema_version") != SCHEMA_VERSION:
            raise RecordError(f"a bench has schema {SCHEMA_VERSION}", facts_path(source), "Run it again.")
        studies = tuple(StudyFacts.from_json(value) for value in facts["studies"])
        return cls(tuple(_entries(text, studies, source)), studies, facts["about"])


CORRECT = {"True": True, "False": False, "": None}
"""The cells of the column ``correct``; empty if there was no result."""


def columns_with(dims: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns of a table whose workloads have these dynamic dimensions."""
    behind = COLUMNS.index(LENGTH) + 1
    others = (name for name in dict.fromkeys(dims) if name != LENGTH)
    return (*COLUMNS[:behind], *others, *COLUMNS[behind:])


def study_folder(name: str, threads: int) -> str:
    """Returns ``dense-k768-n2304-2t``."""
    return f"{name}-{threads}t"


def facts_path(table: Path) -> Path:
    """Returns ``bench.json`` for ``bench.csv`` and ``bench.csv.gz``."""
    return table.with_name(table.name.removesuffix(".gz").removesuffix(".csv") + ".json")


def _replace(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise RecordError("the table can be written", f"{path}: {error}", "Free some space.") from error


def _cells(entry: Entry, kind: str) -> dict[str, str]:
    row = entry.row
    values: dict[str, Any] = {
        "workload": entry.workload,
        "threads": entry.threads,
        "cache": row.cache,
        **row.shape.to_json(),
        "held_out": row.held_out,
        "contender": row.contender,
        "kind": kind,
        "correct": row.correct,
        "seconds_median": row.seconds_median,
        "seconds_low": row.seconds_low,
        "seconds_high": row.seconds_high,
        "gflops": row.gflops,
        "speedup": row.speedup,
        "regret": row.regret,
        "roofline": row.roofline,
        "padding_waste": row.padding_waste,
        "retaken": row.retaken,
        "plan": row.plan,
    }
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    """Formats a cell; unknown values are empty, since neither None nor not-a-number has a place in a
    table."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def _entries(text: str, studies: Sequence[StudyFacts], source: Path) -> Iterable[Entry]:
    dims = {facts.name: tuple(facts.operator.dims) for facts in studies}
    columns = columns_with(name for names in dims.values() for name in names)
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != columns:
        raise RecordError("a bench's CSV has these columns", reader.fieldnames, ", ".join(columns))
    for number, cells in enumerate(reader, 2):
        try:
            yield _entry(cells, dims)
        except (KeyError, TypeError, ValueError) as error:
            where = f"{source}, line {number}: {error!r}"
            raise RecordError("every line of a bench's CSV is a row", where) from None


def _entry(cells: Mapping[str, str], dims: Mapping[str, Sequence[str]]) -> Entry:
    def number(name: str) -> float | None:
        return float(cells[name]) if cells[name] else None

    times = {name: number(name) for name in ("seconds_median", "seconds_low", "seconds_high")}
    return Entry(
        cells["workload"],
        int(cells["threads"]),
        Row(
            shape=Shape.of(**{name: int(cells[name]) for name in dims[cells["workload"]]}),
            held_out=cells["held_out"] == "True",
            contender=cells["contender"],
            cache=cells["cache"],
            gflops=number("gflops") or 0.0,
            correct=CORRECT[cells["correct"]],
            speedup=number("speedup"),
            regret=number("regret"),
            roofline=number("roofline"),
            padding_waste=number("padding_waste"),
            plan=cells["plan"] or None,
            retaken=int(cells["retaken"] or 0),
            **{name: math.nan if value is None else value for name, value in times.items()},
        ),
    )

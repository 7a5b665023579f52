"""Append-only ``records.jsonl``: lines are written whole or not at all, even if the process dies."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity
from dietlab.base.errors import DietlabError, RecordError
from dietlab.base.files import append_line, cut_truncated, parse_json, read_lines, reading, write_whole
from dietlab.lower.decisions import Lowering
from dietlab.machine import Hardware
from dietlab.measure.foreign import recognised
from dietlab.measure.record import Record
from dietlab.measure.record_tables import frame_records, record_quantities, record_sections
from dietlab.measure.timing.protocol import CacheState
from dietlab.problem import Shape, Workload, without_class, workload_from_json
from dietlab.problem.dims import is_shape_of
from dietlab.scheme.target import misfits

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
RECORDS = "records"
"""The name of the file's lines in error messages."""

AFRESH = "Restore the file, or move it away: `dietlab tune` then measures again."
LEAVE_OUT = "Remove the line: the others stay valid, and `dietlab tune` measures again what a study lacks."


@dataclass(frozen=True, repr=False)
class RecordFile(Carded):
    """The contents of a records file: its header and its records.

    Args:
        header: the first line, with schema, operator, processor, cache state and versions.
        records: the other lines, in order.
    """

    header: Mapping[str, Any]
    records: tuple[Record, ...]

    @property
    def workload(self) -> Workload:
        """The operator that was measured.

        Raises:
            RecordError: if the header has none.
        """
        return workload_from_json(self._headed("workload"))

    @property
    def hardware(self) -> Hardware:
        """The processor that was measured.

        Raises:
            RecordError: if the header has none.
        """
        return Hardware.from_json(self._headed("hardware"))

    @property
    def lowering(self) -> Lowering:
        """The lowering of the programs that were measured. Decisions that the file does not name are taken
        from :data:`~dietlab.lower.decisions.UNRECORDED`.

        Raises:
            RecordError: if this version does not know a decision.
        """
        return Lowering.from_json(self.header.get("lowering"))

    def _headed(self, name: str) -> Mapping[str, Any]:
        value = self.header.get(name)
        if not isinstance(value, Mapping):
            raise RecordError(f"the header of the records must have a {name}", repr(value))
        return value

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with a row for each record, as
        :func:`~dietlab.measure.record_tables.frame_records`.

        Raises:
            RecordError: if the header has no operator.
        """
        return frame_records(self.records, self.workload)

    @property
    def card(self) -> Card:
        """Its card in a notebook: counts, and sections with the fastest, failures, processor and versions."""
        facts = (*record_quantities(self.records), Quantity(str(self.header.get("cache", "hot")), "cache"))
        versions = Fold("Versions", lambda: Listing(("package", "version"), self._versions))
        try:
            workload, hardware = self.workload, self.hardware
        except DietlabError:
            return Card("RecordFile", "without an operator or a processor", facts, (versions,))
        processor = Fold("Processor", hardware.table)
        sections = (*record_sections(self.records, workload), processor, versions)
        return Card("RecordFile", f"{workload} on {hardware.name}", facts, sections)

    @property
    def _versions(self) -> list[tuple[str, str]]:
        return [(str(name), str(version)) for name, version in dict(self.header.get("versions", {})).items()]


class RecordStore:
    """Records in memory and, if there is a path, on disk.

    The first line is a header; every other line is one record. A line is written by one ``write`` and forced
    to disk, so a killed process leaves at most one truncated last line. That line is cut off when the file is
    opened again.

    Args:
        path: the file, which is made if missing.
        header: workload, hardware, lowering and versions; an existing file must have the same first three.

    Raises:
        RecordError: if the file has another workload, hardware, lowering or schema, or if a line before the
            last is damaged.
    """

    def __init__(self, path: Path | None = None, header: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.records: list[Record] = []
        self._header = {"schema_version": SCHEMA_VERSION, **(header or {})}
        if path is None:
            return
        with reading(RecordError, "a file of records must be fit to be continued", path):
            goes_on = path.exists() and cut_truncated(path)
        if goes_on:
            found = read_records(path)
            require_origin(path, found, self._header)
            self.records.extend(found.records)
        else:
            append_line(path, self._header, RECORDS)

    def append(self, record: Record) -> None:
        """Adds one record.

        Raises:
            RecordError: if the record cannot be written, for example to a full disk; earlier records stay.
        """
        if self.path is not None:
            append_line(self.path, record.to_json(), RECORDS)
        self.records.append(record)


def require_origin(path: Path, file: RecordFile, header: Mapping[str, Any]) -> None:
    """Checks that records are of the operator, the processor and the programs of a header."""
    header = {"schema_version": SCHEMA_VERSION, **header}
    for name in ("schema_version", "workload", "hardware"):
        found = compared(file.header, name)
        if found != json.loads(json.dumps(compared(header, name))):
            raise RecordError(
                f"the records in {path} must have the study's {name}",
                repr(found),
                "Put the study's own records back, or use another folder.",
            )
    require_programs(path, file, Lowering.from_json(header.get("lowering")))


def compared(header: Mapping[str, Any], name: str) -> Any:
    """Returns a value of a header for comparison, without the module of an operator's class."""
    value = header.get(name)
    return without_class(value) if isinstance(value, Mapping) else value


def require_programs(path: Path | None, file: RecordFile, lowering: Lowering) -> None:
    """Checks that the recorded programs have a given lowering.

    Raises:
        RecordError: if they have another; the error names the differences.
    """
    changes = file.lowering.differences(lowering)
    if changes:
        raise RecordError(
            f"the records in {path} must be of programs with the lowering that is measured now",
            changes,
            "Tune into a new folder: these records are of other programs.",
        )


def read_records(path: str | Path) -> RecordFile:
    """Reads ``.jsonl`` or ``.jsonl.gz``. If the file was cut off, its complete records are returned and a
    :class:`~dietlab.base.errors.DietlabWarning` reports the loss.

    Args:
        path: the file.

    Raises:
        RecordError: if the file is missing, of another schema or kind, or damaged before its last line, or if
            a record is of a shape or a processor that is not the header's, or of a scheme that needs more
            than twice the processor's registers.
    """
    path = Path(path)
    with reading(RecordError, "a records file must be readable", path, AFRESH):
        lines = read_lines(path)
    header = header_of(path, lines[0])
    numbered = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    records = {number: record_of(path, number, line) for number, line in numbered}
    file = RecordFile(header, tuple(records.values()))
    _require_measurable(path, file, records)
    return file


def _require_measurable(path: Path, file: RecordFile, records: Mapping[int, Record]) -> None:
    """Checks that the records, by line, are of shapes of the header's operator and of schemes for its kind of
    processor, whose registers could hold them. A header may lack these, or name an operator that is not
    entered here: its records can still be counted and copied."""
    with reading(RecordError, "the header of records must have all its fields", f"{path}, line 1", AFRESH):
        try:
            workload, hardware = file.workload, file.hardware
            misfit = cache(misfits(workload, hardware))
        except DietlabError:
            return
    shapes: dict[Shape, bool] = {}
    for line, record in records.items():
        if record.shape not in shapes:
            shapes[record.shape] = is_shape_of(workload.dims, record.shape)
        if not shapes[record.shape]:
            invariant, found = f"records must be of shapes of {workload}", str(record.shape)
        elif (wrong := misfit(record.scheme)) is not None:
            invariant, found = f"records must be of {wrong[0]}", wrong[1]
        else:
            continue
        raise RecordError(invariant, f"{path}, line {line}: {found}", LEAVE_OUT)


def header_of(path: Path, line: str) -> dict[str, Any]:
    """Returns the header, the first line of a file of records.

    Raises:
        RecordError: if the line is no header, is of another schema, or has a wrong field.
    """
    try:
        header = parse_json(line)
    except ValueError:
        header = None
    if isinstance(header, dict) and header.get("schema_version") == SCHEMA_VERSION:
        try:
            _require_fields(header)
        except DietlabError as error:
            found = f"{path}, line 1: {error.value}"
            raise RecordError(error.invariant, found, error.remedy or AFRESH) from None
        return header
    what, remedy = recognised(line)
    raise RecordError(
        f"a records file must begin with a header of schema {SCHEMA_VERSION}",
        f"{path}, which {what or f'begins with {line!r:.80}'}",
        remedy or f"`dietlab tune` and `dietlab survey` write records.jsonl, records.jsonl.gz. {AFRESH}",
    )


def _require_fields(header: Mapping[str, Any]) -> None:
    """Checks the fields of a header, each of which may be missing: older files lack some."""
    for name in ("workload", "hardware", "versions", "lowering"):
        if not isinstance(header.get(name), Mapping | None):
            invariant = f"the {name} in the header of records must be a JSON object"
            raise RecordError(invariant, f"{header[name]!r:.60}")
    states = get_args(CacheState)
    if header.get("cache") not in (None, *states):
        invariant = f"the cache in the header of records must be one of {', '.join(states)}"
        raise RecordError(invariant, f"{header['cache']!r:.60}")
    Lowering.from_json(header.get("lowering"))


def record_of(path: Path, number: int, line: str) -> Record:
    """Returns the record in a line after the header; ``number`` is the line's number in the file."""
    where = f"{path}, line {number}"
    try:
        value = parse_json(line)
    except ValueError:
        raise RecordError(
            "every line of a records file must be JSON",
            f"{where}: {line!r:.80}",
            f"{LEAVE_OUT} A crash can truncate only the last one.",
        ) from None
    if isinstance(value, dict) and "schema_version" in value:
        raise RecordError(
            "a records file must have one header, since its records are of one operator on one processor",
            f"{where}: {line!r:.80}",
            "Split joined files; `dietlab records merge` joins files of one operator and processor.",
        )
    try:
        return Record.from_json(value)
    except DietlabError as error:
        what, remedy = recognised(line)
        found = f"{where}{f' {what}' if what else ''}: {error.value}"
        raise RecordError(error.invariant, found, remedy or error.remedy or LEAVE_OUT) from None


def write_compressed(path: str | Path, header: Mapping[str, Any], records: Iterable[Record]) -> None:
    """Writes ``.jsonl.gz``, with the same bytes for the same records.

    Args:
        path: the file, which is replaced whole.
        header: the fields of the first line, without the schema's version.
        records: the records, each of which becomes a line.
    """
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        for value in ({"schema_version": SCHEMA_VERSION, **header}, *(r.to_json() for r in records)):
            file.write((json.dumps(value, separators=(",", ":")) + "\n").encode())
    write_whole(Path(path), buffer.getvalue())

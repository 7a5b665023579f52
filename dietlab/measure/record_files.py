"""Merges, filters and checks files of records, and writes tables for other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import MissingDependencyError, RecordError
from dietlab.base.files import replacing, writing
from dietlab.measure.record import Record
from dietlab.measure.store import RecordFile, compared
from dietlab.problem.dims import is_shape_of

if TYPE_CHECKING:
    import pandas as pd

EQUAL = ("workload", "hardware", "cache")
"""The fields in which the headers of merged records must agree."""

FASTER_THAN_PEAK = 1.05
"""The ratio of a throughput to the processor's peak above which the throughput must be wrong: the measured
peak is off by a few percent."""

RESTLESS = 0.5
"""The spread above which a record's time is not trusted: the machine was too noisy."""

MANY_FAILED = 0.25
"""The share of failed records above which a file is doubted: in a space that fits the processor, few fail."""

FEW_RECORDS = 8
"""The largest number of records of a file whose failures are not doubted: they may be of one scheme."""

TABLES = (".parquet", ".csv")
"""The suffixes of the files that :func:`write_table` writes."""


@dataclass(frozen=True)
class Doubt:
    """The number in the file, from 1, of a record that should not be trusted, and the reason. The number is
    None for a doubt about the whole file."""

    record: int | None
    reason: str


def merge_records(files: Sequence[RecordFile]) -> RecordFile:
    """Returns the records of several files in the order of measurement; equal records are returned once. All
    files must be of one operator, processor, cache state and lowering.

    Raises:
        RecordError: if there are no files, or two files differ in one of these values; the error names both.
    """
    if not files:
        raise RecordError("merging needs at least one file of records", "none")
    first, *others = files
    for other in others:
        for name in EQUAL:
            found, wanted = compared(other.header, name), compared(first.header, name)
            if found != wanted:
                raise RecordError(
                    f"merged records must be of one {name}",
                    f"{wanted!r:.150} and {found!r:.150}",
                    "Compare such files as tables (`dietlab records table`): no model can be fitted on both.",
                )
        if changes := other.lowering.differences(first.lowering):
            raise RecordError("merged records must be of programs with one lowering", changes)
    once = dict.fromkeys(record for file in files for record in file.records)
    return replace(first, records=tuple(sorted(once, key=lambda record: record.at)))


def filter_records(
    file: RecordFile,
    *,
    statuses: Collection[str] = (),
    shapes: Collection[Mapping[str, int]] = (),
    schemes: str = "*",
    stages: Collection[str] = (),
) -> RecordFile:
    """Returns the records that satisfy every condition. All records satisfy an empty condition.

    Args:
        statuses: the accepted statuses, such as ``ok`` and ``wrong``.
        shapes: entries with the extents of some dimensions, such as ``{"T": 5}``; a record must match one
            entry.
        schemes: a shell pattern that keys must match, such as ``14x32*``.
        stages: the accepted stages of tuning, such as ``search`` and ``decide``; one of them must have
            requested the record.
    """

    def fits(record: Record) -> bool:
        extents = record.shape.to_json().items()
        return (
            (not statuses or record.status in statuses)
            and (not shapes or any(wanted.items() <= extents for wanted in shapes))
            and fnmatchcase(record.scheme.key, schemes)
            and (not stages or (record.asked_by is not None and record.asked_by.stage in stages))
        )

    return replace(file, records=tuple(filter(fits, file.records)))


def check_records(file: RecordFile) -> tuple[Doubt, ...]:
    """Returns the doubtful records of a file. A record is doubtful if it is ``ok`` without a time, failed
    with a time, is faster than the processor's peak, is from a noisy machine, has a shape that the operator
    does not have, or equals an earlier record. The file is doubtful if many of its records failed.

    Raises:
        RecordError: if the header has no operator or processor.
    """
    return tuple(_doubts(file))


def _doubts(file: RecordFile) -> Iterator[Doubt]:
    workload, hardware = file.workload, file.hardware
    peak = hardware.peak_for(workload.dtype)
    most = None if peak is None else FASTER_THAN_PEAK * peak * hardware.cores
    yield from _many_failed(file.records)
    seen = dict[Record, int]()
    for number, record in enumerate(file.records, 1):
        earlier = seen.setdefault(record, number)
        if earlier != number:
            yield Doubt(number, f"equal to record {earlier}")
        if record.ok != bool(record.seconds and record.seconds > 0):
            yield Doubt(number, f"{record.status}, and takes {record.seconds} s")
        if not is_shape_of(workload.dims, record.shape):
            yield Doubt(number, f"{record.shape} is no shape of {workload}")
            continue
        rate = record.gflops(workload)
        if most is not None and rate > most:
            yield Doubt(number, f"{rate:.0f} GFLOP/s, where the processor's peak is {most:.0f}")
        if record.ok and record.spread > RESTLESS:
            yield Doubt(number, f"blocks differ by {100 * record.spread:.0f} %: a restless machine")


def _many_failed(records: Sequence[Record]) -> Iterator[Doubt]:
    failed = Counter((record.status, record.reason) for record in records if not record.ok)
    if len(records) > FEW_RECORDS and failed.total() > MANY_FAILED * len(records):
        ((status, reason), count), *_ = failed.most_common(1)
        yield Doubt(
            None,
            f"{failed.total()} of {len(records)} records failed, {count} of them alike: {status}, "
            f"{reason or 'without a reason'}. Mend the cause (`dietlab doctor` checks this machine) and tune "
            "into a new folder: a study does not measure its failures again",
        )


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Writes a table as Parquet or CSV, whole or not at all; the suffix of the file's name decides.

    Raises:
        RecordError: for another suffix, or if the file cannot be written.
        MissingDependencyError: for Parquet without ``pyarrow``.
    """
    path = Path(path)
    if path.suffix not in TABLES:
        raise RecordError(f"a table's name ends with {' or '.join(TABLES)}", str(path))
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingDependencyError(
            "writing Parquet needs pyarrow", "not installed", "pip install 'dietlab[parquet]', or write .csv."
        )
    with writing(path.name, path, RecordError), replacing(path) as unfinished:
        if path.suffix == ".parquet":
            frame.to_parquet(unfinished, index=False)
        else:
            frame.to_csv(unfinished, index=False)

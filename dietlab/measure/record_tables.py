"""Records as a table of pandas and as sections of a card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

from dietlab.base.cards import Fold, Listing, Quantity, counted, seconds_text
from dietlab.measure.record import Record
from dietlab.problem import Workload

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("compile", "verify", "measure")
"""The phases with a time for each record; other phases belong to a whole round."""

COLUMNS = (
    "record",
    "scheme",
    "status",
    "seconds",
    "gflops",
    "spread",
    "cached_seconds",
    "asked_by",
    *(f"{phase}_seconds" for phase in PHASES),
    "code_bytes",
    "at",
    "reason",
)


def frame_records(records: Sequence[Record], workload: Workload) -> pd.DataFrame:
    """Returns a table with a row for each record, in the order of ``records``.

    Columns: ``record`` (its number, from 1), each dynamic dimension, ``scheme`` (its key) and its parameters,
    ``status``, ``seconds`` of a call and useful ``gflops`` (missing if it failed), ``spread`` (a share of the
    time), ``cached_seconds``, ``asked_by``, the wall-clock seconds of each phase, ``code_bytes``, the
    resources that a GPU's compiler reported, ``at`` and ``reason``; see :class:`Record`.

    Args:
        records: measurements, failures included.
        workload: the operator.
    """
    import pandas as pd

    rows = [_row(number, record, workload) for number, record in enumerate(records, 1)]
    return pd.DataFrame(rows, columns=None if rows else [COLUMNS[0], *workload.dims, *COLUMNS[1:]])


def _row(number: int, record: Record, workload: Workload) -> dict[str, Any]:
    phases = record.phases.to_json()
    return {
        "record": number,
        **record.shape.to_json(),
        **record.scheme.columns,
        "status": record.status,
        "seconds": record.seconds or nan,
        "gflops": record.gflops(workload) or nan,
        "spread": record.spread if record.ok else nan,
        "cached_seconds": record.cached_seconds or nan,
        "asked_by": str(record.asked_by or ""),
        **{f"{phase}_seconds": phases[phase] for phase in PHASES},
        "code_bytes": record.code_bytes,
        **record.resources,
        "at": record.at,
        "reason": record.reason,
    }


def record_quantities(records: Sequence[Record]) -> tuple[Quantity, ...]:
    """Returns the numbers of records, schemes and failures.

    Args:
        records: measurements, failures included.
    """
    failed = sum(not record.ok for record in records)
    return (
        counted(len(records), "measurement"),
        counted(len({record.scheme for record in records}), "scheme"),
        Quantity(f"{failed:,}", "failed"),
    )


def record_sections(records: Sequence[Record], workload: Workload) -> tuple[Fold, ...]:
    """Returns three sections of a card: the fastest record of each shape, the failures with reasons, and the
    first records.

    Args:
        records: measurements, failures included.
        workload: the operator.
    """
    return (
        Fold("Fastest of each shape", lambda: _fastest(records, workload), unfolded=True),
        Fold("Failures", lambda: _failures(records)),
        Fold("Records", lambda: _records(records, workload)),
    )


def _fastest(records: Sequence[Record], workload: Workload) -> Listing:
    # The last record of a shape stays in the dictionary: the fastest.
    timed = sorted((r for r in records if r.seconds), key=lambda r: r.seconds or inf, reverse=True)
    best = {record.shape: record for record in timed}
    return _records([best[shape] for shape in sorted(best)], workload)


def _failures(records: Sequence[Record]) -> Listing:
    found = Counter((record.status, record.reason) for record in records if not record.ok)
    header = ("status", "measurements", "reason")
    return Listing(header, found.most_common(), lambda each: (each[0][0], each[1], each[0][1]))


def _records(records: Sequence[Record], workload: Workload) -> Listing:
    return Listing(
        ("shape", "scheme", "status", "time", "GFLOP/s"),
        records,
        lambda r: (
            str(r.shape),
            r.scheme.key,
            r.status,
            seconds_text(r.seconds),
            r.gflops(workload) or None,
        ),
    )

"""Decisions of lowering for a CPU that a scheme does not name, as one value that is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dietlab.base.errors import BuildError, RecordError

UNRECORDED: Mapping[str, Any] = {
    "short_rows": 32,
    "least_ahead_bytes": 8 << 10,
    "prefetch_all_from": 1.2,
    "rows_l2_share": 0.5,
    "single_tile_whole_depth": True,
    "single_tile_own_lines": True,
    "rows_together": 3,
}
"""Values for files written before these fields existed. Never change them, even if a default changes. (In
such files, programs with a dynamic depth may address every row separately; those with a constant depth are
equal.)"""


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """Decisions of lowering that no scheme names; with them a record identifies the program it measured.

    Args:
        short_rows: the largest row count that gets a separate program, if strides or depth depend on the
            rows: with constants in their place some products take a third less time. 0: none.
        least_ahead_bytes: the shortest prefetch distance in a batch of products, in bytes: several times the
            bytes that memory delivers during one miss. Smaller products are prefetched several products
            ahead.
        prefetch_all_from: the smallest ratio at which a pass prefetches the whole next panel: the number of
            rows, divided by the number of rows that a core computes while memory delivers their weights
            (:attr:`~dietlab.targets.cpu.lowering.geometry.Geometry.balance`). At smaller ratios, the
            hardware's own prefetch of the rest is faster.
        rows_l2_share: the share (above 0, up to 1) of a core's L2 for a block of rows; the weights stream
            through the rest.
        single_tile_whole_depth: whether a single row tile runs through its K-blocks in one pass: it reads its
            weights only once, which is fastest in the order of addresses.
        single_tile_own_lines: whether a single row tile prefetches its own first lines, not the next panel's:
            it is bound by memory, and the hardware's own prefetch is then faster.
        rows_together: the number of rows that are addressed from one pointer if the depth is dynamic. An x86
            address is a pointer plus a register times 1, 2, 4 or 8 bytes, so it reaches 0, 1 or 2 rows of
            floats further: 14 rows take 5 pointers, not 14, of 16 scalar registers. 0: a pointer for each
            row.

    Raises:
        BuildError: if a value is of another type or out of its range.
    """

    short_rows: int = 32
    least_ahead_bytes: int = 8 << 10
    prefetch_all_from: float = 1.2
    rows_l2_share: float = 0.5
    single_tile_whole_depth: bool = True
    single_tile_own_lines: bool = True
    rows_together: int = 3

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if type(value) not in ((int, float) if kind is float else (kind,)) or not value >= 0:
                raise BuildError(f"a lowering's {field.name} needs a {kind.__name__}, 0 or more", repr(value))
        if not 0 < self.rows_l2_share <= 1:
            raise BuildError("the lowering's rows_l2_share must be above 0 and at most 1", self.rows_l2_share)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Lowering:
        """Returns the decisions of a JSON object made by ``to_json``; missing fields have the values of
        :data:`UNRECORDED`.

        Raises:
            RecordError: for an unknown field, or a value that is no object.
            BuildError: for a value out of its range.
        """
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            raise RecordError("a lowering must be a JSON object", f"{value!r:.60}")
        unknown = [name for name in value if name not in UNRECORDED]
        if unknown:
            raise RecordError(
                f"a lowering must have the fields {', '.join(UNRECORDED)}",
                ", ".join(unknown),
                "Open it with the version of dietlab that wrote it.",
            )
        return cls(**{**UNRECORDED, **value})

    def differences(self, now: Lowering) -> str:
        """Returns in words the fields that differ in another lowering; empty if none does."""
        pairs = [(f.name, getattr(self, f.name), getattr(now, f.name)) for f in fields(self)]
        return ", ".join(f"{name} was {old}, is {new}" for name, old, new in pairs if old != new)


DEFAULTS = Lowering()
"""The decisions for new programs."""

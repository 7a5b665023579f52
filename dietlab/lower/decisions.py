"""The decisions that lowering takes for a CPU beside what a scheme says, as one value that is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dietlab.base.errors import BuildError, RecordError
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware

UNRECORDED: Mapping[str, Any] = {
    "short_rows": 32,
    "least_ahead_bytes": 8 << 10,
    "prefetch_all_from": 1.2,
    "rows_l2_share": 0.5,
    "single_tile_whole_depth": True,
    "single_tile_own_lines": True,
    "rows_together": 3,
}
"""The values that count for a file that does not say them: those of the day on which they began to be
recorded. They stay as they are when a default changes. (Files of before may hold programs with a variable
depth that address every row by itself; those with a constant depth are the same.)"""


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """The decisions of lowering that no scheme names, so that a record says which program it measured.

    Args:
        short_rows: the longest length, in rows, that is compiled for itself, where strides or depth of a
            product depend on the rows: with constants some products take a third less time. 0: none.
        least_ahead_bytes: the shortest prefetch distance of a batch's products, in bytes: several times what
            memory delivers during one miss. The next product alone can be shorter.
        prefetch_all_from: rows over those that a core computes, at its peak, while memory brings their
            weights (:attr:`~dietlab.targets.cpu.lowering.geometry.Geometry.balance`): from this ratio on a
            pass prefetches the whole next panel. Fewer rows leave the rest to the hardware, which is quicker.
        rows_l2_share: the share of a core's L2, above 0 and up to 1, that a block of rows may take beside
            the weights that stream past it.
        single_tile_whole_depth: whether a single row tile takes its K-blocks one after the other: it reads
            its weights once anyway, and quickest in the order of addresses.
        single_tile_own_lines: whether a single row tile prefetches its own first lines in place of the next
            panel's: it uses weights as fast as memory delivers them, and the hardware is then quicker alone.
        rows_together: rows, where the depth is dynamic, that are addressed from one pointer. An x86
            instruction adds a register times 1, 2, 4 or 8 bytes to a pointer, so a distance in floats is
            added 0 times, once or twice: 14 rows take 5 pointers, not 14, of 16 scalar registers. 0: each
            row has a pointer.

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
            if type(value) not in ((int, float) if kind is float else (kind,)) or value < 0:
                raise BuildError(f"the lowering's {field.name} is a {kind.__name__}, 0 or more", repr(value))
        if not 0 < self.rows_l2_share <= 1:
            raise BuildError("the lowering's rows_l2_share is above 0 and at most 1", self.rows_l2_share)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def recorded(self, hardware: Hardware) -> dict[str, Any]:
        """Returns what headers and manifests hold of programs for a processor: nothing for a GPU, whose
        programs do not depend on it."""
        return self.to_json() if lower_target(hardware.kind).DECIDES else {}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Lowering:
        """Returns the inverse of ``to_json``; what is missing, or all of it, is :data:`UNRECORDED`.

        Raises:
            RecordError: for a field that this version does not know.
            BuildError: for a value out of its range.
        """
        value = value or {}
        unknown = [name for name in value if name not in UNRECORDED]
        if unknown:
            raise RecordError(
                f"a lowering has the fields {', '.join(UNRECORDED)}",
                ", ".join(unknown),
                "Open it with the version of dietlab that wrote it.",
            )
        return cls(**{**UNRECORDED, **value})

    def differences(self, now: Lowering) -> str:
        """Returns in words which fields have other values in another lowering; empty if none has."""
        pairs = [(f.name, getattr(self, f.name), getattr(now, f.name)) for f in fields(self)]
        return ", ".join(f"{name} was {old}, is {new}" for name, old, new in pairs if old != new)


DEFAULTS = Lowering()
"""The decisions of today's programs."""

"""Plans: each covers one shape's rows by regions of micro-kernels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic

from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Edge, MicroKernel, Scheme, scheme_with, with_rows
from dietlab.space.micro_kernel import Kernel
from dietlab.workloads import Workload, axis_of, extents


@dataclass(frozen=True)
class Region(Generic[Kernel]):
    """A region is ``tiles`` copies of a scheme's tallest tile, side by side over ``rows`` rows of the
    output."""

    scheme: Scheme[Kernel]
    first_row: int
    rows: int
    tiles: int

    @property
    def kernel(self) -> Kernel:
        return self.scheme.kernel

    @property
    def executed_rows(self) -> int:
        """Rows that are computed, padding included."""
        return self.tiles * self.scheme.rows


@dataclass(frozen=True)
class Plan(Generic[Kernel]):
    """A plan lists regions from the first row to the last; every row belongs to exactly one."""

    scheme: Scheme[Kernel]
    regions: tuple[Region[Kernel], ...]

    @property
    def tiles(self) -> int:
        """Row tiles of all regions."""
        return sum(region.tiles for region in self.regions)

    @property
    def rows(self) -> int:
        return sum(region.rows for region in self.regions)

    @property
    def executed_rows(self) -> int:
        return sum(region.executed_rows for region in self.regions)

    def __str__(self) -> str:
        return " + ".join(f"{r.tiles} x {r.kernel.rows}" for r in self.regions) + f" rows of {self.scheme}"


def plan_for(scheme: Scheme[Kernel], rows: int) -> Plan[Kernel]:
    """Plans how a scheme covers ``rows`` rows.

    Draws, for ``scheme.rows == 14`` and 31 rows::

        even         rest         padded, checked, partitioned
        1 x 11       2 x 14       3 x 14  (11 of the last tile's rows are not needed)
        2 x 10       1 x  3

    Heights are multiples of the micro-kernel's granule: only the last tile can stick out, by less than that.
    """
    regions: list[Region[Kernel]] = []
    first = 0
    for height, count in cover(scheme, rows):
        covered = min(rows - first, count * height)
        regions.append(Region(scheme_with(scheme, rows=height), first, covered, count))
        first += covered
    return Plan(scheme, tuple(regions))


def tiling(scheme: Scheme, workload: Workload, shape: Shape) -> Hashable:
    """Returns a value that is equal for schemes with the same tiles on a shape: 48 rows are 4 x 12 by
    ``12x32.even``, by ``12x32.rest`` and by ``14x32.even``."""
    sizes = extents(workload, shape)
    return _tiling(scheme, sizes["rows"], sizes["cols"] if scheme.kernel.composes_columns else 0)


@lru_cache(maxsize=1 << 17)
def _tiling(scheme: Scheme, rows: int, cols: int) -> Hashable:
    edge = "" if scheme.composed else scheme.edge
    across = replace(scheme, kernel=with_rows(scheme.kernel, scheme.cols)) if cols else scheme
    return scheme.family, edge, tuple(cover(scheme, rows)), tuple(cover(across, cols))


def heights(scheme: Scheme, low: int = 1, high: int | None = None) -> tuple[int, ...]:
    """Returns the heights of all tiles that a scheme needs for ``low..high`` rows (None: no end)."""
    if not scheme.composed:
        return (scheme.rows,)
    granule, most = scheme.kernel.granule, scheme.rows // scheme.kernel.granule
    first = -(-low // granule)
    # In granules: from most * (most - 1) on an even split has tiles of most and most - 1 only; a rest
    # repeats after most.
    settled = max(first, most * (most - 1)) + most
    last = settled if high is None else min(-(-high // granule), settled)
    splits = (_split(scheme.edge, granules, most) for granules in range(max(first, 1), last + 1))
    return tuple(sorted({granule * height for split in splits for height, _ in split}))


@lru_cache(maxsize=1 << 17)  # a portfolio is chosen several times, among nearly the same schemes
def needed(scheme: Scheme, low: int = 1, high: int | None = None) -> tuple[MicroKernel, ...]:
    """Returns the micro-kernels that a scheme needs for ``low..high`` rows (None: no end).

    Each height is one. What a micro-kernel does at the last columns is part of it: most mask them, dot
    products have a narrower variant for each width.
    """
    return tuple(with_rows(scheme.kernel, rows) for rows in heights(scheme, low, high))


def cover(scheme: Scheme, rows: int) -> list[tuple[int, int]]:
    """Returns the heights of the tiles that cover ``rows`` rows, and the number of tiles of each height."""
    if rows == 0:
        return []
    if not scheme.composed:
        return [(scheme.rows, -(-rows // scheme.rows))]
    granule = scheme.kernel.granule
    split = _split(scheme.edge, -(-rows // granule), scheme.rows // granule)
    return [(height * granule, count) for height, count in split]


def _split(edge: Edge, granules: int, most: int) -> list[tuple[int, int]]:
    """Splits at least one row into heights of at most ``most`` (all in granules); returns each height and its
    number of tiles."""
    if edge == "even":
        tiles = -(-granules // most)
        low, more = divmod(granules, tiles)
        parts = [(low + 1, more), (low, tiles - more)]
    else:
        full, left = divmod(granules, most)
        parts = [(most, full), (left, 1 if left else 0)]
    return [part for part in parts if part[1]]


def spans(workload: Workload, shapes: ShapeSet) -> list[tuple[int, int]]:
    """Returns the rows that each shape of a set stands for: all since the next fewer rows of any shape."""
    rows = [axis_of(workload, "rows").at(shape) for shape in shapes]
    known = sorted(set(rows))
    since = dict(zip(known, [min(known[0], 1), *(extent + 1 for extent in known)], strict=False))
    return [(since[extent], extent) for extent in rows]

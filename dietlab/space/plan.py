"""Plans: each covers one shape's rows by regions of micro-kernels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic

from dietlab.shapes import Shape, ShapeSet
from dietlab.space.micro_kernel import Edge, Kernel, MicroKernel, with_rows
from dietlab.workloads import Workload, axis_of, extents


@dataclass(frozen=True)
class Region(Generic[Kernel]):
    """A region is ``tiles`` copies of one micro-kernel, side by side over ``rows`` rows of the output."""

    kernel: Kernel
    first_row: int
    rows: int
    tiles: int

    @property
    def executed_rows(self) -> int:
        """Rows that are computed, padding included."""
        return self.tiles * self.kernel.rows


@dataclass(frozen=True)
class Plan(Generic[Kernel]):
    """A plan lists regions from the first row to the last; every row belongs to exactly one."""

    kernel: Kernel
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
        return " + ".join(f"{r.tiles} x {r.kernel.rows}" for r in self.regions) + f" rows of {self.kernel}"


def tiling(kernel: MicroKernel, rows: int, cols: int) -> Hashable:
    """Returns a value that is equal for plans with the same tiles on a ``rows x cols`` output: 48 rows are
    4 x 12 by ``12x32.even``, by ``12x32.rest`` and by ``14x32.even``."""
    edge = "" if kernel.composed else kernel.edge
    across = with_rows(kernel, kernel.cols) if kernel.cover_tile["cols"] < kernel.cols else None
    columns = _cover(across, cols) if across else []
    return kernel.family, edge, tuple(_cover(kernel, rows)), tuple(columns)


def tiling_on(kernel: MicroKernel, workload: Workload, shape: Shape) -> Hashable:
    """Returns a value that is equal for plans with the same tiles on a shape."""
    sizes = extents(workload, shape)
    return tiling(kernel, sizes["rows"], sizes["cols"])


def program_on(kernel: MicroKernel, workload: Workload, shape: Shape) -> Hashable:
    """Returns a value that is equal for micro-kernels that run one program on a shape and share its time."""
    return kernel if kernel.reserves else tiling_on(kernel, workload, shape)


def heights(kernel: MicroKernel, low: int = 1, high: int | None = None) -> tuple[int, ...]:
    """Returns the heights of all tiles that ``kernel`` needs for ``low..high`` rows (None: no end)."""
    if not kernel.composed:
        return (kernel.rows,)
    granule, most = kernel.granule, kernel.rows // kernel.granule
    first = -(-low // granule)
    # In granules: from most * (most - 1) on an even split has tiles of most and most - 1 only; a rest
    # repeats after most.
    settled = max(first, most * (most - 1)) + most
    last = settled if high is None else min(-(-high // granule), settled)
    splits = (_split(kernel.edge, granules, most) for granules in range(max(first, 1), last + 1))
    return tuple(sorted({granule * height for split in splits for height, _ in split}))


def plan_for(kernel: Kernel, rows: int) -> Plan[Kernel]:
    """Plans how ``kernel`` (and, if it is composed, lower ones of its family) covers ``rows`` rows.

    Draws, for ``kernel.rows == 14`` and 31 rows::

        even         rest         padded, checked, partitioned
        1 x 11       2 x 14       3 x 14  (11 of the last tile's rows are not needed)
        2 x 10       1 x  3

    Heights are multiples of ``kernel.granule``: only the last tile can stick out, by less than that.
    """
    regions: list[Region[Kernel]] = []
    first = 0
    for height, count in _cover(kernel, rows):
        covered = min(rows - first, count * height)
        regions.append(Region(with_rows(kernel, height), first, covered, count))
        first += covered
    return Plan(kernel, tuple(regions))


def _cover(kernel: MicroKernel, rows: int) -> list[tuple[int, int]]:
    """Returns the heights of the tiles that cover ``rows`` rows, and the number of tiles of each height."""
    if rows == 0:
        return []
    if not kernel.composed:
        return [(kernel.rows, -(-rows // kernel.rows))]
    granule = kernel.granule
    split = _split(kernel.edge, -(-rows // granule), kernel.rows // granule)
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


@lru_cache(maxsize=1 << 17)  # a portfolio is chosen several times, among nearly the same plans
def needed(plan: MicroKernel, low: int = 1, high: int | None = None) -> tuple[MicroKernel, ...]:
    """Returns the micro-kernels, as generated code, that a plan needs for ``low..high`` rows (None: no end).

    Each height is one. What a micro-kernel does at the last columns is part of it: most mask them, dot
    products have a narrower variant for each width.
    """
    return tuple(sorted({with_rows(plan, rows).code for rows in heights(plan, low, high)}))


def spans(workload: Workload, shapes: ShapeSet) -> list[tuple[int, int]]:
    """Returns the rows that each shape of an ascending set stands for: all since the shape before it."""
    rows = [axis_of(workload, "rows").at(shape) for shape in shapes]
    since = [min(rows[0], 1), *(extent + 1 for extent in rows[:-1])]
    return list(zip(since, rows, strict=True))

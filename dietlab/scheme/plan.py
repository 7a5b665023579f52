"""Plans: a plan covers the rows of a shape by regions of equal tiles."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from dietlab.problem import IntArray, Shape, ShapeSet, Workload, channelwise, extent_at, line_of
from dietlab.scheme.micro_kernel import COMPOSED, Edge, Kernel, MicroKernel, with_rows
from dietlab.scheme.scheme import Scheme, scheme_with

Count = TypeVar("Count", int, IntArray)
"""A number for one plan, or an array with one for each of many plans."""


@dataclass(frozen=True)
class Region(Generic[Kernel]):
    """``tiles`` copies of a scheme's tallest tile, which cover ``rows`` rows of the output from ``first_row``
    (counted from 0).

    Args:
        scheme: the scheme of its tiles.
    """

    scheme: Scheme[Kernel]
    first_row: int
    rows: int
    tiles: int

    @property
    def kernel(self) -> Kernel:
        """The micro-kernel of its tiles."""
        return self.scheme.kernel

    @property
    def executed_rows(self) -> int:
        """The number of rows that are computed, padding included."""
        return self.tiles * self.scheme.rows


@dataclass(frozen=True)
class Plan(Generic[Kernel]):
    """The regions that cover a shape; every row belongs to exactly one.

    Args:
        scheme: the planned scheme.
        regions: the regions, in the order of rows.
        lines: how often the regions repeat: the number of lines of a convolution's output, if tiles cover
            each line by itself.
    """

    scheme: Scheme[Kernel]
    regions: tuple[Region[Kernel], ...]
    lines: int = 1

    @property
    def tiles(self) -> int:
        """The number of row tiles of all regions and lines."""
        return self.lines * sum(region.tiles for region in self.regions)

    @property
    def rows(self) -> int:
        """The number of rows of the output that are covered."""
        return self.lines * sum(region.rows for region in self.regions)

    @property
    def executed_rows(self) -> int:
        """The number of rows that are computed, padding included."""
        return self.lines * sum(region.executed_rows for region in self.regions)

    def __str__(self) -> str:
        lines = "" if self.lines == 1 else f"{self.lines} lines of "
        rows = " + ".join(f"{r.tiles} x {r.kernel.rows}" for r in self.regions)
        return f"{lines}{rows} rows of {self.scheme}"


def plan_for(scheme: Scheme[Kernel], rows: int) -> Plan[Kernel]:
    """Plans how a scheme covers ``rows`` rows.

    For ``scheme.rows == 14`` and 31 rows::

        even         rest         padded, checked, partitioned
        1 x 11       2 x 14       3 x 14  (11 of the last tile's rows are not needed)
        2 x 10       1 x  3

    Heights are multiples of the micro-kernel's granule, so the last tile of ``even`` and ``rest`` can also
    stick out, by less than a granule.

    Args:
        scheme: the scheme, which gives the tile and the treatment of the edge.
        rows: the number of rows to cover, at least 0.
    """
    regions: list[Region[Kernel]] = []
    first = 0
    for height, count in cover(scheme, rows):
        covered = min(rows - first, count * height)
        regions.append(Region(scheme_with(scheme, rows=height), first, covered, count))
        first += covered
    return Plan(scheme, tuple(regions))


def plan_on(scheme: Scheme[Kernel], workload: Workload, shape: Shape) -> Plan[Kernel]:
    """Plans how a scheme covers a shape; see :func:`plan_for`.

    Args:
        scheme: the scheme, which gives the tile and the treatment of the edge.
        workload, shape: the operator and the shape to cover.
    """
    lines, rows = covered(scheme, workload, shape)
    return replace(plan_for(scheme, rows), lines=lines)


def covered(scheme: Scheme, workload: Workload, shape: Shape) -> tuple[int, int]:
    """Returns how often a scheme's tiles cover what they cover together, and how many rows that are: once all
    rows, or each line of a convolution's output by itself.

    Args:
        scheme: the scheme.
        workload, shape: the operator and the shape to cover.
    """
    if covers_lines(scheme, workload):
        return line_of(workload, shape)
    return 1, extent_at(workload, "rows", shape)


def covers_lines(scheme: Scheme, workload: Workload) -> bool:
    """Returns whether tiles cover each line of a convolution's output by itself.

    Args:
        scheme: the scheme.
        workload: the operator.
    """
    return scheme.kernel.lines or channelwise(workload)


def tiling(scheme: Scheme, workload: Workload, shape: Shape) -> Hashable:
    """Returns a value that is equal for schemes with the same tiles on a shape: ``12x32.even``,
    ``12x32.rest`` and ``14x32.even`` all cover 48 rows by 4 x 12.

    Args:
        scheme: the scheme, which gives the tile and the treatment of the edge.
        workload, shape: the operator and the shape to cover.
    """
    cols = extent_at(workload, "cols", shape) if scheme.kernel.composes_columns else 0
    return _tiling(scheme, covered(scheme, workload, shape)[1], cols)


@lru_cache(maxsize=1 << 17)
def _tiling(scheme: Scheme, rows: int, cols: int) -> Hashable:
    edge = "" if scheme.composed else scheme.edge
    across = replace(scheme, kernel=with_rows(scheme.kernel, scheme.cols)) if cols else scheme
    return scheme.family, edge, tuple(cover(scheme, rows)), tuple(cover(across, cols))


def heights(scheme: Scheme, low: int = 1, high: int | None = None) -> tuple[int, ...]:
    """Returns the heights of all tiles that a scheme needs for ``low..high`` rows.

    Args:
        scheme: the scheme, which gives the tile and the treatment of the edge.
        low, high: the smallest number of rows, at least 1, and the largest (None: unbounded).
    """
    if not scheme.composed:
        return (scheme.rows,)
    granule, most = scheme.kernel.granule, scheme.rows // scheme.kernel.granule
    first = -(-low // granule)
    # In granules: from most * (most - 1) on, an even split has tiles of most and most - 1 only, and the rest
    # is periodic with period most.
    settled = max(first, most * (most - 1)) + most
    last = settled if high is None else min(-(-high // granule), settled)
    covers = (cover(scheme, granule * granules) for granules in range(max(first, 1), last + 1))
    return tuple(sorted({height for found in covers for height, _ in found}))


@lru_cache(maxsize=1 << 17)  # a portfolio is chosen several times, from nearly the same schemes
def needed(scheme: Scheme, low: int = 1, high: int | None = None) -> tuple[MicroKernel, ...]:
    """Returns the micro-kernels that a scheme needs for ``low..high`` rows, one for each height.

    The code for the last columns is part of a micro-kernel: most micro-kernels mask these columns, and those
    of dot products have a narrower variant for each width.

    Args:
        scheme: the scheme, which gives the tile and the treatment of the edge.
        low, high: the smallest number of rows, at least 1, and the largest (None: unbounded).
    """
    return tuple(with_rows(scheme.kernel, rows) for rows in heights(scheme, low, high))


def cover(scheme: Scheme, rows: int) -> list[tuple[int, int]]:
    """Returns the tiles that cover ``rows`` rows: pairs of a height and the number of its tiles."""
    found = tiles_of(scheme.edge, scheme.kernel.granule, scheme.rows, rows)
    return [(height, tiles) for height, tiles in found if tiles]


def tiles_of(edge: Edge, granule: Count, most: Count, rows: Count) -> list[tuple[Count, Count]]:
    """Splits rows into regions, in the order of rows. Returns, for each region, the height of its tiles and
    their number. The height of a region with 0 tiles has no meaning.

    Arrays in place of numbers split many plans at once.

    Args:
        edge: the treatment of the edge tile.
        granule: the divisor of all heights, in rows.
        most: the number of rows of a full tile.
        rows: the number of rows to cover.
    """
    if edge not in COMPOSED:
        return [(most, -(-rows // most))]
    granules, highest = -(-rows // granule), most // granule
    if edge == "even":
        tiles = -(-granules // highest)
        low, more = divmod(granules, tiles + (tiles == 0))
        return [(granule * (low + 1), more), (granule * low, tiles - more)]
    full, left = divmod(granules, highest)
    return [(granule * highest, full), (granule * left, -(-left // highest))]


def spans(workload: Workload, shapes: ShapeSet, *, lines: bool = False) -> list[tuple[int, int]]:
    """Returns for each shape the range of row counts that it represents: from one more than the next smaller
    row count in the set up to its own row count.

    Args:
        workload, shapes: the operator and a set of its shapes.
        lines: whether to count the rows of a line of a convolution's output instead of all rows.
    """
    rows = [line_of(workload, shape)[1] if lines else extent_at(workload, "rows", shape) for shape in shapes]
    known = sorted(set(rows))
    since = dict(zip(known, [min(known[0], 1), *(extent + 1 for extent in known)], strict=False))
    return [(since[extent], extent) for extent in rows]

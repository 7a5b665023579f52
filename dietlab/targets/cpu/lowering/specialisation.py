"""The parts of a library's plans that are compiled: lengths and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietlab.lower.contraction import Sizes
from dietlab.lower.dispatch_tree import needed_heights
from dietlab.scheme import Leaf, Tree, heights, leaves, restricted, scheme_with
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.lines import line_width


@dataclass(frozen=True)
class Piece:
    """A scheme of the tree with the tiles that it needs: for one ``length``, or (None) for all lengths
    without a separate piece."""

    number: int
    scheme: CpuScheme
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    length: int | None = None


def pieces(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree | None,
    only: Sequence[Sequence[Sizes]] | None = None,
) -> tuple[Piece, ...]:
    """Returns all pieces that an entry function chooses among. Without a tree the caller chooses any scheme
    for any shape. ``only`` has the shapes that each scheme will be called with (None: any)."""
    single = _single(geometry, tree, only)
    longer = None
    if only is not None:
        longer = [[sizes for sizes in called if sizes[geometry.rows] not in single] for called in only]
    chooser, every = (Leaf(0), True) if tree is None else (tree, False)
    after = single[-1] + 1 if single else 1
    rows = _needed(geometry.rows, schemes, chooser, geometry, longer, every, after)
    cols = needed_widths(geometry, schemes, chooser, every_plan=every, only=longer, low=after)
    general = [
        Piece(number, scheme, rows[number], cols[number])
        for number, scheme in enumerate(schemes)
        if rows[number]
    ]
    return (*(p for length in single for p in _of_length(geometry, schemes, tree, length, only)), *general)


def _needed(
    dim: str | int,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    geometry: Geometry,
    only: Sequence[Sequence[Sizes]] | None,
    every: bool,
    low: int,
) -> list[tuple[int, ...]]:
    """Returns the heights of each scheme's tiles over the extents of a dimension (a name, or a static extent)
    that the tree sends to it."""
    if isinstance(dim, int):
        return [heights(scheme, dim, dim) for scheme in schemes]

    called = None
    if only is not None:
        called = [
            sorted({_extent(geometry, dim, scheme, sizes) for sizes in shapes})
            for scheme, shapes in zip(schemes, only, strict=True)
        ]
    from_low = low if dim == geometry.rows else 1
    whose = geometry if dim == geometry.rows else None
    return needed_heights(schemes, tree, dim, whose, every_plan=every, only=called, low=from_low)


def _extent(geometry: Geometry, dim: str, scheme: CpuScheme, sizes: Sizes) -> Any:
    """Returns what a scheme's tiles cover together along a dimension: all of it, or a line of rows."""
    if dim != geometry.rows or not (geometry.channelwise or scheme.kernel.lines):
        return sizes[dim]
    # A line with borders alone still needs its piece.
    return max(1, line_width(geometry.patches, sizes))


def _single(geometry: Geometry, tree: Tree | None, only: Sequence[Sequence[Sizes]] | None) -> list[int]:
    """Returns the lengths with separate pieces. There are none if any scheme may be called at any length:
    every scheme would need a piece for every length."""
    if only is not None:
        called = {shape[geometry.rows] for shapes in only for shape in shapes}
        return sorted(length for length in called if 0 < length <= geometry.short)
    return [] if tree is None else list(range(1, geometry.short + 1))


def _of_length(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree | None,
    length: int,
    only: Sequence[Sequence[Sizes]] | None,
) -> list[Piece]:
    left = None if tree is None else restricted(tree, {geometry.rows: length})
    numbers = range(len(schemes)) if left is None else sorted({leaf.scheme for leaf in leaves(left)})
    found = []
    for number in numbers:
        called: Sequence[Sizes] | None = None
        if only is not None:
            called = [sizes for sizes in only[number] if sizes[geometry.rows] == length]
            if not called:
                continue
        elif geometry.cols == geometry.rows:
            called = [{geometry.rows: length}]
        scheme = schemes[number]
        (widths,) = needed_widths(geometry, [scheme], Leaf(0), only=None if called is None else [called])
        found.append(Piece(number, scheme, heights(scheme, length, length), widths, length))
    return found


def needed_widths(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Sizes]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns the widths of each scheme's tiles, as :func:`~dietlab.lower.dispatch_tree.needed_heights` does
    for heights: where vectors run along the depth, columns are composed too."""
    turned = [scheme_with(s, rows=s.cols if s.kernel.composes_columns else s.kernel.granule) for s in schemes]
    needed = _needed(geometry.cols, turned, tree, geometry, only, every_plan, low)
    return [n if s.kernel.composes_columns else (s.cols,) for s, n in zip(schemes, needed, strict=True)]

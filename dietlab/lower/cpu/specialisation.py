"""Selects what a library compiles of its plans: for which lengths, and which tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dietlab.lower.cpu.geometry import Geometry
from dietlab.lower.dispatch_tree import needed_heights
from dietlab.plans import Leaf, Tree, heights, route
from dietlab.shapes import Shape
from dietlab.space import CpuScheme, scheme_with


@dataclass(frozen=True)
class Piece:
    """Scheme ``number`` as it is compiled for one ``length`` of the dynamic dimension
    or (None) for all lengths without a specialised piece; ``heights`` and ``widths`` of the tiles that it
    needs."""

    number: int
    scheme: CpuScheme
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    length: int | None = None


def pieces(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree | None,
    only: Sequence[Sequence[int]] | None = None,
) -> tuple[Piece, ...]:
    """Returns all pieces that an entry function chooses among.

    Args:
        schemes: those that the tree names, by number.
        tree: chooses among them (None: the caller does, any plan for any length).
        only: for each plan the lengths it will be called with (default: any).
    """
    single = _single(geometry, tree, only)
    longer = None if only is None else [sorted(set(called).difference(single)) for called in only]
    chooser, every = (Leaf(0), True) if tree is None else (tree, False)
    after = single[-1] + 1 if single else 1
    rows = needed_heights(schemes, chooser, every_plan=every, only=longer, low=after)
    cols = needed_widths(geometry, schemes, chooser, every_plan=every, only=longer, low=after)
    general = [
        Piece(number, scheme, rows[number], cols[number])
        for number, scheme in enumerate(schemes)
        if rows[number]
    ]
    return (*(p for length in single for p in _of_length(geometry, schemes, tree, length, only)), *general)


def _single(geometry: Geometry, tree: Tree | None, only: Sequence[Sequence[int]] | None) -> list[int]:
    """Returns the lengths with specialised pieces; none where any plan may be called at any length, since
    there would be one for each plan and length."""
    if only is not None:
        return sorted({length for called in only for length in called if 0 < length <= geometry.short})
    return [] if tree is None else list(range(1, geometry.short + 1))


def _of_length(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree | None,
    length: int,
    only: Sequence[Sequence[int]] | None,
) -> list[Piece]:
    shape = Shape.of(**{geometry.size: length})
    found = []
    for number in range(len(schemes)) if tree is None else (route(tree, shape),):
        if only is not None and length not in only[number]:
            continue
        scheme = schemes[number]
        (widths,) = needed_widths(geometry, [scheme], Leaf(0), only=[[length]])
        found.append(Piece(number, scheme, heights(scheme, length, length), widths, length))
    return found


def needed_widths(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns what :func:`~dietlab.lower.dispatch_tree.needed_heights` returns, for columns: these are
    composed as rows are where vectors run along the depth."""
    turned = [scheme_with(s, rows=s.cols if s.kernel.composes_columns else 1) for s in schemes]
    if isinstance(geometry.cols, int):
        needed = [heights(scheme, geometry.cols, geometry.cols) for scheme in turned]
    else:
        needed = needed_heights(turned, tree, every_plan=every_plan, only=only, low=low)
    return [n if s.kernel.composes_columns else (s.cols,) for s, n in zip(schemes, needed, strict=True)]

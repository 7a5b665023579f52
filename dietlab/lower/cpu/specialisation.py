"""Selects what a library compiles of its plans: for which lengths, and which tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dietlab.lower.cpu.geometry import Geometry
from dietlab.lower.dispatch_tree import needed_heights
from dietlab.shapes import Shape
from dietlab.space import CpuMicroKernel, Leaf, Tree, heights, route


@dataclass(frozen=True)
class Piece:
    """Plan ``number``, led by ``kernel``, as it is compiled for one ``length`` of the dynamic dimension
    or (None) for all lengths without a specialised piece; ``heights`` and ``widths`` of the tiles that it
    needs."""

    number: int
    kernel: CpuMicroKernel
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    length: int | None = None


def pieces(
    geometry: Geometry,
    kernels: Sequence[CpuMicroKernel],
    tree: Tree | None,
    only: Sequence[Sequence[int]] | None = None,
) -> tuple[Piece, ...]:
    """Returns all pieces that an entry function chooses among.

    Args:
        kernels: the micro-kernels that lead the plans, by number.
        tree: chooses among them (None: the caller does, any plan for any length).
        only: for each plan the lengths it will be called with (default: any).
    """
    single = _single(geometry, tree, only)
    longer = None if only is None else [sorted(set(called).difference(single)) for called in only]
    chooser, every = (Leaf(0), True) if tree is None else (tree, False)
    after = single[-1] + 1 if single else 1
    rows = needed_heights(kernels, chooser, every_plan=every, only=longer, low=after)
    cols = needed_widths(geometry, kernels, chooser, every_plan=every, only=longer, low=after)
    general = [
        Piece(number, kernel, rows[number], cols[number])
        for number, kernel in enumerate(kernels)
        if rows[number]
    ]
    return (*(p for length in single for p in _of_length(geometry, kernels, tree, length, only)), *general)


def _single(geometry: Geometry, tree: Tree | None, only: Sequence[Sequence[int]] | None) -> list[int]:
    """Returns the lengths with specialised pieces; none where any plan may be called at any length, since
    there would be one for each plan and length."""
    if only is not None:
        return sorted({length for called in only for length in called if 0 < length <= geometry.short})
    return [] if tree is None else list(range(1, geometry.short + 1))


def _of_length(
    geometry: Geometry,
    kernels: Sequence[CpuMicroKernel],
    tree: Tree | None,
    length: int,
    only: Sequence[Sequence[int]] | None,
) -> list[Piece]:
    shape = Shape.of(**{geometry.size: length})
    found = []
    for number in range(len(kernels)) if tree is None else (route(tree, shape),):
        if only is not None and length not in only[number]:
            continue
        kernel = kernels[number]
        (widths,) = needed_widths(geometry, [kernel], Leaf(0), only=[[length]])
        found.append(Piece(number, kernel, heights(kernel, length, length), widths, length))
    return found


def needed_widths(
    geometry: Geometry,
    kernels: Sequence[CpuMicroKernel],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns what :func:`~dietlab.lower.dispatch_tree.needed_heights` returns, for columns: these are
    composed as rows are where vectors run along the depth."""
    turned = [replace(kernel, rows=kernel.cols if kernel.along == "depth" else 1) for kernel in kernels]
    if isinstance(geometry.cols, int):
        needed = [heights(kernel, geometry.cols, geometry.cols) for kernel in turned]
    else:
        needed = needed_heights(turned, tree, every_plan=every_plan, only=only, low=low)
    return [n if k.along == "depth" else (k.cols,) for k, n in zip(kernels, needed, strict=True)]

"""Which micro-kernels a plan is made of: what has to be compiled for it."""

from __future__ import annotations

from functools import lru_cache

from dietlab.shapes import ShapeSet
from dietlab.space import MicroKernel, heights, with_rows
from dietlab.workloads import Workload, axis_of


@lru_cache(maxsize=1 << 17)  # a portfolio is chosen several times, among much the same plans
def needed(plan: MicroKernel, low: int = 1, high: int | None = None) -> tuple[MicroKernel, ...]:
    """The micro-kernels, as generated code, that a plan needs for ``low..high`` rows (None: without end).

    Each height is one. What a micro-kernel does at the last columns is part of it: most mask them, dot
    products have a narrower variant for each width.
    """
    return tuple(sorted({with_rows(plan, rows).code for rows in heights(plan, low, high)}))


def spans(workload: Workload, shapes: ShapeSet) -> list[tuple[int, int]]:
    """The rows that each shape of an ascending set stands for: all since the shape before it."""
    rows = [axis_of(workload, "rows").at(shape) for shape in shapes]
    since = [min(rows[0], 1), *(extent + 1 for extent in rows[:-1])]
    return list(zip(since, rows, strict=True))

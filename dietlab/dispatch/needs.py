"""Which micro-kernels a plan is made of: what has to be compiled for it."""

from __future__ import annotations

from dataclasses import replace

from dietlab.space import MicroKernel, heights


def needed(plan: MicroKernel, low: int = 1, high: int | None = None) -> tuple[MicroKernel, ...]:
    """The micro-kernels, as generated code, that a plan needs for ``low..high`` rows (None: without end).

    Each height is one. What a micro-kernel does at the last columns is part of it: most mask them, dot
    products have a narrower variant for each width.
    """
    return tuple(sorted({replace(plan, rows=rows).code for rows in heights(plan, low, high)}))

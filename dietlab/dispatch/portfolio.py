"""Stage 4, first half: the few micro-kernels that are compiled into the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import numpy.typing as npt

from dietlab.errors import DispatchError
from dietlab.hardware import Hardware
from dietlab.search import TuningRun
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel
from dietlab.workloads import Workload

BEYOND = 8
DENSE_SHAPES = 1024
"""Shapes that a dispatcher is trained on at most: all of them in ranges up to this length."""


@dataclass(frozen=True)
class Portfolio:
    """Micro-kernels with their time on a dense set of shapes.

    Args:
        seconds: ``[micro-kernel][shape]``, measured or calibrated predictions.
        best_seconds: for each shape the least time of *any* candidate, chosen or not.
        curve: ``(micro-kernels, mean slowdown)`` for every size up to the chosen one.
        safe_kernel: the member for shapes beyond the range: the fastest, as far as the model tells, on
            the range's end times :data:`BEYOND`.
    """

    workload: Workload
    hardware: Hardware
    micro_kernels: tuple[MicroKernel, ...]
    shapes: ShapeSet
    seconds: tuple[tuple[float, ...], ...]
    best_seconds: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    safe_kernel: MicroKernel

    def __len__(self) -> int:
        return len(self.micro_kernels)

    @property
    def slowdowns(self) -> npt.NDArray[np.float64]:
        """Time over the least time of any candidate, ``[micro-kernels, shapes]``, 1 or more."""
        table: npt.NDArray[np.float64] = np.array(self.seconds) / np.array(self.best_seconds)
        return table


def choose_portfolio(
    run: TuningRun, shapes: ShapeSet | None = None, max_kernels: int = 8, max_slowdown: float = 1.0
) -> Portfolio:
    """The micro-kernels that together lose least time, each shape counted by its weight.

    Greedy by marginal decrease of the weighted mean slowdown, then swaps until none helps.

    Args:
        shapes: what will be called and how often (default: the tuned shapes); every shape of the
            range gets a share of its nearest neighbour's weight, so that no length is forgotten.
        max_slowdown: stop early once the mean slowdown is at most this (1 means never).

    Raises:
        DispatchError: if ``max_kernels`` is below 1.
    """
    if max_kernels < 1:
        raise DispatchError("a portfolio has at least one micro-kernel", max_kernels)
    kernels = run.micro_kernels
    dense = dense_shapes(run.space.workload, shapes or run.shapes)
    table = run.seconds_table(kernels, dense.shapes)
    best = table.min(axis=0)
    logs, weights = np.log(table / best), np.array(dense.weights)
    chosen: list[int] = []
    curve: list[tuple[int, float]] = []
    while len(chosen) < min(max_kernels, len(kernels)):
        chosen = _swapped(_with_best_addition(chosen, logs, weights), logs, weights)
        curve.append((len(chosen), exp(_loss(chosen, logs, weights))))
        if curve[-1][1] <= max_slowdown:
            break
    picked = sorted(chosen, key=lambda i: kernels[i])
    return Portfolio(
        run.space.workload, run.space.hardware, tuple(kernels[i] for i in picked), dense,
        tuple(tuple(table[i].tolist()) for i in picked), tuple(best.tolist()), tuple(curve),
        _safest(run, [kernels[i] for i in picked]),
    )  # fmt: skip


def _safest(run: TuningRun, members: Sequence[MicroKernel]) -> MicroKernel:
    dims = run.space.workload.dims
    beyond = Shape.of(**{name: BEYOND * dim.high for name, dim in dims.items()})
    return members[int(run.seconds_table(members, [beyond])[:, 0].argmin())]


def _loss(chosen: Sequence[int], logs: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    """Weighted mean of the logarithm of the slowdown when each shape takes its best of ``chosen``."""
    return float(logs[list(chosen)].min(axis=0) @ weights)


def _with_best_addition(
    chosen: list[int], logs: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> list[int]:
    reached = logs[chosen].min(axis=0) if chosen else np.full(logs.shape[1], np.inf)
    losses = np.minimum(reached, logs) @ weights + 1e-6 * (logs @ weights)
    losses[chosen] = np.inf
    return [*chosen, int(losses.argmin())]


def _swapped(chosen: list[int], logs: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> list[int]:
    """Exchanges a member for the best other one as long as that lowers the loss."""
    improved = True
    while improved:
        improved = False
        for member in chosen:
            rest = [i for i in chosen if i != member]
            candidate = _with_best_addition(rest, logs, weights)
            if _loss(candidate, logs, weights) < _loss(chosen, logs, weights) - 1e-9:
                chosen, improved = candidate, True
                break
    return chosen


def dense_shapes(workload: Workload, shapes: ShapeSet, limit: int = DENSE_SHAPES) -> ShapeSet:
    """Every shape of a one-dimensional range (or ``limit`` of them), weighted like ``shapes``.

    Each dense shape gets an equal part of the weight of the nearest given shape.
    """
    if len(workload.dims) != 1:
        return shapes
    name, dim = next(iter(workload.dims.items()))
    extents = np.unique(np.linspace(dim.low, dim.high, min(limit, len(dim))).round().astype(int))
    given = np.array([shape[name] for shape in shapes])
    nearest = np.abs(extents[:, None] - given[None, :]).argmin(axis=1)
    population = np.bincount(nearest, minlength=len(given))
    return ShapeSet.of(
        {
            Shape.of(**{name: int(extent)}): shapes.weights[near] / population[near]
            for extent, near in zip(extents, nearest, strict=True)
        }
    )

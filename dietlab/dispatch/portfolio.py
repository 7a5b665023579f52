"""Stage 4, first half: chooses the few micro-kernels that are compiled into the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf, isfinite, nan
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.cards import Card, Carded, Fold, Listing, Quantity, counted, share_text
from dietlab.errors import DispatchError, require_type
from dietlab.hardware import Hardware
from dietlab.plans import needed, spans
from dietlab.search import TuningRun, candidate_plans, length_grid
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import COMPOSED, MicroKernel, Scheme, parameter_table, scheme_with, with_rows
from dietlab.workloads import Workload

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.float64]

BEYOND = 8
"""The factor from the range's end to the shape that stands for all shapes beyond it: far enough that the
edge tile no longer matters."""

STARTS = 3
"""Families whose lowest micro-kernels are tried as starts of the exchanges, beside the greedy
choice."""

MOST = 2
"""The most micro-kernels that a plan may need for one shape: two heights."""

UNCOVERED = 1000.0
"""The loss of a shape that no plan covers, in units of :func:`lost`: larger than any sum of other losses."""

TAIL = 60.0
"""The weight of the squared logarithm in :func:`lost`: with 60, a slowdown of 5 % counts four times as
much as its logarithm. A program waits for its slowest calls, and small differences are noise."""


def lost(slowdowns: Values) -> Values:
    """Returns the loss of slowdowns (ratios >= 1): their logarithm plus :data:`TAIL` times its square."""
    logs = np.log(slowdowns)
    found: Values = np.minimum(logs + TAIL * logs**2, UNCOVERED)
    return found


@dataclass(frozen=True, repr=False)
class Portfolio(Carded):
    """A portfolio: micro-kernels, and the plans made of them with their times on a grid of shapes.

    Args:
        micro_kernels: those that get compiled; schemes that differ in loop order or edge share them.
        schemes: those that serve the shapes, made of these micro-kernels.
        seconds: ``[scheme][shape]``, as the tuning run expects them; infinite where a scheme needs a
            micro-kernel that is not in the portfolio.
        best_seconds: for each shape the least expected time of any candidate, chosen or not.
        curve: ``(micro-kernels, mean slowdown)`` for every size up to the chosen one that covers all shapes.
        safe_scheme: serves shapes beyond the range: the plan predicted fastest on the range's end times
            :data:`BEYOND`.
    """

    workload: Workload
    hardware: Hardware
    micro_kernels: tuple[MicroKernel, ...]
    schemes: tuple[Scheme, ...]
    shapes: ShapeSet
    seconds: tuple[tuple[float, ...], ...]
    best_seconds: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    safe_scheme: Scheme

    def __len__(self) -> int:
        return len(self.micro_kernels)

    @property
    def slowdowns(self) -> Values:
        """Time over the least time of any candidate, ``[schemes, shapes]``, 1 or more."""
        table: Values = np.array(self.seconds) / np.array(self.best_seconds)
        return table

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row a shape and scheme that covers it.

        Columns: each dynamic dimension, ``weight`` (a share of the calls), the ``scheme`` and
        each of its parameters, ``expected_seconds``, ``best_seconds`` (the least of any candidate, chosen or
        not) and ``slowdown``, their ratio (1 is no loss).
        """
        import pandas as pd

        shapes = zip(self.shapes.shapes, self.shapes.weights, self.best_seconds, strict=True)
        rows = [
            {
                **shape.to_json(),
                "weight": weight,
                **plan.columns,
                "expected_seconds": seconds[column],
                "best_seconds": best,
                "slowdown": seconds[column] / best,
            }
            for column, (shape, weight, best) in enumerate(shapes)
            for plan, seconds in zip(self.schemes, self.seconds, strict=True)
            if isfinite(seconds[column])
        ]
        return pd.DataFrame(rows)

    @property
    def card(self) -> Card:
        slowdown = self.curve[-1][1] if self.curve else nan
        facts = (
            counted(len(self), "micro-kernel"),
            counted(len(self.schemes), "scheme"),
            counted(len(self.shapes), "shape"),
            Quantity(f"{slowdown:.3f}x", "mean slowdown"),
        )
        sections = (
            Fold("Micro-kernels", lambda: parameter_table(self.micro_kernels), unfolded=True),
            Fold("Schemes", self._schemes),
            Fold("Mean slowdown by size", lambda: Listing(("micro-kernels", "slowdown"), self.curve)),
        )
        return Card("Portfolio", f"{self.workload} on {self.hardware.name}", facts, sections)

    def _schemes(self) -> Listing:
        """Returns, for each plan, the number of shapes on which it is the portfolio's fastest."""
        best, weights = np.array(self.seconds).argmin(axis=0), np.array(self.shapes.weights)
        found = [(plan.key, best == number) for number, plan in enumerate(self.schemes)]
        header = ("scheme", "shapes on which it is fastest", "share of the calls")
        return Listing(header, found, lambda p: (p[0], int(p[1].sum()), share_text(weights[p[1]].sum())))


def choose_portfolio(
    run: TuningRun, shapes: ShapeSet | None = None, max_kernels: int = 8, max_slowdown: float = 1.0
) -> Portfolio:
    """Chooses the micro-kernels whose plans lose least time over all shapes, by weight.

    Adds micro-kernels greedily by the decrease of the weighted mean loss (:func:`lost`); then exchanges
    single ones, from there and from the best families' lowest ``max_kernels``, until no exchange helps.

    Args:
        run: the tuning run whose measured and predicted times decide.
        shapes: the shapes that will be called, with weights (default: the tuned shapes); every shape of
            the range gets a share of its nearest neighbour's weight, so that no length is left out.
        max_kernels: the most micro-kernels; each height of a composed plan counts as one.
        max_slowdown: stops early once the mean slowdown, a ratio, is at most this (1 means never).

    Raises:
        DispatchError: if ``max_kernels`` is below 1, or ``run`` is no tuning run.
    """
    require_type(
        "the first argument of choose_portfolio", run, TuningRun, DispatchError, "tune() returns one."
    )
    if max_kernels < 1:
        raise DispatchError("a portfolio has at least one micro-kernel", max_kernels)
    dense = length_grid(run.space.workload, shapes or run.shapes)
    plans = candidate_plans(run, dense.shapes)
    table = run.expected_seconds(plans, dense.shapes)
    choice = _Choice(run.space.workload, plans, dense, table)
    chosen: tuple[int, ...] = ()
    curve: list[tuple[int, float]] = []
    while len(chosen) < min(max_kernels, len(choice.kernels)):
        chosen = choice.with_best_addition(chosen)
        slowdown = choice.slowdown(chosen)
        if slowdown is not None:
            curve.append((len(chosen), slowdown))
            if slowdown <= max_slowdown:
                break
    starts = [chosen, *sorted(choice.family_starts(len(chosen)), key=choice.loss)[:STARTS]]
    chosen = min((choice.exchanged(start) for start in starts), key=choice.loss)
    curve = [point for point in curve if point[0] < len(chosen)]
    curve.append((len(chosen), choice.slowdown(chosen) or inf))
    return _portfolio(run, choice, chosen, curve)


def _portfolio(
    run: TuningRun, choice: _Choice, chosen: tuple[int, ...], curve: Sequence[tuple[int, float]]
) -> Portfolio:
    covered = choice.covered(chosen)
    table = np.where(covered, choice.table, np.inf)
    used = sorted({int(plan) for plan in table.argmin(axis=0)})
    safe = _safest(
        run, [choice.schemes[i] for i in choice.settled(chosen)] or [choice.schemes[i] for i in used]
    )
    return Portfolio(
        run.space.workload,
        run.space.hardware,
        tuple(sorted(choice.kernels[i] for i in chosen)),
        tuple(choice.schemes[i] for i in used),
        choice.shapes,
        tuple(tuple(table[i].tolist()) for i in used),
        tuple(choice.table.min(axis=0).tolist()),
        tuple(curve),
        safe,
    )


def variants(portfolio: Portfolio) -> tuple[Scheme, ...]:
    """Returns a portfolio's schemes, and those of the same families with its other heights and both edges."""
    schemes = {*portfolio.schemes, portfolio.safe_scheme}
    for scheme in tuple(schemes):
        if scheme.composed:
            family = scheme.family.kernel
            same = [k.rows for k in portfolio.micro_kernels if with_rows(k, k.granule) == family]
            schemes.update(scheme_with(scheme, rows=rows, edge=edge) for rows in same for edge in COMPOSED)
    return tuple(sorted(schemes))


def retimed(portfolio: Portfolio, run: TuningRun) -> Portfolio:
    """Returns the portfolio with the times that ``run`` expects and all plans its micro-kernels allow."""
    plans = variants(portfolio)
    table = run.expected_seconds(plans, portfolio.shapes.shapes)
    choice = _Choice(portfolio.workload, plans, portfolio.shapes, table)
    chosen = tuple(n for n, kernel in enumerate(choice.kernels) if kernel in set(portfolio.micro_kernels))
    found = _portfolio(run, choice, chosen, portfolio.curve)
    best = np.minimum(portfolio.best_seconds, found.best_seconds)
    return replace(found, best_seconds=tuple(best.tolist()))


def _safest(run: TuningRun, plans: Sequence[Scheme]) -> Scheme:
    dims = run.space.workload.dims
    beyond = Shape.of(**{name: BEYOND * dim.high for name, dim in dims.items()})
    return plans[int(run.seconds_table(plans, [beyond])[:, 0].argmin())]


@dataclass(frozen=True)
class _Choice:
    """The choice of micro-kernels: which of them each scheme needs on each shape, and the loss of a set."""

    workload: Workload
    schemes: tuple[Scheme, ...]
    shapes: ShapeSet
    table: Values

    @cached_property
    def kernels(self) -> tuple[MicroKernel, ...]:
        """All micro-kernels that some scheme needs."""
        return tuple(sorted({lower.kernel for scheme in self.schemes for lower in scheme.heights}))

    @cached_property
    def _numbers(self) -> dict[MicroKernel, int]:
        return {kernel: number for number, kernel in enumerate(self.kernels)}

    @cached_property
    def _needed(self) -> npt.NDArray[np.intp]:
        """The micro-kernels of a scheme's tiles, ``[scheme, shape, MOST]``. A shape stands for all since the
        one before it; one that needs more than ``MOST`` for them gets a number that no micro-kernel has."""
        rows = spans(self.workload, self.shapes)
        return np.array(
            [[self._padded(self._wanted(scheme, *span)) for span in rows] for scheme in self.schemes]
        )

    @cached_property
    def _needed_beyond(self) -> list[tuple[int, ...]]:
        """The micro-kernels of each scheme for every shape beyond the range."""
        last = max(high for _, high in spans(self.workload, self.shapes))
        return [self._wanted(scheme, last + 1, None) for scheme in self.schemes]

    def _wanted(self, scheme: Scheme, low: int, high: int | None) -> tuple[int, ...]:
        return tuple(self._numbers[kernel] for kernel in needed(scheme, low, high))

    def _padded(self, found: tuple[int, ...]) -> tuple[int, ...]:
        absent = len(self.kernels)
        return (*found, *found[:1] * (MOST - len(found))) if len(found) <= MOST else (absent,) * MOST

    @cached_property
    def _losses(self) -> Values:
        return lost(self.table / self.table.min(axis=0))

    def covered(self, chosen: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Returns whether the chosen micro-kernels cover each scheme's tiles, ``[scheme, shape]``."""
        present = np.zeros(len(self.kernels) + 1, bool)
        present[list(chosen)] = True
        found: npt.NDArray[np.bool_] = np.asarray(present[self._needed].all(axis=2))
        return found

    def settled(self, chosen: Sequence[int]) -> list[int]:
        """Schemes that serve every shape beyond the range."""
        present = set(chosen)
        return [i for i, needed in enumerate(self._needed_beyond) if present.issuperset(needed)]

    def loss(self, chosen: Sequence[int]) -> float:
        """Returns the weighted mean loss when each shape takes its best scheme."""
        losses = np.where(self.covered(chosen), self._losses, UNCOVERED).min(axis=0)
        # A portfolio without a scheme for shapes beyond the range would need further micro-kernels there.
        return float(losses @ np.array(self.shapes.weights)) + (0.0 if self.settled(chosen) else UNCOVERED)

    def slowdown(self, chosen: Sequence[int]) -> float | None:
        """Returns the weighted geometric mean of the slowdown; None until every shape is covered."""
        least = np.where(self.covered(chosen), self.table, np.inf).min(axis=0) / self.table.min(axis=0)
        if not (np.isfinite(least).all() and self.settled(chosen)):
            return None
        return exp(float(np.log(least) @ np.array(self.shapes.weights)))

    def with_best_addition(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Adds the micro-kernel that lowers the loss most; all candidates are compared in one pass.

        A scheme that lacks exactly one micro-kernel on a shape becomes available there with it.
        """
        absent = np.ones(len(self.kernels) + 1, bool)
        absent[list(chosen)] = False
        lacks = absent[self._needed]
        base = np.where(lacks.any(axis=2), UNCOVERED, self._losses).min(axis=0)
        brought = np.tile(base, (len(self.kernels) + 1, 1))
        largest = np.where(lacks, self._needed, -1).max(axis=2)
        least = np.where(lacks, self._needed, len(self.kernels) + 1).min(axis=2)
        plans, shapes = np.nonzero((largest == least) & (self._losses < base))
        np.minimum.at(brought, (largest[plans, shapes], shapes), self._losses[plans, shapes])
        losses = (brought @ np.array(self.shapes.weights))[:-1] + self._beyond_losses(chosen)
        losses[list(chosen)] = np.inf
        return (*chosen, int(losses.argmin()))

    def _beyond_losses(self, chosen: tuple[int, ...]) -> Values:
        """Returns the loss beyond the range after each addition: 0 if a scheme serves every shape there."""
        present = set(chosen)
        losses = np.full(len(self.kernels), UNCOVERED)
        for codes in self._needed_beyond:
            missing = set(codes) - present
            if not missing:
                return np.zeros(len(self.kernels))
            if len(missing) == 1:
                losses[missing.pop()] = 0.0
        return losses

    def family_starts(self, size: int) -> list[tuple[int, ...]]:
        """Returns each family's lowest ``size`` micro-kernels: even splits cover every shape with them."""
        families: dict[MicroKernel, list[int]] = {}
        for number, kernel in enumerate(self.kernels):
            families.setdefault(with_rows(kernel, kernel.granule), []).append(number)
        return [tuple(members[:size]) for members in families.values()]

    def exchanged(self, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """Exchanges one member for the best other as long as that lowers the loss."""
        least = self.loss(chosen)
        improved = True
        while improved:
            improved = False
            for member in chosen:
                candidate = self.with_best_addition(tuple(code for code in chosen if code != member))
                found = self.loss(candidate)
                if found < least - 1e-9:
                    chosen, least, improved = candidate, found, True
                    break
        return chosen

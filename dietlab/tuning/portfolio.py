"""Stage 4, first half: chooses the few micro-kernels that are compiled into the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity, counted, share_text
from dietlab.base.errors import DispatchError, require_type
from dietlab.base.statistics import Values
from dietlab.cost import Known
from dietlab.machine import Hardware
from dietlab.problem import Shape, ShapeSet, Workload, channelwise, gathered
from dietlab.scheme import COMPOSED, MicroKernel, Scheme, parameter_table, scheme_with, with_rows
from dietlab.tuning.candidates import candidate_plans
from dietlab.tuning.choice import Choice
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.measured import Reach, reach_of

if TYPE_CHECKING:
    import pandas as pd


BEYOND = 8
"""The ratio of the extent that represents all shapes beyond the range to the end of the range: at such an
extent the edge tile no longer matters."""


CONVOLUTION_KERNELS = 16
"""The largest number of micro-kernels of a convolution's library. On a Zen 4, 8 micro-kernels lose up to a
third at widths of 5 to 9 pixels by 512 channels, and 16 lose 3 % at most, in 71 KiB of code."""


@dataclass(frozen=True, repr=False)
class Portfolio(Carded):
    """A portfolio: micro-kernels, the plans made of these, and the plans' times on a grid of shapes.

    Args:
        workload: the operator.
        hardware: the processor that it was tuned on.
        micro_kernels: the micro-kernels to compile. Schemes that differ in loop order or edge share
            micro-kernels.
        schemes: the schemes that serve the shapes, made of these micro-kernels.
        shapes: the weighted shapes that the portfolio was chosen for.
        seconds: the seconds that the tuning run expects, ``[scheme][shape]``; infinite if a scheme needs a
            micro-kernel on the shape that is not in the portfolio.
        best_seconds: for each shape, the least expected time of any candidate, chosen or not.
        curve: the pairs ``(micro-kernels, mean slowdown)`` for each number of micro-kernels, up to the chosen
            one, that covers all shapes.
        safe_scheme: the scheme for shapes beyond the range: the fastest plan, as predicted, at :data:`BEYOND`
            times the end of the range.
        reach: the measured extents (:func:`~dietlab.tuning.measured.reach_of`); empty if unknown.
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
    reach: Reach = ()

    def __len__(self) -> int:
        return len(self.micro_kernels)

    @property
    def slowdowns(self) -> Values:
        """The time of each scheme over the least time of any candidate, ``[schemes, shapes]``, 1 or more."""
        table: Values = np.array(self.seconds) / np.array(self.best_seconds)
        return table

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row for each shape and each scheme that covers the shape.

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
        """The portfolio's card in a notebook: counts, and folded sections with micro-kernels, schemes and
        slowdown by size."""
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
    run: Known, shapes: ShapeSet | None = None, max_kernels: int = 8, max_slowdown: float = 1.0
) -> Portfolio:
    """Chooses the micro-kernels whose plans lose least time over all shapes, by weight.

    Adds micro-kernels greedily by the decrease of the weighted mean loss
    (:func:`~dietlab.tuning.losses.lost`); then exchanges single micro-kernels until no exchange helps. The
    exchanges start from this set, from a set built in pairs, and from the lowest ``max_kernels``
    micro-kernels of each of the best families.

    Args:
        run: the tuning run whose measured and predicted times decide.
        shapes: the shapes that will be called, with weights (default: the tuned shapes). Every shape of the
            range gets a share of the weight of the nearest given shape, so that no length is left out.
        max_kernels: the largest number of micro-kernels; each height of a composed plan counts as one.
        max_slowdown: the mean slowdown, a ratio, at which the choice stops early (1: never).

    Raises:
        DispatchError: if ``max_kernels`` is below 1, or ``run`` is no tuning run.
    """
    require_type("the first argument of choose_portfolio", run, Known, DispatchError, "tune() returns one.")
    if max_kernels < 1:
        raise DispatchError("a portfolio must have at least one micro-kernel", max_kernels)
    dense = length_grid(run.space.workload, shapes or run.shapes)
    plans = candidate_plans(run, dense.shapes)
    table = run.expected_seconds(plans, dense.shapes)
    choice = Choice(run.space.workload, plans, dense, table)
    chosen, curve = choice.best(max_kernels, max_slowdown)
    return _portfolio(run, choice, chosen, curve)


def _portfolio(
    run: Known, choice: Choice, chosen: tuple[int, ...], curve: Sequence[tuple[int, float]]
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
        reach_of(run),
    )


def usual_kernels(workload: Workload) -> int:
    """Returns the default of ``max_kernels``, the largest number of micro-kernels in a library: 8 if one
    dimension varies, 12 for layers of several sizes, whose weights fit different caches, and 16 for a
    convolution, of whose images each narrow width has the best tile of another height.

    Args:
        workload: the operator that the library is for.
    """
    if gathered(workload) or channelwise(workload):
        return CONVOLUTION_KERNELS
    return 8 if len(workload.dims) < 2 else 12


def variants(portfolio: Portfolio) -> tuple[Scheme, ...]:
    """Returns a portfolio's schemes, and the schemes of the same families with the portfolio's other heights
    and both edges."""
    schemes = {*portfolio.schemes, portfolio.safe_scheme}
    for scheme in tuple(schemes):
        if scheme.composed:
            family = scheme.family.kernel
            same = [k.rows for k in portfolio.micro_kernels if with_rows(k, k.granule) == family]
            schemes.update(scheme_with(scheme, rows=rows, edge=edge) for rows in same for edge in COMPOSED)
    return tuple(sorted(schemes))


def _safest(run: Known, plans: Sequence[Scheme]) -> Scheme:
    dims = run.space.workload.dims
    beyond = Shape.of(**{name: BEYOND * dim.high for name, dim in dims.items()})
    return plans[int(run.seconds_table(plans, [beyond])[:, 0].argmin())]

"""A portfolio to play with: what its micro-kernels make, without one of them, and trees made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import DispatchError
from dietlab.cost import Known
from dietlab.problem import Shape, at_layer, length_dim, shapes_of_layer
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Leaf, MicroKernel, Scheme, Split, Tree, needed, spans
from dietlab.tuning import Dispatcher, Portfolio
from dietlab.tuning.portfolio import BEYOND, variants
from dietlab.view.figures.dispatch_tree import dispatch_table
from dietlab.view.figures.one_layer import Layer

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.float64]
Needs = tuple[frozenset[MicroKernel], ...]

SHOWN = 5
"""The most shapes that a sentence names."""


@dataclass(frozen=True)
class Board:
    """A portfolio with every plan that its micro-kernels can lead.

    Args:
        plans: those of the portfolio and, where plans are composed, the other heights and edges of their
            families that the portfolio has micro-kernels for.
        seconds: ``[plans, shapes]``, as the run expects them, whether or not the portfolio has all
            micro-kernels that a plan needs.
        beyond: ``[plans]``, on a shape beyond the range.
        needs: ``[plan][shape]``: the micro-kernels of its tiles.
        needs_beyond: ``[plan]``: those for every shape beyond the range.
    """

    portfolio: Portfolio
    plans: tuple[Scheme, ...]
    seconds: Values
    beyond: Values
    needs: tuple[Needs, ...]
    needs_beyond: Needs

    @cached_property
    def best(self) -> Values:
        """The least time known of any plan, in seconds, ``[shapes]``."""
        least: Values = np.vstack([self.seconds, np.array(self.portfolio.best_seconds)]).min(axis=0)
        return least

    def table(self, dispatcher: Dispatcher) -> pd.DataFrame:
        """Returns :func:`dietlab.view.widgets.dispatch_explorer.frame_dispatch` without asking the
        model again.

        Raises:
            DispatchError: if it has a plan that is not on the board.
        """
        strangers = [plan.key for plan in dispatcher.schemes if plan not in self.plans]
        if strangers:
            raise DispatchError("every plan is on the board", ", ".join(strangers))
        rows = [self.plans.index(plan) for plan in dispatcher.schemes]
        return dispatch_table(dispatcher, self.portfolio.shapes, self.seconds[rows], self.best)

    def along(self, layer: Layer) -> Board:
        """Returns the board of one layer, where the length is the only dynamic dimension.

        Raises:
            WorkloadError: if the portfolio has no shape of this layer.
        """
        whole, length = self.portfolio, length_dim(self.portfolio.workload)
        shapes, wanted = shapes_of_layer(whole.shapes, layer, length), Shape.of(**layer)
        columns = [i for i, shape in enumerate(whole.shapes) if shape.without(length) == wanted]
        portfolio = replace(
            whole,
            workload=at_layer(whole.workload, layer),
            shapes=shapes,
            seconds=tuple(tuple(row[i] for i in columns) for row in whole.seconds),
            best_seconds=tuple(whole.best_seconds[i] for i in columns),
        )
        needs = tuple(tuple(row[i] for i in columns) for row in self.needs)
        return replace(self, portfolio=portfolio, seconds=self.seconds[:, columns], needs=needs)

    def without(self, dropped: MicroKernel) -> Portfolio:
        """Returns the portfolio without one micro-kernel, ready to train a tree on.

        Raises:
            DispatchError: if what is left covers some shape no more.
        """
        left = frozenset(self.portfolio.micro_kernels) - {dropped}
        covered = np.array([[need <= left for need in row] for row in self.needs])
        kept = np.flatnonzero(covered.any(axis=1))
        bare = [self.portfolio.shapes.shapes[i] for i in np.flatnonzero(~covered.any(axis=0))]
        if bare:
            more = len(bare) - SHOWN
            found = ", ".join(map(str, bare[:SHOWN])) + (f" and {more} more" if more > 0 else "")
            raise DispatchError(
                f"without {dropped} the portfolio still covers every shape",
                f"no plan for {found}",
                "Drop another one.",
            )
        seconds = np.where(covered, self.seconds, np.inf)[kept]
        return replace(
            self.portfolio,
            micro_kernels=tuple(sorted(left)),
            schemes=tuple(self.plans[i] for i in kept),
            seconds=tuple(map(tuple, seconds.tolist())),
            best_seconds=tuple(self.best.tolist()),
            curve=(),
            safe_scheme=self._safest(kept.tolist(), left),
        )

    def _safest(self, kept: Sequence[int], left: frozenset[MicroKernel]) -> Scheme:
        """Returns the fastest beyond the range of those that need nothing else there; of all, if all do."""
        settled = [i for i in kept if self.needs_beyond[i] <= left] or kept
        return self.plans[min(settled, key=lambda i: float(self.beyond[i]))]


def board_of(run: Known, portfolio: Portfolio) -> Board:
    """Returns the board of a portfolio that was chosen from a run; the model is asked for its few plans
    only."""
    plans = variants(portfolio)
    dims = portfolio.workload.dims
    beyond = Shape.of(**{name: BEYOND * dim.high for name, dim in dims.items()})
    rows = spans(portfolio.workload, portfolio.shapes)
    return Board(
        portfolio,
        plans,
        run.expected_seconds(plans, portfolio.shapes.shapes),
        run.seconds_table(plans, [beyond])[:, 0],
        tuple(tuple(frozenset(needed(plan, *span)) for span in rows) for plan in plans),
        tuple(frozenset(needed(plan, max(high for _, high in rows) + 1)) for plan in plans),
    )


def by_hand(portfolio: Portfolio, cuts: Sequence[int], plans: Sequence[Scheme]) -> Dispatcher:
    """Returns a tree made by hand: up to each cut (its extent included, in ascending order) one plan, then
    the last one; beyond the range the portfolio's safe plan.

    Args:
        plans: one more than ``cuts``.

    Raises:
        DispatchError: if their number is another.
    """
    name, dim = only_dim(portfolio.workload)
    if len(plans) != len(cuts) + 1:
        raise DispatchError(f"{len(cuts)} cuts make {len(cuts) + 1} intervals with a plan each", len(plans))
    used = tuple(sorted({*plans, portfolio.safe_scheme}))
    tree: Tree = Leaf(used.index(plans[-1]))
    for cut, plan in zip(sorted(cuts)[::-1], plans[-2::-1], strict=True):
        tree = Split(name, cut, Leaf(used.index(plan)), tree)
    safe = Leaf(used.index(portfolio.safe_scheme))
    return Dispatcher(portfolio.workload, portfolio.hardware, used, Split(name, dim.high, tree, safe))

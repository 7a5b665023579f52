"""Stage 4, second half: trains the decision tree that routes any shape to its plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.cards import Card, Carded, Fold, Listing, Quantity, counted
from dietlab.dispatch.portfolio import UNCOVERED, Portfolio, lost
from dietlab.errors import DispatchError, require_type
from dietlab.hardware import Hardware
from dietlab.plans import (
    Leaf,
    Plan,
    Split,
    Tree,
    depth,
    intervals,
    leaves,
    needed,
    plan_for,
    relabelled,
    route,
    tree_from_json,
    tree_to_json,
)
from dietlab.search import length_grid
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel, Scheme, parameter_table
from dietlab.workloads import Workload, axis_of, workload_from_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 3
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Dispatcher(Carded):
    """A dispatcher: schemes and the decision tree over them, all that :func:`dietlab.build` compiles.

    Args:
        schemes: by the number that leaves name.
        expected_slowdown: the weighted geometric mean over the training shapes of the chosen scheme's
            time over the best candidate's, measured or predicted.
    """

    workload: Workload
    hardware: Hardware
    schemes: tuple[Scheme, ...]
    tree: Tree
    expected_slowdown: float = 1.0

    def __post_init__(self) -> None:
        used = {leaf.scheme for leaf in leaves(self.tree)}
        if not self.schemes or not used <= set(range(len(self.schemes))):
            raise DispatchError("every leaf names a scheme", sorted(used))

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """The micro-kernels that are compiled: all that a scheme needs for the shapes that reach it."""
        cuts = intervals(self.tree)
        found = (needed(self.schemes[number], low, high) for number, low, high in cuts)
        return tuple(sorted({kernel for kernels in found for kernel in kernels}))

    def scheme(self, shape: Shape) -> Scheme:
        """Returns the scheme that covers ``shape``, inside the tuned range or beyond it."""
        return self.schemes[route(self.tree, shape)]

    def plan(self, shape: Shape) -> Plan[MicroKernel]:
        """Returns the plan that covers ``shape``."""
        return plan_for(self.scheme(shape), axis_of(self.workload, "rows").at(shape))

    def to_source(self) -> str:
        """Returns the rules as a Python function, for people to read."""
        names = ", ".join(self.workload.dims) or "T"
        lines = [f"def choose({names}):"]
        if self.workload.dims:
            ranges = ", ".join(f"{name} in {dim}" for name, dim in self.workload.dims.items())
            lines.append(f"    # tuned for {ranges}; beyond it a safe choice")
        return "\n".join([*lines, *self._rules(self.tree, 1)]) + "\n"

    def _rules(self, tree: Tree, level: int) -> list[str]:
        pad = "    " * level
        if isinstance(tree, Leaf):
            return [f'{pad}return "{self.schemes[tree.scheme].key}"']
        return [
            f"{pad}if {tree.dim} <= {tree.at_most}:",
            *self._rules(tree.low, level + 1),
            f"{pad}else:",
            *self._rules(tree.high, level + 1),
        ]

    def to_frame(self) -> pd.DataFrame:
        """Returns a table, one row a rule: the extents that it serves, ``low`` to ``high`` (both included;
        missing where there is no end), the number of its ``plan``, and its ``scheme`` with each parameter.
        """
        import pandas as pd

        rows = [
            {"low": low, "high": high, "plan": number, **self.schemes[number].columns}
            for number, low, high in intervals(self.tree)
        ]
        return pd.DataFrame(rows).astype({"high": "Int64"})

    @property
    def card(self) -> Card:
        facts = (
            counted(len(self.micro_kernels), "micro-kernel"),
            counted(len(self.schemes), "scheme"),
            counted(len(leaves(self.tree)), "rule"),
            Quantity(str(depth(self.tree)), "comparisons at most"),
            Quantity(f"{self.expected_slowdown:.3f}x", "mean slowdown"),
        )
        header = ("from", "to", "number", "scheme")
        sections = (
            Fold("Rules", lambda: Listing(header, intervals(self.tree), self._rule), unfolded=True),
            Fold("Schemes", lambda: parameter_table(self.schemes)),
            Fold("Micro-kernels", lambda: parameter_table(self.micro_kernels)),
        )
        return Card("Dispatcher", f"{self.workload} on {self.hardware.name}", facts, sections)

    def _rule(self, interval: tuple[int, int, int | None]) -> tuple[int, int | str, int, str]:
        number, low, high = interval
        return low, "no end" if high is None else high, number, self.schemes[number].key

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload.to_json(),
            "hardware": self.hardware.to_json(),
            "schemes": [scheme.key for scheme in self.schemes],
            "tree": tree_to_json(self.tree),
            "expected_slowdown": self.expected_slowdown,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dispatcher:
        if value.get("schema_version") != SCHEMA_VERSION:
            raise DispatchError(
                f"a dispatcher has schema {SCHEMA_VERSION}", value.get("schema_version"), "Train it again."
            )
        return cls(
            workload_from_json(value["workload"]),
            Hardware.from_json(value["hardware"]),
            tuple(Scheme.from_key(key) for key in value["schemes"]),
            tree_from_json(value["tree"]),
            float(value["expected_slowdown"]),
        )

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Dispatcher:
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise DispatchError("a dispatcher file is readable JSON", f"{path}: {error}") from None


def train_dispatcher(
    portfolio: Portfolio, shapes: ShapeSet | None = None, tolerance: float = 0.0003
) -> Dispatcher:
    """Trains the decision tree that loses least *time*: a wrong choice counts by its slowdown, not as an
    error.

    Over one dynamic dimension a tree cuts the range into intervals with a plan each; the best cut is
    found exactly, by dynamic programming over the training shapes, and becomes a balanced tree.

    Args:
        shapes: re-weights the training shapes (default: the portfolio's own weights).
        tolerance: a further rule must lower the weighted mean loss
            (:func:`~dietlab.dispatch.portfolio.lost`) by more than this.

    Plans that no rule uses are dropped from the library.

    Raises:
        DispatchError: if there is more than one dynamic dimension, or ``portfolio`` is of another class.
    """
    require_type(
        "the first argument of train_dispatcher",
        portfolio,
        Portfolio,
        DispatchError,
        "choose_portfolio() returns one.",
    )
    weights = _weights(portfolio, shapes)
    losses = lost(portfolio.slowdowns).T * weights[:, None]  # [shapes, plans]
    # Whatever its weight: a plan that lacks micro-kernels on a shape would add them to the library.
    losses[np.isinf(portfolio.slowdowns.T)] += UNCOVERED
    names = list(portfolio.workload.dims)
    if len(names) > 1:
        raise DispatchError("a dispatcher decides over one dynamic dimension", ", ".join(names))
    if not names:
        return _dispatcher(portfolio, Leaf(int(losses.sum(axis=0).argmin())), weights)
    cuts = best_cuts(losses, tolerance)
    extents = [shape[names[0]] for shape in portfolio.shapes]
    tree = _balanced(names[0], [(extents[last], plan) for last, plan in cuts])
    dim = portfolio.workload.dims[names[0]]
    safe = Leaf(len(portfolio.schemes))
    return _dispatcher(portfolio, Split(names[0], dim.high, tree, safe), weights)


def best_cuts(losses: Values, price: float) -> list[tuple[int, int]]:
    """Cuts a sequence into intervals so that losses plus ``price`` for each interval are least.

    Args:
        losses: ``[position, choice]``, the loss of a choice at a position.

    Returns:
        For each interval its last position and its choice.
    """
    count = len(losses)
    sums = np.vstack([np.zeros(losses.shape[1]), losses.cumsum(axis=0)])
    least = np.zeros(count + 1)
    begins = np.zeros(count + 1, int)
    for end in range(1, count + 1):
        totals = least[:end] + (sums[end] - sums[:end]).min(axis=1) + price
        begins[end] = int(totals.argmin())
        least[end] = totals[begins[end]]
    cuts: list[tuple[int, int]] = []
    end = count
    while end:
        begin = int(begins[end])
        cuts.append((end - 1, int((sums[end] - sums[begin]).argmin())))
        end = begin
    return cuts[::-1]


def _balanced(dim: str, cuts: list[tuple[int, int]]) -> Tree:
    """Builds a tree of least depth over intervals given by their last extent."""
    if len(cuts) == 1:
        return Leaf(cuts[0][1])
    middle = len(cuts) // 2
    return Split(dim, cuts[middle - 1][0], _balanced(dim, cuts[:middle]), _balanced(dim, cuts[middle:]))


def _weights(portfolio: Portfolio, shapes: ShapeSet | None) -> Values:
    chosen = portfolio.shapes if shapes is None else length_grid(portfolio.workload, shapes)
    known = dict(zip(chosen.shapes, chosen.weights, strict=True))
    weights = np.array([known.get(shape, 0.0) for shape in portfolio.shapes], np.float64)
    normalised: Values = weights / weights.sum()
    return normalised


def _dispatcher(portfolio: Portfolio, tree: Tree, weights: Values) -> Dispatcher:
    """Makes a dispatcher of the plans in use; leaf number ``len(portfolio.schemes)`` is the safe plan."""
    chosen = [route(tree, shape) for shape in portfolio.shapes]
    slowdowns = portfolio.slowdowns[chosen, np.arange(len(chosen))]
    plans = (*portfolio.schemes, portfolio.safe_scheme)
    used = sorted({plans[leaf.scheme] for leaf in leaves(tree)})
    numbers = {old: used.index(plan) for old, plan in enumerate(plans) if plan in used}
    return Dispatcher(
        portfolio.workload,
        portfolio.hardware,
        tuple(used),
        relabelled(tree, numbers),
        float(np.exp(weights @ np.log(slowdowns))),
    )

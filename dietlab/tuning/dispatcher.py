"""Stage 4, second half: trains the decision tree that routes any shape to its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.cards import Card, Carded, Fold, Listing, Quantity, counted
from dietlab.base.errors import DispatchError, require_type
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.statistics import Values
from dietlab.lower.contraction import Contraction, contraction_of
from dietlab.machine import Hardware
from dietlab.problem import (
    Shape,
    ShapeSet,
    Workload,
    axes_of,
    name_of_role,
    smallest_shape,
    split_extents,
    workload_from_json,
    workload_to_json,
)
from dietlab.scheme import (
    Box,
    Leaf,
    MicroKernel,
    Plan,
    Scheme,
    Split,
    Tree,
    boxes,
    depth,
    leaves,
    needed,
    parameter_table,
    plan_on,
    relabelled,
    route,
    split_dims,
    tree_from_json,
    tree_to_json,
)
from dietlab.scheme.target import misfits
from dietlab.tuning.kept_heights import with_kept_heights
from dietlab.tuning.length_grid import length_grid
from dietlab.tuning.losses import UNCOVERED, lost
from dietlab.tuning.measured import Reach, beyond_measured
from dietlab.tuning.portfolio import Portfolio
from dietlab.tuning.tree_growth import balanced, best_cuts, grown

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 3


@dataclass(frozen=True, repr=False)
class Dispatcher(Carded):
    """A dispatcher has schemes and the decision tree that chooses among them: all that :func:`dietlab.build`
    compiles.

    Args:
        workload: the operator.
        hardware: the processor that it was tuned on.
        schemes: the schemes that the tree chooses among.
        tree: the decision tree, whose leaves name schemes by their index.
        expected_slowdown: the time of the chosen scheme over the time of the best candidate, both measured or
            predicted, as a weighted geometric mean over the training shapes.
        reach: the measured extents (:func:`~dietlab.tuning.measured.reach_of`); empty if unknown.
    """

    workload: Workload
    hardware: Hardware
    schemes: tuple[Scheme, ...]
    tree: Tree
    expected_slowdown: float = 1.0
    reach: Reach = ()

    def __post_init__(self) -> None:
        used = {leaf.scheme for leaf in leaves(self.tree)}
        if not self.schemes or not used <= set(range(len(self.schemes))):
            raise DispatchError("every leaf must name a scheme", sorted(used))
        extents = split_extents(self.workload, smallest_shape(self.workload))
        if unknown := sorted({*split_dims(self.tree)} - {*extents}):
            known = ", ".join(extents) or "none"
            invariant = f"every split must be of an extent of {self.workload} that varies: {known}"
            raise DispatchError(invariant, ", ".join(unknown))

    @property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """The micro-kernels to compile: all that some scheme needs for the shapes that the tree assigns to
        it."""
        rows = name_of_role(self.workload, "rows")
        reached = boxes(self.tree, {rows: (1, None)})
        contraction = Contraction(**contraction_of(self.workload))
        ranges = (
            (self.schemes[number], contraction.range_of_rows(box, lines=self.schemes[number].kernel.lines))
            for number, box in reached
        )
        found = (needed(scheme, low, high) for scheme, (low, high) in ranges if high is None or low <= high)
        return tuple(sorted({kernel for kernels in found for kernel in kernels}))

    @property
    def caution(self) -> str:
        """A warning if the range reaches far beyond the measurements; else an empty text."""
        return beyond_measured(self.workload.dims, self.reach)

    def scheme(self, shape: Shape) -> Scheme:
        """Returns the scheme that covers ``shape``, inside the tuned range or beyond it."""
        return self.schemes[route(self.tree, split_extents(self.workload, shape))]

    def plan(self, shape: Shape) -> Plan[MicroKernel]:
        """Returns the plan that covers ``shape``."""
        return plan_on(self.scheme(shape), self.workload, shape)

    def to_source(self) -> str:
        """Returns the rules as a Python function, for people to read."""
        names = ", ".join(self.workload.dims) or "T"
        lines = [f"def choose({names}):"]
        if self.workload.dims:
            ranges = ", ".join(f"{name} in {dim}" for name, dim in self.workload.dims.items())
            lines.append(f"    # tuned for {ranges}; beyond it a safe choice")
        if self.caution:
            lines.append(f"    # {self.caution}")
        rows = name_of_role(self.workload, "rows")
        if rows in set(split_dims(self.tree)) - {*self.workload.dims}:
            lines.append(f"    {rows} = " + " * ".join(map(str, axes_of(self.workload, "rows"))))
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
        """Returns a table with a row for each rule. Columns: the extents that the rule serves, from ``low``
        to ``high`` (both included; missing if there is no end; for several dimensions ``low_T``, ``high_T``
        and so on), the index of its scheme (``plan``), and the ``scheme`` with each of its parameters.
        """
        import pandas as pd

        rows = [
            {**self._ends(box), "plan": number, **self.schemes[number].columns} for number, box in self._boxes
        ]
        frame = pd.DataFrame(rows)
        return frame.astype({name: "Int64" for name in frame if name.startswith("high")})

    @property
    def _boxes(self) -> list[tuple[int, Box]]:
        """For each rule, the index of its scheme and the extents of every dynamic dimension."""
        names = dict.fromkeys((*self.workload.dims, *split_dims(self.tree)))
        return boxes(self.tree, dict.fromkeys(names, (1, None)))

    def _ends(self, box: Box) -> dict[str, int | None]:
        several = len(box) > 1
        return {
            f"{end}_{name}" if several else end: value
            for name, ends in box.items()
            for end, value in zip(("low", "high"), ends, strict=True)
        }

    @property
    def card(self) -> Card:
        """The dispatcher's card in a notebook: counts, and folded sections with rules, schemes and
        micro-kernels."""
        facts = (
            counted(len(self.micro_kernels), "micro-kernel"),
            counted(len(self.schemes), "scheme"),
            counted(len(leaves(self.tree)), "rule"),
            Quantity(str(depth(self.tree)), "comparisons at most"),
            Quantity(f"{self.expected_slowdown:.3f}x", "mean slowdown"),
        )
        header = (*self._ends(self._boxes[0][1]), "number", "scheme")
        sections = (
            Fold("Rules", lambda: Listing(header, self._boxes, self._rule), unfolded=True),
            Fold("Schemes", lambda: parameter_table(self.schemes)),
            Fold("Micro-kernels", lambda: parameter_table(self.micro_kernels)),
        )
        return Card("Dispatcher", f"{self.workload} on {self.hardware.name}", facts, sections)

    def _rule(self, rule: tuple[int, Box]) -> tuple[int | str, ...]:
        number, box = rule
        ends = ("no end" if end is None else end for end in self._ends(box).values())
        return *ends, number, self.schemes[number].key

    def to_json(self) -> dict[str, Any]:
        """Returns the dispatcher as a JSON value: schemes by key, and the tree."""
        value = {
            "schema_version": SCHEMA_VERSION,
            "workload": workload_to_json(self.workload),
            "hardware": self.hardware.to_json(),
            "schemes": [scheme.key for scheme in self.schemes],
            "tree": tree_to_json(self.tree),
            "expected_slowdown": self.expected_slowdown,
        }
        return {**value, "reach": {name: ends for name, *ends in self.reach}} if self.reach else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dispatcher:
        """Returns the dispatcher of a JSON value made by :meth:`to_json`.

        Raises:
            DispatchError: if the value has another schema, or lacks a field.
        """
        if (found := value.get("schema_version")) != SCHEMA_VERSION:
            raise DispatchError(f"a dispatcher must have schema {SCHEMA_VERSION}", repr(found))
        with reading(DispatchError, "a dispatcher must have all its fields", "its JSON"):
            return cls(
                workload_from_json(value["workload"]),
                Hardware.from_json(value["hardware"]),
                tuple(Scheme.from_key(key) for key in value["schemes"]),
                tree_from_json(value["tree"]),
                float(value["expected_slowdown"]),
                tuple(
                    (str(name), int(low), int(high)) for name, (low, high) in value.get("reach", {}).items()
                ),
            )

    def save(self, path: str | Path) -> None:
        """Writes JSON; reading it back runs no code."""
        write_json(Path(path), self.to_json(), error=DispatchError)

    @classmethod
    def load(cls, path: str | Path) -> Dispatcher:
        """Reads a file that :meth:`save` wrote.

        Raises:
            DispatchError: if the file is unreadable or has another schema, or its processor cannot run one of
                its schemes.
        """
        invariant = "a dispatcher file must be readable JSON with all its fields"
        with reading(DispatchError, invariant, path, "`dietlab dispatch STUDY` trains it again."):
            found = cls.from_json(read_json(path))
            for wrong in filter(None, map(misfits(found.workload, found.hardware), found.schemes)):
                raise DispatchError(f"a dispatcher must have {wrong[0]}", wrong[1])
        return found


def train_dispatcher(
    portfolio: Portfolio, shapes: ShapeSet | None = None, tolerance: float = 0.0003
) -> Dispatcher:
    """Trains the decision tree that loses least *time*: a wrong choice counts by its slowdown, not as an
    error.

    Over one dynamic dimension, a tree cuts the range into intervals and gives each interval a scheme. Dynamic
    programming over the training shapes finds the best cuts exactly; they become a balanced tree. Over
    several dimensions, the tree is grown split by split (:func:`grown`); the number of rows of a convolution
    can be split like a dimension. Beyond the range of any dimension the safe scheme serves. No leaf needs a
    micro-kernel that the portfolio lacks, except for tiles on lines of a static width
    (:func:`~dietlab.tuning.kept_heights.with_kept_heights`).

    Args:
        portfolio: the portfolio that :func:`~dietlab.choose_portfolio` returned.
        shapes: the shapes with new weights for training (default: the portfolio's own weights).
        tolerance: the decrease of the weighted mean loss (:func:`~dietlab.tuning.losses.lost`) that a further
            rule must exceed. Plans without a rule are dropped.

    Raises:
        DispatchError: if ``portfolio`` is of another class.
    """
    require_type(
        "the first argument of train_dispatcher",
        portfolio,
        Portfolio,
        DispatchError,
        "choose_portfolio() returns one.",
    )
    weights = _weights(portfolio, shapes)
    losses = lost(portfolio.slowdowns).T * weights[:, None]  # [shapes, schemes]
    # Whatever its weight: a scheme that lacks micro-kernels on a shape would add them to the library.
    losses[np.isinf(portfolio.slowdowns.T)] += UNCOVERED
    dims = portfolio.workload.dims
    each = [split_extents(portfolio.workload, shape) for shape in portfolio.shapes]
    extents = {name: np.array([found[name] for found in each]) for name in each[0]}
    if len(dims) == 1:
        name, column = next(iter(extents.items()))
        tree = balanced(name, [(int(column[last]), scheme) for last, scheme in best_cuts(losses, tolerance)])
    else:
        tree = grown(losses, extents, tolerance)
    safe = Leaf(len(portfolio.schemes))
    for name, dim in dims.items():
        tree = Split(name, dim.high, tree, safe)
    tree = with_kept_heights(tree, portfolio, losses, tolerance)
    return _dispatcher(portfolio, tree, weights)


def _weights(portfolio: Portfolio, shapes: ShapeSet | None) -> Values:
    chosen = portfolio.shapes if shapes is None else length_grid(portfolio.workload, shapes)
    known = dict(zip(chosen.shapes, chosen.weights, strict=True))
    weights = np.array([known.get(shape, 0.0) for shape in portfolio.shapes], np.float64)
    normalised: Values = weights / weights.sum()
    return normalised


def _dispatcher(portfolio: Portfolio, tree: Tree, weights: Values) -> Dispatcher:
    """Makes a dispatcher of the plans in use. A leaf with the index ``len(portfolio.schemes)`` means the safe
    plan."""
    chosen = [route(tree, split_extents(portfolio.workload, shape)) for shape in portfolio.shapes]
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
        portfolio.reach,
    )

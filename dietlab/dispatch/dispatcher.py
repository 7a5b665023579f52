"""Stage 4, second half: the decision tree that routes any shape to its micro-kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.dispatch.portfolio import Portfolio, dense_shapes
from dietlab.errors import DispatchError
from dietlab.hardware import Hardware
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Leaf, MicroKernel, Split, Tree, depth, leaves, route
from dietlab.space.decision import relabelled, tree_from_json, tree_to_json
from dietlab.workloads import Workload, workload_from_json

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Dispatcher:
    """A portfolio and the tree over it: everything that :func:`dietlab.build` compiles.

    ``expected_slowdown`` is the weighted geometric mean over the training shapes of the chosen
    micro-kernel's time over the best candidate's, as far as measurements and the model tell.
    """

    workload: Workload
    hardware: Hardware
    micro_kernels: tuple[MicroKernel, ...]
    tree: Tree
    expected_slowdown: float = 1.0

    def __post_init__(self) -> None:
        used = {leaf.kernel for leaf in leaves(self.tree)}
        if not self.micro_kernels or not used <= set(range(len(self.micro_kernels))):
            raise DispatchError("every leaf names a micro-kernel of the portfolio", sorted(used))

    def kernel(self, shape: Shape) -> MicroKernel:
        """The micro-kernel that serves ``shape``, inside the tuned range or beyond it."""
        return self.micro_kernels[route(self.tree, shape)]

    def to_source(self) -> str:
        """The rules, for people; it is also valid Python."""
        names = ", ".join(self.workload.dims) or "T"
        lines = [f"def choose({names}):"]
        if self.workload.dims:
            ranges = ", ".join(f"{name} in {dim}" for name, dim in self.workload.dims.items())
            lines.append(f"    # tuned for {ranges}; beyond it a safe choice")
        return "\n".join([*lines, *self._rules(self.tree, 1)]) + "\n"

    def _rules(self, tree: Tree, level: int) -> list[str]:
        pad = "    " * level
        if isinstance(tree, Leaf):
            return [f'{pad}return "{self.micro_kernels[tree.kernel].key}"']
        return [
            f"{pad}if {tree.dim} <= {tree.at_most}:", *self._rules(tree.low, level + 1),
            f"{pad}else:", *self._rules(tree.high, level + 1),
        ]  # fmt: skip

    def __str__(self) -> str:
        return (
            f"Dispatcher({len(self.micro_kernels)} micro-kernels, {len(leaves(self.tree))} rules, "
            f"depth {depth(self.tree)}, expected slowdown {self.expected_slowdown:.3f})"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION, "workload": self.workload.to_json(),
            "hardware": self.hardware.to_json(),
            "micro_kernels": [kernel.key for kernel in self.micro_kernels],
            "tree": tree_to_json(self.tree), "expected_slowdown": self.expected_slowdown,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dispatcher:
        if value.get("schema_version") != SCHEMA_VERSION:
            raise DispatchError(f"a dispatcher has schema {SCHEMA_VERSION}", value.get("schema_version"))
        return cls(
            workload_from_json(value["workload"]), Hardware.from_json(value["hardware"]),
            tuple(MicroKernel.from_key(key) for key in value["micro_kernels"]),
            tree_from_json(value["tree"]), float(value["expected_slowdown"]),
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Dispatcher:
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise DispatchError("a dispatcher file is readable JSON", f"{path}: {error}") from None


def train_dispatcher(
    portfolio: Portfolio, shapes: ShapeSet | None = None, tolerance: float = 0.002, max_rules: int = 96
) -> Dispatcher:
    """Fits a tree on *time lost*: what counts is how slow a wrong choice is, not how often it is wrong.

    scikit-learn grows a regression tree of the logarithm of every micro-kernel's slowdown; each leaf
    takes the micro-kernel that loses least there; then rules that save next to nothing are pruned.

    Args:
        shapes: re-weights the training shapes (default: the portfolio's own weights).
        tolerance: a rule must lower the weighted mean of log slowdown by more than this share of it,
            relative to the weight of its shapes.

    Micro-kernels that no rule uses are dropped from the library.
    """
    from sklearn.tree import DecisionTreeRegressor

    weights = _weights(portfolio, shapes)
    names = list(portfolio.workload.dims)
    extents = np.array([[shape[name] for name in names] for shape in portfolio.shapes], float)
    losses = np.log(portfolio.slowdowns).T  # [shapes, micro-kernels]
    if not names or len(portfolio) == 1:
        best = int((weights @ losses).argmin())
        return _dispatcher(portfolio, Leaf(best), losses, weights)
    grown = DecisionTreeRegressor(max_leaf_nodes=max(2, max_rules), random_state=0)
    grown.fit(extents, losses, sample_weight=weights)
    everything = np.arange(len(extents))
    tree = _pruned(_Grown(grown.tree_, names, extents), 0, everything, losses, weights, tolerance)[0]
    return _dispatcher(portfolio, _guarded(tree, portfolio), losses, weights)


def _guarded(tree: Tree, portfolio: Portfolio) -> Tree:
    """Beyond the range of each dimension the safe plan; the rules were trained for the range only."""
    safe = Leaf(portfolio.micro_kernels.index(portfolio.safe_kernel))
    for name, dim in portfolio.workload.dims.items():
        tree = Split(name, dim.high, tree, safe)
    return tree


def _weights(portfolio: Portfolio, shapes: ShapeSet | None) -> npt.NDArray[np.float64]:
    chosen = portfolio.shapes if shapes is None else dense_shapes(portfolio.workload, shapes)
    known = dict(zip(chosen.shapes, chosen.weights, strict=True))
    weights = np.array([known.get(shape, 0.0) for shape in portfolio.shapes], np.float64)
    normalised: npt.NDArray[np.float64] = weights / weights.sum()
    return normalised


@dataclass(frozen=True)
class _Grown:
    """A fitted scikit-learn tree with what is needed to read it."""

    nodes: Any
    names: list[str]
    extents: npt.NDArray[np.float64]


def _pruned(
    grown: _Grown,
    node: int,
    members: npt.NDArray[np.intp],
    losses: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    tolerance: float,
) -> tuple[Tree, float]:
    """The subtree of ``node`` and its weighted loss; a leaf where a split saves too little."""
    totals = weights[members] @ losses[members]
    best = int(totals.argmin())
    leaf, leaf_loss = Leaf(best), float(totals[best])
    left, right = int(grown.nodes.children_left[node]), int(grown.nodes.children_right[node])
    if left < 0 or len(members) < 2:
        return leaf, leaf_loss
    column = int(grown.nodes.feature[node])
    at_most = int(np.floor(grown.nodes.threshold[node]))
    low = grown.extents[members, column] <= at_most
    below, low_loss = _pruned(grown, left, members[low], losses, weights, tolerance)
    above, high_loss = _pruned(grown, right, members[~low], losses, weights, tolerance)
    saved = leaf_loss - low_loss - high_loss
    if below == above or saved <= tolerance * float(weights[members].sum()):
        return leaf, leaf_loss
    return Split(grown.names[column], at_most, below, above), low_loss + high_loss


def _dispatcher(
    portfolio: Portfolio, tree: Tree, losses: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> Dispatcher:
    chosen = [route(tree, shape) for shape in portfolio.shapes]
    lost = float(weights @ losses[np.arange(len(chosen)), chosen])
    used = sorted({leaf.kernel for leaf in leaves(tree)})
    numbers = {old: new for new, old in enumerate(used)}
    return Dispatcher(
        portfolio.workload, portfolio.hardware, tuple(portfolio.micro_kernels[i] for i in used),
        relabelled(tree, numbers), float(np.exp(lost)),
    )  # fmt: skip

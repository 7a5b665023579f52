"""A cost model: a learned throughput of micro-kernels, and an analytic adaptation cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import ModelError
from dietlab.base.files import read_json, reading, write_json
from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.bundle import Adaptation, Formulas
from dietlab.cost.formulas import Parts
from dietlab.cost.measured import successful
from dietlab.cost.metrics import mean_metrics, ranking_metrics
from dietlab.cost.trees import AGAIN, Booster, ask_trees, fit_trees, trees_from_json, trees_to_json
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record
from dietlab.measure.record import by_shape
from dietlab.problem import Shape, Workload, workload_from_json, workload_to_json
from dietlab.scheme import Scheme, scheme_with

SCHEMA_VERSION = 3

TREES = {"max_depth": 5, "eta": 0.12, "min_child_weight": 1, "subsample": 0.9, "lambda": 0.5}
"""XGBoost's parameters: shallow trees, since a few hundred records are the usual size of a study."""

ROUNDS = 120
"""The number of boosting rounds."""

TELLING = 0.5
"""The least share of computing, relative to the scheme's best shape, of a measurement that counts for a
scheme's throughput. It is also the largest share of waiting for memory."""


class Predicts(Protocol):
    """Anything that predicts times, such as a cost model."""

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> npt.NDArray[np.float64]:
        """Returns the predicted seconds of a call of each scheme on each shape, ``[schemes, shapes]``."""


@dataclass(frozen=True)
class CostModel:
    """Predicts the seconds of any scheme on any shape; fitted by :func:`fit_cost_model`.

    ``f_mk`` is a gradient-boosted regression of the logarithm of a scheme's throughput per core on its
    features. The adaptation is divided out of a measurement, so that one measurement on one shape counts for
    every shape (paper, equation 2).

    Args:
        cost: the adaptation cost.
        booster: the trees of XGBoost.
        samples: the number of schemes that the model was fitted on.
    """

    cost: AdaptationCost
    booster: Booster = field(repr=False)
    samples: int = 0

    def throughput(self, schemes: Sequence[Scheme]) -> npt.NDArray[np.float64]:
        """Returns the predicted flop/s of one core for each scheme, ``[schemes]``."""
        return np.exp(ask_trees(self.booster, features(self.cost.formulas, schemes)))

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> npt.NDArray[np.float64]:
        """Returns the predicted seconds of a call, ``[schemes, shapes]``."""
        known = self._known.setdefault(tuple(shapes), {})
        new = [scheme for scheme in dict.fromkeys(schemes) if scheme not in known]
        speed = self.speeds(new).__getitem__
        known.update(zip(new, self.cost.table(new, shapes, speed), strict=True))
        rows = [known[scheme] for scheme in schemes]
        return np.array(rows, np.float64).reshape(len(schemes), len(shapes))

    @cached_property
    def _known(self) -> dict[tuple[Shape, ...], dict[Scheme, npt.NDArray[np.float64]]]:
        """The cache of predictions, since a portfolio is chosen several times from the same schemes."""
        return {}

    @cached_property
    def in_cache(self) -> CostModel:
        """The model for calls whose operands are in cache."""
        return replace(self, cost=self.cost.with_cache("hot"))

    def seconds_of(self, pairs: Sequence[tuple[Scheme, Shape]]) -> npt.NDArray[np.float64]:
        """Returns the predicted seconds of single pairs, ``[pairs]``."""
        schemes, shapes = [scheme for scheme, _ in pairs], [shape for _, shape in pairs]
        return self.cost.seconds_of(schemes, shapes, self.speeds(schemes).__getitem__)

    def parts(self, scheme: Scheme, shape: Shape) -> Parts:
        """Returns the parts of one plan's predicted time."""
        return self.cost.parts(scheme, shape, self.speeds([scheme]).__getitem__)

    def speeds(self, schemes: Sequence[Scheme]) -> dict[Scheme, float]:
        """Returns the throughput of the schemes, and of the lower tiles in their plans."""
        known = self._speeds
        needed = dict.fromkeys(lower for scheme in dict.fromkeys(schemes) for lower in scheme.heights)
        new = [scheme for scheme in needed if scheme not in known]
        known.update(zip(new, self.throughput(new).tolist() if new else (), strict=True))
        return {scheme: known[scheme] for scheme in needed}

    @cached_property
    def _speeds(self) -> dict[Scheme, float]:
        """The cache of throughputs."""
        return {}

    def importances(self) -> dict[str, float]:
        """Returns, for each feature, the share of the loss that splits on this feature removed, the largest
        share first."""
        gains = self.booster.get_score(importance_type="total_gain")
        total = sum(gains.values()) or 1.0
        names = self.cost.formulas.FEATURES
        named = {names[int(name[1:])]: gain / total for name, gain in gains.items()}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, Any]:
        """Returns the model as a JSON value: its features by name, the cost and the trees."""
        return {
            "schema_version": SCHEMA_VERSION,
            "features": list(self.cost.formulas.FEATURES),
            "samples": self.samples,
            **self.cost.formulas.constants,
            "adaptation": self.cost.kind,
            "cache": self.cost.cache,
            "workload": workload_to_json(self.cost.workload),
            "hardware": self.cost.hardware.to_json(),
            "booster": trees_to_json(self.booster),
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON; reading it back runs no code."""
        write_json(Path(path), self.to_json(), None, ModelError)

    @classmethod
    def load(cls, path: str | Path) -> CostModel:
        """Reads a file that :meth:`save` wrote.

        Raises:
            ModelError: if the file is unreadable or damaged, its features differ from the features of this
                version, or a later version of XGBoost wrote its trees.
        """
        with reading(ModelError, "a model file must be readable JSON", path, AGAIN):
            value = read_json(path)
        unfit = ModelError("a model must have the features of the installed version of dietlab", path, AGAIN)
        if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION:
            raise unfit
        with reading(ModelError, "a model must have all its fields", path, AGAIN):
            workload, hardware = workload_from_json(value["workload"]), Hardware.from_json(value["hardware"])
            formulas = adaptation_cost(workload, hardware, value["adaptation"], value["cache"]).formulas
            if value.get("features") != list(formulas.FEATURES):
                raise unfit
            cost = AdaptationCost(formulas.with_constants(value))
            return cls(cost, trees_from_json(value["booster"]), value["samples"])


def fit_cost_model(
    workload: Workload,
    hardware: Hardware,
    records: Iterable[Record],
    adaptation: Adaptation = "streamed",
    seed: int = 0,
    cache: CacheState = "hot",
) -> CostModel:
    """Fits ``f_mk`` on the successful records, and then the constants of the adaptation, such as the share of
    the weights' fetch that computing hides on a CPU.

    A scheme's throughput is the largest one on the shapes where the scheme mostly computes: on other shapes,
    something else bounded the time. Throughputs above the processor's peak count as the peak: for very short
    calls, the adaptation cost is too rough to be divided out.

    Args:
        workload: the operator that was measured.
        hardware: the processor that it was measured on.
        records: measurements; failures are ignored.
        adaptation: ``"streamed"`` or ``"paper"``; see :func:`~dietlab.cost.adaptation_cost`.
        seed: the seed of the boosting; equal seeds fit equal trees.
        cache: the cache state in which measured calls found their operands.

    Raises:
        ModelError: if no record is successful.
    """
    measured = successful(records)
    formulas = adaptation_cost(workload, hardware, adaptation, cache).formulas.fitted(measured)
    cost = AdaptationCost(formulas)
    labels: dict[Scheme, list[tuple[float, float]]] = {}
    computing = [record for record in measured if not _waits(cost, record)] or measured
    schemes, shapes = [record.scheme for record in computing], [record.shape for record in computing]
    found = cost.throughputs(schemes, shapes, [record.seconds or 0.0 for record in computing])
    shares = cost.working_shares(schemes, shapes)
    for scheme, share, label in zip(schemes, shares.tolist(), found.tolist(), strict=True):
        # Both compositions have the same tiles.
        same = scheme_with(scheme, edge="even") if scheme.composed else scheme
        labels.setdefault(same, []).append((share, label))
    own = hardware.peak_for(workload.dtype)
    peak = 1e9 * own if own else np.inf
    speeds = np.log([min(_best_label(values), peak) for values in labels.values()])
    trees = fit_trees(features(formulas, list(labels)), speeds, ROUNDS, TREES, seed)
    model = CostModel(cost, trees, len(labels))
    speeds_of_all = model.speeds([record.scheme for record in measured])
    return replace(model, cost=AdaptationCost(formulas.fitted(measured, speeds_of_all.__getitem__)))


def features(formulas: Formulas, schemes: Sequence[Scheme]) -> npt.NDArray[np.float64]:
    """Returns the features of schemes, ``[schemes, features]``."""
    return np.array(formulas.features(schemes), np.float64).reshape(len(schemes), len(formulas.FEATURES))


def _waits(cost: AdaptationCost, record: Record) -> bool:
    """Returns whether a measurement mostly waited for memory, and so says little about the scheme."""
    memory = cost.hardware.dram_gbps
    if cost.cache != "rotating" or not memory or not record.seconds:
        return False
    return cost.workload.bytes(record.shape) / (1e9 * memory) > TELLING * record.seconds


def _best_label(labels: Sequence[tuple[float, float]]) -> float:
    """Returns the largest label among pairs ``(share of computing, label)`` whose share is at least
    :data:`TELLING` of the largest share."""
    least = TELLING * max(share for share, _ in labels)
    return max(label for share, label in labels if share >= least)


def evaluate_model(model: Predicts, records: Iterable[Record]) -> dict[str, float]:
    """Returns ranking metrics on records, averaged over the shapes with at least two records
    (:func:`dietlab.cost.metrics.mean_metrics`). The noise of each time is its record's spread.

    Args:
        model: any object that predicts seconds.
        records: the measurements that predictions are compared with; failures are ignored.
    """
    groups = by_shape(record for record in records if record.ok)
    schemes = list(dict.fromkeys(record.scheme for group in groups.values() for record in group))
    row = {scheme: number for number, scheme in enumerate(schemes)}
    # One table costs a predictor less than a column for each shape.
    table = model.seconds(schemes, list(groups)) if schemes else np.empty((0, 0))
    rows = []
    for column, group in enumerate(groups.values()):
        if len(group) > 1:
            predicted = table[[row[r.scheme] for r in group], column]
            measured, noise = [r.seconds or 0.0 for r in group], [r.spread for r in group]
            rows.append(ranking_metrics(predicted, measured, noise))
    return mean_metrics(rows)

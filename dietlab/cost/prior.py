"""Transfer: predictions for a new tuning from records of other shapes, layers, operators or processors.

Boosted trees are fitted to the ratios of the recorded times to the adaptation cost at the processor's peak,
with features that relate sizes to the processor's caches (:mod:`dietlab.cost.loop_features`). A new tuning
corrects the trees: its Gaussian process predicts their errors
(:class:`~dietlab.cost.calibration.Calibration`), and the trees get the weight, possibly 0, under which its
own measurements are most likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.statistics import Values
from dietlab.cost.adaptation import AdaptationCost, adaptation_cost
from dietlab.cost.loop_features import pair_features, table_features
from dietlab.cost.measured import Measured
from dietlab.cost.trees import SHARED, Booster, ask_trees, fit_trees, trees_from_json, trees_to_json
from dietlab.machine import Hardware
from dietlab.measure import RecordFile
from dietlab.problem import Shape, Workload, workload_from_json, workload_to_json
from dietlab.scheme import Scheme

SCHEMA_VERSION = 1

MOST = 3000
"""The most pairs of each source to fit on: with more pairs, a fit takes longer, and the trees learn little
more."""

TREES, ROUNDS = {**SHARED, "colsample_bynode": 0.4, "min_child_weight": 3}, 250
"""XGBoost's parameters, and the number of boosting rounds, for thousands of pairs of several sources."""

WITHOUT = "Fit it again from its records (Prior.fit), or remove a study's: it then goes on without one."
"""The remedy for a damaged prior. The records that it was fitted on are not in the study."""

FOREIGN_POINTS = 12
"""The fewest measurements on this processor with which a prior of other processors is used: fewer cannot
determine the weight of the prior."""


@dataclass(frozen=True)
class Source:
    """A source of records that a prior was fitted on, with its operator, processor, cache state and number of
    pairs."""

    workload: Workload
    hardware: Hardware
    cache: str
    pairs: int

    def __str__(self) -> str:
        return f"{self.pairs} pairs of {self.workload} on {self.hardware.name} ({self.hardware.cores} cores)"

    def to_json(self) -> dict[str, Any]:
        named = {"workload": workload_to_json(self.workload), "hardware": self.hardware.to_json()}
        return {**named, "cache": self.cache, "pairs": self.pairs}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Source:
        workload, hardware = workload_from_json(value["workload"]), Hardware.from_json(value["hardware"])
        return cls(workload, hardware, value["cache"], value["pairs"])


@dataclass(frozen=True)
class Prior:
    """A model of records from several sources, made by :meth:`fit`; ``tune(prior=...)`` takes it.

    Args:
        sources: the sources of the records, one for each file or study.
        missed: the root mean square error of the logarithm of a time, on measurements left out of a fit.
        booster: the trees of XGBoost.
    """

    sources: tuple[Source, ...]
    missed: float
    booster: Booster = field(repr=False, compare=False)

    @classmethod
    def fit(cls, files: Sequence[RecordFile], seed: int = 0) -> Prior:
        """Fits the trees on the records of one file or more. The level of times may differ between files.

        Raises:
            ModelError: if there is no file, if a file has no successful record, or if both CPUs and GPUs were
                measured.
        """
        if not files:
            raise ModelError("fitting a prior needs records", "none", "Name a study or a file of records.")
        kinds = sorted({file.hardware.kind for file in files})
        if len(kinds) > 1:
            raise ModelError("a prior needs one kind of processor", " and ".join(kinds), "Fit one for each.")
        random = np.random.default_rng(seed)
        features, values, sources = [], [], []
        for file in files:
            measured = Measured.of(file.workload, file.records)
            kept = np.sort(random.permutation(len(measured.shapes))[:MOST]).tolist()
            source = Source(file.workload, file.hardware, file.header.get("cache", "hot"), len(kept))
            cost = adaptation_cost(file.workload, file.hardware, "streamed", source.cache)  # type: ignore[arg-type]
            measured = measured.at(kept)
            over = np.log(measured.seconds / cost.bound_of(measured.schemes, measured.shapes))
            values.append(over - np.median(over))
            features.append(pair_features("loops", cost.formulas, measured.schemes, measured.shapes))
            sources.append(source)
        table, labels = np.concatenate(features), np.concatenate(values)
        unseen = random.permutation(len(labels)) < len(labels) // 5
        missed = np.ones(1)
        if unseen.any():
            judge = fit_trees(table[~unseen], labels[~unseen], ROUNDS, TREES, seed)
            missed = ask_trees(judge, table[unseen]) - labels[unseen]
        trees = fit_trees(table, labels, ROUNDS, TREES, seed)
        return cls(tuple(sources), float(np.sqrt(np.mean(missed**2))), trees)

    def values(self, cost: AdaptationCost, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns the predicted logarithms of times over the adaptation cost at the peak, ``[schemes,
        shapes]``. The median of these logarithms in the source is subtracted."""
        size = len(schemes), len(shapes)
        if not all(size):
            return np.zeros(size)
        features = table_features("loops", cost.formulas, schemes, shapes)
        return ask_trees(self.booster, features).reshape(size)

    def values_of(self, cost: AdaptationCost, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        """Returns :meth:`values` of single pairs, ``[pairs]``."""
        features = pair_features("loops", cost.formulas, schemes, shapes)
        return ask_trees(self.booster, features)

    def counts(self, hardware: Hardware, measured: int) -> bool:
        """Returns whether the prior is used after ``measured`` measurements on a processor. A prior of other
        processors is used from :data:`FOREIGN_POINTS` measurements on."""
        return measured >= FOREIGN_POINTS or not self.other_processors(hardware)

    def other_processors(self, hardware: Hardware) -> tuple[str, ...]:
        """Returns the names of the source processors other than this processor."""
        every = (source.hardware for source in self.sources)
        others = (one for one in every if not (one.is_same_as(hardware) and one.cores == hardware.cores))
        return tuple(dict.fromkeys(f"{other.name} ({other.cores} cores)" for other in others))

    def require_kind(self, hardware: Hardware) -> None:
        """Raises a ModelError unless the prior is for this kind of processor."""
        found = self.sources[0].hardware
        if found.kind != hardware.kind:
            raise ModelError(
                f"a prior must be for the kind of processor that is tuned for, {hardware.kind}",
                f"a prior for {found.kind}, from {found.name}",
                "Tune without it.",
            )

    def describe(self, hardware: Hardware) -> str:
        """Returns a text about the prior's sources and, if these are other processors, about how the prior is
        adapted."""
        known = "; ".join(map(str, self.sources))
        others = self.other_processors(hardware)
        if not others:
            return f"prior: {known}"
        foreign = f"{', '.join(others)} is not {hardware.name} ({hardware.cores} cores)"
        return (
            f"prior: {known}. {foreign}: it counts once {FOREIGN_POINTS} pairs are measured here, at a level "
            "and a share that are fitted on them."
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the prior as a JSON value: its sources and the trees."""
        return {
            "schema_version": SCHEMA_VERSION,
            "sources": [source.to_json() for source in self.sources],
            "missed": self.missed,
            "booster": trees_to_json(self.booster),
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON; reading it back runs no code."""
        write_json(Path(path), self.to_json(), None, ModelError)

    @classmethod
    def load(cls, path: str | Path) -> Prior:
        """Reads a file that :meth:`save` wrote.

        Raises:
            ModelError: if the file is missing, damaged or of another version, or if a later version of
                XGBoost wrote its trees.
        """
        with reading(ModelError, "a prior's file must be readable JSON", path, WITHOUT):
            value = read_json(path)
        if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION:
            raise ModelError(f"a prior must have schema {SCHEMA_VERSION}", path, WITHOUT)
        with reading(ModelError, "a prior must have all its fields", path, WITHOUT):
            sources = tuple(map(Source.from_json, value["sources"]))
            return cls(sources, float(value["missed"]), trees_from_json(value["booster"]))

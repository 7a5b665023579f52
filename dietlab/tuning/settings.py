"""The settings of a tuning as one value: the names and numbers in a study's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from dietlab.base.errors import StudyError, require_names, require_type
from dietlab.cost import (
    COST_MODEL,
    Calibrated,
    CostModel,
    Fitted,
    Known,
    Predictor,
    Prior,
    fit_cost_model,
    fitted_by,
    predictor_found,
    with_prior,
)
from dietlab.measure import CacheState, Record, Timing
from dietlab.scheme import Cover, Space
from dietlab.tuning.effort import effort_named
from dietlab.tuning.strategies.registry import strategy_found


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a tuning that a file can hold.

    Args:
        effort: a preset's name.
        strategy: the name of the search strategy (``MODULE:NAME`` of your own).
        cover: how row tiles cover a shape: ``"composed"`` of several heights, or as in the ``"paper"``.
        max_kernels: the largest number of micro-kernels in the library.
        cost_model: the name of the cost model (``MODULE:NAME`` of your own).
        seed: the seed of the proposals and of the model.

    Raises:
        StudyError: if a setting is of another type or out of its range, such as an object in place of a name.
        DietlabError: for an unknown effort.
    """

    effort: str = "quick"
    strategy: str = "draft"
    cover: Cover = "composed"
    max_kernels: int = 8
    cost_model: str = COST_MODEL
    seed: int = 0

    def __post_init__(self) -> None:
        for what, name in (("strategy", self.strategy), ("cost model", self.cost_model)):
            require_type(f"the name of a study's {what}", name, str, StudyError, "Enter it by a name.")
        for what in ("effort", "cover", "max_kernels", "seed"):
            default: object = getattr(Settings, what)
            require_type(f"the {what} of a study", getattr(self, what), type(default), StudyError)
        effort_named(self.effort)
        require_names("the covers of a study", get_args(Cover), [self.cover], StudyError)
        if self.max_kernels < 1:
            raise StudyError("a study must have at least one micro-kernel", f"max_kernels {self.max_kernels}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(Settings)}

    @staticmethod
    def settings_in(value: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings in a JSON value; early files name no cost model."""
        known = {"cost_model": COST_MODEL, **value}
        return Settings(**{field.name: known[field.name] for field in fields(Settings)}).settings

    @property
    def timing(self) -> Timing:
        """The timing of candidates."""
        return effort_named(self.effort).timing

    @property
    def cache(self) -> CacheState:
        """The cache state that candidates are timed in."""
        return self.timing.cache

    def predictor(self) -> Predictor:
        """Returns the cost model, which must be registered: no module is imported to find it."""
        return predictor_found(self.cost_model, self.cache, self.seed)

    def resolved(self) -> dict[str, Any]:
        """Returns the objects that the settings name, as arguments of :class:`~dietlab.tuning.Tuner` and
        :func:`~dietlab.tuning.tune`; no module is imported to find them."""
        return {
            "effort": effort_named(self.effort),
            "strategy": strategy_found(self.strategy),
            "predictor": self.predictor(),
            "max_kernels": self.max_kernels,
            "seed": self.seed,
        }


def refitted(
    settings: Settings, space: Space, records: tuple[Record, ...], prior: Prior | None, kept: Path
) -> Fitted:
    """Returns the cost model of the settings, fitted on the records. The default model takes its trees from
    the file ``kept``, if that file exists."""
    if settings.cost_model == COST_MODEL and kept.exists():
        return Calibrated(CostModel.load(kept), records, prior)
    return fitted_by(with_prior(settings.predictor(), prior), space, records)


def explaining(settings: Settings, known: Known) -> CostModel:
    """Returns the model that views use to explain times: always the default model, even if another model
    predicted the times."""
    if isinstance(known.predictor, Calibrated):
        return known.predictor.model
    work, chip = known.space.workload, known.space.hardware
    return fit_cost_model(work, chip, known.records, seed=settings.seed, cache=settings.cache)

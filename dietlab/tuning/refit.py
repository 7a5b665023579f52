"""Fits again what a tuning was predicted by, from its records and what it kept."""

from __future__ import annotations

from pathlib import Path

from dietlab.cost import (
    COST_MODEL,
    Calibrated,
    CostModel,
    Fitted,
    Known,
    Prior,
    fit_cost_model,
    fitted_by,
    with_prior,
)
from dietlab.measure import Record
from dietlab.scheme import Space
from dietlab.tuning.settings import Settings


def refitted(
    settings: Settings, space: Space, records: tuple[Record, ...], prior: Prior | None, kept: Path
) -> Fitted:
    """Returns the cost model of the settings fitted on the records; the trees of the default come from the
    file ``kept``, if it is there.

    Raises:
        ModelError: if no record is successful, or the file is damaged.
    """
    if settings.cost_model == COST_MODEL and kept.exists():
        return Calibrated(CostModel.load(kept), records, prior)
    return fitted_by(with_prior(settings.resolved()["predictor"], prior), space, records)


def explaining(settings: Settings, known: Known) -> CostModel:
    """Returns the model that views explain times with: the default's, whatever predicted them."""
    if isinstance(known.predictor, Calibrated):
        return known.predictor.model
    work, chip = known.space.workload, known.space.hardware
    return fit_cost_model(work, chip, known.records, seed=settings.seed, cache=settings.cache)

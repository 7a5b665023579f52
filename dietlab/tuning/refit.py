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
    predictor_found,
    with_prior,
)
from dietlab.measure import CacheState, Record
from dietlab.scheme import Space


def refitted(
    name: str,
    space: Space,
    records: tuple[Record, ...],
    cache: CacheState,
    seed: int = 0,
    prior: Prior | None = None,
    kept: Path | None = None,
) -> Fitted:
    """Returns the cost model of that name fitted on the records; the trees of the default come from the file
    ``kept``, if it is there.

    Raises:
        ModelError: if no record is successful, or the file is damaged.
    """
    if name == COST_MODEL and kept is not None and kept.exists():
        return Calibrated(CostModel.load(kept), records, prior)
    return fitted_by(with_prior(predictor_found(name, cache, seed), prior), space, records)


def explaining(known: Known, cache: CacheState, seed: int = 0) -> CostModel:
    """Returns the model that views explain times with: the default's, whatever predicted them."""
    if isinstance(known.predictor, Calibrated):
        return known.predictor.model
    return fit_cost_model(known.space.workload, known.space.hardware, known.records, seed=seed, cache=cache)

"""Gradient-boosted trees: the regression of XGBoost that the cost models of this room are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

Booster = Any
"""XGBoost's, which has no types; its package is loaded when trees are fitted, asked or read."""

ONE_THREAD = {"nthread": 1}
"""Trees of this size gain nothing by more, and threads that wait for each other hinder what is measured."""

SHARED = {"eta": 0.1, "max_depth": 6, "subsample": 0.8}
"""XGBoost's parameters for trees over some hundreds to thousands of pairs of a scheme and a shape."""


def fit_trees(
    features: Any,
    values: Values,
    rounds: int,
    parameters: Mapping[str, Any],
    seed: int = 0,
    groups: Sequence[int] | None = None,
) -> Booster:
    """Returns trees that are fitted to ``values [n]`` or, if there are ``groups [n]``, in ascending order, to
    the order of the values within each, the least first.

    Args:
        features: of each value, ``[n, features]``.
        rounds: of boosting.
        parameters: XGBoost's, beside the seed, the threads and where the trees begin.
    """
    import xgboost as xgb

    # Ranking wants the better to score higher.
    data = xgb.DMatrix(features, label=values if groups is None else -values, **ONE_THREAD)
    start: dict[str, Any] = {"base_score": float(values.mean())}
    if groups is not None:
        data.set_info(qid=groups)
        start = {"objective": "rank:pairwise"}
    return xgb.train({**parameters, **start, **ONE_THREAD, "seed": seed}, data, rounds)


def ask_trees(booster: Booster, features: Any) -> Values:
    """Returns what the trees say of each row, ``[n]``."""
    import xgboost as xgb

    return np.asarray(booster.predict(xgb.DMatrix(features, **ONE_THREAD)), np.float64)


def trees_to_json(booster: Booster) -> Any:
    return json.loads(booster.save_raw("json"))


def trees_from_json(value: Any) -> Booster:
    """Returns the trees that :func:`trees_to_json` told; reading them runs no code."""
    import xgboost as xgb

    booster = xgb.Booster(ONE_THREAD)
    booster.load_model(bytearray(json.dumps(value).encode()))
    return booster

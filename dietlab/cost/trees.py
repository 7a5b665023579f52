"""Gradient-boosted trees of XGBoost, which the cost models of this room use for regression."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.base.files import reading
from dietlab.base.statistics import Values

Booster = Any
"""XGBoost's class, which has no type annotations. The package is loaded when trees are fitted, applied or
read."""

ONE_THREAD = {"nthread": 1}
"""The number of XGBoost's threads: trees of this size gain nothing by more, and waiting threads disturb
measurements."""

AGAIN = "Fit it again from the records: a study does so once its file is removed."
"""The remedy for a damaged model. A file of a model has nothing that its records lack."""

SHARED = {"eta": 0.1, "max_depth": 6, "subsample": 0.8}
"""XGBoost's parameters for trees over hundreds to thousands of pairs of a scheme and a shape."""


def fit_trees(
    features: Any,
    values: Values,
    rounds: int,
    parameters: Mapping[str, Any],
    seed: int = 0,
    groups: Sequence[int] | None = None,
) -> Booster:
    """Returns trees that are fitted to ``values [n]``. With ``groups [n]`` in ascending order, the trees are
    fitted to the order of the values within each group instead, the least value first.

    Args:
        features: the features of each value, ``[n, features]``.
        rounds: the number of boosting rounds.
        parameters: the parameters of XGBoost, without seed, threads and ``base_score``.
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
    """Returns the sum of the trees for each row of features, ``[n]``."""
    import xgboost as xgb

    try:
        return np.asarray(booster.predict(xgb.DMatrix(features, **ONE_THREAD)), np.float64)
    except (ValueError, xgb.core.XGBoostError) as error:
        raise ModelError(
            "trees must be applied to the features that they were fitted on", _first_line(error), AGAIN
        ) from None


def trees_to_json(booster: Booster) -> Any:
    """Returns the trees as XGBoost's JSON, which has its ``version``."""
    return json.loads(booster.save_raw("json"))


def trees_from_json(value: Any) -> Booster:
    """Returns the trees of a JSON value made by :func:`trees_to_json`; reading them runs no code.

    Raises:
        ModelError: if XGBoost cannot read them, or a later version wrote them. (3.0 reads the JSON of 3.1
            without an error, and starts every sum at 0.5 instead of the mean in the file.)
    """
    import xgboost as xgb

    with reading(ModelError, "the JSON of a model's trees must have all its fields", "a damaged model"):
        wrote = tuple(map(int, value["version"][:2]))
    here = tuple(map(int, xgb.__version__.split(".")[:2]))
    if wrote > here:
        version = ".".join(map(str, wrote))
        raise ModelError(
            f"trees that XGBoost {version} wrote need that version or a later one",
            f"XGBoost {xgb.__version__}",
            f"pip install 'xgboost-cpu>={version}', or fit the model again from the records.",
        )
    booster = xgb.Booster(ONE_THREAD)
    try:
        booster.load_model(bytearray(json.dumps(value).encode()))
    except xgb.core.XGBoostError as error:
        raise ModelError("XGBoost must be able to read the trees of a model", _first_line(error)) from None
    return booster


def _first_line(error: Exception) -> str:
    """Returns XGBoost's message without the time, its source file and its stack."""
    return re.sub(r"^\[[\d:]+\] (\S+:\d+: )?", "", str(error).strip()).splitlines()[0]

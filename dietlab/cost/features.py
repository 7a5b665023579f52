"""The learned model's features of a scheme, by kind of processor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dietlab.cost.adaptation import adaptation_cost
from dietlab.cost.target import cost_target
from dietlab.machine import Hardware
from dietlab.problem import Workload
from dietlab.scheme import Scheme


def feature_names(hardware: Hardware) -> tuple[str, ...]:
    """Returns the features of schemes on this kind of processor."""
    return cost_target(hardware.kind).FEATURES


def features(schemes: Sequence[Scheme], workload: Workload, hardware: Hardware) -> npt.NDArray[np.float64]:
    """Returns an array ``[schemes, features]``; no feature depends on a dynamic dimension."""
    rows = adaptation_cost(workload, hardware).formulas.features(schemes)
    return np.array(rows, np.float64).reshape(len(schemes), len(feature_names(hardware)))

"""Speedups that reports of whole models show: over each contender and over the best, with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.statistics import bootstrap
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ANSOR, over_best
from dietlab.lab.models.runtimes import ALSO_OURS

if TYPE_CHECKING:
    import pandas as pd

BEST = "the best of all"
"""The contender that is, at each length, the fastest of all that serve any length."""


def speedups(report: Report) -> dict[str, dict[int, float]]:
    """Returns, by contender, our speedup, of the model compiled ahead of time, at each length; first that
    over :data:`BEST`. Results that were wrong do not count, nor lengths that were timed besides.

    Args:
        report: of a model, from :func:`~dietlab.lab.models.evaluate_model`.
    """
    rows = [row for row in report.rows if row.shape in report.weights]
    best = over_best(rows, besides=(*ALSO_OURS, ANSOR))
    found = {BEST: {shape["T"]: speedup for (shape, _), speedup in best.items()}}
    for row in rows:
        if row.correct and row.speedup is not None:
            found.setdefault(row.contender, {})[row.shape["T"]] = row.speedup
    return found


def frame_models(reports: Iterable[Report]) -> pd.DataFrame:
    """Returns one row for each report and contender.

    ``geomean`` is over all lengths, which count alike, with the 95 % bootstrap interval over lengths from
    ``low`` to ``high``; ``worst`` is the least of them, at ``worst_T``. All are times (x).

    Args:
        reports: of models, from :func:`~dietlab.lab.models.evaluate_model`.
    """
    import pandas as pd

    rows = []
    for report in reports:
        of = {
            "model": report.workload["operator"],
            "batch": report.workload["batch"],
            "cores": report.threads,
        }
        for contender, found in speedups(report).items():
            if found:
                values = np.array([*found.values()])
                low, high = bootstrap(values, lambda drawn: np.asarray(np.exp(np.log(drawn).mean(axis=1))))
                about = {"contender": contender, "lengths": len(values), "geomean": geometric_mean(values)}
                worst = min(found, key=lambda length: found[length])
                ends = {"low": low, "high": high, "worst": found[worst], "worst_T": worst}
                rows.append({**of, **about, **ends})
    return pd.DataFrame(rows)

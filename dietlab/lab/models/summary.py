"""Reports of whole models: speedups over each contender and over the best, and steps that a server pads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from statistics import geometric_mean
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.statistics import bootstrap
from dietlab.compare.results.policies import POLICIES, Policy
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ANSOR, OURS, over_best
from dietlab.lab.models.runtimes import ALSO_OURS
from dietlab.lab.models.zoo import Model
from dietlab.problem import Shape, ShapeSet

if TYPE_CHECKING:
    import pandas as pd

BEST = "the best of all"
"""The name of the fastest contender at each length, among all contenders that serve any length."""

NO_PADDING = "none"
"""The name of the policy that executes every length as it is."""

EVERY_POLICY: Mapping[str, Policy] = {NO_PADDING: lambda length: length, **POLICIES}


def speedups(report: Report) -> dict[str, dict[int, float]]:
    """Returns the speedup of dietlab's model, compiled ahead of time, by contender and size, beginning with
    the speedup over :data:`BEST`. Wrong results do not count, nor do lengths that were timed in addition.

    Args:
        report: the report of a model, from :func:`~dietlab.lab.models.evaluate_model`.
    """
    rows = [row for row in report.rows if row.shape in report.weights]
    best = over_best(rows, besides=(*ALSO_OURS, ANSOR))
    found = {BEST: {shape[report.length]: speedup for (shape, _), speedup in best.items()}}
    for row in rows:
        if row.correct and row.speedup is not None:
            found.setdefault(row.contender, {})[row.shape[report.length]] = row.speedup
    return found


def frame_models(reports: Iterable[Report]) -> pd.DataFrame:
    """Returns one row for each report and contender.

    ``geomean`` is over all lengths, which count equally, with the 95 % bootstrap interval over lengths from
    ``low`` to ``high``; ``worst`` is the least speedup, at ``worst_T``. All of these are speedups (x).

    Args:
        reports: the reports of models, from :func:`~dietlab.lab.models.evaluate_model`.
    """
    import pandas as pd

    rows = []
    for report in reports:
        work = report.workload
        of = {"model": work["operator"], "batch": work["batch"], "cores": report.threads}
        for contender, found in speedups(report).items():
            if found:
                values = np.array([*found.values()])
                low, high = bootstrap(values, lambda drawn: np.asarray(np.exp(np.log(drawn).mean(axis=1))))
                about = {"contender": contender, "lengths": len(values), "geomean": geometric_mean(values)}
                worst = min(found, key=lambda length: found[length])
                ends = {"low": low, "high": high, "worst": found[worst], "worst_T": worst}
                rows.append({**of, **about, **ends})
    return pd.DataFrame(rows)


def padded_lengths(model: Model, lengths: ShapeSet) -> tuple[Shape, ...]:
    """Returns the lengths to which padding policies pad ``lengths``, without ``lengths`` themselves. None is
    longer than the model's longest.

    Args:
        model: the model, which has the longest length.
        lengths: the lengths that occur, in tokens.
    """
    longest = model.range.high
    found = {_padded(policy, shape["T"], longest) for policy in POLICIES.values() for shape in lengths}
    return tuple(Shape.of(T=length) for length in sorted(found - {shape["T"] for shape in lengths}))


def frame_padding(report: Report) -> pd.DataFrame:
    """Returns one row for each pair of a padding policy and a contender that was timed at all lengths of the
    policy.

    ``step_ms`` is a mean step of the trace, ``tokens_per_second`` counts requested tokens only, ``waste`` is
    the share of executed tokens that were not requested (0 to 1), and ``speedup`` is the step's time over its
    time by dietlab without padding.

    Args:
        report: the report of a model, with times at padded lengths.
    """
    import pandas as pd

    times: dict[str, dict[int, float]] = {}
    for row in report.rows:
        if row.correct:
            times.setdefault(row.contender, {})[row.shape["T"]] = row.seconds_median
    longest = report.workload["T"][1]
    weights = {shape["T"]: weight for shape, weight in report.weights.items()}
    useful = fsum(weight * length for length, weight in weights.items())
    rows = []
    for name, policy in EVERY_POLICY.items():
        executed = {length: _padded(policy, length, longest) for length in weights}
        tokens = fsum(weight * executed[length] for length, weight in weights.items())
        for contender, known in times.items():
            if set(executed.values()) <= set(known):
                step = fsum(weight * known[executed[length]] for length, weight in weights.items())
                rows.append((name, contender, 1e3 * step, useful / step, 1 - useful / tokens))
    frame = pd.DataFrame(rows, columns=["policy", "contender", "step_ms", "tokens_per_second", "waste"])
    ours = frame[(frame.policy == NO_PADDING) & (frame.contender == OURS)].step_ms
    return frame.assign(speedup=frame.step_ms / ours.iloc[0] if len(ours) else float("nan"))


def _padded(policy: Policy, length: int, longest: int) -> int:
    return min(policy(length), longest)

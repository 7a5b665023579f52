"""The time of a served model where a server pads its steps, as many do to compile for few lengths only."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING

from dietlab.compare.results.policies import POLICIES, Policy
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import OURS
from dietlab.lab.models.zoo import Model
from dietlab.problem import Shape, ShapeSet

if TYPE_CHECKING:
    import pandas as pd

NO_PADDING = "none"
"""The policy that executes every length as it is."""

EVERY_POLICY: Mapping[str, Policy] = {NO_PADDING: lambda length: length, **POLICIES}


def padded_lengths(model: Model, lengths: ShapeSet) -> tuple[Shape, ...]:
    """Returns the lengths to which policies pad the lengths of a set, besides these: none is longer than the
    model's longest.

    Args:
        model: gives the longest length.
        lengths: in tokens, those that occur.
    """
    longest = model.T.high
    found = {_padded(policy, shape["T"], longest) for policy in POLICIES.values() for shape in lengths}
    return tuple(Shape.of(T=length) for length in sorted(found - {shape["T"] for shape in lengths}))


def frame_padding(report: Report) -> pd.DataFrame:
    """Returns one row for each padding policy and contender that was timed at all lengths it takes.

    ``step_ms`` is a mean step of the trace, ``tokens_per_second`` counts requested tokens only, ``waste`` is
    the share of executed tokens that were not requested (0 to 1), and ``speedup`` is the time of the step
    over that of ours without padding.

    Args:
        report: of a model, with times at padded lengths.
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

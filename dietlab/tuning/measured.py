"""The extents that were measured. Far from them, a decision tree rests on predictions alone, and warns."""

from __future__ import annotations

from collections.abc import Mapping

from dietlab.cost import Known
from dietlab.measure.record import DECIDE
from dietlab.problem.dims import Dim

FAR = 2.0
"""The largest ratio of an end of the tuned range to the nearest measured extent at which the end counts as
measured. Between two lengths with a ratio of 2 there are lengths with other best tiles. So the grid of a tree
takes no larger step either (:data:`~dietlab.tuning.length_grid.STEP`)."""

Reach = tuple[tuple[str, int, int], ...]
"""The least and the greatest extent of each dynamic dimension that was tuned for and measured."""


def reach_of(known: Known) -> Reach:
    """Returns the measured range of each dynamic dimension; empty without a successful record. The range is
    taken over the shapes that were tuned for or decided on.

    The shapes on which only the search tried schemes do not count: they say nothing about the shapes between.
    """
    measured = [record for record in known.records if record.ok]
    if not measured:
        return ()
    decided = [r.shape for r in measured if r.asked_by is not None and r.asked_by.stage == DECIDE]
    reach = []
    for name in known.space.workload.dims:
        wanted = [shape[name] for shape in (*known.shapes.train, *decided)]
        found = [record.shape[name] for record in measured]
        low, high = max(min(wanted), min(found)), min(max(wanted), max(found))
        reach.append((name, min(low, high), max(low, high)))
    return tuple(reach)


def beyond_measured(dims: Mapping[str, Dim], reach: Reach) -> str:
    """Returns a warning about ranges that end more than :data:`FAR` from all measurements; empty if there are
    no such ranges, or if the reach is unknown."""
    covered, ends = [], []
    for name, low, high in reach:
        dim = dims[name]
        missed = [dim.low] * (low > FAR * dim.low) + [dim.high] * (dim.high > FAR * high)
        if missed:
            covered.append(f"{name} in {low}..{high} of {dim}")
            ends += [f"{name}={end}" for end in missed]
    if not covered:
        return ""
    return (
        f"plans were compared for {', '.join(covered)}: further away choices rest on predictions alone. "
        f"Tune longer, or with shapes that reach {' and '.join(ends)}."
    )

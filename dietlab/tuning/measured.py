"""The reach of measurements: further away, a decision tree rests on predictions alone, and says so."""

from __future__ import annotations

from collections.abc import Mapping

from dietlab.cost import Known
from dietlab.measure.record import DECIDE
from dietlab.problem.dims import Dim

FAR = 2.0
"""The ratio of an end of the tuned range to the nearest measured extent beyond which that end counts as not
measured: between two lengths of a ratio of 2, others have other best tiles, which is why the grid that a
tree is trained on takes no larger step (:data:`~dietlab.tuning.length_grid.STEP`)."""

Reach = tuple[tuple[str, int, int], ...]
"""The least and the greatest extent of each dynamic dimension that was tuned for and measured."""


def reach_of(known: Known) -> Reach:
    """Returns how far a tuning reaches, by dynamic dimension: the shapes that it is for and those that it
    decided on, as far as they were measured; nothing without a successful record.

    That the search tries schemes on the shape that waits for memory most tells nothing of what lies between.
    """
    measured = [record for record in known.records if record.ok]
    if not measured:
        return ()
    decided = [r.shape for r in measured if r.asked_by is not None and r.asked_by.stage == DECIDE]
    reach = []
    for name in known.space.workload.dims:
        asked = [shape[name] for shape in (*known.shapes.train, *decided)]
        found = [record.shape[name] for record in measured]
        low, high = max(min(asked), min(found)), min(max(asked), max(found))
        reach.append((name, min(low, high), max(low, high)))
    return tuple(reach)


def beyond_measured(dims: Mapping[str, Dim], reach: Reach) -> str:
    """Returns what users are told of a range whose ends are :data:`FAR` from all that was measured; nothing
    where they are near, or it is not known what was measured.

    Args:
        dims: the ranges that are served.
        reach: as :func:`reach_of` gives it.
    """
    told, ends = [], []
    for name, low, high in reach:
        dim = dims[name]
        missed = [dim.low] * (low > FAR * dim.low) + [dim.high] * (dim.high > FAR * high)
        if missed:
            told.append(f"{name} in {low}..{high} of {dim}")
            ends += [f"{name}={end}" for end in missed]
    if not told:
        return ""
    return (
        f"plans were compared for {', '.join(told)}: further away choices rest on predictions alone. "
        f"Tune longer, or with shapes that reach {' and '.join(ends)}."
    )

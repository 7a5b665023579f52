"""The stages after the search: confirms the best candidates on more shapes, then verifies competing plans."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dietlab.events import Audience
from dietlab.measure import Record, RecordStore, Round, Runner, Trial
from dietlab.plans import tiling
from dietlab.search.candidates import best_together, candidate_plans, distinct
from dietlab.search.effort import Effort
from dietlab.search.length_grid import length_grid
from dietlab.search.rounds import measure_missing
from dietlab.search.tuning_run import TuningRun
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme, Space
from dietlab.workloads import axis_of

FEW_ROWS = 8
"""The most rows of a shape that has ``Effort.short_finalists`` plans measured: memory bounds its time, and
the model ranks its plans worst."""

MANY_ROWS = 128
"""The most rows of a short call on a CPU. Longer calls cost seconds to measure, and neighbouring shapes
differ little."""

CONFIRM, VERIFY = "confirm", "verify"
"""Names of the stages."""


def confirm(
    run: TuningRun, runner: Runner, effort: Effort, listeners: Audience, store: RecordStore
) -> tuple[Record, ...]:
    """Measures the best schemes on the tuned shapes and on further ones between them."""
    shapes = confirm_shapes(run.shapes, run.space, effort.confirm_shapes)
    trials = [Trial(scheme, shapes) for scheme in best_together(run, shapes, effort.confirm_kernels)]
    return measure_missing(Round(CONFIRM), run, trials, runner, listeners, store)


def verify(
    run: TuningRun, runner: Runner, effort: Effort, listeners: Audience, store: RecordStore, number: int
) -> tuple[Record, ...]:
    """Measures, for shapes all over the range, the plans that are predicted fastest there.

    The model ranks programs that differ much; which of a few good ones wins on a shape is measured in turns,
    unless the expected winner was part of such a round. The shapes are those that the dispatcher is trained
    on, as many as the effort allows.
    """
    if not effort.verify_shapes:
        return ()
    workload = run.space.workload
    shapes = verified_shapes(run, effort.verify_shapes, number)
    plans = candidate_plans(run, shapes)
    order = run.mean_seconds(plans, shapes).argsort(axis=0)
    rows, verified = axis_of(workload, "rows"), measured_together(run, VERIFY)
    wanted: dict[Scheme, list[Shape]] = {}
    for column, shape in enumerate(shapes):
        count = effort.short_finalists if rows.at(shape) <= FEW_ROWS else effort.finalists
        finalists = distinct(plans, order[:, column], workload, shape, count)
        expected = tiling(plans[finalists[0]], workload, shape)
        if not any(expected in tilings for tilings in verified.get(shape, ())):
            for plan in finalists:
                wanted.setdefault(plans[plan], []).append(shape)
    trials = [Trial(plan, tuple(wanted[plan])) for plan in sorted(wanted)]
    return measure_missing(Round(VERIFY, number), run, trials, runner, listeners, store)


def verified_shapes(run: TuningRun, count: int, number: int) -> tuple[Shape, ...]:
    """Returns the shapes of round ``number``: about ``count`` all over the range; from the second round on
    also short calls between them, where one more row changes much."""
    workload = run.space.workload
    if len(workload.dims) > 1:
        return run.shapes.train.shapes
    first, dense = (set(length_grid(workload, run.shapes, limit)) for limit in (count, number * count))
    return tuple(sorted(first | {shape for shape in dense if is_short(run, shape)}))


def is_short(run: TuningRun, shape: Shape) -> bool:
    """Returns whether a call is short enough to measure every length. On a GPU every call is, and waves of
    blocks make neighbouring lengths differ."""
    return run.space.hardware.kind == "cuda" or axis_of(run.space.workload, "rows").at(shape) <= MANY_ROWS


def measured_together(run: TuningRun, *stages: str) -> dict[Shape, list[set[Hashable]]]:
    """Returns, by shape, the tilings that each round of these stages measured in turns."""
    found: dict[Shape, dict[Round, set[Hashable]]] = {}
    for record in run.records:
        if record.asked_by and record.asked_by.stage in stages:
            tiles = tiling(record.scheme, run.space.workload, record.shape)
            found.setdefault(record.shape, {}).setdefault(record.asked_by, set()).add(tiles)
    return {shape: list(rounds.values()) for shape, rounds in found.items()}


def confirm_shapes(shapes: ShapeSet, space: Space, count: int) -> tuple[Shape, ...]:
    """Returns the tuned shapes, the range's ends, and ``count`` lengths spread evenly over its logarithm:
    one more row changes a short call the most."""
    dims = space.workload.dims
    if len(dims) != 1:
        return shapes.train.shapes
    name, dim = next(iter(dims.items()))
    spread = np.geomspace(dim.low, dim.high, count).round().astype(int)
    return tuple(sorted({Shape.of(**{name: int(t)}) for t in spread} | set(shapes.train)))

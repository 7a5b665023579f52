"""Stage 4, between its halves: plans that compete for a shape are measured next to each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from dietlab.dispatch.dispatcher import train_dispatcher
from dietlab.dispatch.portfolio import Portfolio, retimed
from dietlab.events import Observer, audience
from dietlab.measure import RecordStore, Runner, Trial
from dietlab.search import TuningRun, distinct, measured, tiling_on
from dietlab.shapes import Shape
from dietlab.space import MicroKernel
from dietlab.workloads import axis_of

CHECK = "check"
"""Rounds of checking are called this and a number."""

ROUNDS = 3
"""A choice that turns out slow makes room for another that was only predicted."""

CHECKED_ROWS = 128
"""Shapes of so many rows are checked. Beyond, a call takes long and plans differ by little."""

RIVALS, CLOSE = 3, 1.15
"""Plans that compete for a shape: so many at most, and none that is expected to be slower by more."""


def check_choices(
    portfolio: Portfolio, run: TuningRun, runner: Runner, store: RecordStore,
    observers: Iterable[Observer] = (),
) -> Portfolio:  # fmt: skip
    """The same micro-kernels, with plans' times taken in turns where several compete for a shape.

    Of many predicted times the least are those that err most, and a time that was measured minutes before
    another is no fair match for it: plans that could be the fastest on a shape are measured on it together,
    the tree is trained again, and so on, at most :data:`ROUNDS` times. ``store`` gets the records.
    """
    listeners = audience(observers)
    for number in range(1, 1 + ROUNDS):
        trials = undecided(portfolio, run)
        if not trials:
            break
        found = measured(CHECK, f"{CHECK} {number}", run, trials, runner, listeners, store)
        run = replace(run, records=(*run.records, *found))
        portfolio = retimed(portfolio, run)
    return portfolio


def undecided(portfolio: Portfolio, run: TuningRun) -> list[Trial]:
    """Plans with the shapes on which they compete with others that they were never measured beside."""
    workload, matches = portfolio.workload, _matches(run)
    rows = axis_of(workload, "rows")
    wanted: dict[MicroKernel, list[Shape]] = {}
    for shape, plans in rivals(portfolio).items():
        tilings = {tiling_on(plan, workload, shape) for plan in plans}
        met = any(tilings <= match for match in matches.get(shape, ()))
        if rows.at(shape) <= CHECKED_ROWS and not met:
            for plan in plans:
                wanted.setdefault(plan, []).append(shape)
    return [Trial(plan, tuple(wanted[plan])) for plan in sorted(wanted)]


def rivals(portfolio: Portfolio) -> dict[Shape, frozenset[MicroKernel]]:
    """For each shape the plan that a tree over ``portfolio`` chooses, and those with other tiles that are
    expected to be as fast or nearly."""
    dispatcher, plans = train_dispatcher(portfolio), portfolio.plans
    found = {}
    for shape, seconds in zip(portfolio.shapes, np.array(portfolio.seconds).T, strict=True):
        chosen = plans.index(dispatcher.kernel(shape))
        order = [chosen, *(i for i in seconds.argsort() if seconds[i] <= CLOSE * seconds.min())]
        close = distinct(plans, order, portfolio.workload, shape, RIVALS)
        found[shape] = frozenset(plans[i] for i in close)
    return found


def _matches(run: TuningRun) -> Mapping[Shape, list[set[Hashable]]]:
    """Tilings that were measured next to each other to decide between them, by shape."""
    found: dict[Shape, dict[str, set[Hashable]]] = {}
    for record in run.records:
        if record.asked_by.startswith(CHECK):
            tiles = tiling_on(record.micro_kernel, run.space.workload, record.shape)
            found.setdefault(record.shape, {}).setdefault(record.asked_by, set()).add(tiles)
    return {shape: list(rounds.values()) for shape, rounds in found.items()}

"""Stage 4, between its halves: what the tree would choose is measured where it was only predicted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dietlab.dispatch.dispatcher import train_dispatcher
from dietlab.dispatch.portfolio import Portfolio, retimed
from dietlab.events import Observer, audience
from dietlab.measure import RecordStore, Runner, Trial
from dietlab.search import TuningRun, measured
from dietlab.shapes import Shape
from dietlab.space import MicroKernel
from dietlab.workloads import axis_of

ROUNDS = 3
"""A choice that turns out slow makes room for another that was only predicted."""

CHECKED_ROWS = 128
"""Shapes of so many rows are checked. Beyond, a call takes long and plans differ by little."""


def check_choices(
    portfolio: Portfolio, run: TuningRun, runner: Runner, store: RecordStore,
    observers: Iterable[Observer] = (),
) -> Portfolio:  # fmt: skip
    """The same micro-kernels with the times of those plans measured that a tree over them chooses.

    Of many predicted times the least are those that err most, and so does a choice among them: it is
    measured, the tree trained again, and so on, at most :data:`ROUNDS` times. ``store`` gets the records.
    """
    listeners = audience(observers)
    for _ in range(ROUNDS):
        trials = unmeasured(portfolio, run)
        if not trials:
            break
        found = measured("check", run, trials, runner, listeners, store)
        run = replace(run, records=(*run.records, *found))
        portfolio = retimed(portfolio, run)
    return portfolio


def unmeasured(portfolio: Portfolio, run: TuningRun) -> list[Trial]:
    """The plans that a tree over ``portfolio`` chooses, each with the shapes it was never measured on."""
    dispatcher, rows = train_dispatcher(portfolio), axis_of(portfolio.workload, "rows")
    known = {(record.micro_kernel, record.shape) for record in run.records}
    wanted: dict[MicroKernel, list[Shape]] = {}
    for shape in portfolio.shapes:
        plan = dispatcher.kernel(shape)
        if rows.at(shape) <= CHECKED_ROWS and (plan, shape) not in known:
            wanted.setdefault(plan, []).append(shape)
    return [Trial(plan, tuple(wanted[plan])) for plan in sorted(wanted)]

"""Stage 4, between its halves: plans that compete for a shape are measured next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dietlab.dispatch.dispatcher import train_dispatcher
from dietlab.dispatch.portfolio import Portfolio, choose_portfolio, lost, retimed
from dietlab.events import Audience, Observer, audience
from dietlab.measure import RecordStore, Runner, Trial
from dietlab.search import VERIFY, TuningRun, distinct, is_short, measure_missing, measured_together
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import MicroKernel, tiling_on

CHECK = "check"
"""Rounds of checking are called this and a number."""

CHOICES, ROUNDS = 3, 3
"""Portfolios chosen, each knowing what checking the one before found out; and rounds of checking one, since a
choice that turns out slow makes room for another that was only predicted."""

GAIN = 0.05
"""The share of what the best portfolio so far loses that another one is expected to save, or it is not worth
checking: what is only expected turns out dearer."""

RIVALS, CLOSE = 3, 1.08
"""Plans that compete for a shape: so many at most, and none that is expected to be slower by more."""


def checked_portfolio(
    run: TuningRun,
    runner: Runner,
    store: RecordStore,
    shapes: ShapeSet | None = None,
    max_kernels: int = 8,
    observers: Iterable[Observer] = (),
) -> Portfolio:
    """A portfolio (:func:`choose_portfolio`) whose plans' times were taken in turns where several compete.

    What checking finds out about one choice may speak for another: it is made again, knowing that, and
    checked too if it promises a :data:`GAIN`. The best one stays. ``store`` gets the records.
    """
    listeners = audience(observers)
    found: list[Portfolio] = []
    for choice in range(1, 1 + CHOICES):
        portfolio = choose_portfolio(run, shapes, max_kernels)
        if found:
            promised, *known = _losses([portfolio, *(retimed(other, run) for other in found)])
            if promised > (1 - GAIN) * min(known):
                break
        portfolio, run = check_choices(portfolio, run, runner, store, listeners, f"{CHECK} {choice}")
        found.append(portfolio)
    retold = [retimed(portfolio, run) for portfolio in found]
    return retold[int(np.argmin(_losses(retold)))]


def check_choices(
    portfolio: Portfolio,
    run: TuningRun,
    runner: Runner,
    store: RecordStore,
    listeners: Audience,
    asked_by: str = CHECK,
) -> tuple[Portfolio, TuningRun]:
    """The same micro-kernels, with plans' times taken in turns where several compete for a shape, and the run
    that knows them.

    Of many predicted times the least are those that err most, and a time that was measured minutes before
    another is no fair match for it: plans that could be the fastest on a shape are measured on it together,
    the tree is trained again, and so on, at most :data:`ROUNDS` times.
    """
    for number in range(1, 1 + ROUNDS):
        trials = undecided(portfolio, run)
        if not trials:
            break
        found = measure_missing(CHECK, f"{asked_by}.{number}", run, trials, runner, listeners, store)
        run = replace(run, records=(*run.records, *found))
        portfolio = retimed(portfolio, run)
    return portfolio, run


def _losses(portfolios: Sequence[Portfolio]) -> list[float]:
    """What each of them loses, all compared with the same best times."""
    best = np.min([portfolio.best_seconds for portfolio in portfolios], axis=0)

    def loss(portfolio: Portfolio) -> float:
        losses = lost(np.array(portfolio.seconds).min(axis=0) / best)
        return float(losses @ np.array(portfolio.shapes.weights))

    return [loss(portfolio) for portfolio in portfolios]


def undecided(portfolio: Portfolio, run: TuningRun) -> list[Trial]:
    """Plans with the shapes on which they compete with others that they were never measured beside, neither
    to verify nor to check."""
    workload, matches = portfolio.workload, measured_together(run, VERIFY, CHECK)
    wanted: dict[MicroKernel, list[Shape]] = {}
    for shape, plans in rivals(portfolio).items():
        tilings = {tiling_on(plan, workload, shape) for plan in plans}
        known = any(tilings <= match for match in matches.get(shape, ()))
        if is_short(run, shape) and not known:
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

"""Stage 4, between its halves: plans that compete for a shape are measured next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dietlab.dispatch.dispatcher import train_dispatcher
from dietlab.dispatch.portfolio import Portfolio, choose_portfolio, lost, retimed
from dietlab.events import Audience, Observer, audience
from dietlab.measure import RecordStore, Round, Runner, Trial
from dietlab.plans import tiling
from dietlab.search import VERIFY, TuningRun, distinct, is_short, measure_missing, measured_together
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme

CHECK = "check"
"""The name of the stage."""

CHOICES, ROUNDS = 3, 3
"""The most portfolios chosen, each with the records of checking the one before, and the most rounds of
checking one: a choice that is measured slower than predicted makes room for another predicted one."""

GAIN = 0.05
"""The least share of the best portfolio's loss that another one must promise to save before it is checked:
predicted times of chosen plans are too optimistic."""

RIVALS, CLOSE = 3, 1.08
"""The most plans that compete for a shape, and the most that a rival's expected time exceeds the least, as a
ratio."""


def checked_portfolio(
    run: TuningRun,
    runner: Runner,
    store: RecordStore,
    shapes: ShapeSet | None = None,
    max_kernels: int = 8,
    observers: Iterable[Observer] = (),
) -> Portfolio:
    """Chooses a portfolio (:func:`choose_portfolio`) and times its plans in turns where several compete.

    The records of one check may favour another portfolio: the choice is made again with them, and checked
    too if it promises a :data:`GAIN`. The best portfolio is returned. ``store`` receives the records.
    """
    listeners = audience(observers)
    found: list[Portfolio] = []
    for choice in range(1, 1 + CHOICES):
        portfolio = choose_portfolio(run, shapes, max_kernels)
        if found:
            promised, *known = _losses([portfolio, *(retimed(other, run) for other in found)])
            if promised > (1 - GAIN) * min(known):
                break
        portfolio, run = check_choices(portfolio, run, runner, store, listeners, choice)
        found.append(portfolio)
    retold = [retimed(portfolio, run) for portfolio in found]
    return retold[int(np.argmin(_losses(retold)))]


def check_choices(
    portfolio: Portfolio,
    run: TuningRun,
    runner: Runner,
    store: RecordStore,
    listeners: Audience,
    choice: int = 1,
) -> tuple[Portfolio, TuningRun]:
    """Times the plans that compete for a shape in turns; returns the portfolio with these times, and the run
    with the records.

    The least of many predicted times are those that err most, and times measured minutes apart do not
    compare. So the plans that could be fastest on a shape are measured together and the tree is trained
    again, at most :data:`ROUNDS` times.
    """
    for number in range(1, 1 + ROUNDS):
        trials = undecided(portfolio, run)
        if not trials:
            break
        found = measure_missing(Round(CHECK, choice, number), run, trials, runner, listeners, store)
        run = replace(run, records=(*run.records, *found))
        portfolio = retimed(portfolio, run)
    return portfolio, run


def _losses(portfolios: Sequence[Portfolio]) -> list[float]:
    """Returns the weighted loss of each portfolio against the best times of all of them."""
    best = np.min([portfolio.best_seconds for portfolio in portfolios], axis=0)

    def loss(portfolio: Portfolio) -> float:
        losses = lost(np.array(portfolio.seconds).min(axis=0) / best)
        return float(losses @ np.array(portfolio.shapes.weights))

    return [loss(portfolio) for portfolio in portfolios]


def undecided(portfolio: Portfolio, run: TuningRun) -> list[Trial]:
    """Returns trials of the plans that compete on a shape but were never measured there in one round of
    verifying or checking."""
    workload, matches = portfolio.workload, measured_together(run, VERIFY, CHECK)
    wanted: dict[Scheme, list[Shape]] = {}
    for shape, plans in rivals(portfolio).items():
        tilings = {tiling(plan, workload, shape) for plan in plans}
        known = any(tilings <= match for match in matches.get(shape, ()))
        if is_short(run, shape) and not known:
            for plan in plans:
                wanted.setdefault(plan, []).append(shape)
    return [Trial(plan, tuple(wanted[plan])) for plan in sorted(wanted)]


def rivals(portfolio: Portfolio) -> dict[Shape, frozenset[Scheme]]:
    """Returns, for each shape, the plan that a tree over ``portfolio`` chooses and the plans with other tiles
    that are expected to be within :data:`CLOSE` of the fastest."""
    dispatcher, plans = train_dispatcher(portfolio), portfolio.schemes
    found = {}
    for shape, seconds in zip(portfolio.shapes, np.array(portfolio.seconds).T, strict=True):
        chosen = plans.index(dispatcher.scheme(shape))
        order = [chosen, *(i for i in seconds.argsort() if seconds[i] <= CLOSE * seconds.min())]
        close = distinct(plans, order, portfolio.workload, shape, RIVALS)
        found[shape] = frozenset(plans[i] for i in close)
    return found

"""Replays tunings from nothing and from a prior, and counts the measurements that each needs for the same
quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.cost import Fitted, Prior, Survey, fitted_by, predictor_named, with_prior
from dietlab.measure import Record, ReplayRunner
from dietlab.measure.record import by_shape
from dietlab.problem import Shape, ShapeSet
from dietlab.tuning.effort import Effort, effort_named
from dietlab.tuning.tune import tune

REPLAYED = replace(effort_named("quick"), name="replay", trials=64, batch=4, decisions=160, decision_batch=16)
"""The effort of replayed tunings: small rounds, so that a curve has many points."""

AS_GOOD = 0.97
"""The share of the final quality of tuning from nothing from which a quality counts as equally good."""


@dataclass(frozen=True)
class Curve:
    """The :func:`quality` of a replayed tuning from ``nothing`` or a ``prior`` after each round, by the
    number of measurements so far. With a prior, the first point has no measurements.
    """

    start: str
    seed: int
    measurements: tuple[int, ...]
    quality: tuple[float, ...]

    def reaches(self, quality: float) -> int | None:
        """Returns the number of measurements after which the curve first reaches ``quality``; None if it
        never does.
        """
        numbers = zip(self.measurements, self.quality, strict=True)
        return next((count for count, found in numbers if found >= quality), None)


@dataclass(frozen=True)
class Gain:
    """The savings by a prior with one ``seed``: the numbers of measurements ``from_nothing`` and
    ``from_prior`` until the quality is :data:`AS_GOOD` of the final quality from nothing (None if never).
    ``ends`` is the final quality from the prior over the final quality from nothing."""

    seed: int
    from_nothing: int
    from_prior: int | None
    ends: float


def transfer_curves(
    survey: Survey,
    shapes: Sequence[Shape],
    prior: Prior,
    seeds: Iterable[int] = range(5),
    effort: Effort = REPLAYED,
    model: str = "learned",
) -> list[Curve]:
    """Returns two curves for each seed, of tunings for some shapes of a survey: one from nothing and one from
    the prior.
    """
    wanted = set(shapes)
    known = [record for record in survey.first if record.shape in wanted]
    truth = [record for record in survey.truth if record.shape in wanted]
    if not known:
        names = ", ".join(map(str, shapes)) or "none"
        raise ModelError("a transfer can only be replayed on shapes of the survey", names)
    timing = replace(effort.timing, cache=survey.cache)
    chosen, even = replace(effort, timing=timing), ShapeSet.of(dict.fromkeys(sorted(wanted), 1.0))
    others = prior.other_processors(survey.space.hardware)
    found = []
    for seed in seeds:
        for start, given in (("nothing", None), ("prior", prior)):
            runner = ReplayRunner(known)
            run = tune(survey.space, even, runner, chosen, predictor=model, seed=seed, prior=given)
            predictor = with_prior(predictor_named(model, survey.cache, seed), given)
            rounds = [record.asked_by for record in run.records]
            ends = [at for at in range(1, len(rounds)) if rounds[at] != rounds[at - 1]] + [len(rounds)]
            points = ends if given is None or others else [0, *ends]
            fits = (fitted_by(predictor, survey.space, run.records[:end]) for end in points)
            found.append(Curve(start, seed, tuple(points), tuple(quality(fit, truth) for fit in fits)))
    return found


def gains(curves: Iterable[Curve]) -> list[Gain]:
    """Returns the savings by the prior, one entry for each seed."""
    by_seed: dict[int, dict[str, Curve]] = {}
    for curve in curves:
        by_seed.setdefault(curve.seed, {})[curve.start] = curve
    found = []
    for seed, pair in by_seed.items():
        nothing, prior = pair["nothing"], pair["prior"]
        enough = AS_GOOD * nothing.quality[-1]
        first = nothing.reaches(enough)
        assert first is not None
        found.append(Gain(seed, first, prior.reaches(enough), prior.quality[-1] / nothing.quality[-1]))
    return found


def quality(fitted: Fitted, truth: Sequence[Record]) -> float:
    """Returns the geometric mean, over shapes, of the fastest time over the time of the scheme that is
    expected to be fastest. A scheme's expected time is its prediction, raised by its doubt."""
    lost = []
    for shape, group in by_shape(truth).items():
        schemes = [record.scheme for record in group]
        expected = fitted.seconds(schemes, [shape]) * np.exp(fitted.doubt(schemes, [shape]))
        seconds = np.array([record.seconds or np.nan for record in group])
        lost.append(np.log(seconds[int(expected[:, 0].argmin())] / seconds.min()))
    return float(np.exp(-np.mean(lost)))

"""Compares search strategies on a survey, a space with all times known: the quality of the schemes that they
tried, over trials and over seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import DietlabError, RecordError, require_names
from dietlab.base.events import Event, Observer, RoundFinished, audience
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.statistics import Values, median_interval
from dietlab.cost import Adaptation, Analytic, LearnedPredictor, Survey
from dietlab.measure import CacheState, Record, ReplayRunner, SyntheticRunner, Trial
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space
from dietlab.tuning import STRATEGIES, Effort, TuningRun, effort_named, tune

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Surveyed:
    """A space with every scheme timed on every shape; ``records`` has one record for each pair of scheme and
    shape.
    """

    name: str
    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    cache: CacheState = "hot"

    def timed(self, effort: Effort) -> Effort:
        """Returns an effort that times in the survey's cache state."""
        return replace(effort, timing=replace(effort.timing, cache=self.cache))

    @cached_property
    def runner(self) -> ReplayRunner:
        return ReplayRunner(self.records)

    @cached_property
    def seconds(self) -> Values:
        """The seconds of a call, ``[schemes, shapes]``."""
        found = {(record.scheme, record.shape): record.seconds for record in self.records}
        return np.array([[found[s, shape] for shape in self.shapes] for s in self.space], np.float64)

    @cached_property
    def efficiency(self) -> Values:
        """The time of each shape's exhaustive optimum over the time of every scheme, ``[schemes,
        shapes]``."""
        return np.asarray(self.seconds.min(axis=0) / self.seconds)

    @cached_property
    def number(self) -> dict[Scheme, int]:
        """The index of each scheme's row in the tables."""
        return {scheme: number for number, scheme in enumerate(self.space)}

    @cached_property
    def compile_seconds(self) -> Mapping[Scheme, float]:
        """The seconds that building each scheme took, once for all of its shapes."""
        found: dict[Scheme, float] = {}
        for record in self.records:
            found[record.scheme] = max(found.get(record.scheme, 0.0), record.phases.compile)
        return found

    def chosen(self, numbers: npt.NDArray[np.intp]) -> float:
        """Returns the :meth:`quality` of a choice, which has the index of one scheme for each shape."""
        return self.quality(self.efficiency[numbers, range(len(numbers))])

    def quality(self, efficiencies: Values) -> float:
        """Returns the weighted geometric mean of efficiencies over the shapes; 1 if each shape has its
        optimum."""
        weights = np.array(self.shapes.weights)
        return float(np.exp(np.log(efficiencies) @ weights / weights.sum()))


def surveyed(survey: Survey, shapes: Iterable[Shape] = ()) -> Surveyed:
    """Returns a survey's schemes that have a time on every shape. A time is of all rounds together."""
    timed = {(record.scheme, record.shape): record for record in survey.truth}
    wanted = tuple(sorted(shapes)) or tuple(sorted({shape for _, shape in timed}))
    whole = [scheme for scheme in survey.space if all((scheme, shape) in timed for shape in wanted)]
    if not whole:
        found = f"{len(survey.space)} schemes and {len(wanted)} shapes"
        remedy = "Measure one with `dietlab survey`; a tuning's records have gaps."
        raise RecordError("a survey must have a scheme that was timed on every shape", found, remedy)
    space = survey.space.restricted_to(whole)
    records = tuple(timed[scheme, shape] for scheme in space for shape in wanted)
    return Surveyed(survey.name, space, ShapeSet.of(dict.fromkeys(wanted, 1.0)), records, survey.cache)


def synthetic_survey(space: Space, shapes: Sequence[Shape], noise: float = 0.02, seed: int = 0) -> Surveyed:
    """Returns the survey of a simple machine, for tests and for playing: its times are no result."""
    runner = SyntheticRunner(space.hardware, noise, seed)
    trials = [Trial(scheme, tuple(shapes)) for scheme in space]
    records = tuple(runner.measure(space.workload, trials))
    return Surveyed("synthetic", space, ShapeSet.of(dict.fromkeys(shapes, 1.0)), records)


# --- strategies -------------------------------------------------------------------------------


TARGET = 0.97
"""The share of the exhaustive optimum that a strategy is to reach."""


@dataclass(frozen=True)
class Rival:
    """A strategy, the adaptation cost of its model, and whether its rounds are proposed ahead."""

    strategy: str
    adaptation: Adaptation = "streamed"
    ahead: bool = False


VARIANTS: Mapping[str, Rival] = {
    "draft ahead": Rival("draft", ahead=True),
    "paper, its own model": Rival("paper", "paper"),
}
"""Variants of strategies: the default with rounds proposed ahead, as for several devices; and the paper's
strategy with the paper's adaptation cost."""


def rivals(strategies: Sequence[str] = ()) -> dict[str, Rival]:
    """Returns all rivals that can take part: every strategy with the same model, and :data:`VARIANTS`."""
    STRATEGIES.take(strategies)
    return {**{name: Rival(name) for name in STRATEGIES}, **VARIANTS}


@dataclass(frozen=True)
class Course:
    """One run of a strategy, a name among :func:`rivals`.

    Args:
        quality: the quality after each trial: the mean share of the exhaustive optimum that the best tried
            scheme of each shape reaches, by surveyed times.
        seconds: the seconds after each trial: the recorded seconds of building and timing, plus this run's
            seconds of model and search.
        chosen: the quality, at the end, of the schemes that the fitted model chooses among the tried schemes.
    """

    strategy: str
    seed: int
    quality: tuple[float, ...]
    seconds: tuple[float, ...]
    chosen: float

    def trials_to(self, target: float = TARGET) -> float:
        """Returns the number of trials after which the quality is at least ``target``; infinite if it never
        is.
        """
        return next((n for n, quality in enumerate(self.quality, 1) if quality >= target), math.inf)

    def seconds_to(self, target: float = TARGET) -> float:
        """Returns the seconds after which the quality is at least ``target``; infinite if it never is."""
        trials = self.trials_to(target)
        return math.inf if math.isinf(trials) else self.seconds[int(trials) - 1]


@dataclass(frozen=True)
class Comparison:
    """The runs of strategies on one survey, over several seeds: each strategy's runs one after the other.
    ``analytic`` is the quality of the schemes that the draft alone chooses, without a measurement."""

    survey: str
    analytic: float
    courses: tuple[Course, ...]

    def of(self, strategy: str) -> list[Course]:
        return [course for course in self.courses if course.strategy == strategy]

    @property
    def strategies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(course.strategy for course in self.courses))

    def summary(self, target: float = TARGET) -> pd.DataFrame:
        """Returns a row for each strategy. ``trials`` and ``seconds`` to the target are medians over the
        seeds; ``trials`` has a 95 % bootstrap interval. A run that never reaches the target counts one trial
        more than the budget, and all its seconds. ``times_random`` is ``trials`` over the ``trials`` of
        random search, and ``reached`` is the share of seeds that reach the target. ``quality`` and ``chosen``
        are means at the end."""
        import pandas as pd

        rows = [self._row(name, target) for name in self.strategies]
        found = pd.DataFrame(sorted(rows, key=lambda row: (row["trials"], -row["quality"])))
        random = found.loc[found["strategy"] == "random", "trials"]
        found.insert(5, "times_random", found["trials"] / (random.iloc[0] if len(random) else math.nan))
        return found

    def _row(self, name: str, target: float) -> dict[str, Any]:
        courses = self.of(name)
        trials = median_interval([min(c.trials_to(target), 1.0 + len(c.quality)) for c in courses])
        return {
            "strategy": name,
            "seeds": len(courses),
            "trials": trials.median,
            "trials_low": trials.low,
            "trials_high": trials.high,
            "reached": sum(course.trials_to(target) < math.inf for course in courses) / len(courses),
            "seconds": float(np.median([min(c.seconds_to(target), c.seconds[-1]) for c in courses])),
            "quality": float(np.mean([course.quality[-1] for course in courses])),
            "chosen": float(np.mean([course.chosen for course in courses])),
        }

    def bands(self, x: str = "trials") -> pd.DataFrame:
        """Returns the median, lowest and highest quality of each strategy over ``trials`` or ``seconds``."""
        import pandas as pd

        if x == "trials":
            places = [float(n) for n in range(1, 1 + max(len(course.quality) for course in self.courses))]
        else:
            first = min(course.seconds[0] for course in self.courses)
            places = list(np.geomspace(first, max(course.seconds[-1] for course in self.courses), 100))
        rows = []
        for name in self.strategies:
            courses = self.of(name)
            for place in places:
                found = [quality for course in courses if (quality := _at(course, x, place)) is not None]
                if len(found) == len(courses):
                    rows.append((name, place, float(np.median(found)), min(found), max(found)))
        return pd.DataFrame(rows, columns=["strategy", x, "median", "low", "high"])

    def to_frame(self) -> pd.DataFrame:
        """Returns one row for each trial: ``strategy``, ``seed``, ``trials``, ``quality``, ``seconds``."""
        import pandas as pd

        rows = [
            (course.strategy, course.seed, trials, *found)
            for course in self.courses
            for trials, found in enumerate(zip(course.quality, course.seconds, strict=True), 1)
        ]
        return pd.DataFrame(rows, columns=["strategy", "seed", "trials", "quality", "seconds"])


def _at(course: Course, x: str, place: float) -> float | None:
    """Returns the quality after some trials or seconds; None before the first."""
    passed = int(place if x == "trials" else np.searchsorted(course.seconds, place, side="right"))
    return course.quality[min(passed, len(course.quality)) - 1] if passed else None


@dataclass
class RoundClock:
    """An observer that records the seconds of model and search up to the end of each round."""

    thinking: list[float] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.thinking.append(event.seconds.model + event.seconds.search)


def compare_strategies(
    survey: Surveyed,
    strategies: Sequence[str] | None = None,
    seeds: Iterable[int] = range(5),
    effort: str | Effort = "quick",
    observers: Iterable[Observer] = (),
) -> Comparison:
    """Runs the search of each strategy (default: all known strategies) on a survey with each seed, in turns,
    without hardware. All searches have the same budget of trials, the same rounds and, unless a strategy's
    name says otherwise, the same model. No deciding measurements follow the search.
    """
    known = rivals(strategies or ())
    strategies = tuple(known) if strategies is None else strategies
    require_names("strategies", known, strategies, DietlabError, at_least=1)
    chosen = replace(survey.timed(effort_named(effort)), decisions=0)
    turns = [(name, seed) for seed in seeds for name in strategies]
    courses: list[Course] = []
    with audience(observers).stage("compare", len(turns), "run") as progress:
        for name, seed in turns:
            courses.append(_course(survey, name, known[name], seed, chosen))
            progress.advance(name)
    courses.sort(key=lambda course: (strategies.index(course.strategy), course.seed))
    return Comparison(survey.name, analytic_quality(survey), tuple(courses))


def _course(survey: Surveyed, name: str, rival: Rival, seed: int, effort: Effort) -> Course:
    clock, predictor = RoundClock(), LearnedPredictor(rival.adaptation, survey.cache, seed)
    task = survey.space, survey.shapes, survey.runner, effort, rival.strategy, [clock]
    run = tune(*task, predictor=predictor, seed=seed, ahead=rival.ahead)
    best, quality, seconds = np.zeros(len(survey.shapes)), list[float](), list[float]()
    for scheme, spent in _spent(survey, run, clock):
        best = np.maximum(best, survey.efficiency[survey.number[scheme]])
        quality.append(survey.quality(best))
        seconds.append(spent)
    places = run.seconds_table(run.schemes, survey.shapes.shapes).argmin(axis=0)
    chosen = survey.chosen(np.array([survey.number[run.schemes[place]] for place in places]))
    return Course(name, seed, tuple(quality), tuple(seconds), chosen)


def _spent(survey: Surveyed, run: TuningRun, clock: RoundClock) -> Iterable[tuple[Any, float]]:
    """Yields each scheme at its first trial, with all seconds up to then."""
    recorded, seen = 0.0, set()
    rounds = groupby(run.records, lambda record: record.asked_by)
    for thinking, (_, records) in zip(clock.thinking, rounds, strict=True):
        for record in records:
            recorded += record.phases.verify + record.phases.measure
            if record.scheme not in seen:
                seen.add(record.scheme)
                recorded += survey.compile_seconds[record.scheme]
                yield record.scheme, recorded + thinking


def analytic_quality(survey: Surveyed) -> float:
    """Returns the quality of the schemes that the analytic draft chooses, without a measurement."""
    predicted = Analytic.of(survey.space, survey.cache).seconds(survey.space.schemes, survey.shapes.shapes)
    return survey.chosen(predicted.argmin(axis=0))


def save_comparison(comparison: Comparison, path: str | Path) -> None:
    """Writes a comparison as JSON, to be kept and drawn again: shares to five digits, seconds to three."""
    value = asdict(comparison)
    for course in value["courses"]:
        course["quality"] = [round(quality, 5) for quality in course["quality"]]
        course["seconds"] = [round(seconds, 3) for seconds in course["seconds"]]
    write_json(Path(path), value, indent=None)


def load_comparison(path: str | Path) -> Comparison:
    """Returns the comparison in a file that :func:`save_comparison` wrote."""
    with reading(DietlabError, "a comparison must be a file of `dietlab compare --out`", path):
        value = read_json(path)
        for one in value["courses"]:
            one |= {name: tuple(one[name]) for name in ("quality", "seconds")}
        return Comparison(
            value["survey"], value["analytic"], tuple(Course(**one) for one in value["courses"])
        )

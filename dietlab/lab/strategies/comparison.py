"""Compares search strategies on a survey: how good what they tried is, against trials and against seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import DietlabError, require_names
from dietlab.base.events import Event, Observer, RoundFinished, audience
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.statistics import median_interval
from dietlab.cost import Adaptation, Analytic, LearnedPredictor
from dietlab.lab.strategies.surveyed import Surveyed
from dietlab.tuning import STRATEGIES, Effort, TuningRun, effort_named, tune

if TYPE_CHECKING:
    import pandas as pd

TARGET = 0.97
"""The share of the exhaustive optimum that a strategy is to reach."""


@dataclass(frozen=True)
class Rival:
    """A strategy that takes part, the adaptation cost of its model, and whether its rounds are proposed
    ahead."""

    strategy: str
    adaptation: Adaptation = "streamed"
    ahead: bool = False


VARIANTS: Mapping[str, Rival] = {
    "draft ahead": Rival("draft", ahead=True),
    "paper, its own model": Rival("paper", "paper"),
}
"""The default as several devices have it, and the paper's with the paper's adaptation cost."""


def rivals(strategies: Sequence[str] = ()) -> dict[str, Rival]:
    """Returns who can take part: every strategy with the same model, and :data:`VARIANTS`.

    Args:
        strategies: names that a person gave; ``MODULE:NAME`` is imported, and takes part.

    Raises:
        SpaceError: if it cannot be imported, or is no strategy.
    """
    STRATEGIES.take(strategies)
    return {**{name: Rival(name) for name in STRATEGIES}, **VARIANTS}


@dataclass(frozen=True)
class Course:
    """One run of a strategy: what its trials had come to after each of them.

    Args:
        strategy: its name among :func:`rivals`.
        seed: of the run.
        quality: after each trial, of the best tried scheme of each shape: the mean share of the exhaustive
            optimum, as it was surveyed.
        seconds: after each trial: recorded ones of building and timing, and the model's and the search's of
            this run.
        chosen: the quality of the schemes that the fitted model would choose among those tried, at the end.
    """

    strategy: str
    seed: int
    quality: tuple[float, ...]
    seconds: tuple[float, ...]
    chosen: float

    def trials_to(self, target: float = TARGET) -> float:
        """Returns the trials after which the quality is at least ``target``; infinite if it never was."""
        return next((n for n, quality in enumerate(self.quality, 1) if quality >= target), math.inf)

    def seconds_to(self, target: float = TARGET) -> float:
        """Returns the seconds after which the quality is at least ``target``; infinite if it never was."""
        trials = self.trials_to(target)
        return math.inf if math.isinf(trials) else self.seconds[int(trials) - 1]


@dataclass(frozen=True)
class Comparison:
    """Strategies on one survey, over several seeds.

    Args:
        survey: its name.
        analytic: the quality of what the draft alone chooses, without a measurement.
        courses: each strategy's runs, one after the other.
    """

    survey: str
    analytic: float
    courses: tuple[Course, ...]

    def of(self, strategy: str) -> list[Course]:
        return [course for course in self.courses if course.strategy == strategy]

    @property
    def strategies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(course.strategy for course in self.courses))

    def summary(self, target: float = TARGET) -> pd.DataFrame:
        """Returns a table with one row a strategy.

        ``trials`` to the target and ``seconds`` are medians over the seeds, ``trials_low`` and
        ``trials_high`` the 95 % bootstrap interval of the median; one more than the budget stands for a run
        that never came there. ``times_random`` is that median over random search's: at 0.5 half as many
        trials are enough. ``reached`` is the
        share of seeds that came to the target, ``quality`` and ``chosen`` means at the end.
        """
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
        """Returns the quality over ``trials`` or ``seconds``: for each strategy its median over the seeds and
        the lowest and highest of them, at every trial or at a hundred moments."""
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
        """Returns a table with one row a trial: ``strategy``, ``seed``, ``trials``, ``quality``,
        ``seconds``."""
        import pandas as pd

        rows = [
            (course.strategy, course.seed, trials, *found)
            for course in self.courses
            for trials, found in enumerate(zip(course.quality, course.seconds, strict=True), 1)
        ]
        return pd.DataFrame(rows, columns=["strategy", "seed", "trials", "quality", "seconds"])


def _at(course: Course, x: str, place: float) -> float | None:
    """Returns the quality after some trials or seconds; None before the first."""
    passed = int(place) if x == "trials" else int(np.searchsorted(course.seconds, place, side="right"))
    return course.quality[min(passed, len(course.quality)) - 1] if passed else None


@dataclass
class RoundClock:
    """An observer that keeps what each round of a tuning took."""

    thinking: list[float] = field(default_factory=list)
    """The seconds of model and search until the end of each round."""

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
    """Runs the search of each strategy on a survey with each seed, in turns, without hardware.

    All have the same budget of trials and the same rounds, and the same model but where its name says
    otherwise; nothing is decided after the search.

    Args:
        survey: every scheme of it was measured on every shape.
        strategies: names of :func:`rivals`, or ``MODULE:NAME`` (None: all that are known).
        seeds: a run of each strategy for each.
        effort: a preset, or its name: the trials of each run.
        observers: get each event as it happens.

    Raises:
        DietlabError: if there is no strategy of such a name.
        MissingDependencyError: if a strategy's package is not installed.
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
    best = np.zeros(len(survey.shapes))
    quality, seconds = [], []
    for scheme, spent in _spent(survey, run, clock):
        best = np.maximum(best, survey.efficiency[survey.number[scheme]])
        quality.append(survey.quality(best))
        seconds.append(spent)
    return Course(name, seed, tuple(quality), tuple(seconds), _chosen(survey, run))


def _spent(survey: Surveyed, run: TuningRun, clock: RoundClock) -> Iterable[tuple[Any, float]]:
    """Yields each scheme when it was tried first, and all seconds until then."""
    recorded, seen = 0.0, set()
    rounds = groupby(run.records, lambda record: record.asked_by)
    for thinking, (_, records) in zip(clock.thinking, rounds, strict=True):
        for record in records:
            recorded += record.phases.verify + record.phases.measure
            if record.scheme not in seen:
                seen.add(record.scheme)
                recorded += survey.compile_seconds[record.scheme]
                yield record.scheme, recorded + thinking


def _chosen(survey: Surveyed, run: TuningRun) -> float:
    """Returns the quality of what the run's model would choose among the schemes tried."""
    best = run.seconds_table(run.schemes, survey.shapes.shapes).argmin(axis=0)
    return survey.chosen(np.array([survey.number[run.schemes[place]] for place in best]))


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
    """Returns what :func:`save_comparison` wrote.

    Raises:
        DietlabError: if it is no such file.
    """
    with reading(DietlabError, "a comparison is a file of `dietlab compare --out`", path):
        value = read_json(path)
        courses = (
            Course(**{**one, "quality": tuple(one["quality"]), "seconds": tuple(one["seconds"])})
            for one in value["courses"]
        )
        return Comparison(value["survey"], value["analytic"], tuple(courses))

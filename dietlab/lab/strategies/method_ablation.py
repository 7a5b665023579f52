"""Ablates the method on a survey: the loss of the choices for all shapes without one of the method's
parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import DietlabError
from dietlab.base.events import Observer, audience
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.statistics import mean_interval
from dietlab.cost import Analytic, Known, LearnedPredictor
from dietlab.lab.strategies.comparison import Surveyed
from dietlab.lab.strategies.fleet import (
    AHEAD,
    WAITS,
    Costs,
    Priced,
    RoundWork,
    Tunings,
    tunings_from_json,
    tunings_to_json,
    worked,
)
from dietlab.problem import Shape, ShapeSet, extents
from dietlab.tuning import Effort, Tuner, choose_portfolio, effort_named, train_dispatcher
from dietlab.tuning.strategies.registry import strategy_named

if TYPE_CHECKING:
    import pandas as pd

Numbers = npt.NDArray[np.intp]

MOST = 8
"""The most micro-kernels of the whole library."""

SIZES = (1, 2, 4)
"""The most micro-kernels of each smaller library."""


@dataclass(frozen=True)
class Lost:
    """The worth of one part. ``ratios`` has, for each seed, the time without the part over the time with it,
    a geometric mean over the judged ``shapes``: ``all`` shapes, the ``tuned`` shapes, or the shapes ``held
    out``."""

    without: str
    instead: str
    shapes: str
    ratios: tuple[float, ...]


@dataclass(frozen=True)
class MethodAblation:
    """The parts of the method on one survey. For each seed, ``quality`` is the mean share of the exhaustive
    optimum that the whole method reaches. ``tunings`` has the work of its rounds, for fleets of devices."""

    survey: str
    quality: tuple[float, ...]
    parts: tuple[Lost, ...]
    tunings: Tunings = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """Returns a row for each part: the mean ``ratio`` over the seeds and its 95 % bootstrap interval."""
        import pandas as pd

        rows = []
        for part in self.parts:
            logs = np.log(part.ratios)
            found = np.exp([logs.mean(), *mean_interval(logs)]).tolist()
            rows.append((part.without, part.instead, part.shapes, *found, len(part.ratios)))
        return pd.DataFrame(rows, columns=["without", "instead", "shapes", "ratio", "low", "high", "seeds"])

    def save(self, path: str | Path) -> None:
        value = asdict(replace(self, tunings={}))
        write_json(Path(path), {**value, "tunings": tunings_to_json(self.tunings)}, indent=None)

    @classmethod
    def load(cls, path: str | Path) -> MethodAblation:
        """Returns the ablation that :meth:`save` wrote, with seconds to three digits."""
        with reading(DietlabError, "an ablation must be a file of `dietlab ablate --out`", path):
            value = read_json(path)
            parts = (Lost(**{**part, "ratios": tuple(part["ratios"])}) for part in value["parts"])
            tunings = tunings_from_json(value["tunings"])
            return cls(value["survey"], tuple(value["quality"]), tuple(parts), tunings)


@dataclass(frozen=True)
class Whole:
    """The whole method with one seed, tuned for every second shape of a survey. Each rule below returns the
    indices of the schemes that it takes for the survey's shapes, ``[shapes]``.
    """

    survey: Surveyed
    tuned: ShapeSet
    run: Known
    seed: int

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return self.survey.shapes.shapes

    def tree(self, max_kernels: int = MOST) -> Numbers:
        """Returns the choice of the library's decision tree."""
        dispatcher = train_dispatcher(choose_portfolio(self.run, self.tuned, max_kernels), self.tuned)
        return np.array([self.survey.number[dispatcher.scheme(shape)] for shape in self.shapes])

    def nearest(self, chosen: Numbers) -> Numbers:
        """Returns, for every shape, the scheme of ``chosen`` for the nearest tuned shape, by logarithms of
        extents."""
        places = {shape: np.log([max(1, extent) for _, extent in shape.bindings]) for shape in self.shapes}
        columns = [column for column, shape in enumerate(self.shapes) if shape in set(self.tuned)]

        def near(shape: Shape) -> int:
            apart = [float(np.abs(places[self.shapes[c]] - places[shape]).sum()) for c in columns]
            return columns[int(np.argmin(apart))]

        return np.array([chosen[near(shape)] for shape in self.shapes])

    def separate(self) -> Numbers:
        """Returns the choice if each tuned shape is tuned by itself, with an equal part of the run's
        measurements. For each, schemes are drawn at random; the fastest serves that shape and all shapes
        nearest to it.
        """
        random, part = Random(self.seed), max(1, len(self.run.records) // len(self.tuned))
        found = np.zeros(len(self.shapes), np.intp)
        for shape in self.tuned:
            drawn = random.sample(range(len(self.survey.space)), min(part, len(self.survey.space)))
            column = self.shapes.index(shape)
            found[column] = min(drawn, key=lambda number: self.survey.seconds[number, column])
        return self.nearest(found)

    def divisors(self) -> Numbers:
        """Returns, for every shape, the best scheme whose tile divides the shape's output; -1 where there is
        none.
        """
        sizes = [extents(self.survey.space.workload, shape) for shape in self.shapes]
        divides = [
            [s["rows"] % one.rows == s["cols"] % one.cols == 0 for s in sizes] for one in self.survey.space
        ]
        fits = np.array(divides)
        best = np.where(fits, self.survey.efficiency, 0.0)
        return np.where(fits.any(axis=0), best.argmax(axis=0), -1)

    def optimum(self) -> Numbers:
        """Returns, for every shape, the best scheme of all."""
        return np.asarray(self.survey.efficiency.argmax(axis=0))

    def ratio(self, without: Numbers, whole: Numbers, judged: str = "all") -> float:
        """Returns the time of one choice over the time of another, as a geometric mean over the judged shapes
        that both serve.
        """
        tuned, efficiency = set(self.tuned), self.survey.efficiency
        wanted = {"all": (True, False), "tuned": (True,), "held out": (False,)}[judged]
        judged_too = [(shape in tuned) in wanted for shape in self.shapes]
        columns = np.flatnonzero(judged_too & (without >= 0))
        logs = [np.log(efficiency[whole[c], c] / efficiency[without[c], c]) for c in columns]
        return float(np.exp(np.mean(logs)))


def parts_of(whole: Whole, ahead: Whole) -> Mapping[tuple[str, str, str], float]:
    """Returns the worth of each part with one seed. Keys consist of the removed part, its replacement and the
    judged shapes. ``ahead`` is the whole method with rounds proposed ahead.
    """
    survey, shapes, run = whole.survey, whole.shapes, whole.run
    schemes = survey.space.schemes
    model = run.seconds_table(schemes, shapes).argmin(axis=0)
    draft = Analytic.of(survey.space, survey.cache).seconds(schemes, shapes).argmin(axis=0)
    highest = np.full(len(shapes), run.model.throughput(schemes).argmax())
    tree, separate, optimum = whole.tree(), whole.separate(), whole.optimum()
    choices = {
        ("micro-kernels for every shape", "the best divisor", "all"): (whole.divisors(), optimum),
        ("adaptation cost", "the highest throughput", "all"): (highest, model),
        ("learned model", "the analytic draft", "all"): (draft, model),
        ("joint measurement", "each shape by itself", "tuned"): (separate, tree),
        ("joint measurement", "each shape by itself", "held out"): (separate, tree),
        ("decision tree", "the nearest tuned shape", "held out"): (whole.nearest(tree), tree),
        ("waiting for each round", AHEAD, "all"): (ahead.tree(), tree),
    }
    for size in SIZES:
        choices[f"{MOST} micro-kernels", f"{size} at most", "all"] = whole.tree(size), tree
    return {part: whole.ratio(*pair, judged=part[2]) for part, pair in choices.items()}


def ablate_method(
    survey: Surveyed,
    seeds: Iterable[int] = range(5),
    effort: str | Effort = "quick",
    observers: Iterable[Observer] = (),
) -> MethodAblation:
    """Returns the worth of every part of the method, which is tuned for every second shape of a survey and
    judged on all shapes.
    """
    chosen = survey.timed(effort_named(effort))
    tuned = ShapeSet.of(dict.fromkeys(survey.shapes.shapes[::2], 1.0))
    ratios: dict[tuple[str, str, str], list[float]] = {}
    tunings: dict[str, list[tuple[RoundWork, ...]]] = {WAITS: [], AHEAD: []}
    quality, seeds = [], tuple(seeds)
    with audience(observers).stage("ablate", len(seeds), "seed") as progress:
        for seed in seeds:
            wholes = []
            for way, rounds in tunings.items():
                whole, work = _tuned(survey, tuned, chosen, seed, ahead=way == AHEAD)
                wholes.append(whole)
                rounds.append(work)
            quality.append(survey.chosen(wholes[0].tree()))
            for part, ratio in parts_of(*wholes).items():
                ratios.setdefault(part, []).append(ratio)
            progress.advance(f"seed {seed}")
    parts = tuple(Lost(*part, tuple(found)) for part, found in ratios.items())
    return MethodAblation(survey.name, tuple(quality), parts, tunings)


def _tuned(
    survey: Surveyed, tuned: ShapeSet, effort: Effort, seed: int, *, ahead: bool
) -> tuple[Whole, tuple[RoundWork, ...]]:
    """Tunes with one seed. Returns two values: the tuned method, and the work of its rounds."""
    predictor, draft = LearnedPredictor(cache=survey.cache, seed=seed), strategy_named("draft")
    pairs = survey.runner.pairs
    first = Tuner(survey.space, tuned, effort, draft, predictor, seed=seed, measurable=pairs)
    tuner, rounds = worked(first, Priced(survey.runner, mean_costs(survey)), ahead=ahead)
    return Whole(survey, tuned, tuner.known, seed), rounds


def mean_costs(survey: Surveyed) -> Costs:
    """Returns the mean seconds of a survey's measurements: to build, to check and to time."""
    phases = [record.phases for record in survey.records]
    build = fmean(survey.compile_seconds.values())
    return Costs(build, fmean(each.verify for each in phases), fmean(each.measure for each in phases))

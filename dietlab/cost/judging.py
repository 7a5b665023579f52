"""Judges cost models on held-out measurements, for several numbers of measurements to fit on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.errors import ModelError, require_names
from dietlab.base.statistics import mean_interval
from dietlab.cost.boosted import Boosted
from dietlab.cost.metrics import mean_metrics, ranking_metrics
from dietlab.cost.predictor import Analytic, Fitted, fitted_by
from dietlab.cost.registry import COST_MODELS, predictor_named
from dietlab.measure import CacheState, Record, RecordFile, Round, read_records
from dietlab.measure.record import DECIDE, by_shape
from dietlab.problem import Shape, extents
from dietlab.scheme import Scheme, Space, build_space

if TYPE_CHECKING:
    import pandas as pd

SPLITS: Mapping[str, str] = {
    "pairs": "random pairs of a scheme and a shape",
    "kernels": "a fifth of the micro-kernels, on every shape",
    "shapes": "a quarter of the shapes, with every micro-kernel",
    "layers": "one layer after the other: a size of the weights, at every length",
}
"""The ways to hold measurements out, by name."""

OF_KERNELS = 0.2
"""The share of micro-kernels that is held out."""

OF_SHAPES = 0.25
"""The share of shapes that is held out."""

AGAIN = "measured again"
"""The name of a second measurement among the models."""

DEVIATIONS = 2.0
"""The least difference of two measured times that counts, in standard deviations of the difference."""


@dataclass(frozen=True)
class Survey:
    """The measured pairs of one operator on one processor.

    Args:
        name: the name of the file.
        space: the schemes that were measured.
        cache: the cache state in which a call found its operands.
        first: one record of each pair, from the first round that measured the pair. Models are fitted on
            these records.
        truth: one record of each pair, averaged over all rounds, with its noise as ``spread``. Models are
            judged by these records.
        again: one record of each pair that several rounds measured, from the last of these rounds, in the
            order of ``first``.
    """

    name: str
    space: Space
    cache: CacheState
    first: tuple[Record, ...]
    truth: tuple[Record, ...]
    again: tuple[Record, ...] = ()

    @classmethod
    def of(cls, file: RecordFile, name: str = "") -> Survey:
        """Returns the survey of the successfully measured pairs of a file.

        Raises:
            ModelError: if no pair was measured successfully.
        """
        rounds: dict[tuple[Scheme, Shape], dict[Round | None, Record]] = {}
        for record in file.records:
            if record.ok and record.seconds:
                rounds.setdefault((record.scheme, record.shape), {}).setdefault(record.asked_by, record)
        if not rounds:
            raise ModelError("judging a cost model needs successful records", f"none in {name or 'the file'}")
        edges = sorted({scheme.edge for scheme, _ in rounds})
        whole = build_space(file.workload, file.hardware, edges)
        # Deciding also measures lower tiles that are not in the space, if several tiles cover the rows.
        decided = {pair for pair, found in rounds.items() if all(r and r.stage == DECIDE for r in found)}
        rounds = {pair: found for pair, found in rounds.items() if pair not in decided or pair[0] in whole}
        space = whole.restricted_to({scheme for scheme, _ in rounds})
        first = tuple(next(iter(found.values())) for found in rounds.values())
        last = tuple(list(found.values())[-1] for found in rounds.values() if len(found) > 1)
        return cls(name, space, file.header.get("cache", "hot"), first, tuple(_settled(rounds)), last)

    @classmethod
    def load(cls, path: str | Path) -> Survey:
        """Reads a file of records. The survey is named after the file or, if that is ``records.jsonl``, after
        its folder."""
        name = Path(path).name.partition(".")[0]
        return cls.of(read_records(path), Path(path).parent.name if name == "records" else name)

    def layer_of(self, shape: Shape) -> tuple[int, int]:
        """Returns the number of columns and the depth of the weights of a shape's layer."""
        sizes = extents(self.space.workload, shape)
        return sizes["cols"], sizes["depth"]

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The number of columns and the depth of the weights of each measured layer, ascending."""
        return tuple(sorted({self.layer_of(record.shape) for record in self.truth}))

    def held_out(self, split: str, seed: int) -> Callable[[Record], bool] | None:
        """Returns a predicate that is true for the held-out records of a split; None if the survey has none.

        ``pairs`` holds nothing out beforehand: a model is judged by all pairs outside its fit.
        """
        random = np.random.default_rng((seed, sorted(SPLITS).index(split)))
        if split == "pairs":
            return lambda record: False
        if split == "kernels":
            kernels = _part(random, sorted({r.scheme.kernel for r in self.truth}), OF_KERNELS)
            return lambda record: record.scheme.kernel in kernels
        if split == "shapes":
            shapes = _part(random, sorted({r.shape for r in self.truth}), OF_SHAPES)
            return lambda record: record.shape in shapes
        if len(self.layers) < 2 or "N" not in self.space.workload.dims:
            return None
        left = self.layers[seed % len(self.layers)]
        return lambda record: self.layer_of(record.shape) == left


def _part(random: np.random.Generator, values: Sequence[object], share: float) -> set[object]:
    chosen = random.permutation(len(values))[: max(1, round(share * len(values)))]
    return {values[number] for number in chosen}


def _settled(rounds: Mapping[tuple[Scheme, Shape], Mapping[Round | None, Record]]) -> Iterator[Record]:
    """Yields one record of each pair: the geometric mean over its rounds, each time divided by the slowness
    of its round on the shape. Differences between rounds give the noise of one round on the shape. A record's
    noise is that noise divided by the square root of its number of rounds. On a shape with a single round,
    the noise is the spread of the blocks."""
    of_shapes: dict[Shape, list[tuple[Scheme, Mapping[Round | None, Record]]]] = {}
    for (scheme, shape), found in rounds.items():
        of_shapes.setdefault(shape, []).append((scheme, found))
    for pairs in of_shapes.values():
        names = sorted({name for _, found in pairs for name in found}, key=str)
        logs = np.full((len(pairs), len(names)), np.nan)
        for row, (_, found) in enumerate(pairs):
            for name, record in found.items():
                logs[row, names.index(name)] = np.log(record.seconds or np.nan)
        whole = logs[~np.isnan(logs).any(axis=1)]
        middle = whole.mean(axis=1, keepdims=True) if len(whole) else np.zeros((1, 1))
        slow = np.median(whole - middle, axis=0) if len(whole) else np.zeros(len(names))
        several = len(names) > 1 and len(whole) > 1
        noise = float(np.sqrt(np.mean((whole - middle - slow).var(axis=1, ddof=1)))) if several else None
        for (_, found), row in zip(pairs, logs - slow, strict=True):
            record = next(iter(found.values()))
            apart = record.spread
            if noise is not None:
                apart = float(np.expm1(DEVIATIONS * sqrt(2) * noise / sqrt(len(found))))
            yield replace(record, seconds=float(np.exp(np.nanmean(row))), spread=apart)


@dataclass(frozen=True)
class Judgement:
    """The quality of one model's predictions of measurements that it was not fitted on.

    Args:
        survey, model, split: the names of the survey, the model and the split.
        seed: the seed of the random draws.
        fitted_on: the number of measurements that the model was fitted on.
        metrics: the metrics of :func:`~dietlab.cost.metrics.ranking_metrics`, as means over shapes;
            ``fit_seconds``; and ``inside`` 1 and 2, the shares of held-out times within one and two standard
            deviations of the prediction (0.68 and 0.95 if errors are normal).
    """

    survey: str
    model: str
    split: str
    seed: int
    fitted_on: int
    metrics: Mapping[str, float]


def judge(
    surveys: Iterable[Survey],
    models: Sequence[str] | None = None,
    splits: Sequence[str] = tuple(SPLITS),
    told: Sequence[int] = (400,),
    seeds: int = 5,
) -> list[Judgement]:
    """Returns a judgement for each survey, split, number of measurements, seed and model.

    A model is fitted on a random draw of pairs that are not held out, one measurement each. If every pair was
    measured in several rounds, the model ``measured again`` predicts the last round by the first one.

    Args:
        surveys: the surveys, each of which is a task for the models.
        models: the names of cost models: keys of :data:`COST_MODELS` or ``MODULE:NAME`` (None: all known
            models).
        splits: the ways to hold measurements out, as names of :data:`SPLITS`.
        told: the numbers of measurements to fit on. Each number is judged separately.
        seeds: the number of random draws for each judgement; seeds are numbered from 0.

    Raises:
        ModelError: for an unknown model or split.
    """
    models = tuple(COST_MODELS) if models is None else models
    COST_MODELS.take(models)
    require_names("cost models", COST_MODELS, models, ModelError, at_least=1)
    require_names("splits", SPLITS, splits, ModelError, at_least=1)
    found = []
    for survey in surveys:
        if "pairs" in splits and len(survey.again) == len(survey.first):
            metrics = measured_again(survey)
            found.append(Judgement(survey.name, AGAIN, "pairs", 0, len(survey.first), metrics))
        for split in splits:
            for seed in range(seeds):
                held_out = survey.held_out(split, seed)
                if held_out is None:
                    continue
                for count in told:
                    train, test = divided(survey, held_out, count, seed)
                    for model in models:
                        fitted, took = _fitted(survey, model, train, seed)
                        metrics = judged_by(fitted, test) | took
                        found.append(Judgement(survey.name, model, split, seed, len(train), metrics))
    return found


def measured_again(survey: Survey) -> dict[str, float]:
    """Returns the metrics of a survey's first round as a prediction of the last round. Both are scaled to
    equal levels on each shape."""
    noise = {(record.scheme, record.shape): record.spread for record in survey.truth}
    of_shapes: dict[Shape, list[tuple[Record, Record]]] = {}
    for pair in zip(survey.first, survey.again, strict=True):
        of_shapes.setdefault(pair[0].shape, []).append(pair)
    rows = []
    for pairs in of_shapes.values():
        first, last = (np.array([pair[at].seconds or np.nan for pair in pairs]) for at in (0, 1))
        level = float(np.median(last / first))
        rows.append(ranking_metrics(first * level, last, [noise[r.scheme, r.shape] for r, _ in pairs]))
    return mean_metrics(rows)


def judge_operator(
    source: Survey, survey: Survey, models: Sequence[str], told: Sequence[int] = (400,), seeds: int = 5
) -> list[Judgement]:
    """Returns judgements, on ``survey``, of models that were fitted on ``source``, the survey of another
    operator or processor. Only ``analytic`` and the boosted models can predict such a survey; other models
    are left out."""
    COST_MODELS.take(models)
    require_names("cost models", COST_MODELS, models, ModelError, at_least=1)
    found = []
    for seed in range(seeds):
        for count in told:
            order = np.random.default_rng(seed).permutation(len(source.first))[:count]
            train = [source.first[number] for number in order]
            for model in models:
                fitted, took = _fitted(source, model, train, seed)
                if isinstance(fitted, (Analytic, Boosted)):
                    metrics = judged_by(fitted.on(survey.space), survey.truth) | took
                    split = f"operator, from {source.name}"
                    found.append(Judgement(survey.name, model, split, seed, len(train), metrics))
    if not found:
        raise ModelError("a cost model of the list must predict another operator", ", ".join(models))
    return found


def divided(
    survey: Survey, held_out: Callable[[Record], bool], count: int, seed: int
) -> tuple[list[Record], list[Record]]:
    """Returns up to ``count`` records that a model is fitted on, and the records that it is judged by."""
    pool = [record for record in survey.first if not held_out(record)]
    order = np.random.default_rng(seed).permutation(len(pool))[:count]
    train = [pool[number] for number in order]
    known = {(record.scheme, record.shape) for record in train}
    apart = [record for record in survey.truth if held_out(record)]
    return train, apart or [r for r in survey.truth if (r.scheme, r.shape) not in known]


def _fitted(
    survey: Survey, model: str, train: Sequence[Record], seed: int
) -> tuple[Fitted, dict[str, float]]:
    """Returns a model that is fitted on records of a survey, and the seconds of the fit, as
    ``fit_seconds``."""
    started = perf_counter()
    fitted = fitted_by(predictor_named(model, survey.cache, seed), survey.space, train)
    return fitted, {"fit_seconds": perf_counter() - started}


def judged_by(fitted: Fitted, test: Sequence[Record]) -> dict[str, float]:
    """Returns the metrics of one fitted model on records, as means over the records' shapes."""
    rows, off = [], []
    for shape, group in by_shape(test).items():
        schemes = [record.scheme for record in group]
        predicted = fitted.seconds(schemes, [shape])[:, 0]
        measured = np.array([record.seconds or np.nan for record in group])
        off.append(np.abs(np.log(predicted / measured)) / fitted.doubt(schemes, [shape])[:, 0])
        if len(group) > 1:
            rows.append(ranking_metrics(predicted, measured, [record.spread for record in group]))
    away = np.concatenate(off)
    inside = {f"inside {most}": float((away <= most).mean()) for most in (1, 2)}
    return {**mean_metrics(rows), **inside}


def frame_judgements(judgements: Iterable[Judgement], raw: bool = False) -> pd.DataFrame:
    """Returns a table with one row for each survey, split, number of measurements and model: the mean of each
    metric over seeds, and the ends ``low`` and ``high`` of the 95 % interval of that mean (bootstrap of the
    seeds).

    Args:
        judgements: the judgements that :func:`judge` returned.
        raw: whether to return one row for each judgement instead.
    """
    import pandas as pd

    keys = ["survey", "split", "told", "model"]
    rows = [
        {"survey": j.survey, "split": j.split, "told": j.fitted_on, "model": j.model, "seed": j.seed}
        | dict(j.metrics)
        for j in judgements
    ]
    frame = pd.DataFrame(rows)
    if raw or frame.empty:
        return frame
    found = []
    for values, group in frame.groupby(keys, sort=False):
        row = dict(zip(keys, values, strict=True))
        for name in group.columns.difference([*keys, "seed"], sort=False):
            column = group[name].dropna().to_numpy()
            if len(column):
                low, high = mean_interval(column)
                row |= {name: float(column.mean()), f"{name} low": low, f"{name} high": high}
        found.append({**row, "seeds": len(group)})
    return pd.DataFrame(found)

"""Drafts judged by times that a GPU took: how well each orders the programs of a survey, and how much better
a model does that learned from a few of the times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dietlab.cost import Analytic, Predicts, Survey, predictor_named
from dietlab.cost.metrics import mean_metrics, ranking_metrics, spearman
from dietlab.cost.registry import COST_MODEL
from dietlab.lab.heuristics.drafts import DRAFTS
from dietlab.measure import Record
from dietlab.problem import Shape
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

TOLD, SEEDS = 64, 5
"""Measurements that the learned model is told of, and draws of the schemes that are held out."""

RANDOM = "random.txt"
"""The file beside records that lists which of their schemes were drawn at random, one key a line."""

METRICS = ("spearman", "pairwise", "peak@1", "peak@5", "off")
"""The metrics: means over shapes but for ``off``, the median of how far off the logarithm of a time is."""

Row = dict[str, object]


def drawn_beside(path: str | Path) -> frozenset[str]:
    """Returns the keys of the schemes that were drawn at random, as the list beside a file of records says;
    none without it."""
    listed = Path(path).with_name(RANDOM)
    return frozenset(listed.read_text(encoding="utf-8").split() if listed.exists() else ())


def frame_measured(
    survey: Survey, drawn: Collection[str] = (), told: int = TOLD, seeds: int = SEEDS
) -> pd.DataFrame:
    """Returns a row for each draft and what it was judged on: ``all`` schemes, those ``drawn`` at random, and
    a fifth of them that was ``held out``, as a mean over draws; on that also for the learned model, which was
    told of some measurements of the others.

    Raises:
        HardwareError: if the records are a CPU's.
    """
    import pandas as pd

    _ = gpu_of(survey.space.hardware)
    drafts = {name: Analytic.of(survey.space, survey.cache, kind) for name, kind in DRAFTS.items()}
    rows: list[Row] = []
    for judged, records in (
        ("all", survey.truth),
        ("random", [record for record in survey.truth if record.scheme.key in drawn]),
    ):
        if records:
            rows += [_row(judged, name, 0, records, model) for name, model in drafts.items()]
    held = pd.DataFrame([row for seed in range(seeds) for row in _held_out(survey, drafts, told, seed)])
    means = held.groupby(["judged", "model", "told", "schemes"], sort=False)[list(METRICS)].mean()
    table = pd.concat([pd.DataFrame(rows), means.reset_index()], ignore_index=True)
    table.insert(0, "survey", survey.name)
    return table


def _held_out(survey: Survey, drafts: dict[str, Analytic], told: int, seed: int) -> Iterator[Row]:
    """Yields the rows of one draw of held-out schemes."""
    held_out = survey.held_out("kernels", seed)
    assert held_out is not None
    test = [record for record in survey.truth if held_out(record)]
    pool = [record for record in survey.told if not held_out(record)]
    order = np.random.default_rng(seed).permutation(len(pool))[:told]
    learned = predictor_named(COST_MODEL, survey.cache, seed).fit(survey.space, [pool[n] for n in order])
    for name, model in drafts.items():
        yield _row("held out", name, 0, test, model)
    yield _row("held out", COST_MODEL, len(order), test, learned)


def _row(judged: str, name: str, told: int, records: Sequence[Record], model: Predicts) -> Row:
    schemes = len({record.scheme for record in records})
    return {"judged": judged, "model": name, "told": told, "schemes": schemes, **metrics_of(model, records)}


def metrics_of(model: Predicts, records: Iterable[Record]) -> dict[str, float]:
    """Returns :data:`METRICS` of what a model predicts for successful records."""
    by_shape: dict[Shape, list[Record]] = {}
    for record in records:
        by_shape.setdefault(record.shape, []).append(record)
    found, off = [], []
    for shape, group in by_shape.items():
        predicted = model.seconds([record.scheme for record in group], [shape])[:, 0]
        measured = np.array([record.seconds or np.nan for record in group])
        off.append(np.abs(np.log(predicted / measured)))
        if len(group) > 1:
            ranks = ranking_metrics(predicted, measured, [record.spread for record in group])
            found.append({**ranks, "spearman": spearman(predicted, measured)})
    metrics = {**mean_metrics(found), "off": float(np.median(np.concatenate(off)))}
    return {name: metrics.get(name, float("nan")) for name in METRICS}

"""Drafts judged by the ranks that they give to the tiles of NVIDIA's heuristics, which needs no GPU, and by
the times of a survey: how well each orders the programs, and how much better a model fitted on some does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.cost import Adaptation, Analytic, Predicts, Survey, predictor_named
from dietlab.cost.metrics import mean_metrics, ranking_metrics, spearman
from dietlab.cost.registry import COST_MODEL
from dietlab.lab.heuristics.agreement import compare_with_heuristics
from dietlab.lab.heuristics.nvidia import COUNT, Heuristics, Reference
from dietlab.measure import Record
from dietlab.problem import Shape
from dietlab.scheme import Space
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

DRAFTS: Mapping[str, Adaptation] = {"waves": "paper", "bound": "streamed"}
"""The drafts by name: the paper's padding and waves of blocks at the peak, and the bound from throughputs."""

ROUNDED = 5
"""Digits of a share: a space of 12,500 schemes has ranks that far apart."""

FITTED_ON = 64
"""Measurements that the learned model is fitted on."""

SEEDS = 5
"""Draws of the held-out schemes."""

RANDOM = "random.txt"
"""The file beside records that lists which of their schemes were drawn at random, one key a line."""

METRICS = ("spearman", "pairwise", "peak@1", "peak@5", "off")
"""The metrics: means over shapes but for ``off``, the median of how far off the logarithm of a time is."""

Row = dict[str, object]


def frame_drafts(
    space: Space, shapes: Iterable[Shape], reference: Reference | None = None, count: int = COUNT
) -> pd.DataFrame:
    """Returns one row for each draft and shape.

    ``share`` is the rank of the heuristics' first choice over the schemes of the space, and ``best_share``
    that of the best rank among its first ``count``; missing where the space lacks the tiles.

    Raises:
        MissingDependencyError: if the heuristics are not installed.
        HardwareError: if the space is a CPU's, or of a GPU that they do not know.
    """
    import pandas as pd

    gpu_of(space.hardware)
    reference = Heuristics(space.hardware) if reference is None else reference
    chosen, rows = tuple(shapes), []
    for draft, kind in DRAFTS.items():
        for one in compare_with_heuristics(space, chosen, Analytic.of(space, kind=kind), reference, count):
            row = one.row()
            kept = {name: row[name] for name in ("nvidia", "scheme", "rank", "best_rank", "ranked", "choice")}
            of = {"hardware": space.hardware.name, "workload": str(space.workload), "draft": draft}
            rows.append({**of, **one.shape.to_json(), **kept})
    table = pd.DataFrame(rows).astype({"rank": "Int64", "best_rank": "Int64"})
    shares = {f"{best}share": table[f"{best}rank"] / table["ranked"] for best in ("", "best_")}
    return table.assign(**{name: share.astype(float).round(ROUNDED) for name, share in shares.items()})


def medians(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Returns the median of ``share`` and of ``best_share`` for each draft, over the shapes whose tiles the
    space has."""
    columns = ["share", "best_share"]
    found = table.groupby("draft", sort=False)[columns].median()
    return {str(draft): dict(zip(columns, row, strict=True)) for draft, *row in found.itertuples()}


def add_rows(path: Path, table: pd.DataFrame) -> None:
    """Adds the rows to a CSV file, which is made if it is missing.

    Raises:
        DietlabError: if the file has other columns.
    """
    text = table.to_csv(index=False, lineterminator="\n")
    head, _, rows = text.partition("\n")
    known = path.read_text(encoding="utf-8") if path.exists() else f"{head}\n"
    if known.partition("\n")[0] != head:
        raise DietlabError("rows are added to a table with their columns", path, "Name another file.")
    write_whole(path, known + rows)


def drawn_beside(path: str | Path) -> frozenset[str]:
    """Returns the keys of the schemes that were drawn at random, as the list beside a file of records says;
    none without it."""
    listed = Path(path).with_name(RANDOM)
    return frozenset(listed.read_text(encoding="utf-8").split() if listed.exists() else ())


def frame_measured(
    survey: Survey, drawn: Collection[str] = (), fitted_on: int = FITTED_ON, seeds: int = SEEDS
) -> pd.DataFrame:
    """Returns a row for each draft and what it was judged on: ``all`` schemes, those ``drawn`` at random, and
    a fifth of them that was ``held out``, as a mean over draws; on that also for the learned model, fitted on
    some of the others.

    Raises:
        HardwareError: if the records are a CPU's.
    """
    import pandas as pd

    gpu_of(survey.space.hardware)
    drafts = {name: Analytic.of(survey.space, survey.cache, kind) for name, kind in DRAFTS.items()}
    rows: list[Row] = []
    random = [record for record in survey.truth if record.scheme.key in drawn]
    for judged, records in (("all", survey.truth), ("random", random)):
        if records:
            rows += [_row(judged, name, 0, records, model) for name, model in drafts.items()]
    held = pd.DataFrame([row for seed in range(seeds) for row in _held_out(survey, drafts, fitted_on, seed)])
    means = held.groupby(["judged", "model", "told", "schemes"], sort=False)[list(METRICS)].mean()
    table = pd.concat([pd.DataFrame(rows), means.reset_index()], ignore_index=True)
    table.insert(0, "survey", survey.name)
    return table


def _held_out(survey: Survey, drafts: dict[str, Analytic], count: int, seed: int) -> Iterator[Row]:
    """Yields the rows of one draw of held-out schemes."""
    held_out = survey.held_out("kernels", seed)
    assert held_out is not None
    test = [record for record in survey.truth if held_out(record)]
    pool = [record for record in survey.told if not held_out(record)]
    order = np.random.default_rng(seed).permutation(len(pool))[:count]
    learned = predictor_named(COST_MODEL, survey.cache, seed).fit(survey.space, [pool[n] for n in order])
    for name, model in drafts.items():
        yield _row("held out", name, 0, test, model)
    yield _row("held out", COST_MODEL, len(order), test, learned)


def _row(judged: str, name: str, count: int, records: Sequence[Record], model: Predicts) -> Row:
    schemes = len({record.scheme for record in records})
    return {"judged": judged, "model": name, "told": count, "schemes": schemes, **metrics_of(model, records)}


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

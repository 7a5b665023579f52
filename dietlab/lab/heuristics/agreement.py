"""Compares cost models with NVIDIA's heuristics: the ranks of their choices among the space's micro-kernels.

The heuristics' configurations are looked up in dietlab's space of a GPU::

    for each shape:   128x64x32.s4  ->  the nearest of the micro-kernels of 128 rows and 64 columns
                                    ->  its rank among all, by predicted time

Neither side measures anything: where they disagree, a measurement decides. The drafts of a GPU, which predict
before anything is measured, are judged by these ranks and by the times of a survey.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.base.statistics import Values
from dietlab.cost import Adaptation, Analytic, Predicts, Survey, predictor_named
from dietlab.cost.judging import divided
from dietlab.cost.metrics import mean_metrics, ranking_metrics, spearman
from dietlab.cost.registry import COST_MODEL
from dietlab.lab.heuristics.nvidia import COUNT, Configuration, Heuristics, Reference
from dietlab.measure import Record
from dietlab.measure.record import by_shape
from dietlab.problem import Shape
from dietlab.scheme import Space
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Match:
    """A configuration and the nearest scheme of the space, with the scheme's predicted seconds and, by them,
    its rank among all schemes (1 is the fastest); None where the space lacks the tile."""

    configuration: Configuration
    scheme: CudaScheme | None = None
    rank: int | None = None
    seconds: float | None = None

    @property
    def exact(self) -> bool:
        """True if step, stages and splits are equal too."""
        names = ("step", "stages", "splits")
        return self.scheme is not None and all(
            getattr(self.scheme.kernel, name) == getattr(self.configuration, name) for name in names
        )


@dataclass(frozen=True)
class Comparison:
    """The heuristics' choices for one shape, best first, and the model's ``choice``: the scheme with the
    least predicted ``seconds`` of the ``ranked`` schemes.
    """

    shape: Shape
    matches: tuple[Match, ...]
    choice: CudaScheme
    seconds: float
    ranked: int

    @property
    def in_space(self) -> int:
        """The number of configurations whose tile the space has."""
        return sum(match.scheme is not None for match in self.matches)

    @property
    def exact(self) -> int:
        """The number of configurations that the space has with the same step, stages and splits."""
        return sum(match.exact for match in self.matches)

    @property
    def best_rank(self) -> int | None:
        """The best rank of all configurations; None if the space lacks all their tiles."""
        return min((match.rank for match in self.matches if match.rank), default=None)

    @property
    def slowdown(self) -> float | None:
        """The predicted time of the heuristics' first choice over the model's (None: the space lacks that
        tile)."""
        first = self.matches[0].seconds
        return None if first is None else first / self.seconds

    def row(self) -> dict[str, Any]:
        """Returns the row of :func:`frame_heuristics`; None where there is no value."""
        first = self.matches[0]
        theirs = {"nvidia": first.configuration.key, "nvidia_seconds": first.configuration.seconds}
        theirs |= {"scheme": first.scheme.key if first.scheme else None, "scheme_seconds": first.seconds}
        ranks = {"rank": first.rank, "ranked": self.ranked, "slowdown": self.slowdown}
        ours = {"choice": self.choice.key, "choice_seconds": self.seconds}
        counts = {"proposed": len(self.matches), "in_space": self.in_space, "exact": self.exact}
        return {**self.shape.to_json(), **theirs, **ranks, **ours, **counts, "best_rank": self.best_rank}


def compare_with_heuristics(
    space: Space,
    shapes: Iterable[Shape],
    model: Predicts | None = None,
    reference: Reference | None = None,
    count: int = COUNT,
) -> tuple[Comparison, ...]:
    """Ranks the schemes that NVIDIA's heuristics would choose for each shape, by a model's predicted times.

    A configuration matches a scheme with the same tile, then with the nearest splits, then the nearest step,
    then the nearest stages. Of several such schemes it matches the one with the least predicted time, since a
    configuration does not state the rest, such as how many threads share a tile.

    Args:
        space: the schemes of a GPU.
        shapes: the shapes to compare on.
        model: the model that predicts times (default: :class:`~dietlab.cost.Analytic`, for which nothing was
            measured).
        reference: the reference that proposes configurations (default: :class:`Heuristics` for the space's
            GPU).
        count: the number of configurations for each shape.

    Raises:
        MissingDependencyError: if the heuristics are not installed.
        HardwareError: if the space is a CPU's, or of a GPU that the heuristics do not know.
    """
    gpu_of(space.hardware)
    reference = Heuristics(space.hardware) if reference is None else reference
    chosen, schemes = tuple(shapes), space.schemes
    table = (Analytic.of(space) if model is None else model).seconds(schemes, chosen)
    found = []
    for shape, seconds in zip(chosen, table.T, strict=True):
        wanted = reference.configurations(space.workload, shape, count)
        matches = tuple(_match(one, schemes, seconds) for one in wanted)
        best = int(seconds.argmin())
        found.append(Comparison(shape, matches, schemes[best], float(seconds[best]), len(schemes)))
    return tuple(found)


def _match(wanted: Configuration, schemes: Sequence[CudaScheme], seconds: Values) -> Match:
    # NVIDIA's tiles have rows where exchanged operands have columns.
    tiles = ((i, k) for i, k in enumerate(schemes) if k.kernel.unit != "swapped")
    same = [i for i, k in tiles if (k.rows, k.cols) == (wanted.rows, wanted.cols)]
    if not same:
        return Match(wanted)

    def distance(i: int) -> tuple[float, ...]:
        kernel = schemes[i].kernel
        splits, step = kernel.splits / wanted.splits, kernel.step / wanted.step
        stages = abs(kernel.stages - wanted.stages)
        return abs(log2(splits)), abs(log2(step)), stages, float(seconds[i])

    nearest = min(same, key=distance)
    rank = 1 + int((seconds < seconds[nearest]).sum())
    return Match(wanted, schemes[nearest], rank, float(seconds[nearest]))


def frame_heuristics(comparisons: Iterable[Comparison]) -> pd.DataFrame:
    """Returns one row for each shape.

    ``nvidia`` is the heuristics' first choice, and ``nvidia_seconds`` their estimate of its time. ``scheme``
    is the matching scheme of the space, with its predicted seconds and its ``rank`` among ``ranked`` schemes.
    ``choice`` is the model's fastest scheme, and ``slowdown`` the predicted time of ``scheme`` over that of
    ``choice``. ``proposed`` counts the configurations, ``in_space`` the configurations whose tile the space
    has, and ``exact`` those whose step, stages and splits the space has, too. ``best_rank`` is the best rank
    of all configurations.

    Args:
        comparisons: what :func:`compare_with_heuristics` returned.
    """
    import pandas as pd

    table = pd.DataFrame([comparison.row() for comparison in comparisons])
    return table.astype({name: "Int64" for name in ("rank", "best_rank") if name in table})


# --- drafts -----------------------------------------------------------------------------------

DRAFTS: Mapping[str, Adaptation] = {"waves": "paper", "bound": "streamed"}
"""The drafts by name: the paper's padding and waves of blocks at the peak, and the bound from throughputs."""

ROUNDED = 5
"""The number of digits of a share: a space of 12,500 schemes has ranks that far apart."""

FITTED_ON = 64
"""The number of measurements that the learned model is fitted on."""

SEEDS = 5
"""The number of times that held-out schemes are drawn."""

RANDOM = "random.txt"
"""The file beside records that lists which of their schemes were drawn at random, one key a line."""

METRICS = ("spearman", "pairwise", "peak@1", "peak@5", "off")
"""The names of the metrics. ``off`` is the median error of the logarithm of a time; all others are means over
shapes."""

Row = dict[str, object]


def frame_drafts(
    space: Space, shapes: Iterable[Shape], reference: Reference | None = None, count: int = COUNT
) -> pd.DataFrame:
    """Returns one row for each draft and shape: ``share`` is the rank of the heuristics' first choice,
    divided by the number of schemes in the space; ``best_share`` is the same share with the best rank of the
    first ``count`` choices. Both are missing where the space lacks the tiles."""
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
    """Returns the median shares of each draft over the shapes whose tiles the space has."""
    columns = ["share", "best_share"]
    found = table.groupby("draft", sort=False)[columns].median()
    return {str(draft): dict(zip(columns, row, strict=True)) for draft, *row in found.itertuples()}


def add_rows(path: Path, table: pd.DataFrame) -> None:
    """Adds the rows to a CSV file, which is made if it is missing."""
    text = table.to_csv(index=False, lineterminator="\n")
    head, _, rows = text.partition("\n")
    known = path.read_text(encoding="utf-8") if path.exists() else f"{head}\n"
    if known.partition("\n")[0] != head:
        raise DietlabError("added rows need a table with their columns", path, "Name another file.")
    write_whole(path, known + rows)


def drawn_beside(path: str | Path) -> frozenset[str]:
    """Returns the keys of the schemes drawn at random, from the list in the folder of a file of records."""
    listed = Path(path).with_name(RANDOM)
    return frozenset(listed.read_text(encoding="utf-8").split() if listed.exists() else ())


def frame_measured(
    survey: Survey, drawn: Collection[str] = (), fitted_on: int = FITTED_ON, seeds: int = SEEDS
) -> pd.DataFrame:
    """Returns a row for each draft and set of schemes: ``all``, those ``drawn`` at random (``random``), and a
    fifth that was held out (a mean over ``seeds`` such fifths). Held-out schemes also have a row for the
    learned model, fitted on ``fitted_on`` measurements of the others."""
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
    train, test = divided(survey, held_out, count, seed)
    learned = predictor_named(COST_MODEL, survey.cache, seed).fit(survey.space, train)
    for name, model in drafts.items():
        yield _row("held out", name, 0, test, model)
    yield _row("held out", COST_MODEL, len(train), test, learned)


def _row(judged: str, name: str, count: int, records: Sequence[Record], model: Predicts) -> Row:
    schemes = len({record.scheme for record in records})
    return {"judged": judged, "model": name, "told": count, "schemes": schemes, **metrics_of(model, records)}


def metrics_of(model: Predicts, records: Iterable[Record]) -> dict[str, float]:
    """Returns the :data:`METRICS` of a model's predictions for successful records."""
    found, off = [], []
    for shape, group in by_shape(records).items():
        predicted = model.seconds([record.scheme for record in group], [shape])[:, 0]
        measured = np.array([record.seconds or np.nan for record in group])
        off.append(np.abs(np.log(predicted / measured)))
        if len(group) > 1:
            ranks = ranking_metrics(predicted, measured, [record.spread for record in group])
            found.append({**ranks, "spearman": spearman(predicted, measured)})
    metrics = {**mean_metrics(found), "off": float(np.median(np.concatenate(off)))}
    return {name: metrics.get(name, float("nan")) for name in METRICS}

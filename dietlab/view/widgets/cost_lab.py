"""The cost model while records are added: its predictions, the importance of features, and how well it
ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import ModelError
from dietlab.cost import CostModel, Known, evaluate_model, too_few_pairs
from dietlab.tuning import TuningRun
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.predictions import (
    TILE,
    fit_first,
    frame_importances,
    frame_predictions,
    leading_words,
    plot_importances,
    plot_predictions,
)
from dietlab.view.theme import PALETTE, TIE
from dietlab.view.widgets.arguments import RunSource, run_of
from dietlab.view.widgets.controls import Control, OneOf

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.view.widgets.explorer import Drawn, Explorer

METRICS = ("pairs", "pairwise", "r2", "peak@1", "peak@5", "rmse", "mape")
LINES = {
    "pairwise": ("pairs in the right order", PALETTE["accent1"], "circle", "solid"),
    "peak@1": ("speed of the first choice", PALETTE["ours"], "square", "dash"),
    "peak@5": ("speed of the best of five", PALETTE["accent3"], "diamond", "dot"),
}
"""The drawn metrics, each with its label, colour, symbol and dash."""

MEANINGS = {
    "pairwise": "{} of the pairs that differ by more than the noise are ordered right",
    "peak@1": "the one predicted fastest has {} of the best speed",
    "peak@5": "the best of the five predicted fastest has {} of the best speed",
}
"""Sentences that explain the metrics, with a place for the value in percent."""

PREDICTIONS, IMPORTANCES, RANKING = "predicted and measured", "feature importances", "ranking quality"
NONE = "none"
FEWEST = 8
"""The least number of records of a fit; a shorter run is fitted on all of its records."""
STEPS = 9
"""The most fits that a lab offers."""
REST = 1 / 3
"""The least share of the records that is held out when a lab opens."""


# --- ranking quality --------------------------------------------------------------------------


def frame_ranking(run: TuningRun, counts: Iterable[int]) -> pd.DataFrame:
    """Returns ranking metrics of a cost model after its first ``n`` records, for each ``n`` in ``counts``.

    The model is judged on all *other* records, so rows near the end of a run are judged on few. Columns:
    ``records`` (n), ``samples`` (micro-kernels that it was fitted on), ``judged`` (successful records that it
    was judged on) and the metrics of :func:`dietlab.cost.ranking_metrics`, means over shapes. Metrics are
    missing if the first ``n`` records all failed or no shape has two records left to compare; metrics of
    pairs also if too few pairs differ by more than the noise.

    Args:
        run: a tuning run.
        counts: the numbers of records to fit on, each counted from the first record.

    Raises:
        ModelError: if the run has fewer records.
    """
    return _frame_of([_ranking_row(run, count, _fit_if_any(run, count)) for count in counts])


def _fit_if_any(run: TuningRun, count: int) -> CostModel | None:
    some = any(record.ok for record in run.records[:count])
    return fit_first(run, count) if some or not 1 <= count <= len(run.records) else None


def _ranking_row(run: TuningRun, count: int, model: CostModel | None) -> dict[str, Any]:
    rest = run.records[count:]
    quality = {} if model is None else evaluate_model(model, rest)
    judged = sum(record.ok for record in rest)
    return {"records": count, "samples": model.samples if model else 0, "judged": judged, **quality}


def plot_ranking(run: TuningRun, counts: Iterable[int], template: str | None = None) -> go.Figure:
    """Draws pairwise accuracy, peak@1 and peak@5 against the number of records that the model has seen.

    Args:
        run, counts: as in :func:`frame_ranking`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    return draw_ranking(frame_ranking(run, counts), template=template)


def draw_ranking(frame: pd.DataFrame, chosen: int | None = None, template: str | None = None) -> go.Figure:
    """Draws the figure of :func:`plot_ranking` from its table, with a line at one number of records."""
    judged = frame[frame["peak@1"].notna()]
    figure = new_figure(judged, "Ranking quality on records that were held out", template)
    for metric, (name, colour, symbol, dash) in LINES.items():
        known = frame[frame[metric].notna()]
        figure.add_scatter(
            x=known["records"],
            y=100 * known[metric].astype(float),
            name=f"{name} ({metric})",
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 8},
            hoverinfo="text",
            hovertext=[_ranking_hover(metric, row) for row in known.to_dict("records")],
        )
    if chosen is not None and len(judged):
        figure.add_vline(x=chosen, line=TIE)
    figure.update_xaxes(title_text="records that the model was fitted on (count)", rangemode="tozero")
    figure.update_yaxes(title_text="ranking quality (%; 100 is perfect)")
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    return figure


def _ranking_hover(metric: str, row: Mapping[str, Any]) -> str:
    said = MEANINGS[metric].format(f"{100 * row[metric]:.0f} %")
    judged = f"judged on {row['judged']} records that it has not seen"
    return f"<b>after {row['records']} records {said}</b><br>{judged}"


# --- the lab ----------------------------------------------------------------------------------


def cost_lab(run: RunSource) -> Explorer:
    """Shows predictions of a run's cost model after the first records, and how more records improve them.

    Controls: ``records`` (the number of records to fit on, from the first on; the others are held out),
    ``show`` (the figure, whose table is ``explorer.frame``), ``colour`` (what colours the points) and
    ``scheme`` (the scheme whose records have rings; a click on a point chooses one).

    Args:
        run: a tuning run, or a study that has one; without a successful record the lab says why there is
            nothing.

    Raises:
        RecordError: if ``run`` is neither a tuning run nor a study.
    """
    return _lab(run_of(run))


def _lab(run: TuningRun) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    counts = usual_counts(run)
    if not counts:
        return nothing_measured(run)

    fitted = cache(partial(fit_first, run))

    @cache
    def ranking(count: int) -> dict[str, Any]:
        return _ranking_row(run, count, fitted(count))

    @cache
    def predictions(count: int) -> pd.DataFrame:
        return frame_predictions(run, fitted(count), count)

    def draw(records: int, show: str, colour: str, scheme: str) -> Drawn:
        features = frame_importances(fitted(records))
        if show == RANKING:
            frame = _frame_of([ranking(count) for count in counts])
            figure = draw_ranking(frame, records)
        elif show == IMPORTANCES:
            frame, figure = features, plot_importances(features)
        else:
            frame = predictions(records)
            figure = plot_predictions(frame, colour, scheme)
        note = f"The model looks most at {leading_words(features)}." if len(features) else ""
        return Drawn(figure, frame, _numbers(ranking(records), predictions(records)), note)

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
        return _chosen(predictions(values["records"]), point) if values["show"] == PREDICTIONS else {}

    groups = {"Model": ["records"], "View": ["show", "colour", "scheme"]}
    return Explorer(draw, _controls(run, counts), clicked, groups=groups, opener="dl.cost_lab(run)")


def _chosen(frame: pd.DataFrame, point: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the micro-kernel of a clicked point of the first two traces (fitted and held-out records)."""
    part, number = frame[frame["held_out"] == (point.get("trace") == 1)], point.get("point")
    if point.get("trace") not in (0, 1) or number is None or number >= len(part):
        return {}
    return {"scheme": part["scheme"].iloc[number]}


def usual_counts(run: TuningRun) -> list[int]:
    """Returns numbers of records to fit on, from few to all, evenly spaced in their logarithm. Even the
    fewest include a successful record."""
    total = len(run.records)
    first = next((number for number, r in enumerate(run.records, 1) if r.ok and r.seconds), None)
    if first is None:
        return []
    low = max(first, min(FEWEST, total))
    return sorted({int(count) for count in np.geomspace(low, total, STEPS).round()})


def _controls(run: TuningRun, counts: Sequence[int]) -> dict[str, Control]:
    start = max((count for count in counts if count <= (1 - REST) * counts[-1]), default=counts[0])
    kernels = tuple(kernel.key for kernel in run.schemes)
    rings = "Its records have rings; a click on a point chooses one"
    fitted = "Records that the model is fitted on, from the first on (a count); the others judge it"

    def dropdown(label: str, tooltip: str, *options: str) -> OneOf:
        return OneOf(options[0], options, label=label, tooltip=tooltip)

    return {
        "records": OneOf(start, tuple(counts), slider=True, lazy=True, label="records", tooltip=fitted),
        "show": dropdown("show", "The figure, and the table behind it", PREDICTIONS, IMPORTANCES, RANKING),
        "colour": dropdown("colour by", "What the colour of a point shows", *run.space.workload.dims, *TILE),
        "scheme": dropdown("scheme", rings, NONE, *kernels),
    }


def _frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=["records", "samples", "judged", *METRICS])


def _numbers(ranking: Mapping[str, Any], predictions: pd.DataFrame) -> dict[str, str]:
    numbers = {
        "fitted on": f"{ranking['records']} records of {ranking['samples']} schemes",
        "held out": f"{ranking['judged']} records",
    }
    for metric, (name, *_) in LINES.items():
        unknown = too_few_pairs(ranking).get(metric, "unknown")
        numbers[name] = f"{100 * ranking[metric]:.1f} %" if metric in ranking else unknown
    for name, held_out in (("error, fitted", False), ("error, held out", True)):
        part = predictions[predictions["held_out"] == held_out]
        if len(part):
            numbers[name] = f"{100 * (part['ratio'] - 1).abs().median():.1f} % (median)"
    return numbers


def nothing_measured(run: Known) -> Explorer:
    """Returns an explorer without controls for a run without a successful record; its note says why there is
    none."""
    import pandas as pd

    from dietlab.view.widgets.explorer import Drawn, Explorer

    failures = Counter(str(record.status) for record in run.records)
    frame = pd.DataFrame(failures.most_common(), columns=["status", "records"])
    found = ", ".join(f"{count} {status}" for status, count in failures.most_common())
    remedy = "Their reasons are in run.to_frame()."
    error = ModelError("an explorer needs one successful record", found or "no records", remedy)

    def draw() -> Drawn:
        return Drawn(new_figure(pd.DataFrame(), "No successful record", None), frame, note=str(error))

    return Explorer(draw, {})

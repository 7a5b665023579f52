"""Figures of the plan of each shape, and the predicted parts of its time, which explain the choice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dietlab.cost import CostModel
from dietlab.problem import Shape, at_layer
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Plan
from dietlab.tuning import Dispatcher
from dietlab.view.figures.base import MICRO
from dietlab.view.figures.padding import SHOWN
from dietlab.view.lab import lab_imports
from dietlab.view.theme import CLEAR, PALETTE, TEXT

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.view.figures.dispatch_tree import Layer

PARTS = {
    "compute": ("multiply-adds", PALETTE["needed"]),
    "weights": ("waiting for weights", PALETTE["accent4"]),
    "edges": ("starting and storing tiles", PALETTE["needed_too"]),
    "padding": ("padding", PALETTE["wasted"]),
    "idle": ("idle cores", PALETTE["muted"]),
}
"""The label and the colour of each field of :class:`dietlab.cost.Parts`."""


def frame_plans(
    dispatcher: Dispatcher, model: CostModel, extents: Iterable[int] | None = None, layer: Layer | None = None
) -> pd.DataFrame:
    """Returns one row for each shape: its ``scheme`` with the parameters, ``cover`` (how the plan covers the
    rows), ``heights`` (of the tiles, in order), and the predicted seconds of each part and in total.

    Args:
        dispatcher: the dispatcher that chooses the plans.
        model: the cost model that predicts the parts of a plan's time.
        extents: the lengths to show (default: the first :data:`SHOWN` of the range).
        layer: the extents of all other dynamic dimensions, as in ``{"N": 2304, "K": 768}``.

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    import pandas as pd

    name, dim = only_dim(at_layer(dispatcher.workload, layer))
    rows: list[dict[str, Any]] = []
    for extent in extents or range(dim.low, min(dim.high, dim.low + SHOWN - 1) + 1):
        shape = Shape.of(**{name: extent}, **(layer or {}))
        scheme, plan = dispatcher.scheme(shape), dispatcher.plan(shape)
        parts = model.parts(scheme, shape)
        tiles = " + ".join(f"{region.tiles} x {region.kernel.rows}" for region in plan.regions)
        rows.append(
            {
                name: extent,
                **scheme.columns,
                "cover": f"{tiles} rows of {plan.scheme.cols} columns",
                "heights": " + ".join(map(str, _heights(plan))),
                **{f"{part}_seconds": getattr(parts, part) for part in PARTS},
                "predicted_seconds": parts.total,
            }
        )
    return pd.DataFrame(rows)


def _heights(plan: Plan) -> list[int]:
    """Returns the rows of each tile, from the first to the last."""
    return [region.kernel.rows for region in plan.regions for _ in range(region.tiles)]


def plot_plans(
    dispatcher: Dispatcher,
    model: CostModel,
    extents: Iterable[int] | None = None,
    template: str | None = None,
    layer: Layer | None = None,
) -> go.Figure:
    """Draws two plots: above, how the rows of each shape are covered; below, the parts of its predicted time.

    Every column is a shape. A row has the colour of its tile's height; neighbouring tiles alternate between a
    lighter and a darker shade.

    Args:
        dispatcher, model, extents, layer: as in :func:`frame_plans`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    with lab_imports("figures"):
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

    frame, workload = frame_plans(dispatcher, model, extents, layer), at_layer(dispatcher.workload, layer)
    name, _ = only_dim(workload)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.6, 0.4])
    shapes = [Shape.of(**{name: extent}, **(layer or {})) for extent in frame[name]]
    tiles = [_heights(dispatcher.plan(shape)) for shape in shapes]
    hover = [f"{name}={row[name]}: {row['cover']}<br>{row['scheme']}" for _, row in frame.iterrows()]
    figure.add_trace(_tiles(go, frame[name], tiles, hover), row=1, col=1)
    for part, (label, colour) in PARTS.items():
        share = 100 * frame[f"{part}_seconds"] / frame["predicted_seconds"]
        figure.add_trace(
            go.Bar(
                x=frame[name],
                y=share,
                name=label,
                marker_color=colour,
                marker_line_width=0,
                customdata=MICRO * frame[f"{part}_seconds"],
                hovertemplate=f"{name}=%{{x}}: {label} %{{customdata:.1f}} µs, %{{y:.0f}} %<extra></extra>",
            ),
            row=2,
            col=1,
        )
    figure.update_layout(
        template=template or "none",
        barmode="stack",
        bargap=0,
        height=620,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font_color=TEXT,
        title=f"Plans of {workload}",
        legend={"orientation": "h", "y": -0.15},
    )
    figure.update_yaxes(title_text="row of the output", row=1, col=1)
    figure.update_yaxes(title_text="predicted time (%)", range=[0, 100], row=2, col=1)
    figure.update_xaxes(title_text=name, row=2, col=1)
    return figure


def _tiles(go: Any, extents: pd.Series, tiles: list[list[int]], hover: list[str]) -> Any:
    """Returns a heat map ``[row, shape]`` of tile heights."""
    import numpy as np

    tallest = max(map(sum, tiles))
    drawn = np.full((tallest, len(tiles)), np.nan)
    for column, heights in enumerate(tiles):
        first = 0
        for number, height in enumerate(heights):
            drawn[first : first + height, column] = height + (0.35 if number % 2 else 0.0)
            first += height
    return go.Heatmap(
        x=extents,
        z=drawn,
        colorscale="Cividis",
        colorbar={"title": "rows of<br>the tile", "len": 0.6, "y": 0.72},
        text=[hover] * tallest,
        hovertemplate="%{text}<extra></extra>",
    )

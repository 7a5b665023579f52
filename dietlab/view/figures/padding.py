"""Figures of padding: the tiles of one output, the waste over shapes and tile heights, and serving policies'
waste."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from dietlab.base.errors import WorkloadError
from dietlab.compare.results.policies import POLICIES, policy_waste
from dietlab.cost import padding_waste
from dietlab.problem import Shape, Workload, at_layer
from dietlab.problem import extents as sizes_of
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Scheme, plan_for, scheme_with
from dietlab.view.figures.base import add_legend_key, new_figure
from dietlab.view.lab import lab_imports
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.view.figures.dispatch_tree import Layer

LIGHT, DARK, PADDING = PALETTE["needed_too"], PALETTE["needed"], PALETTE["wasted"]
MOST_ROW_TILES = 64
"""The most row tiles that are drawn. The last ones are drawn, since they have the padding."""
MOST_CELLS = 1500
"""The most tiles that are drawn."""
SHOWN = 128
HEIGHTS = 32
THIS = "this plan"


class Band(NamedTuple):
    """A tile along one axis: ``needed`` of its ``size`` rows (or columns) belong to the output."""

    first: int
    size: int
    needed: int


class Segment(NamedTuple):
    """The needed or the padded part of a tile along one axis, from ``start`` to ``end`` (excluded)."""

    start: int
    end: int
    tile: int
    padded: bool
    words: str


# --- tables -----------------------------------------------------------------------------------


def frame_tiling(scheme: Scheme, rows: int, cols: int) -> pd.DataFrame:
    """Returns one row for each tile of an output of ``rows x cols``: position, size, the needed part of it,
    and ``padding_waste``, the share of the tile's multiply-adds that no output needs.

    Args:
        scheme: gives the tile and the treatment of the edge.
        rows: the number of the output's rows, at least 0.
        cols: the number of the output's columns, at least 0.

    Raises:
        WorkloadError: if an extent is negative.
    """
    import numpy as np
    import pandas as pd

    down, across = _bands(scheme, rows), _bands(_across(scheme), cols)
    row = np.repeat(np.array(down, dtype=int).reshape(-1, 3), len(across), axis=0)
    col = np.tile(np.array(across, dtype=int).reshape(-1, 3), (len(down), 1))
    useful = row[:, 2] * col[:, 2] / (row[:, 1] * col[:, 1])
    return pd.DataFrame(
        {
            "row_tile": np.repeat(np.arange(len(down)) + 1, len(across)),
            "col_tile": np.tile(np.arange(len(across)) + 1, len(down)),
            "first_row": row[:, 0],
            "rows": row[:, 1],
            "needed_rows": row[:, 2],
            "first_col": col[:, 0],
            "cols": col[:, 1],
            "needed_cols": col[:, 2],
            "padding_waste": 1 - useful,
        }
    )


def frame_waste(
    workload: Workload,
    scheme: Scheme,
    heights: Iterable[int] | None = None,
    extents: Iterable[int] | None = None,
    layer: Layer | None = None,
) -> pd.DataFrame:
    """Returns the share of the multiply-adds that are padding, for each length and each height of the tile.

    Args:
        workload: the operator whose length is drawn.
        scheme: the scheme that gives the columns of the tile and the treatment of the edge. Composed schemes
            pad no rows.
        heights: the numbers of rows of the tile (default: 1 to :data:`HEIGHTS`).
        extents: the lengths to draw (default: the first :data:`SHOWN` of the range).
        layer: the extents of all other dynamic dimensions, as in ``{"N": 2304, "K": 768}``.

    Raises:
        WorkloadError: if the layer lacks a dynamic dimension, or has an unknown one.
    """
    import pandas as pd

    workload = at_layer(workload, layer)
    name, dim = only_dim(workload)
    chosen = list(extents or range(dim.low, min(dim.high, dim.low + SHOWN - 1) + 1))
    tall = list(heights or range(1, HEIGHTS + 1))
    tiles = [scheme_with(scheme, rows=height).cover_tile for height in tall]
    sizes = {extent: sizes_of(workload, Shape.of(**{name: extent})) for extent in chosen}
    rows = [
        (extent, height, padding_waste(sizes[extent], tile))
        for extent in chosen
        for height, tile in zip(tall, tiles, strict=True)
    ]
    return pd.DataFrame(rows, columns=[name, "rows", "padding_waste"])


def frame_policies(workload: Workload, scheme: Scheme, shape: Shape) -> pd.DataFrame:
    """Returns one row for the plan of ``scheme`` and one for each serving policy, all on one shape. Columns:
    the policy, ``padding_waste`` (padding as a share of the multiply-adds) and ``executed_for_one_needed``
    (executed multiply-adds over needed ones).

    Args:
        workload: the operator.
        scheme: gives the tile and the treatment of the edge.
        shape: the shape to cover.
    """
    import pandas as pd

    waste = {THIS: padding_waste(sizes_of(workload, shape), scheme.cover_tile)}
    waste |= {name: policy_waste(workload, shape, policy) for name, policy in POLICIES.items()}
    return pd.DataFrame(
        [(name, share, 1 / (1 - share)) for name, share in waste.items()],
        columns=["policy", "padding_waste", "executed_for_one_needed"],
    )


# --- figures ----------------------------------------------------------------------------------


def plot_tiling(scheme: Scheme, rows: int, cols: int, template: str | None = None) -> go.Figure:
    """Draws an output of ``rows x cols`` cut into tiles of two alternating shades, with padding in orange. If
    there are very many tiles, only the last ones are drawn.

    Args:
        scheme, rows, cols: as in :func:`frame_tiling`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_tiling(scheme, rows, cols)
    executed, needed = (frame["rows"] * frame["cols"]).sum(), rows * cols
    waste = 100 * (1 - needed / executed) if executed else 0.0
    title = f"{rows} x {cols} outputs in tiles of {scheme.rows} x {scheme.cols}: {waste:.1f} % padding"
    figure = new_figure(frame, title, template)
    if frame.empty:
        return figure
    figure.add_trace(tiling_trace(scheme, rows, cols))
    add_key(figure)
    down, across = tiling_titles(scheme, rows, cols)
    figure.update_layout(legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(title_text=across, showgrid=False)
    figure.update_yaxes(title_text=down, autorange="reversed", showgrid=False)
    return figure


def tiling_trace(scheme: Scheme, rows: int, cols: int) -> go.Heatmap:
    """Returns a heat map whose cells are the needed and the padded parts of tiles, at their true sizes."""
    with lab_imports("figures"):
        import plotly.graph_objects as go

    down, across = _segments(scheme, rows, cols)
    return go.Heatmap(
        x=_edges(across),
        y=_edges(down),
        zmin=0,
        zmax=2,
        showscale=False,
        z=[[2 if r.padded or c.padded else (r.tile + c.tile) % 2 for c in across] for r in down],
        colorscale=[[0, LIGHT], [0.5, DARK], [1, PADDING]],
        text=[[_cell(r, c) for c in across] for r in down],
        hovertemplate="%{text}<extra></extra>",
    )


def tiling_titles(scheme: Scheme, rows: int, cols: int) -> tuple[str, str]:
    """Titles of the row and the column axis of :func:`tiling_trace`."""
    titles = []
    segments = _segments(scheme, rows, cols)
    for what, drawn, kind, extent in (
        ("row", segments[0], scheme, rows),
        ("column", segments[1], _across(scheme), cols),
    ):
        tiles, shown = plan_for(kind, extent).tiles, len({segment.tile for segment in drawn})
        part = f" (the last {shown:,} of {tiles:,} tiles)" if shown < tiles else ""
        titles.append(f"{what} of the output{part}")
    return titles[0], titles[1]


def add_key(figure: go.Figure) -> None:
    """Adds legend entries for the colours of a tiling."""
    add_legend_key(figure, "needed by the output", DARK)
    add_legend_key(figure, "padding", PADDING)


def plot_waste(
    workload: Workload,
    scheme: Scheme,
    heights: Iterable[int] | None = None,
    extents: Iterable[int] | None = None,
    template: str | None = None,
    layer: Layer | None = None,
) -> go.Figure:
    """Draws a heat map of padding waste over the length and the height of the tile.

    Args:
        workload, scheme, heights, extents, layer: as in :func:`frame_waste`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    workload = at_layer(workload, layer)
    frame = frame_waste(workload, scheme, heights, extents)
    name, _ = only_dim(workload)
    title = f"Padding waste of {workload}: tiles {scheme.cols} columns wide, edge {scheme.edge}"
    figure = new_figure(frame, title, template)
    figure.add_trace(waste_trace(frame, name))
    figure.update_xaxes(title_text=f"{name} (extent)", showgrid=False)
    figure.update_yaxes(title_text="height of the tile (rows)", showgrid=False)
    return figure


def waste_trace(frame: pd.DataFrame, name: str) -> go.Heatmap:
    """Returns the heat map of a :func:`frame_waste` over the dimension ``name``."""
    with lab_imports("figures"):
        import plotly.graph_objects as go

    wide = frame.pivot(index="rows", columns=name, values="padding_waste")
    # One scale for all, so that what composition saves is seen.
    return go.Heatmap(
        x=wide.columns.to_numpy(),
        y=wide.index.to_numpy(),
        z=100 * wide.to_numpy(),
        zmin=0,
        zmax=100,
        colorscale="Cividis",
        colorbar={"title": {"text": "waste (%)"}},
        hovertemplate=(
            "<b>%{z:.1f} % of the multiply-adds are padding</b><br>"
            f"{escape(name)}=%{{x}} in tiles of %{{y}} rows<extra></extra>"
        ),
    )


# --- tiles along an axis ----------------------------------------------------------------------


def _bands(scheme: Scheme, extent: int) -> list[Band]:
    if extent < 0:
        raise WorkloadError("an output must have no negative extent", extent)
    bands: list[Band] = []
    for region in plan_for(scheme, extent).regions:
        size = region.scheme.rows
        for first in range(region.first_row, region.first_row + region.tiles * size, size):
            bands.append(Band(first, size, min(size, extent - first)))
    return bands


def _across(scheme: Scheme) -> Scheme:
    """Returns a scheme that tiles rows as ``scheme`` tiles columns. The result is composed only if vectors
    run along the depth."""
    edge = scheme.edge if scheme.kernel.composes_columns else "padded"
    return scheme_with(scheme, rows=scheme.cols, edge=edge)


def _segments(scheme: Scheme, rows: int, cols: int) -> tuple[list[Segment], list[Segment]]:
    down = _parts(_bands(scheme, rows), MOST_ROW_TILES, "row")
    return down, _parts(_bands(_across(scheme), cols), MOST_CELLS // max(1, len(down)), "column")


def _parts(bands: Sequence[Band], most: int, what: str) -> list[Segment]:
    parts: list[Segment] = []
    for tile, (first, size, needed) in list(enumerate(bands))[-most:]:
        share = f"all {size} {what}s are" if needed == size else f"{needed} of {size} {what}s are"
        words = f"{what} tile {tile + 1} of {len(bands)}: {share} needed"
        parts.append(Segment(first, first + needed, tile, False, words))
        if needed < size:
            parts.append(Segment(first + needed, first + size, tile, True, words))
    return parts


def _edges(segments: Sequence[Segment]) -> list[int]:
    return [segment.start for segment in segments] + [segment.end for segment in segments[-1:]]


def _cell(row: Segment, col: Segment) -> str:
    head = "padding: no output needs this" if row.padded or col.padded else "needed by the output"
    return f"<b>{head}</b><br>{row.words}<br>{col.words}"

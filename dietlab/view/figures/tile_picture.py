"""The picture of what one tile of a convolution reads: the image, and each row at each tap."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from dietlab.base.errors import WorkloadError
from dietlab.problem import Shape, Workload
from dietlab.problem.dims import Window
from dietlab.view.figures.base import add_legend_key, new_figure
from dietlab.view.figures.tile_reads import Mode, Tile, frame_tile_reads, tile_of
from dietlab.view.theme import GRID, OPEN, PALETTE, TEXT

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import plotly.graph_objects as go

READ, READ_OFTEN, NOW, BEYOND = (PALETTE[role] for role in ("needed_too", "needed", "selected", "wasted"))
MOST_LINES, MOST_COLUMNS = 24, 40
"""The most lines and columns of an image that is drawn whole, zeros included. Of a larger image, the part
that the tile reads is drawn, since smaller cells are hard to see."""
MARGIN = 1
"""The lines and columns around the part of a large image that a tile reads."""
MOST_NUMBERS = 144
"""The most cells of a panel that have a number in them: 16 rows of 9 taps."""
TICKS = 9
"""The most labelled lines, rows or taps of an axis."""


HEIGHT = 520
"""The height of a picture in pixels, so that numbers fit into 16 rows and as many lines."""
IMAGE_TRACES = 3
"""The number of traces that draw the image, the first of a figure: pixels that are not read, pixels that are
read, and places beyond the image."""


def plot_tile_reads(
    workload: Workload,
    shape: Shape,
    first: int,
    rows: int,
    mode: Mode = "across",
    step: int | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws what one tile of a convolution reads. On the left are the pixels of the image, coloured by the
    number of taps that read them, and the places beyond the image that the kernel meets. On the right is
    the pixel, by its number in the image, that each row reads at each tap.

    Args:
        workload, shape, first, rows, mode: as in :func:`~dietlab.view.figures.tile_reads.frame_tile_reads`.
        step: the number of taps that were summed, from 1 to the number of taps; the last of them is marked
            (default: all, and none is marked).
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        WorkloadError: as ``frame_tile_reads``, and for a ``step`` out of its range.
    """
    frame, tile = frame_tile_reads(workload, shape, first, rows, mode), tile_of(workload, shape)
    if step is not None and not 1 <= step <= tile.taps:
        raise WorkloadError(f"a step must be from 1 to {tile.taps}, a tap of the kernel", step)
    figure = new_figure(frame, _title(frame, shape, step), template)
    now = -1 if step is None else step - 1
    past = frame if step is None else frame[frame["tap"] < step]
    _draw_image(figure, tile, frame, past, now)
    _draw_rows(figure, tile, frame, past, now)
    _add_keys(figure, mode, step)
    _lay_out(figure)
    return figure


def _title(frame: pd.DataFrame, shape: Shape, step: int | None) -> str:
    read = frame[frame["reads"] == "pixel"]
    low, high = frame["row"].iloc[0], frame["row"].iloc[-1]
    which = f"Row {low}" if low == high else f"Rows {low} to {high}"
    at = f" at {shape}" if str(shape) else ""
    beyond = len(frame) - len(read)
    reads = f"{len(read)} reads of {read['offset'].nunique()} pixels, {beyond} beyond the image"
    return f"{which}{at}: {reads}" + ("" if step is None else f"; step {step}")


# --- the image --------------------------------------------------------------------------------


class _Part(NamedTuple):
    """The drawn lines and columns of an image, zeros around it included, and the drawn images."""

    lines: range
    columns: range
    images: Sequence[int]

    def y(self, image: int, line: int) -> int:
        """Returns the place of a line on the axis, which is the line itself for the first image; the others
        lie below, each after an empty line."""
        return self.images.index(image) * (len(self.lines) + 1) + line


def _part(tile: Tile, frame: pd.DataFrame) -> _Part:
    def shown(met: pd.Series, window: Window, size: int, most: int) -> range:
        low, high = -window.before, size + window.after
        if high - low > most:
            low, high = max(low, met.min() - MARGIN), min(high, met.max() + 1 + MARGIN)
        return range(int(low), int(high))

    lines = shown(frame["line"], tile.down, tile.height, MOST_LINES)
    columns = shown(frame["column"], tile.across, tile.width, MOST_COLUMNS)
    return _Part(lines, columns, sorted({int(image) for image in frame["image"]}))


def _draw_image(figure: go.Figure, tile: Tile, frame: pd.DataFrame, past: pd.DataFrame, now: int) -> None:
    import numpy as np

    part = _part(tile, frame)
    x, y = part.columns, range(part.lines.start, part.y(part.images[-1], part.lines.stop))
    unread, read, beyond = np.full((3, len(y), len(x)), np.nan)
    for image in part.images:
        for line in part.lines:
            if 0 <= line < tile.height:
                unread[y.index(part.y(image, line)), [0 <= column < tile.width for column in x]] = 0
    for each in past.itertuples():
        cells = read if each.reads == "pixel" else beyond
        at = y.index(part.y(each.image, each.line)), x.index(each.column)
        cells[at] = 1 if np.isnan(cells[at]) else cells[at] + 1
    most = int(frame[frame["reads"] == "pixel"].groupby("offset").size().max() or 1)
    for cells, words, colours in (
        (unread, "a pixel that the tile does not read", (GRID, GRID)),
        (read, "read at %{z} taps", (READ, READ_OFTEN)),
        (beyond, "beyond the image, met at %{z} taps", (BEYOND, BEYOND)),
    ):
        scale = {"colorscale": [[0, colours[0]], [1, colours[1]]], "zmin": 1, "zmax": max(2, most)}
        hover = f"column %{{x}}: {words}<extra></extra>"
        figure.add_heatmap(x=list(x), y=list(y), z=cells, showscale=False, hovertemplate=hover, **scale)
    _number_cells(figure, x, y, read, most)
    current = past[(past["tap"] == now) & (past["reads"] == "pixel")]
    narrow = len(x) > MOST_COLUMNS or len(y) > MOST_LINES
    ring = {"symbol": f"square{OPEN}", "size": 7 if narrow else 17, "color": NOW, "line": {"width": 2}}
    figure.add_scatter(
        x=current["column"],
        y=[part.y(each.image, each.line) for each in current.itertuples()],
        mode="markers",
        marker=ring,
        hoverinfo="skip",
        showlegend=False,
    )
    every = [(image, line) for image in part.images for line in part.lines]
    some = every[:: ceil(len(every) / (2 * TICKS))]
    ticks = {"tickvals": [part.y(*at) for at in some], "ticktext": [str(line) for _, line in some]}
    figure.update_layout(yaxis=ticks)


def _number_cells(
    figure: go.Figure, x: Sequence[int], y: Sequence[int], read: npt.NDArray[Any], most: int
) -> None:
    """Writes the number of taps into the pixels that are read, if they are few."""
    import numpy as np

    down, across = (at.tolist() for at in np.nonzero(~np.isnan(read)))
    if not 0 < len(down) <= MOST_NUMBERS or len(x) > MOST_COLUMNS or len(y) > MOST_LINES:
        return
    counts = read[down, across]
    figure.add_scatter(
        x=[x[at] for at in across],
        y=[y[at] for at in down],
        text=[f"{count:.0f}" for count in counts],
        mode="text",
        textfont={"color": ["#ffffff" if 2 * count > most else "#000000" for count in counts]},
        hoverinfo="skip",
        showlegend=False,
    )


# --- rows and taps ----------------------------------------------------------------------------

LATER, DONE, CURRENT, NO_PIXEL = range(4)
COLOURS = (GRID, READ, NOW, BEYOND)
"""The colours of a row at a tap: not summed yet, summed, in this step, and beyond the image."""
INKS = (TEXT, "#000000", "#ffffff", "#000000")
"""The colours of the numbers on them."""


def _draw_rows(figure: go.Figure, tile: Tile, frame: pd.DataFrame, past: pd.DataFrame, now: int) -> None:
    import numpy as np

    count = len(frame) // tile.taps
    state = np.where(frame.index < len(past), DONE, LATER)
    state[(frame["tap"] == now).to_numpy()] = CURRENT
    state[((frame["reads"] != "pixel") & (state != LATER)).to_numpy()] = NO_PIXEL
    rows, taps = frame["row"].iloc[:count], frame.iloc[::count]
    figure.add_heatmap(
        x=list(range(tile.taps)),
        y=list(rows),
        z=state.reshape(tile.taps, count).T,
        zmin=LATER,
        zmax=NO_PIXEL,
        colorscale=[[code / NO_PIXEL, colour] for code, colour in enumerate(COLOURS)],
        text=_words(frame).reshape(tile.taps, count).T.tolist(),
        hovertemplate="%{text}<extra></extra>",
        showscale=False,
        xgap=1,
        ygap=1,
        xaxis="x2",
        yaxis="y2",
    )
    if len(frame) <= MOST_NUMBERS:
        pixels = frame["offset"] // tile.channels
        figure.add_scatter(
            x=frame["tap"],
            y=frame["row"],
            text=pixels.astype(str).where(pixels.notna(), "").tolist(),
            mode="text",
            textfont={"color": [INKS[code] for code in state], "size": 10},
            hoverinfo="skip",
            showlegend=False,
            xaxis="x2",
            yaxis="y2",
        )
    some = taps.iloc[:: ceil(tile.taps / TICKS)]
    names = [f"{tap.tap_line},{tap.tap_column}" for tap in some.itertuples()]
    figure.update_layout(xaxis2={"tickvals": list(some["tap"]), "ticktext": names})
    figure.update_layout(yaxis2={"tickvals": list(rows.iloc[:: ceil(count / (2 * TICKS))])})


def _words(frame: pd.DataFrame) -> Any:
    """Returns what a row reads at a tap, for each row of the table, as text."""
    import numpy as np

    said = []
    for each in frame.itertuples():
        where = f"row {each.row}, tap {each.tap_line},{each.tap_column}: "
        pixel = f"line {each.line}, column {each.column}"
        if each.reads == "pixel":
            said.append(f"{where}element {each.offset} ({pixel})")
        else:
            said.append(f"{where}beyond the image ({pixel}): {each.reads}")
    return np.array(said, dtype=object)


def _add_keys(figure: go.Figure, mode: Mode, step: int | None) -> None:
    add_legend_key(figure, "read; darker at more taps", READ)
    if step is not None:
        add_legend_key(figure, "read in this step", NOW, f"square{OPEN}")
    beyond = "zeros, multiplied like pixels" if mode == "across" else "skipped"
    add_legend_key(figure, f"beyond the image: {beyond}", BEYOND)
    add_legend_key(figure, "not read" if step is None else "not read yet", GRID)


def _lay_out(figure: go.Figure) -> None:
    bare = {"showgrid": False, "zeroline": False}
    taps = "tap (line,column of the kernel)<br>cells: number of the pixel"
    figure.update_layout(
        height=HEIGHT,
        legend={"orientation": "h", "y": -0.26},
        margin={"b": 140},
        xaxis={**bare, "domain": [0, 0.55], "title": {"text": "column of the image"}},
        yaxis={**bare, "autorange": "reversed", "title": {"text": "line of the image"}},
        xaxis2={**bare, "domain": [0.64, 1], "anchor": "y2", "title": {"text": taps}},
        yaxis2={**bare, "anchor": "x2", "autorange": "reversed", "title": {"text": "row of the output"}},
    )

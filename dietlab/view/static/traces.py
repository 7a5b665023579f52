"""plotly's traces drawn by matplotlib: each function draws one and returns its mark in a legend.

In all of them, ``page`` is a :class:`dietlab.view.static.picture.Page`; ``cycle`` is the colour of a trace
that names none.
"""

from __future__ import annotations

from typing import Any

from dietlab.view.static.colours import are_numbers, colours, default, plain
from dietlab.view.static.parallel import parcoords
from dietlab.view.theme import OPEN, TEXT

POINTS = 0.72  # of a pixel
DASHES = {
    "dash": "--",
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (8, 3)),
    "longdashdot": (0, (8, 2, 2, 2)),
}
STEPS = {"hv": "steps-post", "vh": "steps-pre", "hvh": "steps-mid"}
SYMBOLS = {
    "square": "s",
    "diamond": "D",
    "cross": "P",
    "x": "X",
    "star": "*",
    "triangle-up": "^",
    "hexagon": "h",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
    "line-ns": "|",
    "line-ew": "_",
}


def _scatter(page: Any, trace: Any, cycle: str) -> Any:
    from matplotlib.lines import Line2D

    axes, x, y = _data(page, trace)
    mode = trace.mode or ("lines+markers" if len(x) < 20 else "lines")
    own = trace.marker.color if isinstance(trace.marker.color, str) else None
    colour = colours(trace.line.color or own or cycle)
    style = DASHES.get(trace.line.dash, "-") if "lines" in mode else "none"
    look = {"color": colour, "linestyle": style, "linewidth": default(trace.line.width, 2) * POINTS}
    axes.plot(x, y, drawstyle=STEPS.get(trace.line.shape, "default"), alpha=trace.opacity, **look)
    if trace.fill == "tozeroy":
        face = colours(trace.fillcolor or colour)
        axes.fill_between(x, y, color=face, alpha=default(trace.opacity, 0.4), linewidth=0)
    _error_bars(axes, trace, x, y, colour)
    if "markers" in mode:
        look |= _markers(page, axes, trace, x, y, colours(own) if own else colour)
    if "text" in mode:
        _texts_at(axes, trace, x, y)
    return Line2D([], [], **look)


def _markers(page: Any, axes: Any, trace: Any, x: Any, y: Any, colour: Any) -> dict[str, Any]:
    """Draws markers; a symbol, a size or a colour is given once for all markers or once for each. Returns the
    look of the first marker."""
    import numpy as np
    from matplotlib.colors import to_rgba_array

    marker, count = trace.marker, len(x)
    if marker.color is not None:
        colour = _colours_of(page, axes, marker)
    edges = np.broadcast_to(to_rgba_array(colour), (count, 4))
    sizes = np.broadcast_to(np.array(default(marker.size, 6), dtype=float), count) * POINTS
    symbols = np.broadcast_to(np.array(default(marker.symbol, "circle"), dtype=str), count).tolist()
    for symbol in dict.fromkeys(symbols):
        these = np.array([one == symbol for one in symbols])
        axes.scatter(
            x[these],
            y[these],
            s=sizes[these] ** 2,
            marker=SYMBOLS.get(symbol.removesuffix(OPEN), "o"),
            edgecolors=edges[these],
            facecolors="none" if symbol.endswith(OPEN) else edges[these],
            alpha=default(marker.opacity, trace.opacity),
            linewidths=1,
            zorder=2.5,
        )
    first = symbols[0] if symbols else "circle"
    face = {"markerfacecolor": "none"} if first.endswith(OPEN) else {}
    edge = tuple(edges[0]) if count else colour
    return {"marker": SYMBOLS.get(first.removesuffix(OPEN), "o"), "markersize": 5, "color": edge, **face}


def _colours_of(page: Any, axes: Any, marker: Any) -> Any:
    """Returns the colours of markers or bars. If numbers give the colours, the axes get a key, unless the
    figure turns it off; plotly's defaults for this differ between markers and colour axes."""
    if not are_numbers(marker.color):
        return colours(marker.color)
    scale = page.scale(marker, marker.color)
    if marker.coloraxis or marker.showscale:
        page.add_key(axes, scale)
    return scale.of(marker.color)


def _texts_at(axes: Any, trace: Any, x: Any, y: Any) -> None:
    vertical, _, side = (trace.textposition or "middle center").partition(" ")
    shift = ({"left": -4, "right": 4}.get(side, 0), {"bottom": -5, "top": 5}.get(vertical, 0))
    across = {"left": "right", "right": "left"}.get(side, "center")
    down = {"bottom": "top", "top": "bottom"}.get(vertical, "center")
    colour = colours(default(trace.textfont.color, TEXT))
    each = colour if isinstance(colour, list) else [colour] * len(x)
    for place, text, ink in zip(zip(x, y, strict=True), _texts(trace, len(x)), each, strict=False):
        axes.annotate(
            text, place, shift, textcoords="offset points", color=ink, fontsize=8, ha=across, va=down
        )


def _error_bars(axes: Any, trace: Any, x: Any, y: Any, colour: Any) -> None:
    import numpy as np

    for which, bars in (("xerr", trace.error_x), ("yerr", trace.error_y)):
        if bars.array is not None and bars.visible is not False:
            ends = np.array([default(bars.arrayminus, bars.array), bars.array], dtype=float)
            ends = np.nan_to_num(ends).clip(min=0)
            axes.errorbar(x, y, fmt="none", ecolor=colour, elinewidth=1, **{which: ends})


def _bar(page: Any, trace: Any, cycle: str) -> Any:
    """Draws bars; bars of a funnel are centred."""
    import numpy as np
    from matplotlib.patches import Patch

    axes, x, y = _data(page, trace)
    funnel = trace.type == "funnel"
    flat = funnel or trace.orientation == "h"
    at, lengths = (y, x) if flat else (x, y)
    at, width, starts = _beside(page, trace, axes, at, np.nan_to_num(lengths))
    face = _colours_of(page, axes, trace.marker) if trace.marker.color is not None else cycle
    draw = axes.barh if flat else axes.bar
    bars = draw(at, lengths, width, -lengths / 2 if funnel else starts, color=face, alpha=trace.opacity)
    if funnel:
        axes.yaxis.set_inverted(True)
        axes.xaxis.set_visible(False)
    else:
        _error_bars(axes, trace, *((lengths, at) if flat else (at, lengths)), TEXT)
    texts = [f"{value:,.0f}" for value in lengths] if funnel else _texts(trace, len(at))
    stacked = page.figure.layout.barmode in ("stack", "relative")
    look = {"label_type": "center", "color": "black"} if stacked else {"padding": 2, "color": TEXT}
    if texts:
        axes.bar_label(bars, texts, fontsize=8, **look)
    return Patch(color=bars.patches[0].get_facecolor() if bars.patches else TEXT)


def _beside(page: Any, trace: Any, axes: Any, at: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Returns the positions, the width and the starts of bars that are next to other traces' bars."""
    import numpy as np

    layout, starts = page.figure.layout, np.zeros(len(at))
    gaps = np.diff(np.unique(at[np.isfinite(at)]))
    width = (gaps.min() if len(gaps) else 1.0) * (1 - default(layout.bargap, 0.2))
    if trace.type == "funnel":
        return at, width, starts
    if layout.barmode in ("stack", "relative"):
        for i, key in enumerate((id(axes), *pair) for pair in zip(at, lengths < 0, strict=True)):
            starts[i] = page.stacked.get(key, 0.0)
            page.stacked[key] = starts[i] + lengths[i]
    elif layout.barmode in (None, "group"):
        mates = [
            other
            for other in page.figure.data
            if other.type == "bar"
            and other.visible in (None, True)
            and (other.xaxis, other.yaxis) == (trace.xaxis, trace.yaxis)
        ]
        place = next(i for i, other in enumerate(mates) if other is trace)
        width /= len(mates)
        at = at + (place - (len(mates) - 1) / 2) * width
    return at, default(trace.width, width), starts


def _heatmap(page: Any, trace: Any, cycle: str) -> None:
    import numpy as np

    values = np.array([list(row) for row in trace.z], dtype=float)
    names = (trace.xaxis or "x", trace.yaxis or "y")
    axes = page.panel(*names)
    corners = [
        _edges(page.places(name, default(at, range(count))), count)
        for name, at, count in zip(names, (trace.x, trace.y), values.shape[::-1], strict=True)
    ]
    scale = page.scale(trace, values)
    axes.pcolormesh(*corners, values, norm=scale.norm, cmap=scale.colours)
    if trace.coloraxis or trace.showscale is not False:
        page.add_key(axes, scale)


TRACES = {
    "scatter": _scatter,
    "scattergl": _scatter,
    "bar": _bar,
    "funnel": _bar,
    "heatmap": _heatmap,
    "parcoords": parcoords,
}


def _data(page: Any, trace: Any) -> tuple[Any, Any, Any]:
    """Returns the ``Axes`` that a trace is drawn on, and its positions on both axes."""
    x, y = trace.xaxis or "x", trace.yaxis or "y"
    count = len(default(default(trace.x, trace.y), ()))
    xs, ys = default(trace.x, range(count)), default(trace.y, range(count))
    return page.panel(x, y), page.places(x, xs), page.places(y, ys)


def _texts(trace: Any, count: int) -> list[str]:
    texts = [trace.text] * count if isinstance(trace.text, str) else default(trace.text, ())
    return [plain(str(text)) for text in texts]


def _edges(centres: Any, count: int) -> Any:
    """Returns the edges of cells from their centres; edges are returned as they are."""
    import numpy as np

    if len(centres) == count + 1:
        return centres
    inner = (centres[1:] + centres[:-1]) / 2 if count > 1 else centres + 0.5
    ends = [2 * centres[-1] - inner[-1]] if count > 1 else []
    return np.concatenate([[2 * centres[0] - inner[0]], inner, ends])

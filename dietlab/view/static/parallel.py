"""plotly's parallel coordinates drawn by matplotlib."""

from __future__ import annotations

from typing import Any

from dietlab.view.static.colours import colours, default, plain
from dietlab.view.theme import TEXT

CHARACTERS = 9
"""The most characters of a tick's text next to an axis: about ten axes share 600 pixels."""


def parcoords(page: Any, trace: Any, _: str) -> None:
    """Draws a line for each row through its place on every axis. Rows outside a brushed range are faded and
    drawn below the others."""
    import numpy as np
    from matplotlib.collections import LineCollection

    axes = page.panel("x", "y")
    dims = [dim for dim in trace.dimensions if dim.visible is not False]
    values = np.array([list(dim.values) for dim in dims], dtype=float)
    ends = [_ends(dim, row) for dim, row in zip(dims, values, strict=True)]
    shares = np.array([(row - low) / (high - low) for row, (low, high) in zip(values, ends, strict=True)])
    lines = np.dstack([np.tile(np.arange(len(dims)), (values.shape[1], 1)), shares.T])
    kept = np.all([_brushed(dim, row) for dim, row in zip(dims, values, strict=True)], axis=0)
    scale = page.scale(trace.line, trace.line.color)
    shown = np.array(scale.of(trace.line.color))
    faded = colours(trace.unselected.line.color or TEXT)
    axes.add_collection(LineCollection(list(lines[~kept]), colors=[faded], linewidths=0.6, zorder=1))
    axes.add_collection(LineCollection(list(lines[kept]), colors=shown[kept], linewidths=0.9, zorder=2))
    for at, (dim, (low, high)) in enumerate(zip(dims, ends, strict=True)):
        _axis(axes, at, dim, low, high)
    axes.set_xlim(-0.3, len(dims) - 0.7)
    axes.set_ylim(-0.05, 1.05)
    for side in axes.spines.values():
        side.set_visible(False)
    if trace.line.showscale:
        page.add_key(axes, scale)


def _ends(dim: Any, row: Any) -> tuple[float, float]:
    low, high = default(dim.range, (float(row.min()), float(row.max())))
    return (low, high) if high > low else (low, low + 1)


def _brushed(dim: Any, row: Any) -> Any:
    """Returns, for each row, whether its value is in a brushed range; without such a range all are."""
    import numpy as np

    if dim.constraintrange is None:
        return np.ones(len(row), dtype=bool)
    ranges = np.atleast_2d(np.array(dim.constraintrange, dtype=float))
    return np.any([(low <= row) & (row <= high) for low, high in ranges], axis=0)


def _axis(axes: Any, at: int, dim: Any, low: float, high: float) -> None:
    axes.plot([at, at], [0, 1], color=TEXT, linewidth=1, zorder=3)
    axes.text(at, 1.06, plain(dim.label), color=TEXT, fontsize=8, ha="center", va="bottom")
    values = list(default(dim.tickvals, (low, (low + high) / 2, high)))
    texts = list(default(dim.ticktext, [f"{value:.3g}" for value in values]))
    for value, text in zip(values, texts, strict=True):
        place = (value - low) / (high - low)
        axes.text(
            at + 0.04, place, plain(str(text))[:CHARACTERS], color=TEXT, fontsize=7, va="center", zorder=4
        )

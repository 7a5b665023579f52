"""The traces and the axes of a map: regions of plans, squares in the colours of numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dietlab.problem.dims import Dim
from dietlab.view.figures.base import DOUBLINGS, RATIO_TICKS, add_held_out_key, add_legend_key, in_order
from dietlab.view.figures.dispatch_tree import last_drawn
from dietlab.view.theme import ACCENTS, BALANCE, SCALE, TEXT, TIE, accented, marks

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

HEIGHT = 520
LARGEST, LEAST = 22, 5
"""The greatest and the least length of a square's side, in pixels."""
ROOM = (620, 330)
"""The width and the height, in pixels, that all squares of a map share."""
WIDE = 4
"""The least number of doublings between the ends of a logarithmic axis: layers differ by factors."""
STRONGEST = 1.0
"""The speedup, in doublings, from which on the colour is the strongest. So differences of some percent stay
visible although a single shape has a factor of five."""
LABELLED = 0.045
"""The least share of both axes that a region must take for its plan's number to be shown."""


# --- numbers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """The colours and words of the numbers of a map.

    Args:
        key: the title of the key.
        scale: plotly's colour scale, from the least number to the greatest.
        ratio: whether the numbers are ratios, whose mean is geometric; 1 is no difference.
        balanced: whether colours are on a log scale with its middle at 1. Otherwise, colours show percent: of
            a ratio, the part above 1.
        more_is_better: whether a greater number is better; the least is then the worst.
    """

    key: str
    scale: Sequence[Sequence[Any]]
    ratio: bool = False
    balanced: bool = False
    more_is_better: bool = False

    def drawn(self, numbers: Any) -> Any:
        """Returns the numbers that colours show: base-2 logarithms of speedups, else percent."""
        found = np.asarray(numbers, dtype=float)
        return np.log2(found) if self.balanced else 100 * (found - 1 if self.ratio else found)

    def words(self, number: float) -> str:
        """Returns a number as text: ``"1.20 times"`` or ``"3.1 %"``."""
        return f"{number:.2f} times" if self.balanced else f"{float(self.drawn(number)):.1f} %"

    def colours(self, numbers: Any) -> dict[str, Any]:
        """Returns plotly's settings of markers coloured by these numbers, and of their key."""
        drawn = self.drawn(numbers)
        key: dict[str, Any] = {"title": {"text": self.key}}
        if self.balanced:
            high = min(STRONGEST, float(max(np.abs(drawn).max(), 0.05)))
            ticks = [tick for tick in RATIO_TICKS if abs(math.log2(tick)) <= high]
            texts = [f"{tick:g}" for tick in ticks]
            key |= {"tickvals": [math.log2(tick) for tick in ticks], "ticktext": texts}
        else:
            high = float(max(drawn.max(), 1e-3))
            key |= {"ticksuffix": " %"}
        return {
            "color": drawn,
            "cmin": -high if self.balanced else 0.0,
            "cmax": high,
            "colorscale": self.scale,
            "colorbar": key,
            "showscale": True,
        }


SPEEDUPS = Look("speedup<br>(times)", BALANCE, ratio=True, balanced=True, more_is_better=True)
LOSSES = Look("loss (%)", SCALE, ratio=True)
SHARES = Look("share (%)", SCALE)
GAINS = Look(
    "share (%)",
    [[end, colour] for (end, _), (_, colour) in zip(SCALE, SCALE[::-1], strict=True)],
    more_is_better=True,
)


def add_points(figure: go.Figure, table: pd.DataFrame, value: str, look: Look) -> None:
    """Adds a square for each row of a table of :func:`~dietlab.view.figures.shape_map.frame_map`; open
    squares are held out from tuning."""
    x, y = table.columns[:2]
    shares = [space / table[name].nunique() for space, name in zip(ROOM, (x, y), strict=True)]
    figure.add_scatter(
        x=table[x],
        y=table[y],
        mode="markers",
        name=value,
        showlegend=False,
        hoverinfo="text",
        hovertext=[_hover(row, x, y, value, look) for row in table.to_dict("records")],
        marker={
            "symbol": marks("square", table["held_out"]),
            "size": min(LARGEST, max(LEAST, 0.8 * min(shares))),
            "line": {"width": 3},
            **look.colours(table[value]),
        },
    )
    add_held_out_key(figure, table)
    # Beside the plot it would lie on the key of the colours.
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})


def _hover(row: dict[str, Any], x: str, y: str, value: str, look: Look) -> str:
    down = row[y] if y == "layer" else f"{y}={row[y]}"
    worst = f"over {row['shapes']} shapes, worst {look.words(row['worst'])}"
    of = worst if row["shapes"] > 1 else "of one shape"
    held_out = "<br>held out from tuning" if row["held_out"] else ""
    return (
        f"<b>{value.replace('_', ' ')} {look.words(row[value])}</b>"
        f"<br>{x}={row[x]}, {escape(str(down))}<br>{of}{held_out}"
    )


# --- regions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The drawn part of a dimension: its range and a little more beyond the end.

    Args:
        low, high: the least and the greatest drawn extent.
        end: the end of the range.
    """

    low: int
    high: int
    end: int

    @classmethod
    def of(cls, dim: Dim) -> Window:
        return cls(dim.low, last_drawn(dim), dim.high)

    @property
    def wide(self) -> bool:
        return _is_wide((self.low, self.end))

    def clipped(self, lows: pd.Series, highs: pd.Series) -> tuple[Any, Any]:
        """Returns the edges of ranges, cut to the window. A range outside the window gets an upper edge below
        its lower edge."""
        low = np.maximum(lows.to_numpy(float), self.low) - 0.5
        high = np.minimum(highs.astype("Float64").fillna(self.high).to_numpy(float), self.high) + 0.5
        return low, high

    def share(self, low: float, high: float) -> float:
        """Returns the share of the axis that lies between two edges."""
        first, last = self.low - 0.5, self.high + 0.5
        if self.wide:
            return math.log(high / low) / math.log(last / first)
        return (high - low) / (last - first)

    def middle(self, low: float, high: float) -> float:
        """Returns the middle between two edges on the drawn axis."""
        return math.sqrt(low * high) if self.wide else (low + high) / 2


class Box(NamedTuple):
    """A region of one plan: its edges, the plan's index and scheme, and the region's hover text (HTML)."""

    left: float
    right: float
    low: float
    high: float
    plan: int
    scheme: str
    words: str


def add_regions(
    figure: go.Figure, table: pd.DataFrame, names: tuple[str, str], windows: Sequence[Window]
) -> None:
    """Adds the boxes of a tree: cells in the colours of plans, their borders, and the plans' numbers."""
    across, down = windows
    ends = [w.clipped(table[f"low_{n}"], table[f"high_{n}"]) for n, w in zip(names, windows, strict=True)]
    said = [_box_words(row, names) for row in table.to_dict("records")]
    every = map(Box, *ends[0], *ends[1], table["plan"], table["scheme"], said)
    seen = [box for box in every if box.left < box.right and box.low < box.high]
    _add_cells(figure, seen)
    x = [edge for b in seen for edge in (b.left, b.right, b.right, b.left, b.left, None)]
    y = [edge for b in seen for edge in (b.low, b.low, b.high, b.high, b.low, None)]
    line = {"color": TEXT, "width": 1}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
    roomy = [b for b in seen if min(across.share(b.left, b.right), down.share(b.low, b.high)) >= LABELLED]
    figure.add_scatter(
        x=[across.middle(box.left, box.right) for box in roomy],
        y=[down.middle(box.low, box.high) for box in roomy],
        mode="text",
        text=[str(box.plan) for box in roomy],
        textfont={"color": "black"},
        hoverinfo="skip",
        showlegend=False,
    )
    for number, scheme in sorted({box.plan: box.scheme for box in seen}.items()):
        add_legend_key(figure, f"{number}: {escape(scheme)}", accented(number).colour)
    figure.add_vline(x=across.end + 0.5, line=TIE)
    figure.add_hline(y=down.end + 0.5, line=TIE)


def _add_cells(figure: go.Figure, boxes: Sequence[Box]) -> None:
    """Adds a heat map whose cells are cut at every edge of a box."""
    xs = np.unique([edge for box in boxes for edge in (box.left, box.right)])
    ys = np.unique([edge for box in boxes for edge in (box.low, box.high)])
    colour = np.full((len(ys) - 1, len(xs) - 1), np.nan)
    text = np.full(colour.shape, "", dtype=object)
    count = len(ACCENTS)
    for box in boxes:
        rows = slice(*np.searchsorted(ys, (box.low, box.high)))
        cols = slice(*np.searchsorted(xs, (box.left, box.right)))
        colour[rows, cols], text[rows, cols] = box.plan % count, box.words
    figure.add_heatmap(
        x=xs,
        y=ys,
        z=colour,
        zmin=-0.5,
        zmax=count - 0.5,
        colorscale=[[(n + end) / count, colour] for n, colour in enumerate(ACCENTS) for end in (0, 1)],
        showscale=False,
        text=text,
        hovertemplate="%{text}<extra></extra>",
    )


def _box_words(row: dict[str, Any], names: Sequence[str]) -> str:
    import pandas as pd

    def span(name: str) -> str:
        low, high = row[f"low_{name}"], row[f"high_{name}"]
        if pd.isna(high):
            return f"{name} from {low} on"
        return f"{name}={low}" if low == high else f"{name}={low} to {high}"

    return f"<b>plan {row['plan']}: {escape(row['scheme'])}</b><br>{', '.join(map(span, names))}"


# --- axes -------------------------------------------------------------------------------------


def lay_out(figure: go.Figure, names: tuple[str, str], shown: Sequence[Window | list[Any]]) -> None:
    """Names and scales both axes; each shows a :class:`Window`, or every value of a list."""
    figure.update_layout(height=HEIGHT, xaxis=_axis(names[0], shown[0]), yaxis=_axis(names[1], shown[1]))


def _is_wide(extents: Collection[int]) -> bool:
    """Returns whether an axis of a map is logarithmic."""
    return max(extents) >= min(extents) << WIDE


def _axis(name: str, shown: Window | list[Any]) -> dict[str, Any]:
    title = {"title": {"text": f"{name} (extents)" if name == "layer" else f"{name} (extent)"}}
    if isinstance(shown, Window):
        ends = [shown.low - 0.5, shown.high + 0.5]
        scale = DOUBLINGS if shown.wide else {}
        return {**title, **scale, "showgrid": False, "range": np.log10(ends) if shown.wide else ends}
    if name == "layer":
        return {**title, **in_order(shown), "automargin": True}
    return {**title, **(DOUBLINGS if _is_wide(shown) else {})}

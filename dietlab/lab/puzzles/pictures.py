"""The pictures of puzzles: an answer's values for some inputs, beside the expected values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dietlab.lab.puzzles import answers
from dietlab.view.figures.base import new_figure
from dietlab.view.theme import DASHES, GRID, OPEN, PALETTE, TEXT

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Given = Mapping[str, Any]
"""The arguments of one case by name, in the order of a call."""

Point = tuple[Any, Any, float]
"""A place on the x axis, a line's name (of a grid: a place on the y axis), and a value."""

Place = Mapping[str, int]
"""A subplot, by row and column."""

GIVEN, EXPECTED, YOURS = "given", "expected", "yours"
COLOURS = {GIVEN: PALETTE["muted"], EXPECTED: PALETTE["needed"], YOURS: PALETTE["selected"]}
LINES = {"gridcolor": GRID, "zerolinecolor": GRID}
LARGEST_TEXT = 64
"""The most cells of a grid that are labelled with their values: more labels would overlap."""


@dataclass(frozen=True)
class Look:
    """A case of a picture: arguments, the expected value, and the value of an answer, if it gave one."""

    given: Given
    expected: Any
    yours: Any = None
    answered: bool = False


@dataclass(frozen=True)
class Picture:
    """A kind of figure, and the points that it shows of a value.

    Args:
        x, y: the titles of the axes, with their units.
        points: a function that returns the points to draw of the value for some arguments (default: a number
            over the first argument).
        kind: the kind of figure: ``bars`` are stacked over x in the order of the points, a ``grid`` has
            coloured cells.
        z: the meaning of a grid's colours.
        context: a function that returns points of the arguments alone, drawn in grey.
    """

    title: str
    x: str
    y: str
    points: Callable[[Given, Any], Iterable[Point]] = lambda given, value: [_number(given, value)]
    kind: Literal["curve", "bars", "grid"] = "curve"
    z: str = ""
    context: Callable[[Given], Iterable[Point]] | None = None

    def frame(self, looks: Iterable[Look]) -> pd.DataFrame:
        """Returns the table of a picture: ``who``, ``x``, ``series`` and ``value`` of each point."""
        import pandas as pd

        rows: list[tuple[Any, ...]] = []
        for look in looks:
            if self.context is not None:
                rows += [(GIVEN, *point) for point in self.context(look.given)]
            rows += [(EXPECTED, *point) for point in self.points(look.given, look.expected)]
            if look.answered:
                with suppress(Exception):  # whatever is wrong with the value, the check's sentence says it
                    points = list(self.points(look.given, look.yours))
                    rows += [(YOURS, x, series, float(value)) for x, series, value in points]
        return pd.DataFrame(rows, columns=["who", "x", "series", "value"])

    def figure(self, frame: pd.DataFrame, attempted: bool = False) -> go.Figure:
        """Draws the table of a picture."""
        nothing = attempted and not (frame["who"] == YOURS).any()
        figure = new_figure(frame, self.title + (" (yours gives nothing to draw)" if nothing else ""), None)
        if self.kind == "curve":
            self._draw_curves(figure, frame)
            return figure
        sides = [who for who in (EXPECTED, YOURS) if (frame["who"] == who).any()]
        names = sides if len(sides) > 1 else None
        figure.set_subplots(1, len(sides), shared_yaxes=True, horizontal_spacing=0.08, subplot_titles=names)
        for title in figure.layout.annotations:
            title.font = {"color": COLOURS[title.text]}
        for number, who in enumerate(sides, start=1):
            part, place = frame[frame["who"] == who], {"row": 1, "col": number}
            if self.kind == "grid":
                self._draw_grid(figure, part, frame, place, keyed=number == len(sides))
            else:
                self._draw_bars(figure, part, place)
        figure.update_xaxes(title_text=self.x, **LINES)
        figure.update_yaxes(showticklabels=True, **LINES)
        figure.update_yaxes(title_text=self.y, col=1)
        return figure

    def _draw_curves(self, figure: go.Figure, frame: pd.DataFrame) -> None:
        """Draws a line for each series; an answer's are marks over the expected lines."""
        for who in (GIVEN, EXPECTED, YOURS):
            part = frame[frame["who"] == who]
            for number, series in enumerate(part["series"].unique()):
                one = part[part["series"] == series]
                name = f"{who}: {series}" if series else who
                mark = {"symbol": f"circle{OPEN}", "size": 9, "line": {"width": 2}} if who == YOURS else {}
                figure.add_scatter(
                    x=one["x"],
                    y=one["value"],
                    name=name,
                    mode="markers" if who == YOURS or len(one) == 1 else "lines",
                    line={"color": COLOURS[who], "dash": DASHES[number % len(DASHES)]},
                    marker={"color": COLOURS[who], **mark},
                    hovertemplate=f"{name} %{{y:.4g}} at %{{x}}<extra></extra>",
                )
        figure.update_layout(showlegend=True)
        figure.update_xaxes(title_text=self.x)
        figure.update_yaxes(title_text=self.y)

    def _draw_grid(
        self, figure: go.Figure, part: pd.DataFrame, whole: pd.DataFrame, place: Place, keyed: bool
    ) -> None:
        """Draws coloured cells, the first row above, in the colours of the expected values. Few cells have
        their values as text.
        """
        table = part.pivot_table(index="series", columns="x", values="value", aggfunc="last")
        scale = whole.loc[whole["who"] == EXPECTED, "value"]
        figure.add_heatmap(
            x=list(table.columns),
            y=list(table.index),
            z=table.to_numpy(),
            zmin=scale.min(),
            zmax=scale.max(),
            colorscale="Cividis",
            showscale=keyed,
            colorbar={"title": self.z},
            hovertemplate=f"%{{x}}, %{{y}}: %{{z:.0f}} ({self.z})<extra></extra>",
            **place,
        )
        figure.update_xaxes(tickvals=list(table.columns), **place)
        figure.update_yaxes(tickvals=list(table.index), autorange="reversed", **place)
        if table.size > LARGEST_TEXT:
            return
        middle, drawn = float(scale.min() + scale.max()) / 2, figure.data[-1]
        look = {"showarrow": False, "xref": drawn.xaxis, "yref": drawn.yaxis}
        texts = []
        for row in part.itertuples():
            font = {"color": "#ffffff" if row.value <= middle else "#000000"}  # on dark, on light
            texts.append({"x": row.x, "y": row.series, "text": f"{row.value:.0f}", "font": font, **look})
        # All at once: plotly copies and checks all of them whenever one is added.
        figure.update_layout(annotations=[*figure.layout.annotations, *texts])

    def _draw_bars(self, figure: go.Figure, part: pd.DataFrame, place: Place) -> None:
        """Draws stacked bars, one trace for each place in the stack."""
        for number, one in part.groupby(part.groupby("x").cumcount()):
            colour = PALETTE[("needed", "needed_too")[int(number) % 2]]
            look = {"marker": {"color": colour, "line": {"color": TEXT, "width": 0.5}}, "showlegend": False}
            hover = f"number {number + 1}: %{{y}} at %{{x}}<extra></extra>"
            figure.add_bar(x=one["x"], y=one["value"], hovertemplate=hover, **look, **place)
        figure.update_layout(barmode="stack", bargap=0.15)


def _number(given: Given, value: Any) -> Point:
    return next(iter(given.values())), "", answers.number(value)

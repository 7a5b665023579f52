"""The pictures of puzzles: what an answer gives for some inputs, beside what is expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dietlab.view.figures.base import new_figure
from dietlab.view.theme import DASHES, GRID, OPEN, PALETTE, TEXT

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Given = Mapping[str, Any]
"""The arguments of one case by name, in the order of a call."""

Point = tuple[Any, Any, float]
"""A place on the x axis, a line's name (of a grid: a place on the y axis), and a value."""

GIVEN, EXPECTED, YOURS = "given", "expected", "yours"
COLOURS = {GIVEN: PALETTE["muted"], EXPECTED: PALETTE["needed"], YOURS: PALETTE["selected"]}
LARGEST_TEXT = 64
"""Cells of a grid that are labelled with their value at most: more would lie over each other."""


@dataclass(frozen=True)
class Look:
    """A case of a picture: arguments, the expected value, and the value of an answer, if it gave one."""

    given: Given
    expected: Any
    yours: Any = None
    answered: bool = False


@dataclass(frozen=True)
class Picture:
    """A kind of figure and what it shows of a value.

    Args:
        title: of the figure.
        x: title of the horizontal axis, with its unit.
        y: title of the vertical axis, with its unit.
        points: what is drawn of the value for some arguments.
        kind: ``curve``; ``bars``, stacked over x in the order of the points; or ``grid``, coloured cells.
        z: of a grid: what its colours mean.
        context: points of the arguments alone, in grey.
    """

    title: str
    x: str
    y: str
    points: Callable[[Given, Any], Iterable[Point]]
    kind: Literal["curve", "bars", "grid"] = "curve"
    z: str = ""
    context: Callable[[Given], Iterable[Point]] | None = None

    def frame(self, looks: Iterable[Look]) -> pd.DataFrame:
        """Returns the table of a picture: ``who``, ``x``, ``series`` and ``value`` of each point.

        Nothing is drawn of a value that is not of the kind that the puzzle asks for.
        """
        import pandas as pd

        rows: list[tuple[Any, ...]] = []
        for look in looks:
            if self.context is not None:
                rows += [(GIVEN, *point) for point in self.context(look.given)]
            rows += [(EXPECTED, *point) for point in self.points(look.given, look.expected)]
            if look.answered:
                rows += [(YOURS, *point) for point in self._points_of(look)]
        return pd.DataFrame(rows, columns=["who", "x", "series", "value"])

    def _points_of(self, look: Look) -> list[Point]:
        try:
            return [(x, series, float(value)) for x, series, value in self.points(look.given, look.yours)]
        except Exception:  # whatever is wrong with the value, the check's sentence says it
            return []

    def figure(self, frame: pd.DataFrame, attempted: bool = False) -> go.Figure:
        """Draws the table of a picture.

        Args:
            attempted: whether there is an answer; the title says where nothing of it can be drawn.
        """
        nothing = attempted and not (frame["who"] == YOURS).any()
        figure = new_figure(frame, self.title + (" (yours gives nothing to draw)" if nothing else ""), None)
        if self.kind == "curve":
            self._draw_curves(figure, frame)
            return figure
        sides = [who for who in (EXPECTED, YOURS) if (frame["who"] == who).any()]
        for number, who in enumerate(sides, start=1):
            part = frame[frame["who"] == who]
            axes = {"xaxis": f"x{number}", "yaxis": f"y{number}"} if number > 1 else {}
            if self.kind == "grid":
                self._draw_grid(figure, part, frame, axes, keyed=number == len(sides))
            else:
                self._draw_bars(figure, part, axes)
        self._lay_out(figure, sides)
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
        self, figure: go.Figure, part: pd.DataFrame, whole: pd.DataFrame, axes: Mapping[str, str], keyed: bool
    ) -> None:
        """Draws coloured cells; the colours of both sides are those of the expected values."""
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
            **axes,
        )
        if table.size <= LARGEST_TEXT:
            self._name_cells(figure, part, axes, float(scale.min() + scale.max()) / 2)

    def _name_cells(
        self, figure: go.Figure, part: pd.DataFrame, axes: Mapping[str, str], middle: float
    ) -> None:
        """Writes each value into its cell, light on the dark half of the colours: an annotation, which static
        pictures have, too."""
        refs = {"xref": axes.get("xaxis", "x"), "yref": axes.get("yaxis", "y")}
        texts = [
            {
                "x": row.x,
                "y": row.series,
                "text": f"{row.value:.0f}",
                "showarrow": False,
                "font": {"color": "#ffffff" if row.value <= middle else "#000000"},
                **refs,
            }
            for row in part.itertuples()
        ]
        # All at once: plotly copies and checks all of them whenever one is added.
        figure.update_layout(annotations=[*figure.layout.annotations, *texts])

    def _draw_bars(self, figure: go.Figure, part: pd.DataFrame, axes: Mapping[str, str]) -> None:
        """Draws stacked bars, one trace for each place in the stack."""
        ordered = part.assign(place=part.groupby("x").cumcount())
        for place, one in ordered.groupby("place"):
            figure.add_bar(
                x=one["x"],
                y=one["value"],
                marker={
                    "color": PALETTE[("needed", "needed_too")[int(place) % 2]],
                    "line": {"color": TEXT, "width": 0.5},
                },
                showlegend=False,
                hovertemplate=f"number {place + 1}: %{{y}} at %{{x}}<extra></extra>",
                **axes,
            )
        figure.update_layout(barmode="stack", bargap=0.15)

    def _lay_out(self, figure: go.Figure, sides: Sequence[str]) -> None:
        """Names the sides, gives each its half, and turns a grid so that its first row is above."""
        halves = {1: [[0.0, 1.0]], 2: [[0.0, 0.46], [0.54, 1.0]]}[len(sides)]
        turned = "reversed" if self.kind == "grid" else True
        for number, (who, domain) in enumerate(zip(sides, halves, strict=True), start=1):
            drawn = figure.data[number - 1]
            ticks = [{"tickvals": list(at)} if self.kind == "grid" else {} for at in (drawn.x, drawn.y)]
            figure.update_layout(
                {
                    f"xaxis{number}": {
                        **ticks[0],
                        "domain": domain,
                        "anchor": f"y{number}",
                        "gridcolor": GRID,
                        "zerolinecolor": GRID,
                        "title": {"text": self.x},
                    },
                    f"yaxis{number}": {
                        **ticks[1],
                        "anchor": f"x{number}",
                        "gridcolor": GRID,
                        "zerolinecolor": GRID,
                        "autorange": turned,
                        **({"title": {"text": self.y}} if number == 1 else {"matches": "y"}),
                    },
                }
            )
            if len(sides) > 1:
                middle = sum(domain) / 2
                figure.add_annotation(
                    text=who,
                    x=middle,
                    y=1.0,
                    xref="paper",
                    yref="paper",
                    yanchor="bottom",
                    xanchor="center",
                    showarrow=False,
                    font={"color": COLOURS[who]},
                )


def at(name: str, convert: Callable[[Any], float]) -> Callable[[Given, Any], list[Point]]:
    """Returns the points of a curve with one value for each case.

    Args:
        name: of the argument on the x axis.
        convert: an answer's value to a number.
    """
    return lambda given, value: [(given[name], "", convert(value))]

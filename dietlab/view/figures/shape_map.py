"""Maps over two dynamic dimensions: which scheme serves where, who is faster there, and what is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any, NamedTuple

from dietlab.base.errors import DietlabError, DispatchError, RecordError, require_names
from dietlab.compare.results import Report
from dietlab.compare.results.speedups import JUDGES
from dietlab.problem import length_dim
from dietlab.problem.dims import Dim, Shape, as_extent
from dietlab.scheme import boxes, restricted, with_parameters
from dietlab.tuning import Dispatcher, Portfolio
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.map_traces import (
    LOSSES,
    SHARES,
    SPEEDUPS,
    Look,
    Window,
    add_points,
    add_regions,
    lay_out,
)
from dietlab.view.figures.results import cache_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Source = Dispatcher | Portfolio | Report
"""What a map is of: the choices of a tree, what a portfolio is expected to lose, or what was measured."""

LAYER = "layer"
"""The axis that has a place for each layer, in place of a dimension."""


class Value(NamedTuple):
    """Numbers that a map shows: how they look, and whether more is better (their worst is the least)."""

    look: Look
    more_is_better: bool = False


VALUES: Mapping[type, Mapping[str, Value | None]] = {
    Dispatcher: {"plan": None},
    Portfolio: {"slowdown": Value(LOSSES)},
    Report: {
        "speedup": Value(SPEEDUPS, more_is_better=True),
        "regret": Value(SHARES),
        "padding_waste": Value(SHARES),
        "roofline": Value(SHARES.reversed, more_is_better=True),
    },
}
"""The values of each source, the first one being the default; regions of plans are no numbers."""


@dataclass(frozen=True)
class View:
    """The two axes of a map, the dimensions behind them, and the extents of the others that are fixed."""

    x: str
    y: str
    dims: Mapping[str, Dim]
    fixed: Mapping[str, int]

    @property
    def others(self) -> tuple[str, ...]:
        """The dimensions that are neither on an axis nor fixed."""
        shown = set(self.dims) if self.y == LAYER else {self.x, self.y}
        return tuple(name for name in self.dims if name not in shown and name not in self.fixed)

    @property
    def words(self) -> str:
        """Returns ``", K=768"``, or ``", any K"`` where several extents share a place."""
        fixed = "".join(f", {name}={extent}" for name, extent in self.fixed.items())
        return fixed + "".join(f", any {name}" for name in self.others)


# --- tables -----------------------------------------------------------------------------------


def frame_map(
    source: Source,
    value: str = "",
    x: str = "",
    y: str = "",
    fixed: Mapping[str, int] | None = None,
    *,
    contender: str = "",
    cache: str | None = None,
    dispatcher: Dispatcher | None = None,
) -> pd.DataFrame:
    """Returns the table of :func:`plot_map`, which takes the same arguments.

    Of a dispatcher: one row a box of the tree, with its ends (``low_T``, ``high_T`` and so on, both included;
    missing where there is no end), the number of its ``plan``, and its ``scheme`` with the parameters.

    Of a portfolio or a report: one row a place, with the extents of both axes (or the ``layer`` as a text),
    the value (a mean over the shapes at that place: of ratios the geometric one), the ``worst`` of them, the
    number of ``shapes``, and whether all were ``held_out``.

    Args:
        source: a dispatcher, a portfolio or a report.
        value: what is drawn.
        x: the dimension of the horizontal axis.
        y: that of the vertical axis, or ``"layer"``.
        fixed: extents of other dimensions by name.
        contender: whom a report compares with.
        cache: a state of a report's.
        dispatcher: whose choices are judged by a portfolio.

    Raises:
        DietlabError: if there are not two dynamic dimensions to draw, or an argument is unknown.
    """
    value, view = _value(source, value), _view(source, x, y, fixed)
    if isinstance(source, Dispatcher):
        return _boxes(source, view)
    if isinstance(source, Portfolio):
        return _places(_expected(source, dispatcher), value, view)
    return _places(_measured(source, value, _contender(source, contender, cache), cache), value, view)


class Point(NamedTuple):
    """A number of one shape."""

    shape: Shape
    number: float
    held_out: bool


def _expected(portfolio: Portfolio, dispatcher: Dispatcher | None) -> Iterator[Point]:
    """Yields the slowdown of a dispatcher's choices, or of the best of the portfolio."""
    slowdowns = portfolio.slowdowns
    numbers = {scheme: number for number, scheme in enumerate(portfolio.schemes)}
    for column, shape in enumerate(portfolio.shapes):
        if dispatcher is None:
            found = float(slowdowns[:, column].min())
        elif (scheme := dispatcher.scheme(shape)) in numbers:
            found = float(slowdowns[numbers[scheme], column])
        else:
            raise DispatchError(
                "the dispatcher was trained on this portfolio", f"the scheme {scheme}, which it lacks"
            )
        yield Point(shape, found, shape in portfolio.shapes.held_out)


def _measured(report: Report, value: str, contender: str, cache: str | None) -> Iterator[Point]:
    chosen = cache_of(report, cache)
    if value == "speedup" and chosen is not None:
        rows = report.groups(chosen).get(contender, [])
    else:
        rows = [
            row
            for row in report.rows
            if row.cache == chosen and row.contender == report.maker and row.correct
        ]
    for row in rows:
        number = getattr(row, value)
        if number is not None:
            yield Point(row.shape, float(number), row.held_out)


def _places(points: Iterator[Point], value: str, view: View) -> pd.DataFrame:
    import pandas as pd

    every = list(points)
    found: dict[tuple[Any, ...], list[Point]] = {}
    for point in every:
        if all(point.shape[name] == extent for name, extent in view.fixed.items()):
            down = point.shape.without(view.x) if view.y == LAYER else point.shape[view.y]
            found.setdefault((down, point.shape[view.x]), []).append(point)
    if every and not found:
        wanted, known = Shape.of(**view.fixed), sorted({point.shape for point in every})
        raise RecordError(
            "a shape has the extents that are fixed", wanted, f"For example {known[0]} is known."
        )
    look = _number(value)
    mean = geometric_mean if look.look.ratio else fmean
    worst = min if look.more_is_better else max
    rows = [
        (
            across,
            str(down) if view.y == LAYER else down,
            mean([point.number for point in here]),
            worst(point.number for point in here),
            len(here),
            all(point.held_out for point in here),
        )
        for (down, across), here in sorted(found.items())
    ]
    return pd.DataFrame(rows, columns=[view.x, view.y, value, "worst", "shapes", "held_out"])


def _boxes(dispatcher: Dispatcher, view: View) -> pd.DataFrame:
    import pandas as pd

    every = boxes(restricted(dispatcher.tree, view.fixed), {view.x: (1, None), view.y: (1, None)})
    rows = [(*box[view.x], *box[view.y], number, dispatcher.schemes[number].key) for number, box in every]
    ends = [f"{end}_{name}" for name in (view.x, view.y) for end in ("low", "high")]
    frame = pd.DataFrame(rows, columns=[*ends, "plan", "scheme"])
    frame = frame.astype({name: "Int64" for name in ends if name.startswith("high")})
    return with_parameters(frame, [dispatcher.hardware.kind], "scheme")


# --- the figure -------------------------------------------------------------------------------


def plot_map(
    source: Source,
    value: str = "",
    x: str = "",
    y: str = "",
    fixed: Mapping[str, int] | None = None,
    *,
    contender: str = "",
    cache: str | None = None,
    dispatcher: Dispatcher | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws a map over two dynamic dimensions; an axis is logarithmic where its range is wide.

    Args:
        source: a dispatcher (the regions of its decision tree, coloured by plan, a little beyond the range
            that it was tuned for), a portfolio (what is expected to be lost on the shapes that it was chosen
            for) or a report (what was measured on each of its shapes).
        value: of a dispatcher ``plan``; of a portfolio ``slowdown``; of a report ``speedup``, ``regret``,
            ``padding_waste`` or ``roofline``. Default: the first of these.
        x, y: dimensions. Defaults: the length, and the first other one. Of a portfolio or a report ``y`` may
            be ``"layer"``, a row for each layer, and is if ``x`` is the length.
        fixed: extents of other dimensions. Those of a dispatcher that are not given are in the middle of
            their range, on a log axis; of a portfolio or a report shapes of any extent share a place.
        contender: whom a report compares with (default: the best prepacked vendor, or whom it has first).
        cache: a state of a report's; None is the first one.
        dispatcher: whose choices are judged by a portfolio (default: the best of its schemes for each shape).
        template: plotly's, such as ``"plotly_dark"`` (default: a clear ground).

    Raises:
        DietlabError: if there are not two dynamic dimensions to draw, or an argument is unknown.
    """
    value, view = _value(source, value), _view(source, x, y, fixed)
    table = frame_map(
        source, value, view.x, view.y, view.fixed, contender=contender, cache=cache, dispatcher=dispatcher
    )
    title = _title(source, value, contender, cache, dispatcher) + view.words
    if isinstance(source, Report) and len(table):
        title += f" ({cache_of(source, cache)} cache)"
    figure = new_figure(table, title, template)
    if table.empty:
        return figure
    if isinstance(source, Dispatcher):
        windows = [Window.of(view.dims[name]) for name in (view.x, view.y)]
        add_regions(figure, table, (view.x, view.y), windows)
        lay_out(figure, (view.x, view.y), windows)
        return figure
    add_points(figure, table, value, _number(value).look)
    lay_out(figure, (view.x, view.y), [table[view.x].tolist(), table[view.y].tolist()])
    return figure


def _title(
    source: Source, value: str, contender: str, cache: str | None, dispatcher: Dispatcher | None
) -> str:
    if isinstance(source, Dispatcher):
        return f"Plans of {source.workload}"
    if isinstance(source, Portfolio):
        return f"Expected loss of {'the best scheme' if dispatcher is None else 'the dispatcher'}"
    if value == "speedup":
        return f"Speedup of {source.maker} over {_contender(source, contender, cache)}"
    return f"{value.replace('_', ' ').capitalize()} of {source.maker}"


# --- arguments --------------------------------------------------------------------------------


def _number(value: str) -> Value:
    """Returns how a value is drawn that is a number."""
    found = next(known[value] for known in VALUES.values() if value in known)
    if found is None:
        raise DietlabError("a map of numbers has a number at each place", value)
    return found


def map_values(source: Source) -> tuple[str, ...]:
    """Returns the values that a map of ``source`` can show.

    Raises:
        DietlabError: if it is of another class.
    """
    known = next((known for kind, known in VALUES.items() if isinstance(source, kind)), None)
    if known is None:
        raise DietlabError(
            "a map is of a Dispatcher, a Portfolio or a Report", f"a value of class {type(source).__name__}"
        )
    return tuple(known)


def _value(source: Source, value: str) -> str:
    known = map_values(source)
    require_names("values of this map", known, [value or known[0]], DietlabError)
    return value or known[0]


def map_dims(source: Source) -> Mapping[str, Dim]:
    """Returns the dynamic dimensions of a source, at least two, the length first; their ranges are those that
    the operator was tuned for, of a report those that were measured.

    Raises:
        DietlabError: if there are fewer.
    """
    if isinstance(source, Report):
        shapes = {row.shape for row in source.rows}
        ends = {name: sorted(shape[name] for shape in shapes) for name in source.dims}
        dims = {name: Dim(found[0], found[-1]) for name, found in ends.items()}
    else:
        dims = dict(source.workload.dims)
    if len(dims) < 2:
        raise DietlabError(
            "a map has two dynamic dimensions",
            ", ".join(dims) or "none",
            "plot_dispatch() and plot_speedup() draw one.",
        )
    length = source.length if isinstance(source, Report) else length_dim(source.workload)
    return {length: dims.pop(length), **dims}


def _view(source: Source, x: str, y: str, fixed: Mapping[str, int] | None) -> View:
    dims = map_dims(source)
    across = x or next(name for name in dims if name != y)
    by_default = next(name for name in dims if name != across)
    if not isinstance(source, Dispatcher) and across == next(iter(dims)):
        by_default = LAYER
    down = y or by_default
    require_names(
        "dimensions of the map", tuple(dims), [across, *([] if down == LAYER else [down])], DietlabError
    )
    if across == down:
        raise DietlabError("a map has two dimensions that differ", f"{across} on both axes")
    by_layer = down == LAYER
    if by_layer and (isinstance(source, Dispatcher) or across != next(iter(dims))):
        raise DietlabError(
            "layers are an axis of a portfolio's or a report's map beside the length",
            f"{across} and layers of a {type(source).__name__}",
            "Give two dimensions, as in x='T', y='N'.",
        )
    free = [name for name in dims if name not in (across, down)] if not by_layer else []
    given = {name: as_extent(extent) for name, extent in (fixed or {}).items()}
    require_names("dimensions that can be fixed", tuple(free), tuple(given), DietlabError)
    if isinstance(source, Dispatcher):
        given = {name: given.get(name, middle(dims[name])) for name in free}
    return View(across, down, dims, given)


def middle(dim: Dim) -> int:
    """Returns the extent in the middle of a range on a log axis."""
    return round(math.sqrt(dim.low * dim.high))


def _contender(report: Report, contender: str, cache: str | None) -> str:
    """Returns a contender of the report, the judge by default."""
    chosen = cache_of(report, cache)
    known: Sequence[str] = tuple(report.groups(chosen)) if chosen is not None else ()
    if contender:
        require_names("contenders of the report", known, [contender], RecordError)
        return contender
    return next((name for name in JUDGES if name in known), known[0] if known else "nobody")

"""Maps over two dynamic dimensions: the scheme of each place, the speedup there, and the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, DispatchError, RecordError, require_names
from dietlab.compare.results import Report
from dietlab.compare.results.speedups import JUDGES
from dietlab.problem import length_dim
from dietlab.problem.dims import Dim, Shape, as_extent
from dietlab.scheme import Box, boxes, restricted, split_dims, with_parameters
from dietlab.tuning import Dispatcher, Portfolio
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.map_traces import (
    GAINS,
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
"""The source of a map: the choices of a tree, the expected losses of a portfolio, or measured results."""

MOST_RUNS = 64
"""The most extents along the vertical axis whose plans are looked up one by one. In a figure of some 500
pixels, each is 8 pixels high; more would not be seen."""

LAYER = "layer"
"""The name of an axis that has a place for each layer instead of each extent."""

REPORTED = {"speedup": SPEEDUPS, "regret": SHARES, "padding_waste": SHARES, "roofline": GAINS}
VALUES: Mapping[type, Mapping[str, Look | None]] = {
    Dispatcher: {"plan": None},
    Portfolio: {"slowdown": LOSSES},
    Report: REPORTED,
}
"""The values that a map of each source can show, the default first; None stands for plans, which are regions
and not numbers."""


# --- what a map is of -------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A map: its source, the drawn value, and the axes.

    Args:
        source, value, contender, cache, dispatcher: as in :func:`plot_map`.
        x, y: the axes.
        dims: the dynamic dimensions, the length first.
        fixed: the extents of dimensions that are not on an axis.
    """

    source: Source
    value: str
    x: str
    y: str
    dims: Mapping[str, Dim]
    fixed: Mapping[str, int]
    contender: str
    cache: str | None
    dispatcher: Dispatcher | None

    @property
    def look(self) -> Look | None:
        """The look of the map's numbers; None for regions of plans."""
        return _values(self.source)[self.value]

    @property
    def title(self) -> str:
        """Returns the map's title, with fixed extents as in ``"..., K=768"``, or ``"..., any K"`` if several
        extents share a place."""
        shown = set(self.dims) if self.y == LAYER else {self.x, self.y}
        places = [f", {name}={extent}" for name, extent in self.fixed.items()]
        places += [f", any {name}" for name in self.dims if name not in {*shown, *self.fixed}]
        if isinstance(self.source, Dispatcher):
            what = f"Plans of {self.source.workload}"
        elif isinstance(self.source, Portfolio):
            what = f"Expected loss of {'the best scheme' if self.dispatcher is None else 'the dispatcher'}"
        elif self.value == "speedup":
            what = f"Speedup of {self.source.maker} over {self.contender}"
        else:
            what = f"{self.value.replace('_', ' ').capitalize()} of {self.source.maker}"
        return what + "".join(places)

    @property
    def table(self) -> pd.DataFrame:
        """The table of :func:`frame_map`."""
        if isinstance(self.source, Dispatcher):
            return self._boxes(self.source)
        found = (
            self._expected(self.source) if isinstance(self.source, Portfolio) else self._measured(self.source)
        )
        return self._places(list(found))

    def _boxes(self, dispatcher: Dispatcher) -> pd.DataFrame:
        import pandas as pd

        axes = (self.x, self.y)
        tree = restricted(dispatcher.tree, self.fixed)
        if {*split_dims(tree)} <= {*axes}:
            every = boxes(tree, dict.fromkeys(axes, (1, None)))
        else:
            every = list(self._runs(dispatcher))
        rows = [(*box[self.x], *box[self.y], number, dispatcher.schemes[number].key) for number, box in every]
        ends = [f"{end}_{name}" for name in axes for end in ("low", "high")]
        frame = pd.DataFrame(rows, columns=[*ends, "plan", "scheme"])
        frame = frame.astype({name: "Int64" for name in ends if name.startswith("high")})
        return with_parameters(frame, [dispatcher.hardware.kind], "scheme")

    def _runs(self, dispatcher: Dispatcher) -> Iterator[tuple[int, Box]]:
        """Yields the neighbouring extents along ``x`` that have one plan, for some extents along ``y``: a
        split by the number of rows is no line along an axis."""
        across, along = self.dims[self.y], self.dims[self.x]
        step = -(-len(across) // MOST_RUNS)
        for y in range(across.low, across.high + 1, step):
            last = min(y + step - 1, across.high)
            shapes = {x: Shape.of(**{**self.fixed, self.x: x, self.y: y}) for x in along}
            of_plan = {x: dispatcher.schemes.index(dispatcher.scheme(shape)) for x, shape in shapes.items()}
            for plan, run in groupby(along, of_plan.__getitem__):
                first, *others = run
                yield plan, {self.x: (first, others[-1] if others else first), self.y: (y, last)}

    def _expected(self, portfolio: Portfolio) -> Iterator[Point]:
        """Yields the slowdown on each shape of the dispatcher's choice, or of the portfolio's best scheme."""
        slowdowns = portfolio.slowdowns
        for column, shape in enumerate(portfolio.shapes):
            here, scheme = slowdowns[:, column], self.dispatcher and self.dispatcher.scheme(shape)
            if scheme is not None and scheme not in portfolio.schemes:
                rule = "the dispatcher must have been trained on the portfolio of the map"
                raise DispatchError(rule, f"the scheme {scheme}, which it lacks")
            found = here.min() if scheme is None else here[portfolio.schemes.index(scheme)]
            yield shape, float(found), shape in portfolio.shapes.held_out

    def _measured(self, report: Report) -> Iterator[Point]:
        if self.value == "speedup" and self.cache is not None:
            rows = report.groups(self.cache).get(self.contender, [])
        else:
            mine = (row for row in report.rows if row.contender == report.maker and row.correct)
            rows = [row for row in mine if row.cache == self.cache]
        for row in rows:
            number = getattr(row, self.value)
            if number is not None:
                yield row.shape, float(number), row.held_out

    def _places(self, points: list[Point]) -> pd.DataFrame:
        """Returns one row for each place on the map, with the mean and the worst number of the shapes
        there."""
        import pandas as pd

        found: dict[tuple[Any, ...], list[Point]] = {}
        for point in points:
            shape = point[0]
            if all(shape[name] == extent for name, extent in self.fixed.items()):
                down = shape.without(self.x) if self.y == LAYER else shape[self.y]
                found.setdefault((down, shape[self.x]), []).append(point)
        if points and not found:
            known = f"For example {min(shape for shape, _, _ in points)} is known."
            raise RecordError("a shape must have the fixed extents", Shape.of(**self.fixed), known)
        mean = geometric_mean if self.look and self.look.ratio else fmean
        worst = min if self.look and self.look.more_is_better else max
        rows = []
        for (down, across), here in sorted(found.items()):
            numbers = [number for _, number, _ in here]
            unseen = all(held_out for _, _, held_out in here)
            place = str(down) if self.y == LAYER else down
            rows.append((across, place, mean(numbers), worst(numbers), len(here), unseen))
        return pd.DataFrame(rows, columns=[self.x, self.y, self.value, "worst", "shapes", "held_out"])


Point = tuple[Shape, float, bool]
"""A shape, its number, and whether it was held out from tuning."""


# --- tables and figures -----------------------------------------------------------------------


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

    For a dispatcher, the table has one row for each box of the tree: its ends (``low_T``, ``high_T`` and so
    on, both included; missing where there is no end), the index of its ``plan``, and its ``scheme`` with the
    parameters.

    For a portfolio or a report, the table has one row for each place: the extents of both axes (or the
    ``layer`` as a text), the mean value of the shapes at the place (geometric for ratios), the ``worst``
    value, the number of ``shapes``, and ``held_out`` (whether all shapes are).

    Args:
        source, value, x, y, fixed, contender, cache, dispatcher: as in :func:`plot_map`.

    Raises:
        DietlabError: if there are not two dynamic dimensions to draw, or an argument is unknown.
    """
    return _view(source, value, x, y, fixed, contender, cache, dispatcher).table


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
        source: a dispatcher, a portfolio or a report. The map shows the regions of the dispatcher's tree,
            coloured by plan and drawn a little beyond the tuned range; the expected loss on the portfolio's
            shapes; or what was measured on the report's shapes.
        value: the drawn value: ``plan`` for a dispatcher; ``slowdown`` for a portfolio; ``speedup``
            (default), ``regret``, ``padding_waste`` or ``roofline`` for a report.
        x, y: the dimensions on the axes (default: the length and the first other one). For a portfolio or a
            report, ``y`` may be ``"layer"``, which gives each layer a row. This is the default if ``x`` is
            the length.
        fixed: the extents of the other dimensions. By default, a dispatcher's map is at the middle of the
            range on a log axis, and shapes of a portfolio or a report share a place whatever these extents
            are.
        contender: the contender of a report (default: the best prepacked vendor, or the first contender).
        cache: a cache state of the report; None is the first one.
        dispatcher: the dispatcher whose choices from a portfolio are shown (default: the portfolio's best
            scheme for each shape).
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        DietlabError: if there are not two dynamic dimensions to draw, or an argument is unknown.
    """
    view = _view(source, value, x, y, fixed, contender, cache, dispatcher)
    table, title, axes = view.table, view.title, (view.x, view.y)
    if view.cache is not None and len(table):
        title += f" ({view.cache} cache)"
    figure = new_figure(table, title, template)
    if table.empty:
        return figure
    if view.look is None:
        windows = [Window.of(view.dims[name]) for name in axes]
        add_regions(figure, table, axes, windows)
        lay_out(figure, axes, windows)
    else:
        add_points(figure, table, view.value, view.look)
        lay_out(figure, axes, [table[name].tolist() for name in axes])
    return figure


# --- arguments --------------------------------------------------------------------------------


def _values(source: Source) -> Mapping[str, Look | None]:
    """Returns the values that a map of ``source`` can show."""
    known = next((known for kind, known in VALUES.items() if isinstance(source, kind)), None)
    if known is None:
        given = f"a value of class {type(source).__name__}"
        raise DietlabError("a map is of a Dispatcher, a Portfolio or a Report", given)
    return known


def map_dims(source: Source) -> Mapping[str, Dim]:
    """Returns the dynamic dimensions of a source with their ranges: at least two dimensions, the length
    first. The ranges are the tuned ones; for a report, the measured ones."""
    if isinstance(source, Report):
        extents = {name: [row.shape[name] for row in source.rows] for name in source.dims}
        dims = {name: Dim(min(found), max(found)) for name, found in extents.items()}
    else:
        dims = dict(source.workload.dims)
    if len(dims) < 2:
        remedy = "plot_dispatch() and plot_speedup() draw one."
        raise DietlabError("a map needs two dynamic dimensions", ", ".join(dims) or "none", remedy)
    length = source.length if isinstance(source, Report) else length_dim(source.workload)
    return {length: dims.pop(length), **dims}


def _view(
    source: Source,
    value: str,
    x: str,
    y: str,
    fixed: Mapping[str, int] | None,
    contender: str,
    cache: str | None,
    dispatcher: Dispatcher | None,
) -> View:
    """Returns the view of a map; arguments that were left out get their defaults."""
    known = tuple(_values(source))
    value = value or known[0]
    require_names("values of this map", known, [value], DietlabError)
    dims, regions = map_dims(source), isinstance(source, Dispatcher)
    x = x or next(name for name in dims if name != y)
    along = x == next(iter(dims))
    y = y or (LAYER if along and not regions else next(name for name in dims if name != x))
    asked = [name for name in (x, y) if name != LAYER or name == x]
    require_names("dimensions of the map", tuple(dims), asked, DietlabError)
    if x == y:
        raise DietlabError("a map needs two different dimensions", f"{x} on both axes")
    if y == LAYER and (regions or not along):
        raise DietlabError(
            "a map with layers needs a portfolio or a report, and the length as its other axis",
            f"{x} and layers of a {type(source).__name__}",
            "Give two dimensions, as in x='T', y='N'.",
        )
    free = tuple(name for name in dims if name not in (x, y)) if y != LAYER else ()
    given = {name: as_extent(extent) for name, extent in (fixed or {}).items()}
    require_names("dimensions that can be fixed", free, tuple(given), DietlabError)
    if regions:
        given = {name: given.get(name, middle(dims[name])) for name in free}
    cache = cache_of(source, cache) if isinstance(source, Report) else None
    if isinstance(source, Report):
        contender = _contender(source, contender, cache)
    return View(source, value, x, y, dims, given, contender, cache, dispatcher)


def middle(dim: Dim) -> int:
    """Returns the extent in the middle of a range on a log axis."""
    return round(math.sqrt(dim.low * dim.high))


def _contender(report: Report, contender: str, cache: str | None) -> str:
    """Returns a contender of the report, by default the best vendor."""
    known = tuple(report.groups(cache)) if cache is not None else ()
    if contender:
        require_names("contenders of the report", known, [contender], RecordError)
        return contender
    return next((name for name in (*JUDGES, *known) if name in known), "nobody")

"""A picture of a plotly figure without a browser, for pages that run no JavaScript.

A fallback: readable rather than identical. matplotlib draws what dietlab's figures use; whatever else
a figure holds is left out, and the caption says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dietlab.view.lab import lab_imports
from dietlab.view.static.colours import ColourScale, colours, default, plain, scale_of
from dietlab.view.static.traces import DASHES, POINTS, TRACES
from dietlab.view.theme import TEXT

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH, HEIGHT, DPI = 720, 420, 100
"""The width and the height of a picture in pixels, and pixels per inch."""
COLOURS = 128
"""The most colours of a PNG: a colour table makes the file three times smaller."""
LEGEND_RANK = 1000
"""plotly's default rank of a trace in the legend: lower ranks come first."""

AREA = (0.1, 0.14, 0.86, 0.74)
"""The place of the subplots: left, bottom, width and height, as shares of the page."""


def picture(figure: go.Figure, caption: str = "") -> bytes:
    """Returns a PNG of a plotly figure: transparent, with text that reads on light and on dark pages.

    Args:
        caption: a sentence below the picture. If traces are of a type that is not drawn here, one more
            sentence names it.
    """
    with lab_imports("pictures"):
        from PIL import Image

    drawn, file = BytesIO(), BytesIO()
    canvas = redraw(figure, caption)
    canvas.savefig(drawn, format="png", transparent=True, bbox_inches="tight", pad_inches=0.08)
    with Image.open(drawn) as image:
        image.quantize(COLOURS, method=Image.Quantize.FASTOCTREE).save(file, "png", optimize=True)
    return file.getvalue()


def redraw(figure: go.Figure, caption: str = "") -> Any:
    """Returns a plotly figure as a matplotlib figure."""
    with lab_imports("pictures"):
        from matplotlib.figure import Figure

    layout = figure.layout
    canvas = Figure(figsize=(WIDTH / DPI, default(layout.height, HEIGHT) / DPI), dpi=DPI)
    page, left_out, asked = Page(canvas, figure), [], False
    key: dict[str, tuple[float, Any]] = {}
    for number, trace in enumerate(figure.data):
        if trace.visible not in (None, True):
            continue
        try:
            handle = TRACES[trace.type](page, trace, f"C{number % 10}")
        except (KeyError, TypeError, ValueError):  # an unknown type, or values that cannot be read
            left_out.append(trace.type)
            continue
        if handle is not None and trace.name and trace.showlegend is not False:
            key.setdefault(plain(trace.name), (default(trace.legendrank, LEGEND_RANK), handle))
            asked = asked or trace.showlegend is True
    for shape in layout.shapes:
        if default(shape.type, "rect") in ("rect", "line"):
            _shape(page, shape)
        else:
            left_out.append(shape.type)
    for note in layout.annotations:
        _annotation(page, note)
    for names, axes in page.panels.items():
        _dress(page, names, axes)
    if left_out:
        caption = f"{caption} Not in this picture: {', '.join(dict.fromkeys(left_out))}.".strip()
    wanted = default(layout.showlegend, asked or len(key) > 1)
    legend = {name: handle for name, (_, handle) in sorted(key.items(), key=lambda item: item[1][0])}
    _surround(canvas, plain(layout.title.text), plain(caption), legend if wanted else {})
    return canvas


@dataclass(frozen=True)
class Page:
    """The matplotlib figure that a plotly figure is drawn on.

    Attributes:
        panels: an ``Axes`` for each pair of axes that something was drawn on, by their names, such as ``("x",
            "y2")``.
        known: the positions of texts, by axis.
        stacked: the value at which the next bar of each stack begins.
        keyed: the names of shared colour scales that have a key already.
    """

    canvas: Any
    figure: Any
    panels: dict[tuple[str, str], Any] = field(default_factory=dict)
    known: dict[str, dict[str, float]] = field(default_factory=dict)
    stacked: dict[tuple[Any, ...], float] = field(default_factory=dict)
    keyed: set[str] = field(default_factory=set)

    def scale(self, item: Any, values: Any) -> ColourScale:
        """Returns the colour scale of a trace's markers, or of a heat map."""
        return scale_of(self.figure, item, values)

    def add_key(self, axes: Any, scale: ColourScale) -> None:
        """Draws the key of a colour scale next to the axes; a shared scale gets one key."""
        if scale.name not in self.keyed:
            scale.draw_key(self.canvas, axes)
            if scale.name:
                self.keyed.add(scale.name)

    def settings(self, name: str) -> Any:
        """Returns the layout's settings of an axis: ``x2`` names its ``xaxis2``."""
        key, layout = f"{name[0]}axis{name[1:]}", self.figure.layout
        return layout[key] if key in layout else layout[key[:5]]

    def places(self, name: str, values: Any) -> Any:
        """Returns positions on an axis. Texts are at 0, 1, 2, ... in the order that the axis sets; without a
        set order, in order of appearance."""
        import numpy as np

        settings = self.settings(name)
        given = {str(text): float(at) for at, text in enumerate(default(settings.categoryarray, ()))}
        known = self.known.setdefault(name, given)
        texts = settings.type == "category"

        def place(value: Any) -> float:
            if value is None:
                return np.nan
            if texts or isinstance(value, str):
                return known.setdefault(str(value), float(len(known)))
            return float(value)

        return np.array([place(value) for value in values], dtype=float)

    def panel(self, x: str, y: str) -> Any:
        """Returns the ``Axes`` of an x and a y axis; panels with a common axis share it."""
        if (x, y) not in self.panels:
            across, down = (default(self.settings(name).domain, (0, 1)) for name in (x, y))
            corner = (AREA[0] + across[0] * AREA[2], AREA[1] + down[0] * AREA[3])
            size = ((across[1] - across[0]) * AREA[2], (down[1] - down[0]) * AREA[3])
            shared: dict[str, Any] = {}
            for names, axes in self.panels.items():
                shared |= {"sharex": axes} if self._root(names[0]) == self._root(x) else {}
                shared |= {"sharey": axes} if self._root(names[1]) == self._root(y) else {}
            self.panels[x, y] = self.canvas.add_axes((*corner, *size), **shared)
        return self.panels[x, y]

    def _root(self, name: str) -> str:
        return self.settings(name).matches or name

    def where(self, item: Any) -> tuple[Any, list[str], Any]:
        """Returns the place of a shape or an annotation as three values: the ``Axes``, the names of the axes
        that give its units ("" for shares of the page), and its coordinate system."""
        from matplotlib.transforms import Affine2D, blended_transform_factory

        refs = (item.xref or "x", item.yref or "y")
        x, y = ("" if ref == "paper" else ref.split()[0] for ref in refs)
        fitting = [names for names in self.panels if x in ("", names[0]) and y in ("", names[1])]
        axes = self.panel(*(fitting[0] if fitting else (x or "x", y or "y")))
        paper = Affine2D().scale(*AREA[2:]).translate(*AREA[:2]) + self.canvas.transFigure
        systems = {"paper": paper, "domain": axes.transAxes}
        chosen = [systems.get(ref.split()[-1], axes.transData) for ref in refs]
        names = ["" if ref.split()[-1] in systems else ref for ref in refs]
        return axes, names, blended_transform_factory(*chosen)


def _dress(page: Page, names: tuple[str, str], axes: Any) -> None:
    """Draws grid, titles, ticks and ranges; an axis of several panels is labelled where it is anchored."""
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(color=TEXT, alpha=0.25, linewidth=0.6)
    axes.tick_params(which="both", colors=TEXT, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(TEXT)
    for name, other, axis in zip(names, names[::-1], (axes.xaxis, axes.yaxis), strict=True):
        settings = page.settings(name)
        # Not before: matplotlib takes the extent of error bars for logarithms on a logarithmic axis.
        if settings.type == "log":
            getattr(axes, f"set_{name[0]}scale")("log")
        _limit(axis, settings, getattr(axes, f"set_{name[0]}lim"))
        _ticks(axis, settings, page.known.get(name, {}))
        anchor = settings.anchor or other[0]
        elsewhere = anchor != other and any({name, anchor} == set(pair) for pair in page.panels)
        if elsewhere or settings.showticklabels is False:
            axis.set_tick_params(which="both", labelbottom=False, labelleft=False)
        if not elsewhere:
            axis.set_label_text(plain(settings.title.text), color=TEXT, fontsize=9)
            _wrap(axis)
        if settings.visible is False:
            axis.set_visible(False)


def _wrap(axis: Any) -> None:
    """Breaks the title of an axis into lines that are no longer than the axis: matplotlib would cut longer
    ones."""
    box, room = axis.label.get_window_extent(), axis.axes.get_window_extent()
    length, most = (box.width, room.width) if axis.axis_name == "x" else (box.height, room.height)
    text = axis.label.get_text()
    if length > most:
        axis.set_label_text("\n".join(wrap(text, max(1, int(len(text) * most / length)))))


def _limit(axis: Any, settings: Any, change: Any) -> None:
    limits, log = axis.get_view_interval(), settings.type == "log"
    if settings.range is not None and None not in settings.range:
        change([10.0**end if log else float(end) for end in settings.range])
    elif settings.rangemode == "tozero" and not log:
        change(min(*limits, 0), max(*limits, 0))
    if "reversed" in str(settings.autorange):
        axis.set_inverted(True)


def _ticks(axis: Any, settings: Any, known: dict[str, float]) -> None:
    from matplotlib import ticker

    suffix = plain(settings.ticksuffix)
    if settings.tickvals is not None or known:
        values = list(default(settings.tickvals, known))
        labels = list(default(settings.ticktext, values))
        every = 1 + len(values) // 30
        places = [known.get(str(value), value) for value in values[::every]]
        labels = [plain(one if isinstance(one, str) else f"{one:g}{suffix}") for one in labels[::every]]
        axis.set_major_locator(ticker.FixedLocator(places))
        axis.set_major_formatter(ticker.FixedFormatter(labels))
        axis.set_minor_locator(ticker.NullLocator())
        wide = 0.08 * sum(max(map(len, label.split("\n"))) for label in labels)  # inches
        if axis.axis_name == "x" and wide > axis.axes.get_position().width * WIDTH / DPI:
            axis.set_tick_params(rotation=25)
            for label in axis.get_ticklabels():
                label.set_horizontalalignment("right")
        return
    if settings.type == "log":
        low, high = sorted(axis.get_view_interval())
        axis.set_major_locator(ticker.LogLocator(subs=(1,) if high > 1000 * low else (1, 2, 5)))
        axis.set_minor_formatter(ticker.NullFormatter())
    if settings.type == "log" or suffix:
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}" + suffix))


def _surround(canvas: Any, title: str, caption: str, key: dict[str, Any]) -> None:
    """Draws the legend on the right, the title above and the caption below everything."""
    box = canvas.get_tightbbox()
    (left, low), (right, high) = box.min / canvas.get_size_inches(), box.max / canvas.get_size_inches()
    gap = 0.12 / canvas.get_figheight()
    canvas.text(left, high + gap, title, va="bottom", fontsize=11, color=TEXT)
    canvas.text(left, low - gap, caption, va="top", fontsize=8, color=TEXT)
    if key:
        canvas.legend(
            key.values(),
            key,
            loc="upper left",
            bbox_to_anchor=(right + 0.02, high),
            fontsize=8,
            labelcolor=TEXT,
            borderaxespad=0,
            frameon=False,
        )


def _shape(page: Page, shape: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    axes, names, system = page.where(shape)
    ends = ((shape.x0, shape.x1), (shape.y0, shape.y1))
    (x0, x1), (y0, y1) = (
        page.places(name, values) if name else values for name, values in zip(names, ends, strict=True)
    )
    look = {"linewidth": default(shape.line.width, 2) * POINTS, "linestyle": DASHES.get(shape.line.dash, "-")}
    look |= {"alpha": shape.opacity, "transform": system, "zorder": 0.5 if shape.layer == "below" else 2}
    colour = colours(shape.line.color or TEXT)
    if shape.type == "line":
        axes.add_artist(Line2D([x0, x1], [y0, y1], color=colour, **look))
    else:
        look |= {"facecolor": colours(shape.fillcolor or "transparent"), "edgecolor": colour}
        axes.add_artist(Rectangle((x0, y0), x1 - x0, y1 - y0, **look))


def _annotation(page: Page, note: Any) -> None:
    axes, names, system = page.where(note)
    at = []
    for name, value in zip(names, (default(note.x, 0), default(note.y, 0)), strict=True):
        # plotly takes an annotation's logarithm on a logarithmic axis, though not a shape's.
        log = name and page.settings(name).type == "log"
        at.append(10.0**value if log else page.places(name, [value])[0] if name else value)
    arrow = note.showarrow is not False
    shift = (default(note.ax, -10), -default(note.ay, -30)) if arrow else (0, 0)
    shift = (shift[0] + default(note.xshift, 0), shift[1] + default(note.yshift, 0))
    sides = {"auto": "center", "middle": "center", None: "center"}
    axes.annotate(
        plain(note.text),
        at,
        xycoords=system,
        xytext=[POINTS * way for way in shift],
        textcoords="offset points",
        ha=sides.get(note.xanchor, note.xanchor),
        fontsize=8,
        va=sides.get(note.yanchor, note.yanchor),
        color=colours(note.font.color or TEXT),
        arrowprops={"arrowstyle": "->", "color": TEXT} if arrow else None,
        annotation_clip=False,
    )

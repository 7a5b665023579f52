"""plotly's colours and texts as matplotlib's: names, colour scales and their keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

from dietlab.view.theme import TEXT


@dataclass(frozen=True)
class ColourScale:
    """Numbers as colours, and the key that explains them.

    Args:
        name: the name of a colour axis that several traces share; empty for a scale of one trace.
        low, high: the numbers at the ends of the scale.
        stops: plotly's colour scale, as pairs of a share from 0 to 1 and a colour; None is cividis.
        bar: plotly's settings of the key: title and ticks.
    """

    name: str
    low: float
    high: float
    stops: Any
    bar: Any

    @property
    def norm(self) -> Any:
        from matplotlib.colors import Normalize

        return Normalize(self.low, self.high)

    @property
    def colours(self) -> Any:
        """Returns matplotlib's colour map."""
        from matplotlib import colormaps
        from matplotlib.colors import LinearSegmentedColormap

        if self.stops is None:
            return colormaps["cividis"]
        return LinearSegmentedColormap.from_list("scale", [(at, colours(one)) for at, one in self.stops])

    def of(self, numbers: Any) -> list[Any]:
        """Returns a colour for each number."""
        import numpy as np

        return list(self.colours(self.norm(np.array(numbers, dtype=float))))

    def draw_key(self, canvas: Any, axes: Any) -> None:
        """Draws the key on the right of the axes."""
        from matplotlib.cm import ScalarMappable

        place = axes.inset_axes([1.02, 0, 0.025, 1])
        bar = canvas.colorbar(ScalarMappable(self.norm, self.colours), cax=place)
        place.set_title(plain(self.bar.title.text), color=TEXT, fontsize=8)
        if self.bar.tickvals is not None:
            texts = default(self.bar.ticktext, self.bar.tickvals)
            bar.set_ticks(list(self.bar.tickvals), labels=[plain(str(text)) for text in texts])
        place.minorticks_off()
        place.tick_params(colors=TEXT, labelsize=8)
        bar.outline.set_visible(False)


def scale_of(figure: Any, item: Any, values: Any) -> ColourScale:
    """Returns the colour scale of markers or of a heat map with these ``values``. If plotly has no ends of
    the scale, these are the least and the greatest value of all traces that share it."""
    import numpy as np

    name = item.coloraxis or ""
    settings = figure.layout[name] if name else item
    bounds = ("cmin", "cmax") if name or item.plotly_name in ("marker", "line") else ("zmin", "zmax")
    shown = [*_sharing(figure, name)] if name else [values]
    numbers = np.concatenate([np.array(one, dtype=float).ravel() for one in shown])
    numbers = numbers[~np.isnan(numbers)]
    ends = (numbers.min(), numbers.max()) if len(numbers) else (0.0, 1.0)
    low, high = (float(default(settings[b], end)) for b, end in zip(bounds, ends, strict=True))
    return ColourScale(name, low, high if high > low else low + 1, settings.colorscale, settings.colorbar)


def _sharing(figure: Any, name: str) -> Any:
    for trace in figure.data:
        if "coloraxis" in trace and trace.coloraxis == name:
            yield [list(row) for row in trace.z]
        elif "marker" in trace and trace.marker.coloraxis == name and are_numbers(trace.marker.color):
            yield trace.marker.color


def are_numbers(value: Any) -> bool:
    """Returns whether a trace's ``color`` is a list of numbers: a scale turns these into colours."""
    return value is not None and not isinstance(value, str) and not any(isinstance(one, str) for one in value)


def colours(value: Any) -> Any:
    """Returns one of plotly's colours, or a list of them, as matplotlib's. A notation that matplotlib does
    not know becomes grey."""
    from matplotlib.colors import is_color_like

    if not isinstance(value, str):
        return [colours(one) for one in value]
    parts = re.fullmatch(r"rgba?\((.*)\)", value)
    if parts is None:
        return "none" if value == "transparent" else value if is_color_like(value) else TEXT
    red, green, blue, *alpha = map(float, parts[1].split(","))
    return (red / 255, green / 255, blue / 255, *alpha)


def default(value: Any, otherwise: Any) -> Any:
    """Returns the given value, or the default if plotly's value is None."""
    return otherwise if value is None else value


def plain(text: str | None) -> str:
    """Returns a text without HTML, in which dollar signs start no formula."""
    lines = re.sub(r"<br\s*/?>", "\n", text or "")
    return unescape(re.sub(r"</?[a-zA-Z][^<>]*>", "", lines)).replace("$", r"\$")

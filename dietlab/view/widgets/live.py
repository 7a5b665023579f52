"""Figures in a notebook that change in place, follow its theme, and leave a picture behind.

plotly's own ``FigureWidget`` is not used: every instance carries its own 5 MB of JavaScript, and with
two of them in a notebook only one goes on updating after the page was reloaded. Here each kernel sends the
library once, and a figure is one synced trait.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.view.lab import lab_imports
from dietlab.view.static.picture import picture

with lab_imports("live figures"):
    import anywidget
    import ipywidgets
    import plotly
    import traitlets

if TYPE_CHECKING:
    import plotly.graph_objects as go

CAPTION = "A picture of a live figure: run the notebook in JupyterLab to explore it."


class PlotlyBundle(ipywidgets.Widget):  # type: ignore[misc]  # ipywidgets has no types
    """plotly.js of the installed package; there is one in a kernel."""

    js = traitlets.Unicode().tag(sync=True)


class FigureModel(ipywidgets.Widget):  # type: ignore[misc]
    """The state that a figure and its view exchange.

    It is a widget of ipywidgets: anywidget drops messages if a busy page took longer than two seconds to
    load its code."""

    figure_json = traitlets.Unicode("{}").tag(sync=True)
    clicked = traitlets.Dict().tag(sync=True)


@cache
def _bundle() -> PlotlyBundle:
    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return PlotlyBundle(js=source.read_text(encoding="utf-8"))


class LiveFigure(anywidget.AnyWidget):
    """A plotly figure as a widget.

    Attributes:
        figure: the figure on display; assign another one to show it.
        figure_json: the figure as JSON, for the page.
        clicked: the last point that was clicked (``trace``, ``point``, ``x``, ``y``, and ``count``, the
            number of clicks so far); empty before the first click.
    """

    _esm = Path(__file__).parent / "live_figure.js"
    _css = Path(__file__).parent / "widgets.css"
    bundle = traitlets.Instance(PlotlyBundle).tag(sync=True, **ipywidgets.widget_serialization)
    model = traitlets.Instance(FigureModel).tag(sync=True, **ipywidgets.widget_serialization)
    figure_json = traitlets.Unicode("{}")
    clicked = traitlets.Dict()

    def __init__(self, figure: go.Figure) -> None:
        self._figure = figure
        model = FigureModel(figure_json=_json(figure))
        super().__init__(bundle=_bundle(), model=model, figure_json=model.figure_json)
        traitlets.dlink((self, "figure_json"), (model, "figure_json"))
        traitlets.dlink((model, "clicked"), (self, "clicked"))

    @property
    def figure(self) -> go.Figure:
        """The figure on display; assign another one to show it."""
        return self._figure

    @figure.setter
    def figure(self, figure: go.Figure) -> None:
        self._figure = figure
        self.figure_json = _json(figure)

    def offer(self, name: str, mime: str, data: bytes) -> None:
        """Offers a file for download in the page that shows the figure.

        Args:
            mime: the media type of the file.
            data: the bytes of the file.
        """
        self.model.send({"name": name, "mime": mime}, [data])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_picture(super()._repr_mimebundle_(**options), self._figure)


def show(figure: go.Figure) -> LiveFigure:
    """Shows a figure in a notebook: interactive there, in the page's light or dark theme, and as a picture
    where no JavaScript runs.

    ``dl.show(dl.plot_speedup(report))`` as the last line of a cell displays it.

    Args:
        figure: a plotly figure, such as any ``plot_`` function returns.
    """
    return LiveFigure(figure)


def with_picture(bundle: Any, figure: go.Figure) -> Any:
    """Returns a widget's MIME bundle with a static picture in addition to the live view. Pages without
    widgets, such as a repository's, show the picture."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    png = b64encode(picture(figure, CAPTION)).decode("ascii")
    return {**data, "image/png": png, "text/plain": CAPTION}, metadata


def _json(figure: go.Figure) -> str:
    text: str = figure.to_json(validate=False)
    return text

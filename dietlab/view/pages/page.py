"""Self-contained HTML pages: one frame, style and script for all; light or dark as the reader's system is.

plotly and jinja2 are imported when a page is rendered. A page carries plotly.js from the installed
wheel: it opens without a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.view.lab import lab_imports

if TYPE_CHECKING:
    import plotly.graph_objects as go


def render_page(template: str, title: str, **values: Any) -> str:
    """Renders ``template``, which extends ``page.html.j2``, and escapes every value except markup."""
    with lab_imports("HTML pages"):
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.get_template(template).render(
        title=title, plotly_js=Markup(get_plotlyjs()), **values
    )
    return page


def figure_markup(figure: go.Figure, identity: str) -> Any:
    """Returns a ``div`` for a figure, marked as safe; ``identity`` is the element's id."""
    from markupsafe import Markup

    return Markup(
        figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=identity,
            default_height="420px",
            config={"responsive": True, "displaylogo": False},
        )
    )

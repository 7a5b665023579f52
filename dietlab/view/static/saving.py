"""Figures and the tables behind them as files, by the ending of the name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.view.lab import lab_imports
from dietlab.view.static.picture import redraw

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SAVED_DPI = 240
"""The dots per inch of a PNG: the 7.2 inches of a picture get 1730 pixels, sharp on paper and on screens of
twice the usual density."""

VALUES = ("x", "y", "z", "text")
"""The names of the values that a trace may have for each point, in the order of the table's columns."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that a figure can be saved as.

    Args:
        mime: the media type of the file.
        write: the function that makes the file's bytes from a figure and its table.
    """

    mime: str
    write: Callable[[go.Figure, pd.DataFrame | None], bytes]


def save(figure: Any, path: str | Path) -> Path:
    """Saves a figure, an explorer or a tuning panel; the ending of ``path`` gives the kind of file.

    ``.svg``, ``.pdf`` and ``.png`` are the static picture, without a background, so that it reads on light
    and on dark pages; ``.csv`` is an explorer's table, or the values of a figure's traces; ``.html`` is a
    page of about 5 MB that needs no other file; ``.json`` is the figure in plotly's format. A file of that
    name is replaced, whole or not at all; folders are not made.

    Args:
        figure: a plotly figure, the widget that :func:`dietlab.show` returns, an explorer, or a tuning panel
            (the figure that is chosen below it, at first its first one).
        path: the path of the file; capital letters in the ending do not matter.

    Returns:
        ``path``, as a ``Path``.

    Raises:
        DietlabError: if the ending is unknown or missing, if the folder does not exist, if the file cannot be
            written, or if ``figure`` is of another class. Nothing is written then.
    """
    target = Path(path)
    kind = _kind(target.suffix, str(path))
    if not target.parent.is_dir():
        raise DietlabError("a figure must be saved in a folder that exists", target.parent, "Make it first.")
    data = render(figure, kind)
    write_whole(target, data)
    return target


def render(figure: Any, kind: Kind) -> bytes:
    """Returns the bytes of a file of a figure, an explorer or a panel."""
    with lab_imports("figures"):
        import pandas as pd
        import plotly.graph_objects as go

    drawn = figure if isinstance(figure, go.Figure) else getattr(figure, "figure", None)
    if not isinstance(drawn, go.Figure):
        remedy = "Give what a dl.plot_ function, dl.show or an explorer returns."
        raise DietlabError(
            "only a figure or an explorer can be saved", f"a value of class {type(figure).__name__}", remedy
        )
    frame = None if drawn is figure else getattr(figure, "frame", None)
    return kind.write(drawn, frame if isinstance(frame, pd.DataFrame) else None)


def values_of(figure: go.Figure) -> pd.DataFrame:
    """Returns the values of a plotly figure's traces, one row for each point: the index, the name and the
    type of the point's trace, and x, y, z and text as far as the trace has them."""
    import pandas as pd

    rows = [row for number, trace in enumerate(figure.data) for row in _points(number, trace)]
    found = pd.DataFrame(rows, columns=["trace", "name", "type", *VALUES])
    return found.drop(columns=[one for one in VALUES if found[one].isna().all()])


def _points(number: int, trace: Any) -> list[dict[str, Any]]:
    """Returns the values of one trace by column, point by point."""
    columns = {one: trace[one] for one in VALUES if one in trace and not isinstance(trace[one], str)}
    columns = {one: list(values) for one, values in columns.items() if values is not None}
    if "z" in columns:
        columns = _cells(columns)
    names = {"trace": number, "name": trace.name, "type": trace.type}
    points = zip_longest(*columns.values())
    return [{**names, **dict(zip(columns, point, strict=True))} for point in points]


def _cells(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns a heat map's columns, with one row for each cell; edges of cells become middles."""
    import numpy as np

    z = np.array(columns["z"], dtype=object)
    sides = []
    for name, count in (("x", z.shape[1]), ("y", z.shape[0])):
        places = list(columns.get(name, range(count)))
        if len(places) == count + 1:
            places = [(low + high) / 2 for low, high in pairwise(places)]
        sides.append(places)
    across, down = sides
    return {"x": across * len(down), "y": [y for y in down for _ in across], "z": list(z.ravel())}


def _picture(ending: str, figure: go.Figure, _: pd.DataFrame | None) -> bytes:
    file = BytesIO()
    options = {"transparent": True, "bbox_inches": "tight", "pad_inches": 0.08, "dpi": SAVED_DPI}
    redraw(figure).savefig(file, format=ending, **options)
    return file.getvalue()


def _table(figure: go.Figure, frame: pd.DataFrame | None) -> bytes:
    table = values_of(figure) if frame is None else frame
    return str(table.to_csv(index=False)).encode()


KINDS: Mapping[str, Kind] = {
    "svg": Kind("image/svg+xml", partial(_picture, "svg")),
    "png": Kind("image/png", partial(_picture, "png")),
    "pdf": Kind("application/pdf", partial(_picture, "pdf")),
    "csv": Kind("text/csv", _table),
    "html": Kind("text/html", lambda figure, _: str(figure.to_html(include_plotlyjs=True)).encode()),
    "json": Kind("application/json", lambda figure, _: str(figure.to_json(validate=False)).encode()),
}
"""The kinds of files by the ending of their names."""


def _kind(suffix: str, name: str) -> Kind:
    found = KINDS.get(suffix.lower().removeprefix("."))
    if found is None:
        *others, last = (f".{ending}" for ending in KINDS)
        raise DietlabError(
            f"the name of a saved figure ends in {', '.join(others)} or {last}", name or "an empty name"
        )
    return found

"""The base of every explorer: controls, a function from their values to a figure and a table, and the
view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.errors import DietlabError
from dietlab.view.figures.base import new_figure
from dietlab.view.widgets.live import LiveFigure, with_picture

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Values = Mapping[str, Any]
"""Values of the controls by name."""


@dataclass(frozen=True)
class Drawn:
    """The figure, table and note of an explorer for some values.

    Args:
        figure: the picture.
        frame: the tidy table behind it.
        numbers: what to read off, in words by name and value with unit, as in ``{"waste": "3.1 %"}``.
        note: one more sentence (plain text).
        options: options that dropdowns get from these values, by the control's name.
    """

    figure: go.Figure
    frame: pd.DataFrame
    numbers: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)


Draw = Callable[..., Drawn]
Click = Callable[[Values, Mapping[str, Any]], Values]
NUMBERS = "display:flex;flex-wrap:wrap;align-items:flex-end;gap:0.4em 2em;line-height:1.5"
"""The style of the strip of numbers: it wraps where a cell is narrower than all of them."""


class Explorer(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Controls above a live figure and its numbers. Everything shown is ``draw`` of the controls' values.

    Args:
        draw: gets the values by name and returns a :class:`Drawn`; it has no state. A
            :class:`DietlabError` that it raises is shown as a sentence.
        controls: widgets with a ``value``, by name, in rows of at most ``per_row``.
        clicked: from the values and the clicked point (see :class:`LiveFigure`) to values to set.

    Attributes:
        controls: as given; set ``explorer.controls["rows"].value`` to move one.
        drawn: the :class:`Drawn` on display.
    """

    def __init__(
        self, draw: Draw, controls: Mapping[str, Any], clicked: Click | None = None, per_row: int = 3
    ) -> None:
        self.controls = dict(controls)
        self._draw, self._clicked, self._changing = draw, clicked, False
        self._numbers = ipywidgets.HTML()
        widgets = list(self.controls.values())
        rows = [ipywidgets.HBox(widgets[i : i + per_row]) for i in range(0, len(widgets), per_row)]
        self._settle()
        self.live = LiveFigure(self.drawn.figure)
        super().__init__([*rows, self._numbers, self.live])
        for widget in widgets:
            widget.observe(self._changed, "value")
        self.live.observe(self._click, "clicked")

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: widget.value for name, widget in self.controls.items()}

    @property
    def figure(self) -> go.Figure:
        return self.drawn.figure

    @property
    def frame(self) -> pd.DataFrame:
        return self.drawn.frame

    def set(self, **values: Any) -> None:
        """Sets several controls and draws once."""
        self._changing = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self._changing = False
        self._redraw()

    def _changed(self, _: Any) -> None:
        if not self._changing:
            self._redraw()

    def _click(self, change: Any) -> None:
        if self._clicked is not None and change["new"]:
            self.set(**self._clicked(self.values, change["new"]))

    def _redraw(self) -> None:
        self._settle()
        self.live.figure = self.drawn.figure

    def _settle(self) -> None:
        """Draws until what is shown is of the values that the controls have: options depend on values,
        and a value whose option is gone becomes another one."""
        for _ in range(1 + len(self.controls)):
            before = self.values
            self.drawn = self._drawn()
            self._show()
            if self.values == before:
                break

    def _drawn(self) -> Drawn:
        try:
            return self._draw(**self.values)
        except DietlabError as error:
            import pandas as pd

            return Drawn(new_figure(pd.DataFrame(), "", None), pd.DataFrame(), note=str(error))

    def _show(self) -> None:
        """Numbers and options."""
        cells = "".join(
            f"<div style='max-width:16em'><div>{escape(name)}</div><b>{escape(value)}</b></div>"
            for name, value in self.drawn.numbers.items()
        )
        note = f"<p>{escape(self.drawn.note)}</p>" if self.drawn.note else ""
        self._numbers.value = f"<div style='{NUMBERS}'>{cells}</div>{note}"
        self._changing = True
        try:
            for name, options in self.drawn.options.items():
                control = self.controls[name]
                if tuple(control.options) != tuple(options):
                    kept = control.value if control.value in options else None
                    control.options = tuple(options)
                    if kept is not None:
                        control.value = kept
        finally:
            self._changing = False

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_picture(super()._repr_mimebundle_(**options), self.drawn.figure)

"""Buttons that offer the files of a figure for download in the browser, and the line that reopens a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

from dietlab.base.errors import DietlabError
from dietlab.view.static.saving import KINDS, render
from dietlab.view.widgets.live import LiveFigure

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

OFFERED = ("svg", "png", "pdf", "csv")
"""The kinds of files that have a button, in the order of the buttons."""

LINE = (
    "<code style='user-select:all;overflow-wrap:anywhere;white-space:pre-wrap'>{}</code> "
    "<span style='font-size:11px'>(one click chooses the line)</span>"
)


class FileButtons(ipywidgets.HBox):  # type: ignore[misc]  # ipywidgets has no types
    """A row of small buttons below a figure: one for a file of each kind and, if ``line`` is given, one for
    the line of code that reopens what is shown.

    Args:
        source: an object with a ``figure`` and a ``frame`` (see :func:`dietlab.save`).
        live: the figure whose page offers the file.
        name: a function that returns the name of a file without its ending.
        line: a function that returns the line of code; None makes no button for the line.
    """

    def __init__(
        self,
        source: Any,
        live: LiveFigure,
        name: Callable[[], str],
        line: Callable[[], str] | None = None,
        before: tuple[Any, ...] = (),
    ) -> None:
        self._source, self._live, self._name, self._line = source, live, name, line
        self.buttons = {
            kind: button(kind.upper(), f"Saves this as a {_words(kind)}", partial(self._offer, kind))
            for kind in OFFERED
        }
        self._told = ipywidgets.HTML(layout=ipywidgets.Layout(min_width="0", flex="1 1 0%"))
        shown = [*before, *self.buttons.values()]
        if line is not None:
            self.link = button("Link", "Shows the line of code that reopens this state", self._show_line)
            shown.append(self.link)
        super().__init__([*shown, self._told], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.add_class("dietlab-files")

    def _offer(self, kind: str) -> None:
        try:
            self._live.offer(f"{self._name()}.{kind}", KINDS[kind].mime, render(self._source, KINDS[kind]))
        except DietlabError as error:
            self._told.value = f"<span>{escape(str(error))}</span>"

    def _show_line(self) -> None:
        """Shows the line, or hides it."""
        self._told.value = "" if self._told.value or self._line is None else LINE.format(escape(self._line()))

    def renew(self) -> None:
        """Updates the line of code, if it is displayed, to what is shown now."""
        if self._told.value and self._line is not None:
            self._told.value = LINE.format(escape(self._line()))


def _words(kind: str) -> str:
    return "table (CSV)" if kind == "csv" else f"picture ({kind.upper()})"


def button(name: str, tooltip: str, act: Callable[[], None]) -> Any:
    """Returns a small button that calls ``act``."""
    layout = ipywidgets.Layout(width="auto")
    made = ipywidgets.Button(description=name, tooltip=tooltip, layout=layout)
    made.on_click(lambda _: act())
    return made

"""The base of every explorer: controls, a function from their values to a figure and a table, and the
view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, closest, mismatch
from dietlab.view.figures.base import new_figure
from dietlab.view.widgets.cards import cards_html, grouped
from dietlab.view.widgets.controls import Control, control_of
from dietlab.view.widgets.export import FileButtons
from dietlab.view.widgets.live import LiveFigure, with_picture

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Values = Mapping[str, Any]
"""The values of the controls by name."""


@dataclass(frozen=True)
class Drawn:
    """The figure, table and note of an explorer for some values.

    Args:
        figure: the picture.
        frame: the tidy table behind the figure.
        numbers: numbers to read off, as texts with units by name, as in ``{"waste": "3.1 %"}``.
        note: one more sentence (plain text).
        options: the options of dropdowns for these values, by the control's name.
        scheme: the key of the scheme in the picture, if there is one.
    """

    figure: go.Figure
    frame: pd.DataFrame
    numbers: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    scheme: str = ""


Draw = Callable[..., Drawn]
Click = Callable[[Values, Mapping[str, Any]], Values]
NOTE = "line-height:1.4;margin:4px 0;overflow-wrap:anywhere"
UNNAMED = "explorer"
"""The beginning of the line that reopens a state, if an explorer has no ``opener``."""


class Explorer(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Controls above a live figure and its numbers. Everything shown is ``draw`` of the controls' values.

    Args:
        draw: a function without state that takes the values by name and returns a :class:`Drawn`. A
            :class:`DietlabError` that it raises is shown as a sentence.
        controls: the controls by name, shown in rows of at most ``per_row``. Each is a widget with a
            ``value``, or a control of ``widgets/controls.py``, which becomes a widget.
        clicked: a function from the values and the clicked point (see :class:`LiveFigure`) to values to set.
        per_row: the most controls side by side outside of groups.
        groups: the names of controls by the label of their group, as in ``{"Hardware": ["cores"]}``.
        opener: the code that makes this explorer, for the line that reopens its state, as in
            ``"dl.cost_lab(run)"``.
        wide: the names of controls with long texts; a group with such a control has a row to itself.

    Attributes:
        controls: the widgets by name; set ``explorer.controls["rows"].value`` to move one.
        drawn: the :class:`Drawn` on display.
    """

    def __init__(
        self,
        draw: Draw,
        controls: Mapping[str, Any],
        clicked: Click | None = None,
        per_row: int = 3,
        *,
        groups: Mapping[str, Sequence[str]] | None = None,
        opener: str = UNNAMED,
        wide: Collection[str] = (),
    ) -> None:
        self.controls = {
            name: one.widget() if isinstance(one, Control) else one for name, one in controls.items()
        }
        self._opener = opener
        self._draw, self._clicked, self._changing = draw, clicked, False
        self._lost: dict[str, tuple[Any, Any]] = {}  # values whose option went, and what took their place
        self._numbers = ipywidgets.HTML()
        self._settle()
        self.live = LiveFigure(self.drawn.figure)
        self.files = FileButtons(self, self.live, self._name, self.link if self.controls else None)
        rows = grouped(self.controls, groups, per_row, wide)
        super().__init__([*rows, self._numbers, self.live, self.files])
        self.add_class("dietlab")
        for widget in self.controls.values():
            widget.observe(self._changed, "value")
        self.live.observe(self._click, "clicked")

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: widget.value for name, widget in self.controls.items()}

    @property
    def figure(self) -> go.Figure:
        """The figure on display."""
        return self.drawn.figure

    @property
    def frame(self) -> pd.DataFrame:
        """The tidy table behind the figure on display."""
        return self.drawn.frame

    def set(self, **values: Any) -> None:
        """Sets several controls and draws once.

        Raises:
            DietlabError: if a control is unknown or does not accept its value, also in combination with the
                other values. Then nothing is changed.
        """
        unknown = [name for name in values if name not in self.controls]
        if unknown:
            invariant = f"a control of the explorer must be one of {', '.join(self.controls) or 'none'}"
            raise DietlabError(invariant, ", ".join(unknown), closest(unknown[0], self.controls))
        states = {name: control_of(self.controls[name]).state_of(value) for name, value in values.items()}
        self._take(states, whole=False)

    def state(self) -> dict[str, Any]:
        """Returns the controls' values as JSON takes them, to save or to share: see :meth:`restore`."""
        return {name: control_of(widget).state_of(widget.value) for name, widget in self.controls.items()}

    def restore(self, state: Mapping[str, Any]) -> Explorer:
        """Sets all controls to what :meth:`state` returned.

        Returns:
            This explorer, so that ``dl.cost_lab(run).restore({...})`` shows it.

        Raises:
            DietlabError: if a control is missing or unknown, or does not accept its value. Then nothing is
                changed.
        """
        if not isinstance(state, Mapping):
            raise DietlabError(
                "a state must be a dictionary of values by control",
                f"a value of class {type(state).__name__}",
                WHENCE,
            )
        wrong = mismatch(map(str, state), self.controls)
        if wrong:
            raise DietlabError(f"a state needs a value for each of {', '.join(self.controls)}", wrong, WHENCE)
        self._take(state, whole=True, remedy=WHENCE)
        return self

    def link(self) -> str:
        """Returns the line of code that reopens what is shown, if the names in the line have the same
        values."""
        return f"{self._opener}.restore({self.state()!r})"

    def _take(self, state: Mapping[str, Any], whole: bool, remedy: str = "") -> None:
        """Sets values by :meth:`_reach`; if that fails, restores all values and raises the reason."""
        before = self.state()
        refused = self._reach(state, whole)
        if refused:
            self._reach(before)
            raise DietlabError(*refused, remedy)

    def _reach(self, state: Mapping[str, Any], whole: bool = True) -> tuple[str, str] | None:
        """Sets values repeatedly, since options depend on other values, until all are accepted. Otherwise,
        returns two texts: what a control accepts, and the value that it refused. If the state is not
        ``whole``, a later value may replace an accepted one."""
        last = refused = None
        for _ in range(1 + len(self.controls)):
            refused = None
            self._changing = True
            try:
                for name, value in state.items():
                    control = control_of(self.controls[name])
                    if control.accepts(value):
                        self._lost.pop(name, None)
                        self.controls[name].value = control.value_of(value)
                    else:
                        refused = (f"{name} is {control.takes}", repr(value))
            finally:
                self._changing = False
            if refused and refused == last:
                break
            last = refused
            self._redraw()
            if not refused and (not whole or self.state() == dict(state)):
                return None
        if refused:
            return refused
        gone = [name for name, value in self.state().items() if value != state[name]]
        return f"{gone[0]} is an option in combination with the other values", repr(state[gone[0]])

    def _name(self) -> str:
        """Returns a file name for what is shown, without an ending."""
        made = self._opener.partition("(")[0].rpartition(".")[2]
        return made.replace("_", "-")

    def _changed(self, _: Any) -> None:
        if not self._changing:
            self._redraw()

    def _click(self, change: Any) -> None:
        if self._clicked is not None and change["new"]:
            with suppress(DietlabError):  # a place beyond what a control takes
                self.set(**self._clicked(self.values, change["new"]))

    def _redraw(self) -> None:
        self._settle()
        self.live.figure = self.drawn.figure
        self.files.renew()

    def _settle(self) -> None:
        """Draws until the picture fits the controls' values. Several turns may be needed: options depend on
        values, and a value whose option is gone is replaced."""
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

            nothing = new_figure(pd.DataFrame(), "", None, "there is nothing to draw")
            return Drawn(nothing, pd.DataFrame(), note=str(error))

    def _show(self) -> None:
        """Shows the numbers and sets the options."""
        cards = cards_html(self.drawn.numbers) if self.drawn.numbers else ""
        note = f"<p style='{NOTE}'>{escape(self.drawn.note)}</p>" if self.drawn.note else ""
        self._numbers.value = f"{cards}{note}"
        self._changing = True
        try:
            for name, options in self.drawn.options.items():
                control = self.controls[name]
                if tuple(control.options) != tuple(options):
                    self._offer(name, options)
        finally:
            self._changing = False

    def _offer(self, name: str, options: Sequence[Any]) -> None:
        """Gives a control other options. The control keeps its value if this is one of them. Otherwise, it
        takes the first option. Once the old value is offered again, it takes that value, unless a user moved
        the control meanwhile."""
        control = self.controls[name]
        before = control.value
        wanted, instead = self._lost.pop(name, (before, before))
        if before != instead:
            wanted = before
        control.options = tuple(options)
        if wanted in options:
            control.value = wanted
        else:
            if before in options:
                control.value = before
            self._lost[name] = wanted, control.value

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_picture(super()._repr_mimebundle_(**options), self.drawn.figure)


WHENCE = "Give what the state() of such an explorer returned."

"""Controls of explorers as values: the states that a control accepts, and the widget that it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any


@dataclass(frozen=True)
class Control(ABC):
    """A control with its initial value. A *state* is a value of the control in JSON's form."""

    value: Any
    label: str = field(default="", kw_only=True)
    tooltip: str = field(default="", kw_only=True)

    @property
    @abstractmethod
    def takes(self) -> str:
        """The accepted states in words, such as ``"a whole number from 0 to 3"``."""

    def accepts(self, state: Any) -> bool:
        """Returns whether the control accepts a state; by default, whether its class is that of the initial
        value."""
        return isinstance(state, type(self.value))

    @property
    @abstractmethod
    def _made(self) -> tuple[str, dict[str, Any]]:
        """The name of the widget's class in ipywidgets, and the extra arguments of this class."""

    def widget(self) -> Any:
        """Returns a new widget of ipywidgets."""
        import ipywidgets

        name, settings = self._made
        look = {"description": self.label, "tooltip": self.tooltip or None}
        return getattr(ipywidgets, name)(value=self.value, **look, **settings)

    def state_of(self, value: Any) -> Any:
        """Returns the state of a value; a number of NumPy becomes one of Python."""
        return value.item() if hasattr(value, "item") else value

    def value_of(self, state: Any) -> Any:
        """Returns the widget's value for a state that it accepts."""
        return state


@dataclass(frozen=True)
class Number(Control):
    """A slider; if its value is a whole number, it has only whole numbers.

    Args:
        lazy: whether the figure changes only when the slider is released, for figures that take long.
    """

    low: float
    high: float
    step: float = 1
    lazy: bool = False

    @property
    def _whole(self) -> bool:
        return isinstance(self.value, int)

    @property
    def takes(self) -> str:
        steps = f" in steps of {self.step}" if self._whole and self.step > 1 else ""
        return f"a{' whole' * self._whole} number from {self.low} to {self.high}{steps}"

    def accepts(self, state: Any) -> bool:
        if not isinstance(state, int if self._whole else Real) or isinstance(state, bool):
            return False
        number: Any = state
        between = self._whole and self.step and (number - self.low) % self.step
        return bool(self.low <= number <= self.high and not between)

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        ends = {"min": self.low, "max": self.high, "step": self.step}
        return "IntSlider" if self._whole else "FloatSlider", {**ends, "continuous_update": not self.lazy}

    def state_of(self, value: Any) -> Any:
        state = super().state_of(value)
        return int(state) if self._whole and isinstance(state, float) and state.is_integer() else state


@dataclass(frozen=True)
class Switch(Control):
    """A box to tick."""

    takes = "True or False"

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        return "Checkbox", {"indent": False}


@dataclass(frozen=True)
class Text(Control):
    """A line of text; a hidden one keeps the state that clicks change."""

    hidden: bool = False
    takes = "a text"

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        return "Text", {"layout": {"display": "none"} if self.hidden else {}}


@dataclass(frozen=True)
class OneOf(Control):
    """A dropdown list.

    Args:
        value: one of the options.
        options: the values to choose from, or pairs of a label and a value.
        slider: whether the control is a slider that steps through the options.
        lazy: as in :class:`Number`.
    """

    options: Sequence[Any]
    slider: bool = False
    lazy: bool = False

    @property
    def takes(self) -> str:
        return f"one of {', '.join(map(repr, labelled(self.options).values()))}"

    def accepts(self, state: Any) -> bool:
        known = labelled(self.options).values()
        return any(type(state) is type(option) and state == option for option in known)

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        options = {"options": tuple(self.options)}
        slider = ("SelectionSlider", {**options, "continuous_update": not self.lazy})
        return slider if self.slider else ("Dropdown", options)


@dataclass(frozen=True)
class SomeOf(Control):
    """A list to choose several options from; its state is the labels of the chosen options.

    Args:
        value: the chosen options.
        options: as in :class:`OneOf`.
    """

    options: Sequence[Any]

    @property
    def takes(self) -> str:
        return f"a list of some of {', '.join(map(repr, labelled(self.options)))}"

    def accepts(self, state: Any) -> bool:
        known = [*labelled(self.options)]
        return isinstance(state, list) and all(label in known for label in state)

    @property
    def _made(self) -> tuple[str, dict[str, Any]]:
        return "SelectMultiple", {"options": self.options, "rows": min(MOST_ROWS, len(self.options))}

    def state_of(self, value: Any) -> Any:
        several = value if isinstance(value, (list, tuple)) else [value]
        known = labelled(self.options).items()
        return [next((label for label, option in known if option == one), one) for one in several]

    def value_of(self, state: Any) -> Any:
        return tuple(labelled(self.options)[label] for label in state)


MOST_ROWS = 5
"""The most options of a list that are visible without scrolling."""


def labelled(options: Sequence[Any]) -> dict[Any, Any]:
    """Returns options by their labels; an option without one is its own label."""
    return dict(one if isinstance(one, tuple) else (one, one) for one in options)


def control_of(widget: Any) -> Control:
    """Returns a control with the current options of a widget, since options may change. The widget was made
    by :meth:`Control.widget`, or is a caller's own, such as a ``FloatSlider``."""
    value = widget.value
    if hasattr(widget, "options"):
        return (SomeOf if isinstance(getattr(widget, "index", None), tuple) else OneOf)(value, widget.options)
    if isinstance(value, bool):
        return Switch(value)
    return Text(value) if isinstance(value, str) else Number(value, widget.min, widget.max, widget.step)

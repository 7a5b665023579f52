"""The judgement of a value that a student's function returned: its kind, its value, and the words for both in
a message."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from numbers import Real
from typing import Any

from dietlab.base.errors import DietlabError

TOLERANCE = 1e-9
"""The relative error that rounding may leave in an answer: sums of some hundred float64 stay below it."""

SHOWN = 120
"""The most characters of a value or of an error that a message shows: two lines of a page."""


class WrongAnswer(DietlabError, TypeError):
    """A value that is not of the kind that a puzzle requires."""


def number(found: Any) -> float:
    """Returns an answer that should be a number; NumPy's scalars are numbers, too."""
    if not isinstance(found, Real):
        raise WrongAnswer("expected a number", kind(found))
    if math.isnan(found):
        raise WrongAnswer("expected a number", "nan, which is none")
    return float(found)


def whole_numbers(found: Any, what: str = "a list of whole numbers") -> list[int]:
    """Returns an answer that should be a sequence of whole numbers: a list, a tuple or an array."""
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes, dict)):
        values = list(found)
        if all(isinstance(v, Real) and math.isfinite(v) and float(v).is_integer() for v in values):
            return [int(float(value)) for value in values]
        raise WrongAnswer(f"expected {what}", said(values))
    raise WrongAnswer(f"expected {what}", kind(found))


def same_number(found: Any, expected: float) -> str:
    """Returns what is wrong with a number; empty if it is the expected one but for rounding."""
    value = number(found)
    return "" if close(value, expected) else f"expected {said(expected)}, got {said(value)}"


def close(found: float, expected: float) -> bool:
    """Returns whether two numbers are equal but for rounding."""
    return abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))


def kind(value: Any) -> str:
    """Returns the kind of a value in words, as in ``a list of 3`` or ``None (is a return missing?)``."""
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, str):
        return f"the text {said(value)}"
    if isinstance(value, Real):
        return said(value)
    if hasattr(value, "shape"):
        return f"an array of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple, set, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if callable(value):
        return f"a function, {getattr(value, '__name__', 'nameless')} (is a call missing?)"
    return f"an object of class {type(value).__name__}"


def said(value: Any) -> str:
    """Returns a value as short text: arrays as lists, floating-point numbers with six digits."""
    return _short(_text(value))


def _text(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_text(part) for part in value)
        single = isinstance(value, tuple) and len(value) == 1
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if single else ''})"
    return repr(value)


def raised(error: Exception) -> str:
    """Returns one sentence on an error of a student's function; for TVM's errors the sentence has the reason
    and the primitive.
    """
    text = str(error)
    reason = re.search(r"Error message: (.*?)(?:\n\s*\n|$)", text, re.DOTALL)
    primitive = re.search(r"schedule primitive '([^']+)'", text)
    where = f" in {primitive[1].replace('-', '_')}" if primitive else ""
    if reason:
        line = _with_names(" ".join(reason[1].split()), text)
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        line = next((one for one in lines if not one.startswith(("Traceback", "File "))), "no reason given")
    return f"it raises {type(error).__name__}{where}: {_short(line).rstrip('.')}"


def _with_names(reason: str, program: str) -> str:
    """Returns TVM's reason with names of blocks in place of marks like ``s_tir.SBlock#0``."""
    for mark in set(re.findall(r"s_tir\.SBlock#\d+", reason)):
        name = re.search(rf'# {re.escape(mark)}\s+with T\.sblock\("([^"]+)"\)', program)
        if name:
            reason = reason.replace(mark, name[1])
    return reason.removeprefix("ScheduleError: ")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."

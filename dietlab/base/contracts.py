"""Checks of objects that users supply and of what their methods return: methods, lists, arrays of numbers.

Errors name the class at fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import DietlabError


def name_of(value: object) -> str:
    """Returns an object's name for errors: its own name if it is a class or a function, else its class's
    name."""
    return str(getattr(value, "__name__", None) or type(value).__name__)


def shown(value: object) -> str:
    """Returns the text that errors show for a wrong value."""
    if value is None:
        return "None; is a return missing?"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return (
        f"{value!r:.60}"
        if isinstance(value, (str, int, float))
        else f"a value of class {type(value).__name__}"
    )


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> bool:
    """Returns whether a value is a finite number from ``least`` to ``most``. A truth value is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return math.isfinite(value) and least <= float(value) <= most


def require_methods(what: str, value: object, methods: Sequence[str], error: type[DietlabError]) -> None:
    """Checks that ``what`` (as in ``"a strategy"``) has some methods and is an instance, not a class.

    Raises:
        DietlabError: ``error``, if it is a class or lacks a method.
    """
    several = [", ".join(methods[:-1]), methods[-1]]
    wanted = f"{what} must be an object with {' and '.join(several[len(methods) < 2 :])}"
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if isinstance(value, type):
        raise error(wanted, shown(value), "" if missing else f"Make one: {value.__name__}(...).")
    if missing:
        some = f" without {', '.join(missing)}" if 0 < len(missing) < len(methods) else ""
        raise error(wanted, f"{shown(value)}{some}")


def listed(what: str, value: object, error: type[DietlabError]) -> tuple[Any, ...]:
    """Returns the elements of an iterable; ``what`` names it, as in ``"what propose of HillClimb returns"``.

    Raises:
        DietlabError: ``error``, for a text, a mapping, or a value that is not iterable.
    """
    if isinstance(value, (str, bytes, Mapping, type)) or not isinstance(value, Iterable):
        raise error(f"{what} must be a list", shown(value))
    return tuple(value)


def require_numbers(
    what: str, value: object, size: Mapping[str, int], error: type[DietlabError], *, positive: bool
) -> npt.NDArray[np.float64]:
    """Returns finite numbers as float64.

    Args:
        what: the array's name in errors, as in ``"what seconds of Nearest returns"``.
        size: the required extents by name, such as ``{"schemes": 3}``; nothing is broadcast.
        positive: whether 0 is refused; negative numbers always are.

    Raises:
        DietlabError: ``error``, for another size or a number that is not allowed.
    """
    extents = tuple(size.values())
    least = "above 0" if positive else "of 0 or more"
    wanted = f"{what} must be an array [{', '.join(size)}] of numbers {least}"
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise error(wanted, shown(value)) from None
    if value is None or found.shape != extents:
        given = shown(value) if value is None else f"the size {[*found.shape]} for {[*extents]}"
        raise error(wanted, given)
    wrong = ~np.isfinite(found) | ((found <= 0) if positive else (found < 0))
    if wrong.any():
        raise error(wanted, f"{found[wrong][0]:g} ({wrong.sum()} of {found.size} numbers are wrong)")
    return found

"""Errors that name the invariant, the offending value and the remedy.

Every error a user can meet derives from :class:`DietlabError` and is built from
the same three parts, so that messages have one form and tests can check each part.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BuildError",
    "DietlabError",
    "DietlabWarning",
    "DispatchError",
    "HardwareError",
    "MeasureError",
    "MissingDependencyError",
    "ModelError",
    "RecordError",
    "SpaceError",
    "StudyError",
    "WorkloadError",
]


class DietlabError(Exception):
    """Base of all errors that dietlab raises on purpose.

    Args:
        invariant: what must hold, as a sentence without full stop.
        value: what was found instead.
        remedy: what the user can do about it.
    """

    def __init__(self, invariant: str, value: object = None, remedy: str = "") -> None:
        self.invariant = invariant
        self.value = value
        self.remedy = remedy
        found = "" if value is None else f"; got {value!s}"
        advice = f". {remedy}" if remedy else ""
        super().__init__(f"{invariant}{found}{advice}")

    def found_in(self, place: object, remedy: str = "") -> DietlabError:
        """Returns an equal error that names the place of the value, such as a file, and gives a remedy
        more."""
        value = place if self.value is None else f"{self.value} in {place}"
        return type(self)(self.invariant, value, " ".join(filter(None, (self.remedy, remedy))))


class DietlabWarning(UserWarning):
    """A warning about a valid result, for example about what the result leaves out."""


class WorkloadError(DietlabError, ValueError):
    """An operator, a dimension or a shape that cannot exist."""


class HardwareError(DietlabError, ValueError):
    """A hardware description that contradicts itself or cannot be read."""


class SpaceError(DietlabError, ValueError):
    """A micro-kernel or a search space that cannot be built."""


class BuildError(DietlabError, RuntimeError):
    """A program that could not be lowered, compiled or linked."""


class MeasureError(DietlabError, RuntimeError):
    """A measurement that could not be made. (A failed trial is no error, but a record.)"""


class RecordError(DietlabError, ValueError):
    """A record that is damaged, missing or of another schema."""


class ModelError(DietlabError, ValueError):
    """A cost model that cannot be fitted, or cannot predict what was requested."""


class StudyError(DietlabError, ValueError):
    """A folder that is no study, is of another schema, or is in use."""


class DispatchError(DietlabError, ValueError):
    """A portfolio, a decision tree or an operator call that is invalid."""


class MissingDependencyError(DietlabError, ImportError):
    """An optional package or tool that is not installed."""


def require_type(
    what: str, value: object, expected: type, error: type[DietlabError] = DietlabError, remedy: str = ""
) -> None:
    """Checks the class of an argument; ``what`` names the argument, as in ``"the first argument of tune"``.
    Users may swap arguments, or pass a name instead of a value.

    Raises:
        DietlabError: ``error``, if ``value`` is of another class.
    """
    if not isinstance(value, expected):
        found = repr(value) if isinstance(value, str) else f"a value of class {type(value).__name__}"
        raise error(f"{what} must be of class {expected.__name__}", found, remedy)


LIKE = 0.5
"""The least similarity (0 to 1, difflib's ratio) at which a name is suggested. The similarity of ``zen4`` and
``zen4-1core`` is 0.57."""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns ``"Did you mean 'plot_speedup'?"``, or an empty text if no known name resembles ``name``."""
    found = get_close_matches(name, known, 1, LIKE)
    return f"Did you mean {found[0]!r}?" if found else ""


def require_names(
    what: str,
    known: Iterable[str],
    names: Iterable[str],
    error: type[DietlabError] = DietlabError,
    *,
    at_least: int = 0,
) -> None:
    """Checks names that a user chose from a list; ``what`` is a plural, as in ``"cache states"``.

    Raises:
        DietlabError: ``error``, for an unknown name, too few names, or a string in place of a list.
    """
    known = tuple(known)
    invariant = f"{what} are {', '.join(known)}"
    if isinstance(names, str):
        raise error(invariant, f"the string {names!r}", f"Give a list of them, as in [{known[0]!r}].")
    names = tuple(names)
    unknown = dict.fromkeys(str(name) for name in names if name not in known)
    if unknown or len(names) < at_least:
        raise error(invariant, ", ".join(unknown) or "none of them")


def mismatch(names: Iterable[str], known: Iterable[str]) -> str:
    """Returns how two sets of names differ, as ``"unknown M; missing K, T"``; empty if they are equal."""
    given, needed = set(names), set(known)
    parts = (("unknown", given - needed), ("missing", needed - given))
    return "; ".join(f"{what} {', '.join(sorted(found))}" for what, found in parts if found)

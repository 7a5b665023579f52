"""Errors of calls that a library refuses: what is wrong with the arrays, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.base.errors import DispatchError
from dietlab.problem import Workload
from dietlab.tuning.arrays import described
from dietlab.tuning.images import channels_first, positions, windows_of

Array = Any

SHARED = "out shares memory with an operand"
"""The text of the error for an output that overlaps an operand."""


def call_error(
    workload: Workload, given: Mapping[str, Array], said: str, place: str, remedy: str
) -> DispatchError:
    """Returns the error for a call that failed.

    Args:
        given: the arrays by the names of operands, perhaps with the output ``out``.
        said: the text of the library's error.
        place: where the library takes arrays.
        remedy: the advice if their sizes are right.
    """
    found = _residual(workload, given) or _size_that_does_not_follow(workload, given)
    if found is not None:
        return found
    signature = workload.signature
    shapes = [f"{name} [{', '.join(map(str, signature[name]))}]" for name in given if name in signature]
    wrong = [name for name, array in given.items() if _is_wrong_size(workload, name, array)]
    advice = "Give another array." if said == SHARED else remedy
    return DispatchError(
        f"{', '.join(shapes)}: {workload.dtype}, contiguous, {place} and apart from each other",
        ", ".join(f"{name} {described(array)}" for name, array in given.items()),
        _size_remedy(workload, wrong, given) if wrong else f"{said}. {advice}",
    )


def _residual(workload: Workload, given: Mapping[str, Array]) -> DispatchError | None:
    """Returns the error for a residual that is missing, or that the operator does not have."""
    wanted = "residual" in workload.signature
    if "x" not in given or ("residual" in given) == wanted or "w" in given:
        return None
    if wanted:
        return DispatchError(
            f"an operator with a residual needs one ({workload})", "none", "Give it behind x."
        )
    found, remedy = described(given["residual"]), "Leave it out, or tune an operator with residual=True."
    return DispatchError(f"an operator without a residual takes none ({workload})", found, remedy)


def _size_that_does_not_follow(workload: Workload, given: Mapping[str, Array]) -> DispatchError | None:
    """Returns the error for a residual or an output whose size does not follow from that of ``x``."""
    x, signature, windows = getattr(given.get("x"), "shape", None), workload.signature, windows_of(workload)
    if x is None or not workload.constants or _is_wrong_size(workload, "x", given["x"]):
        return None
    rows = [x[0], *(positions(windows, x[1:]) if windows else x[1:-1])]
    for name in ("residual", "out"):
        found = getattr(given.get(name), "shape", None)
        if found is not None and name in signature and list(found[:-1]) != rows:
            shape = ", ".join(map(str, [*rows, signature[name][-1]]))
            rule = f"{name} must have the shape [{shape}] if x is {list(x)}"
            return DispatchError(rule, described(given[name]))
    return None


def _size_remedy(workload: Workload, names: list[str], given: Mapping[str, Array]) -> str:
    if "x" in names and (hint := channels_first(workload, given["x"].shape)):
        return hint
    windowed = bool(windows_of(workload))
    fixed = [axis for axis in workload.axes if not (windowed and axis.role == "rows")]
    static = [f"{axis.name}={axis.extent}" for axis in fixed if isinstance(axis.extent, int)]
    if not static:
        return f"The number of dimensions of {' and '.join(names)} differs: reshape(-1, K) gives x two."
    return (
        f"The size of {' and '.join(names)} differs; this operator was tuned for {', '.join(static)}, "
        "and another size is another operator."
    )


def _is_wrong_size(workload: Workload, name: str, array: Array) -> bool:
    """Returns whether an array's rank or a static extent differs from that of the tuned operator."""
    wanted, found = workload.signature.get(name), getattr(array, "shape", None)
    if wanted is None or found is None:
        return False
    pairs = list(zip(wanted, found, strict=False))
    if windows_of(workload) and name in ("x", "residual", "out"):
        pairs = pairs[-1:]  # a library serves any number of images of every size
    return len(found) != len(wanted) or any(w != f for w, f in pairs if isinstance(w, int))

"""Checks that the parts of an operator agree with each other and with its operands and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

import numpy as np
import numpy.typing as npt

from dietlab.base.contracts import name_of, require_methods, shown
from dietlab.base.errors import WorkloadError
from dietlab.problem.contraction import (
    Axis,
    Inputs,
    Role,
    Weights,
    Workload,
    axes_of,
    channelwise,
    dtypes_of,
    precision_of,
    smallest_shape,
)
from dietlab.problem.dims import Dim, Shape, Size, Window, bound, window_size
from dietlab.problem.epilogue import Epilogue
from dietlab.problem.precision import require_dtype

METHODS = ("flops", "bytes", "output_shape", "inputs", "reference", "to_json")
"""Methods of a :class:`~dietlab.problem.Workload`."""

FIELDS = ("operator", "dtype", "out_dtype", "axes", "dims", "weights", "constants", "epilogue", "signature")
"""Fields and properties of a :class:`~dietlab.problem.Workload`."""

REMEDY = "docs/how-to/operator.md shows a complete operator."


def require_workload(workload: Workload) -> None:
    """Checks the parts of an operator against each other: axes, dimensions, operands and constants.

    Args:
        workload: the operator to check; it may be any object.

    Raises:
        WorkloadError: if it is no operator, or one part contradicts another.
    """
    require_methods("an operator", workload, METHODS, WorkloadError)
    kind = name_of(workload)
    if missing := [name for name in FIELDS if not hasattr(workload, name)]:
        raise WorkloadError(
            f"the operator {kind} must have {', '.join(FIELDS)}", f"none named {', '.join(missing)}", REMEDY
        )
    for check in CHECKS:
        said = check(workload)
        if said is not None:
            raise WorkloadError(f"the operator {kind} must have {said[0]}", said[1], REMEDY)


def _frozen(workload: Workload) -> tuple[str, object] | None:
    try:
        hash(workload)
    except TypeError as error:
        return "a hash, as of a frozen dataclass", error
    return None


def _fields(workload: Workload) -> tuple[str, object] | None:
    if not isinstance(workload.operator, str):
        return "a text as its operator", shown(workload.operator)
    require_dtype(workload.dtype)
    if workload.weights not in get_args(Weights):
        return f"weights that are one of {', '.join(get_args(Weights))}", repr(workload.weights)
    if not isinstance(workload.epilogue, Epilogue):
        return "an Epilogue", shown(workload.epilogue)
    return None


def _axes(workload: Workload) -> tuple[str, object] | None:
    others = [axis for axis in workload.axes if not isinstance(axis, Axis)]
    if others:
        return "axes, each an Axis", shown(others[0])
    roles = sorted(axis.role for axis in workload.axes)
    windows = any(isinstance(axis.extent, Window) for axis in workload.axes)
    known = sorted(set(roles)) if windows else roles
    if known not in (sorted(get_args(Role)), sorted(set(get_args(Role)) - {"batch"})):
        return "an axis of each role: rows, cols and depth, perhaps one batch", ", ".join(roles)
    ranges = {name: dim for axis in workload.axes for name, dim in axis.dims.items()}
    if dict(workload.dims) != ranges:
        return f"dims with the ranges of its axes, {_said(ranges)}", _said(workload.dims)
    return None


def _operands(workload: Workload) -> tuple[str, object] | None:
    names: dict[Role, list[Size]] = {}
    for axis in workload.axes:
        names.setdefault(axis.role, []).append(axis.name if isinstance(axis.extent, Dim) else axis.extent)
    (rows, *positions), (cols,), (*kernel, depth) = (names[role] for role in ("rows", "cols", "depth"))
    batch, inner = (*names.get("batch", ()),), depth
    if positions:
        # The channels of all groups lie side by side in images; a depthwise kernel's depth has no channels.
        groups = axes_of(workload, "batch")[0].low if batch else 1
        own = channelwise(workload)
        kernel, depth, batch = [*kernel, depth] if own else kernel, 1 if own else depth, ()
        if own or groups > 1:
            inner, cols = (_number(cols) if own else groups * _number(depth)), groups * _number(cols)
    image = (window_size(window) for window in positions)
    sizes: dict[str, tuple[Size, ...]] = {"x": (*batch, rows, *image, inner)}
    sizes["w"] = (*batch, depth, cols) if workload.weights == "direct" else (*batch, cols, depth, *kernel)
    sizes |= {"scale": (cols,)} if precision_of(workload).scaled else {}
    sizes |= {"bias": (cols,)} if workload.epilogue.bias else {}
    out = (*batch, rows, *positions, cols)
    sizes |= {"residual": out} if workload.epilogue.residual else {}
    sizes["out"] = out
    found = {name: tuple(size) for name, size in workload.signature.items()}
    if list(found.items()) != list(sizes.items()):
        return f"the signature {_said(sizes)}, as its axes and weights have it", _said(found)
    unknown = [name for name in workload.constants if name not in found or name == "out"]
    if unknown:
        return "constants that are operands of its signature", ", ".join(unknown)
    if (workload.weights == "packed") != ("w" in workload.constants):
        said = f"{workload.weights}, with the constants {', '.join(workload.constants) or 'none'}"
        return "packed weights where w is constant, and only there", said
    return None


def _number(size: Size) -> int:
    """Returns the number of channels of a group, or of a depthwise convolution, which is no range."""
    if not isinstance(size, int):
        rule = "the channels of an operator with windows and groups must be numbers"
        raise WorkloadError(rule, shown(size), REMEDY)
    return size


def _sizes(workload: Workload) -> tuple[str, object] | None:
    shape = smallest_shape(workload)
    out = bound(workload.signature["out"], shape)
    if tuple(workload.output_shape(shape)) != out:
        return f"an output of {[*out]} at {shape or 'its one shape'}", [*workload.output_shape(shape)]
    for count in (workload.flops, workload.bytes):
        found = count(shape)
        if isinstance(found, bool) or not isinstance(found, (int, np.integer)) or found <= 0:
            return f"a whole number above 0 as {count.__name__} at {shape or 'its one shape'}", shown(found)
    return None


CHECKS: tuple[Callable[[Workload], tuple[str, object] | None], ...] = (
    _frozen,
    _fields,
    _axes,
    _operands,
    _sizes,
)
"""The checks in order; each relies on the checks before it. A check returns None or a pair: what an operator
must have, and what was found instead."""


def _said(values: Mapping[str, object]) -> str:
    texts = (f"{name} {list(v) if isinstance(v, tuple) else v}" for name, v in values.items())
    return ", ".join(texts) or "none"


def require_inputs(workload: Workload, shape: Shape, inputs: Inputs) -> None:
    """Checks random operands against the signature.

    Args:
        workload, shape: the operator and one of its shapes.
        inputs: the result of ``workload.inputs(shape)``.

    Raises:
        WorkloadError: if an operand is missing, unknown, or of another size or type.
    """
    sizes = {name: bound(size, shape) for name, size in workload.signature.items() if name != "out"}
    types = dtypes_of(workload)
    wanted = {name: f"{types[name]}{[*size]}" for name, size in sizes.items()}
    found = inputs if isinstance(inputs, Mapping) else {}
    have = {name: f"{getattr(a, 'dtype', type(a).__name__)}{[*np.shape(a)]}" for name, a in found.items()}
    if have != wanted:
        given = _said(have) if isinstance(inputs, Mapping) else shown(inputs)
        raise WorkloadError(f"inputs of {name_of(workload)} at {shape} must be {_said(wanted)}", given)


def require_reference(workload: Workload, shape: Shape, rows: int, right: object) -> npt.NDArray[np.float64]:
    """Returns the reference results after checking that they are finite float64 numbers in an array of the
    output's size.

    Args:
        workload, shape: the operator and one of its shapes.
        rows: the number of rows of the output that were computed.
        right: the result of ``workload.reference``.

    Raises:
        WorkloadError: if they are not.
    """
    out = tuple(workload.output_shape(shape))
    size = (*out[:-2], rows, out[-1])
    what = f"reference of {name_of(workload)} at {shape} returns finite float64{[*size]}"
    if not isinstance(right, np.ndarray) or right.dtype != np.float64 or right.shape != size:
        given = f"{right.dtype}{[*right.shape]}" if isinstance(right, np.ndarray) else shown(right)
        raise WorkloadError(what, given)
    if not np.isfinite(right).all():
        raise WorkloadError(what, f"{(~np.isfinite(right)).sum()} numbers that are not finite")
    return right

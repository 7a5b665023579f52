"""Operators, one file each, described as contractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dietlab.errors import WorkloadError, mismatch
from dietlab.shapes import Dim
from dietlab.workloads.batch_matmul import BatchMatmul
from dietlab.workloads.contraction import (
    Axis,
    Inputs,
    IntArray,
    Role,
    Weights,
    Workload,
    axis_of,
    batch_of,
    batched,
    dtypes_of,
    extents,
    extents_of,
    largest,
    largest_shape,
    smallest,
    smallest_shape,
    static_extent,
)
from dietlab.workloads.dense import Dense
from dietlab.workloads.dimensions import bound
from dietlab.workloads.epilogue import ACTIVATIONS, NO_EPILOGUE, Activation, Epilogue
from dietlab.workloads.int8 import require_scales
from dietlab.workloads.layer import at_layer, length_dim, shapes_of_layer
from dietlab.workloads.precision import PRECISIONS, FloatArray, Precision, require_dtype
from dietlab.workloads.tolerance import tolerance


@dataclass(frozen=True)
class OperatorKind:
    """An operator's class, its dimensions, and an example of them for the command line."""

    make: Callable[..., Workload]
    read: Callable[[Mapping[str, Any]], Workload]
    dims: tuple[str, ...]
    example: str


OPERATORS: dict[str, OperatorKind] = {
    "dense": OperatorKind(Dense, Dense.from_json, ("T", "N", "K"), "--dim T=1:128 --dim N=2304 --dim K=768"),
    **{
        f"batch-matmul-{form}": OperatorKind(
            partial(BatchMatmul, form=form),
            BatchMatmul.from_json,
            ("T", "B", "D"),
            "--dim T=1:128 --dim B=192 --dim D=64",
        )
        for form in ("nt", "nn")
    },
}

__all__ = [
    "ACTIVATIONS",
    "NO_EPILOGUE",
    "OPERATORS",
    "PRECISIONS",
    "Activation",
    "Axis",
    "BatchMatmul",
    "Dense",
    "Epilogue",
    "FloatArray",
    "Inputs",
    "IntArray",
    "Precision",
    "Role",
    "Weights",
    "Workload",
    "at_layer",
    "axis_of",
    "batch_of",
    "batched",
    "bound",
    "dtypes_of",
    "extents",
    "extents_of",
    "largest",
    "largest_shape",
    "length_dim",
    "make_workload",
    "require_dtype",
    "require_scales",
    "shapes_of_layer",
    "smallest",
    "smallest_shape",
    "static_extent",
    "tolerance",
    "workload_from_json",
]


def make_workload(operator: str, dims: Mapping[str, Dim | int], **options: Any) -> Workload:
    """Returns an operator from its name and dimensions, as the command line gives them.

    Args:
        operator: such as ``"dense"``, a key of :data:`OPERATORS`.
        dims: each a number or a range, by the operator's names.
        options: its other fields, such as ``bias=True`` or ``dtype="bfloat16"``.

    Raises:
        WorkloadError: if the operator, a dimension or an option is unknown, or one is missing.
    """
    known = _operator(operator)
    if wrong := mismatch(dims, known.dims):
        raise WorkloadError(
            f"{operator} has the dimensions {', '.join(known.dims)}", wrong, f"For example {known.example}."
        )
    try:
        return known.make(**{**dims, **options})
    except TypeError:
        raise WorkloadError(f"{operator} knows its options", ", ".join(sorted(options))) from None


def workload_from_json(value: Mapping[str, Any]) -> Workload:
    """Returns the inverse of ``workload.to_json()``.

    Args:
        value: what ``to_json`` returned.
    """
    return _operator(value.get("operator")).read(value)


def _operator(name: Any) -> OperatorKind:
    if name not in OPERATORS:
        raise WorkloadError(f"the operator is one of {', '.join(sorted(OPERATORS))}", repr(name))
    return OPERATORS[name]

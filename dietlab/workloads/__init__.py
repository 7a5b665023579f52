"""Operators: one file each, all of them contractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.errors import WorkloadError
from dietlab.shapes import Dim
from dietlab.workloads.contraction import (
    Axis,
    FloatArray,
    Inputs,
    Role,
    Workload,
    axis_of,
    extents,
    tolerance,
)
from dietlab.workloads.dense import Dense

OPERATORS: dict[str, type[Dense]] = {"dense": Dense}

__all__ = [
    "OPERATORS", "Axis", "Dense", "FloatArray", "Inputs", "Role", "Workload",
    "axis_of", "extents", "make_workload", "tolerance", "workload_from_json",
]  # fmt: skip


def make_workload(operator: str, dims: Mapping[str, Dim | int], **options: Any) -> Workload:
    """An operator from its name and dimensions, as the command line gives them.

    Raises:
        WorkloadError: if the operator or a dimension is unknown, or one is missing.
    """
    if operator not in OPERATORS:
        raise WorkloadError(f"the operator is one of {', '.join(sorted(OPERATORS))}", repr(operator))
    needed = {"dense": ("T", "N", "K")}[operator]
    if set(dims) != set(needed):
        unknown, missing = set(dims) - set(needed), set(needed) - set(dims)
        raise WorkloadError(
            f"{operator} has the dimensions {', '.join(needed)}",
            "; ".join(
                f"{what} {', '.join(sorted(names))}"
                for what, names in (("unknown", unknown), ("missing", missing))
                if names
            ),
            "For example --dim T=1:128 --dim N=2304 --dim K=768.",
        )
    arguments: dict[str, Any] = {**dims, **options}
    return OPERATORS[operator](**arguments)


def workload_from_json(value: Mapping[str, Any]) -> Workload:
    """The inverse of ``workload.to_json()``."""
    operator = value.get("operator")
    if operator not in OPERATORS:
        raise WorkloadError(f"the operator is one of {', '.join(sorted(OPERATORS))}", repr(operator))
    return OPERATORS[operator].from_json(value)

"""The dimensions in an operator's constructor, each a number or a range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import Dim, HasDims, Shape, bound, range_text, require_elements


def require_extents(workload: HasDims, names: Sequence[str]) -> None:
    """Checks the dimensions of an operator, and the sizes of its operands at the lower ends of the ranges.

    Raises:
        WorkloadError: if a dimension is neither an int nor a range, an extent is below 1, or an operand has
            more than 2**31 - 1 elements for every shape.
    """
    for name in names:
        extent = getattr(workload, name)
        if isinstance(extent, Dim):
            continue
        if not isinstance(extent, int) or isinstance(extent, bool):
            low, high = extent if isinstance(extent, tuple | list) and len(extent) == 2 else (1, 128)
            raise WorkloadError(
                f"{', '.join(names[:-1])} and {names[-1]} must each be an int or a Dim",
                f"{name}={extent!r}",
                f"A range is written {range_text(name, low, high)}.",
            )
        if extent < 1:
            remedy = f"Give a number of 1 or more, or a range such as {range_text(name, 1, 128)}."
            raise WorkloadError("every dimension must be at least 1", f"{name}={extent}", remedy)
    require_elements(workload, Shape.of(**{name: dim.low for name, dim in workload.dims.items()}))


def dynamic(workload: Any, names: Sequence[str]) -> Mapping[str, Dim]:
    """Returns the ranges of the dynamic dimensions, in the order of ``names``."""
    return dict(_dynamic(workload, names))


def _dynamic(workload: Any, names: Sequence[str]) -> Iterator[tuple[str, Dim]]:
    for name in names:
        extent = getattr(workload, name)
        if isinstance(extent, Dim):
            yield name, extent


def named(workload: Any, names: Sequence[str]) -> tuple[int | str, ...]:
    """Returns the size of an operand as in a signature: for each dimension its extent or, if dynamic, its
    name."""
    return tuple(name if isinstance(e := getattr(workload, name), Dim) else int(e) for name in names)


def operand_sizes(workload: Any, shape: Shape) -> dict[str, tuple[int, ...]]:
    """Returns the size of each operand and of the output for a shape, by name."""
    return {name: bound(size, shape) for name, size in workload.signature.items()}


def dim_to_json(dim: Dim | int) -> list[int] | int:
    """Returns a range as ``[low, high]``, an extent as it is."""
    return [dim.low, dim.high] if isinstance(dim, Dim) else dim


def dim_from_json(value: Any) -> Dim | int:
    """Returns the range or the extent of a JSON value made by :func:`dim_to_json`."""
    return Dim(*value) if isinstance(value, (list, tuple)) else int(value)

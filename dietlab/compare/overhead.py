"""Measures the cost of a call outside the micro-kernels: of the decision tree, and of the call from
Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from timeit import repeat
from typing import Any

import numpy as np

from dietlab.lower.contraction import called_dims, sizes_of
from dietlab.lower.runtime import compacted
from dietlab.problem import Shape, Workload, name_of_role, precision_of, smallest_shape
from dietlab.problem.convolution import Convolution
from dietlab.tuning import Operator

CALLS = 2000
"""The number of calls in one repeat, which are timed together."""

REPEATS = 25
"""The number of repeats, of which the fastest counts."""


def overheads(op: Operator, shapes: Iterable[Shape]) -> dict[str, float]:
    """Returns ``dispatch_ns`` and ``python_call_us``; an empty dict for a GPU's library, whose calls take no
    NumPy arrays.

    - ``dispatch_ns``: the nanoseconds that the decision tree takes: those of ``plan(T, ...)``, averaged over
      ``shapes``, minus those of ``idle(T, ...)``, a call of the same form that decides nothing.
    - ``python_call_us``: the microseconds of ``layer(x, out=y)``, or ``op(x, w, out=y)`` if nothing is
      constant, on NumPy arrays without rows: conversion and checks of arguments, and dispatch, but no kernel.
      A convolution gets no images; its library takes any number of them. Left out if the number of rows of
      another operator is static, because then no call is empty.
    """
    if not op.dispatcher.hardware.limits.on_host:
        return {}
    workload = op.workload
    sizes = [sizes_of(workload, shape) for shape in shapes]
    calls = [[extents[name] for name in called_dims(workload)] for extents in sizes]
    plan, idle = op.library.plan, op.library.idle
    decide = _least(lambda: [plan(*extents) for extents in calls], 1) / len(calls)
    nothing = _least(lambda: [idle(*extents) for extents in calls], 1) / len(calls)
    found = {"dispatch_ns": round(max(0.0, decide - nothing) * 1e9, 1)}
    if not (isinstance(workload, Convolution) or name_of_role(workload, "rows") in workload.dims):
        return found
    return found | {"python_call_us": round(_least(empty_call(op, workload), CALLS) * 1e6, 2)}


def empty_call(op: Any, workload: Workload) -> Callable[[], object]:
    """Returns a call with zero rows, or zero images; other dynamic extents are the lowest of their ranges."""
    rows, shape = name_of_role(workload, "rows"), smallest_shape(workload)
    if rows in workload.dims:
        shape = Shape.of(**{**shape.to_json(), rows: 0})
    dtype = precision_of(workload, "out").numpy
    operands, out = workload.inputs(shape), compacted(np.zeros(workload.output_shape(shape), dtype))
    if rows not in workload.dims:  # a convolution, with its images first
        out = compacted(out[:0])
        operands |= {name: x[:0] for name, x in operands.items() if name not in workload.constants}
    constants = {name: operands.pop(name) for name in workload.constants}
    target = op.pack(**constants) if constants else op
    return partial(target, *map(compacted, operands.values()), out=out)


def _least(work: Callable[[], object], calls: int) -> float:
    """Returns the seconds of one call in the fastest repeat."""
    return min(repeat(work, number=calls, repeat=REPEATS)) / calls

"""What a call costs besides the micro-kernel: the decision tree, and the way from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from timeit import repeat
from typing import Any

import numpy as np

from dietlab.dispatch import Operator
from dietlab.workloads import Workload, workload_from_json

CALLS = 2000
REPEATS = 25


def overheads(op: Operator, extents: Iterable[int]) -> dict[str, float]:
    """``dispatch_ns`` and ``python_call_us``, the least of many repeats.

    - ``dispatch_ns``: nanoseconds that the tree takes inside the library: ``plan(T)``, averaged over
      ``extents``, less ``idle(T)``, a call of the same form that decides nothing.
    - ``python_call_us``: microseconds of ``layer(x, out=y)`` on NumPy arrays without rows: argument
      conversion and checks, dispatch, and no kernel. Left out where no call is empty in that way,
      because the operands of each call hold more than rows.
    """
    rows = list(extents)
    plan, idle = op.library.plan, op.library.idle
    decide = _least(lambda: [plan(t) for t in rows], 1) / len(rows)
    nothing = _least(lambda: [idle(t) for t in rows], 1) / len(rows)
    found = {"dispatch_ns": round(max(0.0, decide - nothing) * 1e9, 1)}
    call = _empty_call(op, workload_from_json(op.manifest["workload"]))
    return found if call is None else found | {"python_call_us": round(_least(call, CALLS) * 1e6, 2)}


def _empty_call(op: Any, workload: Workload) -> Callable[[], object] | None:
    """A call of a packed layer on no rows."""
    if "w" not in workload.constants or workload.epilogue.residual:
        return None
    cols, depth = op.weight_shape
    bias = np.zeros(cols, np.float32) if workload.epilogue.bias else None
    layer = op.pack(np.zeros((cols, depth), np.float32), bias)
    # A slice keeps the strides of a whole array, which an empty one of its own would not have.
    x, out = np.zeros((1, depth), np.float32)[:0], np.zeros((1, cols), np.float32)[:0]
    return partial(layer, x, out=out)


def _least(work: Callable[[], object], calls: int) -> float:
    """Seconds of one call in the best of many repeats."""
    return min(repeat(work, number=calls, repeat=REPEATS)) / calls

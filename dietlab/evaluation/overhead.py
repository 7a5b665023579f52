"""What a call costs besides the micro-kernel: the decision tree, and the way from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

import numpy as np

from dietlab.dispatch import Operator

CALLS = 2000
REPEATS = 25


def overheads(op: Operator, extents: Iterable[int]) -> dict[str, float]:
    """``dispatch_ns`` and ``python_call_us``, the least of many repeats.

    - ``dispatch_ns``: nanoseconds that the tree takes inside the library: ``plan(T)``, averaged over
      ``extents``, less ``idle(T)``, a call of the same form that decides nothing.
    - ``python_call_us``: microseconds of ``layer(x, out=y)`` on NumPy arrays without rows: argument
      conversion and checks, dispatch, and no kernel.
    """
    rows = list(extents)
    plan, idle = op.library.plan, op.library.idle
    decide = _least(lambda: [plan(t) for t in rows]) / len(rows)
    nothing = _least(lambda: [idle(t) for t in rows]) / len(rows)
    cols, depth = op.weight_shape
    bias = np.zeros(cols, np.float32) if op.has_bias else None
    layer = op.pack(np.zeros((cols, depth), np.float32), bias)
    # A slice keeps the strides of a whole array, which an empty one of its own would not have.
    x, out = np.zeros((1, depth), np.float32)[:0], np.zeros((1, cols), np.float32)[:0]
    call = _least(lambda: [layer(x, out=out) for _ in range(CALLS)]) / CALLS
    return {
        "dispatch_ns": round(max(0.0, decide - nothing) * 1e9, 1),
        "python_call_us": round(call * 1e6, 2),
    }


def _least(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        started = perf_counter()
        work()
        best = min(best, perf_counter() - started)
    return best

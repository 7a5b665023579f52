"""Checks of operands whose sums are scaled, and random scales."""

from __future__ import annotations

import numpy as np

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import Dim
from dietlab.problem.epilogue import Activation
from dietlab.problem.precision import FloatArray, Precision, require_dtype


def require_output(precision: Precision, out_dtype: str | None, activation: Activation) -> None:
    """Checks the type of an output (None: the default). An int8 output allows only activations that commute
    with its scale."""
    known = precision.outputs or (precision.name,)
    if (out_dtype or known[0]) not in known:
        raise WorkloadError(
            f"an output of {precision.name} operands is {' or '.join(known)}", repr(out_dtype)
        )
    if require_dtype(out_dtype or known[0]).whole and activation not in ("none", "relu"):
        raise WorkloadError(
            f"an {out_dtype} output must have the activation none or relu, which commute with its scale",
            activation,
            f"Take out_dtype={known[0]!r}.",
        )


def require_sums(precision: Precision, depth: Dim | int) -> None:
    """Checks that sums stay within their type."""
    deepest = depth.high if isinstance(depth, Dim) else depth
    if precision.longest is not None and deepest > precision.longest:
        raise WorkloadError(
            f"sums of {precision.name} products must have at most {precision.longest} terms, or "
            f"{precision.sums} could not hold them",
            deepest,
            "Cut the reduction in parts.",
        )


def scales_for(normal: FloatArray, depth: int, precision: Precision, output: Precision) -> FloatArray:
    """Returns random positive scales, different for each channel, for sums of ``depth`` products of random
    operands. The standard deviation of scaled sums is at least half the deviation of random operands of type
    ``output``."""
    sums = precision.deviation**2 * np.sqrt(depth)
    scales: FloatArray = ((np.abs(normal) + 0.5) * (output.deviation / sums)).astype(np.float32)
    return scales


def require_scales(scale: FloatArray) -> None:
    """Checks scales before they are packed. Zero is allowed: it is the scale of a feature whose weights are
    all zero.

    Args:
        scale: the scale of each output feature, ``[N]``.

    Raises:
        WorkloadError: if one is not a finite number.
    """
    wrong = np.flatnonzero(~np.isfinite(scale))
    if wrong.size:
        first = int(wrong[0])
        rule = "every scale must be a finite number"
        raise WorkloadError(rule, f"scale[{first}]={scale[first]}", "Quantise the weights again.")

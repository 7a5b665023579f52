"""Limits of operands whose sums need scales, and random scales."""

from __future__ import annotations

import numpy as np

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import Dim
from dietlab.problem.epilogue import Activation
from dietlab.problem.precision import FloatArray, Precision, require_dtype


def require_output(precision: Precision, out_dtype: str | None, activation: Activation) -> None:
    """Checks the type of an output (None: the usual one), and that one of whole numbers needs no other scale.

    Raises:
        WorkloadError: if operands of this type have no such output.
    """
    known = precision.outputs or (precision.name,)
    if (out_dtype or known[0]) not in known:
        raise WorkloadError(
            f"an output of {precision.name} operands is {' or '.join(known)}", repr(out_dtype)
        )
    if require_dtype(out_dtype or known[0]).whole and activation not in ("none", "relu"):
        raise WorkloadError(
            f"an {out_dtype} output has the activation none or relu, which commute with its scale",
            activation,
            f"Take out_dtype={known[0]!r}.",
        )


def require_sums(precision: Precision, depth: Dim | int) -> None:
    """Checks that sums stay within their type.

    Raises:
        WorkloadError: if they could not.
    """
    deepest = depth.high if isinstance(depth, Dim) else depth
    if precision.longest is not None and deepest > precision.longest:
        raise WorkloadError(
            f"sums of {precision.name} products have at most {precision.longest} terms, or {precision.sums} "
            "could not hold them",
            deepest,
            "Cut the reduction in parts.",
        )


def scales_for(normal: FloatArray, depth: int, precision: Precision, output: Precision) -> FloatArray:
    """Returns positive scales with which sums of ``depth`` products of random operands become outputs of the
    deviation that operands of that type have, or up to some times more: channels differ."""
    sums = precision.deviation**2 * np.sqrt(depth)
    scales: FloatArray = ((np.abs(normal) + 0.5) * (output.deviation / sums)).astype(np.float32)
    return scales


def require_scales(scale: FloatArray) -> None:
    """Checks scales before they are packed. Zero is one: of a feature whose weights are all zero.

    Args:
        scale: of each output feature, ``[N]``.

    Raises:
        WorkloadError: if one is not a finite number.
    """
    wrong = np.flatnonzero(~np.isfinite(scale))
    if wrong.size:
        first = int(wrong[0])
        raise WorkloadError(
            "every scale is a finite number", f"scale[{first}]={scale[first]}", "Quantise the weights again."
        )

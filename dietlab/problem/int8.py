"""Limits of int8 operands, and the scales of random ones."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dietlab.base.errors import WorkloadError
from dietlab.problem.dims import Dim
from dietlab.problem.epilogue import Activation
from dietlab.problem.precision import INT8_DEVIATION, FloatArray

DEEPEST = 2**17 - 1
"""Most terms of a sum of int8 products in int32: a product is at most 2**14, an int32 at most 2**31 - 1."""


def require_output(out_dtype: str, known: Collection[str], dtype: str) -> None:
    """Checks the type of an output.

    Raises:
        WorkloadError: if operands of type ``dtype`` cannot have it.
    """
    if out_dtype not in known:
        raise WorkloadError(f"an output of {dtype} operands is {' or '.join(known)}", repr(out_dtype))


def require_int8(depth: Dim | int, activation: Activation, out_dtype: str | None) -> None:
    """Checks that sums fit int32, and that the activation commutes with the scale of an int8 output.

    Raises:
        WorkloadError: if not.
    """
    deepest = depth.high if isinstance(depth, Dim) else depth
    if deepest > DEEPEST:
        raise WorkloadError(
            f"sums of int8 products have at most {DEEPEST} terms, or int32 could not hold them",
            deepest,
            "Cut the reduction in parts.",
        )
    if out_dtype == "int8" and activation not in ("none", "relu"):
        raise WorkloadError(
            "an int8 output has the activation none or relu, which commute with its scale",
            activation,
            "Take out_dtype='float32'.",
        )


def scales_for(normal: FloatArray, depth: int, out_dtype: str) -> FloatArray:
    """Returns positive scales, different for each channel, that bring the outputs of random operands to about
    the standard deviation of random operands of the output's type."""
    sums = INT8_DEVIATION**2 * np.sqrt(depth)
    wanted = INT8_DEVIATION if out_dtype == "int8" else 1.0
    scales: FloatArray = ((np.abs(normal) + 0.5) * (wanted / sums)).astype(np.float32)
    return scales


def require_scales(scale: FloatArray) -> None:
    """Checks scales before they are packed. Zero is valid: all weights of the feature are zero then.

    Args:
        scale: a scale for each output feature, ``[N]``.

    Raises:
        WorkloadError: if one is not a finite number.
    """
    wrong = np.flatnonzero(~np.isfinite(scale))
    if wrong.size:
        first = int(wrong[0])
        raise WorkloadError(
            "every scale is a finite number", f"scale[{first}]={scale[first]}", "Quantise the weights again."
        )

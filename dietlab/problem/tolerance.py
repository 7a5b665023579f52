"""Error bounds of a correct result against float64."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from dietlab.problem.contraction import Inputs, Workload, precision_of
from dietlab.problem.dims import Window
from dietlab.problem.epilogue import Activation, Epilogue
from dietlab.problem.precision import WORKING, FloatArray

SUM_FACTOR = 4.0
"""Bounds the error of a float32 sum, as a multiple of ``sqrt(terms) * epsilon * magnitude``. Up to 64 terms
this covers the worst case, ``terms / 2``; errors of longer sums grow with the square root in practice."""

STEEPEST: dict[Activation, float] = {"none": 1.0, "relu": 1.0, "gelu_tanh": 1.13, "gelu_erf": 1.13}
"""The largest slope of each activation, which magnifies an error of its argument. (GELU's is 1.129, at the
argument ``sqrt 2``.)"""

GELU_ROUNDING = 16.0
"""Bounds the error of GELU in float32, as a multiple of ``epsilon * |argument|``. The error is 2.5 for the
CPU's quotient of polynomials, 1 for the formula with a device's ``tanh``, and more for the approximations of
some libraries."""


WHOLE_ROUNDINGS = 2.0
"""Bounds the error of a float32 result of an int32 sum, as a multiple of ``epsilon``, relative to the largest
term: conversion, scale, bias and residual each add an error of half an ``epsilon``."""

GELU_ENDS = 5.5
"""The magnitude of the argument above which GELU returns the argument or zero."""


def tolerance(workload: Workload, inputs: Inputs, reference: npt.NDArray[np.float64] | None = None) -> float:
    """Returns the largest absolute error that a correct result may have.

    Sums are taken in float32, with machine epsilon ``eps``. A sum of ``n`` terms is off by at most
    ``n * eps / 2 * (sum of their magnitudes)`` (Higham, Accuracy and Stability of Numerical Algorithms,
    section 4.2). Errors of blocked sums grow as ``sqrt(n)``, so :data:`SUM_FACTOR` times ``sqrt(n) * eps``
    suffices for any order of summation, also for the truncated sums of tensor cores (Fasi, Higham, Mikaitis
    and Pranesh 2021), and is far below a wrong or missing term. Bias and residual count as terms: they may be
    much larger than the products. With ``|x|`` and ``|w|`` the largest norms along the reduction axis, the
    magnitudes add up to at most ``M = |x| |w| + max |bias| + max |residual|`` (Cauchy-Schwarz).

    An activation magnifies the error by its slope at most (:data:`STEEPEST`). GELU adds an error of
    :data:`GELU_ROUNDING` times ``eps * M``, since no argument exceeds ``M``.

    Operands in float16 or bfloat16 are exact, and so are their products in float32 (22 and 16 of its 24
    bits). The output is rounded once more: ``fl(v) = v (1 + e)`` with ``|e|`` at most half the format's
    epsilon ``u`` (Higham, theorem 2.2), or, if ``v`` is subnormal, off by half the smallest positive value
    ``s``. If the float32 result is within ``d`` of the exact ``y``, the output is within
    ``d + (|y| + d) u / 2 + s / 2``; the largest ``|y|`` is used for all elements.

    Sums of int8 products are exact. Conversion to float32, scale, bias and residual each round a sum once:
    the error is at most :data:`WHOLE_ROUNDINGS` times ``eps`` times the sum of the largest output, bias and
    residual (an activation maps arguments that are larger than its result to zero). An int8 output is the
    integer nearest to the float32 value, which adds an error of half a step.

    Args:
        workload: the operator.
        inputs: the operands, by name.
        reference: the result of ``workload.reference(inputs)``, if known; otherwise it is computed if the
            bound depends on it (outputs in float16 and bfloat16, operands of int8).
    """
    exact, output = precision_of(workload).whole, precision_of(workload, "out")
    if not exact and output == WORKING:
        return _after_float_sums(workload, inputs)
    right = workload.reference(inputs) if reference is None else reference
    error = _after_exact_sums(workload, inputs, right) if exact else _after_float_sums(workload, inputs)
    return error + output.rounding(_largest(right) + error)


def _after_float_sums(workload: Workload, inputs: Inputs) -> float:
    bound = _relative_bound(workload.epilogue, _under_kernel(workload) * inputs["x"].shape[-1])
    return bound * WORKING.epsilon * max(_magnitude(workload, inputs), 1e-30) + 1e-30


def _after_exact_sums(workload: Workload, inputs: Inputs, right: npt.NDArray[np.float64]) -> float:
    most = _largest(right) + sum(_largest(inputs[name]) for name in ("bias", "residual") if name in inputs)
    activation = workload.epilogue.activation
    gelu = GELU_ROUNDING * max(most, GELU_ENDS) if activation.startswith("gelu") else 0.0
    return WORKING.epsilon * (STEEPEST[activation] * WHOLE_ROUNDINGS * most + gelu) + 1e-30


def _relative_bound(epilogue: Epilogue, depth: int) -> float:
    """Returns the error bound of a float32 result, as a multiple of ``epsilon * magnitude``."""
    terms = max(1, depth) + epilogue.bias + bool(epilogue.residual)
    gelu = GELU_ROUNDING if epilogue.activation.startswith("gelu") else 0.0
    return STEEPEST[epilogue.activation] * SUM_FACTOR * float(np.sqrt(terms)) + gelu


def _magnitude(workload: Workload, inputs: Inputs) -> float:
    """Returns an upper bound of the sum of the magnitudes of an output's terms. Under a kernel of several
    elements, the norm of a row is at most the largest norm of an element times the root of their number."""
    elements, w = _under_kernel(workload), inputs["w"]
    weights = w.reshape(len(w), prod(w.shape[1:])) if workload.weights == "packed" else w
    product = _largest_norm(inputs["x"], -1) * _largest_norm(
        weights, -2 if workload.weights == "direct" else -1
    )
    product *= float(np.sqrt(elements))
    return product + sum(_largest(inputs[name]) for name in ("bias", "residual") if name in inputs)


def _under_kernel(workload: Workload) -> int:
    """Returns the number of the kernel's elements; 1 for a product without windows."""
    return prod(axis.extent.kernel for axis in workload.axes if isinstance(axis.extent, Window))


def _largest(operand: FloatArray) -> float:
    return float(np.abs(operand).max(initial=0))


def _largest_norm(operand: FloatArray, axis: int) -> float:
    if not operand.size:
        return 1.0
    lines = np.moveaxis(operand, axis, -1).astype(np.float64, copy=False)
    return float(np.sqrt(np.einsum("...k,...k->...", lines, lines).max()))

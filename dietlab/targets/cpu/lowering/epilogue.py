"""Activations on vectors in registers."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from dietlab.problem import Activation
from dietlab.targets.cpu.lowering.tir import constant

# v * P(v^2) / Q(v^2) approximates Phi(v) - 1/2 with the least largest error of v * (1/2 + it) on
# |v| <= limit (weighted least squares on Chebyshev points, reweighted until the errors are level).
# In float32 the result is within 1.1e-6 (an exact GELU rounded to float32 near v = 5: 2.4e-7).
_GELU = {
    "gelu_tanh": (
        4.9,
        (0.398941189, 0.0378405229, 0.00374788459, 0.000175569867, 4.72287929e-06),
        (1.0, 0.262332975, 0.0277759232, 0.0014903892, 7.70777883e-05, 4.5478663e-07),
    ),
    "gelu_erf": (
        5.5,
        (0.398941986, 0.0351419504, 0.00476157971, 0.000182850307, 6.53030265e-06, 2.22141602e-08),
        (1.0, 0.254751402, 0.029398436, 0.00196240043, 7.8605473e-05, 1.19531174e-06),
    ),
}


def activated(activation: Activation, value: Any, lanes: int) -> Any:
    """Returns ``activation(value)`` for a vector.

    Not-a-number stays one. Where the exact factor rounds to 0 or 1 it *is* 0 or 1, so that infinities
    come out as the formula has them.
    """
    if activation == "relu":
        # In this order a comparison with not-a-number, which is false, keeps it.
        return tirx.Select(value < constant(0.0, lanes), constant(0.0, lanes), value)
    if activation in _GELU:
        limit, numerator, denominator = _GELU[activation]
        square = value * value
        inner = value * _polynomial(numerator, square, lanes) / _polynomial(denominator, square, lanes)
        outer = tirx.Select(value < constant(0.0, lanes), constant(-0.5, lanes), constant(0.5, lanes))
        inside = square < constant(limit * limit, lanes)
        return value * (constant(0.5, lanes) + tirx.Select(inside, inner, outer))
    return value


def _polynomial(coefficients: tuple[float, ...], argument: Any, lanes: int) -> Any:
    """Evaluates a polynomial by Horner's scheme; the compiler makes each step one multiply-add."""
    value = constant(coefficients[-1], lanes)
    for coefficient in coefficients[-2::-1]:
        value = value * argument + constant(coefficient, lanes)
    return value

"""Activations of one fp32 value as TVM expressions, with the device's own functions."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from tvm import tirx

from dietlab.problem import Activation

_CUBIC = 0.044715
"""The cubic coefficient of Hendrycks and Gimpel's GELU: ``v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))``."""


def float32(value: float) -> Any:
    """Returns a float32 constant."""
    return tirx.FloatImm("float32", value)


def activated(activation: Activation, value: Any) -> Any:
    """Returns ``activation(value)``; NaN stays NaN."""
    if activation == "relu":
        # A comparison with NaN is false, which in this order keeps it.
        return tirx.Select(value < float32(0.0), float32(0.0), value)
    if activation == "gelu_tanh":
        inner = float32(sqrt(2 / pi)) * (value + float32(_CUBIC) * value * value * value)
        return value * (float32(0.5) + float32(0.5) * tirx.tanh(inner))
    if activation == "gelu_erf":
        return value * (float32(0.5) + float32(0.5) * tirx.erf(value * float32(sqrt(0.5))))
    return value

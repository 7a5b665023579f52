"""The fused epilogue, applied to the output while it is still in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf
from typing import Literal

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import WorkloadError
from dietlab.problem.precision import FloatArray

Activation = Literal["none", "relu", "gelu_tanh", "gelu_erf"]
ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "gelu_tanh", "gelu_erf")


@dataclass(frozen=True)
class Epilogue:
    """``activation(product + bias) + residual``; each part is optional.

    - ``relu``: ``max(v, 0)``.
    - ``gelu_erf``: ``v * (1 + erf(v / sqrt 2)) / 2`` (Hendrycks and Gimpel 2016, section 2).
    - ``gelu_tanh``: ``gelu_erf`` with ``tanh(sqrt(2 / pi) (v + 0.044715 v^3))`` for the error function.

    Args:
        bias: whether a value for each column is added.
        activation: ``"none"`` or one of the activations above.
        residual: whether a tensor of the output's size is added.

    Raises:
        WorkloadError: if there is no such activation.
    """

    bias: bool = False
    activation: Activation = "none"
    residual: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise WorkloadError(f"an activation is one of {', '.join(ACTIVATIONS)}", repr(self.activation))

    def __str__(self) -> str:
        parts = {"+bias": self.bias, self.activation: self.activation != "none", "+residual": self.residual}
        return " ".join(name for name, present in parts.items() if present)

    def reference(
        self,
        product: npt.NDArray[np.float64],
        bias: FloatArray | None,
        residual: FloatArray | None,
    ) -> npt.NDArray[np.float64]:
        """Returns the reference output in float64."""
        value = product if bias is None else product + bias.astype(np.float64)
        value = activate(self.activation, value)
        return value if residual is None else value + residual.astype(np.float64)


NO_EPILOGUE = Epilogue()


def activate(activation: Activation, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the activation in float64."""
    if activation == "relu":
        return np.maximum(value, 0.0)
    factor: npt.NDArray[np.float64] = np.ones_like(value)
    if activation == "gelu_tanh":
        factor = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (value + 0.044715 * value**3)))
    if activation == "gelu_erf":
        # NumPy has no error function; the standard library's is exact to the last place.
        factor = 0.5 * (1 + np.frompyfunc(erf, 1, 1)(value / np.sqrt(2.0)).astype(np.float64))
    return value * factor

"""The fused epilogue, applied to the output while it is still in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import erf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import WorkloadError
from dietlab.problem.precision import FloatArray

Activation = Literal["none", "relu", "gelu_tanh", "gelu_erf"]
Residual = bool | Literal["before"]
"""Whether a residual is added; ``"before"``: before the activation, else after it."""

ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "gelu_tanh", "gelu_erf")


@dataclass(frozen=True)
class Epilogue:
    """``activation(product + bias) + residual``, or ``activation(product + bias + residual)``; each part is
    optional.

    - ``relu``: ``max(v, 0)``.
    - ``gelu_erf``: ``v * (1 + erf(v / sqrt 2)) / 2`` (Hendrycks and Gimpel 2016, section 2).
    - ``gelu_tanh``: ``gelu_erf`` with ``tanh(sqrt(2 / pi) (v + 0.044715 v^3))`` for the error function.

    Args:
        bias: whether a value for each column is added.
        activation: ``"none"`` or one of the activations above.
        residual: whether a tensor of the output's size is added last, as in a transformer (True), or before
            the activation, as in a ResNet (``"before"``; He et al. 2016, figure 2).

    Raises:
        WorkloadError: if there is no such activation, or ``residual`` has another value.
    """

    bias: bool = False
    activation: Activation = "none"
    residual: Residual = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise WorkloadError(f"an activation is one of {', '.join(ACTIVATIONS)}", repr(self.activation))
        if self.residual not in (False, True, "before"):
            raise WorkloadError("a residual is False, True or 'before'", repr(self.residual))

    @property
    def before(self) -> bool:
        """True if a residual is added before an activation."""
        return self.residual == "before" and self.activation != "none"

    def __str__(self) -> str:
        parts = {"+bias": self.bias, self.activation: self.activation != "none", "+residual": self.residual}
        names = [name for name, present in parts.items() if present]
        return " ".join([*names[:-2], names[-1], names[-2]] if self.before else names)

    def finish(self, value: Any, activate: Callable[[Any], Any], add: Callable[[Any], Any]) -> Any:
        """Returns the value after the activation and after the residual is added, in their order.

        Args:
            value: the product with its bias.
            activate, add: functions that apply the activation, and that add the residual if there is one.
        """
        return activate(add(value)) if self.before else add(activate(value))

    def reference(
        self,
        product: npt.NDArray[np.float64],
        bias: FloatArray | None,
        residual: FloatArray | None,
    ) -> npt.NDArray[np.float64]:
        """Returns the reference output in float64."""
        value = product if bias is None else product + bias.astype(np.float64)

        def add(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return value if residual is None else value + residual.astype(np.float64)

        result: npt.NDArray[np.float64] = self.finish(value, partial(activate, self.activation), add)
        return result


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

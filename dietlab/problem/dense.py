"""The dense layer: ``y[T, N] = activation(x[T, K] @ w[N, K].T + bias[N]) + residual[T, N]``. If operands are
int8, the product is multiplied by ``scale[N]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.problem.bases import Layer
from dietlab.problem.contraction import Axis, Inputs, Weights, precision_of
from dietlab.problem.dimensions import named, require_extents
from dietlab.problem.dims import Dim, Size
from dietlab.problem.epilogue import Activation, Residual
from dietlab.problem.precision import USUAL, require_dtype


@dataclass(frozen=True)
class Dense(Layer):
    """A dense layer; each dimension is dynamic (a range) or static (a number).

    Args:
        T: the number of rows of the input (tokens), 1 or more.
        N: the number of output features, 1 or more; it need not be a multiple of the vector width.
        K: the number of input features, 1 or more.
        bias: whether ``bias[N]`` is added.
        dtype: ``float32``, ``float16`` or ``bfloat16`` for all operands and the output: products are summed
            and the epilogue is applied in float32, and the output is rounded once, at the end. Or ``int8``
            for ``x`` and ``w``, without zero points: products are summed exactly, in int32, and multiplied
            by ``scale[N]`` in float32, before a float32 bias.
        activation: ``none``, ``relu``, ``gelu_tanh`` or ``gelu_erf``; see :class:`Epilogue`.
        residual: whether ``residual[T, N]`` is added last; ``"before"``: before the activation.
        constant: whether ``w`` and ``bias`` never change, so that they are packed once; otherwise each call
            brings them, and ``w`` is transposed on the fly, panel by panel.
        out_dtype: the type of the output if operands are int8: ``float32`` (None) or ``int8``, rounded to
            nearest, ties to even, and clipped to -128..127. For an int8 output, ``scale``, bias and residual
            must already be divided by the output's scale. With other operands, the output has the operands'
            type.

    Raises:
        WorkloadError: if an extent is below 1 or no int, an operand of the smallest shape has more than
            2**31 - 1 elements, the activation or dtype is unknown, sums of int8 products could exceed int32
            (K above 131071), or an int8 output is requested with other operands, or with a GELU, which would
            need the output's scale.
    """

    T: Dim | int
    N: Dim | int
    K: Dim | int
    bias: bool = False
    dtype: str = USUAL
    activation: Activation = "none"
    residual: Residual = False
    constant: bool = True
    out_dtype: str | None = None

    DIMENSIONS = ("T", "N", "K")
    operator = "dense"

    def __post_init__(self) -> None:
        require_extents(self, self.DIMENSIONS)
        self._require_types()
        self._require_sums(self.K)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Rows, columns and depth, each with its extent and role."""
        return (Axis("T", self.T, "rows"), Axis("N", self.N, "cols"), Axis("K", self.K, "depth"))

    @property
    def weights(self) -> Weights:
        """The layout of the weights: ``packed`` if they are constant, else ``transposed``."""
        return "packed" if self.constant else "transposed"

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of the operands, in the order of a call, and of ``out``; dynamic extents by name."""
        rows, cols, depth = named(self, self.DIMENSIONS)
        shapes: dict[str, tuple[Size, ...]] = {"x": (rows, depth), "w": (cols, depth)}
        if require_dtype(self.dtype).scaled:
            shapes["scale"] = (cols,)
        if self.bias:
            shapes["bias"] = (cols,)
        if self.residual:
            shapes["residual"] = (rows, cols)
        return {**shapes, "out": (rows, cols)}

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the result in float64; an int8 output is clipped to its range, but not rounded."""
        # Sums of int8 products are exact in float64, too.
        product = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64, copy=False).T
        return self._finished(product, inputs)

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as a JSON value, options included."""
        return {
            "operator": self.operator,
            **self._sizes_to_json(),
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            "constant": self.constant,
            **self._types_to_json(),
        }

    def __str__(self) -> str:
        extras = (precision_of(self).shown(self.out_dtype), str(self.epilogue))
        weights = "" if self.constant else "variable weights"
        return " ".join(filter(None, (f"dense T={self.T} N={self.N} K={self.K}", *extras, weights)))

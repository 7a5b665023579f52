"""The dense layer: ``y[T, N] = activation(x[T, K] @ w[N, K].T + bias[N]) + residual[T, N]``. If operands are
int8, the product is multiplied by ``scale[N]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.problem.contraction import Axis, Inputs, Weights, dtypes_of, precision_of
from dietlab.problem.dimensions import dim_from_json, dim_to_json, dynamic, named, require_extents
from dietlab.problem.dims import Dim, Shape, Size, bound
from dietlab.problem.epilogue import Activation, Epilogue, Residual
from dietlab.problem.precision import USUAL, FloatArray, require_dtype
from dietlab.problem.scales import require_output, require_sums, scales_for

DIMENSIONS = ("T", "N", "K")


@dataclass(frozen=True)
class Dense:
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

    operator = "dense"

    def __post_init__(self) -> None:
        require_extents(self, DIMENSIONS)
        _ = self.epilogue
        precision = require_dtype(self.dtype)
        require_output(precision, self.out_dtype, self.activation)
        if self.out_dtype == precision.type_of("out"):
            object.__setattr__(self, "out_dtype", None)  # one operator has one value
        require_sums(precision, self.K)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Rows, columns and depth, each with its extent and role."""
        return (Axis("T", self.T, "rows"), Axis("N", self.N, "cols"), Axis("K", self.K, "depth"))

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The dynamic dimensions only."""
        return dynamic(self, DIMENSIONS)

    @property
    def weights(self) -> Weights:
        """The layout of the weights: ``packed`` if they are constant, else ``transposed``."""
        return "packed" if self.constant else "transposed"

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are packed once: weights, scales and bias; none if each call brings the weights."""
        with_weights = ("scale", "bias")
        known = self.signature if self.constant else ()
        return tuple(name for name in known if name == "w" or name in with_weights)

    @property
    def epilogue(self) -> Epilogue:
        """Bias, activation and residual."""
        return Epilogue(self.bias, self.activation, self.residual)

    def flops(self, shape: Shape) -> int:
        """Returns ``2 T N K``; the epilogue is not counted."""
        rows, cols, depth = (axis.at(shape) for axis in self.axes)
        return 2 * rows * cols * depth

    def bytes(self, shape: Shape) -> int:
        """Returns the bytes of all operands and the output, each once."""
        rows, cols, depth = (axis.at(shape) for axis in self.axes)
        elements = {
            "x": rows * depth,
            "w": cols * depth,
            "scale": cols,
            "bias": cols,
            "residual": rows * cols,
            "out": rows * cols,
        }
        return sum(require_dtype(dtype).itemsize * elements[name] for name, dtype in dtypes_of(self).items())

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of the operands, in the order of a call, and of ``out``; dynamic extents by name."""
        rows, cols, depth = named(self, DIMENSIONS)
        shapes: dict[str, tuple[Size, ...]] = {"x": (rows, depth), "w": (cols, depth)}
        if require_dtype(self.dtype).scaled:
            shapes["scale"] = (cols,)
        if self.bias:
            shapes["bias"] = (cols,)
        if self.residual:
            shapes["residual"] = (rows, cols)
        return {**shapes, "out": (rows, cols)}

    def output_shape(self, shape: Shape) -> tuple[int, ...]:
        """Returns the size of the output, ``[T, N]``."""
        rows, cols, _ = (axis.at(shape) for axis in self.axes)
        return (rows, cols)

    def inputs(self, shape: Shape, seed: int = 0) -> dict[str, FloatArray]:
        """Returns random operands: ``x [T, K]``, ``w [N, K]`` and, if used, ``scale [N]``, ``bias [N]`` and
        ``residual [T, N]``. They are standard normal float32 numbers, rounded to the dtype. Scales are
        positive, and chosen so that outputs are about as large as inputs.

        Weights do not depend on T; at the same N and K, ``x`` of a smaller T is the first rows of ``x`` of a
        larger T.
        """
        seeds = {"x": 0, "w": 1, "bias": 2, "residual": 3, "scale": 4}
        drawn = {
            name: precision_of(self, name).standard_normal((seed, seeds[name]), bound(size, shape))
            for name, size in self.signature.items()
            if name != "out"
        }
        if "scale" in drawn:
            drawn["scale"] = scales_for(
                drawn["scale"], drawn["x"].shape[-1], precision_of(self), precision_of(self, "out")
            )
        return drawn

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the result in float64; an int8 output is clipped to its range, but not rounded."""
        # Sums of int8 products are exact in float64, too.
        product = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64, copy=False).T
        if "scale" in inputs:
            product *= inputs["scale"].astype(np.float64)
        right = self.epilogue.reference(product, inputs.get("bias"), inputs.get("residual"))
        return precision_of(self, "out").clipped(right)

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as a JSON value, options included."""
        return {
            "operator": self.operator,
            **{name: dim_to_json(getattr(self, name)) for name in DIMENSIONS},
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            "constant": self.constant,
            "dtype": self.dtype,
            **({"out_dtype": dtypes_of(self)["out"]} if precision_of(self).scaled else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dense:
        """Returns the operator of a JSON object made by :meth:`to_json`."""
        return cls(
            T=dim_from_json(value["T"]),
            N=dim_from_json(value["N"]),
            K=dim_from_json(value["K"]),
            bias=bool(value.get("bias", False)),
            dtype=str(value.get("dtype", USUAL)),
            activation=value.get("activation", "none"),
            residual=value.get("residual", False),
            constant=bool(value.get("constant", True)),
            out_dtype=value.get("out_dtype"),
        )

    def __str__(self) -> str:
        extras = (precision_of(self).shown(self.out_dtype), str(self.epilogue))
        weights = "" if self.constant else "variable weights"
        return " ".join(filter(None, (f"dense T={self.T} N={self.N} K={self.K}", *extras, weights)))

"""The dense layer: ``y[T, N] = activation(x[T, K] @ w[N, K].T + bias[N]) + residual[T, N]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.errors import WorkloadError
from dietlab.shapes import Dim, Shape
from dietlab.workloads.contraction import Axis, Inputs, Weights
from dietlab.workloads.epilogue import Activation, Epilogue
from dietlab.workloads.precision import FloatArray, require_dtype


@dataclass(frozen=True)
class Dense:
    """A dense layer whose row count ``T`` is dynamic.

    Args:
        T: rows of the input (tokens); a range, or a number for a static layer.
        N: output features, 1 or more; need not be a multiple of the vector width.
        K: input features, 1 or more.
        bias: whether ``bias[N]`` is added.
        dtype: of all operands and the output: ``float32``, ``float16`` or ``bfloat16``. Products are summed
            and the epilogue is applied in float32; the output is rounded once, at the end.
        activation: ``none``, ``relu``, ``gelu_tanh`` or ``gelu_erf``; see :class:`Epilogue`.
        residual: whether ``residual[T, N]`` is added last.
        constant: whether ``w`` and ``bias`` never change, so that they are packed once; otherwise
            they come with every call and are transposed on the fly, panel by panel.

    Raises:
        WorkloadError: if an extent is below 1, ``N`` or ``K`` has a range, or there is no such
            activation or dtype.
    """

    T: Dim | int
    N: int
    K: int
    bias: bool = False
    dtype: str = "float32"
    activation: Activation = "none"
    residual: bool = False
    constant: bool = True

    operator = "dense"

    def __post_init__(self) -> None:
        require_extents(self, "T", ("N", "K"))
        _ = self.epilogue
        require_dtype(self.dtype)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return (Axis("T", self.T, "rows"), Axis("N", self.N, "cols"), Axis("K", self.K, "depth"))

    @property
    def dims(self) -> Mapping[str, Dim]:
        return {"T": self.T} if isinstance(self.T, Dim) else {}

    @property
    def weights(self) -> Weights:
        return "packed" if self.constant else "transposed"

    @property
    def constants(self) -> tuple[str, ...]:
        return (("w", "bias") if self.bias else ("w",)) if self.constant else ()

    @property
    def epilogue(self) -> Epilogue:
        return Epilogue(self.bias, self.activation, self.residual)

    def flops(self, shape: Shape) -> int:
        """Returns ``2 T N K``; the epilogue is not counted."""
        return 2 * self.axes[0].at(shape) * self.N * self.K

    def bytes(self, shape: Shape) -> int:
        rows = self.axes[0].at(shape)
        outputs = rows * self.N * (2 if self.residual else 1)
        values = rows * self.K + self.N * self.K + outputs + self.N * self.bias
        return require_dtype(self.dtype).itemsize * values

    @property
    def signature(self) -> Mapping[str, tuple[int | str, ...]]:
        rows = "T" if isinstance(self.T, Dim) else self.T
        shapes: dict[str, tuple[int | str, ...]] = {"x": (rows, self.K), "w": (self.N, self.K)}
        if self.bias:
            shapes["bias"] = (self.N,)
        if self.residual:
            shapes["residual"] = (rows, self.N)
        return {**shapes, "out": (rows, self.N)}

    def output_shape(self, shape: Shape) -> tuple[int, ...]:
        return (self.axes[0].at(shape), self.N)

    def inputs(self, shape: Shape, seed: int = 0) -> dict[str, FloatArray]:
        """Returns ``x [T, K]``, ``w [N, K]`` and, if there are any, ``bias [N]`` and ``residual [T, N]``:
        standard normal, float32 numbers rounded to the dtype.

        Weights do not depend on the shape, and ``x`` of a smaller T is the first rows of a larger.
        """
        rows = self.axes[0].at(shape)
        precision, seeds = require_dtype(self.dtype), {"x": 0, "w": 1, "bias": 2, "residual": 3}
        sizes = {name: size for name, size in self.signature.items() if name != "out"}
        return {
            name: precision.standard_normal(
                (seed, seeds[name]), tuple(rows if extent == "T" else int(extent) for extent in size)
            )
            for name, size in sizes.items()
        }

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        product = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64, copy=False).T
        return self.epilogue.reference(product, inputs.get("bias"), inputs.get("residual"))

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "T": dim_to_json(self.T),
            "N": self.N,
            "K": self.K,
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            "constant": self.constant,
            "dtype": self.dtype,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dense:
        return cls(
            T=dim_from_json(value["T"]),
            N=int(value["N"]),
            K=int(value["K"]),
            bias=bool(value.get("bias", False)),
            dtype=str(value.get("dtype", "float32")),
            activation=value.get("activation", "none"),
            residual=bool(value.get("residual", False)),
            constant=bool(value.get("constant", True)),
        )

    def __str__(self) -> str:
        extras = [] if self.dtype == "float32" else [self.dtype]
        extras += [str(self.epilogue)] if str(self.epilogue) else []
        extras += [] if self.constant else ["variable weights"]
        return " ".join([f"dense T={self.T} N={self.N} K={self.K}", *extras])


def require_extents(workload: Any, dynamic: str, fixed: tuple[str, ...]) -> None:
    """Checks the dimensions of an operator, of which only ``dynamic`` may have a range.

    Raises:
        WorkloadError: if an extent is below 1 or no integer, or a fixed one has a range.
    """
    for name in (dynamic, *fixed):
        extent = getattr(workload, name)
        if name == dynamic and isinstance(extent, Dim):
            continue
        if not isinstance(extent, int) or isinstance(extent, bool):
            low, high = extent if isinstance(extent, tuple | list) and len(extent) == 2 else (1, 128)
            raise WorkloadError(
                f"{dynamic} is an int or a Dim, and {' and '.join(fixed)} are ints",
                f"{name}={extent!r}",
                f"A range is written {dynamic}=Dim({low}, {high}); other dimensions have none.",
            )
        if extent < 1:
            raise WorkloadError("every dimension is at least 1", f"{name}={extent}")


def dim_to_json(dim: Dim | int) -> list[int] | int:
    return [dim.low, dim.high] if isinstance(dim, Dim) else dim


def dim_from_json(value: Any) -> Dim | int:
    return Dim(*value) if isinstance(value, (list, tuple)) else int(value)

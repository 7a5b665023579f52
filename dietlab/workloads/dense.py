"""The dense layer: ``y[T, N] = x[T, K] @ w[N, K].T (+ bias[N])`` with constant weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.errors import WorkloadError
from dietlab.shapes import Dim, Shape
from dietlab.workloads.contraction import Axis, FloatArray, Inputs


@dataclass(frozen=True)
class Dense:
    """A dense layer whose row count ``T`` is dynamic and whose weights are constant.

    Args:
        T: rows of the input (tokens); a range, or a number for a static layer.
        N: output features, 1 or more; need not be a multiple of the vector width.
        K: input features, 1 or more.
        bias: whether ``bias[N]`` is added.

    Raises:
        WorkloadError: if an extent is below 1, or ``N`` or ``K`` has a range.
    """

    T: Dim | int
    N: int
    K: int
    bias: bool = False
    dtype: str = "float32"

    operator = "dense"

    def __post_init__(self) -> None:
        for name in ("N", "K"):
            if not isinstance(getattr(self, name), int):
                raise WorkloadError(
                    "N and K of a dense layer are fixed, since the weights are constant",
                    f"{name}={getattr(self, name)}",
                    "Give the range to T, as in Dense(T=Dim(1, 128), N=2304, K=768).",
                )
        for name in ("T", "N", "K"):
            extent = getattr(self, name)
            if isinstance(extent, int) and extent < 1:
                raise WorkloadError("every dimension is at least 1", f"{name}={extent}")
        if self.dtype != "float32":
            raise WorkloadError("the CPU back end computes in float32", self.dtype, "Use dtype='float32'.")

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (Axis("T", self.T, "rows"), Axis("N", self.N, "cols"), Axis("K", self.K, "depth"))

    @property
    def dims(self) -> Mapping[str, Dim]:
        return {"T": self.T} if isinstance(self.T, Dim) else {}

    @property
    def has_bias(self) -> bool:
        return self.bias

    def flops(self, shape: Shape) -> int:
        """``2 T N K``; the bias is the accumulators' first value and costs nothing."""
        return 2 * self.axes[0].at(shape) * self.N * self.K

    def bytes(self, shape: Shape) -> int:
        rows = self.axes[0].at(shape)
        return 4 * (rows * self.K + self.N * self.K + rows * self.N + self.N * self.bias)

    def inputs(self, shape: Shape, seed: int = 0) -> dict[str, FloatArray]:
        """``x [T, K]``, ``w [N, K]`` and, with a bias, ``bias [N]``: standard normal float32.

        Weights do not depend on the shape, and ``x`` of a smaller T is the first rows of a larger.
        """
        sizes: dict[str, tuple[int, ...]] = {
            "x": (self.axes[0].at(shape), self.K), "w": (self.N, self.K), "bias": (self.N,)
        }  # fmt: skip
        return {
            name: np.random.default_rng([seed, number]).standard_normal(size, np.float32)
            for number, (name, size) in enumerate(sizes.items())
            if name != "bias" or self.bias
        }

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        product = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64).T
        return product + inputs["bias"] if self.bias else product

    def to_json(self) -> dict[str, Any]:
        rows = [self.T.low, self.T.high] if isinstance(self.T, Dim) else self.T
        return {
            "operator": self.operator, "T": rows, "N": self.N, "K": self.K,
            "bias": self.bias, "dtype": self.dtype,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dense:
        rows = value["T"]
        return cls(
            T=Dim(*rows) if isinstance(rows, (list, tuple)) else int(rows),
            N=int(value["N"]), K=int(value["K"]), bias=bool(value.get("bias", False)),
            dtype=str(value.get("dtype", "float32")),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"dense T={self.T} N={self.N} K={self.K}{' +bias' if self.bias else ''}"

"""Batched matrix products as in attention, where both operands are activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import WorkloadError
from dietlab.problem.bases import Product
from dietlab.problem.contraction import Axis, Inputs, Weights, precision_of
from dietlab.problem.dimensions import named, require_extents
from dietlab.problem.dims import Dim, Size
from dietlab.problem.epilogue import NO_EPILOGUE, Epilogue
from dietlab.problem.precision import FLOATS, USUAL, require_dtype

Form = Literal["nt", "nn"]


@dataclass(frozen=True)
class BatchMatmul(Product):
    """``B`` independent products (batch x heads) over sequences of length ``T``; each dimension is dynamic (a
    range) or static (a number).

    ========  ==================================  ======  ======  =======
    ``form``  computes, for each ``b``            rows    cols    depth
    ========  ==================================  ======  ======  =======
    ``nt``    ``y[T, T] = x[T, D] @ w[T, D].T``   T       T       D
    ``nn``    ``y[T, D] = x[T, T] @ w[T, D]``     T       D       T
    ========  ==================================  ======  ======  =======

    ``nt`` computes attention's scores (queries times keys), ``nn`` its context (scores times values), where
    the *reduction* axis is dynamic (paper, section 5: 192 x T x 64 x T and 192 x T x T x 64).

    Args:
        T: the sequence length, 1 or more.
        B: the number of products in one call, 1 or more.
        D: the size of a head, 1 or more.
        dtype: the type of both operands and the output: ``float32``, ``float16`` or ``bfloat16``; sums are
            float32.

    Raises:
        WorkloadError: if an extent is below 1 or no int, an operand of the smallest shape has more than
            2**31 - 1 elements, or the form or dtype is unknown.
    """

    T: Dim | int
    B: Dim | int
    D: Dim | int
    form: Form = "nt"
    dtype: str = USUAL

    DIMENSIONS = ("T", "B", "D")

    def __post_init__(self) -> None:
        if self.form not in ("nt", "nn"):
            raise WorkloadError("the form must be nt or nn", repr(self.form))
        require_extents(self, self.DIMENSIONS)
        require_dtype(self.dtype, FLOATS)

    @property
    def operator(self) -> str:
        """Its name on the command line: ``batch-matmul-nt`` or ``batch-matmul-nn``."""
        return f"batch-matmul-{self.form}"

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Products, rows, columns and depth, each with its extent and role."""
        cols, depth = (("T", self.T), ("D", self.D)) if self.form == "nt" else (("D", self.D), ("T", self.T))
        return (
            Axis("B", self.B, "batch"),
            Axis("T", self.T, "rows"),
            Axis(*cols, "cols"),
            Axis(*depth, "depth"),
        )

    @property
    def weights(self) -> Weights:
        """The layout of the second operand: ``transposed`` for nt, ``direct`` for nn."""
        return "transposed" if self.form == "nt" else "direct"

    @property
    def out_dtype(self) -> None:
        """Always None: the output has the operands' type."""
        return None

    @property
    def epilogue(self) -> Epilogue:
        """Nothing follows the products."""
        return NO_EPILOGUE

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of ``x``, ``w`` and ``out``; dynamic extents by name."""
        length, products, size = named(self, self.DIMENSIONS)
        depth, cols = (size, length) if self.form == "nt" else (length, size)
        return {
            "x": (products, length, depth),
            "w": (products, length, size),
            "out": (products, length, cols),
        }

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the products of ``x`` and ``w`` in float64."""
        x, w = inputs["x"].astype(np.float64), inputs["w"].astype(np.float64)
        product: npt.NDArray[np.float64] = x @ (w.transpose(0, 2, 1) if self.form == "nt" else w)
        return product

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as a JSON value."""
        return {"operator": self.operator, **self._sizes_to_json(), "dtype": self.dtype}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BatchMatmul:
        """Returns the operator of a JSON object made by :meth:`to_json`."""
        return super().from_json({**value, "form": "nt" if value["operator"].endswith("nt") else "nn"})

    def __str__(self) -> str:
        return f"{self.operator} T={self.T} B={self.B} D={self.D} {precision_of(self).shown()}".rstrip()

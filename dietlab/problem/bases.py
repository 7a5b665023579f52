"""Bases of dietlab's operators: all that follows from their dimensions, axes and signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from dietlab.problem.contraction import Inputs, Workload, dtypes_of, precision_of
from dietlab.problem.dimensions import dim_from_json, dim_to_json, dynamic
from dietlab.problem.dims import Dim, Shape, bound
from dietlab.problem.epilogue import Activation, Epilogue, Residual
from dietlab.problem.precision import FloatArray, require_dtype
from dietlab.problem.scales import require_output, require_sums, scales_for

if TYPE_CHECKING:
    from typing import Self

SEEDS = {"x": 0, "w": 1, "bias": 2, "residual": 3, "scale": 4}
"""The part of each operand's seed that makes it differ from the others."""


class Product:
    """A contraction. A subclass is a frozen dataclass with a field for each of :attr:`DIMENSIONS`, which is
    a number or a range, and has the ``axes``, ``weights`` and ``signature`` of a :class:`Workload`."""

    DIMENSIONS: ClassVar[tuple[str, ...]] = ()

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The dynamic dimensions only."""
        return dynamic(self, self.DIMENSIONS)

    @property
    def constants(self: Workload) -> tuple[str, ...]:
        """Operands that are packed once: weights, scales and bias; none if each call brings the weights."""
        known = self.signature if self.weights == "packed" else ()
        return tuple(name for name in known if name in ("w", "scale", "bias"))

    def flops(self: Workload, shape: Shape) -> int:
        """Returns twice the product of all axes' extents. Products with zeros beyond an image count, the
        epilogue does not."""
        return 2 * prod(axis.at(shape) for axis in self.axes)

    def bytes(self: Workload, shape: Shape) -> int:
        """Returns the bytes of all operands and the output, each once."""
        types = dtypes_of(self)
        return sum(
            require_dtype(types[name]).itemsize * prod(bound(size, shape))
            for name, size in self.signature.items()
        )

    def output_shape(self: Workload, shape: Shape) -> tuple[int, ...]:
        """Returns the size of the output."""
        return bound(self.signature["out"], shape)

    def inputs(self: Workload, shape: Shape, seed: int = 0) -> dict[str, FloatArray]:
        """Returns random operands by name: standard normal float32 numbers, rounded to the operand's type.
        Scales are positive, and chosen so that outputs are about as large as inputs.

        An operand depends on its own size only: at the same N and K, ``x [T, K]`` of a smaller T is the first
        rows of ``x`` of a larger T, and weights are the same.
        """
        drawn = {
            name: precision_of(self, name).standard_normal((seed, SEEDS[name]), bound(size, shape))
            for name, size in self.signature.items()
            if name != "out"
        }
        if "scale" in drawn:
            terms = prod(drawn["w"].shape[1:])
            drawn["scale"] = scales_for(drawn["scale"], terms, precision_of(self), precision_of(self, "out"))
        return drawn

    def _sizes_to_json(self) -> dict[str, Any]:
        return {name: dim_to_json(getattr(self, name)) for name in self.DIMENSIONS}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Returns the operator of a JSON object made by its ``to_json``."""
        sizes = {name: dim_from_json(value[name]) for name in cls.DIMENSIONS}
        names = [field.name for field in fields(cast(Any, cls)) if field.name not in sizes]
        return cls(**sizes, **{name: value[name] for name in names if name in value})


class Layer(Product):
    """A product with weights and an epilogue, as the layers of models have."""

    bias: bool
    activation: Activation
    residual: Residual
    dtype: str
    out_dtype: str | None

    @property
    def epilogue(self) -> Epilogue:
        """Bias, activation and residual."""
        return Epilogue(self.bias, self.activation, self.residual)

    def _require_types(self) -> None:
        """Checks the epilogue and the types, and writes the default type of the output as None, so that one
        operator has one value."""
        _, precision = self.epilogue, require_dtype(self.dtype)
        require_output(precision, self.out_dtype, self.activation)
        if self.out_dtype == precision.type_of("out"):
            object.__setattr__(self, "out_dtype", None)

    def _require_sums(self, depth: Dim | int) -> None:
        require_sums(require_dtype(self.dtype), depth)

    def _finished(self, sums: npt.NDArray[np.float64], inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the result of sums in float64: scaled, with the epilogue; an int8 output is clipped to its
        range, but not rounded."""
        if "scale" in inputs:
            sums = sums * inputs["scale"].astype(np.float64)
        right = self.epilogue.reference(sums, inputs.get("bias"), inputs.get("residual"))
        return precision_of(cast(Any, self), "out").clipped(right)

    def _types_to_json(self) -> dict[str, Any]:
        """Returns the type of the operands and, if their sums are scaled, of the output."""
        work = cast(Any, self)
        scaled = {"out_dtype": dtypes_of(work)["out"]} if precision_of(work).scaled else {}
        return {"dtype": self.dtype, **scaled}

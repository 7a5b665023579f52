"""Number formats of operands and outputs. A new type needs an entry here, and code that multiplies it on a
processor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import MissingDependencyError, WorkloadError

FloatArray = npt.NDArray[Any]
"""An array in a workload's dtype. It is typed as Any: NumPy has no bfloat16, and the bfloat16 of
``ml_dtypes`` is no ``np.floating``."""


@dataclass(frozen=True)
class Precision:
    """A binary number format, floating-point (IEEE 754; bfloat16 is the upper half of a float32) or integer,
    and the properties of operands in it.

    Args:
        name: the format's name in a workload's ``dtype``, the same as in NumPy, PyTorch and TVM.
        itemsize: the size of one value, in bytes.
        digits: the number of significant bits, with the hidden bit of a float and without the sign.
        smallest: the smallest positive value: a subnormal float, or 1 for integers.
        sums: the type in which its products are summed.
        outputs: the output types of scaled sums, the default first. Empty: sums need no scale, and the output
            has the operands' type.
        ends: the smallest and the largest integer; None for floats.
        deviation: the standard deviation of random operands.
        guard: a value placed next to an output in memory, to detect a write beyond its end. Float results of
            random operands do not come near it; an int8 result may equal it, in 1 of 256 cases.
        dlpack: DLPack's code of a type that NumPy has only through the package ml_dtypes; None for NumPy's
            own types.
    """

    name: str
    itemsize: int
    digits: int
    smallest: float
    sums: str = "float32"
    outputs: tuple[str, ...] = ()
    ends: tuple[int, int] | None = None
    deviation: float = 1.0
    guard: float = -54321.0
    dlpack: int | None = None

    @property
    def epsilon(self) -> float:
        """Machine epsilon, the distance from 1 to the next larger value. The relative error of rounding to
        nearest is at most half of it."""
        return 2.0 ** (1 - self.digits)

    @property
    def scaled(self) -> bool:
        """True if sums are multiplied by a scale for each column."""
        return bool(self.outputs)

    @property
    def whole(self) -> bool:
        """True if values are integers: their sums are exact."""
        return self.ends is not None

    @property
    def narrow(self) -> bool:
        """True if a value has fewer than 32 bits."""
        return self.itemsize < WORKING.itemsize

    @property
    def extension(self) -> bool:
        """True if NumPy and C lack the type: CPU programs take its values as bit patterns."""
        return self.dlpack is not None

    @property
    def longest(self) -> int | None:
        """The largest number of products, of any values, whose sum fits the integer type :attr:`sums`; None
        for floats."""
        return None if self.ends is None else int(np.iinfo(self.sums).max) // max(map(abs, self.ends)) ** 2

    @property
    def numpy(self) -> np.dtype[Any]:
        """The format as NumPy's dtype.

        Raises:
            MissingDependencyError: if it is not NumPy's own and the package ml_dtypes is not installed.
        """
        if not self.extension:
            return np.dtype(self.name)
        try:
            import ml_dtypes
        except ImportError as error:
            raise MissingDependencyError(
                f"{self.name} arrays need the package ml_dtypes", error, "pip install ml_dtypes"
            ) from None
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
        return dtype

    def type_of(self, operand: str, out_dtype: str | None = None) -> str:
        """Returns the type of an operand, or of ``out``. ``x`` and ``w`` have this type. The other operands
        have it too or, if sums are scaled, the working precision.

        Args:
            operand: the operand's name, as in a workload's signature.
            out_dtype: the output's type, if sums are scaled (None: the default).
        """
        if operand in ("x", "w") or not self.scaled:
            return self.name
        return out_dtype or self.outputs[0] if operand == "out" else WORKING.name

    def shown(self, out_dtype: str | None = None) -> str:
        """Returns the type for texts, with the output's type if sums are scaled: ``int8 to float32``. Empty
        for float32."""
        if self.name == USUAL:
            return ""
        return f"{self.name} to {self.type_of('out', out_dtype)}" if self.scaled else self.name

    def clipped(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns values clipped to an integer type's range; a float type leaves them unchanged."""
        return values if self.ends is None else np.clip(values, *self.ends)

    def rounded(self, values: npt.NDArray[np.float32]) -> FloatArray:
        """Returns ``values`` rounded to this type, to nearest, ties to even; integers are clipped to their
        range. For float32, returns ``values`` itself."""
        nearest = values if self.ends is None else self.clipped(np.rint(values))
        return nearest.astype(self.numpy, copy=False)

    def rounding(self, most: float) -> float:
        """Returns the largest error of rounding a float32 value to this type.

        Args:
            most: the largest magnitude of a value.
        """
        if self == WORKING:
            return 0.0
        return (self.smallest if self.whole else most * self.epsilon + self.smallest) / 2

    def standard_normal(self, seed: tuple[int, ...], size: tuple[int, ...]) -> FloatArray:
        """Draws normal float32 numbers with standard deviation :attr:`deviation`, and rounds them to this
        type. Equal seeds and sizes give equal numbers, in a new array."""
        return self.rounded(_drawn(seed, size) * np.float32(self.deviation))


@lru_cache(maxsize=8)
def _drawn(seed: tuple[int, ...], size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Draws standard normal numbers. They are cached, since all shapes have the same weights and drawing
    takes ten times as long as copying."""
    return np.random.default_rng(seed).standard_normal(size, np.float32)


USUAL = "float32"
"""The default type of operands."""

WORKING = Precision("float32", 4, 24, 2.0**-149)
"""The working precision: scales, epilogues and sums of floats are computed in it."""

_INT8_DEVIATION = 23.0
"""Standard deviation of random int8 operands, in steps: 127 steps are 5.5 deviations of the quantised tensor.
With larger values, libraries that add two products in 16 bits (``vpmaddubsw``) overflow."""

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        WORKING,
        Precision("float16", 2, 11, 2.0**-24),
        Precision("bfloat16", 2, 8, 2.0**-133, dlpack=4),
        Precision("int8", 1, 7, 1.0, "int32", ("float32", "int8"), (-128, 127), _INT8_DEVIATION, 85),
    )
}
"""All types, by name."""


FLOATS = tuple(name for name, precision in PRECISIONS.items() if not precision.scaled)
"""Names of the types whose sums need no scale."""


def require_dtype(dtype: object, known: Collection[str] = PRECISIONS) -> Precision:
    """Returns the format with a name.

    Args:
        dtype: a name, such as ``"bfloat16"``.
        known: the names that are allowed.

    Raises:
        WorkloadError: if it is not in ``known``.
    """
    if not isinstance(dtype, str) or dtype not in known:
        raise WorkloadError(f"a dtype is one of {', '.join(known)}", repr(dtype))
    return PRECISIONS[dtype]

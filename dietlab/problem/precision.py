"""Number formats of operands and outputs. Sums are taken in float32, those of int8 in int32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import MissingDependencyError, WorkloadError

FloatArray = npt.NDArray[Any]
"""An array in a workload's dtype. It is typed as Any, since NumPy has no bfloat16 and that of ``ml_dtypes``
is no ``np.floating``."""


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format (IEEE 754; bfloat16 is the upper half of a float32), or int8.

    Args:
        name: as in a workload's ``dtype``.
        itemsize: bytes of one value.
        digits: significant bits, with the hidden one.
        smallest: the smallest positive (subnormal) value.
    """

    name: str
    itemsize: int
    digits: int
    smallest: float

    @property
    def epsilon(self) -> float:
        """Machine epsilon, the distance from 1 to the next larger value. The relative error of rounding to
        nearest is at most half of it."""
        return 2.0 ** (1 - self.digits)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The format as NumPy's dtype.

        Raises:
            MissingDependencyError: if it is bfloat16 and the package ml_dtypes is not installed.
        """
        if self.name != "bfloat16":
            return np.dtype(self.name)
        try:
            from ml_dtypes import bfloat16
        except ImportError as error:
            raise MissingDependencyError(
                "bfloat16 arrays need the package ml_dtypes", error, "pip install ml_dtypes"
            ) from None
        dtype: np.dtype[Any] = np.dtype(bfloat16)
        return dtype

    def rounded(self, values: npt.NDArray[np.float32]) -> FloatArray:
        """Returns ``values`` rounded to nearest, ties to even; for float32 the same array, not a copy."""
        return values.astype(self.numpy, copy=False)

    def standard_normal(self, seed: tuple[int, ...], size: tuple[int, ...]) -> FloatArray:
        """Returns a new array of standard normal float32 numbers, rounded to the type; int8 has the standard
        deviation :data:`INT8_DEVIATION`. Equal seeds and sizes give equal arrays."""
        if self.name == "int8":
            levels = np.rint(_drawn(seed, size) * np.float32(INT8_DEVIATION))
            whole: FloatArray = np.clip(levels, *INT8_RANGE).astype(np.int8)
            return whole
        return self.rounded(_drawn(seed, size).copy())


@lru_cache(maxsize=8)
def _drawn(seed: tuple[int, ...], size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Draws standard normal numbers. They are cached, since all shapes have the same weights and drawing
    takes ten times as long as copying."""
    return np.random.default_rng(seed).standard_normal(size, np.float32)


INT8_RANGE = (-128, 127)
"""Least and greatest int8."""

INT8_DEVIATION = 23.0
"""Standard deviation of random int8 operands: 127 is 5.5 deviations, as in quantised tensors. With more,
libraries that add two products in 16 bits (``vpmaddubsw``) overflow."""

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("float32", 4, 24, 2.0**-149),
        Precision("float16", 2, 11, 2.0**-24),
        Precision("bfloat16", 2, 8, 2.0**-133),
        Precision("int8", 1, 7, 1.0),
    )
}


FLOATS = tuple(name for name in PRECISIONS if name != "int8")
"""Names of the floating-point formats."""


def require_dtype(dtype: object, known: Collection[str] = PRECISIONS) -> Precision:
    """Returns the format of this name.

    Args:
        dtype: a name, such as ``"bfloat16"``.
        known: the names that are allowed.

    Raises:
        WorkloadError: if it is not in ``known``.
    """
    if not isinstance(dtype, str) or dtype not in known:
        raise WorkloadError(f"a dtype is one of {', '.join(known)}", repr(dtype))
    return PRECISIONS[dtype]

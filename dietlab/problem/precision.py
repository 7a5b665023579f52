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
"""An array in a workload's dtype. NumPy itself has no bfloat16 (``ml_dtypes`` adds one that is no
``np.floating``), so that its type hints have no narrower name for the three formats."""


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format (IEEE 754; bfloat16 is the upper half of a float32), or int8.

    Args:
        name: as in a workload's ``dtype``.
        itemsize: bytes of one value.
        digits: significant bits, the hidden one included.
        smallest: the smallest positive value, which is subnormal.
    """

    name: str
    itemsize: int
    digits: int
    smallest: float

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger value (machine epsilon); rounding to nearest is off by
        at most half of it, relative to the result."""
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
        """Returns ``values`` rounded to nearest, ties to even; float32 values themselves, not a copy."""
        return values.astype(self.numpy, copy=False)

    def standard_normal(self, seed: tuple[int, ...], size: tuple[int, ...]) -> FloatArray:
        """Draws float32 numbers and rounds them to the type: a fresh array, equal for equal seed and
        size. Integers are :data:`INT8_DEVIATION` times as large."""
        if self.name == "int8":
            levels = np.rint(_drawn(seed, size) * np.float32(INT8_DEVIATION))
            whole: FloatArray = np.clip(levels, *INT8_RANGE).astype(np.int8)
            return whole
        return self.rounded(_drawn(seed, size).copy())


@lru_cache(maxsize=8)
def _drawn(seed: tuple[int, ...], size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Draws standard normal numbers. Weights are equal for every shape, and drawing them takes ten times
    as long as copying: they are cached."""
    return np.random.default_rng(seed).standard_normal(size, np.float32)


INT8_RANGE = (-128, 127)

INT8_DEVIATION = 23.0
"""The standard deviation of int8 operands, in steps: that of a tensor whose range of five and a half
deviations is quantised. Libraries that add two products in 16 bits (``vpmaddubsw``) overflow with larger
ones."""

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


def require_dtype(dtype: object, known: Collection[str] = PRECISIONS) -> Precision:
    """Returns the format of this name.

    Args:
        dtype: a name, such as ``"bfloat16"``.
        known: the names that are allowed.

    Raises:
        WorkloadError: if it is not among those ``known``.
    """
    if not isinstance(dtype, str) or dtype not in known:
        raise WorkloadError(f"a dtype is one of {', '.join(known)}", repr(dtype))
    return PRECISIONS[dtype]

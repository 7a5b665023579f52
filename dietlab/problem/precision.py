"""Number formats of operands and outputs: all that follows from a type, so that another one is an entry here
and what multiplies it on a processor."""

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
    """A binary number format, and what follows from it for operands of that type: a floating-point format
    (IEEE 754; bfloat16 is the upper half of a float32), or whole numbers.

    Args:
        name: as in a workload's ``dtype``; NumPy, PyTorch and TVM call it the same.
        itemsize: bytes of one value.
        digits: significant bits, the hidden one of a float included, the sign's not.
        smallest: the smallest positive value, which is subnormal; of whole numbers their step.
        sums: the type in which its products are summed.
        outputs: the types that an output of scaled sums may have, the usual one first; empty where sums need
            no scale, and an output has the operands' type.
        ends: the least and the largest of whole numbers; None for floats.
        deviation: the standard deviation of random operands.
        guard: what stands beside an output in memory, so that a write beyond its end shows: no result of
            random operands comes near it; of whole numbers one in 256 bytes may be the same.
        dlpack: DLPack's code of a type that NumPy has from the package ml_dtypes only; None for its own.
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
        """True if sums become outputs by a scale for each column."""
        return bool(self.outputs)

    @property
    def whole(self) -> bool:
        """True if values are whole numbers: their sums are exact."""
        return self.ends is not None

    @property
    def narrow(self) -> bool:
        """True if several values lie in a word of 32 bits."""
        return self.itemsize < WORKING.itemsize

    @property
    def extension(self) -> bool:
        """True if neither NumPy nor C has the type itself: programs of a host take its bits."""
        return self.dlpack is not None

    @property
    def longest(self) -> int | None:
        """The most products that a sum in whole numbers holds, whatever they are; None for floats."""
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
        """Returns the type of an operand, or of ``out``: that of ``x`` and ``w`` is its own; others come with
        scaled sums in the working precision.

        Args:
            operand: its name, as in a workload's signature.
            out_dtype: of the output of scaled sums (None: the usual one).
        """
        if operand in ("x", "w") or not self.scaled:
            return self.name
        return out_dtype or self.outputs[0] if operand == "out" else WORKING.name

    def shown(self, out_dtype: str | None = None) -> str:
        """Returns how texts call operands of this type: not at all if it is the usual one; with that of the
        output where it may differ."""
        if self.name == USUAL:
            return ""
        return f"{self.name} to {self.type_of('out', out_dtype)}" if self.scaled else self.name

    def clipped(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns whole numbers' values within their range; those of floats as they are."""
        return values if self.ends is None else np.clip(values, *self.ends)

    def rounded(self, values: npt.NDArray[np.float32]) -> FloatArray:
        """Returns ``values`` rounded to nearest, ties to even, whole numbers within their range; float32
        values themselves, not a copy."""
        nearest = values if self.ends is None else self.clipped(np.rint(values))
        return nearest.astype(self.numpy, copy=False)

    def rounding(self, most: float) -> float:
        """Returns how far at most a stored value is from the float32 one that was rounded to it.

        Args:
            most: the largest magnitude of a value.
        """
        if self == WORKING:
            return 0.0
        return (self.smallest if self.whole else most * self.epsilon + self.smallest) / 2

    def standard_normal(self, seed: tuple[int, ...], size: tuple[int, ...]) -> FloatArray:
        """Draws float32 numbers and rounds them to the type: a fresh array, equal for equal seed and
        size. They are :attr:`deviation` times as large."""
        return self.rounded(_drawn(seed, size) * np.float32(self.deviation))


@lru_cache(maxsize=8)
def _drawn(seed: tuple[int, ...], size: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Draws standard normal numbers. They are cached, since all shapes have the same weights and drawing
    takes ten times as long as copying."""
    return np.random.default_rng(seed).standard_normal(size, np.float32)


USUAL = "float32"
"""The type of operands where none is named."""

WORKING = Precision("float32", 4, 24, 2.0**-149)
"""The working precision: scales, epilogues and all but whole numbers' sums are computed in it."""

_INT8_DEVIATION = 23.0
"""In steps: that of a tensor whose range of five and a half deviations is quantised. Libraries that add two
products in 16 bits (``vpmaddubsw``) overflow with larger ones."""

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        WORKING,
        Precision("float16", 2, 11, 2.0**-24),
        Precision("bfloat16", 2, 8, 2.0**-133, dlpack=4),
        Precision("int8", 1, 7, 1.0, "int32", ("float32", "int8"), (-128, 127), _INT8_DEVIATION, 85),
    )
}
"""All types, by name: another one is an entry here."""


FLOATS = tuple(name for name, precision in PRECISIONS.items() if not precision.scaled)
"""Those whose sums are outputs as they are, without a scale."""


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

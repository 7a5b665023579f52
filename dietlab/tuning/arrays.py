"""Arrays that operators take and return, of NumPy or PyTorch, without a copy where possible."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dietlab.base.errors import DispatchError
from dietlab.lower.runtime import shareable

Array = Any
"""A NumPy array or a PyTorch tensor, C-contiguous, of the operator's type and on the operator's processor."""


def as_input(array: Array) -> Array:
    """Returns an operand in the form that a library takes, in the same memory. A library only reads operands.
    A read-only NumPy array in another order, such as an array of pandas, is copied, and so is a negative view
    of PyTorch (the imaginary part of a conjugate): DLPack passes its memory without the sign.

    Raises:
        DispatchError: if an entry is masked, since NumPy's own functions disagree on such a product
            (``matmul`` fails, ``ma.dot`` takes 0); or if PyTorch needs its gradient.
    """
    # Each call takes this line's time.
    if type(array) is np.ndarray and array.flags.writeable:
        return array
    if isinstance(array, np.ndarray):
        return shareable(_unmasked(array))
    if getattr(array, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise DispatchError(
            "no operand may require a gradient, which a library does not compute",
            "an operand that requires one",
            "Call it under torch.no_grad(); dietlab.torch has layers with gradients.",
        )
    return array.resolve_neg() if hasattr(array, "is_neg") and array.is_neg() else array


def as_output(array: Array) -> Array:
    """Returns an output in the form that a library takes, in the same memory, which must be writable."""
    if type(array) is not np.ndarray and isinstance(array, np.ndarray):
        array = _unmasked(array)
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise ValueError("out is read-only")
    if hasattr(array, "is_neg") and array.is_neg():
        raise ValueError("out is a negative view, whose sign a library does not see")
    return array


def _unmasked(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array of any class as one of NumPy's own."""
    if isinstance(array, np.ma.MaskedArray) and np.any(array.mask):
        raise DispatchError(
            "no entry of an array may be masked",
            f"{np.sum(array.mask)} of {array.size} masked",
            "x.filled(0) puts a number in their place.",
        )
    return array.view(np.ndarray)


def is_empty(array: Array) -> bool:
    """Returns whether an array has an extent of 0."""
    return 0 in getattr(array, "shape", ())


def empty_like(x: Array, shape: Sequence[int], dtype: str | None = None) -> Array:
    """Returns a new array of the library that ``x`` belongs to. If ``dtype`` is None, the array has the type
    of ``x``."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, dtype or x.dtype)
    return x.new_empty(shape, dtype=dtype and getattr(sys.modules["torch"], dtype))


def contiguous(array: Array) -> Array:
    """Returns contiguous weights, copied if necessary, since they are packed only once."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(shareable(_unmasked(array)))
    return as_input(array.detach()).contiguous() if hasattr(array, "detach") else array


def overlap(x: Array, out: Array) -> bool:
    """Returns whether two arrays may share memory."""
    if isinstance(x, np.ndarray) and isinstance(out, np.ndarray):
        return np.may_share_memory(x, out)
    first, second = _extent(x), _extent(out)
    return first[0] < second[1] and second[0] < first[1]


def _extent(array: Array) -> tuple[int, int]:
    """Returns two addresses: of the first byte of a contiguous array, and of the byte after its last."""
    start = int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())
    return start, start + int(array.nbytes)


def described(array: Array) -> str:
    """Returns a text for errors: type, shape and strides of an array, or the class of another object."""
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None:
        return type(array).__name__
    layout = f" strides {array.strides}" if isinstance(array, np.ndarray) else ""
    return f"{dtype} {list(shape)}{layout}"

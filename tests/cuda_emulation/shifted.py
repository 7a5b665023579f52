"""A tensor of the stub device that begins anywhere: as PyTorch's slices do, with no offset to tell of it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tvm_ffi

from .stand_in_torch import CUDA, DLManagedTensor


class Shifted:
    """The elements of ``whole``, a flat tensor of floats, from ``first`` on, in some shape."""

    def __init__(self, whole: Any, first: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._kept, itemsize = whole, dtype.itemsize
        code = 4 if dtype.name == "bfloat16" else 2  # DLPack's kDLBfloat and kDLFloat
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        form = (CUDA, 0, len(shape), code, 8 * itemsize, 1, ctypes.addressof(self._shape))
        start = int(whole.data_ptr()) + itemsize * first
        self._managed = DLManagedTensor(start, *form, None, 0, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self._managed), b"dltensor", None)

    def tensor(self) -> Any:
        return tvm_ffi.from_dlpack(self)

"""A tensor of the stub device that begins anywhere: as PyTorch's slices do, with no offset to tell of it."""

from __future__ import annotations

import ctypes
from typing import Any

import tvm_ffi

from .stand_in_torch import CUDA, DLManagedTensor


class Shifted:
    """The elements of ``whole``, a flat tensor of floats of ``itemsize`` bytes, from ``first`` on, in some
    shape."""

    def __init__(self, whole: Any, first: int, shape: tuple[int, ...], itemsize: int) -> None:
        self._kept = whole
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        form = (CUDA, 0, len(shape), 2, 8 * itemsize, 1, ctypes.addressof(self._shape))
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

"""As much of PyTorch as the bench of a GPU asks for, on the stub driver's device, whose memory is the host's.

For rehearsals on a Python that has no PyTorch: copied as ``torch.py``. It has no product, records no graphs
and knows no clock of a GPU; what needs one of them says so, as with a build of PyTorch that lacks it.
"""

from __future__ import annotations

import ctypes
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

__version__ = "0.0.0+standin"

CUDA = 2
"""``kDLCUDA`` (DLPack)."""
FLOAT, BFLOAT = 2, 4
"""``kDLFloat`` and ``kDLBfloat`` (DLPack)."""
ALIGNMENT_BYTES = 256
"""Where CUDA's allocator begins."""

dtype = np.dtype
float32 = np.dtype("float32")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ALSO_CALLED = {
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
}


def __getattr__(name: str) -> np.dtype[Any]:
    """PyTorch's names of types; as globals of this module some would hide Python's own."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return np.dtype("bool" if name == "bool" else ALSO_CALLED.get(name, name))
    except TypeError:
        raise AttributeError(f"what stands in for PyTorch has no {name}") from None


_LENT: list[Any] = []
"""What capsules point to, for the life of the process: they have no deleter."""


class DLManagedTensor(ctypes.Structure):
    """A ``DLTensor``, its owner and its deleter (DLPack)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Tensor:
    """An array that says that it lies on the GPU."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def to(self, device: str, copy: bool = False) -> Tensor:
        made = empty(self.shape, self.dtype)
        return made.copy_(self)

    def view(self, wanted: Any) -> Tensor:
        kind = isinstance(wanted, np.dtype)
        return Tensor(self._array.view(wanted) if kind else self._array.reshape(wanted))

    def copy_(self, other: Tensor) -> Tensor:
        self._array[...] = other._array
        return self

    def fill_(self, value: float) -> Tensor:
        self._array.fill(value)
        return self

    def new_full(self, shape: tuple[int, ...], value: float) -> Tensor:
        return empty(shape, self.dtype).fill_(value)

    def element_size(self) -> int:
        return int(self._array.itemsize)

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def all(self) -> bool:
        return bool(self._array.all())

    def detach(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self._array

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self._array[index])

    def __eq__(self, other: Any) -> Any:
        return Tensor(self._array == other._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        array = self._array
        assert array.flags.c_contiguous
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        code = BFLOAT if array.dtype == BFLOAT16 else FLOAT
        lent = DLManagedTensor(
            array.ctypes.data, CUDA, 0, array.ndim, code, 8 * array.itemsize, 1, ctypes.addressof(sizes)
        )
        _LENT.append((array, sizes, lent))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(lent), b"dltensor", None)


def from_numpy(array: Any) -> Tensor:
    return Tensor(array)


def empty(shape: Any, dtype: Any = float32, device: str = "cuda") -> Tensor:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    wanted = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(wanted + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return Tensor(raw[start : start + wanted].view(dtype).reshape(shape))


def set_grad_enabled(wanted: bool) -> None:
    return None


def set_float32_matmul_precision(wanted: str) -> None:
    return None


class Event:
    """A moment: launches of the stub driver are over when they return."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = perf_counter()

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, later: Event) -> float:
        return 1e3 * (later.at - self.at)


def _lacking(*_: Any, **__: Any) -> Any:
    raise RuntimeError("what stands in for PyTorch has no such thing")


version = SimpleNamespace(cuda="13.0", hip=None)
backends = SimpleNamespace(
    cudnn=SimpleNamespace(allow_tf32=True, benchmark=False),
    cuda=SimpleNamespace(matmul=SimpleNamespace(), preferred_blas_library=lambda library: None),
)
cuda = SimpleNamespace(
    is_available=lambda: True,
    synchronize=lambda: None,
    current_stream=lambda: None,
    set_stream=lambda stream: None,
    Event=Event,
    Stream=SimpleNamespace,
    CUDAGraph=SimpleNamespace,
    graph=_lacking,
    clock_rate=_lacking,
)

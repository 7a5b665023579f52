"""Loads a compiled library with ``apache-tvm-ffi`` alone (13 MB, no compiler)."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import DispatchError, MissingDependencyError
from dietlab.lower.target import lower_target
from dietlab.problem import PRECISIONS

RUNTIME_NAME = "libtvm_runtime.so"
"""File of TVM's runtime. It has the thread pool; the runtime's part for a GPU needs it, too."""

ALIGNMENT_BYTES = 64
"""Alignment of arrays, for loads of whole vectors."""

HUGE_PAGE_BYTES = 2 << 20
"""Size of a huge page on x86 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3,
"Paging"). A loop that streams weights from memory waits for one address translation per page."""


def load_library(path: Path, kind: str = "cpu", cores: int = 1) -> Any:
    """Returns the functions of a compiled library, as attributes.

    Args:
        kind: the name of its target, which also loads the runtime that the library calls.
        cores: the number of cores of a CPU that a call uses.

    Raises:
        DispatchError: if the file is missing or no library, or no GPU can run it.
        MissingDependencyError: without apache-tvm-ffi, or without the runtime for threads or a GPU.
    """
    if not path.is_file():
        raise DispatchError("the library must exist", path, "Build it first with dietlab.build().")
    return lower_target(kind).load(path, cores)


def open_library(path: Path) -> Any:
    """Returns the functions of a library whose runtime is already loaded.

    Raises:
        DispatchError: if the file is no library.
        MissingDependencyError: without apache-tvm-ffi.
    """
    ffi = _ffi()
    try:
        # For a known path the dynamic loader returns what it loaded before, even if the file was replaced.
        # Under a fresh name, a library that was built again is really loaded.
        with TemporaryDirectory() as folder:
            alias = Path(folder) / path.name
            alias.symlink_to(path.resolve())
            return ffi.load_module(str(alias))
    except Exception as error:
        raise DispatchError("the file must be a library for this machine", f"{path}: {error}") from None


def _ffi() -> Any:
    try:
        import tvm_ffi
    except ImportError as error:
        raise MissingDependencyError(
            "running a library needs apache-tvm-ffi", error, "pip install apache-tvm-ffi==0.1.14.post1"
        ) from None
    return tvm_ffi


def ffi_version() -> str:
    """Returns the version of apache-tvm-ffi."""
    return str(_ffi().__version__)


def find_runtime(name: str = RUNTIME_NAME, beside: Path | None = None) -> Path | None:
    """Returns the file of a part of TVM's runtime: in the package apache-tvm if installed, else beside the
    library.

    The package comes first: two copies of the runtime crash the process, and ``import tvm`` would load the
    package's copy.
    """
    spec = importlib.util.find_spec("tvm")
    folders = [Path(place) / "lib" for place in (spec and spec.submodule_search_locations) or ()]
    folders += [beside] if beside else []
    return next((path for folder in folders if (path := folder / name).is_file()), None)


def load_runtime(
    folder: Path | None,
    name: str = RUNTIME_NAME,
    provides: str = "runtime.NumThreads",
    before: Callable[[Path], None] | None = None,
) -> None:
    """Loads a part of TVM's runtime, unless the function that the part ``provides`` is there already.
    ``before`` is called with the part's file before it is loaded.

    Raises:
        MissingDependencyError: without apache-tvm-ffi or that part.
    """
    if _ffi().get_global_func(provides, allow_missing=True) is None:
        _open_runtime(name, folder, before)


def _open_runtime(
    name: str, beside: Path | None = None, before: Callable[[Path], None] | None = None
) -> ctypes.CDLL:
    runtime = find_runtime(name, beside)
    if runtime is None:
        nowhere = "apache-tvm is not installed"
        raise MissingDependencyError(
            f"{name} must be found",
            f"not in {beside}, and {nowhere}" if beside else nowhere,
            "pip install apache-tvm, copy it beside the library, or build for one CPU core.",
        )
    if before is not None:
        before(runtime)
    try:
        return ctypes.CDLL(str(runtime.resolve()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingDependencyError(f"{name} must be loadable", error, "Reinstall apache-tvm.") from None


_Task = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def on_each_thread(threads: int, call: Callable[[], object]) -> None:
    """Runs ``call()`` once on each of ``threads`` threads of TVM's pool, including the calling thread, and
    returns when all are done. A library's parallel loops run on these threads.

    Raises:
        MissingDependencyError: without TVM's runtime.
    """

    def task(number: int, environment: int, data: int) -> int:
        call()
        return 0

    _thread_pool().TVMBackendParallelLaunch(_Task(task), None, threads)


@lru_cache(maxsize=1)
def _thread_pool() -> ctypes.CDLL:
    import tvm_ffi  # noqa: F401, the runtime needs it

    return _open_runtime(RUNTIME_NAME)


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Returns an array aligned to 64 bytes, for loads of whole vectors; a large one lies in huge pages if the
    system has them."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size >= HUGE_PAGE_BYTES:
        return huge_pages(size).view(dtype).reshape(shape)
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    array: npt.NDArray[Any] = raw[start : start + size].view(dtype).reshape(shape)
    return array


def huge_pages(size: int) -> npt.NDArray[np.uint8]:
    """Returns ``size`` bytes that begin on a huge page. The memory is freed with the last array on it."""
    memory = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw = np.frombuffer(memory, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE_BYTES
    # Whole pages only: the remainder would take another one.
    with suppress(OSError, AttributeError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE, start, size // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
    return raw[start : start + size]


class _Extension:
    """Exports to DLPack an array whose type NumPy cannot export: it exports the same memory as integers, and
    writes the type's code into the capsule."""

    TYPE_AT = 20  # DLTensor: a pointer, two int32 of the device, the rank as int32, then the type code

    def __init__(self, array: Any, code: int) -> None:
        self._array, self._code = array.view(f"u{array.itemsize}"), code

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._array.__dlpack__()
        address = _capsule_pointer(capsule, b"dltensor")
        ctypes.c_uint8.from_address(address + self.TYPE_AT).value = self._code
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Writable:
    """Presents a read-only array as writable, since DLPack before version 1.0 exports no read-only memory.
    The receiver must only read."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array  # keeps the memory alive
        described = array.__array_interface__
        self.__array_interface__ = {**described, "data": (described["data"][0], False)}


def shareable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns an array that DLPack can export; its receiver must only read it. The result shares the memory
    of ``array``; only a read-only array that is not in C order is copied."""
    if array.flags.writeable:
        return array
    if not array.flags.c_contiguous:
        return np.array(array, order="C")
    return np.asarray(_Writable(array)).view(array.dtype)


def compacted(array: Any) -> Any:
    """Returns an empty array with the strides that a library computes from its shape, and any other array
    unchanged: strides of empty arrays differ between NumPy 2.2, NumPy 2.4 and PyTorch."""
    shape = tuple(array.shape)
    if 0 not in shape:
        return array
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if not isinstance(array, np.ndarray):
        return array.as_strided(shape, strides)
    bytes_apart = [array.itemsize * stride for stride in strides]
    return np.ndarray(shape, array.dtype, bytearray(array.itemsize), strides=bytes_apart)


def as_tensor(array: Any) -> Any:
    """Returns the tensor that libraries take, on the memory of a NumPy array or a PyTorch tensor.

    Raises:
        BufferError: if the memory is read-only, or its type has no name in DLPack.
    """
    import tvm_ffi

    if isinstance(array, tvm_ffi.Tensor):
        return array
    array = compacted(array)
    # NumPy puts a type's name together anew each time, which takes longer than all else here.
    if isinstance(array, np.ndarray) and array.dtype.kind == "V":
        precision = PRECISIONS.get(array.dtype.name)
        if precision is not None and precision.dlpack is not None:
            array = _Extension(array, precision.dlpack)
    return tvm_ffi.from_dlpack(array)

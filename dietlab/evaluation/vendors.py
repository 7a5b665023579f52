"""Hand-tuned libraries behind one small interface, in the forms people call them.

A *plain* vendor gets the weights ``w[N, K]`` as they are in every call; a *prepacked* one
rearranges them once, outside of what is timed. Work happens in three steps, and only the last
is timed::

    vendor = VENDORS["mkl-packed"](threads=1)     # load the library, or say why it is absent
    layer = vendor.prepare(w, bias, rows_hint=T)  # rearrange the weights
    call = layer.bind(x, out)                     # resolve pointers, views and arguments
    call()                                        # out[T, N] = x[T, K] @ w.T + bias

Several OpenMP runtimes in one process silently put one library on a single thread: run one
vendor a process (:mod:`dietlab.evaluation.contender_worker`).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from dietlab.errors import MeasureError, MissingDependencyError
from dietlab.lower.runtime import aligned_empty
from dietlab.workloads import FloatArray

Kind = Literal["plain", "prepacked"]
Call = Callable[[], object]
"""What is timed. It writes ``out``, or returns a fresh tensor if the library cannot."""

# The enumerations of Intel's mkl_cblas.h.
ROW_MAJOR, NO_TRANS, TRANS, PACKED, B_MATRIX = 101, 111, 112, 151, 162


class Layer(Protocol):
    """Weights made ready for calls."""

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        """A call without arguments for ``x[T, K]`` and ``out[T, N]``, which it keeps alive."""


class Vendor(Protocol):
    """A library that computes a dense layer."""

    name: str
    kind: Kind

    def version(self) -> str: ...

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        """Weights ``w[N, K]``, ready for calls with ``rows_hint`` rows."""


def contender_env(threads: int) -> dict[str, str]:
    """Variables for a contender's process; OpenMP runtimes read them once, when they load.

    The idle threads of one contender must not spin while another is timed: ``KMP_BLOCKTIME`` is in
    milliseconds, ``OPENBLAS_THREAD_TIMEOUT`` is a power of two of clock cycles, and TVM's pool yields
    the processor ``TVM_THREAD_POOL_SPIN_COUNT`` times (300,000 unless told: some tenths of a second).
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
        "TVM_NUM_THREADS": count, "OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE",
        "KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "22", "TVM_THREAD_POOL_SPIN_COUNT": "2000",
    }  # fmt: skip


def deliver(result: object, out: FloatArray) -> None:
    """Copies the ``result`` of a :data:`Call` to ``out`` if the library returned a fresh tensor."""
    if hasattr(result, "data_ptr") and result.data_ptr() != out.ctypes.data:
        np.copyto(out, np.asarray(result))


@dataclass(frozen=True)
class NumpyLayer:
    """``numpy.matmul`` into ``out``; a bias is added in place."""

    w: FloatArray
    bias: FloatArray | None

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        multiply = partial(np.matmul, x, self.w.T, out)
        if self.bias is None:
            return multiply
        add = partial(np.add, out, self.bias, out)

        def call() -> None:
            multiply()
            add()

        return call


class OpenBlas:
    """OpenBLAS as NumPy ships it; its threads come from :func:`contender_env` alone.

    Raises:
        MissingDependencyError: if NumPy was built with another library.
    """

    name = "openblas"
    kind: Kind = "plain"

    def __init__(self, threads: int = 1) -> None:
        self._blas = numpy_blas()
        if "openblas" not in self._blas.get("name", "").lower():
            raise MissingDependencyError(
                "NumPy multiplies with OpenBLAS", self._blas.get("name") or "no BLAS",
                "Install NumPy from PyPI (pip install numpy), or leave this contender out.",
            )  # fmt: skip

    def version(self) -> str:
        return f"OpenBLAS {self._blas.get('version', '')} in NumPy {np.__version__}"

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        return NumpyLayer(w, bias)


def numpy_blas() -> Mapping[str, str]:
    """What NumPy says about the BLAS it was built with (``name``, ``version``)."""
    config: Any = np.show_config(mode="dicts")
    found: Mapping[str, str] = config.get("Build Dependencies", {}).get("blas", {})
    return found


def find_mkl() -> Path:
    """The dispatching library of the ``mkl`` distribution, wherever pip put it.

    Raises:
        MissingDependencyError: if the distribution or its library is absent.
    """
    try:
        distribution = importlib.metadata.distribution("mkl")
    except importlib.metadata.PackageNotFoundError:
        raise _absent("mkl", "not installed") from None
    for file in distribution.files or ():
        if file.name.startswith("libmkl_rt.so"):
            return Path(str(distribution.locate_file(file))).resolve()
    raise _absent("mkl", "no libmkl_rt.so among its files")


def _load_mkl(threads: int) -> ctypes.CDLL:
    path = find_mkl()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise _absent("mkl", error) from None
    library.MKL_Set_Num_Threads(ctypes.c_int(threads))
    library.cblas_sgemm_pack_get_size.restype = ctypes.c_size_t
    for name in ("cblas_sgemm", "cblas_sgemm_pack", "cblas_sgemm_compute"):
        # Without argtypes ctypes hands over the c_int and c_float values that bind() made, as they are.
        getattr(library, name).restype = None
    return library


def _pointer(array: FloatArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _ints(*values: int) -> tuple[ctypes.c_int, ...]:
    return tuple(ctypes.c_int(value) for value in values)


def _with_bias(multiply: Call, out: FloatArray, bias: FloatArray | None, *alive: object) -> Call:
    """``multiply`` (which then adds to ``out``) after a broadcast copy of the bias."""
    call = multiply
    if bias is not None:
        copy = partial(np.copyto, out, bias)

        def call() -> None:
            copy()
            multiply()

    # ctypes holds bare addresses: the arrays must live as long as the call.
    call.alive = (out, *alive)  # type: ignore[attr-defined]
    return call


@dataclass(frozen=True)
class MklLayer:
    """``cblas_sgemm`` with ``w`` transposed; ``beta = 1`` where a bias was copied to ``out``."""

    library: ctypes.CDLL
    w: FloatArray
    bias: FloatArray | None

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        (rows, depth), cols = x.shape, self.w.shape[0]
        beta = ctypes.c_float(0.0 if self.bias is None else 1.0)
        multiply = partial(
            self.library.cblas_sgemm, *_ints(ROW_MAJOR, NO_TRANS, TRANS, rows, cols, depth),
            ctypes.c_float(1.0), _pointer(x), *_ints(depth), _pointer(self.w), *_ints(depth),
            beta, _pointer(out), *_ints(cols),
        )  # fmt: skip
        return _with_bias(multiply, out, self.bias, x, self.w)


class Mkl:
    """oneMKL's ``cblas_sgemm`` from the ``mkl`` wheel.

    Raises:
        MissingDependencyError: if the wheel is absent.
    """

    name = "mkl"
    kind: Kind = "plain"

    def __init__(self, threads: int = 1) -> None:
        self._library = _load_mkl(threads)

    def version(self) -> str:
        return f"oneMKL {importlib.metadata.version('mkl')}"

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        return MklLayer(self._library, np.ascontiguousarray(w), bias)


@dataclass(frozen=True)
class MklPackedLayer:
    """``cblas_sgemm_compute`` with weights packed for exactly ``rows`` rows, as MKL demands."""

    library: ctypes.CDLL
    packed: FloatArray
    bias: FloatArray | None
    rows: int
    cols: int
    depth: int

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        if x.shape[0] != self.rows:
            raise MeasureError(
                f"MKL's packed weights serve the {self.rows} rows they were packed for", x.shape[0],
                "Call prepare() with rows_hint set to the rows of x.",
            )  # fmt: skip
        beta = ctypes.c_float(0.0 if self.bias is None else 1.0)
        multiply = partial(
            self.library.cblas_sgemm_compute,
            *_ints(ROW_MAJOR, NO_TRANS, PACKED, self.rows, self.cols, self.depth),
            _pointer(x), *_ints(self.depth), _pointer(self.packed), *_ints(self.depth),
            beta, _pointer(out), *_ints(self.cols),
        )  # fmt: skip
        return _with_bias(multiply, out, self.bias, x, self.packed)


class MklPacked:
    """oneMKL with weights packed by ``cblas_sgemm_pack``, once for each row count.

    Raises:
        MissingDependencyError: if the ``mkl`` wheel is absent.
    """

    name = "mkl-packed"
    kind: Kind = "prepacked"

    def __init__(self, threads: int = 1) -> None:
        self._library = _load_mkl(threads)

    def version(self) -> str:
        return f"oneMKL {importlib.metadata.version('mkl')}"

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        w = np.ascontiguousarray(w)
        cols, depth = w.shape
        sizes = _ints(rows_hint, cols, depth)
        count = self._library.cblas_sgemm_pack_get_size(*_ints(B_MATRIX), *sizes)
        packed = aligned_empty((-(-count // 4),))
        self._library.cblas_sgemm_pack(
            *_ints(ROW_MAJOR, B_MATRIX, TRANS), *sizes, ctypes.c_float(1.0),
            _pointer(w), *_ints(depth), _pointer(packed),
        )  # fmt: skip
        return MklPackedLayer(self._library, packed, bias, rows_hint, cols, depth)


def import_torch() -> ModuleType:
    """PyTorch.

    Raises:
        MissingDependencyError: if it is absent.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise _absent("torch", error) from None


def _tensor(torch: Any, array: FloatArray | None) -> Any:
    return None if array is None else torch.from_numpy(array)


@dataclass(frozen=True)
class TorchLayer:
    """``torch.nn.functional.linear`` in the form that writes a given tensor."""

    torch: Any
    w: Any
    bias: Any

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        # functional.linear is this very binding, whose "out" its documentation leaves out.
        linear = self.torch._C._nn.linear
        return partial(linear, _tensor(self.torch, x), self.w, self.bias, out=_tensor(self.torch, out))


class Torch:
    """PyTorch's eager linear layer.

    Raises:
        MissingDependencyError: if PyTorch is absent.
    """

    name = "torch"
    kind: Kind = "plain"

    def __init__(self, threads: int = 1) -> None:
        self._torch: Any = import_torch()
        self._torch.set_num_threads(threads)

    def version(self) -> str:
        return f"PyTorch {self._torch.__version__}"

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        return TorchLayer(self._torch, _tensor(self._torch, w), _tensor(self._torch, bias))


@dataclass(frozen=True)
class OneDnnLayer:
    """``mkldnn::_linear_pointwise``, which returns a fresh tensor: see :func:`deliver`."""

    torch: Any
    packed: Any
    bias: Any

    def bind(self, x: FloatArray, out: FloatArray) -> Call:
        linear = self.torch.ops.mkldnn._linear_pointwise.default
        return partial(linear, _tensor(self.torch, x), self.packed, self.bias, "none", [], "")


class OneDnnPacked:
    """oneDNN as PyTorch ships it, with weights reordered for the row count.

    Raises:
        MissingDependencyError: if PyTorch is absent or was built without oneDNN.
    """

    name = "onednn-packed"
    kind: Kind = "prepacked"

    def __init__(self, threads: int = 1) -> None:
        self._torch: Any = import_torch()
        if not self._torch.backends.mkldnn.is_available():
            raise _absent("torch with oneDNN", f"PyTorch {self._torch.__version__} without it")
        self._torch.set_num_threads(threads)

    def version(self) -> str:
        lines = self._torch.__config__.show().splitlines()
        found = [line.split("MKL-DNN v")[1].split()[0] for line in lines if "MKL-DNN v" in line]
        return f"oneDNN {found[0] if found else ''} in PyTorch {self._torch.__version__}"

    def prepare(self, w: FloatArray, bias: FloatArray | None, rows_hint: int) -> Layer:
        weight = _tensor(self._torch, w)
        packed = self._torch.ops.mkldnn._reorder_linear_weight(weight, rows_hint)
        return OneDnnLayer(self._torch, packed, _tensor(self._torch, bias))


def _absent(library: str, reason: object) -> MissingDependencyError:
    package = library.split()[0]
    return MissingDependencyError(
        f"the library {library} is installed", reason,
        f"Install it (pip install {package}), or leave this contender out.",
    )  # fmt: skip


VENDORS: dict[str, Callable[[int], Vendor]] = {
    vendor.name: vendor for vendor in (OpenBlas, Mkl, MklPacked, Torch, OneDnnPacked)
}
"""Vendors by name; called with a number of threads, each loads its library."""

"""Intel's oneMKL from the ``mkl`` wheel, by its C interface."""

from __future__ import annotations

import ctypes
import importlib.metadata
from functools import partial
from pathlib import Path

import numpy as np

from dietlab.compare.vendor import (
    Call,
    Kind,
    Operands,
    absent,
    require_constant_weights,
    sequence,
    without_gelu,
)
from dietlab.lower.runtime import aligned_empty
from dietlab.measure.timing.contender import Prepared, WithConstants
from dietlab.problem import FloatArray, Shape, Workload, extents
from dietlab.targets.cpu.contenders.openblas import numpy_tail
from dietlab.targets.cpu.contenders.pytorch import require_rows

# The enumerations of Intel's mkl_cblas.h.
ROW_MAJOR, NO_TRANS, TRANS, PACKED, B_MATRIX = 101, 111, 112, 151, 162
ONE = ctypes.c_float(1.0)


def find_mkl() -> Path:
    """Returns the dispatching library of the ``mkl`` distribution, wherever pip put it."""
    try:
        distribution = importlib.metadata.distribution("mkl")
    except importlib.metadata.PackageNotFoundError:
        raise absent("mkl", "not installed") from None
    for file in distribution.files or ():
        if file.name.startswith("libmkl_rt.so"):
            return Path(str(distribution.locate_file(file))).resolve()
    raise absent("mkl", "no libmkl_rt.so among its files")


def _load(threads: int) -> ctypes.CDLL:
    path = find_mkl()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise absent("mkl", error) from None
    library.MKL_Set_Num_Threads(ctypes.c_int(threads))
    library.cblas_sgemm_pack_get_size.restype = ctypes.c_size_t
    for name in ("sgemm", "sgemm_pack", "sgemm_compute", "sgemm_batch_strided"):
        # Without argtypes ctypes passes the c_int and c_float values of bind() unconverted.
        getattr(library, f"cblas_{name}").restype = None
    return library


def _pointer(array: FloatArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _ints(*values: int) -> tuple[ctypes.c_int, ...]:
    return tuple(ctypes.c_int(value) for value in values)


def _complete(multiply: Call, workload: Workload, operands: Operands, out: FloatArray) -> Call:
    """Returns ``multiply`` with its epilogue. A bias is copied to ``out`` first; ``beta = 1`` adds to it."""
    steps = [multiply, *numpy_tail(workload, operands, out, bias=False)]
    if workload.epilogue.bias:
        steps.insert(0, partial(np.copyto, out, operands["bias"]))
    call = partial(sequence(steps))
    # ctypes holds bare addresses: the arrays must live as long as the call.
    call.alive = (out, dict(operands))  # type: ignore[attr-defined]
    return call


def _beta(workload: Workload) -> ctypes.c_float:
    return ctypes.c_float(1.0 if workload.epilogue.bias else 0.0)


class Mkl:
    """oneMKL's ``cblas_sgemm`` from the ``mkl`` wheel."""

    name, package = "mkl", "mkl"
    computes: tuple[str, ...] = ("dense", "batch-matmul", "matmul")

    def __init__(self, threads: int = 1) -> None:
        self._library = _load(threads)

    def version(self) -> str:
        return f"oneMKL {importlib.metadata.version('mkl')}"

    def kind(self, workload: Workload) -> Kind:
        without_gelu(workload, "MKL's BLAS")
        return "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Operands, out: FloatArray) -> Call:
        """Returns ``cblas_sgemm``, or ``cblas_sgemm_batch_strided`` for a batch of products."""
        x, w = operands["x"], operands["w"]
        (rows, depth), cols = x.shape[-2:], out.shape[-1]
        flip = NO_TRANS if workload.weights == "direct" else TRANS
        sizes = _ints(ROW_MAJOR, NO_TRANS, flip, rows, cols, depth)
        matrices = [(x, depth), (w, w.shape[-1]), (out, cols)]
        if x.ndim == 2:
            (a, b, c) = [(_pointer(m), *_ints(stride)) for m, stride in matrices]
            tail: tuple[ctypes.c_int, ...] = ()
            routine = self._library.cblas_sgemm
        else:
            (a, b, c) = [(_pointer(m), *_ints(stride, m[0].size)) for m, stride in matrices]
            tail = _ints(len(x))
            routine = self._library.cblas_sgemm_batch_strided
        multiply = partial(routine, *sizes, ONE, *a, *b, _beta(workload), *c, *tail)
        return _complete(multiply, workload, operands, out)


class MklPacked(Mkl):
    """oneMKL with weights packed by ``cblas_sgemm_pack``, once for each row count."""

    name = "mkl-packed"
    computes = ("dense",)

    def kind(self, workload: Workload) -> Kind:
        without_gelu(workload, "MKL's BLAS")
        return require_constant_weights(workload)

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        w, rows = constants["w"], extents(workload, shape)["rows"]
        cols, depth = w.shape
        sizes = _ints(rows, cols, depth)
        count = self._library.cblas_sgemm_pack_get_size(*_ints(B_MATRIX), *sizes)
        packed = aligned_empty((-(-count // 4),))
        self._library.cblas_sgemm_pack(
            *_ints(ROW_MAJOR, B_MATRIX, TRANS), *sizes, ONE, _pointer(w), *_ints(depth), _pointer(packed)
        )
        return WithConstants(partial(self._bound_packed, workload, rows), {**constants, "w": packed})

    def _bound_packed(
        self, workload: Workload, packed_rows: int, operands: Operands, out: FloatArray
    ) -> Call:
        """Returns ``cblas_sgemm_compute``."""
        x = operands["x"]
        (rows, depth), cols = x.shape, out.shape[-1]
        require_rows(packed_rows, out, "MKL")
        multiply = partial(
            self._library.cblas_sgemm_compute,
            *_ints(ROW_MAJOR, NO_TRANS, PACKED, rows, cols, depth),
            _pointer(x),
            *_ints(depth),
            _pointer(operands["w"]),
            *_ints(depth),
            _beta(workload),
            _pointer(out),
            *_ints(cols),
        )
        return _complete(multiply, workload, operands, out)

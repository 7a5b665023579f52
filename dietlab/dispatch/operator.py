"""The product: a tuned operator loaded from its shared library, called on arrays.

Needs NumPy and apache-tvm-ffi only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.errors import DispatchError
from dietlab.lower.runtime import aligned_empty, load_library

SCHEMA_VERSION = 1
LIBRARY_NAME = "library.so"
MANIFEST_NAME = "manifest.json"

Array = Any
"""A NumPy array or a PyTorch tensor: float32, two-dimensional, C-contiguous, on the CPU."""


def load(path: str | Path) -> Operator:
    """The operator of a study folder, a library folder or a ``.so`` file.

    Raises:
        DispatchError: if there is no library, or it is of another schema.
    """
    folder = _library_folder(Path(path))
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DispatchError(
            "a library has a readable manifest.json beside it", f"{path}: {error}",
            "Build it with dietlab.build() or `dietlab build`.",
        ) from None  # fmt: skip
    schema = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if schema != SCHEMA_VERSION:
        raise DispatchError(f"a library has schema {SCHEMA_VERSION}", repr(schema), "Build it again.")
    return Operator(folder, manifest)


def _library_folder(path: Path) -> Path:
    candidates = [path.parent] if path.suffix == ".so" else [path / "library", path]
    for folder in candidates:
        if (folder / MANIFEST_NAME).is_file() and (folder / LIBRARY_NAME).is_file():
            return folder
    raise DispatchError(
        "the path is a study, a library folder or a library", path, f"It should hold {LIBRARY_NAME}."
    )


class Operator:
    """A tuned operator. ``op(x, w)`` runs it once; ``op.pack(w)`` returns a layer to keep.

    Args:
        folder: holds the library and its manifest.
        manifest: what the library is (workload, hardware, micro-kernels, decision tree).

    ``library`` has the exported functions themselves; ``weight_shape`` is ``(N, K)``.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.path = folder / LIBRARY_NAME
        self.manifest = manifest
        self.library = load_library(self.path, int(manifest["hardware"]["cores"]))
        self.has_bias = bool(manifest["workload"].get("bias"))
        self.weight_shape = (int(manifest["workload"]["N"]), int(manifest["workload"]["K"]))
        self._packed_shape = tuple(manifest["packed_shape"])

    @property
    def micro_kernels(self) -> tuple[str, ...]:
        """The portfolio, as keys, in the order of plan numbers."""
        return tuple(str(key) for key in self.manifest["micro_kernels"])

    def plan(self, rows: int) -> str:
        """The micro-kernel that the library chooses for ``rows`` rows (asked of the library)."""
        return self.micro_kernels[int(self.library.plan(rows))]

    def pack(self, w: Array, bias: Array | None = None) -> Layer:
        """Lays the constant weights ``w [N, K]`` out once, in panels; ``bias [N]`` with them.

        Raises:
            DispatchError: if a shape or dtype is wrong, or a bias is missing or unexpected.
        """
        if (bias is not None) != self.has_bias:
            raise DispatchError(
                f"this operator {'has a' if self.has_bias else 'has no'} bias",
                "none given" if bias is None else "one given",
            )
        cols, depth = self.weight_shape
        packed = aligned_empty(self._packed_shape)
        operands = (_contiguous(w),) if bias is None else (_contiguous(w), _contiguous(bias))
        try:
            self.library.pack(*operands, packed)
        except (TypeError, ValueError, BufferError) as error:
            biased = ("", "") if bias is None else (f", bias of [{cols}]", f", bias {_describe(bias)}")
            raise DispatchError(
                f"w is a float32 array of shape [{cols}, {depth}]{biased[0]}", f"{_describe(w)}{biased[1]}",
                _first_line(error),
            ) from None  # fmt: skip
        return Layer(self.library, packed, depth, cols)

    def __call__(self, x: Array, w: Array, bias: Array | None = None, *, out: Array | None = None) -> Array:
        """``x @ w.T (+ bias)`` for weights that are used once; see :meth:`pack` for constant ones."""
        return self.pack(w, bias)(x, out=out)

    def __repr__(self) -> str:
        work = self.manifest["workload"]
        dims = ", ".join(f"{name}={work[name]}" for name in ("T", "N", "K"))
        return f"Operator({work['operator']} {dims}, {len(self.micro_kernels)} micro-kernels)"


class Layer:
    """An operator with its weights packed: ``layer(x)`` for ``x [T, K]`` gives ``[T, N]``.

    No copy is made of ``x`` or ``out``; both may be NumPy arrays or PyTorch tensors.
    """

    def __init__(self, library: Any, packed: npt.NDArray[np.float32], depth: int, cols: int) -> None:
        import tvm_ffi

        self._run = library.run
        self._run_plan = library.run_plan
        self._packed = tvm_ffi.from_dlpack(packed)
        self._depth, self._cols = depth, cols

    def __call__(self, x: Array, *, out: Array | None = None) -> Array:
        """Computes ``y[T, N]`` for any T >= 0, into ``out`` if given.

        Raises:
            DispatchError: if an array has the wrong dtype, rank, strides, size or device, or if
                ``out`` overlaps ``x``.
        """
        try:
            if out is None:
                rows = x.shape[0]
                if type(x) is np.ndarray:
                    out = np.empty((rows, self._cols), np.float32)
                else:
                    out = x.new_empty((rows, self._cols))
            elif _overlap(x, out):
                raise ValueError("out shares memory with x")
            self._run(x, self._packed, out)
        except (TypeError, ValueError, BufferError, IndexError, AttributeError, RuntimeError) as error:
            if not self._is_empty_call(x, out):
                raise self._explain(x, out, error) from None
        return out

    def bind(self, x: Array, out: Array, plan: int | None = None) -> Callable[[], None]:
        """A call without arguments, for timing; ``plan`` overrides the decision tree."""
        import tvm_ffi

        source, target, packed = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out), self._packed
        if plan is None:
            run = self._run
            return lambda: run(source, packed, target)
        run_plan = self._run_plan
        return lambda: run_plan(source, packed, target, plan)

    def _is_empty_call(self, x: Array, out: Array) -> bool:
        """T = 0, whose strides no array library agrees on: there is nothing to compute."""
        try:
            return tuple(x.shape) == (0, self._depth) and tuple(out.shape) == (0, self._cols)
        except AttributeError:
            return False

    def _explain(self, x: Array, out: Array, error: Exception) -> DispatchError:
        return DispatchError(
            f"x is float32 [T, {self._depth}], out float32 [T, {self._cols}], both contiguous, on the "
            "CPU and apart from each other",
            f"x {_describe(x)}" + ("" if out is None else f", out {_describe(out)}"),
            f"{_first_line(error)}. np.ascontiguousarray(x, np.float32) makes such an array.",
        )


def _contiguous(array: Array) -> Array:
    """Weights are packed once, so that a copy to make them contiguous costs nothing to speak of."""
    if isinstance(array, np.ndarray):
        return np.array(array, order="C") if not array.flags.writeable else np.ascontiguousarray(array)
    return array.detach().contiguous() if hasattr(array, "detach") else array


def _overlap(x: Array, out: Array) -> bool:
    if isinstance(x, np.ndarray) and isinstance(out, np.ndarray):
        return np.may_share_memory(x, out)
    first, second = _extent(x), _extent(out)
    return first[0] < second[1] and second[0] < first[1]


def _extent(array: Array) -> tuple[int, int]:
    """First and one past the last byte of a contiguous array."""
    start = int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())
    return start, start + int(array.nbytes)


def _describe(array: Array) -> str:
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None:
        return type(array).__name__
    strides = array.strides if isinstance(array, np.ndarray) else None
    layout = f" strides {strides}" if strides is not None else ""
    return f"{dtype} {list(shape)}{layout}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if len(lines) > 1 else lines[0]) if lines else type(error).__name__

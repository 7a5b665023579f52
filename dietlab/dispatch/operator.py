"""The product: a tuned operator loaded from its shared library, called on arrays.

Needs NumPy and apache-tvm-ffi only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.errors import DispatchError
from dietlab.lower.decisions import Lowering
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.lower.target import lower_target
from dietlab.workloads import Workload, dtypes_of, require_scales, workload_from_json

SCHEMA_VERSION = 3
LIBRARY_NAME = "library.so"
MANIFEST_NAME = "manifest.json"

Array = Any
"""A NumPy array or a PyTorch tensor: of the operator's type, C-contiguous, on its processor."""

Call = Callable[[], object]

CALL_ERRORS = (TypeError, ValueError, BufferError, LookupError, AttributeError, RuntimeError)
"""The errors that array libraries and tvm_ffi raise for arrays that do not fit."""


def load(path: str | Path) -> Operator:
    """Loads the operator of a study folder, a library folder or a ``.so`` file.

    Args:
        path: a study's folder, that of a library, or the ``.so`` in it.

    Raises:
        DispatchError: if there is no library, or it is of another schema.
    """
    folder = _library_folder(Path(path))
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DispatchError(
            "a library has a readable manifest.json beside it",
            f"{path}: {error}",
            "Build it with dietlab.build() or `dietlab build`.",
        ) from None
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
        manifest: what the library is (workload, hardware, plans, decision tree).

    ``library`` has the exported functions themselves.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.path = folder / LIBRARY_NAME
        self.manifest = manifest
        self.workload: Workload = workload_from_json(manifest["workload"])
        hardware = manifest["hardware"]
        operands = lower_target(hardware["kind"]).operands
        self._place, self._remedy = operands(hardware["name"], self.workload.dtype)
        self.library = load_library(self.path, hardware["kind"], int(hardware["cores"]))
        self._run = self.library.run
        self._inputs = tuple(name for name in self.workload.signature if name != "out")

    @property
    def micro_kernels(self) -> tuple[str, ...]:
        """The portfolio: every micro-kernel that is compiled in, as keys."""
        return tuple(str(key) for key in self.manifest["micro_kernels"])

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that reports give: bytes of machine code and of the file, micro-kernels."""
        return {
            "bytes": self.manifest["code_bytes"],
            "file_bytes": self.manifest["file_bytes"],
            "kernels": len(self.micro_kernels),
            "micro_kernels": list(self.micro_kernels),
        }

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes that its decision tree names, as keys, by number."""
        return tuple(str(key) for key in self.manifest["schemes"])

    @property
    def lowering(self) -> Lowering:
        """The decisions of its code that no scheme names; of a CPU only."""
        return Lowering.from_json(self.manifest.get("lowering"))

    def scheme(self, *extents: int) -> str:
        """Asks the library which scheme it chooses for the extents of the dynamic dimensions, in the order of
        ``op.workload.dims``."""
        return self.schemes[int(self.library.plan(*extents))]

    def pack(self, w: Array, bias: Array | None = None, *, scale: Array | None = None) -> Layer:
        """Packs the constant weights ``w [N, K]``, and ``bias [N]`` with them, into panels once; int8 weights
        with their ``scale [N]``.

        A GPU reads weights as they are: they are kept there, not copied.

        Raises:
            DispatchError: if a shape or dtype is wrong, a bias is missing or unexpected, or this
                operator has no constant operands.
            WorkloadError: if a scale is not finite.
        """
        others = {"scale": scale, "bias": bias}
        given = {"w": w, **{name: array for name, array in others.items() if array is not None}}
        if tuple(given) != self.workload.constants:
            constants = ", ".join(self.workload.constants) or "no operand"
            raise DispatchError(f"this operator packs {constants}", ", ".join(given))
        if scale is not None:
            require_scales(np.asarray(scale))
        arrays = [_contiguous(array) for array in given.values()]
        try:
            cols = arrays[0].shape[0]
            if not self.manifest["packs"]:
                return Layer(self, arrays, cols)
            packed = aligned_empty((int(self.library.packed_floats(*arrays[0].shape)),))
            self.library.pack(*map(as_tensor, arrays), packed)
        except CALL_ERRORS as error:
            raise self._explain(given, error) from None
        return Layer(self, [packed], cols)

    def __call__(self, *operands: Array, out: Array | None = None) -> Array:
        """Computes once, with all operands in the order of ``op.workload.signature``; see :meth:`pack` for
        weights that stay.

        Raises:
            DispatchError: if an array has the wrong dtype, rank, strides, size or device, or if ``out``
                overlaps an operand.
        """
        # Every line here is paid in each call, of some microseconds.
        if len(operands) != len(self._inputs):
            raise DispatchError(f"the operands are {', '.join(self._inputs)}", f"{len(operands)} arrays")
        if self.workload.constants:
            given = dict(zip(self._inputs, operands, strict=True))
            constants = {name: given.pop(name) for name in self.workload.constants}
            return self.pack(**constants)(*given.values(), out=out)
        try:
            if out is None:
                out = self._empty_output(operands)
            else:
                for array in operands:
                    if _overlap(array, out):
                        raise ValueError("out shares memory with an operand")
            self._run(*operands, out)
        except CALL_ERRORS as error:
            return self.excuse(dict(zip(self._inputs, operands, strict=True)), out, error)
        return out

    def bind(self, operands: Mapping[str, Array], out: Array, plan: int | None = None) -> Call:
        """Returns a call without arguments on variable operands, for timing; ``plan`` overrides the tree (in
        a library with every plan)."""
        return bound(self.library, [*operands.values(), out], plan)

    def excuse(self, given: Mapping[str, Array], out: Array | None, error: Exception) -> Array:
        """Returns ``out`` after a call that failed because it was empty.

        Raises:
            DispatchError: if it failed for another reason.
        """
        if not self._is_empty_call(given, out):
            raise self._explain({**given, **({} if out is None else {"out": out})}, error) from None
        return out

    def _empty_output(self, operands: Sequence[Array]) -> Array:
        sizes: dict[int | str, int] = {}
        for name, array in zip(self._inputs, operands, strict=True):
            sizes.update(zip(self.workload.signature[name], array.shape, strict=False))
        shape = [sizes[e] if isinstance(e, str) else e for e in self.workload.signature["out"]]
        x = operands[0]
        return np.empty(shape, x.dtype) if type(x) is np.ndarray else x.new_empty(shape)

    def _is_empty_call(self, given: Mapping[str, Array], out: Array | None) -> bool:
        """Returns whether a dynamic dimension is 0, so that there is nothing to compute; array libraries
        disagree on the strides of such arrays."""
        signature, dtypes = self.workload.signature, dtypes_of(self.workload)
        arrays = {**given, "out": out}
        try:
            return all(
                tuple(array.shape) == tuple(0 if isinstance(e, str) else e for e in signature[name])
                and str(array.dtype).removeprefix("torch.") == dtypes[name]
                for name, array in arrays.items()
            ) and any(isinstance(extent, str) for extent in signature["out"])
        except AttributeError:
            return False

    def _explain(self, given: Mapping[str, Array], error: Exception) -> DispatchError:
        signature = self.workload.signature
        shapes = [f"{name} [{', '.join(map(str, signature[name]))}]" for name in given if name in signature]
        wrong = [name for name, array in given.items() if self._wrong_size(name, array)]
        return DispatchError(
            f"{', '.join(shapes)}: {self.workload.dtype}, contiguous, {self._place} "
            "and apart from each other",
            ", ".join(f"{name} {_describe(array)}" for name, array in given.items()),
            self._size_remedy(wrong) if wrong else f"{_first_line(error)}. {self._remedy}",
        )

    def _size_remedy(self, names: Sequence[str]) -> str:
        static = [f"{axis.name}={axis.extent}" for axis in self.workload.axes if isinstance(axis.extent, int)]
        return (
            f"The size of {' and '.join(names)} differs; this operator was tuned for {', '.join(static)}, "
            "and another size is another operator."
        )

    def _wrong_size(self, name: str, array: Array) -> bool:
        """Returns whether an array's rank or a static extent is not that of the tuned operator."""
        wanted, found = self.workload.signature.get(name), getattr(array, "shape", None)
        if wanted is None or found is None:
            return False
        pairs = zip(wanted, found, strict=False)
        return len(found) != len(wanted) or any(w != f for w, f in pairs if not isinstance(w, str))

    def __repr__(self) -> str:
        made_of = f"{len(self.micro_kernels)} micro-kernels, {len(self.schemes)} schemes"
        return f"Operator({self.workload}, {made_of})"


class Layer:
    """An operator with its weights packed: ``layer(x)`` for ``x [T, K]`` gives ``[T, N]``.

    No copy is made of ``x`` or ``out``; both may be NumPy arrays or PyTorch tensors.

    Args:
        operator: an operator with constant operands.
        constants: these as the library takes them, packed.
        cols: columns of the output.
    """

    def __init__(self, operator: Operator, constants: Sequence[Array], cols: int) -> None:
        self._operator = operator
        self._run = operator.library.run
        self._constants = [as_tensor(array) for array in constants]
        self._cols = cols
        types = dtypes_of(operator.workload)
        # None: the output is of the input's type.
        self._out_dtype = None if types["x"] == types["out"] else types["out"]
        self._shared = types["x"] != "bfloat16"  # NumPy shares its own types only

    def __call__(self, x: Array, residual: Array | None = None, *, out: Array | None = None) -> Array:
        """Computes ``y[T, N]`` for any T >= 0, into ``out`` if given.

        Args:
            x: ``[T, K]``.
            residual: ``[T, N]``, for an operator with one.

        Raises:
            DispatchError: if an array has the wrong dtype, rank, strides, size or device, is missing
                or unexpected, or if ``out`` overlaps another.
        """
        # Every line here is paid in each call, of some microseconds.
        try:
            if out is None:
                out = _empty(x, (x.shape[0], self._cols), self._out_dtype)
            elif _overlap(x, out) or (residual is not None and _overlap(residual, out)):
                raise ValueError("out shares memory with an operand")
            if not self._shared:
                others = () if residual is None else (as_tensor(residual),)
                self._run(as_tensor(x), *self._constants, *others, as_tensor(out))
            elif residual is None:
                self._run(x, *self._constants, out)
            else:
                self._run(x, *self._constants, residual, out)
        except CALL_ERRORS as error:
            given = {"x": x} if residual is None else {"x": x, "residual": residual}
            return self._operator.excuse(given, out, error)
        return out

    def bind(self, x: Array, out: Array, plan: int | None = None, residual: Array | None = None) -> Call:
        """Returns a call without arguments, for timing; ``plan`` overrides the tree (in a library with every
        plan)."""
        others = [] if residual is None else [residual]
        return bound(self._operator.library, [x, *self._constants, *others, out], plan)


def bound(library: Any, arrays: Sequence[Array], plan: int | None) -> Call:
    """Returns the library's entry with its arguments converted once."""
    import tvm_ffi

    converted = [a if isinstance(a, tvm_ffi.Tensor) else as_tensor(a) for a in arrays]
    if plan is None:
        run = library.run
        return lambda: run(*converted)
    run_plan = library.run_plan
    return lambda: run_plan(*converted, plan)


def _empty(x: Array, shape: tuple[int, ...], dtype: str | None) -> Array:
    """Returns a new array of the kind of ``x``, and of its type if that is None."""
    if type(x) is np.ndarray:
        return np.empty(shape, dtype or x.dtype)
    return x.new_empty(shape) if dtype is None else x.new_empty(shape, dtype=_torch_dtype(dtype))


def _torch_dtype(dtype: str) -> Any:
    import torch

    return getattr(torch, dtype)


def _contiguous(array: Array) -> Array:
    """Returns contiguous weights, copied if they must be: they are packed once only."""
    if isinstance(array, np.ndarray):
        return np.array(array, order="C") if not array.flags.writeable else np.ascontiguousarray(array)
    return array.detach().contiguous() if hasattr(array, "detach") else array


def _overlap(x: Array, out: Array) -> bool:
    if isinstance(x, np.ndarray) and isinstance(out, np.ndarray):
        return np.may_share_memory(x, out)
    first, second = _extent(x), _extent(out)
    return first[0] < second[1] and second[0] < first[1]


def _extent(array: Array) -> tuple[int, int]:
    """Returns the address of the first byte of a contiguous array, and of the byte after its last."""
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

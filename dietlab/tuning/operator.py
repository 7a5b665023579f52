"""A tuned operator, loaded from its shared library and called on arrays. This module needs only NumPy and
apache-tvm-ffi."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.base.errors import DietlabError, DispatchError
from dietlab.base.files import await_turn, reading
from dietlab.lower.decisions import Lowering
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.lower.target import lower_target
from dietlab.measure.timing.contender import Call
from dietlab.problem import Workload, dtypes_of, precision_of, require_scales, workload_from_json
from dietlab.problem.dims import Size, size_at
from dietlab.tuning.arrays import (
    Array,
    as_input,
    as_output,
    contiguous,
    empty_like,
    is_empty,
    overlap,
)
from dietlab.tuning.call_errors import SHARED, call_error
from dietlab.tuning.dispatcher import Dispatcher
from dietlab.tuning.images import positions, windows_of
from dietlab.tuning.manifest import (
    AGAIN,
    LIBRARY_NAME,
    MANIFEST_NAME,
    RIGHT_FIELDS,
    read_manifest,
    refusal,
    require_fields,
    require_versions,
    require_whole,
)

CALL_ERRORS = (TypeError, ValueError, BufferError, LookupError, AttributeError, RuntimeError)
"""The errors that array libraries and tvm_ffi raise for arrays that do not fit."""


def load(path: str | Path) -> Operator:
    """Loads the operator of a study folder, a library folder or a ``.so`` file, if its code can run here.

    Args:
        path: the folder of a study, the folder of a library, or the ``.so`` file in a library's folder.

    Raises:
        DispatchError: if there is no library, or if the library has another schema, is damaged or truncated,
            was built with another version of a package that it calls, or needs instructions that this machine
            lacks.
    """
    folder = _library_folder(Path(path))
    try:
        return Operator(folder, read_manifest(folder))
    except DispatchError:
        # Another process may be replacing library and manifest, one after the other, or have just finished.
        await_turn(lock_of(folder))
    return Operator(folder, read_manifest(folder))


def lock_of(folder: Path) -> Path:
    """Returns the file that is locked while the library in a folder is replaced. The file lies beside the
    folder, since people copy the folder."""
    home = folder.resolve()
    return home.parent / f"{home.name}.lock"


def _library_folder(path: Path) -> Path:
    candidates = [path.parent] if path.name == LIBRARY_NAME else [path / "library", path]
    both = LIBRARY_NAME, MANIFEST_NAME
    lacking = {folder: [name for name in both if not (folder / name).is_file()] for folder in candidates}
    for folder, lacks in lacking.items():
        if not lacks:
            return folder
    halves = (f"{folder} without {lacks[0]}" for folder, lacks in lacking.items() if len(lacks) == 1)
    whole = " and ".join(both)
    found = next(halves, f"{path} without {whole}" if path.exists() else f"{path}, which is not there")
    raise DispatchError(
        "the path must be that of a study, a library folder or a library",
        found,
        f"Copy the folder again, with {whole}, or build the library of a study: `dietlab build STUDY`.",
    )


class Operator:
    """A tuned operator. ``op(x, w)`` runs it once; ``op.pack(w)`` returns a layer to keep.

    Args:
        folder: the folder of the library and its manifest.
        manifest: the manifest, with workload, hardware, plans and decision tree.
        elsewhere: whether the library may be for another machine. Then each call raises the error, not this
            constructor.

    ``library`` has the exported functions; ``refusal`` is the error if this machine cannot run these, else
    None.

    Raises:
        DispatchError: for the reasons given in :func:`load`.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], *, elsewhere: bool = False) -> None:
        self.path = folder / LIBRARY_NAME
        self.manifest = dict(manifest)
        require_fields(folder / MANIFEST_NAME, self.manifest)
        require_whole(self.path, self.manifest)
        with reading(DispatchError, RIGHT_FIELDS, folder / MANIFEST_NAME, AGAIN):
            self.workload: Workload = workload_from_json(manifest["workload"])
            hardware = manifest["hardware"]
            kind, name, cores = str(hardware["kind"]), str(hardware["name"]), int(hardware["cores"])
        self._place, self._remedy = lower_target(kind).operands(name, self.workload.dtype)
        require_versions(self.manifest)
        self.refusal = refusal(self.path, self.manifest)
        if self.refusal and not elsewhere:
            raise self.refusal
        self.library: Any = Elsewhere(self.refusal) if self.refusal else load_library(self.path, kind, cores)
        self._run = self.library.run
        self._inputs = tuple(name for name in self.workload.signature if name != "out")

    @property
    def micro_kernels(self) -> tuple[str, ...]:
        """The portfolio: the keys of all compiled micro-kernels."""
        return tuple(str(key) for key in self.manifest["micro_kernels"])

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for reports: the number of bytes of machine code and of the file, and the number of
        micro-kernels."""
        return {
            "bytes": self.manifest["code_bytes"],
            "file_bytes": self.manifest["file_bytes"],
            "kernels": len(self.micro_kernels),
            "micro_kernels": list(self.micro_kernels),
        }

    @property
    def schemes(self) -> tuple[str, ...]:
        """The keys of the schemes in the decision tree, in the order of their indices."""
        return tuple(str(key) for key in self.manifest["schemes"])

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that was compiled."""
        with reading(DispatchError, RIGHT_FIELDS, self.path.parent / MANIFEST_NAME, AGAIN):
            return Dispatcher.from_json(self.manifest)

    @property
    def lowering(self) -> Lowering:
        """The decisions in the generated code that no scheme contains; for a CPU only."""
        return Lowering.from_json(self.manifest.get("lowering"))

    def scheme(self, *extents: int) -> str:
        """Returns the key of the scheme that the library chooses for the extents of the dynamic dimensions,
        in the order of ``op.workload.dims``. A convolution's library takes ``N, H, W`` or ``N, L``, whether
        they are dynamic or not."""
        return self.schemes[int(self.library.plan(*extents))]

    def pack(self, w: Array, bias: Array | None = None, *, scale: Array | None = None) -> Layer:
        """Packs the constant weights ``w [N, K]``, with ``bias [N]`` and, for int8, ``scale [N]``, into
        panels.

        A GPU reads weights as they are: the layer keeps the given weights on the GPU, without a copy.

        Raises:
            DispatchError: if a shape or dtype is wrong, a bias is missing or unexpected, or this
                operator has no constant operands.
            WorkloadError: if a scale is not finite.
        """
        others = {"scale": scale, "bias": bias}
        given = {"w": w, **{name: array for name, array in others.items() if array is not None}}
        if tuple(given) != self.workload.constants:
            constants = ", ".join(self.workload.constants) or "none"
            raise DispatchError(f"the operands to pack must be {constants}", ", ".join(given))
        if scale is not None:
            require_scales(np.asarray(contiguous(scale)))
        try:
            arrays = [contiguous(array) for array in given.values()]
            cols = arrays[0].shape[0]
            if not self.manifest["packs"]:
                return Layer(self, arrays, cols)
            packed = aligned_empty((int(self.library.packed_floats(*arrays[0].shape)),))
            self.library.pack(*map(as_tensor, arrays), packed)
        except CALL_ERRORS as error:
            raise self._explain(given, error) from None
        return Layer(self, [packed], cols)

    def __call__(self, *operands: Array, out: Array | None = None) -> Array:
        """Computes once, with all operands in the order of ``op.workload.signature``; :meth:`pack` is for
        weights that are used again.

        Raises:
            DispatchError: if an array has the wrong dtype, rank, strides, size or device, or if ``out``
                overlaps an operand.
        """
        # Every line here adds to each call, of some microseconds.
        if len(operands) != len(self._inputs):
            raise DispatchError(f"the operands must be {', '.join(self._inputs)}", f"{len(operands)} arrays")
        if self.workload.constants:
            given = dict(zip(self._inputs, operands, strict=True))
            constants = {name: as_input(given.pop(name)) for name in self.workload.constants}
            return self.pack(**constants)(*given.values(), out=out)
        try:
            if out is None:
                out = self._empty_output(operands)
            else:
                for array in operands:
                    if overlap(array, out):
                        raise ValueError(SHARED)
            call(self._run, [*map(as_input, operands), as_output(out)])
        except CALL_ERRORS as error:
            raise self.explained(dict(zip(self._inputs, operands, strict=True)), out, error) from None
        return out

    def bind(self, operands: Mapping[str, Array], out: Array, plan: int | None = None) -> Call:
        """Returns a call without arguments, for timing. In a library with every plan, ``plan`` overrides the
        decision tree.

        Raises:
            DispatchError: if the library cannot take an array.
        """
        try:
            return bound(self.library, [*operands.values(), out], plan)
        except CALL_ERRORS as error:
            raise self.explained(operands, out, error) from None

    def explained(self, given: Mapping[str, Array], out: Array | None, error: Exception) -> DietlabError:
        """Returns the error to raise after a call that failed."""
        return self._explain({**given, **({} if out is None else {"out": out})}, error)

    def _empty_output(self, operands: Sequence[Array]) -> Array:
        sizes: dict[Size, int] = {}
        for name, array in zip(self._inputs, operands, strict=True):
            sizes.update(zip(self.workload.signature[name], array.shape, strict=False))
        return empty_like(operands[0], [size_at(e, sizes) for e in self.workload.signature["out"]])

    def _explain(self, given: Mapping[str, Array], error: Exception) -> DietlabError:
        if isinstance(error, DietlabError):
            return error
        return call_error(self.workload, given, _first_line(error), self._place, self._remedy)

    def __repr__(self) -> str:
        made_of = f"{len(self.micro_kernels)} micro-kernels, {len(self.schemes)} schemes"
        return f"Operator({self.workload}, {made_of})"


class Layer:
    """An operator with its weights packed: ``layer(x)`` for ``x [T, K]`` gives ``[T, N]``.

    No copy is made of ``x`` or ``out``; both may be NumPy arrays or PyTorch tensors.

    Args:
        operator: an operator with constant operands.
        constants: the constant operands, packed as the library takes them.
        cols: the number of columns of the output.
    """

    def __init__(self, operator: Operator, constants: Sequence[Array], cols: int) -> None:
        self._operator = operator
        self._run = operator.library.run
        self._constants = [as_tensor(array) for array in constants]
        self._cols = cols
        self._windows = windows_of(operator.workload)
        types = dtypes_of(operator.workload)
        # None: the output is of the input's type.
        self._out_dtype = None if types["x"] == types["out"] else types["out"]
        self._shared = not precision_of(operator.workload).extension  # NumPy shares its own types only

    def __call__(self, x: Array, residual: Array | None = None, *, out: Array | None = None) -> Array:
        """Computes ``y[T, N]`` for any T >= 0, into ``out`` if given.

        Args:
            x: the input, ``[T, K]``.
            residual: the residual, ``[T, N]``, for an operator with a residual.

        Raises:
            DispatchError: if an array has the wrong dtype, rank, strides, size or device, is missing
                or unexpected, or if ``out`` overlaps another array.
        """
        # Every line here adds to each call, of some microseconds.
        try:
            if out is None:
                sizes = positions(self._windows, x.shape[1:]) if self._windows else ()
                out = empty_like(x, (x.shape[0], *sizes, self._cols), self._out_dtype)
            elif overlap(x, out) or (residual is not None and overlap(residual, out)):
                raise ValueError(SHARED)
            others = () if residual is None else (as_input(residual),)
            arrays = [as_input(x), *self._constants, *others, as_output(out)]
            call(self._run, arrays if self._shared else list(map(as_tensor, arrays)))
        except CALL_ERRORS as error:
            given = {"x": x} if residual is None else {"x": x, "residual": residual}
            raise self._operator.explained(given, out, error) from None
        return out

    def bind(self, x: Array, out: Array, plan: int | None = None, residual: Array | None = None) -> Call:
        """Returns a call without arguments, like :meth:`Operator.bind`.

        Raises:
            DispatchError: if the library cannot take an array.
        """
        others = {} if residual is None else {"residual": residual}
        arrays = [x, *self._constants, *others.values(), out]
        try:
            return bound(self._operator.library, arrays, plan)
        except CALL_ERRORS as error:
            raise self._operator.explained({"x": x, **others}, out, error) from None


def call(run: Callable[..., object], arrays: Sequence[Array]) -> None:
    """Calls a library's function. If the function refuses empty arrays, calls it again with the strides that
    it expects: nothing was computed by then."""
    try:
        run(*arrays)
    except CALL_ERRORS:
        if not any(map(is_empty, arrays)):
            raise
        run(*map(as_tensor, arrays))


def bound(library: Any, arrays: Sequence[Array], plan: int | None) -> Call:
    """Returns a call of the library's function. The arguments, the output last, are converted only once."""
    *inputs, out = arrays
    converted = [as_tensor(array) for array in (*map(as_input, inputs), as_output(out))]
    if plan is None:
        run = library.run
        return lambda: run(*converted)
    run_plan = library.run_plan
    return lambda: run_plan(*converted, plan)


class Elsewhere:
    """Replaces the functions of a library that cannot run on this machine: each function raises the error."""

    def __init__(self, refusal: DietlabError) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Call:
        def refuse(*_: object) -> object:
            raise self._refusal

        return refuse


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if len(lines) > 1 else lines[0]) if lines else type(error).__name__

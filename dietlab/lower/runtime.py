"""Loads a compiled library with ``apache-tvm-ffi`` alone (13 MB, no compiler)."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.errors import DispatchError, MissingDependencyError

RUNTIME_NAME = "libtvm_runtime.so"
ALIGNMENT_BYTES = 64


def load_library(path: Path, cores: int) -> Any:
    """The functions of a compiled library, as attributes.

    A library that runs on several cores calls TVM's thread pool; its runtime must be in the process
    *before* the first call, which would otherwise jump to address zero.

    Raises:
        DispatchError: if the file is missing or no library.
        MissingDependencyError: without apache-tvm-ffi, or without the runtime that threads need.
    """
    try:
        import tvm_ffi
    except ImportError as error:
        raise MissingDependencyError(
            "running a library needs apache-tvm-ffi", error, "pip install apache-tvm-ffi==0.1.14.post1"
        ) from None
    if not path.is_file():
        raise DispatchError("the library exists", path, "Build it first with dietlab.build().")
    if cores > 1:
        _load_thread_pool(path.parent, cores)
    try:
        # The dynamic loader gives out what it loaded from a path before, even if another library stands
        # there now: under a name of its own, a library that was built anew is really loaded.
        with TemporaryDirectory() as folder:
            alias = Path(folder) / path.name
            alias.symlink_to(path.resolve())
            return tvm_ffi.load_module(str(alias))
    except Exception as error:
        raise DispatchError("the file is a compiled library for this machine", f"{path}: {error}") from None


def find_runtime(beside: Path | None = None) -> Path | None:
    """TVM's runtime library: in the package apache-tvm if installed, else beside the library.

    The package comes first: two copies of the runtime in one process end it, and ``import tvm`` would
    load the package's.
    """
    spec = importlib.util.find_spec("tvm")
    folders = [Path(place) / "lib" for place in (spec and spec.submodule_search_locations) or ()]
    folders += [beside] if beside else []
    return next((path for folder in folders if (path := folder / RUNTIME_NAME).is_file()), None)


def _load_thread_pool(folder: Path, cores: int) -> None:
    import tvm_ffi

    # TVM halves the processor count it sees on x86 and reads this when its pool starts.
    os.environ.setdefault("TVM_NUM_THREADS", str(cores))
    if tvm_ffi.get_global_func("runtime.NumThreads", allow_missing=True) is not None:
        return  # this process has a runtime
    runtime = find_runtime(folder)
    if runtime is None:
        raise MissingDependencyError(
            f"a library for {cores} cores needs {RUNTIME_NAME}",
            f"not in {folder}, and apache-tvm is not installed",
            "Copy it beside the library, or build for one core.",
        )
    ctypes.CDLL(str(runtime.resolve()), mode=ctypes.RTLD_GLOBAL)


def aligned_empty(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """A float32 array that begins at a multiple of 64 bytes, as whole-vector loads want it."""
    size = 4 * int(np.prod(shape))
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + size].view(np.float32).reshape(shape)

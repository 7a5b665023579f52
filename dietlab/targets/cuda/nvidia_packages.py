"""Finds NVIDIA's libraries in its Python packages, where the loader does not look.

PyTorch for CUDA brings the CUDA runtime in ``site-packages/nvidia/cu13/lib``. Once a library is loaded from
there, TVM finds it by its name.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from dietlab.base.errors import MissingDependencyError
from dietlab.lower.runtime import load_runtime

CUDA_RUNTIME_NAME = "libtvm_runtime_cuda.so"
"""TVM's part for NVIDIA's driver: loads cubins, launches kernels."""

_NEEDED = re.compile(rb"lib(?:cuda|cudart)\.so\.\d+")
_CALLED = re.compile(rb"(?<=\0)cu(da)?[A-Z]\w+(?=\0)")


def package_folders() -> list[Path]:
    """Returns the folders of NVIDIA's Python packages (``nvidia/cu13``; before CUDA 13 one for each)."""
    return [folder for entry in sys.path for folder in sorted(Path(entry or ".", "nvidia").glob("*"))]


def needed_libraries(library: Path) -> list[str]:
    """Returns the names of the driver and the CUDA runtime with which a library is linked."""
    return [name.decode() for name in sorted(set(_NEEDED.findall(library.read_bytes())))]


def called_functions(library: Path, name: str) -> list[str]:
    """Returns the functions of the driver, ``libcuda``, or of the CUDA runtime that a library calls."""
    runtime = name.startswith("libcudart")
    found = _CALLED.finditer(library.read_bytes())
    return sorted({match[0].decode() for match in found if bool(match[1]) == runtime})


def open_library(name: str) -> str:
    """Loads one of NVIDIA's libraries, unless the process has it: from ``LD_LIBRARY_PATH``, from a package,
    as PyTorch does, or where the loader looks. Returns the reasons of a failure as a text, empty without a
    failure."""
    with suppress(OSError):
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | ctypes.RTLD_GLOBAL)
        return ""
    chosen = [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    folders = [*chosen, *(folder / "lib" for folder in package_folders())]
    reasons = []
    for candidate in (*(str(path) for folder in folders if (path := folder / name).is_file()), name):
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            return ""
        except OSError as error:
            reasons.append(str(error))
    return "; ".join(reasons)


def require_libraries(library: Path) -> None:
    """Loads the driver and the CUDA runtime that ``library`` is linked with. TVM silently leaves out its CUDA
    part if the loader does not find them.

    Raises:
        MissingDependencyError: if one of them is neither on the loader's path nor in a package.
    """
    for name in needed_libraries(library):
        if missing := open_library(name):
            raise MissingDependencyError(f"{library.name} must find {name}", missing, _remedy(name))


def _remedy(name: str) -> str:
    if name.startswith("libcudart"):
        release = name.rpartition(".")[2]
        return (
            f"pip install 'nvidia-cuda-runtime=={release}.*', or add the folder of {name} to LD_LIBRARY_PATH "
            "before Python starts."
        )
    return "It comes with NVIDIA's driver, which a machine without a GPU does not need: there, build only."


def load_cuda_runtime(beside: Path | None = None) -> None:
    """Loads TVM's part for NVIDIA's driver, with the CUDA runtime. ``import tvm`` goes on without it if the
    loader does not find the CUDA runtime, and every call for a GPU fails then.

    Args:
        beside: the folder of TVM's runtime if apache-tvm is not installed.

    Raises:
        MissingDependencyError: if a part of TVM, the driver or the CUDA runtime is missing.
    """
    load_runtime(beside)
    load_runtime(beside, CUDA_RUNTIME_NAME, "ffi.Module.create.cuda", require_libraries)

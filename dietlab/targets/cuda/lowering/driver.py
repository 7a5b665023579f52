"""Loads TVM's CUDA part on hosts without a driver: stand-ins suffice to put cubins into a library."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.base.errors import MissingDependencyError
from dietlab.lower.compiler import require_linker
from dietlab.lower.runtime import find_runtime
from dietlab.targets.cuda.machine import NO_DEVICE
from dietlab.targets.cuda.nvidia_packages import (
    CUDA_RUNTIME_NAME,
    called_functions,
    needed_libraries,
    open_library,
)

CREATE = "ffi.Module.create.cuda"
NO_GPU = "this process has built libraries without a GPU's driver"


def module_maker() -> Any:
    """Returns TVM's function that makes a module of a cubin.

    TVM's CUDA part is linked with NVIDIA's driver and runtime, and is not loaded without them. Making a
    module does not use them. So where they are missing, two libraries with their names stand in, whose
    functions all report that there is no GPU. Only running a kernel needs the real ones.

    Raises:
        MissingDependencyError: if TVM's CUDA part is missing or cannot be loaded.
    """
    import tvm_ffi

    found = tvm_ffi.get_global_func(CREATE, allow_missing=True)
    if found is None:
        _load_without_driver()
        found = tvm_ffi.get_global_func(CREATE, allow_missing=True)
    if found is None:
        raise MissingDependencyError("TVM must make modules of cubins", f"no {CREATE}", "Install apache-tvm.")
    return found


def _load_without_driver() -> None:
    runtime = find_runtime(CUDA_RUNTIME_NAME)
    if runtime is None:
        raise MissingDependencyError(
            f"building for a GPU needs {CUDA_RUNTIME_NAME}",
            "apache-tvm is not installed",
            "pip install apache-tvm==0.27.0.post1",
        )
    with TemporaryDirectory(prefix="dietlab-driver-") as folder:
        for name in needed_libraries(runtime):
            if open_library(name):
                _stand_in(name, called_functions(runtime, name), Path(folder))
        _load_lazily(runtime)


def _load_lazily(library: Path) -> None:
    """Loads a library and looks its functions up when they are first called; ctypes looks all up at once."""
    loader = ctypes.CDLL(None)
    loader.dlopen.restype, loader.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
    if not loader.dlopen(str(library).encode(), os.RTLD_LAZY | os.RTLD_GLOBAL):
        raise MissingDependencyError(f"{library.name} must be loadable", loader.dlerror().decode())


def _stand_in(name: str, functions: list[str], folder: Path) -> None:
    """Loads a library with this name and version whose functions report that there is no GPU. TVM calls them
    when it frees a module: an empty library would end the process."""
    versions, source, library = (folder / f"{name}.{kind}" for kind in ("map", "c", "so"))
    versions.write_text(f"{name} {{ global: *; }};\n", encoding="utf-8")
    source.write_text("".join(map(_answer, functions)), encoding="utf-8")
    flags = ["-shared", "-fPIC", "-x", "c", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
    command = [require_linker(), *flags, str(source), "-o", str(library)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise MissingDependencyError(f"a library must stand in for {name}", made.stderr.strip()[-300:])
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _answer(function: str) -> str:
    """Returns the C source of a stand-in: ``cudaGetError...`` returns a text, any other function an error's
    number."""
    if function.startswith("cudaGetError"):
        return f'const char *{function}(void) {{ return "{NO_GPU}"; }}\n'
    return f"int {function}(void) {{ return {NO_DEVICE}; }}\n"

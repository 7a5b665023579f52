"""Compiles a module of TensorIR to a shared library, by TVM."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from dietlab.base.errors import BuildError, MissingDependencyError
from dietlab.base.files import write_failure
from dietlab.lower.artifact import Artifact
from dietlab.lower.runtime import RUNTIME_NAME, find_runtime
from dietlab.lower.store import STORE, unwritten, versions
from dietlab.machine.instruction_sets import Requirements, used

COMPILER_NAME = "libtvm_compiler.so"
"""File of TVM's compiler; without it, TVM's package imports the runtime alone."""

LINKERS = ("g++", "clang++", "cc")
"""Programs that can link, the preferred first."""

COMPLAINS = ("/usr/bin/ld:", "ld:", "ld.lld:", "collect2:", "clang", "g++:", "cc:")
"""Prefixes of the lines in a linker's output that report an error."""

NARROWING = "tirx.NarrowDataType"
"""TVM's pass that narrows integers to 32 bits. It is disabled: it narrows arguments at the calls of private
functions but not the functions' parameters, which makes the module invalid."""


def tvm_module() -> Any:
    """Returns the ``tvm`` package."""
    try:
        import tvm
    except ImportError as error:
        raise MissingDependencyError(
            "building needs the package apache-tvm", error, "pip install apache-tvm==0.27.0.post1"
        ) from None
    return tvm


def instructions_of(target: Any) -> frozenset[str]:
    """Returns the instruction sets, by Linux's names, that LLVM may use for a target's processor."""
    tvm_module()
    import tvm_ffi

    return used(map(str, tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)))


def require_tools() -> str:
    """Checks that TVM's compiler and a linker are installed, and returns the linker's path.

    Raises:
        MissingDependencyError: if TVM's runtime is installed without its compiler.
        BuildError: if no linker is installed.
    """
    if find_runtime(RUNTIME_NAME) and not find_runtime(COMPILER_NAME):
        raise MissingDependencyError(
            f"building needs TVM's compiler, {COMPILER_NAME}",
            "its runtime alone",
            "pip install apache-tvm, or build elsewhere (dietlab kit).",
        )
    return require_linker()


def require_linker() -> str:
    """Returns the path of a C++ compiler, to link libraries.

    Raises:
        BuildError: if none is installed.
    """
    found = next((path for name in LINKERS if (path := shutil.which(name))), None)
    if found is None:
        raise BuildError(
            "linking a library needs a C++ compiler",
            f"none of {', '.join(LINKERS)}",
            "Install one, for example with: apt-get install g++",
        )
    return found


def compile_library(module: Any, target: Any, path: Path, objects: Sequence[bytes] = ()) -> Artifact:
    """Compiles a module for TVM's ``target``, and links it with object files made by :func:`object_of` to the
    library ``path``.

    Raises:
        BuildError: if no linker is installed, or TVM or the linker fails.
    """
    started = perf_counter()
    linker = require_linker()
    key = library_key(module, target, objects)
    STORE.write(path, key, lambda: export(compiled(module, target), path, linker, objects))
    code = machine_code(path.read_bytes())
    digest = hashlib.sha256(code).hexdigest()[:16]
    requires = Requirements(platform.machine(), instructions_of(target))
    return Artifact(path, len(code), digest, perf_counter() - started, requires=requires)


def library_key(module: Any, target: Any, objects: Sequence[bytes]) -> str:
    """Returns the key of a library in the store, equal for equal programs."""
    import tvm_ffi

    parts = [hashlib.sha256(data).hexdigest() for data in objects]
    return f"{tvm_ffi.structural_hash(module)} {target} {versions()} {' '.join(parts)}"


def object_of(module: Any, target: Any) -> bytes:
    """Compiles a module to an object file, which several libraries may link.

    Raises:
        BuildError: if TVM fails, or there is no room for a temporary file.
    """
    built = compiled(module, target).mod
    with TemporaryDirectory(prefix="dietlab-") as folder:
        path = Path(folder) / "module.o"
        try:
            built.write_to_file(str(path))
            return path.read_bytes()
        except Exception as error:  # TVM raises several exception types
            raise unwritten(path, last_line(error)) from error


def export(module: Any, path: Path, linker: str, objects: Sequence[bytes] = ()) -> None:
    """Links a compiled module and object files to the shared library ``path``.

    Raises:
        BuildError: if the linker fails, or the library cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="dietlab-") as folder:
            others = [Path(folder) / f"{number}.o" for number in range(len(objects))]
            for other, data in zip(others, objects, strict=True):
                other.write_bytes(data)
            options = {"cc": linker, "options": ["-Wl,--strip-all"]}
            module.export_library(str(path), addons=list(map(str, others)), workspace_dir=folder, **options)
    except OSError as error:
        raise unwritten(path, error) from error
    except Exception as error:  # TVM raises several exception types
        # The linker is another program: only its message says that the disk is full.
        lines = [line.strip() for line in str(error).splitlines()]
        if full := next(filter(write_failure, lines), None):
            raise unwritten(path, full) from error
        said = (line for line in lines if line.startswith(COMPLAINS) or "undefined reference" in line)
        raise BuildError("the library must link", next(said, last_line(error))) from error


def compiled(module: Any, target: Any) -> Any:
    """Compiles a module for TVM's ``target``, in memory.

    The ``tirx`` pipeline is TVM's for hand-written kernels: it keeps the annotation for scratch memory on the
    stack, where the default pipeline would call the runtime for a workspace."""
    tvm = tvm_module()
    try:
        with tvm.transform.PassContext(disabled_pass=[NARROWING]):
            return tvm.compile(module, target=target, tir_pipeline="tirx")
    except Exception as error:  # TVM raises several exception types
        raise BuildError("the program must compile", last_line(error)) from error


def last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def machine_code(elf: bytes) -> bytes:
    """Returns the contents of the sections ``.text`` and ``.rodata`` of a 64-bit ELF file (System V ABI):
    equal for equal programs, since paths and build identifiers are elsewhere.
    """
    if elf[:5] != b"\x7fELF\x02":
        return elf

    def number(at: int, size: int) -> int:
        return int.from_bytes(elf[at : at + size], "little")

    table, entry_bytes, entries, names_index = (
        number(0x28, 8),
        number(0x3A, 2),
        number(0x3C, 2),
        number(0x3E, 2),
    )
    headers = [table + i * entry_bytes for i in range(entries)]
    names_at = number(headers[names_index] + 0x18, 8)
    code = b""
    for header in headers:
        name_at = names_at + number(header, 4)
        name = elf[name_at : elf.index(b"\0", name_at)]
        if name == b".text" or name.startswith(b".rodata"):
            offset, size = number(header + 0x18, 8), number(header + 0x20, 8)
            code += elf[offset : offset + size]
    return code

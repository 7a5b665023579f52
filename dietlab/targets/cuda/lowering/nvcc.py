"""CUDA source becomes a cubin, without a GPU: finds a compiler, runs it, and keeps what it made.

Any number of processes and threads may compile at once; they share the cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from dietlab.base.errors import BuildError, MissingDependencyError
from dietlab.lower.store import FOLDER, Store
from dietlab.targets.cuda.lowering.cubin import Cubin, architecture, read_cubin
from dietlab.targets.cuda.nvidia_packages import package_folders

COMPILE_SECONDS = 120.0
"""The longest that a compilation may take, in seconds."""

VERSION_SECONDS = 30.0
"""The longest that a compiler may take to print its version, in seconds."""

REMEDY = "pip install nvidia-cuda-nvcc nvidia-cuda-cccl, or install the CUDA toolkit with nvcc on the PATH."

_NVCC_FLAGS = ("-cubin", "-O3", "--expt-relaxed-constexpr", "--resource-usage")
_NVRTC_FLAGS = ("-default-device", "--device-int128", "--ptxas-options=-v")


@dataclass(frozen=True)
class Compiler:
    """A command that makes a cubin: ``command flags -o CUBIN SOURCE``.

    Args:
        name: the compiler's name, ``"nvcc"`` or ``"nvrtc"``: their flags differ.
        includes: the folders with CUDA's headers, where the compiler does not know them.
    """

    name: str
    command: tuple[str, ...]
    includes: tuple[str, ...] = ()

    def flags(self, arch: str, *, fast_math: bool = False) -> tuple[str, ...]:
        """Returns the flags, with a report of the registers that each kernel uses.

        TVM's source calls constexpr functions of the C++ library on the device, and helpers without
        ``__device__``: both need a flag.
        """
        common = ["--std=c++17", *(["--use_fast_math"] if fast_math else [])]
        return (*self._own(arch), *common, *(f"-I{path}" for path in self.includes))

    def _own(self, arch: str) -> tuple[str, ...]:
        if self.name != "nvcc":
            return (f"-arch={arch}", *_NVRTC_FLAGS)
        # -arch alone may compile for the plain architecture as well, which lacks what an "a" has.
        return (f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}", *_NVCC_FLAGS)

    def version(self) -> str:
        """Returns the compiler's version, which is read once a process.

        Raises:
            BuildError: if it does not run.
        """
        return _version(self.command)


def _nvcc_on_path() -> Iterator[Compiler]:
    if found := shutil.which("nvcc"):
        yield Compiler("nvcc", (found,))


def _packaged_nvcc() -> Iterator[Compiler]:
    for folder in package_folders():
        path = folder / "bin" / "nvcc"
        if os.access(path, os.X_OK):
            yield Compiler("nvcc", (str(path),), _packaged_headers())


def _packaged_nvrtc() -> Iterator[Compiler]:
    for folder in package_folders():
        for library in sorted((folder / "lib").glob("libnvrtc.so.*")):
            command = (sys.executable, "-m", "dietlab.targets.cuda.lowering.nvrtc", str(library))
            yield Compiler("nvrtc", command, _packaged_headers())


FINDERS: tuple[Callable[[], Iterator[Compiler]], ...] = (_nvcc_on_path, _packaged_nvcc, _packaged_nvrtc)
"""The functions that find compilers, best first: nvcc reports more, and TVM's source is written for it."""


def _packaged_headers() -> tuple[str, ...]:
    places = [folder / "include" / part for folder in package_folders() for part in ("", "cccl")]
    return tuple(str(place) for place in places if place.is_dir())


def compilers() -> Iterator[Compiler]:
    """Returns the installed CUDA compilers, best first."""
    return (compiler for find in FINDERS for compiler in find())


def require_compiler() -> Compiler:
    """Returns the best installed CUDA compiler.

    Raises:
        MissingDependencyError: if there is none.
    """
    found = next(compilers(), None)
    if found is None:
        rule = "a CUDA compiler must be installed"
        raise MissingDependencyError(rule, "no nvcc on the PATH, none in Python packages, no NVRTC", REMEDY)
    return found


def compile_cubin(
    source: str,
    arch: str,
    *,
    fast_math: bool = False,
    cache: Path | None = FOLDER,
    timeout: float = COMPILE_SECONDS,
) -> Cubin:
    """Compiles CUDA C++ for one architecture, or takes the cubin from the cache.

    Args:
        arch: a real architecture, such as ``sm_90`` or ``sm_90a``.
        fast_math: whether division, square root and functions are faster and less exact
            (``--use_fast_math``).
        cache: the folder that all processes share, made if it is missing (``~`` is the home folder). With
            None, every call compiles.
        timeout: the seconds after which the compiler is ended.

    Raises:
        MissingDependencyError: if no CUDA compiler is installed.
        BuildError: if the source has an error, or the compiler was killed or took too long.
    """
    architecture(arch)
    compiler = require_compiler()
    flags = compiler.flags(arch, fast_math=fast_math)
    store = None if cache is None else Store(cache)
    key = json.dumps([source, flags, compiler.version()])
    if store and (kept := store.load(key)):
        with suppress(BuildError, LookupError, TypeError):
            return _cubin(kept[0]["log"], kept[1], arch)
    log, data = _compile(compiler, source, flags, timeout)
    built = _cubin(log, data, arch)
    if store:
        store.keep(key, {"log": log}, data)
    return built


def _cubin(log: str, data: bytes, arch: str) -> Cubin:
    cubin = read_cubin(data, arch, {name: usage.spill_bytes for name, usage in parse_usage(log).items()})
    return replace(cubin, remarks=tuple(_REMARK.findall(log)))


def _compile(compiler: Compiler, source: str, flags: tuple[str, ...], timeout: float) -> tuple[str, bytes]:
    """Returns the compiler's messages and the cubin."""
    with TemporaryDirectory(prefix="dietlab-cuda-") as folder:
        program, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        program.write_text(source, encoding="utf-8")
        code, output = _run((*compiler.command, *flags, "-o", str(cubin), str(program)), timeout)
        log = output.replace(f"{folder}{os.sep}", "")
        if code < 0:
            raise BuildError(
                "the CUDA compiler must end by itself", f"killed by signal {-code}", "Is there enough memory?"
            )
        if code > 0 or not cubin.is_file():
            raise BuildError("the CUDA source must compile", _first_error(log) or f"exit status {code}")
        return log, cubin.read_bytes()


def _run(command: tuple[str, ...], timeout: float) -> tuple[int, str]:
    """Returns exit status and output. On an error, ends the compiler and all programs that the compiler
    started.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise BuildError("it must be possible to run the CUDA compiler", error, REMEDY) from None
    with child:
        try:
            output, _ = child.communicate(timeout=timeout)
        except BaseException as error:
            # nvcc starts other programs, which would outlive it and keep its output open.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise BuildError(
                f"the CUDA compiler must end within {timeout:g} s", "it was killed", "Pass a larger timeout."
            ) from None
    return child.returncode, output.decode(errors="replace")


@cache
def _version(command: tuple[str, ...]) -> str:
    code, output = _run((*command, "--version"), VERSION_SECONDS)
    if code:
        raise BuildError(
            "the CUDA compiler must print its version", _first_error(output) or f"exit status {code}"
        )
    return output


_ERROR = re.compile(r"\b(?:error|fatal)\s*:", re.IGNORECASE)


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "")


@dataclass(frozen=True)
class Usage:
    """The resources of a kernel that ``ptxas`` reports; bytes count for a thread, shared bytes for a
    block."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


_REMARK = re.compile(r"^ptxas info\s*: (.*Potential Performance Loss:.*)$", re.MULTILINE)
_KERNEL = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for '?([^\s']+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_usage(log: str) -> dict[str, Usage]:
    """Returns the resources by kernel in the messages of ``ptxas -v``; empty without such messages.

    Reads, for each kernel (other functions have a frame, but no line of registers)::

        ptxas info    : Compiling entry function 'main' for 'sm_90'
        ptxas info    : Function properties for main
            64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
        ptxas info    : Used 32 registers, used 1 barriers, 64 bytes cumulative stack size, 4096 bytes smem
    """
    kernel = function = ""
    frames: dict[str, tuple[int, int, int]] = {}
    usage: dict[str, Usage] = {}
    for line in log.splitlines():
        if match := _KERNEL.search(line):
            kernel = match[1]
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            frames[function] = (int(match[1]), int(match[2]), int(match[3]))
        elif match := _USED.search(line):
            shared, frame = _SHARED.search(line), frames.get(kernel, (0, 0, 0))
            usage[kernel] = Usage(int(match[1]), *frame, int(shared[1]) if shared else 0)
    return usage

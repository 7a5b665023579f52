"""A CUDA driver and runtime without a GPU, for TVM's CUDA runtime: launches run on the emulator.

``install()`` comes before TVM is imported and lasts for the process, so tests do it in a child process.
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .emulator import HERE, MAX_BLOCK, MAX_GRID, STATIC_BYTES, build
from .errors import EmulatorError
from .translate import MAX_THREADS

MAGIC = b"EMULATED"


@dataclass(frozen=True)
class Capability:
    """Limits of a compute capability (CUDA C++ Programming Guide, Technical Specifications)."""

    shared_per_block_bytes: int
    shared_per_sm_bytes: int
    threads_per_sm: int


CAPABILITIES = {
    "7.0": Capability(96 << 10, 96 << 10, 2048),
    "7.5": Capability(64 << 10, 64 << 10, 1024),
    "8.0": Capability(163 << 10, 164 << 10, 2048),
    "8.6": Capability(99 << 10, 100 << 10, 1536),
    "8.9": Capability(99 << 10, 100 << 10, 1536),
    "9.0": Capability(227 << 10, 228 << 10, 2048),
    "10.0": Capability(227 << 10, 228 << 10, 2048),
    "12.0": Capability(99 << 10, 100 << 10, 1536),
}


@dataclass(frozen=True)
class Launch:
    """A launch that the driver was asked for; ``code`` is its CUresult, ``stream`` the handle's number,
    ``cluster`` how many blocks along x are one (0: such a cluster cannot be had)."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: int
    shared_bytes: int
    stream: int
    code: int


class _LaunchStruct(ctypes.Structure):
    """``struct fake_launch`` of ``fake_driver.c``."""

    _fields_ = (
        ("kernel", ctypes.c_char * 128),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("code", ctypes.c_int),
        ("stream", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class FakeDriver:
    """The stub driver of this process."""

    library: ctypes.CDLL

    def launches(self) -> tuple[Launch, ...]:
        """All launches since the start or since :meth:`forget`, in order, those that failed included."""
        found = []
        for number in range(self.library.fake_launches()):
            one = self.library.fake_launch_at(number).contents
            sizes = tuple(one.grid), tuple(one.block), one.cluster, one.shared_bytes
            found.append(Launch(one.kernel.decode(), *sizes, one.stream, one.code))
        return tuple(found)

    def forget(self) -> None:
        """Empties the list of launches."""
        self.library.fake_forget()

    def failure(self) -> str:
        """Why the last module or launch failed, in the emulator's words; empty if none did."""
        return str(self.library.fake_failure().decode())

    @property
    def live_bytes(self) -> int:
        """Device memory in use."""
        return int(self.library.fake_memory(0).contents.value)

    def limit_memory(self, limit_bytes: int) -> None:
        """Allocations fail as soon as more than ``limit_bytes`` would be in use."""
        self.library.fake_memory(1).contents.value = limit_bytes


def image(source: str) -> bytes:
    """What the stub driver loads as a module: the emulator library of a CUDA source, with a header."""
    library = build(source)
    return MAGIC + len(library).to_bytes(8, "little") + library


@dataclass(frozen=True)
class StubDevice:
    """What the stub driver says of its device."""

    compute_capability: str = "9.0"
    multiprocessors: int = 132
    memory_bytes: int = 8 << 30
    l2_bytes: int = 50 << 20
    name: str = "stub device"

    def definitions(self) -> list[str]:
        """Returns the compiler's options that put the device into the driver."""
        if self.compute_capability not in CAPABILITIES:
            known = ", ".join(CAPABILITIES)
            raise EmulatorError(f"the compute capability is one of {known}", self.compute_capability)
        found = _attributes(self.compute_capability, self.multiprocessors, self.l2_bytes)
        values = ",".join(f"[{number}]={value}" for number, value in found.items())
        return [
            f"-DFAKE_ATTRIBUTES={{{values}}}",
            f'-DFAKE_NAME="{self.name}"',
            f"-DFAKE_MEMORY_BYTES={self.memory_bytes}ull",
        ]


def install() -> FakeDriver:
    """Loads the stub driver and runtime, then TVM, whose CUDA sources then become emulator libraries."""
    if "tvm" in sys.modules:
        raise EmulatorError(
            "the stub driver is installed before tvm is imported", None, "Use a child process."
        )
    driver = FakeDriver(_load())
    _compile_by_emulator()
    return driver


def _attributes(compute_capability: str, multiprocessors: int, l2_bytes: int) -> dict[int, int]:
    """Device attributes by their numbers in ``enum CUdevice_attribute`` of cuda.h; clocks in kHz."""
    limits = CAPABILITIES[compute_capability]
    major, minor = map(int, compute_capability.split("."))
    threads = {1: MAX_THREADS, **dict(enumerate((*MAX_BLOCK, *MAX_GRID), 2)), 10: 32}
    clocks = {13: 1_980_000, 36: 2_619_000, 37: 5120}
    shared = {
        8: STATIC_BYTES,
        81: limits.shared_per_sm_bytes,
        97: limits.shared_per_block_bytes,
        111: 1 << 10,
    }
    device = {16: multiprocessors, 38: l2_bytes, 39: limits.threads_per_sm, 75: major, 76: minor, 106: 32}
    return {**threads, 9: 64 << 10, 12: 64 << 10, 82: 64 << 10, **clocks, **shared, **device}


def build_driver(folder: Path, device: StubDevice) -> tuple[Path, Path]:
    """Compiles the stub driver and the stub runtime.

    Returns:
        the paths of ``libcuda.so.1`` and ``libcudart.so.13`` in ``folder``."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise EmulatorError("gcc compiles the stub driver", "it is not installed", "apt-get install gcc")
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.13"
    _build(compiler, driver, *device.definitions())
    # The names have a version in TVM's library, which the loader looks for.
    versions = f"-Wl,--version-script={HERE / 'fake_driver.map'}"
    _build(compiler, runtime, "-DFAKE_RUNTIME", versions, str(driver))
    return driver, runtime


def _load() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="fake-driver-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    driver, runtime = build_driver(folder, StubDevice())
    library = ctypes.CDLL(str(driver), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    library.fake_launch_at.restype = ctypes.POINTER(_LaunchStruct)
    library.fake_launch_at.argtypes = (ctypes.c_size_t,)
    library.fake_launches.restype = ctypes.c_size_t
    library.fake_failure.restype = ctypes.c_char_p
    library.fake_memory.restype = ctypes.POINTER(ctypes.c_uint64)
    return library


def _build(compiler: str, path: Path, *options: str) -> None:
    flags = ("-std=gnu11", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{path.name}")
    output = ("-o", str(path), "-ldl", "-lpthread")
    command = [compiler, *flags, str(HERE / "fake_driver.c"), *options, *output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulatorError("the stub driver compiles", done.stderr[-4000:])


def _compile_by_emulator() -> None:
    import tvm  # noqa: F401  (registers its own compiler, which is replaced)
    import tvm_ffi

    def compile_source(code: Any, *_: Any) -> bytes:
        return image(str(code))

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", compile_source, override=True)

"""Runs CUDA source on the processor: ``Emulated.of(source).launch("kernel", grid, block, arguments)``.

Every thread of a block is a fiber. What a GPU leaves undefined becomes visible: memory that nobody wrote
holds NaN, asynchronous copies land when a wait covers them and no earlier, nothing is mapped behind arrays.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.lower.store import Store

from .errors import EmulatorError
from .translate import MAX_THREADS, Kernel, Parameter, translate

HERE = Path(__file__).parent
BUILT = Store(Path("~/.cache/dietlab/emulated"))
"""Libraries that an earlier test, or run, built."""

COMPILER = "g++"
FLAGS = (
    "-std=gnu++17",
    "-O1",
    "-w",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-U_FORTIFY_SOURCE",
    "-fsanitize=alignment,bounds-strict",
)
"""One copy of every variable a library; failures jump between stacks; misaligned and out-of-bounds accesses
call back (see ``launch.h``)."""

SHARED_BYTES = 227 * 1024
"""Of a block at most: compute capability 9.0 (CUDA C++ Programming Guide, Technical Specifications)."""
STATIC_BYTES = 48 * 1024
"""Shared memory that a kernel can declare with a size; more has to be dynamic."""
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
ARRAY_ALIGNMENT = 16
"""Bytes: what the widest load needs; more would leave a gap between the end of an array and the guard."""

TENSOR_MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""Of a descriptor for bulk copies (CUDA Driver API, ``CUtensorMap``)."""

Extent = int | Sequence[int]
Arguments = Sequence[Any] | Mapping[str, Any]

SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8,
    "signed char": ctypes.c_int8,
    "uchar": ctypes.c_uint8,
    "short": ctypes.c_int16,
    "int": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "uint": ctypes.c_uint32,
    "unsigned int": ctypes.c_uint32,
    "uint32_t": ctypes.c_uint32,
    "long long": ctypes.c_int64,
    "int64_t": ctypes.c_int64,
    "long": ctypes.c_int64,
    "unsigned long long": ctypes.c_uint64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
ELEMENT_BYTES = {name: ctypes.sizeof(scalar) for name, scalar in SCALARS.items()} | dict.fromkeys(
    ("half", "__half", "nv_bfloat16", "__nv_bfloat16", "ushort"), 2
)


class _Guarded(ctypes.Structure):
    """``struct guarded`` of ``guarded.h``."""

    _fields_ = (
        ("region", ctypes.c_void_p),
        ("region_bytes", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )


class _KernelStruct(ctypes.Structure):
    """``struct emulated_kernel`` of ``kernel.h``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("launch", ctypes.c_void_p),
        ("failure", ctypes.c_void_p),
        ("body", ctypes.c_void_p),
        ("static_bytes", ctypes.c_uint),
        ("alignment", ctypes.c_uint),
        ("max_threads", ctypes.c_uint),
        ("argument_bytes", ctypes.c_void_p),
    )


@lru_cache(maxsize=256)
def build(source: str) -> bytes:
    """The emulator library of a CUDA source, as the contents of a shared library."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise EmulatorError(
            f"{COMPILER} compiles what is emulated", "it is not installed", "apt-get install g++"
        )
    text, command, headers = translate(source).text, _command(compiler), _headers(compiler)
    key = f"{headers} {text}"
    if kept := BUILT.load(key):
        return kept[1]
    with tempfile.TemporaryDirectory(prefix="emulated-") as name:
        folder = Path(name)
        code, compiled, library = folder / "kernels.cpp", folder / "kernels.o", folder / "kernels.so"
        code.write_text(text, encoding="utf-8")
        _run(*command, f"-I{headers}", f"-I{HERE}", "-c", str(code), "-o", str(compiled))
        # Apart, because linking with -fsanitize would ask for a library that the emulator stands in for.
        _run(compiler, "-shared", str(compiled), "-o", str(library))
        BUILT.keep(key, {}, library.read_bytes())
        return library.read_bytes()


def _command(compiler: str) -> tuple[str, ...]:
    native = ("-march=native",) if platform.machine() == "x86_64" else ()
    return (compiler, *FLAGS, *native)


@lru_cache
def _headers(compiler: str) -> Path:
    """The folder of the emulator's headers as the compiler has read them, which is half of the time of a
    small library; named by what they and the compiler are. All processes share it."""
    version = subprocess.run((compiler, "--version"), capture_output=True, check=True).stdout
    parts = [header.read_bytes() for header in sorted(HERE.glob("*.h"))]
    name = sha256(b"".join([version, *parts, *map(str.encode, _command(compiler))])).hexdigest()
    folder = BUILT.folder.expanduser() / name
    header = folder / "emulator.h.gch"
    if not header.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            made = Path(unfinished, header.name)
            _run(*_command(compiler), "-x", "c++-header", str(HERE / "emulator.h"), "-o", str(made))
            made.replace(header)
    return folder


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulatorError("the translated source compiles", done.stderr[-4000:])


def load(library: bytes) -> ctypes.CDLL:
    """The library of :func:`build`, loaded into this process."""
    with tempfile.NamedTemporaryFile(prefix="emulated-", suffix=".so") as file:
        file.write(library)
        file.flush()
        loaded = ctypes.CDLL(file.name)
    loaded.emu_failure.restype = ctypes.c_char_p
    loaded.emu_fault_address.restype = ctypes.c_void_p
    loaded.emu_take.restype = ctypes.POINTER(_Guarded)
    loaded.emu_take.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    return loaded


def extent(sizes: Extent) -> tuple[int, int, int]:
    """One to three sizes as three."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(given) <= 3:
        raise EmulatorError("a grid or a block has one to three dimensions", given)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True)
class TensorMap:
    """The descriptor of a matrix of 16-bit elements, for a kernel that takes it as ``CUtensorMap``: tiles of
    ``box`` lines and elements, whose lines are swizzled as they are long."""

    array: np.ndarray[Any, Any]
    box: tuple[int, int]

    def encoded(self, library: ctypes.CDLL, address: int) -> Any:
        """Returns the descriptor, of the matrix at this address."""
        room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + MAP_ALIGNMENT)
        start = -ctypes.addressof(room) % MAP_ALIGNMENT
        made = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, start)
        lines, elements = self.array.shape
        code = library.emu_encode(
            made,
            ctypes.c_uint64(address),
            (ctypes.c_uint64 * 2)(elements, lines),
            ctypes.c_uint64(elements * self.array.itemsize),
            (ctypes.c_uint32 * 2)(self.box[1], self.box[0]),
            ctypes.c_uint({32: 1, 64: 2, 128: 3}.get(2 * self.box[1], 0)),
        )
        if code:
            found = f"{self.array.shape}, {self.box}"
            raise EmulatorError("a matrix can be described for bulk copies", found)
        return made


@dataclass(frozen=True)
class Emulated:
    """The kernels of one CUDA source, ready to be launched."""

    source: str = field(repr=False)
    kernels: Mapping[str, Kernel]
    library: ctypes.CDLL = field(repr=False, compare=False)

    @classmethod
    def of(cls, source: str) -> Emulated:
        """Translates and compiles ``source``."""
        kernels = {kernel.name: kernel for kernel in translate(source).kernels}
        return cls(source, kernels, load(build(source)))

    def launch(
        self,
        name: str,
        grid: Extent,
        block: Extent,
        arguments: Arguments,
        shared_bytes: int = 0,
        cluster: int = 1,
    ) -> None:
        """Runs a kernel; arrays are copied to memory with guards around it and back.

        Args:
            name: of the kernel.
            grid: blocks in x, y, z.
            block: threads of a block in x, y, z.
            arguments: NumPy arrays (uint16 for bfloat16) and numbers, in order or by the parameters' names.
            shared_bytes: dynamic shared memory of a block.
            cluster: blocks of a cluster, along x.
        """
        if name not in self.kernels:
            raise EmulatorError(f"the source has this kernel; it has {', '.join(self.kernels)}", name)
        kernel = self.kernels[name]
        blocks, threads = extent(grid), extent(block)
        exported = _KernelStruct.in_dll(self.library, f"emu_kernel_{name}")
        check_launch(kernel, blocks, threads, exported.static_bytes, shared_bytes)
        with ExitStack() as stack:
            bound = {
                parameter.name: stack.enter_context(self._bound(parameter, value))
                for parameter, value in _pairs(kernel, arguments)
            }
            pointers = (ctypes.c_void_p * max(len(bound), 1))(*map(_address, bound.values()))
            code = self.library.emu_launch(
                ctypes.byref(exported),
                (ctypes.c_uint * 3)(*blocks),
                (ctypes.c_uint * 3)(*threads),
                ctypes.c_uint(cluster),
                ctypes.c_uint(shared_bytes),
                pointers,
            )
            if code:
                raise EmulatorError("a kernel runs by the rules of CUDA", self._failure(bound))

    @contextmanager
    def _bound(self, parameter: Parameter, value: Any) -> Iterator[Any]:
        """The value as the kernel takes it: a number of its type, or a pointer to guarded memory."""
        if isinstance(value, TensorMap):
            with self._bound(Parameter("const void*", parameter.name, constant=True), value.array) as memory:
                yield value.encoded(self.library, memory.data)
            return
        if not parameter.pointer:
            yield _number(parameter, value)
            return
        array = _array(parameter, value)
        taken = self.library.emu_take(array.nbytes, ARRAY_ALIGNMENT)
        if not taken:
            raise EmulatorError("there is memory for an argument", f"{parameter.name}: {array.nbytes} bytes")
        memory = taken.contents
        try:
            ctypes.memmove(memory.data, array.ctypes.data, array.nbytes)
            yield memory
            if self.library.emu_overrun(taken):
                raise EmulatorError("a kernel writes inside of its arrays", f"bytes beside {parameter.name}")
            if not parameter.constant:
                ctypes.memmove(array.ctypes.data, memory.data, array.nbytes)
        finally:
            self.library.emu_release(taken)

    def _failure(self, bound: Mapping[str, Any]) -> str:
        """The library's message; where an address is near an argument, that is told."""
        text = (self.library.emu_failure() or b"").decode()
        address = self.library.emu_fault_address()
        for name, memory in bound.items():
            if not address or not isinstance(memory, _Guarded):
                continue
            if memory.region <= address < memory.region + memory.region_bytes:
                text += f" (byte {address - memory.data} of {name}, which has {memory.bytes} bytes)"
        return text


def check_launch(
    kernel: Kernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    static_bytes: int,
    dynamic_bytes: int,
) -> None:
    """The limits that a launch must keep on every GPU of compute capability 9.0."""
    if any(not 1 <= size <= limit for size, limit in zip(grid, MAX_GRID, strict=True)):
        raise EmulatorError(f"a grid has 1 to {MAX_GRID} blocks", grid)
    if any(not 1 <= size <= limit for size, limit in zip(block, MAX_BLOCK, strict=True)):
        raise EmulatorError(f"a block has 1 to {MAX_BLOCK} threads", block)
    threads = block[0] * block[1] * block[2]
    if threads > min(MAX_THREADS, kernel.max_threads):
        raise EmulatorError(f"a block of {kernel.name} has at most {kernel.max_threads} threads", threads)
    if static_bytes > STATIC_BYTES:
        raise EmulatorError(f"a kernel declares at most {STATIC_BYTES} bytes of shared memory", static_bytes)
    if static_bytes + dynamic_bytes > SHARED_BYTES:
        raise EmulatorError(
            f"a block has at most {SHARED_BYTES} bytes of shared memory", static_bytes + dynamic_bytes
        )


def _pairs(kernel: Kernel, arguments: Arguments) -> list[tuple[Parameter, Any]]:
    names = [parameter.name for parameter in kernel.parameters]
    if isinstance(arguments, Mapping):
        if set(arguments) != set(names):
            raise EmulatorError(f"{kernel.name} takes {', '.join(names)}", ", ".join(map(str, arguments)))
        arguments = [arguments[name] for name in names]
    if len(arguments) != len(names):
        raise EmulatorError(f"{kernel.name} takes {', '.join(names)}", f"{len(arguments)} arguments")
    return list(zip(kernel.parameters, arguments, strict=True))


def _address(value: Any) -> int:
    """Where the argument stands: cuLaunchKernel takes pointers to arguments, which may be pointers."""
    if isinstance(value, _Guarded):
        return ctypes.addressof(value) + _Guarded.data.offset
    return ctypes.addressof(value)


def _number(parameter: Parameter, value: Any) -> Any:
    if parameter.type not in SCALARS or isinstance(value, np.ndarray):
        raise EmulatorError(f"{parameter.name} is a number of type {parameter.type}", type(value).__name__)
    return SCALARS[parameter.type](value)


def _array(parameter: Parameter, value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
        raise EmulatorError(f"{parameter.name} is a contiguous NumPy array", type(value).__name__)
    expected = ELEMENT_BYTES.get(parameter.element, value.itemsize)
    if value.itemsize != expected:
        raise EmulatorError(f"{parameter.name} has elements of type {parameter.element}", value.dtype)
    if not parameter.constant and not value.flags.writeable:
        raise EmulatorError(f"{parameter.name} can be written", "a read-only array")
    return value

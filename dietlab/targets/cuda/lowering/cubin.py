"""Reads the resources that a compiled CUDA kernel uses from the cubin: an ELF file of machine 190.

ELF-64 is the System V ABI's. NVIDIA's additions (``.nv.info`` and its ``EIATTR`` attributes, registers in the
section header) have the names that ``nvdisasm`` of the CUDA toolkit prints. No tool of the toolkit is needed,
also for cubins of NVRTC.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from dietlab.base.errors import BuildError

_HEADER = struct.Struct("<16s HHI QQQ I HHHHHH")
_SECTION = struct.Struct("<II QQQQ II QQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MACHINE_CUDA = 190
_SYMBOL_TABLE, _NO_BITS = 2, 8
_FUNCTION, _ENTRY = 2, 0x10  # a symbol's type, and the bit of its visibility that marks a kernel
_SIZED = 4  # the form of attributes whose header is followed by a payload
_MAX_THREADS, _REQUIRED_THREADS, _FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x05, 0x10, 0x11, 0x12, 0x2F
_RESERVED_SHARED = ".nv.reservedSmem.cap"
_RESERVED_SHARED_BYTES = 1024
"""The bytes of a block's shared memory that the driver takes. From 9.0 on the compiler counts these bytes
into the kernel's section; older compilers do so without naming them by a symbol."""
_ARCHITECTURE = re.compile(r"sm_(\d+)[af]?")


@dataclass(frozen=True)
class Resources:
    """The resources that one kernel uses.

    Args:
        registers: the number of 32-bit registers of a thread.
        spill_bytes: the number of bytes of a thread's spill stores and loads in the code, if the compiler
            reported them (``ptxas -v``); otherwise the bytes of the thread's stack, which holds local arrays
            too.
        shared_bytes: the shared memory of a block that the code declares, without the driver's part and what
            a launch adds.
        stack_bytes: the local memory of a thread: spilled registers and local arrays.
        max_threads: the most threads of a block (launch bounds); None if the source does not say.
        code_bytes: the size of the machine code, with the padding behind it.
        code_hash: a hash that is equal for kernels with equal machine code, constants, registers and shared
            memory.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    stack_bytes: int
    max_threads: int | None
    code_bytes: int
    code_hash: str


@dataclass(frozen=True)
class Cubin:
    """A compiled CUDA module for one architecture (``sm_90``), the resources of its kernels, and the
    compiler's remarks on what costs speed."""

    arch: str
    data: bytes = field(repr=False)
    kernels: Mapping[str, Resources] = field(hash=False)
    remarks: tuple[str, ...] = ()

    @property
    def code_bytes(self) -> int:
        """The size of the machine code of all kernels, in bytes."""
        return sum(kernel.code_bytes for kernel in self.kernels.values())

    @property
    def code_hash(self) -> str:
        """A hash that is equal for modules with equal kernels, whatever the kernels are called."""
        return _digest(*sorted(kernel.code_hash.encode() for kernel in self.kernels.values()))


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    info: int
    size: int
    data: bytes


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    other: int
    section: int
    value: int


@dataclass(frozen=True)
class _Elf:
    sections: tuple[_Section, ...]
    symbols: tuple[_Symbol, ...]

    def data(self, name: str) -> bytes:
        return next((section.data for section in self.sections if section.name == name), b"")

    def size(self, name: str) -> int:
        return next((section.size for section in self.sections if section.name == name), 0)


def architecture(arch: str) -> int:
    """Returns ``sm_90`` or ``sm_90a`` as a number: 90.

    Raises:
        BuildError: if it is no real architecture.
    """
    match = _ARCHITECTURE.fullmatch(arch)
    if not match:
        raise BuildError("an architecture reads like sm_90 or sm_90a", repr(arch))
    return int(match[1])


def read_cubin(data: bytes, arch: str, spills: Mapping[str, int] | None = None) -> Cubin:
    """Returns a cubin's kernels and what they use.

    Args:
        spills: for each kernel, the bytes of spill stores and loads in the compiler's messages: the file does
            not separate spills from local arrays.

    Raises:
        BuildError: if ``data`` is no cubin, or a damaged one.
    """
    number = architecture(arch)
    try:
        elf = _read_elf(data)
        shared = _attributes_by_symbol(elf)
        kernels = {
            symbol.name: _resources(elf, index, shared, number, (spills or {}).get(symbol.name))
            for index, symbol in enumerate(elf.symbols)
            if symbol.kind == _FUNCTION and symbol.other & _ENTRY and symbol.section
        }
    except (struct.error, ValueError, IndexError) as error:
        raise BuildError("a cubin must be a whole ELF file for CUDA", error, "Build it again.") from None
    return Cubin(arch, data, kernels)


def _resources(
    elf: _Elf, index: int, common: Mapping[tuple[int, int], int], arch: int, spilled: int | None
) -> Resources:
    symbol = elf.symbols[index]
    code = elf.sections[symbol.section]
    # CUDA 13 leaves the header's count empty from 9.0 on; older compilers need not write the attribute.
    registers = common.get((_REGISTERS, index), code.info >> 24)
    if registers == 0:
        raise ValueError(f"no count of registers for {symbol.name}")
    stack = max(common.get((_FRAME_SIZE, index), 0), common.get((_MIN_STACK_SIZE, index), 0))
    shared = max(0, elf.size(f".nv.shared.{symbol.name}") - _reserved_shared(elf, arch))
    constants = sorted(
        (section.name.removesuffix(symbol.name), section.data)
        for section in elf.sections
        if section.name.startswith(".nv.constant") and section.name.endswith(f".{symbol.name}")
    )
    parts = [part for bank, values in constants for part in (bank.encode(), values)]
    return Resources(
        registers=registers,
        spill_bytes=stack if spilled is None else spilled,
        shared_bytes=shared,
        stack_bytes=stack,
        max_threads=_max_threads(elf.data(f".nv.info.{symbol.name}")),
        code_bytes=code.size,
        code_hash=_digest(code.data, struct.pack("<III", registers, stack, shared), *parts),
    )


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(struct.pack("<Q", len(part)) + part)
    return digest.hexdigest()[:16]


def _reserved_shared(elf: _Elf, arch: int) -> int:
    values = (symbol.value for symbol in elf.symbols if symbol.name == _RESERVED_SHARED)
    return next(values, _RESERVED_SHARED_BYTES if arch >= 90 else 0)


def _max_threads(info: bytes) -> int | None:
    """Returns the number of threads of a block by the kernel's launch bounds: the required number, else the
    maximum, else None.
    """
    blocks = {
        code: struct.unpack_from("<III", payload)
        for code, payload in _attributes(info)
        if code in (_MAX_THREADS, _REQUIRED_THREADS)
    }
    block = blocks.get(_REQUIRED_THREADS, blocks.get(_MAX_THREADS))
    return None if block is None else prod(block)


def _attributes_by_symbol(elf: _Elf) -> dict[tuple[int, int], int]:
    """Returns the values of the functions' attributes in the module, by attribute and index of the function's
    symbol.
    """
    found: dict[tuple[int, int], int] = {}
    for code, payload in _attributes(elf.data(".nv.info")):
        if code in (_REGISTERS, _FRAME_SIZE, _MIN_STACK_SIZE):
            symbol, value = struct.unpack_from("<II", payload)
            found[code, symbol] = value
    return found


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the attributes of a section ``.nv.info`` that have a payload."""
    at = 0
    while at < len(info):
        form, code, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield code, _slice(info, at, size)
            at += size


def _read_elf(data: bytes) -> _Elf:
    identity, _, machine, _, _, _, table, *_, entry_bytes, entries, names_at = _HEADER.unpack_from(data)
    if identity[:6] != b"\x7fELF\x02\x01" or machine != _MACHINE_CUDA:
        raise ValueError("another kind of file")
    headers = [_SECTION.unpack_from(data, table + i * entry_bytes) for i in range(entries)]
    names = _contents(data, headers[names_at])
    sections = tuple(
        _Section(_text(names, header[0]), header[1], header[6], header[7], header[5], _contents(data, header))
        for header in headers
    )
    symbols = next((section for section in sections if section.kind == _SYMBOL_TABLE), None)
    if symbols is None:
        raise ValueError("no symbols")
    strings = sections[symbols.link].data
    return _Elf(
        sections,
        tuple(
            _Symbol(_text(strings, name), kind & 0xF, other, section, value)
            for name, kind, other, section, value, _ in _SYMBOL.iter_unpack(symbols.data)
        ),
    )


def _contents(data: bytes, header: tuple[int, ...]) -> bytes:
    return b"" if header[1] in (0, _NO_BITS) else _slice(data, header[4], header[5])


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError(f"it ends after {len(data)} bytes")
    return data[at : at + size]


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()

"""Runs NVRTC as a command: ``python -m dietlab.targets.cuda.lowering.nvrtc LIBRARY [FLAG ...] -o CUBIN
SOURCE``.

The library compiles inside the process that loads it. A separate process can be ended when it takes too long,
and a crash stays there. This module reports as nvcc does, and needs the standard library only.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status; messages go to standard output."""
    library, *rest = arguments
    try:
        nvrtc = ctypes.CDLL(library)
    except OSError as error:
        print(f"nvrtc: error: {error}")
        return 1
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    if rest == ["--version"]:
        print(_version(nvrtc, Path(library)))
        return 0
    *flags, _, cubin, source = rest
    log, data = _compile(nvrtc, Path(source), flags)
    print(log)
    if data is None:
        return 1
    Path(cubin).write_bytes(data)
    return 0


def _version(nvrtc: ctypes.CDLL, library: Path) -> str:
    """Returns the library's release and its file's size, since patch releases share a number."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}, {library.stat().st_size} bytes"


def _compile(nvrtc: ctypes.CDLL, source: Path, flags: Sequence[str]) -> tuple[str, bytes | None]:
    """Returns the messages and the cubin; None for the cubin if compiling failed."""
    program = ctypes.c_void_p()
    text, name = source.read_bytes(), source.name.encode()
    failed = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    if failed:
        return _error(nvrtc, failed), None
    options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    failed = nvrtc.nvrtcCompileProgram(program, len(flags), options)
    log = _fetch(nvrtc, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
    if failed:
        return f"{log}\n{_error(nvrtc, failed)}", None
    return log, _fetch(nvrtc, "CUBIN", program)


def _error(nvrtc: ctypes.CDLL, code: int) -> str:
    return f"nvrtc: error: {nvrtc.nvrtcGetErrorString(code).decode()}"


def _fetch(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An nvcc whose cubins also run on the stub driver: ``python -m cuda_emulation.nvcc NVCC ARGUMENTS``.

The real compiler runs with the same arguments. The emulator library of the same source is put behind its
cubin, where readers of the cubin do not look.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .fake_driver import image


def write_wrapper(path: Path, compiler: Sequence[str], flags: Sequence[str] = ()) -> None:
    """Writes an executable that stands for ``compiler`` and ``flags``; it needs nothing of its caller's
    environment."""
    words = " ".join(f"'{word}'" for word in (sys.executable, "-m", __name__, *compiler))
    places = f"'{Path(__file__).parent.parent}'"
    more = " ".join(f"'{flag}'" for flag in flags)
    path.write_text(f'#!/bin/sh\nPYTHONPATH={places} exec {words} {more} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def main(command: Sequence[str]) -> int:
    """Runs the compiler and extends what it made; returns its exit status."""
    child = subprocess.Popen(command)
    if "-o" not in command:
        return child.wait()
    emulated = image(Path(command[-1]).read_text(encoding="utf-8"))
    if child.wait() == 0:
        with Path(command[command.index("-o") + 1]).open("ab") as cubin:
            cubin.write(emulated)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

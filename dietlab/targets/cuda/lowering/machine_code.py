"""Reads a cubin's machine code: the instructions of its loops, and the width of its stores.

NVIDIA's ``cuobjdump`` prints it; it calls ``nvdisasm``. Both are packages for Python (``pip install
'dietlab[cuda]'``) and parts of the CUDA toolkit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from dietlab.base.errors import BuildError, MissingDependencyError
from dietlab.targets.cuda.lowering.cubin import Cubin
from dietlab.targets.cuda.nvidia_packages import package_folders

TOOL, ASSISTANT = "cuobjdump", "nvdisasm"

MULTIPLYING = ("FFMA", "HMMA", "HGMMA")
"""The instructions that multiply and add: on CUDA cores, on tensor cores for one warp, and for four warps."""

DIVIDING = ("I2F", "F2I", "MUFU")
"""The instructions of an integer division in addition to multiplications: conversions, an approximate
reciprocal."""

TWO_BYTES = re.compile(r"STG\S*\.[US]16")
PRINT_SECONDS = 120.0
"""The longest that printing one cubin may take, in seconds."""

_FUNCTION = re.compile(r"\s*Function : (\S+)")
_LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_GUARD = re.compile(r"@!?U?P\w+\s+")
_BRANCH = re.compile(r"BRA\S*\s.*?0x([0-9a-f]+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its address in the kernel, and its text without the guard."""

    address: int
    text: str

    @property
    def name(self) -> str:
        """The operation with its modifiers, such as ``STG.E.128``."""
        return self.text.split()[0]

    @property
    def family(self) -> str:
        """The operation, such as ``STG``."""
        return self.name.split(".")[0]


@dataclass(frozen=True)
class MachineCode:
    """The instructions of one kernel, in order."""

    instructions: tuple[Instruction, ...] = field(repr=False)

    @cached_property
    def loops(self) -> tuple[tuple[Instruction, ...], ...]:
        """The innermost loops: from a branch's target to the branch back to it."""
        places = {each.address: number for number, each in enumerate(self.instructions)}
        spans = []
        for number, each in enumerate(self.instructions):
            target = _BRANCH.match(each.text)
            first = places.get(int(target[1], 16)) if target else None
            if first is not None and first < number:
                spans.append((first, number + 1))
        inner = [
            one
            for one in spans
            if not any(other != one and one[0] <= other[0] and other[1] <= one[1] for other in spans)
        ]
        return tuple(self.instructions[a:b] for a, b in inner)

    @property
    def main_loop(self) -> Counter[str]:
        """The counts of operations in the loop that multiplies most, or in a whole kernel without loops."""
        counted = [Counter(each.family for each in loop) for loop in self.loops or (self.instructions,)]
        return max(counted, key=_multiplying)

    @property
    def multiplying_percent(self) -> float:
        """The percentage of the main loop's instructions that multiply."""
        loop = self.main_loop
        return 100.0 * _multiplying(loop) / max(1, loop.total())

    @property
    def divisions(self) -> int:
        """The number of instructions in loops that belong to divisions of integers."""
        return sum(each.family in DIVIDING for loop in self.loops for each in loop)

    @property
    def stores(self) -> int:
        """The number of stores to memory."""
        return sum(each.family == "STG" for each in self.instructions)

    @property
    def two_byte_stores(self) -> int:
        """The number of stores to memory of two bytes each."""
        return sum(bool(TWO_BYTES.match(each.name)) for each in self.instructions)

    @property
    def narrowest_copy(self) -> int:
        """The number of bits of the narrowest load from memory."""
        copies = [each.name for each in self.instructions if each.family in ("LDGSTS", "LDG")]
        return min(map(_bits, copies), default=0)

    @property
    def spills(self) -> int:
        """The number of stores to and loads from a thread's local memory."""
        return sum(each.family in ("STL", "LDL") for each in self.instructions)

    @property
    def most_loads(self) -> int:
        """The most bytes, in units of 4, of generic loads without a store between them. Such loads read other
        blocks' shared memory."""
        most = run = 0
        for each in self.instructions:
            if each.family == "LD":
                run += _bits(each.name) // 32
                most = max(most, run)
            elif each.family in ("STG", "STS", "ST"):
                run = 0
        return most


def _multiplying(counts: Counter[str]) -> int:
    return sum(counts[name] for name in MULTIPLYING)


def _bits(name: str) -> int:
    """Returns the number of bits that one load brings to a thread."""
    return next((bits for bits in (128, 64, 16, 8) if re.search(rf"\.[US]?{bits}\b", name)), 32)


def machine_code(cubin: Cubin) -> Mapping[str, MachineCode]:
    """Returns the machine code of a cubin's kernels, by name.

    Raises:
        MissingDependencyError: if ``cuobjdump`` or ``nvdisasm`` is not installed.
        BuildError: if the tool fails.
    """
    tool = require_tool()
    with TemporaryDirectory(prefix="dietlab-cuda-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin.data)
        done = subprocess.run(
            [str(tool), "-sass", str(path)],
            capture_output=True,
            text=True,
            timeout=PRINT_SECONDS,
            env={**os.environ, "PATH": _beside(tool)},
            check=False,
        )
    if done.returncode:
        raise BuildError(f"{TOOL} must be able to print a cubin", done.stderr.strip() or done.returncode)
    return dict(parse(done.stdout))


def figures(kernels: Mapping[str, MachineCode]) -> dict[str, float]:
    """Returns counts of the kernel whose narrowest copy is widest; of several such kernels, the one with the
    most multiplying instructions.

    ``loop_instructions`` counts the instructions of its main loop; ``multiplying_percent`` of them multiply.
    ``divisions`` counts instructions of integer divisions in loops, the most of any kernel. ``stores`` counts
    all stores to memory, ``two_byte_stores`` the stores of two bytes, and ``loads_together`` is
    ``most_loads``.
    """
    if not kernels:
        return {}
    kernel = max(kernels.values(), key=lambda each: (each.narrowest_copy, each.multiplying_percent))
    return {
        "loop_instructions": kernel.main_loop.total(),
        "multiplying_percent": round(kernel.multiplying_percent, 1),
        "divisions": max(each.divisions for each in kernels.values()),
        "stores": kernel.stores,
        "two_byte_stores": kernel.two_byte_stores,
        "loads_together": kernel.most_loads,
    }


def parse(text: str) -> Iterator[tuple[str, MachineCode]]:
    """Yields the kernels of a printed cubin: name and machine code."""
    name, found = "", list[Instruction]()
    for line in text.splitlines():
        if title := _FUNCTION.match(line):
            if name:
                yield name, MachineCode(tuple(found))
            name, found = title[1], []
        elif name and (match := _LINE.match(line)):
            found.append(Instruction(int(match[1], 16), _GUARD.sub("", match[2], count=1)))
    if name:
        yield name, MachineCode(tuple(found))


def find_tool() -> Path | None:
    """Returns the path of a ``cuobjdump``, in a Python package or on the PATH, that finds ``nvdisasm``; else
    None."""
    packaged = os.pathsep.join(str(folder / "bin") for folder in package_folders())
    for path in (packaged, os.environ.get("PATH", "")):
        found = shutil.which(TOOL, path=path)
        if found and shutil.which(ASSISTANT, path=_beside(Path(found))):
            return Path(found)
    return None


def _beside(tool: Path) -> str:
    """Returns the search path of a tool: its own folder first."""
    return os.pathsep.join([str(tool.parent), os.environ.get("PATH", "")])


def require_tool() -> Path:
    """Returns ``cuobjdump``.

    Raises:
        MissingDependencyError: if it or ``nvdisasm`` is not installed.
    """
    found = find_tool()
    if found is None:
        remedy = "pip install 'dietlab[cuda]', or put the CUDA toolkit's programs on the PATH."
        raise MissingDependencyError(f"{TOOL} and {ASSISTANT} must be installed", "not both of them", remedy)
    return found

"""The result of compiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dietlab.machine.instruction_sets import Requirements


@dataclass(frozen=True)
class Artifact:
    """A compiled shared library.

    Args:
        code_bytes: the size of machine code and constants, in bytes: the allocated sections of a CPU's object
            file, or those of the kernels in a cubin.
        code_hash: a hash that is equal for equal code.
        packs: whether constant operands are packed.
        requires: the requirements of the code on the machine that runs it; None if unknown.
        resources: for each resource, the largest use of any of the GPU's kernels: registers of a thread,
            spilled bytes, shared memory of a block (its launch's included), and blocks that fit a
            multiprocessor. Empty for a CPU.
        source: the CUDA C++ that TVM generated; empty for a CPU.
    """

    path: Path
    code_bytes: int
    code_hash: str
    seconds: float
    packs: bool = False
    requires: Requirements | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    source: str = field(default="", repr=False)

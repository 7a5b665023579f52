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
        code_bytes: machine code and constants (a CPU object file's allocated sections as the file holds
            them; the kernels' of a cubin).
        code_hash: equal for equal code.
        packs: whether constant operands are packed.
        requires: what the code asks of the machine that runs it; None if it does not tell.
        resources: what the GPU's kernels really use, the most of all of them: registers of a thread,
            spilled bytes, shared memory of a block with what its launch adds, blocks that fit a
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

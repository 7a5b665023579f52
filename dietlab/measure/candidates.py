"""Candidates of tuning as a contender: one library for each scheme, asked for by its path.

Libraries that are asked for in turns stay loaded, with their packed weights: many pack them alike, and share
the copies of a rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.lower.runtime import aligned_empty, as_tensor, load_library, on_each_thread
from dietlab.shapes import Shape
from dietlab.timing.contender import Array, Call, Operands, Plan
from dietlab.timing.lru_by_bytes import LruByBytes
from dietlab.timing.problem import aligned
from dietlab.workloads import FloatArray, Workload

KEPT_BYTES = 1 << 29
"""The most bytes of packed weights and their copies that stay in memory. With 32 MB of last-level cache,
those of seven layers do."""

KEPT_LIBRARIES = 256
"""The most libraries that stay loaded, the latest ones; another is loaded, and packs, again."""


class Candidates:
    """The libraries of one workload's candidates on one kind of processor (``cpu`` or ``cuda``).

    Args:
        cores: how many a library computes with.
    """

    def __init__(self, kind: str, cores: int) -> None:
        self.library = lru_cache(KEPT_LIBRARIES)(lambda path: Library(path, kind, cores))
        self._packed: LruByBytes[list[FloatArray]] = LruByBytes(
            KEPT_BYTES, lambda copies: sum(packed.nbytes for packed in copies)
        )
        self.on_each = partial(on_each_thread, cores)

    def kind(self, workload: Workload) -> str:
        return "library"

    def version(self) -> str:
        return ""

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> PreparedCandidates:
        return PreparedCandidates(self, workload, constants)

    def copied(self, prepared: PreparedCandidates) -> PreparedCandidates:
        return replace(prepared, number=prepared.number + 1)

    def packed(self, library: Library, constants: Operands, number: int) -> FloatArray:
        """Returns a copy of the packed weights by its number. It is made of what is in them, which is the
        same for most libraries of a workload."""
        layer = constants["w"].shape

        def pack() -> list[FloatArray]:
            return [library.pack(constants)]

        if layer in library.contents:
            copies = self._packed.get(library.contents[layer], pack)
        else:
            first = pack()
            library.contents[layer] = sha256(first[0].data).digest()
            copies = self._packed.get(library.contents[layer], lambda: first)
        copies += [aligned(copies[0]) for _ in range(number + 1 - len(copies))]
        return copies[number]


class Library:
    """A candidate's library; ``contents`` is the digest of its packed weights, by their shape."""

    def __init__(self, path: str, kind: str, cores: int) -> None:
        self._module = load_library(Path(path), kind, cores=cores)
        self.run: Callable[..., object] = self._module.run
        self.packs = bool(self._module.implements_function("pack"))
        self.contents: dict[tuple[int, ...], bytes] = {}

    def pack(self, constants: Operands) -> FloatArray:
        packed = aligned_empty((int(self._module.packed_floats(*constants["w"].shape)),))
        packed.fill(0.0)  # where no weight is written, too, they are equal
        self._module.pack(*map(_tensor, constants.values()), packed)
        return packed


@dataclass(frozen=True)
class PreparedCandidates:
    """A shape's candidates with constant operands; ``number`` is that of the copy of packed weights."""

    candidates: Candidates
    workload: Workload
    constants: Operands
    number: int = 0

    def bind(self, operands: Operands, out: Array, plan: Plan) -> Call:
        library = self.candidates.library(str(plan))
        given = {**self.constants, **operands}
        if library.packs:
            x, *others = operands.values()
            arrays = [x, self.candidates.packed(library, self.constants, self.number), *others, out]
        else:
            arrays = [*(given[name] for name in self.workload.signature if name != "out"), out]
        return partial(library.run, *map(_tensor, arrays))


def _tensor(array: Array) -> Any:
    return as_tensor(array) if isinstance(array, np.ndarray) else array

"""The candidates of a tuning as one contender. Each scheme has a library, which is named by its path.

Libraries stay loaded between turns. Libraries with the same layout of packed weights share one array. A
rotation uses parts of an arena in place of copies of packed weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.lower.runtime import ALIGNMENT_BYTES, aligned_empty, as_tensor, load_library, on_each_thread
from dietlab.measure.timing.contender import Array, Call, Operands, Plan
from dietlab.measure.timing.lru_by_bytes import LruByBytes
from dietlab.measure.timing.rotation import Arena
from dietlab.problem import FloatArray, Shape, Workload

KEPT_BYTES = 1 << 26
"""The most bytes of packed weights in memory: for example four layers of 16 MB, or one layer in four layouts.
Checks, and timing with weights in a cache, use these weights."""

KEPT_LIBRARIES = 256
"""The most libraries that stay loaded. A dropped library must be loaded, and must pack its weights, again."""


class Candidates:
    """The libraries of a workload's candidates on one kind of processor (``cpu`` or ``cuda``). The arena is
    used in place of copies of packed weights; the arena is None if libraries do not pack."""

    def __init__(self, kind: str, cores: int, arena: Arena | None = None) -> None:
        self._arena = arena
        self.library = lru_cache(KEPT_LIBRARIES)(lambda path: Library(path, kind, cores))
        self._packed: LruByBytes[FloatArray] = LruByBytes(KEPT_BYTES, lambda packed: packed.nbytes)
        self.on_each = partial(on_each_thread, cores)

    def kind(self, workload: Workload) -> str:
        return "library"

    def version(self) -> str:
        return ""

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> PreparedCandidates:
        return PreparedCandidates(self, workload, constants)

    def copied(self, prepared: PreparedCandidates) -> PreparedCandidates:
        return replace(prepared, copied=True)

    def packed(self, library: Library, constants: Operands, *, copied: bool) -> FloatArray:
        """Returns packed weights or, if ``copied``, the next part of the arena: a call takes the same time on
        the arena as on a copy. Packed weights are cached by their contents: most libraries of a workload have
        equal ones."""
        layer = constants["w"].shape
        if layer not in library.weights:
            packed = library.pack(constants)
            header = packed[: ALIGNMENT_BYTES // packed.itemsize].tobytes()
            library.weights[layer] = Weights(sha256(packed.data).digest(), header, packed.shape)
            self._packed.get(library.weights[layer].digest, lambda: packed)
        known = library.weights[layer]
        if not copied:
            return self._packed.get(known.digest, lambda: library.pack(constants))
        assert self._arena is not None
        return self._arena.take({"w": known.like}, packed=True, header=known.header)["w"]


@dataclass(frozen=True)
class Weights:
    """A description of packed weights that need not be in memory.

    Args:
        digest: a hash of the contents.
        header: the first cache line, with the tag by which a library recognises its weights.
    """

    digest: bytes
    header: bytes
    shape: tuple[int, ...]

    @property
    def like(self) -> FloatArray:
        """An array of this shape that takes no memory."""
        return np.broadcast_to(np.empty(1, np.float32), self.shape)


class Library:
    """A candidate's library; ``weights`` maps the shape of a layer's weights to a description of its packed
    weights."""

    def __init__(self, path: str, kind: str, cores: int) -> None:
        self._module = load_library(Path(path), kind, cores=cores)
        self.run: Callable[..., object] = self._module.run
        self.packs = bool(self._module.implements_function("pack"))
        self.weights: dict[tuple[int, ...], Weights] = {}

    def pack(self, constants: Operands) -> FloatArray:
        packed = aligned_empty((int(self._module.packed_floats(*constants["w"].shape)),))
        packed.fill(0.0)  # so that equal weights have equal contents, also where none is written
        self._module.pack(*map(_tensor, constants.values()), packed)
        return packed


@dataclass(frozen=True)
class PreparedCandidates:
    """A shape's candidates with constant operands; with ``copied``, they use the arena in place of copies."""

    candidates: Candidates
    workload: Workload
    constants: Operands
    copied: bool = False

    def bind(self, operands: Operands, out: Array, plan: Plan = None) -> Call:
        library = self.candidates.library(str(plan))
        given = {**self.constants, **operands}
        if library.packs:
            x, *others = operands.values()
            packed = self.candidates.packed(library, self.constants, copied=self.copied)
            arrays = [x, packed, *others, out]
        else:
            arrays = [*(given[name] for name in self.workload.signature if name != "out"), out]
        return partial(library.run, *map(_tensor, arrays))


def _tensor(array: Array) -> Any:
    return as_tensor(array) if isinstance(array, np.ndarray) else array

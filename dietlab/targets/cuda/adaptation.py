"""The adaptation cost of thread-block tiles on a GPU, by the paper's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from dietlab.cost.bundle import Bundle, Calls, FiveParts, Formulas, Rows, Sizes, Speed
from dietlab.cost.formulas import FloatArray, f_occ
from dietlab.measure import Record
from dietlab.problem import IntArray, precision_of
from dietlab.scheme import Scheme
from dietlab.targets.cuda.bound import LAUNCH_SECONDS
from dietlab.targets.cuda.features import CUDA_FEATURES, cuda_features
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import compiled_registers, shared_bytes
from dietlab.targets.cuda.occupancy import blocks_per_sm

Own = TypeVar("Own", bound="BlockAdaptation")

IMBALANCE = (1.433, 2.14)
"""The factor ``c`` of ``f_occ``, for less than one wave of blocks and for more: the paper's fit on a T4
(section 3.3)."""

EDGE_STEPS = 3.0
"""The cost of a block's prologue (the first fetch, which nothing overlaps) and epilogue, in reduction
steps."""

CLUSTER_STEPS = 2.0
"""The cost of adding up the sums of a cluster's blocks, in reduction steps; an estimate."""

SPENT_SHARE = 0.2
"""The least share of a measured time that counts as computing. An inexact clock could leave less, or nothing,
after the launch is subtracted."""


@dataclass(frozen=True)
class BlockAdaptation(Formulas):
    """The part of the adaptation of thread blocks that the paper's formulas and the bound share.

    Args:
        resident: for each micro-kernel with records, the number of blocks that fit a multiprocessor. For
            other micro-kernels, the number is estimated from sizes.
    """

    FEATURES = CUDA_FEATURES
    DEALT = 0.1
    """The share of a space from which a search takes schemes, namely the schemes with the least bound. The
    others take a multiple of the best time, so measuring them says little about the good ones."""

    resident: Mapping[CudaMicroKernel, int] = field(default_factory=dict, hash=False, compare=False)

    def features(self, schemes: Sequence[CudaScheme]) -> Rows:
        """Returns the features of the schemes' micro-kernels."""
        return cuda_features([scheme.kernel for scheme in schemes], self.workload, self.hardware)

    def loops(self, kernel: CudaMicroKernel) -> tuple[int, int]:
        """Returns two numbers: of steps in a stage, and of threads in a block."""
        return kernel.step, kernel.threads

    @property
    def levels(self) -> dict[str, int]:
        """The sizes of a block's shared memory and of L2."""
        shared = gpu_of(self.hardware).smem_per_block_bytes
        return {"shared memory": shared, "the last level": self.hardware.last_level_bytes}

    def fitted(self: Own, records: Sequence[Record], throughput: Speed | None = None) -> Own:
        """Returns the adaptation with the number of blocks that fit a multiprocessor by the compiler's
        reports.
        """
        known = {r.scheme.kernel: r.resources["blocks_per_sm"] for r in records if r.resources}
        return replace(self, resident=known)

    @property
    def constants(self) -> dict[str, Any]:
        """The number of resident blocks by micro-kernel."""
        return {"resident": {kernel.key: blocks for kernel, blocks in self.resident.items()}}

    def with_constants(self: Own, value: Mapping[str, Any]) -> Own:
        """Returns the adaptation with the numbers of resident blocks from a file."""
        known = value.get("resident", {}).items()
        return replace(self, resident={Scheme.from_key(key).kernel: blocks for key, blocks in known})

    def places(self, kernel: CudaMicroKernel) -> int:
        """Returns the number of blocks that fit a multiprocessor at once, 1 or more."""
        known = self._places.get(kernel)
        if known is None:
            shared = shared_bytes(kernel, precision_of(self.workload).itemsize)
            registers = compiled_registers(kernel, gpu_of(self.hardware))
            known = max(1, blocks_per_sm(gpu_of(self.hardware), kernel.threads, registers, shared))
            self._places[kernel] = known
        return known

    @cached_property
    def _places(self) -> dict[CudaMicroKernel, int]:
        """The cache of :meth:`places`, which every prediction needs."""
        return {kernel: max(1, blocks) for kernel, blocks in self.resident.items()}

    def sizes(self, scheme: CudaScheme) -> Sizes:
        kernel = scheme.kernel
        # Blocks that share a reduction take equally many steps, or wait as long.
        step = kernel.step * kernel.splits
        more = {
            "splits": kernel.splits,
            "ending": kernel.ending,
            "shared_step": step,
            "places": self.places(kernel),
        }
        group, sizes, paid = super().sizes(scheme)
        return Sizes(group, {**sizes, **more}, {**paid, "depth": step})

    @staticmethod
    def _works(bundle: Bundle, calls: Calls) -> list[tuple[IntArray, FloatArray]]:
        """Returns each region's height and its executed flops with padding. If blocks share a reduction, each
        counts as many steps as the block with most.
        """
        columns = bundle["cols"] * bundle.column_tiles(calls)
        depth = bundle["shared_step"] * _own_steps(bundle, calls)
        area = np.asarray(2.0 * columns * depth * calls["batch"], np.float64)
        return [(height, area * (height * tiles)) for height, tiles in bundle.tiles(calls)]

    @staticmethod
    def _blocks(bundle: Bundle, calls: Calls) -> IntArray:
        """Returns the number of blocks of a call."""
        tiles = np.asarray(sum(count for _, count in bundle.tiles(calls)))
        return np.asarray(tiles * bundle.column_tiles(calls) * calls["batch"] * bundle["splits"])


@dataclass(frozen=True)
class CudaAdaptation(BlockAdaptation):
    """The paper's adaptation of thread blocks; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    The GPU has ``C = multiprocessors x blocks a multiprocessor`` places for blocks. ``g`` blocks take whole
    waves, ``G = C ceil(g / C)`` places, and pay for the empty places in part (paper, section 3.3)::

        seconds = launch + padded flops / (f_mk * multiprocessors * f_occ)     f_occ = c g / ((c - 1) g + G)
    """

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        return bundle.useful(calls) * self._busy(bundle, calls)

    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        works = self._works(bundle, calls)
        padded = sum((work / (bundle.speed(h) * self.hardware.cores) for h, work in works), np.zeros(1))
        edges, useful = padded * _edges(bundle, calls), bundle.useful(calls)
        idle = (padded + edges) * (1 / self._busy(bundle, calls) - 1)
        launched = edges + (calls["rows"] > 0) * LAUNCH_SECONDS
        return FiveParts(padded * useful, launched, padded * (1 - useful), 0.0 * padded, idle)

    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        works = [work for _, work in self._works(bundle, calls)]
        paid = sum(works, np.zeros(1)) * (1 + _edges(bundle, calls))
        return np.asarray(paid / (self._busy(bundle, calls) * self.hardware.cores * computing(seconds)))

    def _busy(self, bundle: Bundle, calls: Calls) -> FloatArray:
        blocks, places = self._blocks(bundle, calls), self.hardware.cores * bundle["places"]
        below, above = IMBALANCE
        # Where blocks share the last wave, it is a part of a wave.
        return f_occ(blocks * bundle["ending"], places, np.where(blocks < places, below, above))


def computing(seconds: FloatArray) -> FloatArray:
    """Returns measured seconds without the launch."""
    return np.asarray(np.maximum(seconds - LAUNCH_SECONDS, SPENT_SHARE * seconds))


def _own_steps(bundle: Bundle, calls: Calls) -> IntArray:
    """Returns the number of steps of the reduction that a block takes."""
    return -(-calls["depth"] // bundle["shared_step"])


def _edges(bundle: Bundle, calls: Calls) -> FloatArray:
    """Returns the cost of prologue, epilogue and reduction across blocks, in units of the multiply-adds."""
    steps = EDGE_STEPS + np.where(bundle["splits"] > 1, CLUSTER_STEPS, 0.0)
    return np.asarray(steps / np.maximum(1, _own_steps(bundle, calls)))

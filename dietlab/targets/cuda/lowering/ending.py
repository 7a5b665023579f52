"""The last wave of a launch in a generated program: its clusters, and a block's tile and share of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tvm import tirx

from dietlab.targets.cuda.ending import ADDING_STEPS, places_for
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import BlockGeometry, Share
from dietlab.targets.cuda.lowering.layout import Worker
from dietlab.targets.cuda.lowering.tir import bound, ceil_div, int32

AnyWorker = TypeVar("AnyWorker", bound=Worker)


@dataclass(frozen=True)
class Ending:
    """The clusters of a launch (int32): those whose blocks have a tile each, and then those with one tile.

    Args:
        blocks: the number of blocks of a cluster.
        tiles: the number of tiles.
        whole, shared: the number of clusters of each kind.
    """

    blocks: int
    tiles: Any
    whole: Any
    shared: Any

    @classmethod
    def of(cls, blocks: int, held: int, tiles: Any, steps: Any) -> Ending:
        """Returns on the host what :func:`~dietlab.targets.cuda.ending.rounds_of_ending` says of a launch."""
        left = tirx.truncmod(tiles, int32(held))
        rounds = ceil_div(left * int32(blocks), held)
        pays = rounds * (ceil_div(steps, blocks) + int32(ADDING_STEPS)) < steps
        shared = tirx.Select(pays, left, int32(0))
        return cls(blocks, tiles, ceil_div(tiles - shared, blocks), shared)

    def emitted(self) -> Ending:
        """Emits the counts on the host, as variables that a kernel takes."""
        counts = {
            "whole": bound("whole_clusters", self.whole),
            "shared": bound("ending_clusters", self.shared),
        }
        return replace(self, **counts)

    @property
    def clusters(self) -> Any:
        """The number of all clusters."""
        return self.whole + self.shared

    def tile(self, cluster: Any, rank: Any) -> Any:
        """Returns the number of a block's tile. Some blocks of the last cluster may have a number beyond all
        tiles, and no tile."""
        alone = cluster * int32(self.blocks) + rank
        return tirx.Select(cluster >= self.whole, self.whole * int32(self.blocks - 1) + cluster, alone)

    def share(self, cluster: Any, rank: Any) -> Share:
        """Returns a block's share of its tile."""
        together = cluster >= self.whole
        apart = tirx.Select(together, int32(self.blocks), int32(1))
        return Share(together, apart, tirx.Select(together, rank, int32(0)))


def ending_of(kernel: CudaMicroKernel, geometry: BlockGeometry, tiles: Any, depth: Any) -> Ending:
    """Emits on the host the clusters of a launch; ``kernel`` is the micro-kernel of the plan's tallest
    tiles."""
    held = places_for(kernel, geometry.hardware, geometry.itemsize)
    return Ending.of(kernel.ending, held, tiles, int32(ceil_div(depth, kernel.step))).emitted()


def workers_of(worker: AnyWorker) -> tuple[AnyWorker, AnyWorker]:
    """Returns a worker as one of a block that shares its tile, and as one of a block that has it alone."""
    kernel = worker.kernel
    kinds = replace(kernel, splits=kernel.ending, ending=1), replace(kernel, ending=1)
    together, alone = (replace(worker, layout=replace(worker.layout, kernel=kind)) for kind in kinds)
    return together, alone

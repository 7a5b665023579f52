"""The last wave of a launch: whether the blocks of a cluster share its tiles.

For example, 20 tiles on 8 places, in clusters of two blocks::

    one block a tile                     the last wave shared
    0 .. 7     all steps                 0 .. 7       all steps
    8 .. 15    all steps                 8 .. 15      all steps
    16 .. 19   all steps, 4 places idle  16 .. 19     by two blocks each: half of the steps, and adding up
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dietlab.machine import Hardware
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import compiled_registers, shared_bytes
from dietlab.targets.cuda.occupancy import blocks_per_sm

CLUSTER_GROUPS, PAIR = 8, 2
"""The number of groups of multiprocessors, and the number of multiprocessors in a pair. A cluster lies within
one group, and sizes of groups differ by pairs: on average a group leaves half of a cluster less a pair empty.
With 128 blocks in clusters of four, one block a multiprocessor, some blocks start only when others are done:
on an H200 (``data/h200``, T = 1) 16 steps of 128 blocks take 28 us, and 16 steps of 88 blocks take 16 us."""

ADDING_STEPS = 8
"""The cost of a shared tile in steps of the reduction in addition to its own: its blocks begin, and add up
their sums. An estimate: the bound has 4,200 cycles for a tile of 128 x 128, and 500 for its step."""


def places(cluster: Any, resident: Any, multiprocessors: Any) -> Any:
    """Returns the number of blocks that a GPU holds at once. A cluster must fit whole into a group of
    multiprocessors."""
    found = multiprocessors * resident
    empty = CLUSTER_GROUPS * np.maximum(0, cluster - PAIR * resident) / 2
    return np.asarray(np.where(cluster > 1, cluster * np.maximum(1, (found - empty) // cluster), found))


def places_for(kernel: CudaMicroKernel, hardware: Hardware, itemsize: int) -> int:
    """Returns the same number for a micro-kernel, from the estimate of its registers."""
    gpu = gpu_of(hardware)
    registers, shared = compiled_registers(kernel, gpu), shared_bytes(kernel, itemsize)
    resident = max(1, blocks_per_sm(gpu, kernel.threads, registers, shared))
    return int(places(kernel.cluster, resident, hardware.cores))


def rounds_of_ending(tiles: Any, held: Any, ending: Any, steps: Any) -> Any:
    """Returns the number of rounds in which ``ending`` blocks a tile compute the tiles of the last wave; 0 if
    one block computes each of them, because the wave is full, or too full to end earlier, or steps are few.

    Args:
        tiles: the number of tiles of a launch; the last wave has those that whole waves leave over.
        held: the number of blocks that the GPU holds at once (:func:`places`).
        steps: the number of steps of a tile's reduction.
    """
    left = tiles % held
    rounds = -(-left * ending // held)
    pays = rounds * (-(-steps // ending) + ADDING_STEPS) < steps
    return np.where((left > 0) & pays, rounds, 0)

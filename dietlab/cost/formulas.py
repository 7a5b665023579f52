"""The paper's formulas for what stitching a micro-kernel over a shape loses, the same on every processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from dietlab.workloads import Role


def f_pad(sizes: Mapping[Role, int], tile: Mapping[Role, int], *, spatial_only: bool = False) -> float:
    """Returns the ratio of useful over executed multiply-adds: ``prod extent / (tile * ceil(extent /
    tile))``.

    The paper's definition (section 3.3) counts the spatial axes only (``spatial_only``); a padded
    reduction axis costs as much, so it is counted by default. An empty shape wastes nothing.
    """
    counted = [role for role in tile if not (spatial_only and role == "depth")]
    if any(sizes[role] == 0 for role in counted):
        return 1.0
    return prod(sizes[role] / (tile[role] * ceil(sizes[role] / tile[role])) for role in counted)


def padding_waste(sizes: Mapping[Role, int], tile: Mapping[Role, int]) -> float:
    """Returns the padding waste: multiply-adds that no output needs over all executed, in [0, 1)."""
    return 1.0 - f_pad(sizes, tile)


def f_occ(tiles: int, processors: int, imbalance: float | None = None) -> float:
    """Returns the occupancy: busy over paid processors for ``g`` equal tiles on ``C`` processors (paper,
    section 3.3).

    ``g / G`` with ``G = C * ceil(g / C)``. With a fitted ``imbalance`` c it is
    ``c g / ((c - 1) g + G)``, which is 1 at full waves, ``g / G`` at c = 1 and tends to 1 for large c; the
    paper fits c = 1.433 below one wave and 2.14 above on a T4.
    """
    if tiles == 0:
        return 1.0
    paid = processors * ceil(tiles / processors)
    if imbalance is None:
        return tiles / paid
    return imbalance * tiles / ((imbalance - 1) * tiles + paid)


@dataclass(frozen=True)
class Parts:
    """The predicted parts of a call's time, in seconds.

    ``compute`` is what useful multiply-adds cost at the micro-kernels' throughput on all cores;
    ``edges`` starting and storing tiles, and transposing weights on the fly; ``padding`` multiply-adds
    that no output needs; ``weights`` waiting for weights that computing does not hide; ``idle`` cores
    without work.
    """

    compute: float
    edges: float
    padding: float
    weights: float
    idle: float

    @property
    def total(self) -> float:
        return self.compute + self.edges + self.padding + self.weights + self.idle

"""The paper's formulas for the losses of stitching a micro-kernel over a shape. They are the same for every
processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from dietlab.problem import IntArray, Role

FloatArray = npt.NDArray[np.float64]


@overload
def f_pad(sizes: Mapping[Role, int], tile: Mapping[Role, int], *, spatial_only: bool = False) -> float: ...


@overload
def f_pad(
    sizes: Mapping[Role, IntArray], tile: Mapping[Role, IntArray], *, spatial_only: bool = False
) -> FloatArray: ...


def f_pad(sizes: Mapping[Role, Any], tile: Mapping[Role, Any], *, spatial_only: bool = False) -> Any:
    """Returns the number of useful multiply-adds over the number of executed ones: ``prod extent / (tile *
    ceil(extent / tile))``, for numbers or for arrays of them.

    The paper's definition (section 3.3) counts the spatial axes only (``spatial_only``); a padded
    reduction axis costs as much, so it is counted by default. An empty shape wastes nothing.

    Args:
        sizes: the extent of each axis by role, as numbers or as arrays of one size.
        tile: the tile's extents, of the same roles.
        spatial_only: whether the depth is left out.
    """
    counted = [role for role in tile if not (spatial_only and role == "depth")]
    useful = prod(sizes[role] for role in counted)
    executed = prod(tile[role] * -(-sizes[role] // tile[role]) for role in counted)
    empty = executed == 0
    return (useful + empty) / (executed + empty)


def padding_waste(sizes: Mapping[Role, int], tile: Mapping[Role, int]) -> float:
    """Returns the padding waste: the number of multiply-adds that no output needs over the number of all
    executed ones, in [0, 1).

    Args:
        sizes: extent of each axis by role.
        tile: the tile's extents, of the same roles.
    """
    return 1.0 - f_pad(sizes, tile)


@overload
def f_occ(tiles: int, processors: int, imbalance: float | None = None) -> float: ...


@overload
def f_occ(
    tiles: IntArray, processors: int | IntArray, imbalance: float | FloatArray | None = None
) -> FloatArray: ...


def f_occ(tiles: Any, processors: Any, imbalance: Any = None) -> Any:
    """Returns the occupancy, for numbers or for arrays of them: the number of busy processors over the number
    of paid ones, for ``g`` equal tiles on ``C`` processors (paper, section 3.3).

    ``g / G`` with ``G = C * ceil(g / C)``. With a fitted ``imbalance`` c it is
    ``c g / ((c - 1) g + G)``, which is 1 at full waves, ``g / G`` at c = 1 and tends to 1 for large c; the
    paper fits c = 1.433 below one wave and 2.14 above on a T4.

    Args:
        tiles: the number of tiles, all of equal cost.
        processors: the number of cores, or of blocks that a GPU runs at once.
        imbalance: the constant c, at least 1 (None: ``g / G``).
    """
    none = tiles == 0
    paid = processors * -(-tiles // processors) + none
    if imbalance is None:
        return (tiles + none) / paid
    return (imbalance * tiles + none) / ((imbalance - 1) * tiles + paid)


@dataclass(frozen=True)
class Parts:
    """The predicted parts of a call's time, in seconds.

    ``compute``: useful multiply-adds at the micro-kernels' throughput on all cores; ``edges``: starting and
    storing tiles, and transposing weights on the fly; ``padding``: multiply-adds that no output needs;
    ``weights``: waiting for weights that computing does not hide; ``idle``: cores without work.
    """

    compute: float
    edges: float
    padding: float
    weights: float
    idle: float

    @property
    def total(self) -> float:
        """The sum of the parts: the predicted seconds of the call."""
        return self.compute + self.edges + self.padding + self.weights + self.idle

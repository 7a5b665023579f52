"""Values that the steps of one tile function share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import tirx

from dietlab.lower.contraction import Sizes
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tir import int64, vector


@dataclass(frozen=True)
class Tile:
    """The values that the steps of one tile function share, named as in its signature. A matrix unit
    multiplies ``height`` rows at once, from each row of ``groups`` on."""

    kernel: CpuMicroKernel
    geometry: Geometry
    accumulators: Any
    x: Any
    w: Any
    y: Any
    residual: Any | None
    sizes: Sizes
    rows: Any | None
    cols: Any | None
    begin: Any | None
    checked: bool
    groups: tuple[Any, ...] = ()
    height: Any | None = None

    @property
    def lanes(self) -> int:
        return self.geometry.lanes

    @property
    def vectors(self) -> int:
        return self.kernel.vectors(self.lanes)

    @property
    def depth(self) -> Any:
        return self.geometry.value(self.geometry.depth, self.sizes)

    @property
    def steps(self) -> Any:
        """Steps of the reduction in one call: all, or a K-block. The last K-block may be shorter."""
        block, depth = self.kernel.block, self.depth
        if not block or (isinstance(depth, int) and depth % block == 0):
            return block or depth
        return tirx.min(int64(block), depth - self.begin)

    @property
    def width(self) -> Any:
        """Elements from one row of the output to the next."""
        return self.geometry.value(self.geometry.cols, self.sizes)

    @property
    def rows_together(self) -> int:
        """Rows that are addressed from one pointer; 0 if all are (a static depth), or each has its own."""
        return 0 if isinstance(self.depth, int) else self.geometry.lowering.rows_together

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        """The row and the vector of each accumulator."""
        return product(range(self.kernel.rows), range(self.vectors))

    def slot(self, i: Any, j: int) -> Any:
        """Returns the accumulator of row ``i`` and vector ``j``."""
        return vector(i * self.kernel.cols + j * self.lanes, self.lanes)

"""The memory layout that all micro-kernels of one library share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dietlab.hardware import Hardware
from dietlab.space import MicroKernel
from dietlab.workloads import Workload, axis_of


@dataclass(frozen=True)
class Geometry:
    """Static extents of a contraction and the layout of its packed weights.

    The constant operand ``w[cols, depth]`` is packed once into panels one vector wide::

        packed[panels][depth + has_bias][lanes]       packed[p][k][v] = w[p * lanes + v][k]

    with zeros beyond the last column. A tile of several vectors reads several panels side by
    side, so that every micro-kernel of a portfolio, whatever its width, reads the same packed
    weights. With a bias, row 0 of each panel holds it: it is the accumulators' first value.
    """

    rows: str
    cols: int
    depth: int
    lanes: int
    cores: int
    has_bias: bool
    panels: int

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware, kernels: Iterable[MicroKernel]) -> Geometry:
        """The layout wide enough for the widest last tile of ``kernels``."""
        cols, depth = axis_of(workload, "cols").extent, axis_of(workload, "depth").extent
        assert isinstance(cols, int) and isinstance(depth, int)
        lanes = hardware.cpu.lanes
        padded = max(-(-cols // kernel.cols) * kernel.cols for kernel in kernels)
        return cls(
            rows=axis_of(workload, "rows").name, cols=cols, depth=depth, lanes=lanes,
            cores=hardware.cores, has_bias=workload.epilogue.bias, panels=padded // lanes,
        )  # fmt: skip

    @property
    def panel_rows(self) -> int:
        return self.depth + self.has_bias

    @property
    def packed_shape(self) -> tuple[int, int, int]:
        return (self.panels, self.panel_rows, self.lanes)

    @property
    def packed_bytes(self) -> int:
        return 4 * self.panels * self.panel_rows * self.lanes

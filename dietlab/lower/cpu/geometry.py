"""Extents and memory layout that all micro-kernels of one library share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dietlab.hardware import Hardware
from dietlab.space import CpuMicroKernel
from dietlab.workloads import Epilogue, Role, Weights, Workload, axis_of, batch_of, largest

FLOAT_BYTES = 4

Extent = int | str
"""A static extent, or the name of the dynamic dimension."""


@dataclass(frozen=True)
class Geometry:
    """A contraction ``y[batch, rows, cols]``, summed over ``depth``, and the layout of its weights.

    Most micro-kernels read vectors along ``cols``. Weights that are ``packed`` once, or ``transposed`` on
    the fly, lie in panels one vector wide::

        panels[p][depth + bias][lanes]        panels[p][k][v] = w[p * lanes + v][k]

    with anything beyond the last column. A tile of several vectors reads several panels side by side,
    so that every micro-kernel of a portfolio, whatever its width, reads the same packed weights.
    With a bias, row 0 of each panel holds it: it is the accumulators' first value. ``direct``
    weights ``w[depth, cols]`` are read as they are.

    ``batch`` is None for an operator without that axis; ``panels`` counts those of the whole operand
    (0 unless ``packed``); ``block_rows`` of x fit half of a core's L2, beside the weights.
    """

    rows: Extent
    cols: Extent
    depth: Extent
    batch: int | None
    weights: Weights
    epilogue: Epilogue
    lanes: int
    cores: int
    panels: int
    block_rows: int

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware, kernels: Iterable[CpuMicroKernel]) -> Geometry:
        """The layout wide enough for the widest last tile of ``kernels``."""
        sizes = {role: _extent(workload, role) for role in ("rows", "cols", "depth")}
        lanes, cols, panels = hardware.cpu.lanes, sizes["cols"], 0
        if workload.weights == "packed":
            assert isinstance(cols, int)
            panels = max(-(-cols // kernel.cols) * kernel.cols for kernel in kernels) // lanes
        return cls(
            **sizes, batch=batch_of(workload), weights=workload.weights, epilogue=workload.epilogue,
            lanes=lanes, cores=hardware.cores, panels=panels,
            block_rows=hardware.cpu.l2_bytes // (2 * FLOAT_BYTES * max(1, largest(workload, "depth"))),
        )  # fmt: skip

    @property
    def size(self) -> str:
        """The name of the dynamic dimension (``rows`` is taken from the call even if it is static)."""
        return next((e for e in (self.rows, self.cols, self.depth) if isinstance(e, str)), "T")

    @property
    def dynamic(self) -> bool:
        """Whether a tile must be told the dynamic dimension: its strides or its depth depend on it."""
        return isinstance(self.cols, str) or isinstance(self.depth, str)

    @property
    def panel_rows(self) -> int:
        assert isinstance(self.depth, int)
        return self.depth + self.epilogue.bias

    @property
    def packed_shape(self) -> tuple[int, int, int]:
        return (self.panels, self.panel_rows, self.lanes)

    def has_column_tail(self, kernel: CpuMicroKernel) -> bool:
        """Whether the last column tile sticks out of the output (or may, if ``cols`` is dynamic)."""
        if kernel.along == "depth":
            return False  # columns are composed
        return isinstance(self.cols, str) or self.cols % kernel.cols != 0

    def value(self, extent: Extent, size: Any) -> Any:
        """The extent as a number or, if it is dynamic, as ``size``."""
        return size if isinstance(extent, str) else extent


def _extent(workload: Workload, role: Role) -> Any:
    axis = axis_of(workload, role)
    dynamic = not isinstance(axis.extent, int) or role == "rows"  # any number of rows is served
    return axis.name if dynamic else axis.extent

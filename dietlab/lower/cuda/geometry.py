"""Extents, layout and precision that all micro-kernels of one CUDA library share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietlab.hardware import Hardware
from dietlab.space import CudaMicroKernel
from dietlab.workloads import Epilogue, Role, Workload, axis_of, batch_of, require_dtype

Extent = int | str
"""A static extent, or the name of the dynamic dimension."""

VECTOR_BYTES = 16
"""What one instruction copies or reads at most."""

ASYNCHRONOUS = (8, 0)
"""The first compute capability with copies to shared memory that pass the registers by (cp.async)."""


@dataclass(frozen=True)
class BlockGeometry:
    """A contraction ``y[batch, rows, cols]``, summed over ``depth``, as a GPU sees it.

    ``x`` lies in rows along the depth. ``w`` too, ``w[cols, depth]``, or, if ``direct``, as
    ``w[depth, cols]``. Nothing is packed: a tile is fetched to shared memory as it lies.

    ``asynchronous`` says whether the processor has cp.async; ``arch`` is its name for the compiler.
    """

    rows: Extent
    cols: Extent
    depth: Extent
    batch: int | None
    direct: bool
    epilogue: Epilogue
    dtype: str
    arch: str
    asynchronous: bool

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware) -> BlockGeometry:
        capability = tuple(int(part) for part in hardware.gpu.compute_capability.split("."))
        rows, cols, depth = (_extent(workload, role) for role in ("rows", "cols", "depth"))
        return cls(
            rows, cols, depth, batch_of(workload), workload.weights == "direct", workload.epilogue,
            workload.dtype, hardware.gpu.arch, capability >= ASYNCHRONOUS,
        )  # fmt: skip

    @property
    def size(self) -> str:
        """The name of the dynamic dimension (``rows`` is taken from the call even if it is static)."""
        return next((e for e in (self.rows, self.cols, self.depth) if isinstance(e, str)), "T")

    @property
    def itemsize(self) -> int:
        """Bytes of one operand's element."""
        return require_dtype(self.dtype).itemsize

    @property
    def vector(self) -> int:
        """Elements in the longest copy."""
        return VECTOR_BYTES // self.itemsize

    def value(self, extent: Extent, size: Any) -> Any:
        """The extent as a number or, if it is dynamic, as ``size``."""
        return size if isinstance(extent, str) else extent

    def x_width(self, *, aligned: bool = True) -> int:
        """Elements of ``x`` in one copy: rows begin at multiples of it."""
        return self._width(self.depth, aligned)

    def w_width(self, *, aligned: bool = True) -> int:
        """The same for ``w``."""
        return self._width(self.cols if self.direct else self.depth, aligned)

    def _width(self, extent: Extent, aligned: bool) -> int:
        if not aligned or isinstance(extent, str):
            return 1
        widths = (self.vector, self.vector // 2, self.vector // 4)
        return next((width for width in widths if extent % width == 0), 1)

    def fits(self, role: Role, tile: int) -> bool:
        """Whether a static extent is a multiple of the tile, so that nothing sticks out along it."""
        extent = {"rows": self.rows, "cols": self.cols, "depth": self.depth}[role]
        return isinstance(extent, int) and extent % tile == 0


@dataclass(frozen=True)
class Panel:
    """One operand's tile in shared memory: ``lines`` lines of ``length`` elements, ``pitch`` apart.

    Draws, for ``w[cols, depth]`` and ``w[depth, cols]``::

        lines = columns, length = step              lines = step, length = columns
        w[0, k .. k + step]  pad                    w[k, 0 .. cols]  pad
        w[1, k .. k + step]  pad                    w[k + 1, 0 .. cols]  pad

    The pad of 16 bytes keeps eight neighbouring lines in different banks.
    """

    lines: int
    length: int
    pitch: int

    @property
    def elements(self) -> int:
        return self.lines * self.pitch


def panels(kernel: CudaMicroKernel, geometry: BlockGeometry) -> tuple[Panel, Panel]:
    """The tiles of ``x`` and ``w`` in one stage."""
    pad = geometry.vector
    x = Panel(kernel.rows, kernel.step, kernel.step + pad)
    if geometry.direct:
        return x, Panel(kernel.step, kernel.cols, kernel.cols + pad)
    return x, Panel(kernel.cols, kernel.step, kernel.step + pad)


def shared_elements(kernel: CudaMicroKernel, geometry: BlockGeometry) -> int:
    """Elements of shared memory that a block needs: its stages or, at the end, the sums of its slices."""
    stages = kernel.stages * sum(panel.elements for panel in panels(kernel, geometry))
    sums = 4 * kernel.rows * kernel.cols * (kernel.slices - 1) // geometry.itemsize
    return max(stages, sums)


def _extent(workload: Workload, role: Role) -> Any:
    axis = axis_of(workload, role)
    dynamic = not isinstance(axis.extent, int) or role == "rows"  # any number of rows is served
    return axis.name if dynamic else axis.extent

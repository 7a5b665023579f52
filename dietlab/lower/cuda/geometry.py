"""Extents, layout and precision that all micro-kernels of one CUDA library share."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.hardware import Hardware
from dietlab.lower.contraction import Contraction, Extent, contraction_of
from dietlab.space import COPY_BYTES, CudaMicroKernel, copied_elements, shared_sums_bytes
from dietlab.workloads import Role, Workload, require_dtype


@dataclass(frozen=True)
class BlockGeometry(Contraction):
    """A contraction on a GPU. Nothing is packed: a tile is fetched to shared memory as it lies.

    ``asynchronous`` says whether the processor has cp.async; ``arch`` is its name for the compiler.
    """

    dtype: str
    arch: str
    asynchronous: bool

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware) -> BlockGeometry:
        gpu = hardware.gpu
        return cls(
            **contraction_of(workload), dtype=workload.dtype, arch=gpu.arch, asynchronous=gpu.asynchronous
        )

    @property
    def direct(self) -> bool:
        """Whether ``w`` lies as ``w[depth, cols]``."""
        return self.weights == "direct"

    @property
    def itemsize(self) -> int:
        """Bytes of one operand's element."""
        return require_dtype(self.dtype).itemsize

    @property
    def vector(self) -> int:
        """Elements in the longest copy."""
        return COPY_BYTES // self.itemsize

    def x_width(self, *, aligned: bool = True) -> int:
        """Elements of ``x`` in one copy: rows begin at multiples of it."""
        return self._width(self.depth, aligned)

    def w_width(self, *, aligned: bool = True) -> int:
        """The same for ``w``."""
        return self._width(self.cols if self.direct else self.depth, aligned)

    def _width(self, extent: Extent, aligned: bool) -> int:
        return copied_elements(extent, self.itemsize) if aligned else 1

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
    """Elements of shared memory that a block needs: its stages or, at the end, the sums that are shared."""
    stages = kernel.stages * sum(panel.elements for panel in panels(kernel, geometry))
    return max(stages, shared_sums_bytes(kernel) // geometry.itemsize)

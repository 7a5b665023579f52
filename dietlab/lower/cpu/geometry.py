"""Extents and memory layout that all micro-kernels of one library share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dietlab.hardware import Hardware
from dietlab.lower.contraction import Contraction, contraction_of
from dietlab.shapes import Dim
from dietlab.space import CpuMicroKernel, CpuScheme
from dietlab.workloads import Workload, largest

FLOAT_BYTES = 4

SHORT = 32
"""The longest length that is compiled for itself, in rows, where strides or depth are the dynamic
dimension: with constants some products take a third less time."""


@dataclass(frozen=True)
class Geometry(Contraction):
    """A contraction on a CPU, and the layout of its weights.

    Most micro-kernels read vectors along ``cols``. Weights that are ``packed`` once, or ``transposed`` on
    the fly, lie in panels one vector wide::

        panels[p][depth + bias][lanes]        panels[p][k][v] = w[p * lanes + v][k]

    with anything beyond the last column. A tile of several vectors reads several panels side by side,
    so that every micro-kernel of a portfolio, whatever its width, reads the same packed weights.
    With a bias, row 0 of each panel holds it: it is the accumulators' first value. ``direct``
    weights ``w[depth, cols]`` are read as they are.

    ``panels`` counts those of the whole operand (0 unless ``packed``); ``longest`` is the longest reduction,
    ``l2_bytes`` a core's L2; lengths up to ``short`` are compiled one by one; ``coherent_code`` is the
    processor's (:class:`~dietlab.hardware.CpuLimits`). ``balance`` is how many rows a core computes, at its
    peak, while memory brings their weights; 0 if that is not known.
    """

    lanes: int
    cores: int
    panels: int
    longest: int
    l2_bytes: int
    short: int
    coherent_code: bool
    balance: float

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware, schemes: Iterable[CpuScheme]) -> Geometry:
        """Returns the layout wide enough for the widest last tile of ``schemes``."""
        shared = contraction_of(workload)
        lanes, cols, panels = hardware.cpu.lanes, shared["cols"], 0
        if workload.weights == "packed":
            assert isinstance(cols, int)
            panels = max(-(-cols // scheme.cols) * scheme.cols for scheme in schemes) // lanes
        return cls(
            **shared,
            lanes=lanes,
            cores=hardware.cores,
            panels=panels,
            longest=max(1, largest(workload, "depth")),
            l2_bytes=hardware.cpu.l2_bytes,
            short=_short(workload),
            coherent_code=hardware.cpu.coherent_code,
            balance=_balance(hardware),
        )

    @property
    def dynamic(self) -> bool:
        """True if a tile must be told the dynamic dimension, because its strides or its depth depend on
        it."""
        return isinstance(self.cols, str) or isinstance(self.depth, str)

    @property
    def panel_rows(self) -> int:
        assert isinstance(self.depth, int)
        return self.depth + self.epilogue.bias

    @property
    def packed_shape(self) -> tuple[int, int, int]:
        return (self.panels, self.panel_rows, self.lanes)

    def block_rows(self, steps: int) -> int:
        """Returns the rows of x, of ``steps`` reduction steps each (0: all), that stay in half of a core's L2
        beside the weights; at least 1.

        A cache's sets go by the address, and rows begin at multiples of the largest power of two that divides
        their length. Shorter parts leave the sets between unused, so that fewer of them stay. Draws, for rows
        of 3 x 4 KiB and parts of 2 KiB::

            address, modulo 4 KiB    0 ............ 2 KiB ............ 4 KiB
            part 0 of every row      xxxxxxxxxxxxxxxx
        """
        apart = self.longest & -self.longest
        return max(1, self.l2_bytes // (2 * FLOAT_BYTES * max(steps or self.longest, apart)))

    def has_column_tail(self, kernel: CpuMicroKernel) -> bool:
        """Returns whether the last column tile sticks out of the output (or may, if ``cols`` is dynamic)."""
        if kernel.along == "depth":
            return False  # columns are composed
        return isinstance(self.cols, str) or self.cols % kernel.cols != 0


def _short(workload: Workload) -> int:
    """Returns the last length that is compiled for itself; 0 if none is: neither strides nor depth depend on
    it, or the range begins later."""
    extents = (axis.extent for axis in workload.axes if axis.role in ("cols", "depth"))
    return SHORT if any(isinstance(extent, Dim) and extent.low <= SHORT for extent in extents) else 0


def _balance(hardware: Hardware) -> float:
    """Returns the number of rows at which computing takes as long as fetching: two flops a row for each
    weight."""
    if not hardware.peak_gflops or not hardware.dram_gbps:
        return 0.0
    return FLOAT_BYTES * hardware.peak_gflops * hardware.cores / hardware.dram_gbps / 2

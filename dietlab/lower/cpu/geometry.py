"""Extents and memory layout that all micro-kernels of one library share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dietlab.errors import BuildError
from dietlab.hardware import Hardware
from dietlab.lower.contraction import Contraction, contraction_of
from dietlab.lower.cpu.tir import ceil_div, int64, most, quotient
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.shapes import Dim
from dietlab.space import CpuMicroKernel, CpuScheme
from dietlab.workloads import Workload, axis_of

FLOAT_BYTES = 4

HEADER_FLOATS = 16
"""Elements before the first panel of packed weights: a cache line, so that panels begin on one."""

LAYOUT = 0x646C0001
"""The first word of packed weights: two letters and the number of the layout that this version writes."""


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

    Packed weights begin with a tag (:attr:`tag`), by which weights of another layer, library or version
    are refused, and end with as many empty panels as the widest tile may read beyond the last column.

    ``widest`` is the widest tile's number of panels, ``l2_bytes`` a core's L2; lengths up to ``short`` are
    compiled one by one; ``coherent_code`` is the processor's (:class:`~dietlab.hardware.CpuLimits`).
    ``balance`` is how many rows a core computes, at its peak, while memory brings their weights; 0 if that is
    not known. ``lowering`` holds what no scheme says.
    """

    lanes: int
    cores: int
    widest: int
    l2_bytes: int
    short: int
    coherent_code: bool
    balance: float
    lowering: Lowering

    @classmethod
    def of(
        cls,
        workload: Workload,
        hardware: Hardware,
        schemes: Iterable[CpuScheme],
        lowering: Lowering = DEFAULTS,
    ) -> Geometry:
        """Returns the layout wide enough for the widest tile of ``schemes``.

        Raises:
            BuildError: if a tile is of no whole number of this processor's vectors.
        """
        lanes, schemes = hardware.cpu.lanes, tuple(schemes)
        for scheme in schemes:
            if scheme.kernel.along == "cols" and scheme.cols % lanes:
                raise BuildError(
                    f"tiles for {hardware.name} are as wide as whole vectors of {lanes} columns",
                    scheme.key,
                    "Take one from build_space().",
                )
        return cls(
            **contraction_of(workload),
            lanes=lanes,
            cores=hardware.cores,
            widest=max((scheme.kernel.vectors(lanes) for scheme in schemes), default=1),
            l2_bytes=hardware.cpu.l2_bytes,
            short=_short(workload, lowering.short_rows),
            coherent_code=hardware.cpu.coherent_code,
            balance=_balance(hardware),
            lowering=lowering,
        )

    @property
    def tile_dims(self) -> tuple[str, ...]:
        """The dynamic dimensions that a tile must be told, since its strides or its depth depend on them."""
        return tuple(dict.fromkeys(e for e in (self.cols, self.depth) if isinstance(e, str)))

    def panel_rows(self, depth: Any) -> Any:
        """Returns the rows of a panel: steps of the reduction and the bias."""
        return depth + int(self.epilogue.bias)

    def panels(self, cols: Any) -> Any:
        """Returns the panels of packed weights with that many columns, empty ones included."""
        return ceil_div(cols, self.lanes) + (self.widest - 1)

    def packed_floats(self, cols: Any, depth: Any) -> Any:
        """Returns the elements of packed weights, the header included."""
        return HEADER_FLOATS + self.panels(cols) * self.panel_rows(depth) * self.lanes

    def tag(self, cols: Any, depth: Any) -> tuple[Any, ...]:
        """Returns the first words of packed weights, int32: the layout's version, lanes and whether there is
        a bias, columns and depth."""
        words = (LAYOUT, 2 * self.lanes + int(self.epilogue.bias), cols, depth)
        return tuple(tirx.Cast("int32", int64(word)) for word in words)

    def block_rows(self, depth: Any, steps: int) -> Any:
        """Returns the rows of x, of ``steps`` reduction steps each (0: all), that stay in their share of a
        core's L2 beside the weights; at least 1.

        A cache's sets go by the address, and rows begin at multiples of the largest power of two that divides
        their length. Shorter parts leave the sets between unused, so that fewer of them stay. Draws, for rows
        of 3 x 4 KiB and parts of 2 KiB::

            address, modulo 4 KiB    0 ............ 2 KiB ............ 4 KiB
            part 0 of every row      xxxxxxxxxxxxxxxx
        """
        apart = depth & -depth if isinstance(depth, int) else tirx.bitwise_and(depth, -depth)
        read = most(1, most(steps or depth, apart))  # without depth nothing is read
        share = int(self.lowering.rows_l2_share * self.l2_bytes)
        return most(1, quotient(share // FLOAT_BYTES, read))

    def has_column_tail(self, kernel: CpuMicroKernel) -> bool:
        """Returns whether the last column tile sticks out of the output (or may, if ``cols`` is dynamic)."""
        if kernel.along == "depth":
            return False  # columns are composed
        return isinstance(self.cols, str) or self.cols % kernel.cols != 0


def _short(workload: Workload, short_rows: int) -> int:
    """Returns the last length that is compiled for itself; 0 if none is: neither strides nor depth depend on
    the rows' dimension, or its range begins later."""
    rows = axis_of(workload, "rows")
    others = {axis.name for axis in workload.axes if axis.role in ("cols", "depth")}
    shared = rows.name in others and isinstance(rows.extent, Dim) and rows.extent.low <= short_rows
    return short_rows if shared else 0


def _balance(hardware: Hardware) -> float:
    """Returns the number of rows at which computing takes as long as fetching: two flops a row for each
    weight."""
    if not hardware.peak_gflops or not hardware.dram_gbps:
        return 0.0
    return FLOAT_BYTES * hardware.peak_gflops * hardware.cores / hardware.dram_gbps / 2

"""Extents and memory layout that all micro-kernels of a library share, and the values of one tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tvm import tirx

from dietlab.base.errors import BuildError
from dietlab.lower.contraction import Contraction, Extent, Sizes, contraction_of
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.lower.runtime import ALIGNMENT_BYTES
from dietlab.machine import Hardware
from dietlab.problem import WORKING, Precision, Workload, name_of_role, precision_of
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.lowering.tir import ceil_div, int64, most, quotient, vector
from dietlab.targets.cpu.units import UNITS, WORD_BYTES, UnitFacts

HEADER_FLOATS = ALIGNMENT_BYTES // WORD_BYTES
"""The number of words before the first panel of packed weights: a cache line, so that panels begin on one."""

LAYOUT = 0x646C0001
"""First word of packed weights: two letters, and the number of the layout that this version writes."""

KERNEL_LAYOUT = 0x646C0002
"""First word of packed weights in the order of a kernel's elements, or in groups."""


@dataclass(frozen=True)
class Geometry(Contraction):
    """A contraction on a CPU, and the layout of its weights.

    Most micro-kernels read vectors along ``cols``. Weights that are ``packed`` once, or ``transposed`` on
    the fly, lie in panels one vector wide::

        panels[p][depth + bias][lanes]        panels[p][k][v] = w[p * lanes + v][k]

    Lanes beyond the last column hold anything. A tile of several vectors reads several panels side by side,
    so every micro-kernel of a portfolio, whatever its width, reads the same packed weights. With a bias,
    row 0 of each panel holds it: the accumulators begin with it. ``direct`` weights ``w[depth, cols]`` are
    read as they are.

    Packed weights of less than 32 bits lie in words, each with :attr:`per_step` steps of the reduction.
    ``depth`` counts words, ``elements`` the weights in them. A row of a panel has the order in which the unit
    reads it, in halves (:attr:`halves`)::

        row k, one half      w[0][4k .. 4k+3]  w[1][4k .. 4k+3]  ...
        row k, two halves    w[0][4k, 4k+1]  w[1][4k, 4k+1]  ...  w[0][4k+2, 4k+3]  w[1][4k+2, 4k+3]  ...

    Panels for scaled sums begin with two rows: the first sums of a unit whose inputs are unsigned, and the
    scales. Packed weights begin with a tag (:attr:`tag`), so that those of another layer, library or version
    are refused. They end with as many empty panels as the widest tile may read beyond the last column.

    Args:
        widest: the number of panels of the widest tile.
        l2_bytes: the size of one core's L2.
        short: the largest row count that gets a separate program.
        coherent_code: see :class:`~dietlab.targets.cpu.limits.CpuLimits`.
        balance: the number of rows that a core computes, at its peak, while memory brings their weights; 0 if
            unknown.
        emulated: whether units are computed by their definition in plain operations, on processors without
            them.
    """

    precision: Precision
    out_dtype: str
    elements: Extent
    per_step: int
    halves: int
    lanes: int
    cores: int
    widest: int
    l2_bytes: int
    short: int
    coherent_code: bool
    balance: float
    lowering: Lowering
    emulated: bool = False

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
            BuildError: if a tile is no whole number of vectors wide, or units need two layouts of weights.
        """
        lanes, schemes = cpu_of(hardware).lanes, tuple(schemes)
        for scheme in schemes:
            if scheme.kernel.along == "cols" and scheme.cols % lanes:
                raise BuildError(
                    f"the columns of a tile for {hardware.name} must be a multiple of {lanes}",
                    scheme.key,
                    "Choose a scheme of build_space().",
                )
        facts = _facts(workload, schemes)
        contraction = contraction_of(workload)
        elements = contraction["depth"]
        if facts.per_step > 1:
            contraction["depth"] = ceil_div(elements, facts.per_step)
        return cls(
            **contraction,
            precision=precision_of(workload),
            out_dtype=precision_of(workload, "out").name,
            elements=elements,
            per_step=facts.per_step,
            halves=facts.halves,
            lanes=lanes,
            cores=hardware.cores,
            widest=max((scheme.kernel.vectors(lanes) for scheme in schemes), default=1),
            l2_bytes=cpu_of(hardware).l2_bytes,
            short=_short(workload, lowering.short_rows),
            coherent_code=cpu_of(hardware).coherent_code,
            balance=_balance(hardware, workload.dtype, facts.per_step),
            lowering=lowering,
        )

    @property
    def tile_dims(self) -> tuple[str, ...]:
        """The dynamic dimensions that a tile's strides or depth depend on: arguments of its function."""
        depth = self.depth if self.patches is None else self.patches.channels
        return tuple(dict.fromkeys(e for e in (self.cols, depth) if isinstance(e, str)))

    @property
    def head_rows(self) -> int:
        """The number of rows of a panel before the weights: first sums and scales of scaled sums, and a
        bias."""
        return 2 * self.precision.scaled + self.epilogue.bias

    def type_of(self, name: str) -> str:
        """Returns the type of an array of a call, by its name there."""
        if name == "packed":
            return WORKING.name
        return self.out_dtype if name == "y" else self.precision.type_of(name)

    def operands(self, sizes: Sizes) -> dict[str, tuple[Any, ...]]:
        """Returns the arrays of a call, in order, with their extents."""
        shapes = Contraction.operands(replace(self, depth=self.elements), sizes)
        if not self.precision.scaled:
            return shapes
        first = {name: shapes.pop(name) for name in ("x", "w")}
        return {**first, "scale": first["w"][:1], **shapes}

    def panel_rows(self, depth: Any) -> Any:
        """Returns the number of rows of a panel: rows before the weights, and steps of the reduction."""
        return depth + self.head_rows

    def panels(self, cols: Any) -> Any:
        """Returns the number of panels of packed weights with that many columns, empty ones included."""
        return ceil_div(cols, self.lanes) + (self.widest - 1)

    def packed_floats(self, cols: Any, elements: Any) -> Any:
        """Returns the number of words of packed weights, the header included."""
        return HEADER_FLOATS + self.group_floats(cols, elements) * self.groups

    def group_floats(self, cols: Any, elements: Any) -> Any:
        """Returns the number of words of one group's panels, with ``cols`` columns."""
        rows = self.panel_rows(ceil_div(elements, self.per_step))
        return self.panels(cols) * rows * self.lanes

    @property
    def groups(self) -> int:
        """The number of products whose panels lie one after the other in packed weights."""
        return 1 if self.patches is None else self.patches.groups

    def tag(self, cols: Any, elements: Any) -> tuple[Any, ...]:
        """Returns the first words of packed weights, as int32: the layout's version; a word with the lanes,
        the bias and the order of weights; the columns; the depth; for a kernel of several elements, or
        groups, their numbers."""
        order = (self.per_step // 2) << 12 | (self.halves - 1) << 14
        kernel = (1, 1) if self.patches is None else (self.patches.elements, self.groups)
        first, numbers = (LAYOUT, ()) if kernel == (1, 1) else (KERNEL_LAYOUT, kernel)
        words = (first, 2 * self.lanes + int(self.epilogue.bias) + order, cols, elements, *numbers)
        return tuple(tirx.Cast("int32", int64(word)) for word in words)

    def block_rows(self, depth: Any, steps: int) -> Any:
        """Returns the number of rows of x, cut to ``steps`` reduction steps (0: all), that stay in x's share
        of a core's L2, next to the weights; at least 1.

        A cache line's set follows from its address, and rows begin at multiples of the largest power of two
        that divides their length. Parts of rows shorter than that power leave sets unused, so that fewer
        parts stay. For example, for rows of 3 x 4 KiB and parts of 2 KiB::

            address, modulo 4 KiB    0 ............ 2 KiB ............ 4 KiB
            part 0 of every row      xxxxxxxxxxxxxxxx
        """
        apart = depth & -depth if isinstance(depth, int) else tirx.bitwise_and(depth, -depth)
        read = most(1, most(steps or depth, apart))  # at depth 0 nothing is read
        share = int(self.lowering.rows_l2_share * self.l2_bytes)
        return most(1, quotient(share // WORD_BYTES, read))

    def has_column_tail(self, kernel: CpuMicroKernel) -> bool:
        """Returns whether the last column tile sticks out of the output (or may, if ``cols`` is dynamic)."""
        if kernel.along == "depth":
            return False  # columns are composed
        return isinstance(self.cols, str) or self.cols % kernel.cols != 0


@dataclass(frozen=True)
class Tile:
    """The values that the steps of one tile function share, named as in its signature. A matrix unit
    multiplies ``height`` rows at once, from each row of ``groups`` on. The tile's rows have the accumulators
    from row ``first`` on."""

    kernel: CpuMicroKernel
    geometry: Geometry
    accumulators: Any
    x: Any
    w: Any
    y: Any
    sizes: Sizes
    residual: Any | None = None
    rows: Any | None = None
    cols: Any | None = None
    begin: Any | None = None
    checked: bool = False
    groups: tuple[Any, ...] = ()
    height: Any | None = None
    first: int = 0

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
        """The number of steps of the reduction in one call: all, or a K-block. The last K-block may be
        shorter."""
        block, depth = self.kernel.block, self.depth
        if not block or (isinstance(depth, int) and depth % block == 0):
            return block or depth
        return tirx.min(int64(block), depth - self.begin)

    @property
    def width(self) -> Any:
        """The distance from one row of the output to the next, in elements."""
        return self.geometry.across(self.sizes)

    @property
    def rows_together(self) -> int:
        """The number of rows addressed from one pointer; 0 if one pointer serves all rows (a static depth) or
        each row has its own."""
        return 0 if isinstance(self.depth, int) else self.geometry.lowering.rows_together

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        """The row and the vector of each accumulator."""
        return product(range(self.kernel.rows), range(self.vectors))

    def slot(self, i: Any, j: int) -> Any:
        """Returns the accumulator of row ``i`` and vector ``j``."""
        return vector((self.first + i) * self.kernel.cols + j * self.lanes, self.lanes)


def _short(workload: Workload, short_rows: int) -> int:
    """Returns the last length with a separate program; 0 if there is none, because strides and depth do not
    depend on the rows' dimension, or its range begins above ``short_rows``."""
    rows = name_of_role(workload, "rows")
    others = {axis.name for axis in workload.axes if axis.role in ("cols", "depth")}
    shared = rows in others and rows in workload.dims and workload.dims[rows].low <= short_rows
    return short_rows if shared else 0


def _balance(hardware: Hardware, dtype: str, per_step: int) -> float:
    """Returns the number of rows at which computing takes as long as fetching: a row has two flops for each
    weight."""
    peak = hardware.peak_for(dtype)
    if not peak or not hardware.dram_gbps:
        return 0.0
    return WORD_BYTES * peak * hardware.cores / hardware.dram_gbps / 2 / per_step


def _facts(workload: Workload, schemes: Sequence[CpuScheme]) -> UnitFacts:
    """Returns the facts about the schemes' instructions, which must agree in the layout of packed weights."""
    found = {s.kernel.facts.layout: s.kernel for s in schemes}
    if len(found) > 1:
        raise BuildError(
            "all micro-kernels of a library must read weights that are packed in one layout",
            ", ".join(sorted(kernel.unit for kernel in found.values())),
            "Choose micro-kernels whose instructions take one layout of weights.",
        )
    default = next((f for f in UNITS.values() if f.dtype == workload.dtype), UNITS["fma"])
    return next((kernel.facts for kernel in found.values()), default)

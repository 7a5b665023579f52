"""Extents and operands of one CUDA library, a block's place in them, and its panels in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietlab.base.errors import BuildError
from dietlab.lower.contraction import Contraction, Extent, contraction_of
from dietlab.machine import Hardware
from dietlab.problem import Role, Workload, require_dtype
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import COPY_BYTES, copied_elements, exchanged_bytes
from dietlab.targets.cuda.ring import barrier_bytes
from dietlab.targets.cuda.unit import GROUPED

CELL = 8
"""The number of 16-bit elements in 16 bytes, which swizzling keeps together."""

STRIPS = (64, 32, 16)
"""The numbers of 16-bit elements in 128, 64 and 32 bytes: the swizzling modes."""

PATTERN_BYTES = 1024
"""The size in bytes of eight lines of 128 bytes, after which the widest swizzling repeats."""


@dataclass(frozen=True)
class BlockGeometry(Contraction):
    """A contraction on a GPU. Nothing is packed: tiles are fetched as the operands lie in memory.

    Args:
        hardware: the processor.
        aligned: whether the arrays begin at multiples of 16 bytes, which copies of 16 bytes need.
        whole: the dynamic extents that are known to be multiples of the longest copy.
    """

    dtype: str
    hardware: Hardware
    aligned: bool = True
    whole: frozenset[str] = frozenset()

    @classmethod
    def of(cls, workload: Workload, hardware: Hardware) -> BlockGeometry:
        found = cls(**contraction_of(workload), dtype=workload.dtype, hardware=hardware)
        if found.patches is not None and any(isinstance(e, str) for e in (found.cols, found.depth)):
            raise BuildError(
                "the channels of a GPU's convolution must be numbers",
                ", ".join(workload.dims),
                "Give IC and OC a number; ranges of them are served on a CPU.",
            )
        return found

    @property
    def asynchronous(self) -> bool:
        """True if the processor has cp.async."""
        return gpu_of(self.hardware).asynchronous

    @property
    def direct(self) -> bool:
        """True if ``w`` lies as ``w[depth, cols]``."""
        return self.weights == "direct"

    @property
    def itemsize(self) -> int:
        """The number of bytes of one operand's element."""
        return require_dtype(self.dtype).itemsize

    @property
    def vector(self) -> int:
        """The number of elements in the longest copy."""
        return COPY_BYTES // self.itemsize

    @property
    def x_width(self) -> int:
        """The number of elements of ``x`` in one copy; rows, or pixels, begin at multiples of it."""
        return self._width(self.depth if self.patches is None else self.patches.channels)

    @property
    def w_width(self) -> int:
        """The number of elements of ``w`` in one copy: 1 if a kernel has several elements, since its channels
        lie apart."""
        if self.patches is not None and self.patches.elements > 1:
            return 1
        return self._width(self.cols if self.direct else self.depth)

    @property
    def y_width(self) -> int:
        """The number of elements of ``y`` in the widest store."""
        return self._width(self.cols)

    def _width(self, extent: Extent) -> int:
        known = self.vector if extent in self.whole else extent
        return copied_elements(known, self.itemsize) if self.aligned else 1

    @property
    def lines(self) -> tuple[str, ...]:
        """The dynamic extents of the lines of ``x`` and ``w``, of which their copies take a part."""
        if self.patches is not None:
            return ()
        found = (self.depth, self.cols if self.direct else self.depth)
        return tuple(dict.fromkeys(extent for extent in found if isinstance(extent, str)))

    def fits(self, role: Role, tile: int) -> bool:
        """Returns whether the extent is static and a multiple of the tile, so that no tile sticks out."""
        extent = {"rows": self.rows, "cols": self.cols, "depth": self.depth}[role]
        return isinstance(extent, int) and extent % tile == 0


@dataclass(frozen=True)
class Arrays:
    """The operands of a kernel as flat buffers."""

    x: Any
    w: Any
    y: Any
    bias: Any | None
    residual: Any | None


@dataclass(frozen=True)
class ImageSizes:
    """The sizes of a call's images (int32 expressions).

    Args:
        sizes: the extents of the input along each dimension of an image.
        positions: the extents of the output, in the same order.
    """

    sizes: tuple[Any, ...]
    positions: tuple[Any, ...]


@dataclass(frozen=True)
class Extents:
    """The extents of one product (numbers, or int32 expressions)."""

    rows: Any
    cols: Any
    depth: Any


@dataclass(frozen=True)
class Share:
    """The share that a block has of its tile's steps, in a launch whose last tiles are shared (int32).

    Args:
        together: whether all blocks of the cluster share one tile (a condition; the cluster's blocks agree).
        apart: the number of steps from one of the block's to the next: 1 if it has all.
        first: the first of the block's steps.
    """

    together: Any
    apart: Any
    first: Any


@dataclass(frozen=True)
class BlockPosition:
    """The place of a block's tile in the operands (int32 expressions).

    Args:
        batch: the index of the product in the batch.
        first_row, first_col: the tile's first row and column in the output.
        extents: the extents of the whole product.
        thread: the index of this thread in the block.
        rank: the index of this block among the blocks that share the tile's reduction.
        checked: whether multiply-adds test their bounds, in place of local padding.
        image: the sizes of the images of a convolution whose rows lie apart; else None.
        share: the block's share of the tile where only those of the last wave are shared; else None.
    """

    batch: Any
    first_row: Any
    first_col: Any
    extents: Extents
    thread: Any
    rank: Any
    checked: bool = False
    image: ImageSizes | None = None
    share: Share | None = None


@dataclass(frozen=True)
class Panel:
    """One operand's tile in shared memory: ``lines`` of ``length`` elements, with ``pad`` elements, 16 bytes,
    behind each ``run`` of lines.

    For example, ``w[cols, depth]`` with runs of 2, and ``w[depth, cols]``::

        lines = columns, length = step              lines = step, length = columns
        w[0, k .. k + step]                         w[k, 0 .. cols]  pad
        w[1, k .. k + step]  pad                    w[k + 1, 0 .. cols]  pad
        w[2, k .. k + step]
        w[3, k .. k + step]  pad

    Threads read one line of neighbouring runs at a time: eight of these lie in different banks.
    """

    lines: int
    length: int
    pad: int
    run: int = 1

    @property
    def elements(self) -> int:
        return self.lines * self.length + -(-self.lines // self.run) * self.pad

    def at(self, first: Any, line: Any, element: Any) -> Any:
        """Returns the index of an element in a panel that begins at ``first`` (numbers, or int32)."""
        return first + line * self.length + line // self.run * self.pad + element


@dataclass(frozen=True)
class SwizzledPanel:
    """An operand's tile in shared memory as ``wgmma`` reads it: 16-bit elements, in strips of ``pitch``.

    For example, with lines of 128 elements and a pitch of 64 (``|`` between cells of 8 elements, 16 bytes)::

        before                             after: two strips, one behind the other
        line 0:  0 | 1 | 2 | ... | 15      line 0:  0 | 1 | 2 | ... | 7
        line 1:  0 | 1 | 2 | ... | 15      line 1:  1 | 0 | 3 | ... | 6      # cell c is at c ^ (line % 8)
        ...                                ...
                                           line 0:  8 | 9 | 10 | ... | 15
                                           ...

    so that the same cell of eight neighbouring lines lies in different banks. Strips of 128 bytes are
    swizzled by lines, strips of 64 bytes by pairs of lines, and strips of 32 bytes by fours: bits 7 to 9 of
    an address change bits 4 to 6 (PTX ISA, shared memory matrix layout, swizzling modes). A panel must begin
    at a multiple of eight lines of a strip, as the pattern does.
    """

    lines: int
    length: int
    pitch: int

    @property
    def elements(self) -> int:
        return self.lines * self.length

    @property
    def cells(self) -> int:
        """The number of cells in a line of a strip."""
        return self.pitch // CELL

    def at(self, first: Any, line: Any, element: Any) -> Any:
        """Returns the index of an element, as :meth:`Panel.at` does."""
        changed = (line >> _log2(CELL // self.cells)) & (self.cells - 1)
        cell = ((element >> _log2(CELL)) & (self.cells - 1)) ^ changed
        inside = line * self.pitch + cell * CELL + (element & (CELL - 1))
        if self.length == self.pitch:
            return first + inside
        return first + (element >> _log2(self.pitch)) * (self.lines * self.pitch) + inside


AnyPanel = Panel | SwizzledPanel


def swizzled(lines: int, length: int, whole: int) -> SwizzledPanel:
    """Returns a panel with the widest strips that divide ``whole``, a multiple of 16 elements."""
    return SwizzledPanel(lines, length, next(strip for strip in STRIPS if whole % strip == 0))


def _log2(power: int) -> int:
    return power.bit_length() - 1


def panels(kernel: CudaMicroKernel, geometry: BlockGeometry) -> tuple[AnyPanel, AnyPanel]:
    """Returns the tiles of ``x`` and ``w`` in one stage."""
    if kernel.unit in GROUPED:
        x = swizzled(kernel.rows, kernel.step, kernel.step)
        if geometry.direct:  # a worker's columns begin with a strip
            return x, swizzled(kernel.step, kernel.cols, kernel.tile_cols)
        return x, swizzled(kernel.cols, kernel.step, kernel.step)
    return _padded_panels(kernel, geometry)


def _padded_panels(kernel: CudaMicroKernel, geometry: BlockGeometry) -> tuple[Panel, Panel]:
    pad = geometry.vector
    x = Panel(kernel.rows, kernel.step, pad, kernel.run_rows)
    if geometry.direct:
        return x, Panel(kernel.step, kernel.cols, pad)
    return x, Panel(kernel.cols, kernel.step, pad, kernel.panel_run_cols)


def shared_elements(kernel: CudaMicroKernel, geometry: BlockGeometry) -> int:
    """Returns the number of elements of a block's shared memory: for its stages or for what threads exchange
    at the end, whichever is larger, plus its barriers.
    """
    stages = kernel.stages * sum(panel.elements for panel in panels(kernel, geometry))
    return max(stages, exchanged_bytes(kernel) // geometry.itemsize) + (
        barrier_bytes(kernel) // geometry.itemsize
    )


def shared_alignment(kernel: CudaMicroKernel) -> int:
    """Returns the alignment of a block's shared memory in bytes: the widest copy, or a swizzling pattern."""
    return PATTERN_BYTES if kernel.unit in GROUPED else COPY_BYTES

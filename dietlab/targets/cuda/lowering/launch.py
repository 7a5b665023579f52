"""Launches: the grid of one plan, whose blocks compute row tiles of one or two heights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Extent, Sizes
from dietlab.scheme import scheme_with
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.lowering.block import block_program
from dietlab.targets.cuda.lowering.ending import ending_of
from dietlab.targets.cuda.lowering.geometry import (
    Arrays,
    BlockGeometry,
    BlockPosition,
    Extents,
    ImageSizes,
    Share,
    shared_alignment,
    shared_elements,
)
from dietlab.targets.cuda.lowering.layout import Layout
from dietlab.targets.cuda.lowering.tensor_maps import tensor_maps
from dietlab.targets.cuda.lowering.tir import bound, ceil_div, computed_once, int32, int64, when
from dietlab.targets.cuda.lowering.tma_pipeline import ring_program, walking_program
from dietlab.targets.cuda.lowering.walk import Walk

RESIDENT = "tirx.launch_bounds_min_blocks_per_sm"
"""TVM's attribute for the CUDA compiler, the least number of blocks that a multiprocessor must have room
for."""


@dataclass(frozen=True)
class Call:
    """One call of the library.

    Args:
        geometry: the geometry, which says what is known of the operands.
        sizes: the extents of the dynamic dimensions by name, and the number of rows (int64).
    """

    geometry: BlockGeometry
    arrays: Arrays
    sizes: Sizes

    @property
    def rows(self) -> Any:
        """The number of rows (int64)."""
        return self.sizes[self.geometry.rows]

    def extent(self, extent: Extent) -> Any:
        """Returns an extent as a number or, if it is dynamic, as an expression (int64)."""
        return self.geometry.value(extent, self.sizes)

    def extents(self) -> Extents:
        """Emits on the host the dynamic extents that a block counts with."""
        roles = {"rows": self.geometry.rows, "cols": self.geometry.cols, "depth": self.geometry.depth}
        found: dict[Extent, Any] = {}
        for role, extent in roles.items():
            if extent not in found:
                value = self.extent(extent)
                found[extent] = value if isinstance(value, int) else bound(role, int32(value))
        return Extents(**{role: found[extent] for role, extent in roles.items()})

    def image(self) -> ImageSizes | None:
        """Emits on the host the sizes of images whose pixels are not the rows one after the other."""
        patches = self.geometry.patches
        if patches is None or not self.geometry.gathers:
            return None
        inner = [bound(window.dim, int32(self.sizes[window.dim])) for window in patches.windows]
        outer = zip(patches.windows, patches.positions(self.sizes), strict=True)
        return ImageSizes(
            tuple(inner), tuple(bound(f"O{window.dim}", int32(extent)) for window, extent in outer)
        )


def launch_plan(call: Call, scheme: CudaScheme, heights: tuple[int, ...]) -> None:
    """Emits one launch, of the kernel with the two heights that this shape needs.

    For example, with an even split of 128 rows at most, in granules of 16::

        tiles = ceil(T / 128); low, more = divmod(ceil(T / 16), tiles)
        if low == 1: launch(32 rows for `more` tiles, 16 for the others)
        if low == 2: launch(48 rows for `more` tiles, 32 for the others)
        ...
    """
    size, granule, most = call.rows, scheme.kernel.granule, scheme.rows // scheme.kernel.granule
    if not scheme.composed:
        _launch(call, [(scheme, bound("count", ceil_div(size, scheme.rows)))], scheme.kernel)
        return
    granules = bound("granules", ceil_div(size, granule))
    if scheme.edge == "even":
        tiles = bound("tiles", ceil_div(size, scheme.rows))
        low = bound("low", tirx.truncdiv(granules, tiles))
    else:
        low = bound("low", tirx.truncmod(granules, int64(most)))
    for height, parts in _pairs(scheme, heights):
        with when(low == int64(height)):
            if scheme.edge == "even":  # a kernel that knows its height divides by no variable
                more = bound("more", granules - int64(height) * tiles)
                counts = (more, tiles - more)
            else:
                counts = (tirx.truncdiv(granules, int64(most)), int64(1))
            regions = [(scheme_with(scheme, rows=rows), counts[which]) for rows, which in parts]
            _launch(call, regions, scheme.kernel)


def _pairs(scheme: CudaScheme, heights: tuple[int, ...]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Returns the launches of a scheme: the lower height in granules, and the regions. A region consists of
    its rows and the index of its count of tiles.
    """
    granule = scheme.kernel.granule
    if scheme.edge == "even":
        taller = {rows: [(rows + granule, 0)] if rows + granule in heights else [] for rows in heights}
        return [(rows // granule, [*taller[rows], (rows, 1)]) for rows in heights]
    full = [(scheme.rows, 0)]
    lower = [(rows // granule, [*full, (rows, 1)]) for rows in heights if rows < scheme.rows]
    return [(0, full), *lower] if scheme.rows in heights else [(low, parts[1:]) for low, parts in lower]


def _launch(call: Call, regions: Sequence[tuple[CudaScheme, Any]], tallest: CudaMicroKernel) -> None:
    """Launches the regions of a plan, one below the other, in one grid.

    For example, with two regions of 3 and 2 row tiles and blocks numbered down the rows first (neighbouring
    blocks share the tile of ``w``)::

        block  0  5      tile 0 of rows, region 0
               1  6      tile 1
               2  7      tile 2
               3  8      tile 0, region 1
               4  9      tile 1

    With ``ending``, tiles have these numbers, and the clusters of blocks of the last wave have one each.
    Blocks that remain have several tiles each, in another order (:class:`~.walk.Walk`).

    Args:
        regions: one or two regions, each a pair of a scheme and the number of its row tiles.
        tallest: the micro-kernel of the plan's tallest tiles.
    """
    (leading, _), geometry, arrays = regions[0], call.geometry, call.arrays
    first = leading.kernel
    column_tiles = ceil_div(call.extent(geometry.cols), first.cols)
    row_tiles = bound("row_tiles", int32(sum((count for _, count in regions[1:]), regions[0][1])))
    counts = [bound("tiles_of_region", int32(count)) for _, count in regions]
    extents = call.extents()
    grid, ending = bound("grid", row_tiles * int32(column_tiles // first.multicast)), None
    if first.ending > 1:
        ending = ending_of(tallest, geometry, grid, extents.depth)
        grid = bound("clusters", ending.clusters)
    walk = Walk.of(tallest, geometry, row_tiles, column_tiles) if first.persistent else None
    image = call.image()
    kernels = [scheme.kernel for scheme, _ in regions]
    maps = tensor_maps(kernels, geometry, arrays, call.sizes) if first.pieces.producers else []
    elements = max(shared_elements(kernel, geometry) for kernel in kernels)
    started = grid if walk is None else walk.blocks
    with _blocks(first, started, call.extent(geometry.batch or 1)) as (block, batch, rank, thread):
        shared = IRBuilder.name(
            "shared",
            T.alloc_buffer((elements,), geometry.dtype, scope="shared.dyn", align=shared_alignment(first)),
        )
        if walk is not None:
            layouts = [Layout.of(kernel, geometry, shared, thread) for kernel in kernels]
            nowhere = BlockPosition(batch, int32(0), int32(0), extents, thread, rank)
            walking_program(
                layouts, arrays, nowhere, maps, partial(_each_tile, walk, block, kernels, counts[0], nowhere)
            )
            return
        share: Share | None = None
        there: AbstractContextManager[None] = nullcontext()
        if ending is not None:
            share = _computed_once(ending.share(block, rank))
            block = computed_once("number", ending.tile(block, rank))
            there = when(block < ending.tiles)
        tile = computed_once("tile", tirx.truncmod(block, row_tiles))
        across = tirx.truncdiv(block, row_tiles)
        if first.multicast > 1:
            across = across * int32(first.multicast) + rank
        first_col = computed_once("first_col", across * int32(first.cols))

        def emit(region: int, row: Any) -> None:
            checked = leading.edge == "checked"
            # The number of rows of a convolution is an expression that no loop should compute.
            first_row = bound("first_row", row) if image is None else computed_once("first_row", row)
            place = BlockPosition(batch, first_row, first_col, extents, thread, rank, checked, image, share)
            layout = Layout.of(kernels[region], geometry, shared, thread)
            if maps:
                ring_program(layout, arrays, place, maps[region])
            else:
                block_program(layout, arrays, place)

        with there:
            _by_region(kernels, counts[0], tile, emit)


def _by_region(
    kernels: Sequence[CudaMicroKernel], tall: Any, tile: Any, emit: Callable[[int, Any], None]
) -> None:
    """Emits a row tile by its region and first row, of which the first ``tall`` tiles lie in region 0."""
    rows = [int32(kernel.rows) for kernel in kernels]
    if len(kernels) == 1:
        emit(0, tile * rows[0])
        return
    with T.If(tile < tall):
        with T.Then():
            emit(0, tile * rows[0])
        with T.Else():
            emit(1, tall * rows[0] + (tile - tall) * rows[1])


def _each_tile(
    walk: Walk,
    block: Any,
    kernels: Sequence[CudaMicroKernel],
    tall: Any,
    nowhere: BlockPosition,
    emit: Callable[[int, BlockPosition], None],
) -> None:
    """Emits the loop over the tiles of a block that remains, each by its region and place."""
    with walk.tiles(block) as (row_tile, col_tile):
        first_col = computed_once("first_col", col_tile * int32(kernels[0].cols))

        def place(region: int, row: Any) -> None:
            first_row = computed_once("first_row", row)
            emit(region, replace(nowhere, first_row=first_row, first_col=first_col))

        _by_region(kernels, tall, row_tile, place)


def _computed_once(share: Share) -> Share:
    apart, first = computed_once("apart", share.apart), computed_once("first_step", share.first)
    return replace(share, apart=apart, first=first)


@contextmanager
def _blocks(kernel: CudaMicroKernel, grid: Any, batches: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Opens the program of one block of a grid: its number, batch, rank in its cluster, and thread.

    Neighbouring blocks that share a reduction are a cluster with one number. Blocks that share rows are also
    a cluster, in which each block has its own tile of columns.
    """
    cluster, rank = int32(kernel.cluster), int32(0)
    with ExitStack() as stack:
        block = stack.enter_context(T.launch_thread("blockIdx.x", grid * cluster))
        batch = stack.enter_context(T.launch_thread("blockIdx.y", int32(batches)))
        if kernel.cluster > 1:
            rank = stack.enter_context(T.launch_thread("clusterCtaIdx.x", cluster))
            block = bound("cluster", tirx.truncdiv(block, cluster))
        thread = stack.enter_context(T.launch_thread("threadIdx.x", int32(kernel.threads)))
        if kernel.resident > 1 or kernel.pieces.producers:  # registers are taken from a known number
            stack.enter_context(T.attr(int32(0), RESIDENT, kernel.resident))
        yield block, batch, rank, thread

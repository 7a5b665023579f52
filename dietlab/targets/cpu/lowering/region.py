"""Covers the output with a plan's tiles: loop order, cores, composition and edge tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS, Geometry
from dietlab.targets.cpu.lowering.loop_nest import LoopNest, Operands
from dietlab.targets.cpu.lowering.matrix_tile import configured
from dietlab.targets.cpu.lowering.micro_kernel import Fit, tile_arguments, tile_name
from dietlab.targets.cpu.lowering.panels import PANEL_FUNCTION
from dietlab.targets.cpu.lowering.prefetch import (
    first_prefetched_line,
    pieces_before,
    prefetch_next_product,
    prefetching_tiles,
    streams,
)
from dietlab.targets.cpu.lowering.scratch import allocated, pads, scratch_buffer
from dietlab.targets.cpu.lowering.staging import stage_name
from dietlab.targets.cpu.lowering.tir import ceil_div, forget, int64, most, switch
from dietlab.targets.cpu.lowering.units import x_words


def region(
    scheme: CpuScheme,
    geometry: Geometry,
    operands: Operands,
    functions: Mapping[str, Any],
    heights: tuple[int, ...],
    widths: tuple[int, ...],
) -> None:
    """Covers ``y`` as :func:`dietlab.scheme.plan_for` says.

    Draws ``ws`` (``is`` exchanges the two loops):

    ::

        before                      after
        for b in range(batch):      parallel for core in range(cores):
          for i in range(T):          for b in this core's share of range(batch):
            for j in range(N):          for jo in range(N / cols):
              y[b, i, j] = ...            transpose the panels of column tile jo (if w varies)
                                          for io in range(ceil(T / rows)):
                                            tile(x, w, y)

    Without a batch each core gets an equal share of the *tiles*, numbered along the inner loop, so
    that shares differ by at most one tile; panels that are transposed on the fly are dealt whole.

    Args:
        functions: the module's private functions by name.
        heights: row counts of the tiles that shapes of this scheme need.
        widths: their column counts.
    """
    with _each_core(geometry) as core:
        nest = LoopNest(scheme, geometry, operands, functions, heights, widths)
        words = scheme.kernel.facts.staged_words
        if scheme.kernel.facts.matrix:
            pointer = T.bind(tirx.reinterpret("handle", operands.x.access_ptr("r")))
            x = T.decl_buffer((nest.rows * nest.depth,), "int32", data=pointer, align=1)
            with configured(replace(nest, operands=replace(operands, x=x))) as nest:
                _deal(nest, core)
            return
        if words:
            with allocated(nest.rows * (nest.depth * words)) as copy:
                _stage(nest, copy)
                _deal(replace(nest, operands=replace(operands, x=copy)), core)
            return
        if operands.scratch is not None:
            _deal(nest, core)
            return
        with scratch_buffer([scheme], geometry, nest.depth) as scratch:
            _deal(replace(nest, operands=replace(operands, scratch=scratch)), core)


def _stage(nest: LoopNest, copy: Any) -> None:
    """Copies the input as its unit reads it; see :mod:`dietlab.targets.cpu.lowering.staging`. Each core makes
    its own
    copy: cores would have to wait for each other's parts of one."""
    pointers = [nest.operands.x.access_ptr("r"), copy.access_ptr("w")]
    call(nest.functions[stage_name(nest.kernel.unit)], [*pointers, nest.rows])
    # The copy is written by one name and type and read by others, which is other memory to the compiler.
    forget(pointers[1], pointers[1])


def _deal(nest: LoopNest, core: Any) -> None:
    """This core's share of the work: products of a batch, transposed panels, or tiles."""
    geometry = nest.geometry
    if geometry.batch is not None:
        nest = replace(nest, streams=streams(nest))
        with T.serial(*_share(nest.products, core, geometry.cores)) as b:
            nest = replace(nest, batch=b)
            _pad_edge_tile(nest)
            _deal_panels(nest, 0, 1)
        return
    _pad_edge_tile(nest)
    if geometry.weights == "transposed":
        _deal_panels(nest, core, geometry.cores)
    else:
        _deal_tiles(nest, core)


@contextmanager
def _each_core(geometry: Geometry) -> Iterator[Any]:
    if geometry.cores == 1:
        yield 0
        return
    with T.parallel(0, int64(geometry.cores)) as core:
        yield core


def _share(count: Any, core: Any, cores: int) -> tuple[Any, Any]:
    """Returns the first of ``count`` equal pieces for this core, and one past its last."""
    return (0, int64(count)) if cores == 1 else _piece(count, core, int64(cores))


def _piece(count: Any, number: Any, pieces: Any) -> tuple[Any, Any]:
    """Returns the begin and end of one of ``count`` pieces, whose sizes differ by at most one."""
    first = T.bind(tirx.truncdiv(number * count, pieces))
    return first, T.bind(tirx.truncdiv((number + 1) * count, pieces))


def _deal_panels(nest: LoopNest, core: Any, cores: int) -> None:
    """This core's column tiles, each with all its row tiles, or the other way round."""
    first, last = _share(nest.column_tiles, core, cores)
    if nest.scheme.order == "is" and nest.geometry.weights != "transposed":
        with T.serial(int64(0), nest.row_tiles) as io, T.serial(first, last) as jo:
            _tile(nest, io, jo)
        return
    with T.serial(first, last) as jo:
        if nest.transposes:
            _transpose_panels(nest, jo)
        with T.serial(int64(0), nest.row_tiles) as io:
            _tile(nest, io, jo)


def _deal_tiles(nest: LoopNest, core: Any) -> None:
    """This core's share of all tiles. A long reduction is taken part by part, and rows that would not stay
    in L2 block by block.

    Draws, for weights that stay, ``m`` rows of x in their share of L2 and blocks of ``s`` steps::

        before                     after
        for jo in range(N / n):    for begin in range(0, depth, s):
          for io in range(tiles):    for block in range(ceil(T / m)):
            tile(io, jo)               for jo in range(N / n):
                                         for io in the block's share of the tiles:
                                           tile(io, jo): steps begin to begin + s

    A tile has the same core in all its parts, since each row block is dealt alike. A single row tile takes
    them one after the other (:attr:`Lowering.single_tile_whole_depth`).
    """
    kernel, depth = nest.kernel, nest.depth
    if nest.scheme.order == "is":
        _deal_block(nest, core)
        return
    if not kernel.block:
        _deal_row_blocks(nest, core)
        return
    parts: Any = int64(most(1, ceil_div(depth, kernel.block)))
    if nest.geometry.lowering.single_tile_whole_depth:
        single = int64(nest.row_tiles) == 1
        nest = replace(nest, parts=T.bind(T.if_then_else(single, parts, int64(1))))
        parts = T.bind(T.if_then_else(single, int64(1), parts))
    with T.serial(int64(0), parts) as part:
        _deal_row_blocks(replace(nest, begin=T.bind(part * kernel.block)), core)


def _deal_row_blocks(nest: LoopNest, core: Any) -> None:
    """Divides the rows into blocks, each of which reads all weights once. Blocks are equal: a short last
    one would compute for less time than its weights take to arrive."""
    kernel = nest.kernel
    together = most(kernel.rows, nest.geometry.block_rows(x_words(kernel, nest.depth), kernel.block))
    blocks = T.bind(int64(ceil_div(nest.rows, together)))
    with T.serial(int64(0), blocks) as block:
        first, last = _piece(nest.row_tiles, block, blocks)
        _deal_block(replace(nest, first_tile=first, block_tiles=T.bind(last - first)), core)


def _deal_block(nest: LoopNest, core: Any) -> None:
    """This core's share of a block's tiles; the inner loop is cut where a share begins or ends."""
    stationary, columns = nest.scheme.order == "ws", int64(nest.column_tiles)
    outer, inner = (columns, nest.pass_tiles) if stationary else (nest.pass_tiles, columns)

    def tile(o: Any, i: Any) -> None:
        io, jo = (i, o) if stationary else (o, i)
        if not nest.kernel.block:
            _tile(nest, nest.first_tile + io, jo)
            return
        with T.serial(int64(0), nest.parts) as part:
            begin = T.bind(nest.begin + part * nest.kernel.block)
            _tile(replace(nest, begin=begin), nest.first_tile + io, jo)

    if nest.geometry.cores == 1:
        with T.serial(int64(0), outer) as o, T.serial(int64(0), inner) as i:
            tile(o, i)
        return
    first, last = _share(outer * inner, core, nest.geometry.cores)
    ends = (T.bind(tirx.truncdiv(first, inner)), T.bind(tirx.truncdiv(last + inner - 1, inner)))
    if stationary:
        nest = replace(nest, columns=ends)
    with T.serial(*ends) as o:
        begin, end = tirx.max(first - o * inner, int64(0)), tirx.min(last - o * inner, inner)
        with T.serial(begin, end) as i:
            tile(o, i)


def _transpose_panels(nest: LoopNest, jo: Any) -> None:
    """Transposes the weights of one column tile into scratch, panel by panel."""
    geometry, operands = nest.geometry, nest.operands
    assert operands.scratch is not None
    for panel in range(nest.panels):
        prefetch_next_product(nest, jo, panel)
        column = jo * nest.kernel.cols + panel * geometry.lanes
        w = operands.w.access_ptr("r", offset=(nest.batch * nest.cols + column) * nest.depth)
        out = operands.scratch.access_ptr("w", offset=panel * nest.panel_floats)
        arguments = [w, out, nest.cols - column]
        if not isinstance(geometry.depth, int):
            arguments.append(nest.depth)
        if operands.bias is not None:
            arguments.append(operands.bias.access_ptr("r", offset=column))
        call(nest.functions[PANEL_FUNCTION], arguments)


def _tile(nest: LoopNest, io: Any, jo: Any) -> None:
    """Emits row tile ``io`` of column tile ``jo``; the edge treatment decides which rows it has."""
    nest = replace(nest, row_tile=io)
    prefetch_next_product(nest, jo, pieces_before(nest) + io)
    if nest.scheme.composed:
        granule = nest.kernel.granule
        granules, highest = ceil_div(nest.rows, granule), nest.scheme.rows // granule
        first, height = _part(nest.scheme.edge, granules, highest, io)
        cases = [rows // granule for rows in nest.heights]
        switch(height, cases, lambda number: _exact(nest, number * granule, first, jo))
    else:
        _one_micro_kernel(nest, io, jo)


def _part(edge: str, extent: Any, most: int, number: Any) -> tuple[Any, Any]:
    """Returns the first row (or column) of a composed tile, and how many it has, ``most`` at most."""
    if edge == "rest":
        first = T.bind(number * most)
        return first, T.bind(tirx.min(int64(most), extent - first))
    tiles = T.bind(int64(ceil_div(extent, most)))
    low = T.bind(tirx.truncdiv(int64(extent), tiles))
    more = extent - low * tiles
    first = T.bind(number * low + tirx.min(number, more))
    return first, T.bind(low + T.if_then_else(number < more, int64(1), int64(0)))


def _exact(nest: LoopNest, rows: int, first: Any, jo: Any) -> None:
    kernel = replace(nest.kernel, rows=rows)
    if kernel.along == "cols":
        _call_tile(nest, kernel, "exact", first, jo)
        return
    column, width = _part(nest.scheme.edge, nest.cols, kernel.cols, jo)
    of = {cols: replace(kernel, cols=cols) for cols in nest.widths}
    switch(width, nest.widths, lambda cols: _call_tile(nest, of[cols], "exact", first, jo, column))


def _one_micro_kernel(nest: LoopNest, io: Any, jo: Any) -> None:
    """Emits DietCode's loop nest with its treatment of the tile that sticks out."""
    kernel, edge, first = nest.kernel, nest.scheme.edge, io * nest.kernel.rows
    if kernel.rows == 1:
        _call_tile(nest, kernel, "exact", first, jo)
    elif edge == "checked":
        _call_tile(nest, kernel, "checked", first, jo)
    else:
        with T.If(first + kernel.rows <= nest.rows):
            with T.Then():
                _call_tile(nest, kernel, "exact", first, jo)
            with T.Else():
                _call_tile(nest, kernel, "guarded" if edge == "padded" else "checked", first, jo)


def _call_tile(
    nest: LoopNest, kernel: CpuMicroKernel, fit: Fit, first: Any, jo: Any, column: Any | None = None
) -> None:
    geometry, operands = nest.geometry, nest.operands
    column = jo * nest.kernel.cols if column is None else column
    matrix = kernel.facts.matrix
    row = nest.batch * nest.rows + (0 if matrix else first)
    x = operands.x.access_ptr("r", offset=row * x_words(kernel, nest.depth) + nest.begin)
    if fit == "guarded":
        x = operands.scratch.access_ptr("r", offset=_pad_offset(nest))  # type: ignore[union-attr]
    values: dict[str, Callable[[], Any]] = {
        "x": lambda: x,
        "w": lambda: _weights_pointer(nest, jo, column),
        "y": lambda: operands.y.access_ptr("w", offset=row * nest.cols + column),
        "residual": lambda: operands.residual.access_ptr("r", offset=row * nest.cols + column),  # type: ignore[union-attr]
        **{dim: partial(operands.sizes.__getitem__, dim) for dim in geometry.tile_dims},
        "rows": lambda: nest.rows if matrix else nest.rows - first,
        "group": lambda: first,
        "height": lambda: nest.group_rows,
        "cols": lambda: nest.cols - column,
        "begin": lambda: nest.begin,
        "ahead": lambda: first_prefetched_line(nest, jo),
        "tiles": lambda: prefetching_tiles(nest),
    }
    names = tile_arguments(kernel, geometry, fit)
    if (
        kernel.along == "cols"
        and isinstance(nest.depth, (int, tirx.IntImm))
        and isinstance(nest.rows, tirx.IntImm)
        and geometry.coherent_code
    ):
        # A short reduction of known depth is straight-line code. What several tiles read of x or w would be
        # read before all of them, into more registers than there are, and spilled.
        forget(x, values["w"]())
    call(nest.functions[tile_name(kernel, fit)], [values[name]() for name in names])


def _weights_pointer(nest: LoopNest, jo: Any, column: Any) -> Any:
    geometry, operands = nest.geometry, nest.operands
    if nest.transposes:
        return operands.scratch.access_ptr("r")  # type: ignore[union-attr]
    if geometry.weights == "transposed":
        return operands.w.access_ptr("r", offset=(nest.batch * nest.cols + column) * nest.depth)
    if geometry.weights == "direct":
        return operands.w.access_ptr("r", offset=nest.batch * nest.depth * nest.cols + column)
    offset = HEADER_FLOATS + jo * nest.tile_floats + nest.begin * geometry.lanes
    return operands.w.access_ptr("r", offset=offset)


def _pad_offset(nest: LoopNest) -> Any:
    """Returns the offset of the padded copy of the edge tile, which stands after the panels."""
    return nest.tile_floats if nest.transposes else 0


def _pad_edge_tile(nest: LoopNest) -> None:
    """Pads locally (paper, section 3.2): the edge tile is copied once and filled up with zeros.

    Draws::

        before                                       after
        for every tile and every k:                  if T % rows:
          value = x[io*rows + i, k]                    for i, k: scratch[i, k] =
                  if io*rows + i < T else 0                        x[full*rows + i, k] or 0
          acc[i] += value * w[k]                     for every tile and every k:
                                                       acc[i] += tile_of_x[i, k] * w[k]

    A CPU's cache needs no staging of full tiles, so only the tile that sticks out is copied: the
    compute stage then reads ``rows`` valid rows whatever T is, without a bound check.
    """
    kernel, operands, depth = nest.kernel, nest.operands, nest.depth
    if not pads(nest.scheme):
        return
    assert operands.scratch is not None
    full = T.bind(tirx.truncdiv(nest.rows, int64(kernel.rows)))
    inside = T.bind(nest.rows - full * kernel.rows)
    base = _pad_offset(nest)
    source = operands.x.access_ptr("r", offset=(nest.batch * nest.rows + full * kernel.rows) * depth)
    # The C library's functions, since stores would carry alias information that holds for one buffer's
    # name only, while tiles read the copy by another.
    with T.If(inside > 0), T.Then():
        copy, rest = (operands.scratch.access_ptr("w", offset=base + at) for at in (0, inside * depth))
        T.evaluate(tirx.call_extern("handle", "memcpy", copy, source, inside * (4 * depth)))
        zeros = (kernel.rows - inside) * (4 * depth)
        T.evaluate(tirx.call_extern("handle", "memset", rest, tirx.IntImm("int32", 0), zeros))


def call(function: Any, arguments: list[Any]) -> None:
    """Calls a private function of the same module."""
    T.evaluate(tvm.ir.Call(function, arguments, ret_ty="void"))


def tiles_of(
    scheme: CpuScheme, heights: Iterable[int], widths: Iterable[int] | None = None
) -> tuple[tuple[CpuMicroKernel, Fit], ...]:
    """Returns the tile functions a scheme may call: for composition, one for each height (and width)."""
    kernel = scheme.kernel
    if scheme.composed:
        sizes = product(heights, (kernel.cols,) if widths is None else widths)
        return tuple((replace(kernel, rows=rows, cols=cols), "exact") for rows, cols in sizes)
    fits: dict[str, tuple[Fit, ...]] = {
        "padded": ("exact", "guarded"),
        "checked": ("checked",),
        "partitioned": ("exact", "checked"),
    }
    return tuple((kernel, fit) for fit in (("exact",) if kernel.rows == 1 else fits[scheme.edge]))

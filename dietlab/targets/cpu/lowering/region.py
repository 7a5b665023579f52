"""Covers the output with a plan's tiles: loop order, cores, composition and edge tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.lowering.lines import cover_lines
from dietlab.targets.cpu.lowering.loop_nest import (
    Position,
    RowBlock,
    Tiling,
    call,
    composed,
    each_core,
    groups,
    k_blocks,
    k_blocks_of_tile,
    row_blocks,
    rows_together,
    share,
    tiles,
)
from dietlab.targets.cpu.lowering.matrix_tile import configured
from dietlab.targets.cpu.lowering.micro_kernel import Fit, tile_arguments, tile_name
from dietlab.targets.cpu.lowering.panels import PANEL_FUNCTION
from dietlab.targets.cpu.lowering.patches import patches_name
from dietlab.targets.cpu.lowering.prefetch import NextProduct, first_prefetched_line, prefetching_tiles
from dietlab.targets.cpu.lowering.scratch import allocated, pads, scratch_buffer, stage_name
from dietlab.targets.cpu.lowering.tir import ceil_div, either, forget, int64, switch, when


def region(tiling: Tiling) -> None:
    """Covers ``y`` as :func:`dietlab.scheme.plan_for` says.

    For ``ws`` (``is`` exchanges the two loops):

    ::

        before                      after
        for b in range(batch):      parallel for core in range(cores):
          for i in range(T):          for b in this core's share of range(batch):
            for j in range(N):          for jo in range(N / cols):
              y[b, i, j] = ...            transpose the panels of column tile jo (if w varies)
                                          for io in range(ceil(T / rows)):
                                            tile(x, w, y)

    Without a batch each core gets an equal share of the *tiles*, numbered along the inner loop, so
    that shares differ by at most one tile. Panels that are transposed on the fly are not divided.
    """
    geometry = tiling.geometry
    with each_core(geometry.cores) as core, _prepared(tiling) as tiling:
        if geometry.channelwise or tiling.kernel.lines:
            with groups(geometry) as group:
                cover_lines(tiling, core, group)
            return
        if geometry.batch is not None and geometry.weights != "packed":
            products, ahead = geometry.value(geometry.batch, tiling.operands.sizes), NextProduct.of(tiling)
            with T.serial(*share(products, core, geometry.cores)) as batch:
                _pad_edge_tile(tiling, batch)
                _cover_panels(tiling, batch, ahead, (0, int64(tiling.column_tiles)))
            return
        _pad_edge_tile(tiling, 0)
        if geometry.weights == "transposed":
            columns = share(tiling.column_tiles, core, geometry.cores)
            _cover_panels(tiling, 0, NextProduct(), columns)
        else:
            with groups(geometry) as group:
                _cover_tiles(tiling, core, group)


@contextmanager
def _prepared(tiling: Tiling) -> Iterator[Tiling]:
    """Yields the tiles with a core's memory, and with the input as their unit reads it: as words, as a copy,
    or as it is. Each core makes its own copy: else it would have to wait for other cores' parts."""
    operands, facts = tiling.operands, tiling.kernel.facts
    if facts.matrix:
        pointer = T.bind(tirx.reinterpret("handle", operands.x.access_ptr("r")))
        x = T.decl_buffer((tiling.rows * tiling.depth,), "int32", data=pointer, align=1)
        with configured(tiling) as height:
            yield replace(tiling, operands=replace(operands, x=x), group_rows=height)
    elif tiling.geometry.gathers and not tiling.kernel.lines:
        with allocated(_gathered_rows(tiling) * tiling.x.apart) as copy:
            yield replace(tiling, operands=replace(operands, scratch=copy))
    elif facts.staged_words:
        with allocated(tiling.rows * (tiling.depth * facts.staged_words)) as copy:
            pointers = [operands.x.access_ptr("r"), copy.access_ptr("w")]
            call(tiling.functions[stage_name(tiling.kernel.unit)], [*pointers, tiling.rows])
            # The copy is written by one name and type and read by others: other memory to the compiler.
            forget(pointers[1], pointers[1])
            yield replace(tiling, operands=replace(operands, x=copy))
    elif operands.scratch is not None:
        yield tiling
    else:
        with scratch_buffer([tiling.scheme], tiling.geometry, tiling.depth) as scratch:
            yield replace(tiling, operands=replace(operands, scratch=scratch))


def _gathered_rows(tiling: Tiling) -> Any:
    """Returns the largest number of rows that are copied at a time: those of a tile, or those of a block of
    tiles, which has at most two tiles more than its share of L2."""
    if tiling.scheme.order == "is":
        return tiling.kernel.rows
    return rows_together(tiling) + 2 * tiling.kernel.rows


def _cover_panels(tiling: Tiling, batch: Any, ahead: NextProduct, columns: tuple[Any, Any]) -> None:
    """Covers column tiles, each with all its row tiles, or the other way round."""
    block = RowBlock(0, tiling.row_tiles)

    def tile(row: Any, column: Any) -> None:
        ahead.prefetch(batch, column, tiling.transposed_panels + row)
        _tile(tiling, Position(row, column, block, (0, tiling.column_tiles), batch=batch))

    if tiling.scheme.order == "is" and tiling.geometry.weights != "transposed":
        with T.serial(int64(0), tiling.row_tiles) as row, T.serial(*columns) as column:
            tile(row, column)
        return
    with T.serial(*columns) as column:
        if tiling.transposed_panels:
            _transpose_panels(tiling, batch, ahead, column)
        with T.serial(int64(0), tiling.row_tiles) as row:
            tile(row, column)


def _cover_tiles(tiling: Tiling, core: Any, group: Any) -> None:
    """Covers this core's share of all tiles of a group of columns. A long reduction is taken part by part,
    and rows that would not stay in L2 block by block.

    For example, for stationary weights, ``m`` rows of x in their share of L2, and blocks of ``s`` steps::

        before                     after
        for jo in range(N / n):    for begin in range(0, depth, s):
          for io in range(tiles):    for block in range(ceil(T / m)):
            tile(io, jo)               for jo in range(N / n):
                                         for io in the block's share of the tiles:
                                           tile(io, jo): steps begin to begin + s

    A tile has the same core in all its parts, since all parts of a row block are divided equally.
    """
    with k_blocks(tiling) as (first_step, parts), row_blocks(tiling) as block:
        gathered: Any = 0
        if tiling.geometry.gathers and tiling.scheme.order == "ws":
            gathered = _gather(tiling, group, block.first, block.first + block.tiles)
        with (
            tiles(tiling, block, core, partial(_gather_tile, tiling, group)) as (row, column, columns),
            k_blocks_of_tile(tiling, first_step, parts) as begin,
        ):
            if tiling.geometry.gathers and tiling.scheme.order == "is":
                gathered = _first_row(tiling, row)
            _tile(tiling, Position(row, column, block, columns, begin, group, gathered))


def _gather_tile(tiling: Tiling, group: Any, row_tile: Any) -> None:
    """Copies the input's rows of one row tile, if they are copied from an image."""
    if tiling.geometry.gathers:
        _gather(tiling, group, row_tile, row_tile + 1)


def _gather(tiling: Tiling, group: Any, first_tile: Any, end_tile: Any) -> Any:
    """Copies the input's rows of some row tiles from an image into scratch; returns the first row."""
    patches, sizes = tiling.geometry.patches, tiling.operands.sizes
    assert patches is not None and tiling.operands.scratch is not None
    first = T.bind(_first_row(tiling, first_tile))
    rows = tirx.min(_first_row(tiling, end_tile), int64(tiling.rows)) - first
    image = tiling.operands.x.access_ptr("r", offset=group * int(patches.channels))
    pointers = [image, tiling.operands.scratch.access_ptr("w")]
    function = tiling.functions[patches_name(tiling.kernel.unit)]
    call(function, [*pointers, first, rows, *(sizes[name] for name in patches.dims)])
    if tiling.kernel.facts.staged:
        # The copy is written in one type and read in another: other memory to the compiler.
        forget(pointers[1], pointers[1])
    return first


def _first_row(tiling: Tiling, row_tile: Any) -> Any:
    """Returns the first row of a composed row tile; beyond the last tile, the number of rows or more."""
    most = tiling.scheme.rows
    if tiling.scheme.edge == "rest":
        return row_tile * most
    low = tirx.truncdiv(int64(tiling.rows), int64(tiling.row_tiles))
    return row_tile * low + tirx.min(row_tile, tiling.rows - low * tiling.row_tiles)


def _transpose_panels(tiling: Tiling, batch: Any, ahead: NextProduct, column_tile: Any) -> None:
    """Transposes the weights of one column tile into scratch, panel by panel."""
    geometry, operands = tiling.geometry, tiling.operands
    assert operands.scratch is not None
    for panel in range(tiling.panels):
        ahead.prefetch(batch, column_tile, panel)
        column = column_tile * tiling.kernel.cols + panel * geometry.lanes
        out = operands.scratch.access_ptr("w", offset=panel * tiling.panel_floats)
        arguments = [tiling.w.at(batch * tiling.cols + column), out, tiling.cols - column]
        if not isinstance(geometry.depth, int):
            arguments.append(tiling.depth)
        if operands.bias is not None:
            arguments.append(operands.bias.access_ptr("r", offset=column))
        call(tiling.functions[PANEL_FUNCTION], arguments)


def _tile(tiling: Tiling, at: Position) -> None:
    """Emits one tile; the edge treatment decides which rows it has."""
    if not tiling.scheme.composed:
        _one_micro_kernel(tiling, at)
        return
    granule = tiling.kernel.granule
    granules, highest = ceil_div(tiling.rows, granule), tiling.scheme.rows // granule
    first, height = composed(tiling.scheme.edge, granules, highest, at.row_tile)
    cases = [rows // granule for rows in tiling.heights]
    switch(height, cases, lambda number: _exact(tiling, at, number * granule, first))


def _exact(tiling: Tiling, at: Position, rows: int, first: Any) -> None:
    kernel = replace(tiling.kernel, rows=rows)
    if kernel.along == "cols":
        _call_tile(tiling, at, kernel, "exact", first)
        return
    column, width = composed(tiling.scheme.edge, tiling.cols, kernel.cols, at.column_tile)
    of = {cols: replace(kernel, cols=cols) for cols in tiling.widths}
    switch(width, tiling.widths, lambda cols: _call_tile(tiling, at, of[cols], "exact", first, column))


def _one_micro_kernel(tiling: Tiling, at: Position) -> None:
    """Emits DietCode's loop nest with its treatment of the tile that sticks out."""
    kernel, edge = tiling.kernel, tiling.scheme.edge
    first = at.row_tile * kernel.rows
    exact, guarded, checked = (
        partial(_call_tile, tiling, at, kernel, fit, first) for fit in ("exact", "guarded", "checked")
    )
    if kernel.rows == 1:
        exact()
    elif edge == "checked":
        checked()
    else:
        either(first + kernel.rows <= tiling.rows, exact, guarded if edge == "padded" else checked)


def _call_tile(
    tiling: Tiling, at: Position, kernel: CpuMicroKernel, fit: Fit, first: Any, column: Any | None = None
) -> None:
    """Calls the tile function for the rows from ``first`` on, and the columns from ``column`` on (None: those
    of the column tile)."""
    geometry, operands, matrix = tiling.geometry, tiling.operands, kernel.facts.matrix
    column = at.column_tile * tiling.kernel.cols if column is None else column
    row = at.batch * tiling.rows + (0 if matrix else first)
    if fit == "guarded":
        x = operands.scratch.access_ptr("r", offset=_pad_offset(tiling))  # type: ignore[union-attr]
    elif geometry.gathers:
        x = operands.scratch.access_ptr("r", offset=(first - at.gathered) * tiling.x.apart)  # type: ignore[union-attr]
    else:
        x = tiling.x.at(row, at.begin)
    w = _weights_pointer(tiling, at, column)
    if geometry.groups == 1:
        place = row * tiling.cols + column
    else:
        place = first * (tiling.cols * geometry.groups) + at.batch * tiling.cols + column
    if (
        kernel.along == "cols"
        and isinstance(tiling.depth, (int, tirx.IntImm))
        and isinstance(tiling.rows, tirx.IntImm)
        and geometry.coherent_code
    ):
        # A short reduction of known depth is straight-line code. The compiler would read the rows of x or w
        # that several tiles share before all of them, into more registers than there are, and spill.
        forget(x, w)
    names = tile_arguments(kernel, geometry, fit)
    values = {
        **operands.sizes,
        "x": x,
        "w": w,
        "y": operands.y.access_ptr("w", offset=place),
        "rows": tiling.rows if matrix else tiling.rows - first,
        "group": first,
        "height": tiling.group_rows,
        "cols": tiling.cols - column,
        "begin": at.begin,
    }
    if operands.residual is not None:
        values["residual"] = operands.residual.access_ptr("r", offset=place)
    if "ahead" in names:
        values["ahead"] = first_prefetched_line(tiling, at)
        values["tiles"] = prefetching_tiles(tiling, at.block)
    call(tiling.functions[tile_name(kernel, fit)], [values[name] for name in names])


def _weights_pointer(tiling: Tiling, at: Position, column: Any) -> Any:
    """Returns the pointer to a tile's first weight."""
    geometry, operands = tiling.geometry, tiling.operands
    if tiling.transposed_panels:
        return operands.scratch.access_ptr("r")  # type: ignore[union-attr]
    if geometry.weights == "transposed":
        return tiling.w.at(at.batch * tiling.cols + column)
    if geometry.weights == "direct":
        return tiling.w.at(at.batch * tiling.depth, column)
    offset = tiling.packed_at(at.batch) + at.column_tile * tiling.tile_floats + at.begin * geometry.lanes
    return operands.w.access_ptr("r", offset=offset)


def _pad_offset(tiling: Tiling) -> Any:
    """Returns the offset of the padded copy of the edge tile, which stands after the panels."""
    return tiling.tile_floats if tiling.transposed_panels else 0


def _pad_edge_tile(tiling: Tiling, batch: Any) -> None:
    """Pads locally (paper, section 3.2): the edge tile is copied once and filled up with zeros.

    As loops::

        before                                       after
        for every tile and every k:                  if T % rows:
          value = x[io*rows + i, k]                    for i, k: scratch[i, k] =
                  if io*rows + i < T else 0                        x[full*rows + i, k] or 0
          acc[i] += value * w[k]                     for every tile and every k:
                                                       acc[i] += tile_of_x[i, k] * w[k]

    A CPU's cache needs no staging of full tiles, so only the tile that sticks out is copied: the
    compute stage then reads ``rows`` valid rows whatever T is, without a bound check.
    """
    kernel, operands, depth = tiling.kernel, tiling.operands, tiling.depth
    if not pads(tiling.scheme):
        return
    assert operands.scratch is not None
    full = T.bind(tirx.truncdiv(tiling.rows, int64(kernel.rows)))
    inside = T.bind(tiling.rows - full * kernel.rows)
    base = _pad_offset(tiling)
    source = tiling.x.at(batch * tiling.rows + full * kernel.rows)
    # The C library's functions, since stores would carry alias information that holds for one buffer's
    # name only, while tiles read the copy by another.
    with when(inside > 0):
        copy, rest = (operands.scratch.access_ptr("w", offset=base + at) for at in (0, inside * depth))
        T.evaluate(tirx.call_extern("handle", "memcpy", copy, source, inside * (4 * depth)))
        zeros = (kernel.rows - inside) * (4 * depth)
        T.evaluate(tirx.call_extern("handle", "memset", rest, tirx.IntImm("int32", 0), zeros))


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

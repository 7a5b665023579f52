"""Portfolio + decision tree -> one module: an operator on a GPU that serves every shape."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from math import isqrt
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.dispatch_tree import choice, needed_heights, plan_function
from dietlab.problem import require_dtype
from dietlab.scheme import Leaf, Scheme, Tree, scheme_with
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.lowering.block import block_program
from dietlab.targets.cuda.lowering.geometry import (
    Arrays,
    BlockGeometry,
    BlockPosition,
    shared_alignment,
    shared_elements,
)
from dietlab.targets.cuda.lowering.tensor_maps import describes, tensor_maps
from dietlab.targets.cuda.lowering.tir import bound, computed_once, int32, int64
from dietlab.targets.cuda.lowering.tma_pipeline import ring_program
from dietlab.targets.cuda.space import COPY_BYTES
from dietlab.targets.cuda.unit import GROUPED

RESIDENT = "tirx.launch_bounds_min_blocks_per_sm"
"""The attribute by which TVM tells the CUDA compiler how many blocks a multiprocessor must have room for."""


NARROW = Scheme(CudaMicroKernel(32, 64, 32, 2, 2, unit="mma"))
"""What serves halves that begin anywhere where the library's own micro-kernels do not: right, if not fast."""


MOST_BLOCKS = 2**31 - 1
"""Of a grid along its first axis (CUDA C++ Programming Guide, technical specifications); rows, too, are
counted in 32 bits."""


def library_module(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Returns the module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``T`` is the dynamic dimension; operands in the order of the workload's inputs):

    - ``run(x, w, [bias], [residual], y)``: launches one kernel on the caller's stream; nested ``if``s on
      the host choose it. An empty call launches nothing; one of more rows than any grid has blocks for
      (:data:`MOST_BLOCKS`) is refused.
    - ``run_plan(..., plan)``, with ``every_plan`` only: computes ``y`` by the plan that the caller chooses.
    - ``plan(T) -> int``: the number of the plan that ``run`` chooses.
    - ``idle(T) -> 0``: does nothing; what a call costs, to be taken off when ``plan`` is timed.

    Args:
        schemes: those that the tree names, by number.
        tree: chooses among them; only heights that some shape needs are compiled.
        every_plan: whether any plan can be run on any shape.
        only: for each plan the row counts that it will be called with (default: any). For measuring only:
            results for others are undefined.
    """
    heights = needed_heights(schemes, tree, geometry.size, every_plan=every_plan, only=only)
    entries = {
        "run": _run(geometry, schemes, heights, tree, only),
        "plan": plan_function("plan", geometry.dims, tree),
        "idle": plan_function("idle", geometry.dims, Leaf(0)),
    }
    if every_plan:
        entries["run_plan"] = _run(geometry, schemes, heights, None, only)
    return tvm.IRModule(entries)


def _run(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    heights: Sequence[tuple[int, ...]],
    tree: Tree | None,
    only: Sequence[Sequence[int]] | None,
) -> Any:
    """Returns the entry function; without a tree the plan is its last argument.

    Draws, for an operand whose rows are of dynamic length::

        if T > 0:
          if arrays begin at multiples of 16 bytes:
            if T % 4 == 0:                     # rows do, too
              if plan(T) == 0: launch 0, with wide copies ...
              if plan(T) == 1: launch 1, with wide copies ...
            else:
              if plan(T) == 0: launch 0 ...
          else:
            launch the first plan with narrow copies: any alignment is right, if not fast
    """
    name = "run" if tree is not None else "run_plan"
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, "global_symbol": name})
        size = tirx.Var(geometry.size, "int64")
        shapes = geometry.operands({geometry.size: size})
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        plan = T.arg("plan", T.int64()) if tree is None else None
        arrays = {n: _array(n, handles[n], shapes[n], geometry.dtype) for n in shapes}
        flat = Arrays(*(_flat(arrays.get(n), geometry) for n in ("x", "w", "y", "bias", "residual")))
        chosen = plan if tree is None else bound("plan", choice(tree, {geometry.size: size}))
        wide = max(geometry.widths) > 1 or _widened(geometry) is not None
        asserted = require_dtype(geometry.dtype).extension  # see _array
        most = _most_rows(geometry, schemes)
        with T.Assert(size <= int64(most), f"a GPU's grid covers {most} rows at most", "ValueError"):
            pass
        with T.If(size > int64(0)), T.Then():
            if not wide or asserted:
                _multiples(geometry, schemes, heights, flat, size, chosen, only)
            else:
                with T.If(_aligned(flat)):
                    with T.Then():
                        _multiples(geometry, schemes, heights, flat, size, chosen, only)
                    with T.Else():  # the code of one height serves every shape by itself
                        _launches(_narrow(schemes[0]), replace(geometry, aligned=False), flat, size, ())
    return builder.get()


def _most_rows(geometry: BlockGeometry, schemes: Sequence[CudaScheme]) -> int:
    """Returns the number of rows that every plan has blocks for, whatever heights it splits them into."""
    found = [MOST_BLOCKS]
    for scheme in {*schemes, *(_narrow(scheme) for scheme in schemes)}:
        kernel = scheme.kernel
        blocks = MOST_BLOCKS // kernel.splits
        if isinstance(geometry.cols, int):
            found.append((blocks // -(-geometry.cols // kernel.cols) - 1) * kernel.granule)
        else:  # as many columns as rows
            found.append(isqrt(blocks * kernel.granule * kernel.cols) - max(kernel.granule, kernel.cols))
    return min(found)


def _narrow(scheme: CudaScheme) -> CudaScheme:
    """Returns the scheme whose copies are single elements: this one, or one of warps in place of groups
    of them, whose sums leave no registers for that."""
    if scheme.kernel.unit in GROUPED:
        return NARROW
    return scheme_with(scheme, edge="padded") if scheme.composed else scheme


def _widened(geometry: BlockGeometry) -> BlockGeometry | None:
    """Returns the geometry where the dynamic extent is a multiple of the widest copy; None where that widens
    nothing."""
    found = replace(geometry, multiple=geometry.vector)
    return found if found.widths != geometry.widths else None


def _multiples(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    heights: Sequence[tuple[int, ...]],
    arrays: Arrays,
    size: Any,
    chosen: Any,
    only: Sequence[Sequence[int]] | None,
) -> None:
    """Emits the plans for row counts that are multiples of the widest copy, and for others: each where some
    shape needs it."""
    wide = _widened(geometry)
    multiples = {count % geometry.vector == 0 for counts in only or () for count in counts}
    if wide is None or len(multiples) == 1:
        known = wide if wide is not None and multiples == {True} else geometry
        _plans(known, schemes, heights, arrays, size, chosen)
        return
    with T.If(tirx.truncmod(size, int64(wide.multiple)) == int64(0)):
        with T.Then():
            _plans(wide, schemes, heights, arrays, size, chosen)
        with T.Else():
            _plans(geometry, schemes, heights, arrays, size, chosen)


def _plans(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    heights: Sequence[tuple[int, ...]],
    arrays: Arrays,
    size: Any,
    chosen: Any,
) -> None:
    for number, scheme in enumerate(schemes):
        if heights[number]:
            with T.If(chosen == int64(number)), T.Then():
                if scheme.kernel.unit == "tma" and not describes(geometry, scheme.kernel):
                    _launches(NARROW, geometry, arrays, size, ())
                else:
                    _launches(scheme, geometry, arrays, size, heights[number])


def _launches(
    scheme: CudaScheme,
    geometry: BlockGeometry,
    arrays: Arrays,
    size: Any,
    heights: tuple[int, ...],
) -> None:
    """Emits one launch, of the kernel with the two heights that this shape needs.

    Draws, for an even split with 128 rows at most, in granules of 16::

        tiles = ceil(T / 128); low, more = divmod(ceil(T / 16), tiles)
        if low == 1: launch(32 rows for `more` tiles, 16 for the others)
        if low == 2: launch(48 rows for `more` tiles, 32 for the others)
        ...
    """
    granule, most = scheme.kernel.granule, scheme.rows // scheme.kernel.granule
    if not scheme.composed:
        count = bound("count", _ceil(size, scheme.rows))
        _launch([(scheme, count)], geometry, arrays, size)
        return
    granules = bound("granules", _ceil(size, granule))
    if scheme.edge == "even":
        tiles = bound("tiles", _ceil(size, scheme.rows))
        low = bound("low", tirx.truncdiv(granules, tiles))
    else:
        low = bound("low", tirx.truncmod(granules, int64(most)))
    for height, parts in _pairs(scheme, heights):
        with T.If(low == int64(height)), T.Then():
            if scheme.edge == "even":  # a kernel that knows its height divides by no variable
                more = bound("more", granules - int64(height) * tiles)
                counts = (more, tiles - more)
            else:
                counts = (tirx.truncdiv(granules, int64(most)), int64(1))
            regions = [(scheme_with(scheme, rows=rows), counts[which]) for rows, which in parts]
            _launch(regions, geometry, arrays, size)


def _pairs(scheme: CudaScheme, heights: tuple[int, ...]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Returns, for each lower height in granules, the regions of its launch: rows, and the count that is
    theirs."""
    granule = scheme.kernel.granule
    if scheme.edge == "even":
        taller = {rows: [(rows + granule, 0)] if rows + granule in heights else [] for rows in heights}
        return [(rows // granule, [*taller[rows], (rows, 1)]) for rows in heights]
    full = [(scheme.rows, 0)]
    lower = [(rows // granule, [*full, (rows, 1)]) for rows in heights if rows < scheme.rows]
    return [(0, full), *lower] if scheme.rows in heights else [(low, parts[1:]) for low, parts in lower]


def _launch(
    regions: Sequence[tuple[CudaScheme, Any]],
    geometry: BlockGeometry,
    arrays: Arrays,
    size: Any,
) -> None:
    """Launches the regions of a plan, one below the other, in one grid.

    Draws, for two regions of 3 and 2 row tiles and blocks numbered down the rows first (neighbouring
    blocks share the tile of ``w``)::

        block  0  5      tile 0 of rows, region 0
               1  6      tile 1
               2  7      tile 2
               3  8      tile 0, region 1
               4  9      tile 1

    Blocks that share a reduction are neighbours: a cluster of them stands where one block stands here. So do
    blocks that share rows, which have one tile of columns each.
    """
    leading = regions[0][0]
    first, checked = leading.kernel, leading.edge == "checked"
    cols = geometry.extent(geometry.cols, size)
    column_tiles = -(-cols // first.cols) if isinstance(cols, int) else _ceil(cols, first.cols)
    row_tiles = bound("row_tiles", int32(sum((count for _, count in regions[1:]), regions[0][1])))
    counts = [bound("tiles_of_region", int32(count)) for _, count in regions]
    rows = bound("rows", int32(size))
    grid = bound("grid", row_tiles * int32(column_tiles // first.multicast))
    maps = tensor_maps(first, geometry, arrays, size) if first.unit == "tma" else None
    elements = max(shared_elements(scheme.kernel, geometry) for scheme, _ in regions)
    with ExitStack() as stack:
        block = stack.enter_context(T.launch_thread("blockIdx.x", grid * int32(first.cluster)))
        batch = stack.enter_context(T.launch_thread("blockIdx.y", int32(geometry.batch or 1)))
        rank = int32(0)
        if first.cluster > 1:
            rank = stack.enter_context(T.launch_thread("clusterCtaIdx.x", int32(first.cluster)))
            block = bound("cluster", tirx.truncdiv(block, int32(first.cluster)))
        thread = stack.enter_context(T.launch_thread("threadIdx.x", int32(first.threads)))
        if first.resident > 1 or maps is not None:  # registers are given and taken from a known number
            stack.enter_context(T.attr(int32(0), RESIDENT, first.resident))
        align = shared_alignment(first)
        shared = IRBuilder.name(
            "shared", T.alloc_buffer((elements,), geometry.dtype, scope="shared.dyn", align=align)
        )
        tile = computed_once("tile", tirx.truncmod(block, row_tiles))
        across = tirx.truncdiv(block, row_tiles)
        if first.multicast > 1:
            across = across * int32(first.multicast) + rank
        first_col = computed_once("first_col", across * int32(first.cols))

        def emit(kernel: CudaMicroKernel, row: Any) -> None:
            place = BlockPosition(batch, bound("first_row", row), first_col, rows, thread, rank, checked)
            if maps is not None:
                ring_program(kernel, geometry, arrays, shared, place, maps)
                return
            block_program(kernel, geometry, arrays, shared, place)

        if len(regions) == 1:
            emit(first, tile * int32(first.rows))
            return
        last = regions[1][0].kernel
        with T.If(tile < counts[0]):
            with T.Then():
                emit(first, tile * int32(first.rows))
            with T.Else():
                emit(last, counts[0] * int32(first.rows) + (tile - counts[0]) * int32(last.rows))


def _array(name: str, handle: Any, shape: tuple[Any, ...], dtype: str) -> Any:
    """Returns an array argument; the name appears in the library's error messages. One of bfloat16 has to
    begin at a multiple of the widest copy (TVM cannot take its pointer for a number and look)."""
    precision = require_dtype(dtype)
    align = COPY_BYTES if precision.extension else precision.itemsize
    return IRBuilder.name(name, T.match_buffer(handle, shape, dtype, align=align))


def _flat(array: Any | None, geometry: BlockGeometry) -> Any | None:
    """Returns the memory as one row of elements."""
    if array is None:
        return None
    total: Any = int64(1)
    for extent in array.shape:
        total = total * int64(extent)
    return T.decl_buffer((total,), geometry.dtype, data=array.data, align=geometry.itemsize)


def _aligned(arrays: Arrays) -> Any:
    """Returns whether all arrays begin at a multiple of the widest copy."""
    given = (arrays.x, arrays.w, arrays.y, arrays.bias, arrays.residual)
    places = [T.reinterpret("uint64", T.address_of(flat[int64(0)])) for flat in given if flat is not None]
    low = tirx.bitwise_and(reduce(tirx.bitwise_or, places), tirx.const(COPY_BYTES - 1, "uint64"))
    return low == tirx.const(0, "uint64")


def _ceil(extent: Any, tile: int) -> Any:
    return tirx.truncdiv(extent + int64(tile - 1), int64(tile))

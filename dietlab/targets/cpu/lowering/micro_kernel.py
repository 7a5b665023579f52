"""A micro-kernel as TensorIR: one function that computes one tile of the output in registers.

Every function here is one visible step; :func:`tile_function` is their list.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem import Activation
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.compute_stage import multiply_add
from dietlab.targets.cpu.lowering.geometry import Geometry, Tile
from dietlab.targets.cpu.lowering.tir import (
    L1,
    constant,
    either,
    function,
    masked_load,
    masked_store,
    narrowed,
    prefetch,
    stack_buffer,
    stored_as,
    vector,
    when,
    widened,
)
from dietlab.targets.cpu.lowering.units import finished, first_sums, unit_code, x_words

# v * P(v^2) / Q(v^2) approximates Phi(v) - 1/2 with the least largest error of v * (1/2 + it) on
# |v| <= limit (weighted least squares on Chebyshev points, reweighted until the errors are level).
# In float32 the result is within 1.1e-6 (an exact GELU rounded to float32 near v = 5: 2.4e-7).
_GELU = {
    "gelu_tanh": (
        4.9,
        (0.398941189, 0.0378405229, 0.00374788459, 0.000175569867, 4.72287929e-06),
        (1.0, 0.262332975, 0.0277759232, 0.0014903892, 7.70777883e-05, 4.5478663e-07),
    ),
    "gelu_erf": (
        5.5,
        (0.398941986, 0.0351419504, 0.00476157971, 0.000182850307, 6.53030265e-06, 2.22141602e-08),
        (1.0, 0.254751402, 0.029398436, 0.00196240043, 7.8605473e-05, 1.19531174e-06),
    ),
}

Fit = Literal["exact", "guarded", "checked"]
"""The rows of a tile. ``exact``: all are inside the output; ``guarded``: all can be read, but only some are
inside (local padding); ``checked``: only those inside can be read, so that the compute stage tests each."""


def tile_function(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> Any:
    """Returns ``tile(x, w, y, ...)``: a ``kernel.rows x kernel.cols`` tile, all of depth at once, or one
    block of it.

    For example, for ``2 x 1`` vectors and ``unroll=1``::

        before                                 after
        for i in range(2):                     a0 = a1 = bias or 0                  # registers
          for v in range(lanes):               for k in range(depth):
            for k in range(depth):               a0 += broadcast(x[0, k]) * w[k, :]
              y[i, v] += x[i, k] * w[v, k]       a1 += broadcast(x[1, k]) * w[k, :]
                                               y[0, :] = activation(a0) + residual[0, :]
                                               y[1, :] = activation(a1) + residual[1, :]

    If the reduction is cut into blocks, the accumulators of all blocks but the first begin with the sums that
    the block before left in ``y``. Only the last block has activation and residual.

    ``x``, ``w``, ``y`` (and ``residual``) point at the tile's first element. Further arguments are there
    only if needed, in the order of :func:`tile_arguments`: the dynamic dimensions that strides and depth
    depend on, ``rows`` and ``cols`` (how much of the tile lies inside the output; only that is written),
    ``begin`` (the first step of the block), ``ahead`` and ``tiles`` (where prefetches of the next panel
    begin, and how many row tiles share them).
    """
    with function(tile_name(kernel, fit)) as builder:
        given, tile = declared(kernel, geometry, fit)
        prefetch_residual(tile)
        start_accumulators(tile)
        with unit_code(tile):
            multiply_add(tile, given.get("ahead"), given.get("tiles"))
        write_back(tile)
    return builder.get()


def declared(
    kernel: CpuMicroKernel, geometry: Geometry, fit: Fit, others: tuple[str, ...] = ()
) -> tuple[dict[str, Any], Tile]:
    """Emits the arguments (``others``, integers, last) and the buffers of a tile function; returns its
    arguments by name, and the values that its steps share. The buffers of a matrix unit have all rows of
    input and output."""
    types, matrix = tile_types(kernel, geometry), kernel.facts.matrix
    names = (*tile_arguments(kernel, geometry, fit), *others)
    given = {n: T.arg(n, T.handle(types[n]) if n in types else T.int64()) for n in names}
    sizes = geometry.with_depth({dim: given[dim] for dim in geometry.tile_dims})
    width, depth = geometry.across(sizes), geometry.value(geometry.depth, sizes)
    rows = given["rows"] if matrix else kernel.rows
    outputs = {
        name: T.decl_buffer((rows, width), types[name], data=given[name], align=4)
        for name in ("y", "residual")
        if name in given
    }
    accumulators = stack_buffer(kernel.rows * kernel.cols, geometry.precision.sums)
    # A matrix unit reads the caller's array as words, whatever its type and alignment.
    # A tile on a line reads from an address, in an image of any size.
    on_line = geometry.channelwise or kernel.lines
    shape: tuple[Any, ...] = (width,) if on_line else (rows, x_words(kernel, depth))
    x = T.decl_buffer(shape, types["x"], data=given["x"], align=1 if matrix else 4)
    if geometry.weights == "direct":
        w = T.decl_buffer((depth, width), data=given["w"], align=4)
    else:
        shape = (kernel.vectors(geometry.lanes), geometry.panel_rows(depth), geometry.lanes)
        w = T.decl_buffer(shape, types["w"], data=given["w"])
    tile = Tile(
        kernel,
        geometry,
        accumulators,
        x,
        w,
        outputs["y"],
        sizes,
        outputs.get("residual"),
        None if matrix else given.get("rows"),
        given.get("cols"),
        given.get("begin"),
        checked=fit == "checked",
    )
    return given, tile


def tile_arguments(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> tuple[str, ...]:
    """Returns the arguments of a tile function, in order."""
    # The region prefetches a batch's next product.
    ahead = kernel.ahead and (geometry.batch is None or geometry.weights == "packed")
    groups = kernel.facts.matrix
    needed = {
        "x": True,
        "w": True,
        "y": True,
        "residual": geometry.epilogue.residual,
        **dict.fromkeys(geometry.tile_dims, True),
        "rows": fit != "exact" or groups,
        "group": groups,
        "height": groups,
        "cols": geometry.has_column_tail(kernel),
        "begin": kernel.block > 0,
        "ahead": ahead,
        "tiles": ahead,
    }
    return tuple(name for name, present in needed.items() if present)


def tile_types(kernel: CpuMicroKernel, geometry: Geometry) -> dict[str, str]:
    """Returns the types by which a tile function reads and writes the arrays that its arguments point to."""
    words = "float32" if kernel.unit == "fma" else "int32"
    return {
        "x": words,
        "w": words,
        "y": stored_as(geometry.out_dtype),
        "residual": stored_as(geometry.type_of("residual")),
        "ahead": "float32",
    }


def tile_name(kernel: CpuMicroKernel, fit: Fit) -> str:
    """Returns the name of the tile function, which all schemes of a micro-kernel share."""
    return f"tile_{kernel.key.replace('.', '_')}_{fit}"


def prefetch_residual(tile: Tile) -> None:
    """Prefetches the residual, which is needed last and all at once, while the tile is computed."""
    if tile.residual is not None:
        for i, j in tile.places:
            prefetch(tile.residual, i * tile.width + j * tile.lanes, L1)


def start_accumulators(tile: Tile) -> None:
    """Begins accumulators with the bias (row 0 of each panel) or zero; after the first K-block with the sums
    so far."""
    if tile.begin is None:
        _start_with_bias(tile)
        return
    either(tile.begin == 0, lambda: _start_with_bias(tile), lambda: _start_with_sums(tile))


def _start_with_bias(tile: Tile) -> None:
    for i, j in tile.places:
        T.buffer_store(tile.accumulators, first_sums(tile, j), [tile.slot(i, j)])


def _start_with_sums(tile: Tile) -> None:
    for i, j in tile.places:
        if tile.cols is None:
            sums = tile.y[i, vector(j * tile.lanes, tile.lanes)]
        else:
            inside = tile.cols - j * tile.lanes
            sums = masked_load(tile.y, i * tile.width + j * tile.lanes, inside, tile.lanes)
        T.buffer_store(tile.accumulators, sums, [tile.slot(i, j)])


def write_back(tile: Tile) -> None:
    """Stores the part of the tile that lies inside the output, after the epilogue.

    Rows are tested one by one unless all are inside; the last vectors of a row are masked if the output's
    width is no multiple of the tile's. All K-blocks but the last store sums without the epilogue.
    """
    sums_only = tile.geometry.epilogue.activation == "none" and tile.residual is None
    if tile.begin is None or sums_only:
        _write_rows(tile)
        return
    more = tile.begin + tile.kernel.block < tile.depth
    either(more, lambda: _write_rows(tile, sums=True), lambda: _write_rows(tile))


def _write_rows(tile: Tile, *, sums: bool = False) -> None:
    for i in range(tile.kernel.rows):
        with nullcontext() if tile.rows is None or i == 0 else when(i < tile.rows):
            write_row(tile, i, at=i, sums=sums)


def write_row(tile: Tile, i: Any, *, at: Any, sums: bool = False) -> None:
    """Stores row ``i`` of the accumulators to row ``at`` of the output, after the epilogue or as ``sums``."""
    whole, cut = (partial(_write_vectors, tile, i, at, sums, masked=masked) for masked in (False, True))
    if tile.cols is None:
        whole()
    else:
        either(tile.kernel.cols <= tile.cols, whole, cut)


def _write_vectors(tile: Tile, i: Any, at: Any, sums: bool, *, masked: bool) -> None:
    lanes, epilogue = tile.lanes, tile.geometry.epilogue
    for j in range(tile.vectors):
        value = finished(tile, tile.accumulators[tile.slot(i, j)], j)
        if not sums:
            add = partial(_with_residual, tile, at, j, masked=masked)
            value = epilogue.finish(value, partial(_activated, tile), add)
        stored = narrowed(value, tile.geometry.out_dtype, lanes)
        if masked:
            assert tile.cols is not None
            masked_store(tile.y, at * tile.width + j * lanes, stored, tile.cols - j * lanes, lanes)
        else:
            T.buffer_store(tile.y, stored, [at, vector(j * lanes, lanes)])


def _activated(tile: Tile, value: Any) -> Any:
    activation = tile.geometry.epilogue.activation
    # Bound to a name, or each use would compute it again.
    return value if activation == "none" else activated(activation, T.bind(value), tile.lanes)


def _with_residual(tile: Tile, at: Any, j: int, value: Any, *, masked: bool) -> Any:
    """Returns a vector of sums with the residual of row ``at`` and vector ``j``, if there is one."""
    residual, lanes = tile.residual, tile.lanes
    if residual is None:
        return value
    if not masked:
        return value + widened(residual[at, vector(j * lanes, lanes)], lanes)
    assert tile.cols is not None
    there = masked_load(residual, at * tile.width + j * lanes, tile.cols - j * lanes, lanes)
    return value + widened(there, lanes)


def activated(activation: Activation, value: Any, lanes: int) -> Any:
    """Returns ``activation(value)`` for a vector. Not-a-number stays one. Where the exact factor rounds to 0
    or 1 it *is* 0 or 1, so that infinities give what the formula gives."""
    if activation == "relu":
        # A comparison with not-a-number is false: in this order that keeps it.
        return tirx.Select(value < constant(0.0, lanes), constant(0.0, lanes), value)
    if activation in _GELU:
        limit, numerator, denominator = _GELU[activation]
        square = value * value
        inner = value * _polynomial(numerator, square, lanes) / _polynomial(denominator, square, lanes)
        outer = tirx.Select(value < constant(0.0, lanes), constant(-0.5, lanes), constant(0.5, lanes))
        inside = square < constant(limit * limit, lanes)
        return value * (constant(0.5, lanes) + tirx.Select(inside, inner, outer))
    return value


def _polynomial(coefficients: tuple[float, ...], argument: Any, lanes: int) -> Any:
    """Evaluates a polynomial by Horner's scheme; the compiler makes each step one multiply-add."""
    value = constant(coefficients[-1], lanes)
    for coefficient in coefficients[-2::-1]:
        value = value * argument + constant(coefficient, lanes)
    return value

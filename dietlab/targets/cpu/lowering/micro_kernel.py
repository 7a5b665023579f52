"""A micro-kernel as TensorIR: one function that computes one tile of the output in registers.

Every function here is one visible step; :func:`tile_function` is their list.
"""

from __future__ import annotations

from typing import Any, Literal

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.problem import Activation
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.compute_stage import multiply_add
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.tile import Tile
from dietlab.targets.cpu.lowering.tir import (
    L1,
    constant,
    masked_load,
    masked_store,
    narrowed,
    prefetch,
    stack_buffer,
    stored_as,
    vector,
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
"""What a tile knows of its rows: all are inside the output; all can be read, but only some are inside
(local padding); or only those inside can be read, so that the compute stage tests each."""


def tile_function(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> Any:
    """Returns ``tile(x, w, y, ...)``: a ``kernel.rows x kernel.cols`` tile, all of depth at once, or one
    block of it.

    Draws, for ``2 x 1`` vectors and ``unroll=1``::

        before                                 after
        for i in range(2):                     a0 = a1 = bias or 0                  # registers
          for v in range(lanes):               for k in range(depth):
            for k in range(depth):               a0 += broadcast(x[0, k]) * w[k, :]
              y[i, v] += x[i, k] * w[v, k]       a1 += broadcast(x[1, k]) * w[k, :]
                                               y[0, :] = activation(a0) + residual[0, :]
                                               y[1, :] = activation(a1) + residual[1, :]

    If the reduction is cut into blocks, the accumulators of all but the first begin with what the block
    before left in ``y``, and only the last one has activation and residual.

    ``x``, ``w``, ``y`` (and ``residual``) point at the tile's first element. Further arguments are there
    only if needed, in the order of :func:`tile_arguments`: the dynamic dimensions that its strides and its
    depth depend on, ``rows`` and ``cols`` (how much of the tile lies inside the output; only that much is
    written), ``begin`` (the first step of the block), ``ahead`` and ``tiles`` (where to begin to ask for the
    tiles to come, and how many row tiles share that).
    """
    with IRBuilder() as builder, T.prim_func(private=True):
        given, tile = declared(kernel, geometry, fit)
        prefetch_residual(tile)
        start_accumulators(tile)
        with unit_code(tile):
            multiply_add(tile, given.get("ahead"), given.get("tiles"))
        write_back(tile)
    return builder.get()


def declared(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> tuple[dict[str, Any], Tile]:
    """Emits the name, the arguments and the buffers of a tile function; returns its arguments by name, and
    what its steps share. That of a matrix unit has all rows of the input and the output."""
    T.func_name(tile_name(kernel, fit))
    T.func_attr({"tirx.noalias": True})
    types, matrix = tile_types(kernel, geometry), kernel.facts.matrix
    names = tile_arguments(kernel, geometry, fit)
    given = {n: T.arg(n, T.handle(types[n]) if n in types else T.int64()) for n in names}
    sizes = {dim: given[dim] for dim in geometry.tile_dims}
    width, depth = (geometry.value(extent, sizes) for extent in (geometry.cols, geometry.depth))
    rows = given["rows"] if matrix else kernel.rows
    outputs = {
        name: T.decl_buffer((rows, width), types[name], data=given[name], align=4)
        for name in ("y", "residual")
        if name in given
    }
    accumulators = stack_buffer(kernel.rows * kernel.cols, geometry.precision.sums)
    # A matrix unit reads the caller's array, of bytes perhaps, as words.
    x = T.decl_buffer((rows, x_words(kernel, depth)), types["x"], data=given["x"], align=1 if matrix else 4)
    tile = Tile(
        kernel,
        geometry,
        accumulators,
        x,
        _weights_buffer(kernel, geometry, given["w"], width, depth, types["w"]),
        outputs["y"],
        outputs.get("residual"),
        sizes,
        None if matrix else given.get("rows"),
        given.get("cols"),
        given.get("begin"),
        checked=fit == "checked",
    )
    return given, tile


def tile_arguments(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> tuple[str, ...]:
    """Returns the arguments of a tile function, in order."""
    asks = kernel.ahead and geometry.batch is None  # a batch's next product is the region's business
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
        "ahead": asks,
        "tiles": asks,
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


def _weights_buffer(
    kernel: CpuMicroKernel, geometry: Geometry, pointer: Any, width: Any, depth: Any, dtype: str
) -> Any:
    if geometry.weights == "direct":
        return T.decl_buffer((depth, width), data=pointer, align=4)
    shape = (kernel.vectors(geometry.lanes), geometry.panel_rows(depth), geometry.lanes)
    return T.decl_buffer(shape, dtype, data=pointer)


def prefetch_residual(tile: Tile) -> None:
    """Prefetches the residual, which is needed last and all at once, while the tile is computed."""
    if tile.residual is not None:
        for i in range(tile.kernel.rows):
            for j in range(tile.vectors):
                prefetch(tile.residual, i * tile.width + j * tile.lanes, L1)


def start_accumulators(tile: Tile) -> None:
    """Accumulators begin with the bias (row 0 of each panel) or with zero; behind the first block of the
    reduction, with the sums so far."""
    if tile.begin is None:
        _start_with_bias(tile)
        return
    with T.If(tile.begin == 0):
        with T.Then():
            _start_with_bias(tile)
        with T.Else():
            _start_with_sums(tile)


def _start_with_bias(tile: Tile) -> None:
    for i in range(tile.kernel.rows):
        for j in range(tile.vectors):
            T.buffer_store(tile.accumulators, first_sums(tile, j), [tile.slot(i, j)])


def _start_with_sums(tile: Tile) -> None:
    for i in range(tile.kernel.rows):
        for j in range(tile.vectors):
            if tile.cols is None:
                sums = tile.y[i, vector(j * tile.lanes, tile.lanes)]
            else:
                inside = tile.cols - j * tile.lanes
                sums = masked_load(tile.y, i * tile.width + j * tile.lanes, inside, tile.lanes)
            T.buffer_store(tile.accumulators, sums, [tile.slot(i, j)])


def write_back(tile: Tile) -> None:
    """Stores the part of the tile that lies inside the output, after the epilogue.

    Rows are tested one by one unless all are inside; the last vectors of a row are masked if the
    output's width is no multiple of the tile's. Before the last block of the reduction the sums are stored
    as they are.
    """
    if tile.begin is None or not _ends_otherwise(tile):
        _write_rows(tile)
        return
    with T.If(tile.begin + tile.kernel.block < tile.depth):
        with T.Then():
            _write_rows(tile, sums=True)
        with T.Else():
            _write_rows(tile)


def _ends_otherwise(tile: Tile) -> bool:
    """Returns whether results are more than sums."""
    return tile.geometry.epilogue.activation != "none" or tile.residual is not None


def _write_rows(tile: Tile, *, sums: bool = False) -> None:
    for i in range(tile.kernel.rows):
        if tile.rows is None or i == 0:
            write_row(tile, i, at=i, sums=sums)
        else:
            with T.If(i < tile.rows), T.Then():
                write_row(tile, i, at=i, sums=sums)


def write_row(tile: Tile, i: Any, *, at: Any, sums: bool = False) -> None:
    """Stores row ``i`` of the accumulators to row ``at`` of the output: after the epilogue, or the
    ``sums`` as they are."""
    if tile.cols is None:
        _write_vectors(tile, i, at, sums, masked=False)
        return
    with T.If(tile.kernel.cols <= tile.cols):
        with T.Then():
            _write_vectors(tile, i, at, sums, masked=False)
        with T.Else():
            _write_vectors(tile, i, at, sums, masked=True)


def _write_vectors(tile: Tile, i: Any, at: Any, sums: bool, *, masked: bool) -> None:
    lanes, residual = tile.lanes, None if sums else tile.residual
    for j in range(tile.vectors):
        value = finished(tile, tile.accumulators[tile.slot(i, j)], j)
        if tile.geometry.epilogue.activation != "none" and not sums:
            # A name keeps the expression from being written out at each use.
            value = activated(tile.geometry.epilogue.activation, T.bind(value), lanes)
        offset = at * tile.width + j * lanes
        if masked:
            assert tile.cols is not None
            inside = tile.cols - j * lanes
            if residual is not None:
                value = value + widened(masked_load(residual, offset, inside, lanes), lanes)
            masked_store(tile.y, offset, narrowed(value, tile.geometry.out_dtype, lanes), inside, lanes)
        else:
            if residual is not None:
                value = value + widened(residual[at, vector(j * lanes, lanes)], lanes)
            stored = narrowed(value, tile.geometry.out_dtype, lanes)
            T.buffer_store(tile.y, stored, [at, vector(j * lanes, lanes)])


def activated(activation: Activation, value: Any, lanes: int) -> Any:
    """Returns ``activation(value)`` for a vector.

    Not-a-number stays one. Where the exact factor rounds to 0 or 1 it *is* 0 or 1, so that infinities
    come out as the formula has them.
    """
    if activation == "relu":
        # In this order a comparison with not-a-number, which is false, keeps it.
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

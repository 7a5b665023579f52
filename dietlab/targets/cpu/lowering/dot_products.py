"""A micro-kernel whose vectors run along the reduction axis: every output is a dot product.

Weights ``w[cols, depth]`` are read as they are; vectors along the columns would need them transposed. For few
rows the transposition is most of the work.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.geometry import Geometry, Tile
from dietlab.targets.cpu.lowering.micro_kernel import tile_arguments, tile_name
from dietlab.targets.cpu.lowering.tir import (
    constant,
    either,
    function,
    int64,
    masked_load,
    masked_store,
    quotient,
    stack_buffer,
    vector,
    when,
)


def _slot(tile: Tile, output: int) -> Any:
    """Returns the accumulator of an output: ``lanes`` partial sums."""
    return vector(output * tile.lanes, tile.lanes)


def dot_products_function(kernel: CpuMicroKernel, geometry: Geometry) -> Any:
    """Returns ``tile(x, w, y, ...)``: a ``kernel.rows x kernel.cols`` tile, all of depth at once.

    For example, for ``1 x 2`` and two lanes::

        before                           after
        for j in range(2):               a0 = x[0, 0:2] * w[0, 0:2]             # registers
          for k in range(depth):         a1 = x[0, 0:2] * w[1, 0:2]
            y[0, j] += x[0, k] * w[j, k] for k in range(2, depth, 2):
                                           a0 += x[0, k : k + 2] * w[0, k : k + 2]
                                           a1 += x[0, k : k + 2] * w[1, k : k + 2]
                                         y[0, 0:2] = [sum(a0), sum(a1)]

    Every output of the tile is inside: columns are composed as rows are.
    """
    names = tile_arguments(kernel, geometry, "exact")
    lanes = geometry.lanes
    with function(tile_name(kernel, "exact")) as builder:
        given = {n: T.arg(n, T.handle("float32") if n in ("x", "w", "y") else T.int64()) for n in names}
        sizes = {dim: given[dim] for dim in geometry.tile_dims}
        width, depth = (geometry.value(extent, sizes) for extent in (geometry.cols, geometry.depth))
        accumulators = stack_buffer(kernel.rows * kernel.cols * lanes)
        extents = {"x": (kernel.rows, depth), "w": (kernel.cols, depth), "y": (kernel.rows, width)}
        x, w, y = (T.decl_buffer(extents[name], data=given[name], align=4) for name in extents)
        tile = Tile(kernel, geometry, accumulators, x, w, y, sizes)
        _multiply_add(tile)
        _write_back(tile, _sums(tile))
    return builder.get()


def _multiply_add(tile: Tile) -> None:
    """Emits the compute stage, a vector of every row and column at a time. The last vectors are masked."""
    if not isinstance(tile.depth, int):
        _multiply_add_any(tile)
        return
    unroll, lanes = tile.kernel.unroll, tile.lanes
    steps, left = divmod(tile.depth, lanes)
    if steps:
        _step(tile, 0, lanes, first=True)
    iterations = max(0, steps - 1) // unroll
    with T.serial(int64(0), int64(iterations)) as outer:
        for step in range(unroll):
            _step(tile, (outer * unroll + step + 1) * lanes, lanes)
    for step in range(1 + iterations * unroll, steps):
        _step(tile, step * lanes, lanes)
    if left:
        _step(tile, steps * lanes, left, first=steps == 0)


def _multiply_add_any(tile: Tile) -> None:
    """Emits the compute stage for a dynamic depth, where accumulators begin with zero."""
    unroll, lanes = tile.kernel.unroll, tile.lanes
    for output in range(tile.kernel.rows * tile.kernel.cols):
        T.buffer_store(tile.accumulators, constant(0.0, lanes), [_slot(tile, output)])
    steps = T.bind(quotient(tile.depth, lanes))
    iterations = T.bind(quotient(steps, unroll))
    with T.serial(int64(0), iterations) as outer:
        for step in range(unroll):
            _step(tile, (outer * unroll + step) * lanes, lanes)
    if unroll > 1:
        with T.serial(iterations * unroll, steps) as step:
            _step(tile, step * lanes, lanes)
    left = T.bind(tile.depth - steps * lanes)
    with when(left > 0):
        _step(tile, steps * lanes, left)


def _step(tile: Tile, k: Any, inside: Any, *, first: bool = False) -> None:
    """Adds ``inside`` products to every accumulator; the first step initialises the accumulators."""
    rows, cols, lanes = tile.kernel.rows, tile.kernel.cols, tile.lanes

    def load(buffer: Any, row: int) -> Any:
        if not isinstance(inside, int) or inside < lanes:
            return T.bind(masked_load(buffer, row * tile.depth + k, int64(inside), lanes))
        return T.bind(buffer[row, vector(k, lanes)])

    weights = [load(tile.w, j) for j in range(cols)]
    for i in range(rows):
        value = load(tile.x, i)
        for j in range(cols):
            slot = _slot(tile, i * cols + j)
            product = value * weights[j]
            T.buffer_store(tile.accumulators, product if first else tile.accumulators[slot] + product, [slot])


def _sums(tile: Tile) -> list[Any]:
    """Returns each accumulator's sum over its lanes: output ``n`` is lane ``n % lanes`` of vector
    ``n // lanes``."""
    count, lanes = tile.kernel.rows * tile.kernel.cols, tile.lanes
    accumulators = [T.bind(tile.accumulators[_slot(tile, n)]) for n in range(count)]
    return [added_across(accumulators[n : n + lanes], lanes) for n in range(0, count, lanes)]


def added_across(vectors: list[Any], lanes: int) -> Any:
    """Returns the sums of up to ``lanes`` vectors over their lanes, as one vector: log2(lanes) rounds of
    pairs.

    Round ``s`` leaves half as many vectors, each with the partial sums of twice as many::

        a0 a1  ->  a0 + a1   b1 + b0
        b0 b1

    Lanes beyond the number of vectors hold no sum.
    """
    step = 1
    while step < lanes:
        kept = [v if not v & step else lanes + v for v in range(lanes)]
        swapped = [v ^ step if not v & step else lanes + (v ^ step) for v in range(lanes)]
        pairs = [(vectors[n], vectors[min(n + 1, len(vectors) - 1)]) for n in range(0, len(vectors), 2)]
        vectors = [
            T.bind(
                a + tirx.Shuffle([a], [v ^ step for v in range(lanes)])
                if a is b
                else tirx.Shuffle([a, b], kept) + tirx.Shuffle([a, b], swapped)
            )
            for a, b in pairs
        ]
        step *= 2
    return vectors[0]


def _write_back(tile: Tile, sums: list[Any]) -> None:
    """Stores the outputs; a tile as wide as the output is contiguous there."""
    cols = tile.kernel.cols
    if isinstance(tile.width, int):
        (_write_all if tile.width == cols else _write_rows)(tile, sums)
    else:
        either(tile.width == cols, lambda: _write_all(tile, sums), lambda: _write_rows(tile, sums))


def _write_all(tile: Tile, sums: list[Any]) -> None:
    for number, value in enumerate(sums):
        first = number * tile.lanes
        inside = int64(min(tile.lanes, tile.kernel.rows * tile.kernel.cols - first))
        masked_store(tile.y, first, value, inside, tile.lanes)


def _write_rows(tile: Tile, sums: list[Any]) -> None:
    """Stores each row in the fewest pieces of powers of two: 7 = 4 + 2 + 1."""
    cols, lanes = tile.kernel.cols, tile.lanes
    for i in range(tile.kernel.rows):
        done = 0
        while done < cols:
            piece = 1 << ((cols - done).bit_length() - 1)
            number, lane = divmod(i * cols + done, lanes)
            value = _picked(sums[number : number + 2], lane, piece)
            T.buffer_store(tile.y, value, [i, vector(done, piece) if piece > 1 else done])
            done += piece


def _picked(vectors: list[Any], first: int, count: int) -> Any:
    """Returns ``count`` lanes from lane ``first`` on."""
    if count == 1:
        return tirx.Shuffle(vectors[:1], [first])
    return tirx.Shuffle(vectors, list(range(first, first + count)))

"""The compute stage of a tile: every accumulator gains one product in each step of the reduction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.addresses import Rows
from dietlab.targets.cpu.lowering.geometry import Tile
from dietlab.targets.cpu.lowering.prefetch import NextPanel
from dietlab.targets.cpu.lowering.tir import L1, either, int64, masked_load, prefetch, quotient, vector
from dietlab.targets.cpu.lowering.units import matrix_step, unit_step


def multiply_add(
    tile: Tile, ahead: Any | None = None, tiles: Any | None = None, *, steps: Any | None = None
) -> None:
    """Emits the compute stage: ``depth`` steps (or ``steps``), ``kernel.unroll`` of them in one iteration.

    As loops::

        for k in range(depth):        for ko in range(depth // unroll):
          step(k)                       step(ko * unroll); ...; step(ko * unroll + unroll - 1)
                                      step(...) for what is left over
    """
    count, block = tile.steps if steps is None else steps, tile.kernel.block
    if isinstance(count, int) or not block:
        _iterations(tile, count if isinstance(count, int) else T.bind(count), ahead, tiles)
        return
    # The number of steps is a constant in all K-blocks but the last one.
    count = T.bind(count)
    cut, last = (partial(_iterations, tile, number, ahead, tiles) for number in (block, count))
    either(count == block, cut, last)


def _iterations(tile: Tile, depth: Any, ahead: Any | None, tiles: Any | None) -> None:
    """Emits the iterations over ``depth`` steps, and the steps left over."""
    unroll = tile.kernel.unroll
    iterations = quotient(depth, unroll)
    if ahead is None:
        with T.serial(int64(0), int64(iterations)) as outer:
            _iteration(tile, outer)
    else:
        _prefetching_iterations(tile, int64(iterations), ahead, tiles)
    if isinstance(depth, int):
        for k in range(iterations * unroll, depth, tile.kernel.facts.tile_steps):
            _step(tile, int64(k))
    elif unroll > 1:
        with T.serial(iterations * unroll, depth) as k:
            _step(tile, k)


def _prefetching_iterations(tile: Tile, iterations: Any, ahead: Any, tiles: Any) -> None:
    """Emits the iterations; one in ``tiles`` prefetches lines of the next panel, so that the row tiles of a
    pass together prefetch each line once. A second prefetch would take another entry of the queue of misses.

    As loops::

        for ko in range(iterations):     for group in range(ceil(iterations / tiles)):
          iteration(ko)                    iteration(group * tiles), which prefetches
                                           for ko in the group's others:
                                             iteration(ko)

    Many rows with a variable distance leave no scalar registers to an iteration that prefetches: the compiler
    would load vectors early, to free their addresses, and spill them (158 instead of 113 instructions for 48
    multiply-adds). In this case a group prefetches before its first iteration.
    """
    lanes, kernel = tile.lanes, tile.kernel
    apart = tile.geometry.panel_rows(tile.depth) * lanes if kernel.block else None
    panel = NextPanel.of(ahead, tiles, lanes, tile.vectors, apart)
    with T.serial(int64(0), tirx.truncdiv(iterations + tiles - 1, tiles)) as group:
        first = T.bind(group * tiles)

        def prefetch_at(step: int) -> None:
            panel.prefetch(group * kernel.unroll + step)

        others: Any = first
        if not tile.rows_together or kernel.rows <= tile.rows_together:
            _iteration(tile, first, prefetch_at)
            others = first + 1
        else:
            for step in range(kernel.unroll):
                prefetch_at(step)
        with T.serial(others, tirx.min(first + tiles, iterations)) as outer:
            _iteration(tile, outer)


def _iteration(tile: Tile, outer: Any, prefetch_at: Callable[[int], None] | None = None) -> None:
    first = outer * tile.kernel.unroll
    operands = _operands_at(tile, first) if tile.rows_together else None
    together = tile.kernel.facts.tile_steps
    for step in range(0, tile.kernel.unroll, together):
        if prefetch_at is not None:
            for one in range(step, step + together):
                prefetch_at(one)
        _step(tile, first + step, operands, step)


def _operands_at(tile: Tile, k: Any) -> tuple[Rows, Rows]:
    """Emits the pointers to the input and to the weights at the first step of an iteration."""
    together = tile.rows_together
    x = Rows.of(tile.x, k, tile.kernel.rows, tile.x.shape[1], together)
    if tile.geometry.weights == "direct":
        return x, Rows.of(tile.w, k * tile.width, tile.kernel.unroll, tile.width, together)
    panel_floats = tile.geometry.panel_rows(tile.depth) * tile.lanes
    return x, Rows.of(tile.w, _offset(tile, 0, k), tile.vectors, panel_floats, together)


def _step(tile: Tile, k: Any, operands: tuple[Rows, Rows] | None = None, step: int = 0) -> None:
    """Emits one step of the reduction: every accumulator gains one product. ``operands``, if given, are the
    pointers at the iteration's first step, and ``step`` is the step's index in the iteration."""
    if tile.kernel.prefetch:
        for j in range(tile.vectors):
            for one in range(tile.kernel.facts.tile_steps):
                ahead = tile.kernel.prefetch + one
                if operands is None or tile.geometry.weights == "direct":
                    prefetch(tile.w, _offset(tile, j, k + ahead), L1)
                else:  # with the registers that address the weights
                    prefetch(*operands[1].place(j, (step + ahead) * tile.lanes), L1)
    if tile.kernel.unit != "fma":
        (matrix_step if tile.groups else unit_step)(tile, k)
        return
    for i in range(tile.kernel.rows):
        value = tile.x[i, k] if operands is None else operands[0].load(i, step)
        if tile.checked and tile.rows is not None and i > 0:  # a tile has at least one row inside
            value = T.if_then_else(i < tile.rows, value, tirx.FloatImm("float32", 0))
        for j in range(tile.vectors):
            slot = tile.slot(i, j)
            weights = _weights(tile, j, k) if operands is None else _weights_of(tile, operands[1], j, step)
            product = tirx.Broadcast(value, tile.lanes) * weights
            T.buffer_store(tile.accumulators, tile.accumulators[slot] + product, [slot])


def _weights_of(tile: Tile, rows: Rows, j: int, step: int) -> Any:
    """Returns vector ``j`` of the weights at a step of the iteration whose weights are ``rows``."""
    if tile.geometry.weights != "direct":
        return rows.load(j, step * tile.lanes, tile.lanes)
    if tile.cols is None:
        return rows.load(step, j * tile.lanes, tile.lanes)
    return masked_load(*rows.place(step, j * tile.lanes), tile.cols - j * tile.lanes, tile.lanes)


def _weights(tile: Tile, j: int, k: Any) -> Any:
    """Returns vector ``j`` of the weights at step ``k``."""
    if tile.geometry.weights != "direct":
        return tile.w[j, k + tile.geometry.head_rows, vector(0, tile.lanes)]
    if tile.cols is None:
        return tile.w[k, vector(j * tile.lanes, tile.lanes)]
    # The last row's vector could reach beyond the array.
    return masked_load(tile.w, _offset(tile, j, k), tile.cols - j * tile.lanes, tile.lanes)


def _offset(tile: Tile, j: int, k: Any) -> Any:
    """Returns the distance, in elements, from the tile's first weight to vector ``j`` at step ``k``."""
    if tile.geometry.weights == "direct":
        return k * tile.width + j * tile.lanes
    return (j * tile.geometry.panel_rows(tile.depth) + k + tile.geometry.head_rows) * tile.lanes

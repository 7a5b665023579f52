"""Covers the output with copies of one micro-kernel: loop order, threads and edge tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.geometry import Geometry
from dietlab.lower.micro_kernel import stack_buffer, tile_name
from dietlab.space import MicroKernel


@dataclass(frozen=True)
class Operands:
    """Buffers of the entry function, its symbolic row count, and the edge tile's scratch."""

    x: Any
    w: Any
    y: Any
    rows: Any
    scratch: Any | None


def edge_scratch(kernels: Any, geometry: Geometry) -> Any | None:
    """Room for the zero-filled copy of the largest edge tile, if any kernel pads."""
    padded = [k.rows for k in kernels if k.edge == "padded" and k.rows > 1]
    return stack_buffer(max(padded) * geometry.depth) if padded else None


def region(kernel: MicroKernel, geometry: Geometry, operands: Operands, tiles: Mapping[str, Any]) -> None:
    """Covers ``y[T, N]`` with copies of ``kernel``.

    Draws ``ws`` (``is`` exchanges the two loops; ``parallel`` only with several cores)::

        before                      after
        for i in range(T):          pad the edge tile of x into scratch
          for j in range(N):        parallel for core in range(cores):
            y[i, j] = ...             for jo in this core's share of range(N / cols):
                                        for io in range(ceil(T / rows)):
                                          tile(x or scratch, w, y, T - io*rows, N - jo*cols)

    Args:
        tiles: the micro-kernel's functions by name (:func:`micro_kernel.tile_name`).
    """
    row_tiles = (operands.rows + kernel.rows - 1) // kernel.rows
    column_tiles = -(-geometry.cols // kernel.cols)
    if kernel.edge == "padded" and kernel.rows > 1:
        pad_edge_tile(kernel, geometry, operands)
    with _share_of_cores(column_tiles, geometry.cores) as share:
        if kernel.order == "ws":
            with T.serial(*share) as jo, T.serial(0, row_tiles) as io:
                _call_tile(kernel, geometry, operands, tiles, io, jo)
        else:
            with T.serial(0, row_tiles) as io, T.serial(*share) as jo:
                _call_tile(kernel, geometry, operands, tiles, io, jo)


@contextmanager
def _share_of_cores(count: int, cores: int) -> Iterator[tuple[Any, Any]]:
    """The first and one past the last column tile of a core; shares differ by at most one."""
    if cores == 1:
        yield 0, tirx.IntImm("int64", count)
        return
    with T.parallel(0, tirx.IntImm("int64", cores)) as core:
        first = T.bind(core * count // cores)
        yield first, (core + 1) * count // cores


def pad_edge_tile(kernel: MicroKernel, geometry: Geometry, operands: Operands) -> None:
    """Local padding (paper, section 3.2): the edge tile is copied once, filled up with zeros.

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
    full = operands.rows // kernel.rows
    inside = operands.rows - full * kernel.rows
    assert operands.scratch is not None
    with T.If(inside > 0), T.Then():
        with T.serial(0, inside) as i, T.serial(0, geometry.depth) as k:
            T.buffer_store(operands.scratch, operands.x[full * kernel.rows + i, k], [i * geometry.depth + k])
        with T.serial(inside * geometry.depth, kernel.rows * geometry.depth) as at:
            T.buffer_store(operands.scratch, tirx.FloatImm("float32", 0), [at])


def _call_tile(
    kernel: MicroKernel, geometry: Geometry, operands: Operands, tiles: Mapping[str, Any], io: Any, jo: Any
) -> None:
    """Calls the tile function; what happens at the edge is the micro-kernel's choice."""
    full = operands.rows // kernel.rows
    call = _caller(kernel, geometry, operands, tiles, io, jo)
    in_place = operands.x.access_ptr("r", offset=io * (kernel.rows * geometry.depth))
    if kernel.rows == 1:
        call(in_place, checked=False)
    elif kernel.edge == "checked":
        call(in_place, checked=True)
    else:
        with T.If(io < full):
            with T.Then():
                call(in_place, checked=False)
            with T.Else():
                if kernel.edge == "padded":
                    call(operands.scratch.access_ptr("r"), checked=False)  # type: ignore[union-attr]
                else:
                    call(in_place, checked=True)


def _caller(
    kernel: MicroKernel, geometry: Geometry, operands: Operands, tiles: Mapping[str, Any], io: Any, jo: Any
) -> Callable[..., None]:
    panels = kernel.vectors(geometry.lanes)
    w = operands.w.access_ptr("r", offset=jo * (panels * geometry.panel_rows * geometry.lanes))
    y = operands.y.access_ptr("w", offset=io * (kernel.rows * geometry.cols) + jo * kernel.cols)
    rows, cols = operands.rows - io * kernel.rows, geometry.cols - jo * kernel.cols

    def call(x: Any, *, checked: bool) -> None:
        function = tiles[tile_name(kernel, checked=checked)]
        T.evaluate(tvm.ir.Call(function, [x, w, y, rows, cols], ret_ty="void"))

    return call


def edge_variants(kernel: MicroKernel) -> tuple[bool, ...]:
    """Which tile functions a micro-kernel needs: unchecked, checked, or both."""
    if kernel.rows == 1 or kernel.edge == "padded":
        return (False,)
    return (True,) if kernel.edge == "checked" else (False, True)

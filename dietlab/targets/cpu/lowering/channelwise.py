"""The micro-kernel of a depthwise convolution: each column has its own input channel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tvm.script.ir_builder import tirx as T

from dietlab.problem.dims import Window
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.geometry import Geometry, Tile
from dietlab.targets.cpu.lowering.micro_kernel import (
    declared,
    prefetch_residual,
    start_accumulators,
    tile_name,
    write_back,
)
from dietlab.targets.cpu.lowering.tir import (
    either,
    function,
    int64,
    masked_load,
    vector,
)

BORDER = "border"
"""The suffix of the name of a function for one output pixel at the border of an image."""


def channel_function(kernel: CpuMicroKernel, geometry: Geometry, *, border: bool = False) -> Any:
    """Returns ``tile(x, w, y, ..., first, lines, apart[, start, taps])``: ``kernel.rows`` output pixels that
    are neighbours on a line, by ``kernel.cols`` channels.

    For example, for two pixels, one vector of channels and a kernel of three elements::

        before                                  after
        for i in range(2):                      a0 = a1 = bias or 0                 # registers
          for v in range(lanes):                for tap in range(3):
            for tap in range(3):                  a0 += x[tap, :] * w[tap, :]
              y[i, v] += x[i + tap, v] * w[tap, v]
                                                  a1 += x[1 + tap, :] * w[tap, :]

    ``x`` points at the first element under the kernel that lies inside the image. ``first`` is the number of
    its line of the kernel; ``lines`` lines lie inside, ``apart`` elements from each other. At the border of a
    line (``border``) only the ``taps`` elements from ``start`` on lie inside. Elements beyond the image are
    skipped, so that no product with them, not even one of an infinite weight, enters a sum.
    """
    with function(channel_name(kernel, border=border)) as builder:
        places = ("first", "lines", "apart", *(("start", "taps") if border else ()))
        given, tile = declared(kernel, geometry, "exact", places)
        prefetch_residual(tile)
        start_accumulators(tile)
        if tile.cols is None:
            _sum(tile, given)
        else:
            whole, cut = (partial(_sum, replace(tile, cols=cols), given) for cols in (None, tile.cols))
            either(kernel.cols <= tile.cols, whole, cut)
        write_back(tile)
    return builder.get()


def channel_name(kernel: CpuMicroKernel, *, border: bool = False) -> str:
    """Returns the name of a function of :func:`channel_function`."""
    return tile_name(kernel, "exact") + (f"_{BORDER}" if border else "")


def _sum(tile: Tile, given: dict[str, Any]) -> None:
    """Emits the sum over the kernel's elements that lie inside the image."""
    patches = tile.geometry.patches
    assert patches is not None
    last = patches.windows[-1]
    with T.serial(int64(0), given["lines"]) as line:
        begin, weight = T.bind(line * given["apart"]), T.bind((given["first"] + line) * last.kernel)
        if "taps" not in given:
            for tap in range(last.kernel):
                _tap(tile, last, begin + (tap * last.dilation) * tile.width, weight + tap)
            return
        with T.serial(int64(0), given["taps"]) as tap:
            pixel = begin + tap * (last.dilation * tile.width)
            _tap(tile, last, pixel, weight + given["start"] + tap)


def _tap(tile: Tile, last: Window, pixel: Any, weight: Any) -> None:
    """Emits the products of one of the kernel's elements, of which the first pixel's lies at ``pixel``."""
    lanes, head = tile.lanes, tile.geometry.head_rows
    weights = [T.bind(tile.w[j, weight + head, vector(0, lanes)]) for j in range(tile.vectors)]
    for i, j in tile.places:
        at, slot = pixel + (i * last.stride) * tile.width + j * lanes, tile.slot(i, j)
        if tile.cols is None:
            value = tile.x[vector(at, lanes)]
        else:
            value = masked_load(tile.x, at, tile.cols - j * lanes, lanes)
        T.buffer_store(tile.accumulators, tile.accumulators[slot] + value * weights[j], [slot])

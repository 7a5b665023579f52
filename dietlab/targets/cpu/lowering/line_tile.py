"""The micro-kernel of a convolution that reads the image in place: its rows are neighbours on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.problem.dims import Window
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.compute_stage import multiply_add
from dietlab.targets.cpu.lowering.geometry import Geometry, Tile
from dietlab.targets.cpu.lowering.micro_kernel import (
    declared,
    prefetch_residual,
    start_accumulators,
    tile_name,
    write_back,
)
from dietlab.targets.cpu.lowering.tir import ceil_div, either, function, int64, most, switch, when

Span = tuple[int, int]
"""The numbers of a tile's first and last pixels at which a tap lies beyond the line."""


def line_function(kernel: CpuMicroKernel, geometry: Geometry) -> Any:
    """Returns ``tile(x, w, y, ..., first, lines, apart, start, size)``: ``kernel.rows`` output pixels that
    are neighbours on a line, by ``kernel.cols`` output channels.

    For example, for two pixels, one vector of channels and a kernel of three elements with padding 1::

        before                                    after
        for i in range(2):                        a0 = a1 = bias or 0                  # registers
          for v in range(lanes):                  if the kernel lies inside at both pixels:
            for tap in range(3):                    for k in range(3 * IC):
              for c in range(IC):                     a0 += broadcast(x[0, k]) * w[k, :]
                y[i, v] += x[i + tap, c]              a1 += broadcast(x[0, IC + k]) * w[k, :]
                           * w[v, c, tap]         else:
                                                    for tap in range(3):
                                                      for k in range(IC):
                                                        of the pixels at which the tap lies inside:
                                                          a += broadcast(x[., k]) * w[tap, k, :]

    ``x`` points at the first pixel of the line of the image under the first of the kernel's lines that lies
    inside. ``first`` is that line's number in the kernel; ``lines`` lines lie inside, ``apart`` elements from
    each other. ``start`` is the place on the line of the first pixel's first tap, perhaps before the line;
    the line has ``size`` pixels. Taps beyond the image are skipped: at a 7 x 7 image, 18 % of the products of
    a 3 x 3 kernel.
    """
    with function(tile_name(kernel, "exact")) as builder:
        given, tile = declared(kernel, geometry, "exact", ("first", "lines", "apart", "start", "size"))
        prefetch_residual(tile)
        start_accumulators(tile)
        line = _Line(tile, given["start"], given["size"])
        with T.serial(int64(0), given["lines"]) as number:
            pixels, weights = T.bind(number * given["apart"]), T.bind(given["first"] + number)
            inside, beyond = (partial(sums, line, pixels, weights) for sums in (_inside, _beyond))
            if line.always_inside:
                inside()
            else:
                either(line.lies_inside, inside, beyond)
        write_back(tile)
    return builder.get()


def _spans(window: Window, tap: int, rows: int) -> Iterator[Span]:
    """Yields the spans of a tap that have a pixel inside."""
    before, after = window.beyond(tap)
    for left in range(min(before, rows) + 1):
        yield from ((left, right) for right in range(min(after, rows) + 1) if left + right < rows)


class _Line:
    """A tile and where it lies on its line."""

    def __init__(self, tile: Tile, start: Any, size: Any) -> None:
        patches = tile.geometry.patches
        assert patches is not None
        self.tile, self.window = tile, patches.windows[-1]
        self.start, self.size = start, size
        self.groups, self.channels = patches.groups, tile.geometry.channels(tile.sizes)
        self.pixel = self.channels * patches.groups
        self.always_inside = not (self.window.before or self.window.after)
        reach = (tile.kernel.rows - 1) * self.window.stride + (self.window.kernel - 1) * self.window.dilation
        self.lies_inside = T.bind(tirx.all(start >= 0, start + reach < size))

    def beyond(self, tap: int) -> tuple[Any, Any]:
        """Returns at how many of the tile's pixels a tap lies before the line, and at how many behind it."""
        window, rows = self.window, self.tile.kernel.rows
        at = self.start + tap * window.dilation
        left = ceil_div(most(0, -at), window.stride)
        right = rows - ceil_div(most(0, self.size - at), window.stride)
        return tirx.min(left, int64(rows)), most(0, right)

    def multiply(self, pixels: Any, weights: Any, *, count: Any, left: int = 0, right: int = 0) -> None:
        """Emits ``count`` steps of the reduction for the tile's pixels, but for some at its two ends.

        Args:
            pixels: the place of the first of these pixels' first element, from ``x`` on.
            weights: the first step in the panels.
        """
        tile, rows = self.tile, self.tile.kernel.rows - left - right
        begin, panels = (
            T.bind(buffer.access_ptr("r", offset=offset))
            for buffer, offset in ((tile.x, pixels), (tile.w, weights * tile.lanes))
        )
        x = T.decl_buffer((rows, self.window.stride * self.pixel), data=begin, align=4)
        w = T.decl_buffer(tile.w.shape, data=panels)
        part = replace(tile, kernel=replace(tile.kernel, rows=rows), x=x, w=w, first=left)
        multiply_add(part, steps=count)


def _inside(line: _Line, pixels: Any, number: Any) -> None:
    """Emits the sums over a line of the kernel that lies inside at all pixels. Taps side by side in the image
    are one loop."""
    window, channels = line.window, line.channels
    joined = window.kernel if line.groups == window.dilation == 1 else 1
    first = line.start * line.pixel + pixels
    for tap in range(0, window.kernel, joined):
        weights = (number * window.kernel + tap) * channels
        line.multiply(first + tap * window.dilation * line.pixel, weights, count=joined * channels)


def _beyond(line: _Line, pixels: Any, number: Any) -> None:
    """Emits the sums over a line of the kernel, tap by tap, for the pixels at which a tap lies inside."""
    window, channels, rows = line.window, line.channels, line.tile.kernel.rows
    for tap in range(window.kernel):
        at = line.start + tap * window.dilation
        weights = (number * window.kernel + tap) * channels
        spans = list(_spans(window, tap, rows))

        def sums(span: Span, at: Any = at, weights: Any = weights) -> None:
            left, right = span
            place = (at + left * window.stride) * line.pixel + pixels
            line.multiply(place, weights, count=channels, left=left, right=right)

        if window.beyond(tap) == (0, 0):
            sums((0, 0))
            continue
        left, right = (T.bind(value) for value in line.beyond(tap))
        with when(left + right < rows):
            numbers = {a * rows + b: (a, b) for a, b in spans}
            switch(left * rows + right, sorted(numbers), partial(_of_number, numbers, sums))


def _of_number(numbers: dict[int, Span], sums: Callable[[Span], None], number: int) -> None:
    sums(numbers[number])

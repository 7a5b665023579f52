"""Covers the output of a depthwise convolution line by line, reading the image in place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Patches
from dietlab.problem.dims import Window
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.lowering.channelwise import channel_name
from dietlab.targets.cpu.lowering.loop_nest import RowBlock, Tiling, call, composed, tiles
from dietlab.targets.cpu.lowering.tir import ceil_div, int64, most, quotient, switch


def line_width(patches: Patches | None, sizes: Any) -> Any:
    """Returns the number of positions along a line at which the whole kernel lies inside the image; these are
    covered by tiles. Positions at the border are computed one by one."""
    assert patches is not None
    last = patches.windows[-1]
    first, end = _whole(last, sizes[last.dim])
    return end - first


def _whole(window: Window, size: Any) -> tuple[Any, Any]:
    """Returns the first position at which the whole window lies inside, and one past the last."""
    count = window.positions(size)
    first = _least(count, -(-window.before // window.stride))
    reach = window.dilation * (window.kernel - 1) + 1
    end = quotient(most(0, size + (window.before - reach + window.stride)), window.stride)
    return first, most(first, _least(count, end))


def _least(one: Any, other: Any) -> Any:
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return tirx.min(int64(one), int64(other))


class _Inside(NamedTuple):
    """The part of a window that lies inside the image: the number of its first element, how many there are,
    and the place of the first one along the dimension."""

    first: Any
    count: Any
    place: Any


def _inside(window: Window, size: Any, position: Any) -> _Inside:
    begin = T.bind(position * window.stride - window.before)
    first = T.bind(ceil_div(most(0, -begin), window.dilation))
    end = tirx.min(int64(window.kernel), ceil_div(most(0, size - begin), window.dilation))
    return _Inside(first, T.bind(end - first), T.bind(begin + first * window.dilation))


def cover_lines(tiling: Tiling, core: Any) -> None:
    """Covers this core's share of the output, line by line and column tile by column tile: pixels at the
    borders of a line one by one, the others by composed tiles.

    For ``ws`` the weights of a column tile serve all lines, for ``is`` all columns of a line come first::

        for line in range(N * OH):                      # "is"; "ws" exchanges the two loops
          for jo in range(C / cols):
            pixels at the left border; tiles; pixels at the right border
    """
    patches, sizes = tiling.geometry.patches, tiling.operands.sizes
    assert patches is not None
    last = patches.windows[-1]
    counts = patches.positions(sizes)
    lines, width = sizes[patches.images], counts[-1]
    for count in counts[:-1]:
        lines = lines * count
    first, end = (T.bind(int64(edge)) for edge in _whole(last, sizes[last.dim]))
    inside = T.bind(end - first)
    many = T.bind(int64(ceil_div(inside, tiling.kernel.rows)))
    # The compiler moves the division of a line among its tiles out of their loop, where there may be no tile.
    divided = T.bind(most(1, inside))
    with tiles(tiling, RowBlock(0, T.bind(int64(lines))), core) as (line, column_tile, _):
        column = T.bind(column_tile * tiling.kernel.cols)
        place, under = _line(patches, sizes, line)
        at = _Line(tiling, sizes[last.dim], line * width, place, under, column_tile, column)
        for ends in ((int64(0), first), (end, int64(width))):
            with T.serial(*ends) as position:
                at.border(position)
        with T.serial(int64(0), many) as number:
            start, height = composed(tiling.scheme.edge, divided, tiling.kernel.rows, number)
            switch(height, tiling.heights, partial(at.tile, T.bind(first + start)))


def _line(patches: Patches, sizes: Any, line: Any) -> tuple[Any, _Inside]:
    """Returns the index of the image's line that the kernel's first line inside meets, and the part of the
    kernel that lies inside across lines."""
    image, under = line, _Inside(int64(0), int64(1), int64(0))
    if len(patches.windows) == 1:
        return image, under
    window = patches.windows[0]
    size = sizes[window.dim]
    count = T.bind(window.positions(size))
    image = T.bind(tirx.truncdiv(line, count))
    under = _inside(window, size, line - image * count)
    return T.bind(image * size + under.place), under


class _Line(NamedTuple):
    """One line of the output and one tile of its channels.

    Args:
        size: the number of pixels in a line of the image.
        out: the index of the line's first output pixel.
        place: the index of the image's line under the first of the kernel's lines that lies inside.
        under: the kernel's lines that lie inside.
    """

    tiling: Tiling
    size: Any
    out: Any
    place: Any
    under: _Inside
    column_tile: Any
    column: Any

    def tile(self, position: Any, rows: int) -> None:
        """Computes ``rows`` pixels from a position on, all with the whole kernel inside the line."""
        last = self._last
        self._call(replace(self.tiling.kernel, rows=rows), position, position * last.stride - last.before)

    def border(self, position: Any) -> None:
        """Computes one pixel, with the part of the kernel that lies inside the line."""
        part = _inside(self._last, self.size, position)
        self._call(replace(self.tiling.kernel, rows=1), position, part.place, part)

    @property
    def _last(self) -> Window:
        assert self.tiling.geometry.patches is not None
        return self.tiling.geometry.patches.windows[-1]

    def _call(self, kernel: CpuMicroKernel, position: Any, pixel: Any, part: _Inside | None = None) -> None:
        tiling, width = self.tiling, self.tiling.cols
        operands, patches = tiling.operands, tiling.geometry.patches
        assert patches is not None
        across = patches.windows[0].dilation if len(patches.windows) > 1 else 1
        out = T.bind((self.out + position) * width + self.column)
        weights = tiling.packed_at(0) + self.column_tile * tiling.tile_floats
        arguments = [
            operands.x.access_ptr("r", offset=(self.place * self.size + pixel) * width + self.column),
            operands.w.access_ptr("r", offset=weights),
            operands.y.access_ptr("w", offset=out),
        ]
        if operands.residual is not None:
            arguments.append(operands.residual.access_ptr("r", offset=out))
        if tiling.geometry.has_column_tail(kernel):
            arguments.append(width - self.column)
        arguments += [self.under.first, self.under.count, self.size * (across * width)]
        if part is not None:
            arguments += [part.first, part.count]
        call(tiling.functions[channel_name(kernel, border=part is not None)], arguments)

"""Covers the output of a convolution line by line, reading the image in place."""

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
from dietlab.targets.cpu.lowering.micro_kernel import tile_name
from dietlab.targets.cpu.lowering.tir import ceil_div, int64, most, switch


def line_width(patches: Patches | None, sizes: Any) -> Any:
    """Returns the number of positions along a line that tiles cover: all, or of a depthwise convolution those
    at which the whole kernel lies inside the image. Others are computed one by one."""
    assert patches is not None
    last = patches.windows[-1]
    if not patches.channelwise:
        return last.positions(sizes[last.dim])
    first, end = last.whole(sizes[last.dim], _least, most)
    return end - first


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


def cover_lines(tiling: Tiling, core: Any, group: Any = 0) -> None:
    """Covers this core's share of a group's output, line by line and column tile by column tile, by composed
    tiles. Of a depthwise convolution, pixels at the ends of a line are computed one by one.

    For ``ws`` the weights of a column tile serve all lines, for ``is`` all columns of a line come first::

        for line in range(N * OH):                      # "is"; "ws" exchanges the two loops
          for jo in range(C / cols):
            (pixels at the left end;) tiles (; pixels at the right end)
    """
    patches, sizes = tiling.geometry.patches, tiling.operands.sizes
    assert patches is not None
    last = patches.windows[-1]
    counts = patches.positions(sizes)
    lines, width = sizes[patches.images], counts[-1]
    for count in counts[:-1]:
        lines = lines * count
    first, end = (int64(0), width)
    if patches.channelwise:
        first, end = (T.bind(int64(edge)) for edge in last.whole(sizes[last.dim], _least, most))
    covered = T.bind(end - first)
    many = T.bind(int64(ceil_div(covered, tiling.kernel.rows)))
    # The compiler moves the division of a line among its tiles out of their loop, where there may be no tile.
    divided = T.bind(most(1, covered))
    with tiles(tiling, RowBlock(0, T.bind(int64(lines))), core) as (line, column_tile, _):
        column = T.bind(column_tile * tiling.kernel.cols)
        place, under = _line(patches, sizes, line)
        at = _Line(tiling, sizes[last.dim], line * width, place, under, column_tile, column, group)
        if patches.channelwise:
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
        group: the number of the group of channels.
    """

    tiling: Tiling
    size: Any
    out: Any
    place: Any
    under: _Inside
    column_tile: Any
    column: Any
    group: Any

    def tile(self, position: Any, rows: int) -> None:
        """Computes ``rows`` pixels from a position on; of a depthwise convolution, all with the whole kernel
        inside the line."""
        last, kernel = self._patches.windows[-1], replace(self.tiling.kernel, rows=rows)
        start = T.bind(position * last.stride - last.before)
        if self._patches.channelwise:
            self._call(channel_name(kernel), kernel, position, start * self.tiling.cols + self.column)
        else:
            channel = self.group * self.tiling.geometry.channels(self.tiling.operands.sizes)
            self._call(tile_name(kernel, "exact"), kernel, position, channel, start, self.size)

    def border(self, position: Any) -> None:
        """Computes one pixel of a depthwise convolution, with the part of the kernel that lies inside the
        line."""
        kernel = replace(self.tiling.kernel, rows=1)
        part = _inside(self._patches.windows[-1], self.size, position)
        element = part.place * self.tiling.cols + self.column
        self._call(channel_name(kernel, border=True), kernel, position, element, part.first, part.count)

    @property
    def _patches(self) -> Patches:
        assert self.tiling.geometry.patches is not None
        return self.tiling.geometry.patches

    def _call(self, name: str, kernel: CpuMicroKernel, position: Any, element: Any, *more: Any) -> None:
        """Calls a tile function whose input begins at an element of the image's line."""
        tiling, patches = self.tiling, self._patches
        operands, geometry = tiling.operands, tiling.geometry
        across = patches.windows[0].dilation if len(patches.windows) > 1 else 1
        channels = geometry.channels(operands.sizes)
        pixel = tiling.cols if patches.channelwise else channels * patches.groups
        out = (self.out + position) * geometry.across(operands.sizes) + self.group * tiling.cols + self.column
        out = T.bind(out)
        weights = tiling.packed_at(self.group) + self.column_tile * tiling.tile_floats
        arguments = [
            operands.x.access_ptr("r", offset=self.place * self.size * pixel + element),
            operands.w.access_ptr("r", offset=weights),
            operands.y.access_ptr("w", offset=out),
        ]
        if operands.residual is not None:
            arguments.append(operands.residual.access_ptr("r", offset=out))
        arguments += [operands.sizes[dim] for dim in geometry.tile_dims]
        if geometry.has_column_tail(kernel):
            arguments.append(tiling.cols - self.column)
        lines = [self.under.first, self.under.count, self.size * (across * pixel)]
        call(tiling.functions[name], [*arguments, *lines, *map(int64, more)])

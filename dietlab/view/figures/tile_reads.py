"""The pixels of the image that one tile of a convolution reads, tap by tap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from dietlab.base.errors import WorkloadError
from dietlab.problem import Conv1d, Conv2d, Shape, Workload, bound
from dietlab.problem.dims import Window

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["across", "line"]
"""The rows of a tile: ``across`` lines of the output, or within one ``line``."""


class Tile(NamedTuple):
    """The images and the output that a convolution's tiles lie in.

    Args:
        images: the number of images.
        height, width: the size of an image, in pixels.
        out_height, out_width: the size of an output, in pixels.
        down, across: the kernel's positions along lines and columns.
        channels: the elements of a pixel.
    """

    images: int
    height: int
    width: int
    out_height: int
    out_width: int
    down: Window
    across: Window
    channels: int

    @property
    def taps(self) -> int:
        return self.down.kernel * self.across.kernel

    @property
    def rows(self) -> int:
        return self.images * self.out_height * self.out_width


def frame_tile_reads(
    workload: Workload, shape: Shape, first: int, rows: int, mode: Mode = "across"
) -> pd.DataFrame:
    """Returns what one tile of a convolution reads: a row of the table for each tap and each row of the tile,
    tap by tap, as the sum goes.

    Columns: ``tap``, with its ``tap_line`` and ``tap_column`` in the kernel; ``row``, a row of the matrix
    product, with its ``image``, ``out_line`` and ``out_column``; ``line`` and ``column``, the pixel that the
    row meets at the tap, which may lie beyond the image; ``reads``, which is ``pixel``, or beyond the image
    ``zeros`` (``across``: they are multiplied like pixels) or ``nothing`` (``line``: the tap is skipped);
    and ``offset``, the number of elements before the pixel's first, missing where no pixel is read.

    Args:
        workload: a convolution.
        shape: the size of the images.
        first: the tile's first row, from 0 to the number of rows - 1. Rows are the output's pixels: image by
            image, line by line.
        rows: the most rows of the tile, 1 or more. It ends where the output ends and, in the mode ``line``,
            where its line ends.
        mode: ``across`` for a tile whose rows go on from line to line, ``line`` for one of neighbours on a
            line of the output.

    Raises:
        WorkloadError: if ``workload`` is no convolution, the shape gives no output, or an argument is out of
            its range.
    """
    import numpy as np
    import pandas as pd

    tile = tile_of(workload, shape)
    within, count = tile_rows(tile, first, rows, mode), tile.taps
    row = np.tile(np.arange(within.start, within.stop), count)
    tap = np.repeat(np.arange(count), len(within))
    image, place = np.divmod(row, tile.out_height * tile.out_width)
    out_line, out_column = np.divmod(place, tile.out_width)
    tap_line, tap_column = np.divmod(tap, tile.across.kernel)
    line = out_line * tile.down.stride + tap_line * tile.down.dilation - tile.down.before
    column = out_column * tile.across.stride + tap_column * tile.across.dilation - tile.across.before
    inside = (line >= 0) & (line < tile.height) & (column >= 0) & (column < tile.width)
    offset = ((image * tile.height + line) * tile.width + column) * tile.channels
    return pd.DataFrame(
        {
            "tap": tap,
            "tap_line": tap_line,
            "tap_column": tap_column,
            "row": row,
            "image": image,
            "out_line": out_line,
            "out_column": out_column,
            "line": line,
            "column": column,
            "reads": np.where(inside, "pixel", "zeros" if mode == "across" else "nothing"),
            "offset": pd.array(offset, dtype="Int64"),
        }
    ).assign(offset=lambda frame: frame["offset"].where(inside))


def tile_of(workload: Workload, shape: Shape) -> Tile:
    """Returns where the tiles of a convolution lie at a shape. A sequence is an image of one line."""
    if not isinstance(workload, (Conv1d, Conv2d)):
        rule = "pixels are read by a convolution"
        raise WorkloadError(rule, str(workload), "For example dl.Conv2d(N=1, H=7, W=7, IC=64, OC=64).")
    images, *size, channels = bound(workload.signature["x"], shape)
    windows = workload.windows
    if len(size) == 1:
        size, windows = [1, *size], (Window("", 1), *windows)
    out = [window.positions(extent) for window, extent in zip(windows, size, strict=True)]
    if min(images, *out) < 1:
        raise WorkloadError("a tile needs an output", f"none at {shape}", "Take a larger image.")
    return Tile(images, size[0], size[1], out[0], out[1], windows[0], windows[1], channels)


def tile_rows(tile: Tile, first: int, rows: int, mode: Mode) -> range:
    """Returns the rows of a tile that begins at ``first`` and has at most ``rows``."""
    if not 0 <= first < tile.rows:
        raise WorkloadError(f"the first row must be from 0 to {tile.rows - 1}", first)
    if rows < 1:
        raise WorkloadError("a tile must have rows", rows, "Make it 1 or more.")
    if mode not in get_args(Mode):
        raise WorkloadError(f"the mode of a tile is one of {', '.join(get_args(Mode))}", repr(mode))
    line_end = (first // tile.out_width + 1) * tile.out_width
    return range(first, min(first + rows, tile.rows if mode == "across" else line_end))

"""An explorer of a convolution's tiles: the pixels that one tile reads, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dietlab.problem import Dim, Shape, Workload
from dietlab.problem.dims import Window
from dietlab.scheme import tiles_of
from dietlab.view.figures.tile_picture import IMAGE_TRACES, plot_tile_reads
from dietlab.view.figures.tile_reads import Mode, Tile, frame_tile_reads, tile_of
from dietlab.view.widgets.arguments import workload_of
from dietlab.view.widgets.controls import Control, Number, OneOf

if TYPE_CHECKING:
    import pandas as pd

    from dietlab.compare.study import Study
    from dietlab.view.widgets.explorer import Explorer

MOST_ROWS = 16
"""The most rows of a tile: a tile of two vectors' width has at most 14 rows in AVX-512's registers."""
START = 28
"""The extent at which a slider of images or sizes begins, in pixels, if its range has it."""

EXTENT = "Extent of this dimension of the images (a count)"
LINE = "Line of an output pixel: its tile is drawn. Beyond the output, the last line counts"
COLUMN = "Column of an output pixel: its tile is drawn. Beyond the line, the last pixel counts"
ROWS = "Most rows of a tile (a count): rows are covered exactly, by tiles of as equal heights as can be"
MODE = "Whether the rows of a tile go on from one line of the output to the next"
STEP = "Taps that were summed (a count): a step reads all input channels of one pixel for each row"
MODES: Mapping[Mode, str] = {"across": "across lines", "line": "within one line"}


def tile_reads_explorer(workload: Workload | Study) -> Explorer:
    """Explores what one tile of a convolution reads from the image, tap by tap: see
    :func:`~dietlab.view.figures.tile_picture.plot_tile_reads`.

    Sliders choose an output pixel, and the tile that computes it is drawn; a click on the image chooses the
    output pixel whose window has its middle there. Another slider steps through the taps.
    ``explorer.frame`` is :func:`~dietlab.view.figures.tile_reads.frame_tile_reads` of the tile.

    Args:
        workload: a convolution, or a study of one.

    Raises:
        WorkloadError: if ``workload`` is no convolution.
    """
    return _explorer(workload_of(workload))


def _explorer(workload: Workload) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    largest = tile_of(workload, Shape.of(**{name: dim.high for name, dim in workload.dims.items()}))

    def draw(column: int, rows: int, mode: Mode, step: int, line: int = 0, **sizes: int) -> Drawn:
        shape = Shape.of(**sizes)
        tile = tile_of(workload, shape)
        taken = _tile_at(tile, line, column, rows, mode)
        arguments = (workload, shape, taken.start, len(taken), mode)
        frame = frame_tile_reads(*arguments)
        figure = plot_tile_reads(*arguments, step)
        return Drawn(figure, frame, _numbers(tile, frame), _note(tile, frame, step))

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        if point.get("trace") not in range(IMAGE_TRACES):
            return {}
        tile = tile_of(workload, Shape.of(**{name: values[name] for name in workload.dims}))
        chosen = {"column": _nearest(tile.across, tile.out_width, point["x"])}
        if "line" in values:
            chosen["line"] = _nearest(tile.down, tile.out_height, point["y"])
        return chosen

    controls = _controls(workload, largest)
    groups = {
        "Images": list(workload.dims),
        "Output pixel": ["line", "column"],
        "Tile": ["rows", "mode"],
        "Sum": ["step"],
    }
    return Explorer(draw, controls, clicked, groups=groups, opener="dl.tile_reads_explorer(workload)")


def _controls(workload: Workload, largest: Tile) -> dict[str, Control]:
    """Returns the controls; images of one line have none for the line."""

    def slider(label: str, tooltip: str, value: int, low: int, high: int) -> Number:
        return Number(value, low, high, label=label, tooltip=tooltip)

    def sizes(dim: Dim, usual: int) -> int:
        return min(dim.high, max(dim.low, usual))

    extents = {
        name: slider(name, EXTENT, sizes(dim, 1 if name == "N" else START), dim.low, dim.high)
        for name, dim in workload.dims.items()
    }
    lines = {"line": slider("line", LINE, 0, 0, largest.out_height - 1)} if largest.out_height > 1 else {}
    modes = [(words, mode) for mode, words in MODES.items()]
    return {
        **extents,
        **lines,
        "column": slider("column", COLUMN, 0, 0, largest.out_width - 1),
        "rows": slider("rows", ROWS, 8, 1, MOST_ROWS),
        "mode": OneOf("across", modes, label="rows go", tooltip=MODE),
        "step": slider("step", STEP, largest.taps, 1, largest.taps),
    }


def _tile_at(tile: Tile, line: int, column: int, most: int, mode: Mode) -> range:
    """Returns the rows of the tile that computes an output pixel of the first image, where even tiles of at
    most ``most`` rows cover all rows, or each line."""
    line, column = min(line, tile.out_height - 1), min(column, tile.out_width - 1)
    start, covered = (0, tile.rows) if mode == "across" else (line * tile.out_width, tile.out_width)
    wanted = line * tile.out_width + column - start
    (tall, talls), (low, _) = tiles_of("even", 1, most, covered)
    if wanted < tall * talls:
        first, height = wanted // tall * tall, tall
    else:
        first, height = tall * talls + (wanted - tall * talls) // low * low, low
    return range(start + first, start + first + height)


def _nearest(window: Window, count: int, at: float) -> int:
    """Returns the position of a window whose middle is nearest to a pixel."""
    middle = window.dilation * (window.kernel - 1) / 2 - window.before
    return min(count - 1, max(0, round((at - middle) / window.stride)))


def _numbers(tile: Tile, frame: pd.DataFrame) -> dict[str, str]:
    read = frame[frame["reads"] == "pixel"]
    pixels, beyond = read["offset"].nunique(), len(frame) - len(read)
    return {
        "rows of the tile": f"{frame['row'].nunique()} of {tile.rows:,}",
        "pixels": f"{pixels:,}",
        "reads": f"{len(read):,} ({len(read) / max(1, pixels):.2f} of each pixel)",
        "beyond the image": f"{100 * beyond / len(frame):.1f} % of rows x taps",
    }


def _note(tile: Tile, frame: pd.DataFrame, step: int) -> str:
    """Returns a sentence on the addresses that the rows read in a step."""
    now = frame[frame["tap"] == step - 1]
    tap = f"Step {step}, tap ({now['tap_line'].iloc[0]}, {now['tap_column'].iloc[0]}): "
    offsets = [int(offset) for offset in now["offset"].dropna()]
    if not offsets:
        return f"{tap}no row reads a pixel."
    apart = sorted({int(distance) for distance in now["offset"].diff().dropna()})
    last = f", the last at {offsets[-1]}" if len(offsets) > 1 else ""
    ends = f"the first at element {offsets[0]}{last}"
    read = f"{len(offsets)} of {len(now)} rows read {tile.channels} elements each, {ends}"
    words = f"Neighbouring rows are {' or '.join(map(str, apart))} elements apart." if apart else ""
    return f"{tap}{read}. {words}".strip()

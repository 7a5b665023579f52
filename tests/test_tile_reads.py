"""What one tile of a convolution reads: the table against shifted images, the picture, and the explorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from conftest import python
from hypothesis import given, settings
from hypothesis import strategies as st

import dietlab as dl
from dietlab.base.errors import WorkloadError
from dietlab.problem import bound
from dietlab.view.figures.tile_picture import MOST_COLUMNS, plot_tile_reads
from dietlab.view.figures.tile_reads import Mode, frame_tile_reads
from dietlab.view.static.picture import redraw
from dietlab.view.theme import OPEN
from dietlab.view.widgets.tile_reads_explorer import tile_reads_explorer

CONV = dl.Conv2d(N=dl.Dim(1, 8), H=dl.Dim(7, 80), W=dl.Dim(7, 80), IC=64, OC=96, kernel=3, padding=1)
SPEECH = dl.Conv1d(N=1, L=dl.Dim(50, 900), IC=80, OC=384, kernel=3, stride=2, padding=1)
SEVEN, LARGE = dl.Shape.of(N=1, H=7, W=7), dl.Shape.of(N=1, H=56, W=56)
NOWHERE = -1


def addresses(conv: dl.Conv2d | dl.Conv1d, shape: dl.Shape) -> np.ndarray[Any, Any]:
    """Returns the address that each row reads at each tap, from shifted images of addresses."""
    images, *size, channels = bound(conv.signature["x"], shape)
    x = np.arange(images * int(np.prod(size)) * channels).reshape(images, *size, channels)[..., 0]
    x = np.pad(x, [(0, 0), *conv.padding], constant_values=NOWHERE)
    windows = list(zip(conv.windows, size, strict=True))
    taps = []
    for element in np.ndindex(*conv.kernel):
        met: Any = [window.over(extent, at) for (window, extent), at in zip(windows, element, strict=True)]
        taps.append(x[(slice(None), *met)].ravel())
    return np.array(taps).T


def offsets(frame: Any) -> np.ndarray[Any, Any]:
    return frame["offset"].fillna(NOWHERE).to_numpy(dtype=int)  # type: ignore[no-any-return]


@st.composite
def convolutions(draw: st.DrawFn) -> dl.Conv2d | dl.Conv1d:
    count = draw(st.integers(1, 2))
    sides = {name: tuple(draw(st.integers(1, 3)) for _ in range(count)) for name in ("kernel", "stride")}
    pads = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(count))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(count))
    size = [
        draw(st.integers(max(1, d * (k - 1) + 1 - sum(pad)), 9))
        for d, k, pad in zip(dilation, sides["kernel"], pads, strict=True)
    ]
    given: Any = {"N": draw(st.integers(1, 3)), "IC": 4, "OC": 4, "groups": draw(st.sampled_from((1, 2, 4)))}
    given |= {**sides, "padding": pads, "dilation": dilation}
    if count == 1:
        return dl.Conv1d(L=size[0], **given)
    return dl.Conv2d(H=size[0], W=size[1], **given)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(convolutions(), st.data())
def test_a_tile_reads_what_shifted_images_say(conv: dl.Conv2d | dl.Conv1d, data: st.DataObject) -> None:
    shape, expected = dl.Shape.of(), addresses(conv, dl.Shape.of())
    first, rows = data.draw(st.integers(0, len(expected) - 1)), data.draw(st.integers(1, 12))
    frame = frame_tile_reads(conv, shape, first, rows)
    assert (offsets(frame) == expected[first : first + rows].T.ravel()).all()
    width = conv.output_shape(shape)[-2]
    within = frame_tile_reads(conv, shape, first, rows, "line")
    end = min(first + rows, (first // width + 1) * width)
    assert (offsets(within) == expected[first:end].T.ravel()).all()
    assert set(frame["reads"]) <= {"pixel", "zeros"} and set(within["reads"]) <= {"pixel", "nothing"}
    assert ((frame["reads"] == "pixel") == frame["offset"].notna()).all()


@pytest.mark.parametrize(("width", "share"), [(7, 0.8186), (14, 0.9070), (56, 0.9763)])
def test_few_taps_of_a_padded_kernel_lie_beyond_a_large_image(width: int, share: float) -> None:
    whole = frame_tile_reads(CONV, dl.Shape.of(N=1, H=width, W=width), 0, width * width)
    found = (whole["reads"] == "pixel").mean()
    assert found == pytest.approx(((3 * width - 2) / (3 * width)) ** 2) == pytest.approx(share, abs=1e-4)


def test_rows_within_a_line_are_a_constant_distance_apart() -> None:
    conv = dl.Conv2d(N=1, H=15, W=15, IC=64, OC=64, kernel=3, stride=2, padding=1)
    distances = {}
    for mode in ("across", "line"):
        frame = frame_tile_reads(conv, dl.Shape.of(), 10, 12, mode)  # type: ignore[arg-type]
        distances[mode] = {int(d) for d in frame.groupby("tap")["offset"].diff().dropna()}
    assert distances["line"] == {2 * 64} < distances["across"]


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "dense": ((dl.Dense(T=4, N=8, K=8), dl.Shape.of(), 0, 4), "pixels are read by a convolution; got dense"),
    "first": ((CONV, SEVEN, 49, 4), "the first row must be from 0 to 48; got 49"),
    "rows": ((CONV, SEVEN, 0, 0), "a tile must have rows; got 0"),
    "mode": ((CONV, SEVEN, 0, 4, "column"), "the mode of a tile is one of across, line; got 'column'"),
    "images": ((CONV, dl.Shape.of(N=0, H=7, W=7), 0, 4), "a tile needs an output; got none at H=7,N=0,W=7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_tiles_that_there_are_not_are_refused(name: str) -> None:
    arguments, words = WRONG[name]
    for draw in (frame_tile_reads, plot_tile_reads):
        with pytest.raises(WorkloadError, match=words):
            draw(*arguments)


# --- the picture ------------------------------------------------------------------------------


def cells(figure: go.Figure, number: int) -> Any:
    """Returns the numbers in the cells of the image: unread pixels, read pixels, places beyond it."""
    return np.array(figure.data[number].z, dtype=float)


def scatters(figure: go.Figure) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "scatter"]


@pytest.mark.parametrize("mode", ["across", "line"])
@pytest.mark.parametrize(
    ("shape", "first", "rows"),
    [(SEVEN, 5, 8), (LARGE, 50, 12), (LARGE, 1000, 6), (dl.Shape.of(N=2, H=7, W=7), 45, 12)],
    ids=str,
)
def test_the_picture_has_every_read(shape: dl.Shape, first: int, rows: int, mode: Mode) -> None:
    frame = frame_tile_reads(CONV, shape, first, rows, mode)
    figure = plot_tile_reads(CONV, shape, first, rows, mode)
    read = frame[frame["reads"] == "pixel"]
    assert np.nansum(cells(figure, 1)) == len(read)
    assert np.isfinite(cells(figure, 1)).sum() == read["offset"].nunique()
    assert np.nansum(cells(figure, 2)) == len(frame) - len(read)
    title = f"{len(read)} reads of {read['offset'].nunique()} pixels, {len(frame) - len(read)} beyond"
    assert title in figure.layout.title.text
    (numbers,) = (trace for trace in scatters(figure) if trace.mode == "text" and trace.xaxis == "x2")
    assert [int(text) for text in numbers.text if text] == (read["offset"] // 64).tolist()


def test_steps_fill_the_picture() -> None:
    taps, sums = range(1, 10), []
    for step in taps:
        figure = plot_tile_reads(CONV, SEVEN, 8, 5, step=step)
        ring, _ = (trace for trace in scatters(figure) if trace.marker.symbol == f"square{OPEN}")
        sums.append(np.nansum(cells(figure, 1)))
        now = frame_tile_reads(CONV, SEVEN, 8, 5).query(f"tap == {step - 1} and reads == 'pixel'")
        assert list(ring.x) == now["column"].tolist() and list(ring.y) == now["line"].tolist()
    assert sums == sorted(sums) and sums[-1] == np.nansum(cells(plot_tile_reads(CONV, SEVEN, 8, 5), 1))
    for wrong in (0, 10):
        with pytest.raises(WorkloadError, match="a step must be from 1 to 9, a tap of the kernel"):
            plot_tile_reads(CONV, SEVEN, 8, 5, step=wrong)


def test_a_large_image_is_drawn_around_the_tile() -> None:
    inner = plot_tile_reads(CONV, LARGE, 20 * 56 + 20, 6)
    assert list(inner.data[0].x) == [*range(18, 28)] and list(inner.data[0].y) == [*range(18, 23)]
    whole = plot_tile_reads(CONV, SEVEN, 20, 6)
    assert list(whole.data[0].x) == list(whole.data[0].y) == [*range(-1, 8)]
    both_ends = plot_tile_reads(CONV, LARGE, 50, 12)
    assert len(both_ends.data[0].x) == 58 > MOST_COLUMNS


def test_images_lie_below_each_other() -> None:
    figure = plot_tile_reads(CONV, dl.Shape.of(N=2, H=7, W=7), 45, 12)
    assert list(figure.data[0].y) == [*range(-1, 18)]
    assert np.isnan(cells(figure, 0)[8:11]).all()  # zeros, an empty line, and zeros


@pytest.mark.parametrize(("conv", "shape"), [(CONV, LARGE), (SPEECH, dl.Shape.of(L=99))], ids=["2d", "1d"])
def test_the_picture_without_a_browser_leaves_nothing_out(conv: Any, shape: dl.Shape) -> None:
    canvas = redraw(plot_tile_reads(conv, shape, 40, 14, step=2), "A caption.")
    canvas.draw_without_rendering()
    assert not any("Not in this picture" in text.get_text() for text in canvas.texts)
    image, rows = canvas.axes
    assert image.get_ylabel() == "line of the image" and rows.get_ylabel() == "row of the output"
    assert not image.get_window_extent().overlaps(rows.yaxis.label.get_window_extent())


# --- the explorer -----------------------------------------------------------------------------


def test_the_explorer_draws_the_tile_of_a_pixel() -> None:
    explorer = tile_reads_explorer(CONV)
    explorer.set(N=1, H=7, W=7, line=3, column=2, rows=8, step=9)
    assert explorer.frame["row"].unique().tolist() == [*range(21, 28)]  # of seven even tiles of 7 rows
    assert explorer.drawn.numbers["rows of the tile"] == "7 of 49"
    assert explorer.drawn.numbers["beyond the image"] == "9.5 % of rows x taps"
    explorer.set(mode="line", rows=4, column=5, step=5)
    assert explorer.frame["row"].unique().tolist() == [25, 26, 27]  # 4 + 3 on a line
    assert "3 of 3 rows read 64 elements each" in explorer.drawn.note
    assert "Neighbouring rows are 64 elements apart." in explorer.drawn.note
    explorer.set(line=0, step=1)
    assert "no row reads a pixel" in explorer.drawn.note


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(7, 12), st.integers(7, 12), st.integers(0, 11), st.integers(0, 11), st.integers(1, 16))
def test_every_output_pixel_is_in_the_tile_drawn_for_it(
    height: int, width: int, line: int, column: int, rows: int
) -> None:
    explorer = tile_reads_explorer(dl.Conv2d(N=2, H=height, W=width, IC=8, OC=8, kernel=3, padding=1))
    line, column = min(line, height - 1), min(column, width - 1)
    for mode in ("across", "line"):
        explorer.set(line=line, column=column, rows=rows, mode=mode)
        assert line * width + column in set(explorer.frame["row"])
        assert explorer.frame["row"].nunique() <= rows


def test_a_click_on_the_image_chooses_an_output_pixel() -> None:
    explorer = tile_reads_explorer(CONV)
    explorer.set(N=1, H=14, W=14)
    explorer.live.clicked = {"trace": 0, "x": 9, "y": 5}
    assert (explorer.values["line"], explorer.values["column"]) == (5, 9)
    explorer.live.clicked = {"trace": 2, "x": -1, "y": 14}
    assert (explorer.values["line"], explorer.values["column"]) == (13, 0)
    explorer.live.clicked = {"trace": 6, "x": 3, "y": 3}
    assert (explorer.values["line"], explorer.values["column"]) == (13, 0)


def test_a_sequence_has_no_lines_to_choose() -> None:
    explorer = tile_reads_explorer(SPEECH)
    assert list(explorer.controls) == ["L", "column", "rows", "mode", "step"]
    assert "Neighbouring rows are 160 elements apart." in explorer.drawn.note
    explorer.live.clicked = {"trace": 1, "x": 21, "y": 0}
    assert explorer.values["column"] == 10
    with pytest.raises(WorkloadError, match="pixels are read by a convolution"):
        tile_reads_explorer(dl.Dense(T=dl.Dim(1, 8), N=8, K=8))


def test_importing_is_light() -> None:
    code = """import sys, dietlab.view.figures.tile_picture, dietlab.view.widgets.tile_reads_explorer
assert not {'plotly', 'ipywidgets', 'pandas', 'tvm', 'matplotlib'} & set(sys.modules)"""
    python("-c", code)

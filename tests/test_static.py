"""Static pictures: what our figures hold is in them, and they read on white and on black."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import same_color, to_rgb, to_rgba
from matplotlib.image import imread
from plotly.subplots import make_subplots

from dietlab.tuning import TuningRun
from dietlab.view.figures.base import new_figure
from dietlab.view.figures.slowdown import plot_slowdown
from dietlab.view.figures.tuning import plot_phases, plot_portfolio_curve
from dietlab.view.static.colours import colours, plain
from dietlab.view.static.picture import AREA, HEIGHT, WIDTH, picture, redraw
from dietlab.view.theme import TEXT

LARGEST = 60_000
"""Bytes of a picture."""
NUMBERS = st.floats(-1e6, 1e6)


def pixels(png: bytes) -> Any:
    """Red, green, blue and opacity from 0 to 1."""
    assert png.startswith(b"\x89PNG\r\n")
    return imread(BytesIO(png))


def only_axes(figure: go.Figure) -> Any:
    (axes,) = redraw(figure).axes
    return axes


def written(canvas: Any) -> list[str]:
    return [text.get_text() for text in canvas.texts]


def luminance(colour: str) -> float:
    """Relative luminance as web accessibility guidelines define it."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


# --- the picture --------------------------------------------------------------------------------------


def test_a_picture_is_small_transparent_and_has_the_colours() -> None:
    figure = new_figure(pd.DataFrame({"x": [1]}), "A title", None)
    figure.add_scatter(x=list(range(100)), y=list(range(100)), line={"color": "#D55E00", "width": 4})
    png = picture(figure, "A caption.")
    image = pixels(png)
    height, width, _ = image.shape
    assert len(png) < LARGEST
    assert 0.8 * WIDTH < width < 1.3 * WIDTH and 0.8 * HEIGHT < height < 1.3 * HEIGHT
    assert image[0, 0, 3] == image[-1, -1, 3] == 0
    assert (np.abs(image[..., :3] - to_rgb("#D55E00")).max(axis=-1) < 0.05).sum() > 500


def test_text_reads_on_white_and_on_black() -> None:
    assert (luminance("white") + 0.05) / (luminance(TEXT) + 0.05) >= 4.5
    assert (luminance(TEXT) + 0.05) / (luminance("black") + 0.05) >= 4.5


def test_the_caption_is_there_and_says_what_is_left_out() -> None:
    figure = go.Figure([go.Pie(values=[1, 2]), go.Pie(values=[3]), go.Scatter(y=[1])])
    canvas = redraw(figure, "A picture.")
    assert "A picture. Not in this picture: pie." in written(canvas)
    assert len(canvas.axes[0].lines) == 1
    assert "Not in this picture: pie." in written(redraw(go.Figure(go.Pie(values=[1]))))
    assert pixels(picture(go.Figure(go.Pie(values=[1])))).size


def test_a_trace_that_cannot_be_read_is_left_out() -> None:
    canvas = redraw(go.Figure([go.Scatter(x=[[1, 2], [3, 4]], y=[1, 2]), go.Bar(y=[1])]))
    assert "Not in this picture: scatter." in written(canvas)
    assert len(canvas.axes[0].patches) == 1


def test_shapes_and_colours_that_are_unknown_do_no_harm() -> None:
    figure = go.Figure(go.Scatter(y=[1, 2], line={"color": "hsl(1,2%,3%)"}))
    figure.add_shape(type="circle", x0=0, x1=1, y0=0, y1=1)
    figure.add_annotation(text="a", x=0, y=1, font_color="hwb(0 0% 100%)")
    canvas = redraw(figure)
    assert "Not in this picture: circle." in written(canvas)
    assert same_color(canvas.axes[0].lines[0].get_color(), TEXT)


def test_a_figure_without_data_says_so() -> None:
    canvas = redraw(new_figure(pd.DataFrame(), "Nothing", None))
    assert written(canvas.axes[0]) == ["nothing was measured"]
    assert "Nothing" in written(canvas)
    assert picture(go.Figure())


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a<br>b", "a\nb"),
        ("<b>bold</b> &lt;c&gt;", "bold <c>"),
        ("T < 3 and T > 1", "T < 3 and T > 1"),
        ("$x", r"\$x"),
        (None, ""),
    ],
)
def test_html_becomes_plain(html: str | None, text: str) -> None:
    assert plain(html) == text


def test_no_text_is_read_as_a_formula() -> None:
    figure = go.Figure(go.Bar(x=[r"$\oops{$"], y=[1], name="$^$", text=[r"$\no$"], showlegend=True))
    figure.update_layout(title_text=r"$\frac{$", xaxis_title_text="$_$")
    assert picture(figure, "$$")


# --- traces -------------------------------------------------------------------------------------------


def test_lines_have_their_colour_dash_width_and_steps() -> None:
    line = {"color": "rgb(0, 114, 178)", "dash": "dash", "width": 5, "shape": "hv"}
    axes = only_axes(go.Figure(go.Scatter(x=[1, 2, 4], y=[3, None, 5], mode="lines", line=line)))
    (drawn,) = axes.lines
    assert drawn.get_xdata().tolist() == [1, 2, 4]
    assert np.isnan(drawn.get_ydata()).tolist() == [False, True, False]
    assert same_color(drawn.get_color(), "#0072B2")
    assert (drawn.get_linestyle(), drawn.get_drawstyle()) == ("--", "steps-post")
    assert drawn.get_linewidth() == pytest.approx(5 * 0.72)
    assert not axes.collections


def test_markers_have_symbols_and_colours_of_their_own() -> None:
    marker = {"symbol": ["circle", "diamond-open", "circle"], "color": ["red", "blue", "lime"], "size": 10}
    axes = only_axes(go.Figure(go.Scatter(x=[1, 2, 3], y=[4, 5, 6], mode="markers", marker=marker)))
    filled, outlined = (c for c in axes.collections if isinstance(c, PathCollection))
    assert filled.get_offsets().tolist() == [[1, 4], [3, 6]]
    assert same_color(filled.get_facecolors(), ["red", "lime"])
    assert outlined.get_offsets().tolist() == [[2, 5]]
    assert len(outlined.get_facecolors()) == 0 and same_color(outlined.get_edgecolors(), ["blue"])
    assert axes.lines[0].get_linestyle() == "None"


def test_markers_take_colours_from_a_scale() -> None:
    marker = {"color": [0, 5, 10], "colorscale": [[0, "#000000"], [1, "#ffffff"]]}
    axes = only_axes(go.Figure(go.Scatter(y=[1, 2, 3], mode="markers", marker=marker)))
    (points,) = axes.collections
    assert points.get_edgecolors()[:, 0] == pytest.approx([0, 0.5, 1], abs=0.01)


def test_error_bars_reach_from_below_to_above() -> None:
    bars = {"type": "data", "symmetric": False, "array": [2.0, 1.0], "arrayminus": [0.5, 1.0]}
    axes = only_axes(go.Figure(go.Scatter(x=[1, 2], y=[10, 20], error_y=bars)))
    ends = next(c for c in axes.collections if not isinstance(c, PathCollection)).get_segments()
    assert [sorted(end[:, 1]) for end in ends] == [[9.5, 12], [19, 21]]


def test_error_bars_do_not_stretch_a_logarithmic_axis() -> None:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 1.2], error_y={"type": "data", "array": [0.1, 0.1]}))
    low, high = only_axes(figure.update_yaxes(type="log")).get_ylim()
    assert 0.8 < low < 0.9 and 1.3 < high < 1.4


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=5))
def test_stacked_bars_stand_on_each_other(pairs: list[tuple[float, float]]) -> None:
    lower, upper = zip(*pairs, strict=True)
    figure = go.Figure([go.Bar(y=lower), go.Bar(y=upper)], layout={"barmode": "stack"})
    bars = only_axes(figure).patches
    count = len(pairs)
    assert [bar.get_height() for bar in bars] == pytest.approx([*lower, *upper])
    assert [bar.get_y() for bar in bars[:count]] == [0] * count
    assert [bar.get_y() for bar in bars[count:]] == pytest.approx(lower)


@given(st.integers(1, 4), st.integers(1, 5))
def test_grouped_bars_do_not_overlap(traces: int, count: int) -> None:
    bars = only_axes(go.Figure([go.Bar(y=[1] * count)] * traces)).patches
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
    assert len(spans) == traces * count
    assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))


def test_horizontal_bars_have_names_and_texts() -> None:
    bar = go.Bar(x=[3, 7], y=["compile", "measure"], orientation="h", text=["30 %", "<b>70 %</b>"])
    figure = go.Figure(bar)
    figure.update_yaxes(autorange="reversed")
    axes = only_axes(figure)
    assert [bar.get_width() for bar in axes.patches] == [3, 7]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["compile", "measure"]
    assert written(axes) == ["30 %", "70 %"]
    assert axes.yaxis_inverted()


def test_a_funnel_stands_around_the_middle_with_the_first_on_top() -> None:
    axes = only_axes(go.Figure(go.Funnel(x=[1000, 10], y=["all", "left"])))
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(-500, 1000), (-5, 10)]
    assert axes.yaxis_inverted() and not axes.xaxis.get_visible()
    assert written(axes) == ["1,000", "10"]


def test_a_heat_map_has_cells_around_their_centres_and_gaps() -> None:
    figure = go.Figure(go.Heatmap(x=[1, 2, 3], y=[10, 20], z=[[1, None, 3], [4, 5, 6]], colorscale="Cividis"))
    figure.update_traces(colorbar_title_text="waste<br>(%)")
    axes = redraw(figure).axes[0]
    (mesh,) = (c for c in axes.collections if isinstance(c, QuadMesh))
    assert mesh.get_coordinates()[0, :, 0].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert mesh.get_coordinates()[:, 0, 1].tolist() == [5, 15, 25]
    assert np.ma.getmaskarray(mesh.get_array()).tolist() == [[False, True, False], [False] * 3]
    assert mesh.cmap(0.0)[:3] == pytest.approx(to_rgb("#00224e"), abs=0.01)
    assert axes.child_axes[0].get_title() == "waste\n(%)"


def test_a_heat_map_may_name_its_edges_and_have_one_row() -> None:
    figure = go.Figure(go.Heatmap(x=[0, 4, 6], y=[7], z=[[1, 2]], zmin=0, zmax=10, showscale=False))
    axes = only_axes(figure)
    (mesh,) = axes.collections
    assert mesh.get_coordinates()[0, :, 0].tolist() == [0, 4, 6]
    assert mesh.get_coordinates()[:, 0, 1].tolist() == [6.5, 7.5]
    assert mesh.get_clim() == (0, 10)


def test_texts_stand_beside_their_points() -> None:
    point = go.Scatter(x=[1], y=[2], mode="text", text=["T=1<br>0.9x"], textposition="middle right")
    (text,) = only_axes(go.Figure(point)).texts
    assert (text.get_text(), text.xy, text.get_ha()) == ("T=1\n0.9x", (1, 2), "left")


@given(st.tuples(*[st.integers(0, 255)] * 3), st.floats(0, 1))
def test_colours_of_the_web_are_read(parts: tuple[int, ...], alpha: float) -> None:
    red, green, blue = parts
    shares = [part / 255 for part in parts]
    assert colours(f"rgb({red}, {green},{blue})") == pytest.approx(shares)
    assert colours(f"rgba({red},{green},{blue},{alpha:.3f})") == pytest.approx([*shares, alpha], abs=1e-3)
    assert to_rgba(colours(f"#{red:02x}{green:02x}{blue:02x}")) == pytest.approx([*shares, 1])


# --- axes, shapes, annotations, subplots, legends -----------------------------------------------------


def test_logarithmic_axes_have_their_range_ticks_and_line() -> None:
    figure = go.Figure(go.Scatter(x=[1, 64], y=[0.5, 2]))
    figure.update_xaxes(type="log", range=[0, 2], title_text="T (extent)")
    figure.update_yaxes(type="log", tickvals=[0.5, 1, 2, 500])
    figure.add_hline(y=1, line={"dash": "dot", "color": "#808080"})
    figure.add_annotation(x=1, y=0, text="tie", showarrow=False)
    axes = only_axes(figure)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlim() == pytest.approx((1, 100))
    assert axes.get_ylim()[1] < 500, "ticks do not widen an axis"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.5", "1", "2", "500"]
    assert axes.get_xlabel() == "T (extent)"
    line = axes.lines[-1]
    assert list(line.get_ydata()) == [1, 1] and line.get_linestyle() == ":"
    assert axes.texts[0].xy == pytest.approx((10, 1)), "annotations are placed by the logarithm"


def test_lines_across_a_figure_are_as_wide_as_it() -> None:
    figure = go.Figure(go.Scatter(x=[5, 9], y=[1, 2]))
    figure.add_hline(y=1.5)
    figure.add_vrect(x0=6, x1=7, fillcolor="rgba(0,0,0,0.2)", line_width=0)
    canvas = redraw(figure)
    (axes,) = canvas.axes
    line = axes.lines[-1]
    ends = line.get_transform().transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
    box = axes.get_window_extent()
    assert ends[:, 0] == pytest.approx([box.x0, box.x1])
    (band,) = axes.patches
    assert (band.get_x(), band.get_width()) == (6, 1)


def test_axes_begin_at_zero_if_they_are_to() -> None:
    figure = go.Figure(go.Scatter(y=[5, 6]))
    figure.update_yaxes(rangemode="tozero", ticksuffix=" %")
    axes = only_axes(figure)
    assert axes.get_ylim()[0] == 0
    assert axes.yaxis.get_major_formatter()(2) == "2 %"


def test_subplots_stand_where_they_belong_and_share_an_axis() -> None:
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.7, 0.3], subplot_titles=["a", "b"])
    figure.add_scatter(x=[1, 10], y=[1, 2], row=1, col=1)
    figure.add_bar(x=[1, 20], y=[1, 2], row=2, col=1)
    figure.update_xaxes(title_text="T", row=2, col=1)
    above, below = redraw(figure).axes
    assert above.get_position().y0 > below.get_position().y1
    assert above.get_position().height > 2 * below.get_position().height
    assert above.get_xlim() == below.get_xlim() and above.get_xlim()[1] > 19
    assert (above.get_xlabel(), below.get_xlabel()) == ("", "T")
    assert written(above) + written(below) == ["a", "b"]


def test_an_axis_of_two_panels_is_labelled_where_it_is_anchored() -> None:
    figure = go.Figure([go.Scatter(y=[1, 2]), go.Scatter(y=[3, 4], yaxis="y2")])
    figure.update_layout(
        xaxis={"anchor": "y2", "title": {"text": "T"}},
        yaxis={"domain": [0.6, 1]},
        yaxis2={"domain": [0, 0.4], "anchor": "x", "title": {"text": "waste (%)"}},
    )
    above, below = redraw(figure).axes
    assert (above.get_xlabel(), below.get_xlabel(), below.get_ylabel()) == ("", "T", "waste (%)")
    left, bottom, width, height = below.get_position().bounds
    assert (left, bottom, width) == pytest.approx(AREA[:3]) and height == pytest.approx(0.4 * AREA[3])


def test_a_legend_has_the_names_of_what_is_drawn() -> None:
    figure = go.Figure([go.Scatter(y=[1], name="one<br>line"), go.Bar(y=[1], name="bar")])
    figure.add_scatter(y=[1], name="bar")
    figure.add_scatter(y=[1], name="hidden", showlegend=False)
    figure.add_scatter(y=[1], name="off", visible=False)
    (legend,) = redraw(figure).legends
    assert [text.get_text() for text in legend.get_texts()] == ["one\nline", "bar"]
    assert not redraw(go.Figure(go.Scatter(y=[1], name="alone"))).legends
    assert redraw(go.Figure(go.Scatter(y=[1], name="alone", showlegend=True))).legends
    assert not redraw(figure.update_layout(showlegend=False)).legends


# --- our figures --------------------------------------------------------------------------------------


def test_nothing_of_our_figures_is_left_out(synthetic_run: TuningRun) -> None:
    lines = {"padded to 128": {8: 900.0, 64: 950.0}, "dispatcher": {8: 250.0, 64: 700.0}}
    figures = (
        plot_phases(synthetic_run.seconds),
        plot_portfolio_curve([(1, 1.4), (2, 1.1)]),
        plot_slowdown(lines, ("mkl-packed", {8: 300.0, 64: 800.0})),
    )
    for figure in figures:
        assert not any("Not in this picture" in text for text in written(redraw(figure, "A caption.")))
        assert len(picture(figure, "A caption.")) < LARGEST


def test_matplotlib_comes_with_the_first_picture_and_keeps_no_state() -> None:
    code = (
        "import sys, dietlab.view.static.picture as static\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import plotly.graph_objects as go\n"
        "static.picture(go.Figure(go.Scatter(y=[1, 2])))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

"""The plot that all notebooks share: lines over a reference."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import RecordError
from dietlab.view.figures.slowdown import frame_slowdown, plot_slowdown
from dietlab.view.theme import PALETTE

VENDOR = ("mkl <packed>", {1: 100.0, 24: 200.0, 43: 400.0})
LINES = {"padded to 128": {1: 1000.0, 43: 600.0, 64: 700.0}, "dispatcher": {24: 150.0}}

TIMES = st.dictionaries(st.integers(1, 2048), st.floats(0.01, 1e6), min_size=1, max_size=8)


def trace(figure: Any, name: str) -> Any:
    return next(t for t in figure.data if t.name == name)


def test_ratios_where_both_were_measured() -> None:
    frame = frame_slowdown(LINES, VENDOR)
    assert list(frame.columns) == ["line", "T", "seconds", "reference_seconds", "slowdown"]
    assert list(frame.itertuples(index=False, name=None)) == [
        ("padded to 128", 1, 1e-3, 1e-4, 10.0),
        ("padded to 128", 43, 6e-4, 4e-4, 1.5),
        ("dispatcher", 24, 1.5e-4, 2e-4, 0.75),
    ]


@given(st.dictionaries(st.text(max_size=5), TIMES, max_size=4), TIMES)
def test_every_ratio_gives_its_time_back(lines: dict[str, dict[int, float]], known: dict[int, float]) -> None:
    lines = {name: times for name, times in lines.items() if set(times) & set(known)}
    rows = list(frame_slowdown(lines, ("vendor", known)).itertuples())
    common = {(name, t) for name, times in lines.items() for t in times if t in known}
    assert {(row.line, row.T) for row in rows} == common
    for row in rows:
        assert row.slowdown * known[row.T] == pytest.approx(lines[row.line][row.T])


def test_a_line_is_above_one_where_it_is_slower() -> None:
    figure = plot_slowdown(LINES, VENDOR)
    assert [t.name for t in figure.data] == ["padded to 128", "dispatcher", "mkl &lt;packed&gt;"]
    slow, fast = trace(figure, "padded to 128"), trace(figure, "dispatcher")
    assert (list(slow.x), list(slow.y)) == ([1, 43], [10.0, 1.5])
    times = "<br>T=43: 600 us against 400 us"
    assert slow.hovertext[1] == f"<b>mkl &lt;packed&gt; is 1.50 times as fast as padded to 128</b>{times}"
    assert fast.hovertext[0].startswith("<b>dispatcher is 1.33 times as fast as mkl &lt;packed&gt;</b>")
    assert (slow.line.color, fast.line.color) == (PALETTE["muted"], PALETTE["ours"]), "the newest stands out"
    assert slow.line.width < fast.line.width
    assert figure.layout.xaxis.title.text == "T (extent)"
    assert figure.layout.yaxis.title.text == "time ratio (below 1: faster)"
    assert figure.layout.yaxis.type == "log"
    assert {0.5, 0.75, 1, 1.5, 2, 3, 5, 10} <= set(figure.layout.yaxis.tickvals)


def test_the_reference_is_the_dashed_line_at_one() -> None:
    line = trace(plot_slowdown(LINES, VENDOR), "mkl &lt;packed&gt;")
    assert (list(line.x), list(line.y), line.line.dash) == ([1, 24, 43], [1, 1, 1], "dash")
    assert line.line.color == PALETTE["best_vendor"]
    assert line.hovertext[2] == "<b>mkl &lt;packed&gt;: 400 us</b><br>T=43"
    alone = plot_slowdown({}, VENDOR)
    assert list(trace(alone, "mkl &lt;packed&gt;").x) == [1, 24, 43]


def test_lines_keep_their_look_when_others_join() -> None:
    names = [f"line {number}" for number in range(14)]
    looks = []
    for count in (3, 14):
        figure = plot_slowdown({name: {1: 1.0} for name in names[:count]}, VENDOR)
        looks.append([(t.line.color, t.line.dash, t.marker.symbol) for t in figure.data[:count]])
    assert looks[1][:2] == looks[0][:2] and looks[1][2][2] == looks[0][2][2]
    assert len(set(looks[1])) == 14, "told apart, though all but the newest are grey"


def test_the_oracle_is_no_idea_of_ours() -> None:
    lines = {name: {1: 1.0} for name in ("padded", "dispatcher", "oracle")}
    colours = [t.line.color for t in plot_slowdown(lines, VENDOR).data[:3]]
    assert colours == [PALETTE["muted"], PALETTE["ours"], PALETTE["oracle"]]


def test_long_shapes_have_a_logarithmic_axis() -> None:
    assert plot_slowdown(LINES, VENDOR).layout.xaxis.type is None
    long = plot_slowdown({"ours": {1: 1.0, 2048: 3.0}}, ("vendor", {1: 1.0, 2048: 2.0}))
    assert long.layout.xaxis.type == "log"


@pytest.mark.parametrize("time", [0.0, -1.0, math.nan, math.inf])
def test_a_time_is_positive_and_finite(time: float) -> None:
    with pytest.raises(RecordError, match=r"positive and finite.*ours, T=3"):
        frame_slowdown({"ours": {3: time}}, ("vendor", {3: 1.0}))
    with pytest.raises(RecordError, match=r"positive and finite.*vendor, T=3"):
        frame_slowdown({"ours": {3: 1.0}}, ("vendor", {3: time}))


def test_a_line_without_a_common_shape_is_named() -> None:
    with pytest.raises(RecordError, match=r"in common with vendor; got ours"):
        plot_slowdown({"ours": {3: 1.0}}, ("vendor", {4: 1.0}))


def test_templates_have_their_own_background() -> None:
    assert plot_slowdown(LINES, VENDOR).layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert plot_slowdown(LINES, VENDOR, template="plotly_dark").layout.paper_bgcolor is None


def test_importing_is_light() -> None:
    code = (
        "import sys, dietlab.view.figures.slowdown, dietlab.view.figures.padding\n"
        "import dietlab.targets.cpu.view.padding_explorer, dietlab.view.widgets.space_explorer\n"
        "heavy = {'plotly', 'ipywidgets', 'pandas', 'tvm', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

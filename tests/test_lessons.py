"""What the notebooks share: shipped data, and the lines of the plot that gains one in each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, RecordError
from dietlab.base.shipped import data_path
from dietlab.cost import adaptation_cost
from dietlab.lab import lessons
from dietlab.scheme import build_space
from dietlab.targets.cpu.space import FAR

NUMBERS = ("01", "02", "03", "04", "05", "06", "07")
MEDIANS = "the same, median of blocks"


@pytest.fixture(scope="module")
def lines() -> dict[str, dict[int, float]]:
    return lessons.lines("07")


# --- shipped data -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [lessons.RECORDS, lessons.BENCH, lessons.ABLATION], ids=lambda name: name)
def test_shipped_files_are_there(name: str) -> None:
    assert data_path(name).stat().st_size > 1000


def test_times_are_the_records() -> None:
    times, records = lessons.microseconds(), lessons.recorded().records
    assert times.shape == (1088, 16) and len(records) == 1088 * 16
    assert list(times.columns) == [shape["T"] for shape in lessons.shapes()]
    assert not times.isna().any(axis=None)
    for record in records[::500]:
        assert times.at[record.scheme.key, record.shape["T"]] == 1e6 * record.seconds


def test_all_that_fits_was_recorded_but_what_asks_ahead_or_far() -> None:
    fits = set(build_space(lessons.workload(), lessons.hardware(), edges=("padded",)))
    near = {kernel for kernel in fits if not kernel.kernel.ahead and kernel.kernel.prefetch != FAR[0]}
    assert near == set(lessons.space())


def test_times_given_out_are_the_readers_own() -> None:
    mine = lessons.microseconds()
    mine.loc[:, 128] = 0.0
    assert (lessons.microseconds()[128] > 0).all()


def test_reports_are_of_one_core_and_of_two() -> None:
    assert [lessons.report(cores).hardware["cores"] for cores in (1, 2)] == [1, 2]
    assert {row.shape["T"] for row in lessons.report().rows} == set(range(1, 129))
    with pytest.raises(RecordError, match="3core"):
        lessons.report(3)


def test_a_table_is_drawn_column_by_column() -> None:
    import pandas as pd

    table = pd.DataFrame({"dietlab": [1.0, 2.0], "<b>": [3.0, 4.0]}, index=[5, 128])
    figure = lessons.plot_table(table, "Two & three", "T (rows)", "time (us)", log_x=True)
    assert [trace.name for trace in figure.data] == ["dietlab", "&lt;b&gt;"]
    assert [list(trace.y) for trace in figure.data] == [[1.0, 2.0], [3.0, 4.0]]
    assert figure.data[0].hovertext[1] == "<b>dietlab: 2</b><br>T (rows): 128"
    assert len({trace.line.color for trace in figure.data}) == 2
    assert (figure.layout.xaxis.type, figure.layout.xaxis.title.text) == ("log", "T (rows)")
    assert (figure.layout.yaxis.type, figure.layout.yaxis.title.text) == (None, "time (us)")


def test_about_names_versions_and_the_processor() -> None:
    text = lessons.about()
    assert "AMD EPYC, 1 core" in text
    assert "apache-tvm 0.27.0.post1" in text.splitlines()[1]
    assert text.splitlines()[0].startswith("here:")


# --- what several notebooks start from --------------------------------------------------------


@settings(max_examples=10)
@given(count=st.integers(1, 40), seed=st.integers(0, 1000))
def test_each_micro_kernel_is_measured_once_where_it_wastes_least(count: int, seed: int) -> None:
    records = lessons.once_each(count, seed)
    cost, shapes = adaptation_cost(lessons.workload(), lessons.hardware()), lessons.shapes()
    assert len({record.scheme for record in records}) == len(records) == count
    assert records == lessons.once_each(count, seed)
    for record in records:
        least = max(cost.static(record.scheme, shape) for shape in shapes)
        assert cost.static(record.scheme, record.shape) == pytest.approx(least, abs=1e-6)


def test_the_search_asked_for_recorded_times_only() -> None:
    run, times = lessons.replayed_run(), lessons.microseconds()
    assert run.trials >= 64 and run.failures == 0
    assert {r.asked_by.stage for r in run.records if r.asked_by} == {"search", "decide"}
    for record in run.records:
        assert times.at[record.scheme.key, record.shape["T"]] == 1e6 * record.seconds
    assert lessons.replayed_run() is run


# --- the plot ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["hot", "rotating"])
def test_the_reference_is_the_faster_of_the_prepacked_vendors(cache: str) -> None:
    name, line = lessons.vendor_line(cache)
    rows = [row for row in lessons.report().rows if row.cache == cache and row.correct]
    packed = {c.name for c in lessons.report().contenders if c.kind == "prepacked"}
    assert name == "best prepacked vendor" and packed == {"mkl-packed", "onednn-packed"}
    assert list(line) == list(range(1, 129))
    for row in rows:
        if row.contender in packed:
            assert line[row.shape["T"]] <= 1e6 * row.seconds_median
    times = {1e6 * row.seconds_median for row in rows if row.contender in packed}
    assert set(line.values()) <= times


@given(st.sampled_from(NUMBERS))
def test_each_notebook_adds_one_line_behind_those_before_it(number: str) -> None:
    names = [name for name, _ in lessons._LINES.values()]
    assert tuple(lessons._LINES) == NUMBERS
    # Computing the later ones takes seconds, and what they are is tested below.
    upto = min(number, "03")
    assert list(lessons.lines(upto)) == names[: int(upto)]


@pytest.mark.parametrize("number", ["00", "08", "7", ""])
def test_other_notebooks_add_none(number: str) -> None:
    with pytest.raises(DietlabError, match=f"one of 01, 02, .*07; got '{number}'"):
        lessons.lines(number)


def test_lines_have_every_recorded_length(lines: dict[str, dict[int, float]]) -> None:
    lengths = {shape["T"] for shape in lessons.shapes()}
    assert len(lines) == len(NUMBERS)
    for name, line in lines.items():
        assert set(line) == lengths, name
        assert all(type(T) is int and type(us) is float for T, us in line.items()), name


def test_no_line_is_below_the_oracle(lines: dict[str, dict[int, float]]) -> None:
    times = lessons.microseconds()
    assert lines["oracle"] == times.min().to_dict()
    for name, line in lines.items():
        assert all(us >= lines["oracle"][T] for T, us in line.items()), name


def test_lines_are_recorded_times(lines: dict[str, dict[int, float]]) -> None:
    times = lessons.microseconds()
    padded = lines.pop("padded to 128")
    assert set(padded.values()) == {times[128].min()}
    assert all(us >= lines["one micro-kernel, padded"][T] for T, us in lines.pop(MEDIANS).items())
    for name, line in lines.items():
        assert all((times[T] == us).any() for T, us in line.items()), name


def test_the_dispatcher_uses_few_micro_kernels() -> None:
    dispatcher = lessons.replayed_dispatcher(4)
    assert 2 <= len(dispatcher.micro_kernels) <= 4
    assert set(dispatcher.schemes) <= set(lessons.replayed_run().schemes)


def test_a_predicted_number_is_a_level_in_a_new_figure() -> None:
    figure = go.Figure(go.Scatter(x=[1, 128], y=[3.0, 1.0]))
    drawn = lessons.with_prediction(figure, 2)
    assert [shape.y0 for shape in drawn.layout.shapes] == [2.0]
    assert not figure.layout.shapes and len(drawn.data) == 1
    assert lessons.with_prediction(figure, None) == figure


def test_a_level_and_its_label_have_their_place_on_a_logarithmic_axis() -> None:
    figure = go.Figure(go.Bar(x=["plain loops"], y=[1.3]), go.Layout(yaxis={"type": "log"}))
    drawn = lessons.with_prediction(figure, 100)
    assert [shape.y0 for shape in drawn.layout.shapes] == [100.0]
    assert [label.y for label in drawn.layout.annotations] == [2.0], "plotly takes a label's logarithm"
    for wrong in (0, -1.0):
        with pytest.raises(DietlabError, match="above 0"):
            lessons.with_prediction(figure, wrong)


@pytest.mark.parametrize("axes", [{"yaxis": {"type": "log"}}, {"xaxis": {"type": "log"}}])
def test_a_predicted_line_has_no_point_outside_of_a_logarithmic_axis(axes: dict[str, Any]) -> None:
    with pytest.raises(DietlabError, match="above 0; got -1"):
        lessons.with_prediction(go.Figure(layout=axes), {-1: -1.0, 8: 2.0})


def test_predicted_points_are_a_line_in_order() -> None:
    drawn = lessons.with_prediction(go.Figure(), {128: 1, 1: 2.5, 14: np.float32(1.5)})
    assert drawn.data[0].x == (1, 14, 128) and drawn.data[0].y == (2.5, 1.5, 1)
    assert drawn.data[0].name == lessons.YOURS and drawn.layout.showlegend


@pytest.mark.parametrize(
    "wrong", ["19", True, float("nan"), float("inf"), -float("inf"), [1, 2], {1: "a"}, {"a": 1}, 1j]
)
def test_a_prediction_that_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(DietlabError, match="a prediction must be a finite number"):
        lessons.with_prediction(go.Figure(), wrong)
    if not isinstance(wrong, dict):
        with pytest.raises(DietlabError, match="a prediction must be a finite number"):
            lessons.judged(wrong, 1.0)


@pytest.mark.parametrize(
    ("prediction", "value", "ends"),
    [
        (None, 19.5, "it is 19.5 rows; you entered no prediction"),
        (20, 19.5, "you predicted 20, it is 19.5 rows: as good as right"),
        (25, 20, "25 % too high"),
        (15, 20, "25 % too low"),
        (40, 4, "a factor of 10.0 too high"),
        (1, 10, "a factor of 10.0 too low"),
        (-5, 20, "you predicted -5, it is 20 rows: 25 rows too low"),
        (5, -20, "25 rows too high"),
        (-40, -4, "a factor of 10.0 too low"),
        (-15, -20, "25 % too high"),
        (3, 0, "it is 0 rows"),
        (0, 3, "it is 3 rows"),
    ],
)
def test_a_prediction_is_judged(prediction: float | None, value: float, ends: str) -> None:
    assert lessons.judged(prediction, value, "rows").endswith(ends)

"""Live figures and explorers without a browser: their traits, what they leave in a notebook, and errors."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import ipywidgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from conftest import python
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, RecordError
from dietlab.base.shipped import data_path
from dietlab.lab import lessons
from dietlab.machine import Hardware
from dietlab.problem import Conv2d, Dim
from dietlab.targets.cpu.view.padding_explorer import padding_explorer
from dietlab.targets.cuda.view.waves_explorer import waves_explorer
from dietlab.view.figures.base import new_figure
from dietlab.view.static.saving import KINDS
from dietlab.view.widgets.cards import cards_html
from dietlab.view.widgets.controls import Control, Number, OneOf, SomeOf, Switch, Text, control_of
from dietlab.view.widgets.coordinates_explorer import coordinates_explorer
from dietlab.view.widgets.cost_lab import cost_lab
from dietlab.view.widgets.dispatch_explorer import dispatch_explorer
from dietlab.view.widgets.explorer import Drawn, Explorer
from dietlab.view.widgets.export import OFFERED
from dietlab.view.widgets.live import CAPTION, LiveFigure, show, with_picture
from dietlab.view.widgets.roofline_explorer import roofline_explorer
from dietlab.view.widgets.space_explorer import space_explorer
from dietlab.view.widgets.speedup_explorer import speedup_explorer
from dietlab.view.widgets.tile_reads_explorer import tile_reads_explorer

WIDGET = "application/vnd.jupyter.widget-view+json"
COLOURS = {1: ("red",), 2: ("red", "blue"), 3: ("blue", "lime")}
"""Colours that there are for so many rows."""


def titled(title: str) -> go.Figure:
    return new_figure(pd.DataFrame({"x": [1]}), title, None).add_scatter(x=[1, 2], y=[3, 4])


def title_of(live: LiveFigure) -> str:
    title: str = json.loads(live.figure_json)["layout"]["title"]["text"]
    return title


class Drawing:
    """A drawing function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rows: int, colour: str | None) -> Drawn:
        self.calls += 1
        if rows == 0:
            raise RecordError("there are rows", "<none>", "Choose 1 or more.")
        frame = pd.DataFrame({"row": range(rows), "colour": colour})
        numbers = {"rows < 9": f"{rows} & more", "colour": str(colour)}
        return Drawn(titled(f"{rows} {colour}"), frame, numbers, "a <b>note", {"colour": COLOURS[rows]})


def explorer(draw: Any, clicked: Any = None, rows: int = 2) -> Explorer:
    controls = {
        "rows": ipywidgets.IntSlider(value=rows, min=0, max=3),
        "colour": ipywidgets.Dropdown(options=("red", "blue")),
    }
    return Explorer(draw, controls, clicked)


def shown_text(view: Explorer) -> str:
    (html,) = (child.value for child in view.children if isinstance(child, ipywidgets.HTML))
    return str(html)


# --- figures ------------------------------------------------------------------------------------------


def test_a_figure_is_one_trait_and_another_replaces_it() -> None:
    live = show(titled("first"))
    seen: list[str] = []
    live.observe(lambda change: seen.append(title_of(live)), "figure_json")
    assert title_of(live) == "first"
    live.figure = second = titled("second")
    assert live.figure is second
    assert seen == ["second"] == [title_of(live)]


def test_the_page_gets_plotly_once_and_not_with_each_figure() -> None:
    one, other = show(titled("one")), show(titled("other"))
    assert one.bundle is other.bundle
    state = one.get_state()
    assert state["bundle"] == f"IPY_MODEL_{one.bundle.model_id}"
    assert "Plotly" in one.bundle.js
    assert len(json.dumps({name: str(value) for name, value in state.items()})) < 20_000


def test_a_saved_notebook_keeps_a_picture_of_the_newest_figure() -> None:
    live, view = show(titled("first")), explorer(Drawing())
    before, _ = live._repr_mimebundle_()
    live.figure = titled("quite another title")
    for shown in (live, view):
        data, _ = shown._repr_mimebundle_()
        assert data[WIDGET]["model_id"] == shown.model_id
        assert data["text/plain"] == CAPTION
        assert b64decode(data["image/png"]).startswith(b"\x89PNG")
        assert data["image/png"] != before["image/png"]


@pytest.mark.parametrize("bundle", [{WIDGET: {}}, ({WIDGET: {}}, {"kept": 1})])
def test_pictures_join_what_a_widget_has(bundle: Any) -> None:
    data, metadata = with_picture(bundle, titled("x"))
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert metadata == (bundle[1] if isinstance(bundle, tuple) else {})


@pytest.mark.parametrize("module", ["live", "explorer", "panel"])
@pytest.mark.parametrize("package", ["anywidget", "ipywidgets", "plotly"])
def test_a_missing_package_is_named_with_the_remedy(package: str, module: str) -> None:
    code = f"""import sys; sys.modules[{package!r}] = None
from dietlab.base.errors import MissingDependencyError
try: import dietlab.view.widgets.{module}
except MissingDependencyError as error: told = str(error)
assert {package!r} in told and "pip install" in told"""
    python("-c", code)


@pytest.mark.parametrize("package", ["dietlab", "dietlab.view"])
def test_no_name_is_hidden_by_a_module_of_that_name(package: str) -> None:
    """Once a module is loaded its package has it as an attribute, and asks no further."""
    loaded = import_module(package)
    assert {module.name for module in iter_modules(loaded.__path__)}.isdisjoint(loaded.__all__)


# --- explorers ----------------------------------------------------------------------------------------


def test_an_explorer_shows_controls_numbers_and_figure() -> None:
    view = explorer(Drawing())
    row, numbers, live, files = view.children
    assert list(row.children) == list(view.controls.values()) and files is view.files
    assert live is view.live and title_of(live) == "2 red"
    assert view.values == {"rows": 2, "colour": "red"}
    assert view.frame["row"].tolist() == [0, 1] and view.figure is view.live.figure
    assert "rows &lt; 9" in numbers.value and "<b>2 &amp; more</b>" in numbers.value
    assert "a &lt;b&gt;note" in numbers.value, "a note is no HTML"


def test_many_controls_stand_in_rows() -> None:
    controls = {f"c{i}": ipywidgets.IntSlider() for i in range(5)}
    view = Explorer(lambda **values: Drawn(titled("x"), pd.DataFrame()), controls, per_row=2)
    (grid,) = (child for child in view.children if isinstance(child, ipywidgets.GridBox))
    assert list(grid.children) == list(controls.values())
    assert "calc(50.00% - 12px)" in grid.layout.grid_template_columns, "at most two side by side"


def test_controls_stand_in_labelled_groups() -> None:
    controls = {f"c{i}": ipywidgets.IntSlider(description=f"c{i}" * (i + 1)) for i in range(6)}
    groups = {"First <group>": ["c0"], "Second": ["c1", "c2", "c3", "c4"], "Third": ["not there"]}
    view = Explorer(lambda **values: Drawn(titled("x"), pd.DataFrame()), controls, groups=groups)
    boxes, rest, *_ = view.children
    labels = [group.children[0].value for group in boxes.children]
    assert labels == ["<b>First &lt;group&gt;</b>", "<b>Second</b>"]
    held = [list(group.children[1].children) for group in boxes.children]
    assert held == [[controls["c0"]], [controls[f"c{i}"] for i in range(1, 5)]]
    assert list(rest.children) == [controls["c5"]], "what no group names is there too"
    assert {controls[f"c{i}"].style.description_width for i in range(1, 5)} == {"10ch"}


@pytest.mark.parametrize(
    ("value", "large", "small"),
    [
        ("3.1 %", "3.1 %", ""),
        ("18.7 us (17.6 to 19.9)", "18.7", "us (17.6 to 19.9)"),
        ("two words & a sentence", "two words &amp; a sentence", ""),
        ("1" * 20, "1" * 20, ""),
    ],
)
def test_a_card_has_a_small_label_and_a_large_value(value: str, large: str, small: str) -> None:
    html = cards_html({"waste < 1": value})
    assert "waste &lt; 1" in html and f"<b>{large}</b>" in html
    assert (f">{small}</span>" in html) == bool(small)
    assert "flex-wrap:wrap" in html


def test_controls_that_are_moved_or_set_together_draw_once() -> None:
    draw = Drawing()
    view = explorer(draw)
    draw.calls = 0
    view.controls["colour"].value = "blue"
    assert draw.calls == 1 and title_of(view.live) == "2 blue"
    assert "<b>blue</b>" in shown_text(view)
    view.set(colour="red")
    assert draw.calls == 2
    view.set(rows=2, colour="blue")
    assert draw.calls == 3 and view.values == {"rows": 2, "colour": "blue"}


def test_options_follow_the_other_values() -> None:
    view = explorer(Drawing())
    view.controls["colour"].value = "blue"
    view.controls["rows"].value = 3
    assert view.controls["colour"].options == ("blue", "lime")
    assert view.values == {"rows": 3, "colour": "blue"}, "a value that is still there stays"
    view.controls["rows"].value = 1
    assert view.values["colour"] == "red" and title_of(view.live) == "1 red"


def test_a_value_comes_back_with_its_option() -> None:
    view = explorer(Drawing(), rows=3)
    view.set(colour="lime")
    for rows, colour in ((2, "red"), (1, "red"), (3, "lime")):
        view.controls["rows"].value = rows
        assert view.values["colour"] == colour and title_of(view.live) == f"{rows} {colour}"
    view.controls["rows"].value = 2
    view.controls["colour"].value = "blue"
    view.controls["rows"].value = 3
    assert view.values["colour"] == "blue", "what was chosen meanwhile stays"
    view.set(colour="lime")
    view.controls["rows"].value = 2
    view.set(colour="red", rows=3)
    assert view.values["colour"] == "blue", "what was set is not what was lost"


@given(st.lists(st.tuples(st.sampled_from(["rows", "colour"]), st.integers(0, 3)), max_size=8))
def test_what_is_shown_is_always_of_the_values_on_display(moves: list[tuple[str, int]]) -> None:
    view = explorer(Drawing())
    for name, number in moves:
        control = view.controls[name]
        control.value = number if name == "rows" else control.options[number % len(control.options)]
        rows, colour = view.values["rows"], view.values["colour"]
        assert title_of(view.live) == (f"{rows} {colour}" if rows else "")
        assert rows == 0 or colour in COLOURS[rows]
        assert len(view.frame) == rows


def test_an_error_is_a_sentence_and_the_next_value_works() -> None:
    view = explorer(Drawing(), rows=0)
    for rows in (1, 2):
        assert "there are rows; got &lt;none&gt;. Choose 1 or more." in shown_text(view)
        assert "there is nothing to draw" in view.live.figure_json and view.frame.empty
        view.controls["rows"].value = rows
        assert "there are rows" not in shown_text(view) and title_of(view.live) == f"{rows} red"
        view.controls["rows"].value = 0


def test_bugs_are_not_taken_for_sentences() -> None:
    def draw(rows: int, colour: str) -> Drawn:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        explorer(draw)


def test_a_click_sets_controls() -> None:
    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        return {"rows": point["x"], "colour": "blue" if values["colour"] == "red" else "red"}

    view = explorer(Drawing(), clicked)
    view.live.clicked = {"trace": 0, "point": 1, "x": 2, "y": 4, "count": 1}
    assert view.values == {"rows": 2, "colour": "blue"} and title_of(view.live) == "2 blue"
    view.live.clicked = {"trace": 0, "point": 1, "x": 2, "y": 4, "count": 2}
    assert view.values == {"rows": 2, "colour": "red"}, "the same point again is a click too"


def test_clicks_are_ignored_where_nobody_asked_for_them() -> None:
    draw = Drawing()
    view = explorer(draw)
    draw.calls = 0
    view.live.clicked = {"trace": 0, "point": 1, "x": 1, "y": 4, "count": 1}
    assert draw.calls == 0 and view.values["rows"] == 2


# --- files --------------------------------------------------------------------------------------------


def sent_by(view: Any) -> list[tuple[dict[str, str], bytes]]:
    """Files that a figure's page is asked to offer, as they come."""
    sent: list[tuple[dict[str, str], bytes]] = []
    view.live.model.send = lambda content, buffers: sent.append((content, buffers[0]))
    return sent


@pytest.mark.parametrize("kind", OFFERED)
def test_a_button_offers_a_file(kind: str) -> None:
    view = explorer(Drawing())
    sent = sent_by(view)
    view.files.buttons[kind].click()
    ((told, data),) = sent
    assert told == {"name": f"explorer.{kind}", "mime": KINDS[kind].mime}
    starts = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "csv": b"row,colour"}
    assert data.startswith(starts[kind])
    assert view.files.buttons[kind].tooltip


def test_what_cannot_be_saved_is_said_beside_the_buttons() -> None:
    view = explorer(Drawing())
    sent = sent_by(view)
    view.drawn = Drawn("no figure", view.frame)  # type: ignore[arg-type]
    view.files.buttons["svg"].click()
    assert not sent and "only a figure or an explorer can be saved" in view.files.children[-1].value


# --- states -------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(0, 1), st.integers(1, 3), st.integers(0, 1))
def test_a_state_comes_back_through_json(rows: int, colour: int, other: int, another: int) -> None:
    first, second = (explorer(Drawing(), rows=n) for n in (rows, other))
    for view, n, c in ((first, rows, colour), (second, other, another)):
        view.set(colour=COLOURS[n][c % len(COLOURS[n])])
    state = json.loads(json.dumps(first.state()))
    assert second.restore(state) is second
    assert second.state() == state == first.state() and title_of(second.live) == title_of(first.live)


def test_an_option_that_another_value_brings_is_restored() -> None:
    view = explorer(Drawing(), rows=1)
    assert "lime" not in view.controls["colour"].options
    view.restore({"colour": "lime", "rows": 3})
    assert view.values == {"rows": 3, "colour": "lime"} and title_of(view.live) == "3 lime"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (3, "a state must be a dictionary of values by control; got a value of class int"),
        ({}, "missing colour, rows"),
        ({"rows": 2}, "missing colour"),
        ({"rows": 2, "colour": "red", "size": 1}, "unknown size"),
        ({"rows": "2", "colour": "red"}, "rows is a whole number from 0 to 3; got '2'"),
        ({"rows": True, "colour": "red"}, "rows is a whole number from 0 to 3; got True"),
        ({"rows": 4, "colour": "red"}, "rows is a whole number from 0 to 3; got 4"),
        ({"rows": 10**400, "colour": "red"}, "rows is a whole number from 0 to 3; got 1000"),
        ({"rows": 1, "colour": "blue"}, "colour is one of 'red'; got 'blue'"),
        ({"rows": 3, "colour": ["blue"]}, "colour is one of 'blue', 'lime'; got"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(state: Any, said: str) -> None:
    view = explorer(Drawing())
    view.set(colour="blue")
    with pytest.raises(DietlabError, match=re.escape(said)):
        view.restore(state)
    assert view.state() == {"rows": 2, "colour": "blue"} and title_of(view.live) == "2 blue"


@pytest.mark.parametrize(
    ("control", "taken", "refused"),
    [
        (Number(16, 16, 64, 16), (16, 64), (17, 80, 32.0, None)),
        (Number(0.5, 0.0, 1.0, 0.1), (0, 0.5, 1.0), (1.5, float("nan"), "0.5", False)),
        (Switch(False), (True, False), (1, "True")),
        (Text(""), ("", "x"), (1, None)),
        (OneOf(1, [("one", 1), ("two", 2)]), (1, 2), ("one", 3, True)),
        (OneOf(1, [1, 2], slider=True), (1, 2), ("1", 3, True)),
        (SomeOf((), [("one", 1)]), ([], ["one"]), ("one", [1], None)),
    ],
)
def test_a_control_takes_values_of_its_kind(control: Control, taken: Any, refused: Any) -> None:
    """What the widget that is made from it says is the same."""
    widget = control.widget()
    for one in (control, control_of(widget)):
        assert [value for value in taken if not one.accepts(value)] == []
        assert [value for value in refused if one.accepts(value)] == []
        assert one.takes == control.takes
    for value in taken:
        widget.value = control.value_of(value)
        assert control.state_of(widget.value) == value


def test_an_explorer_makes_its_widgets_from_values() -> None:
    controls = {"rows": Number(2, 0, 3, label="height", tooltip="Rows (a count)", lazy=True)}
    view = Explorer(lambda rows: Drawn(titled(f"{rows} rows"), pd.DataFrame()), controls)
    slider = view.controls["rows"]
    said = (slider.description, slider.tooltip, slider.continuous_update)
    assert said == ("height", "Rows (a count)", False)
    view.set(rows=np.float64(3))
    assert slider.value == 3 and title_of(view.live) == "3 rows"


def test_the_line_that_reopens_a_state_is_shown_on_demand_and_runs() -> None:
    def opened() -> Explorer:
        controls = {"rows": ipywidgets.IntSlider(value=2, min=0, max=3)}
        return Explorer(
            lambda rows: Drawn(titled(f"{rows} rows"), pd.DataFrame()), controls, opener="opened()"
        )

    view, place = opened(), -1
    assert view.files.children[place].value == ""
    view.files.link.click()
    view.set(rows=3)
    assert "opened().restore({&#x27;rows&#x27;: 3})" in view.files.children[place].value
    again = eval(view.link(), {"opened": opened})
    assert again.state() == view.state() == {"rows": 3}
    view.files.link.click()
    assert view.files.children[place].value == ""


NAMES = ("space", "padding", "cost", "coordinates", "dispatch", "roofline", "speedup", "tile_reads", "waves")


@pytest.mark.parametrize("name", NAMES)
def test_every_control_of_an_explorer_says_what_it_means(name: str) -> None:
    dense, chip = lessons.workload(), lessons.hardware()
    run, bench = lessons.replayed_run, data_path("results/zen4-bench.csv.gz")
    made = {
        "space": lambda: space_explorer(dense, chip),
        "padding": lambda: padding_explorer(dense, chip),
        "cost": lambda: cost_lab(run()),
        "coordinates": lambda: coordinates_explorer(run()),
        "dispatch": lambda: dispatch_explorer(run()),
        "roofline": lambda: roofline_explorer(dense, chip),
        "speedup": lambda: speedup_explorer(bench),
        "tile_reads": lambda: tile_reads_explorer(Conv2d(N=1, H=Dim(7, 28), W=Dim(7, 28), IC=64, OC=96)),
        "waves": lambda: waves_explorer(dense, Hardware.preset("h200")),
    }
    view = made[name]()
    seen = {name: control for name, control in view.controls.items() if control.layout.display != "none"}
    assert [name for name, control in seen.items() if not control.tooltip] == []
    labelled = view.children[0]
    assert "dietlab-groups" in labelled._dom_classes
    grouped = {id(c) for group in labelled.children for c in group.children[1].children}
    assert grouped >= {id(control) for control in seen.values()}
    assert view.link().startswith(f"dl.{ {'cost': 'cost_lab'}.get(name, f'{name}_explorer') }(")
    state = json.loads(json.dumps(view.state()))
    assert view.restore(state).state() == state

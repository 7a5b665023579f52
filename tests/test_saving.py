"""Figures as files: every ending, what is in the file, and names that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from PIL import Image
from plotly.io import read_json

from dietlab.base.errors import DietlabError
from dietlab.view.static.picture import DPI, WIDTH
from dietlab.view.static.saving import KINDS, SAVED_DPI, save, values_of
from dietlab.view.widgets.live import show

MAGIC = {
    "svg": b"<?xml",
    "png": b"\x89PNG",
    "pdf": b"%PDF",
    "csv": b"trace,",
    "html": b"<!doctype html>",
    "json": b"{",
}


def some_figure() -> go.Figure:
    figure = go.Figure(layout={"title": {"text": "Some title"}})
    figure.add_scatter(x=[1, 2, 3], y=np.array([4.0, 5.0, 6.0]), name="line")
    figure.add_bar(x=["a, b", "c"], y=[7, None], name="bars")
    return figure


@pytest.mark.parametrize("ending", KINDS)
@pytest.mark.parametrize("live", [False, True], ids=["figure", "live"])
def test_every_ending_writes_its_file(ending: str, live: bool, tmp_path: Path) -> None:
    figure = some_figure()
    path = save(show(figure) if live else figure, str(tmp_path / f"x.y.{ending.upper()}"))
    assert path == tmp_path / f"x.y.{ending.upper()}"
    assert path.read_bytes().startswith(MAGIC[ending])
    assert [one.name for one in tmp_path.iterdir()] == [path.name], "nothing else is left"


def test_a_png_is_sharp(tmp_path: Path) -> None:
    with Image.open(save(some_figure(), tmp_path / "x.png")) as image:
        assert image.info["dpi"] == pytest.approx((SAVED_DPI, SAVED_DPI), abs=0.1) and SAVED_DPI >= 200
        assert image.width > 0.8 * WIDTH * SAVED_DPI / DPI
        assert image.convert("RGBA").getpixel((0, 0))[3] == 0, "no background"


def test_json_is_plotlys(tmp_path: Path) -> None:
    again = read_json(save(some_figure(), tmp_path / "x.json"))
    assert again.layout.title.text == "Some title" and list(again.data[0].x) == [1, 2, 3]
    assert again == some_figure()


def test_a_page_needs_no_other_file(tmp_path: Path) -> None:
    text = save(some_figure(), tmp_path / "x.html").read_text(encoding="utf-8")
    assert "Some title" in text and "<script src=" not in text


def test_the_table_of_a_figure_has_the_values_of_its_traces(tmp_path: Path) -> None:
    table = pd.read_csv(save(some_figure(), tmp_path / "x.csv"))
    traces = table[["trace", "name", "type"]].drop_duplicates().to_numpy().tolist()
    assert traces == [[0, "line", "scatter"], [1, "bars", "bar"]]
    assert table["x"].tolist() == ["1", "2", "3", "a, b", "c"]
    assert table["y"].tolist()[:4] == [4, 5, 6, 7] and np.isnan(table["y"].iloc[4])


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_a_heat_map_has_a_row_for_each_cell(edges: bool, placed: bool) -> None:
    z = np.arange(6).reshape(2, 3)
    x = [5, 15, 25, 35] if edges else [10, 20, 30]
    places: dict[str, Any] = {"x": x, "y": [1, 2]} if placed else {}
    frame = values_of(go.Figure(go.Heatmap(z=z, **places)))
    assert frame["z"].tolist() == [0, 1, 2, 3, 4, 5]
    assert frame["x"].tolist() == ([10, 20, 30] if placed else [0, 1, 2]) * 2
    assert frame["y"].tolist() == ([1, 1, 1, 2, 2, 2] if placed else [0, 0, 0, 1, 1, 1])


def test_a_figure_without_traces_has_an_empty_table(tmp_path: Path) -> None:
    assert save(go.Figure(), tmp_path / "x.csv").read_text(encoding="utf-8") == "trace,name,type\n"


@pytest.mark.parametrize("name", ["x.gif", "x", "", ".svg", "x.svg.", "x.svg "])
def test_an_unknown_ending_is_refused_and_nothing_written(name: str, tmp_path: Path) -> None:
    said = r"ends in \.svg, \.png, \.pdf, \.csv, \.html or \.json; got"
    with pytest.raises(DietlabError, match=said) as error:
        save(some_figure(), tmp_path / name if name else "")
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DietlabError, match=r"in a folder that exists; got .*nowhere\. Make it first\."):
        save(some_figure(), tmp_path / "nowhere" / "x.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old", encoding="utf-8")
    save(some_figure(), path)
    new = path.read_text(encoding="utf-8")
    assert new.startswith("trace,")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DietlabError, match="no space left"):
        save(go.Figure(), path)
    assert path.read_text(encoding="utf-8") == new and list(tmp_path.iterdir()) == [path]


def test_a_folder_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.svg").mkdir()
    with pytest.raises(DietlabError, match=r"x.svg must be writable; got .*x.svg"):
        save(some_figure(), tmp_path / "x.svg")


@pytest.mark.parametrize("nothing", [None, 3, "figure", pd.DataFrame({"x": [1]})])
def test_what_is_no_figure_is_refused(nothing: object, tmp_path: Path) -> None:
    with pytest.raises(DietlabError, match="only a figure or an explorer can be saved; got a value of class"):
        save(nothing, tmp_path / "x.svg")
    assert list(tmp_path.iterdir()) == []

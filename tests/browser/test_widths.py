"""Every widget at two widths and in both themes, in JupyterLab and in Jupyter Notebook: no text is cut, and
files come out of the buttons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from browser.boxes import cut_texts, overlaps
from browser.lab import serve
from browser.page import Notebook, Widget
from browser.test_widgets import CELLS, SECONDS, SETUP

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
NAME = "widths.ipynb"
WIDTHS = {1010: "", 1360: "-wide"}
"""Pixels that an output has in windows of 1360 and about 1710, and what a picture's name says of them."""

PANEL = """\
panel = dl.TuningPanel(title=f"{dense} on {zen4.name}")
effort = replace(dl.EFFORTS["quick"], trials=120, decisions=0, timing=dl.Timing())
dl.tune(lessons.space(), run.shapes, dl.ReplayRunner(lessons.recorded().records), effort, observers=[panel])
None"""

SHOWN = {
    "setup": SETUP,
    "panel": PANEL,
    **{name: CELLS[name] for name in ("space", "padding", "cost", "speedup", "dispatch", "map", "figure")},
}
"""Cells of the notebook by the name of their widget."""

PICTURED = tuple(name for name in SHOWN if name not in ("setup", "figure"))
"""Widgets with pictures in docs/widgets."""


@pytest.fixture(scope="module", params=["jupyterlab"])
def notebook(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Notebook]:
    """The widgets below their cells, in each of the two programs."""
    if request.param == "notebook":
        pytest.importorskip("notebook", reason="no Jupyter Notebook: pip install 'notebook>=7.2,<8'")
    with serve(tmp_path_factory.mktemp(request.param), request.param) as running:
        (running.root / "data").symlink_to(ROOT / "data")
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        cells = [new_code_cell(source) for source in SHOWN.values()]
        nbformat.write(new_notebook(cells=cells, metadata=kernel), running.root / NAME)
        opened = Notebook.open(browser, running, NAME)
        opened.complaints.clear()  # Jupyter Notebook has some of its settings; no widget is there yet
        opened.run_all(SECONDS)
        assert opened.problems == []
        opened.await_figures(least=len(SHOWN) - 1)
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def quiet_console(notebook: Notebook) -> Iterator[None]:
    """No test leaves an error on the console."""
    yield
    complaints = list(notebook.complaints)
    notebook.complaints.clear()
    assert complaints == []


def widget(notebook: Notebook, name: str) -> Widget:
    return notebook.output(list(SHOWN).index(name))


@pytest.mark.parametrize("theme", ["Light", "Dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_is_cut(
    notebook: Notebook, request: pytest.FixtureRequest, width: int, theme: str, screenshots: Path
) -> None:
    notebook.theme(theme)
    notebook.widen(width)
    found = {}
    for name in list(SHOWN)[1:]:
        view = widget(notebook, name)
        if name in PICTURED and request.node.callspec.params["notebook"] == "jupyterlab":
            view.take_picture(screenshots / f"{name}{WIDTHS[width]}-{theme.lower()}.png")
        over = [text for figure in view.figures for text in overlaps(figure)]
        found[name] = cut_texts(view.place) + over
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_its_cell(notebook: Notebook, width: int) -> None:
    notebook.widen(width)
    for name in list(SHOWN)[1:]:
        place = widget(notebook, name).place.locator(".jp-OutputArea-output").first
        sides: Any = place.evaluate("(one) => [one.scrollWidth, one.clientWidth]")
        assert sides[0] <= sides[1] + 1, name


@pytest.mark.parametrize(("name", "kind"), [("padding", kind) for kind in ("SVG", "PNG", "PDF", "CSV")])
def test_a_button_downloads_a_file(notebook: Notebook, name: str, kind: str, tmp_path: Path) -> None:
    view = widget(notebook, name)
    with view.page.expect_download() as waited:
        view.press(kind)
    waited.value.save_as(tmp_path / "file")
    assert waited.value.suggested_filename == f"padding-explorer.{kind.lower()}"
    starts = {"SVG": b"<?xml", "PNG": b"\x89PNG", "PDF": b"%PDF", "CSV": b"row_tile,col_tile,"}
    assert (tmp_path / "file").read_bytes().startswith(starts[kind])
    assert (tmp_path / "file").stat().st_size > 1000


def test_the_chosen_figure_of_the_panel_is_downloaded(notebook: Notebook, tmp_path: Path) -> None:
    view = widget(notebook, "panel")
    view.choose_other("save")
    with view.page.expect_download() as waited:
        view.press("CSV")
    waited.value.save_as(tmp_path / "file")
    assert waited.value.suggested_filename == "tuning-outcomes.csv"
    assert (tmp_path / "file").read_text(encoding="utf-8").startswith("status,outcome,count,share,reason")


def test_a_line_reopens_what_is_shown(notebook: Notebook) -> None:
    view = widget(notebook, "padding")
    view.press("Link")
    line = view.place.locator(".dietlab-files code")
    line.wait_for()
    before = line.inner_text()
    assert before.startswith("dl.padding_explorer(workload, hardware).restore({'T':")
    view.press_key("T")
    view.await_change(line.inner_text, before, "the line is of what is shown")


def test_arrows_of_dropdowns_are_seen_in_the_dark(notebook: Notebook) -> None:
    notebook.theme("Dark")
    select = widget(notebook, "padding").place.locator("select").first
    assert "%23eee" in select.evaluate("(one) => getComputedStyle(one).backgroundImage")
    notebook.theme("Light")
    assert "%23444" in select.evaluate("(one) => getComputedStyle(one).backgroundImage")

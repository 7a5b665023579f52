"""Every widget at two widths and in both themes, in JupyterLab and in Jupyter Notebook: no text is cut, and
files come out of the buttons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from conftest import in_turn
from nbformat.v4 import new_code_cell, new_notebook

from browser.boxes import cut_texts, overlaps
from browser.lab import APPS, serve
from browser.page import Notebook, Widget, until
from browser.test_widgets import CELLS, SECONDS, SETUP, Move
from dietlab.view.widgets.kernel_inspector import MAKERS
from dietlab.view.widgets.trials_table import PAGE_ROWS

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

ROOFLINE = """\
layer = "dense-k768-n2304"
table = dl.ResultTable.load(dl.data_path("results/zen4-bench.csv.gz"))
roofline = dl.roofline_explorer(dense, zen4, [table.report(layer, cores) for cores in (1, 2)])
roofline.set(length=128)
roofline"""

WAVES = """\
from dietlab.measure import read_records

bf16 = read_records(dl.data_path("h200/bf16-later/records.jsonl.gz"))
dl.waves_explorer(bf16.workload, bf16.hardware, bf16.records)"""

TILE = """\
conv = dl.Conv2d(N=1, H=dl.Dim(7, 80), W=dl.Dim(7, 80), IC=64, OC=64, kernel=3, padding=1)
tile = dl.tile_reads_explorer(conv)
tile.set(H=14, W=14, line=2, column=12, step=4)
tile"""

CHOICE = """\
choice = dl.Choice()
choice.choose(run.records[0].scheme)
dl.trials_table(run, choice)"""

SHOWN = {
    "setup": SETUP,
    "panel": PANEL,
    **{name: CELLS[name] for name in ("space", "padding", "cost", "speedup", "dispatch", "map", "figure")},
    "roofline": ROOFLINE,
    "waves": WAVES,
    "tile-reads": TILE,
    "trials": CHOICE,
    "coordinates": "dl.coordinates_explorer(run, choice)",
    "inspector": "dl.inspect_kernel(dense, zen4, choice)",
}
"""Cells of the notebook by the name of their widget."""

PICTURED = tuple(name for name in SHOWN if name not in ("setup", "figure"))
"""Widgets with pictures in docs/widgets."""
DRAGGED = (
    Move("padding", "T"),
    Move("roofline", "T"),
    Move("waves", "T"),
    Move("tile-reads", "step"),
    Move("space", "vector registers"),
    Move("cost", "records"),
)
MOVES = (
    *DRAGGED,
    Move("padding", "composition"),
    Move("speedup", "contender"),
    Move("dispatch", "without"),
    Move("coordinates", "shape"),
)
DRAGGED_TO = 0.2
"""The share of a slider's track; none is there at first. In Jupyter Notebook arrow keys are the page's."""
WITHOUT_FIGURE = ("setup", "trials", "inspector")


@pytest.fixture(scope="module", params=list(APPS))
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
        opened.run_all(SECONDS)
        assert opened.problems == []
        opened.await_figures(least=len(SHOWN) - len(WITHOUT_FIGURE))
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


@pytest.mark.parametrize(("width", "theme"), in_turn(WIDTHS, ("Light", "Dark")))
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


def test_a_text_that_is_cut_is_found(notebook: Notebook) -> None:
    view = widget(notebook, "padding")
    labels = view.place.locator(".dietlab-controls .widget-label")
    assert cut_texts(view.place) == []
    labels.evaluate_all("(all) => all.forEach((one) => { one.style.cssText = 'width:1ch;overflow:hidden'; })")
    found = "\n".join(cut_texts(view.place))
    assert "is cut by" in found and '"tile: rows"' in found
    labels.evaluate_all("(all) => all.forEach((one) => { one.style.cssText = ''; })")


@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move.explorer}-{move.label}")
def test_a_control_changes_figure_and_numbers(notebook: Notebook, move: Move) -> None:
    view = widget(notebook, move.explorer)
    figure, numbers = view.shown, view.text
    view.drag(move.label, DRAGGED_TO) if move in DRAGGED else view.choose_other(move.label)
    view.await_change(lambda: view.shown, figure, f"{move.label} changes the figure")
    view.await_change(lambda: view.text, numbers, f"{move.label} changes the numbers")


def test_a_head_of_the_table_sorts_by_click_and_by_key(notebook: Notebook) -> None:
    table, page = widget(notebook, "trials"), notebook.page
    head = table.place.locator("th", has_text="gflops")

    def speeds() -> list[float]:
        heads = table.place.locator("th").all_inner_texts()
        column = next(number for number, text in enumerate(heads) if text.startswith("gflops"))
        cells = table.place.locator(f"tbody tr td:nth-child({column + 1})").all_inner_texts()
        return [float(cell) for cell in cells]

    head.click()
    until(page, lambda: "▲" in head.inner_text(), "the arrow tells that it rises")
    assert speeds() == sorted(speeds()) and len(speeds()) == PAGE_ROWS
    head.focus()
    page.keyboard.press("Enter")
    until(page, lambda: "▼" in head.inner_text(), "Enter turns it round")
    assert speeds() == sorted(speeds(), reverse=True) and speeds()[0] > speeds()[-1]
    assert head.evaluate("(one) => one === document.activeElement"), "the next Enter is for the same head"


def test_the_filter_of_the_table(notebook: Notebook) -> None:
    table, page = widget(notebook, "trials"), notebook.page
    told = table.text
    field, rows = table.place.locator("input[type=text]").first, table.place.locator("tbody tr")
    field.fill("rows >= 8 and T == 128")
    field.press("Enter")
    table.await_change(lambda: table.text, told, "it tells how many fit")

    def fitting() -> list[bool]:
        cells = [row.locator("td").all_inner_texts() for row in rows.all()]
        return [cell[1] == "128" and int(cell[3]) >= 8 for cell in cells]

    until(page, lambda: bool(found := fitting()) and all(found), "only rows that fit are shown")
    shown = rows.count()
    field.fill("rows >=")
    field.press("Enter")
    until(page, lambda: "a filter must be a condition" in table.text, "it tells what is wrong")
    assert rows.count() == shown
    field.fill("")
    field.press("Enter")
    until(page, lambda: table.text == told, "all rows are there again")


def test_a_row_of_the_table_is_shown_by_the_widgets_that_share_its_choice(notebook: Notebook) -> None:
    table, page = widget(notebook, "trials"), notebook.page
    row = table.place.locator("tbody tr[aria-selected=false]").last
    key = row.locator("td").nth(2).inner_text()
    row.click()
    shown = widget(notebook, "coordinates").control("dropdown", "scheme").locator("select")
    until(page, lambda: shown.evaluate("(one) => one.selectedOptions[0].textContent") == key, "a line")
    inspector = widget(notebook, "inspector")
    until(page, lambda: inspector.text.startswith(f"{key}, "), "its program")
    chosen = table.place.locator("tbody tr[aria-selected=true]").all()
    assert {one.locator("td").nth(2).inner_text() for one in chosen} == {key}


def test_no_tab_of_the_inspector_has_a_text_that_is_cut(notebook: Notebook) -> None:
    inspector = widget(notebook, "inspector")
    tabs = inspector.place.locator(".lm-TabBar-tab")
    assert tabs.count() == len(MAKERS)
    for tab, words in zip(tabs.all(), ("No call on", "prim_func", "vfmadd", "of the loop"), strict=True):
        tab.click()
        page = inspector.place.locator(".widget-tab-contents .widget-html", has_text=words)
        until(notebook.page, page.is_visible, f"{words} under {tab.inner_text()}")
        assert cut_texts(inspector.place) == []
    tabs.first.click()


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
    view.drag("T", 0.4)
    view.await_change(line.inner_text, before, "the line is of what is shown")


def test_arrows_of_dropdowns_are_seen_in_the_dark(notebook: Notebook) -> None:
    notebook.theme("Dark")
    select = widget(notebook, "padding").place.locator("select").first
    assert "%23eee" in select.evaluate("(one) => getComputedStyle(one).backgroundImage")
    notebook.theme("Light")
    assert "%23444" in select.evaluate("(one) => getComputedStyle(one).backgroundImage")

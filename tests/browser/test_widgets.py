"""Every widget in JupyterLab: moved by keyboard and mouse, during a run, across a reload, in both
themes, as a picture where no widgets are, and after a restart.

The tests share one open notebook and are in the order in which a person would try these things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from browser.page import Notebook, Widget, until
from dietlab.view.widgets.live import CAPTION

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import Lab

pytestmark = pytest.mark.browser

NAME = "widgets.ipynb"
SECONDS = 120.0
"""What running the notebook does not take, on a busy machine either."""

PICTURED = 200
"""Trials in the picture of the panel, whose cost model was then fitted some ten times."""

# Recorded measurements of a layer of BERT: the pictures in docs/widgets are of them.
SETUP = """\
from dataclasses import replace
from time import sleep
import dietlab as dl
from dietlab.lab import lessons

dense, zen4, run = lessons.workload(), lessons.hardware(), lessons.replayed_run()
"""

# A replay of so many trials, at the pace of measurements, that there is time to press every button.
PANEL = """\
class Paced(dl.ReplayRunner):
    def measure(self, workload, trials):
        for record in super().measure(workload, trials):
            sleep(0.05)
            yield record

runner, store = Paced(lessons.recorded().records), dl.RecordStore()
effort = replace(dl.EFFORTS["quick"], trials=1088, decisions=0, timing=dl.Timing())

def work(observers):
    return dl.tune(lessons.space(), run.shapes, runner, effort, observers=observers, store=store)

dl.TuningPanel(start=work, title=f"{dense} on {zen4.name}")
"""

CELLS = {
    "setup": SETUP,
    "space": "dl.space_explorer(dense, zen4)",
    "padding": "dl.padding_explorer(dense, zen4)",
    "speedup": 'dl.speedup_explorer("data/results/zen4-bench.csv.gz")',
    "cost": "dl.cost_lab(run)",
    "dispatch": "dl.dispatch_explorer(run)",
    "map": """\
table = dl.ResultTable.load(dl.data_path("results/zen3-layers.csv.gz"))
dl.show(dl.plot_map(table.report("dense-every-layer", 1), "speedup", cache="rotating"))""",
    "panel": PANEL,
    "figure": "dl.show(dl.plot_phases(run.seconds))",
}
WIDGETS = [name for name in CELLS if name != "setup"]


class Move(NamedTuple):
    """A control of an explorer, and whether it changes the numbers too."""

    explorer: str
    label: str
    numbers: bool = True


SLIDERS = (
    Move("space", "vector registers"),
    Move("padding", "T"),
    Move("dispatch", "path of T"),
    Move("cost", "records"),
)
DROPDOWNS = (
    Move("space", "plans", numbers=False),
    Move("padding", "composition"),
    Move("speedup", "contender"),
    Move("dispatch", "without"),
    Move("cost", "show", numbers=False),
)


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab: Lab) -> Iterator[Notebook]:
    """The widgets below their cells, ready to be tried."""
    cells = [new_code_cell(source) for source in CELLS.values()]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), lab.root / NAME)
    opened = Notebook.open(browser, lab, NAME)
    opened.run_all(SECONDS)
    assert opened.problems == []
    opened.await_figures(least=len(WIDGETS))
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
    return notebook.output(list(CELLS).index(name))


def trials(panel: Widget) -> int:
    found = re.search(r"(\d+) trials", panel.text)
    assert found, f"the panel counts trials: {panel.text}"
    return int(found[1])


def picture(notebook: Notebook, name: str, screenshots: Path) -> None:
    """Takes a widget's picture in both themes; all of its text can be read."""
    for theme in ("Light", "Dark"):
        notebook.theme(theme)
        view = widget(notebook, name)
        assert view.contrast >= 4.5, f"{name} in the {theme.lower()} theme"
        view.take_picture(screenshots / f"{name}-{theme.lower()}.png")
    notebook.theme("Light")


# --- explorers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "space" else pytest.mark.thorough)
        for name in WIDGETS
        if name != "panel"
    ],
)
def test_widgets_read_well_in_both_themes(notebook: Notebook, name: str, screenshots: Path) -> None:
    picture(notebook, name, screenshots)


@pytest.mark.parametrize("move", SLIDERS, ids=lambda move: move.explorer)
@pytest.mark.parametrize("how", ["keyboard", "mouse"])
def test_a_slider_changes_figure_and_numbers(notebook: Notebook, move: Move, how: str) -> None:
    view = widget(notebook, move.explorer)
    figure, numbers = view.shown, view.text
    if how == "keyboard":
        view.press_key(move.label)
    else:
        view.drag(move.label, 0.6)
    view.await_change(lambda: view.shown, figure, f"{move.label} changes the figure")
    view.await_change(lambda: view.text, numbers, f"{move.label} changes the numbers")


@pytest.mark.parametrize("move", DROPDOWNS, ids=lambda move: move.explorer)
def test_a_dropdown_changes_figure_and_numbers(notebook: Notebook, move: Move) -> None:
    view = widget(notebook, move.explorer)
    figure, numbers = view.shown, view.text
    view.choose_other(move.label)
    view.await_change(lambda: view.shown, figure, f"{move.label} changes the figure")
    if move.numbers:
        view.await_change(lambda: view.text, numbers, f"{move.label} changes the numbers")


def test_a_click_on_the_map_chooses_shape_and_height(notebook: Notebook) -> None:
    view = widget(notebook, "padding")
    readouts = [view.control("slider", label).locator(".widget-readout") for label in ("T", "tile: rows")]
    view.click_point(0, "2", 77, 5)
    until(view.page, lambda: [readout.inner_text() for readout in readouts] == ["77", "5"], "both are chosen")


# --- the tuning panel ---------------------------------------------------------------------------------


def test_a_run_starts_pauses_and_resumes(notebook: Notebook) -> None:
    panel, page = widget(notebook, "panel"), notebook.page
    empty = panel.shown
    panel.press("Start")
    until(page, lambda: trials(panel) > 0, "trials are counted")
    panel.await_change(lambda: panel.shown, empty, "figures grow")

    panel.press("Pause")
    until(page, lambda: "Paused" in panel.text, "it says that it pauses")
    page.wait_for_timeout(1500)  # the measurement under way is told of
    held, count = panel.shown, trials(panel)
    page.wait_for_timeout(1500)
    assert (panel.shown, trials(panel)) == (held, count), "figures stay"

    panel.press("Resume")
    until(page, lambda: trials(panel) > count, "trials are counted again")
    panel.await_change(lambda: panel.shown, held, "figures grow again")


def test_the_notebook_answers_during_the_run(notebook: Notebook) -> None:
    panel, padding = widget(notebook, "panel"), widget(notebook, "padding")
    assert "Running" in panel.text
    figure = padding.shown
    padding.press_key("T")
    padding.await_change(lambda: padding.shown, figure, "another widget answers")


def test_the_run_stops(notebook: Notebook, request: pytest.FixtureRequest) -> None:
    panel, page = widget(notebook, "panel"), notebook.page
    if request.config.getoption("--screenshots", default=None):
        until(page, lambda: trials(panel) >= PICTURED, "the picture shows a run that got somewhere")
    panel.press("Stop")
    until(page, lambda: "Stopped" in panel.text, "it says that it stopped")
    page.wait_for_timeout(500)
    ended, count = panel.shown, trials(panel)
    page.wait_for_timeout(1500)
    assert (panel.shown, trials(panel)) == (ended, count), "figures stay"


def test_a_page_without_widgets_shows_pictures_and_a_sentence(
    notebook: Notebook, lab: Lab, browser: Browser, tmp_path: Path
) -> None:
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    notebook.save()
    saved = nbformat.read(lab.root / NAME, as_version=4)
    assert "widgets" not in saved.metadata, "the library of figures is not in the notebook"
    outputs = [output for cell in saved.cells for output in cell.outputs]
    assert len(outputs) == len(WIDGETS)
    assert all(output.data["text/plain"] == CAPTION for output in outputs)
    page = browser.new_page()
    page.route(re.compile("^https?:"), lambda route: route.abort())
    html, _ = HTMLExporter().from_notebook_node(saved)
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri(), wait_until="domcontentloaded")
    pictures = page.locator("img[src^='data:image/png']")
    assert pictures.count() == len(WIDGETS)
    widths = pictures.evaluate_all("(all) => all.map((one) => one.complete ? one.naturalWidth : 0)")
    assert min(widths) > 400
    no_pictures = Config({"NbConvertBase": {"display_data_priority": ["text/plain"]}})
    text, _ = HTMLExporter(config=no_pictures).from_notebook_node(saved)
    page.set_content(text, wait_until="domcontentloaded")
    assert page.get_by_text(CAPTION).count() == len(WIDGETS)
    page.close()


def test_jupyterlab_without_its_widget_manager_shows_pictures(
    notebook: Notebook, lab: Lab, browser: Browser
) -> None:
    notebook.save()
    (lab.root / "saved.ipynb").write_bytes((lab.root / NAME).read_bytes())
    with (
        lab.without("@jupyter-widgets/jupyterlab-manager", "anywidget"),
        closing(Notebook.open(browser, lab, "saved.ipynb")) as saved,
    ):
        pictures = saved.page.locator(".jp-OutputArea-output.jp-RenderedImage img")
        until(saved.page, lambda: pictures.count() == len(WIDGETS), "a picture for each widget")
        assert saved.page.locator(".dietlab-figure").count() == 0
        assert saved.complaints == []


def test_a_reload_during_a_run_leaves_every_widget_alive(notebook: Notebook) -> None:
    panel = widget(notebook, "panel")
    before = trials(panel)
    panel.press("Start")
    until(notebook.page, lambda: trials(panel) > before, "it goes on from where it stopped")
    notebook.save()
    notebook.reload()
    notebook.await_figures(least=len(WIDGETS))
    count, shown = trials(panel), panel.shown
    until(notebook.page, lambda: trials(panel) > count, "the run is followed after a reload")
    panel.await_change(lambda: panel.shown, shown, "figures grow after a reload")
    for move in (*SLIDERS, DROPDOWNS[2]):
        view = widget(notebook, move.explorer)
        figure = view.shown
        view.press_key(move.label) if move in SLIDERS else view.choose_other(move.label)
        view.await_change(lambda view=view: view.shown, figure, f"{move.explorer} answers after a reload")
    panel.press("Stop")
    until(notebook.page, lambda: "Stopped" in panel.text, "it can be stopped after a reload")


def test_the_panel_reads_well_in_both_themes(notebook: Notebook, screenshots: Path) -> None:
    panel = widget(notebook, "panel")
    panel.press("Start")
    until(notebook.page, lambda: trials(panel) > 150, "there is something to see")
    panel.press("Stop")
    until(notebook.page, lambda: "Stopped" in panel.text, "it says that it stopped")
    picture(notebook, "panel", screenshots)


# --- starting over ------------------------------------------------------------------------------------


def test_restart_and_run_all(notebook: Notebook) -> None:
    before = notebook.await_figures()
    notebook.restart_and_run_all(SECONDS)
    assert notebook.problems == []
    assert notebook.await_figures(least=before) == before
    for move in SLIDERS[:2]:
        view = widget(notebook, move.explorer)
        figure = view.shown
        view.press_key(move.label)
        view.await_change(lambda view=view: view.shown, figure, f"{move.explorer} answers after a restart")

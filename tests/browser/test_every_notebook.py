"""Every notebook opens, runs from top to bottom and draws its figures, without a word on the console."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import course
import nbformat
import pytest
from notebook_runs import NOTEBOOKS as FOLDER

from browser.page import Notebook, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import Lab

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted(course.order())
SECONDS = 180.0
"""What no notebook takes, on a busy machine either."""

FIRST = "00_quickstart"
"""The notebook that `make test` opens. The others run there without a browser (tests/notebook_runs.py), and
the widgets that they show are those of test_widgets.py."""


@pytest.mark.parametrize(
    "stem", [FIRST, *(pytest.param(stem, marks=pytest.mark.thorough) for stem in NOTEBOOKS if stem != FIRST)]
)
def test_notebook_runs_and_draws(stem: str, browser: Browser, lab: Lab) -> None:
    code = [cell for cell in nbformat.read(FOLDER / f"{stem}.ipynb", 4).cells if cell.cell_type == "code"]
    with closing(Notebook.open(browser, lab, f"notebooks/{stem}.ipynb")) as notebook:
        notebook.run_all(SECONDS)
        assert notebook.problems == []
        # A cell that measures on request only has no saved output.
        notebook.await_figures(least=sum("dl.show(" in cell.source and bool(cell.outputs) for cell in code))
        assert notebook.complaints == []


@pytest.mark.parametrize(("word", "opened"), [("all notebooks", "index"), ("words", "words")])
def test_links_of_a_notebook_open_what_lies_beside_it(
    word: str, opened: str, browser: Browser, lab: Lab
) -> None:
    with closing(Notebook.open(browser, lab, f"notebooks/{FIRST}.ipynb")) as notebook:
        notebook.page.get_by_role("link", name=word, exact=True).first.click()
        path = "() => window.jupyterapp.shell.currentWidget?.context?.path"
        there = f"notebooks/{opened}.ipynb"
        until(notebook.page, lambda: notebook.page.evaluate(path) == there, f"{there} is opened")

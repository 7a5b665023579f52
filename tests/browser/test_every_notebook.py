"""Every notebook opens, runs from top to bottom and draws its figures, without a word on the console."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import nbformat
import pytest

from browser.conftest import ROOT
from browser.page import Notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import Lab

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 180.0
"""What no notebook takes, on a busy machine either."""


@pytest.mark.parametrize("name", NOTEBOOKS, ids=lambda name: name.removesuffix(".ipynb"))
def test_notebook_runs_and_draws(name: str, browser: Browser, lab: Lab) -> None:
    cells = nbformat.read(ROOT / "notebooks" / name, as_version=4).cells
    shows = sum("dl.show(" in cell.source for cell in cells if cell.cell_type == "code")
    with closing(Notebook.open(browser, lab, f"notebooks/{name}")) as notebook:
        notebook.run_all(SECONDS)
        assert notebook.problems == []
        notebook.await_figures(least=shows)
        assert notebook.complaints == []

"""Every notebook opens, runs from top to bottom and draws its figures, without a word on the console."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import nbformat
import pytest
from notebook_runs import NOTEBOOKS as FOLDER
from notebook_runs import keep, with_probe

from browser.page import Notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import Lab

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SECONDS = 180.0
"""What no notebook takes, on a busy machine either."""


@pytest.mark.parametrize("stem", NOTEBOOKS)
def test_notebook_runs_and_draws(stem: str, browser: Browser, lab: Lab) -> None:
    name, written = f"notebooks/{stem}.ipynb", with_probe(stem)
    shows = sum("dl.show(" in cell.source for cell in written.cells if cell.cell_type == "code")
    nbformat.write(written, lab.root / name)
    with closing(Notebook.open(browser, lab, name)) as notebook:
        notebook.run_all(SECONDS)
        assert notebook.problems == []
        notebook.await_figures(least=shows)
        assert notebook.complaints == []
        notebook.save()
    keep(stem, nbformat.read(lab.root / name, as_version=4))

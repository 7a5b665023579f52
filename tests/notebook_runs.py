"""Notebooks of the repository, each run once from top to bottom for all tests that look at it.

Where there is a browser, its tests run them in JupyterLab and :func:`keep` what it saved; else, and when a
test runs alone, :func:`ran` starts a kernel. Both run a last cell that prints what the tests of the
notebook's values compare, its probe.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from notebook_probes import PROBES

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
SECONDS = 300
"""What no cell takes, on a busy machine either."""

PRINTED = """
import json
print(json.dumps({{{probe}, "measured": globals().get("MEASURE", False)}}, default=float))
"""

_RAN: dict[str, Any] = {}
"""Notebooks by stem, after they ran with their probes in this process or its browser."""


def execute(notebook: Any) -> None:
    """Runs a notebook where they lie."""
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place).execute()


def with_probe(stem: str) -> Any:
    """Returns a notebook with its probe, if it has one, as the last cell; outputs are those committed."""
    notebook = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4)
    if stem in PROBES:
        notebook.cells.append(new_code_cell(PRINTED.format(probe=PROBES[stem].strip().rstrip(","))))
    return notebook


def keep(stem: str, notebook: Any) -> None:
    """Takes a notebook that ran elsewhere, with its probe, for all who ask for it."""
    _RAN[stem] = notebook


def ran(stem: str) -> Any:
    """Returns a notebook after it ran with its probe."""
    if stem not in _RAN:
        notebook = with_probe(stem)
        execute(notebook)
        keep(stem, notebook)
    return _RAN[stem]


def probed(stem: str) -> tuple[dict[str, Any], str]:
    """Returns what the probe of a notebook found, as JSON has it, and all that the notebook printed."""
    *cells, last = ran(stem).cells
    found: dict[str, Any] = json.loads(last.outputs[0]["text"])
    assert not found["measured"], "a notebook is committed with MEASURE = False"
    said = (str(output.get("text", "")) for cell in cells for output in cell.get("outputs", []))
    return found, "".join(said)

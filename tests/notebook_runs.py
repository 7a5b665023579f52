"""Notebooks of the repository, run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
SECONDS = 300
"""What no cell takes, on a busy machine either."""

PRINTED = "\nimport json\nprint(json.dumps({**found, 'measured': MEASURE}, default=float))"


def execute(notebook: Any) -> None:
    """Runs a notebook where they lie."""
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place).execute()


def run_notebook(stem: str, more: str) -> Any:
    """A notebook after it ran with one more cell at its end."""
    notebook = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4)
    notebook.cells.append(new_code_cell(more))
    execute(notebook)
    return notebook


def probed(stem: str, probe: str) -> tuple[dict[str, Any], str]:
    """What ``found`` is once a notebook ran and then ``probe``, as JSON has it, and all that it printed."""
    *cells, last = run_notebook(stem, probe + PRINTED).cells
    found: dict[str, Any] = json.loads(last.outputs[0]["text"])
    assert not found["measured"], "a notebook is committed with MEASURE = False"
    said = (str(output.get("text", "")) for cell in cells for output in cell.get("outputs", []))
    return found, "".join(said)

"""Notebooks of the repository, each run once from top to bottom for all tests that look at it.

A last cell, the notebook's probe, prints what the tests of its values compare.
"""

from __future__ import annotations

import json
from functools import cache
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


def execute(notebook: Any) -> None:
    """Runs a notebook where they lie."""
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place).execute()


@cache
def ran(stem: str) -> Any:
    """Returns a notebook after it ran with its probe, if it has one, as the last cell."""
    notebook = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4)
    if stem in PROBES:
        notebook.cells.append(new_code_cell(PRINTED.format(probe=PROBES[stem].strip().rstrip(","))))
    execute(notebook)
    return notebook


def probed(stem: str) -> tuple[dict[str, Any], str]:
    """Returns what the probe of a notebook found, as JSON has it, and all that the notebook printed."""
    *cells, last = ran(stem).cells
    found: dict[str, Any] = json.loads(last.outputs[0]["text"])
    assert not found["measured"], "a notebook is committed with MEASURE = False"
    said = (str(output.get("text", "")) for cell in cells for output in cell.get("outputs", []))
    return found, "".join(said)

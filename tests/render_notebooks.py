"""Runs notebooks and keeps what a page without JavaScript can show: ``make notebooks``.

    python tests/render_notebooks.py [NAME ...]

Outputs are text, tables and pictures. What only a running kernel can draw is dropped; the pictures that
live figures leave behind stay.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import nbformat
from notebook_runs import NOTEBOOKS, execute

KEPT = ("image/png", "text/html", "text/plain")


def fingerprint(notebook: Any) -> str:
    """Of the code that the outputs belong to."""
    code = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def render(path: Path) -> float:
    """Runs one notebook in its folder and replaces its outputs; returns the seconds that took."""
    notebook = nbformat.read(path, as_version=4)
    started = perf_counter()
    execute(notebook)
    seconds = perf_counter() - started
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"outputs_of": fingerprint(notebook), "seconds": round(seconds)}
    notebook.metadata = {"kernelspec": kernel, "dietlab": about}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _kept(output)) is not None]
    nbformat.write(notebook, path)
    return seconds


def _kept(output: Any) -> Any:
    """An output without what needs a kernel; None if nothing is left, or if it only tells of progress."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    data = {name: value for name, value in output.get("data", {}).items() if name in KEPT}
    if "image/png" in data:  # the words beside a picture are for those who cannot see it
        data.pop("text/html", None)
    if not data:
        return None
    output.data, output.metadata = data, {}
    return output


def main(names: list[str]) -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        has_code = '"cell_type": "code"' in path.read_text(encoding="utf-8")  # else docs/course.py writes it
        if has_code and (not names or path.stem in names):
            print(f"{path.stem}: {render(path):.1f} s, {path.stat().st_size / 1024:.0f} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

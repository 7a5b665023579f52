"""Notebooks of the repository, each run once from top to bottom for all tests that look at it.

A last cell, the notebook's probe, prints what the tests of its values compare.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from notebook_probes import PROBES

WARM = str(Path(__file__).with_name("warm_kernels.py"))
NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
SECONDS = 300
"""What no cell takes, on a busy machine either."""

PRINTED = """
import json
print(json.dumps({{{probe}, "measured": globals().get("MEASURE", False)}}, default=float))
"""


def hide_torch(folder: Path) -> None:
    """Writes the IPython folder of kernels without PyTorch: `make lab` installs none, and TVM would import
    it, for seconds."""
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "without_torch.py").write_text("import sys\n\nsys.modules['torch'] = None\n", encoding="utf-8")


def execute(notebook: Any) -> None:
    """Runs a notebook where they lie."""
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    with TemporaryDirectory() as folder:
        hide_torch(Path(folder))
        manager = AsyncKernelManager(kernel_name="python3")
        manager.kernel_spec.argv = [sys.executable, WARM, warm_kernels(), "-f", "{connection_file}"]
        client = NotebookClient(notebook, km=manager, timeout=SECONDS, resources=place)
        client.owns_km = True  # and ends it
        client.execute(env={**os.environ, "IPYTHONDIR": folder})


@cache
def warm_kernels() -> str:
    """Starts what kernels are forked off, as long as this process lives; returns its address."""
    address = str(Path(mkdtemp(prefix="kernels-")) / "socket")
    command = [sys.executable, WARM, address]
    # It ends with its standard input, and that with this process.
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(server.kill)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return address


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

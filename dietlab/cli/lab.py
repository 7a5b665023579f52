"""``dietlab lab``: JupyterLab on the notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from dietlab.base.shipped import copy_notebooks, shipped_folder
from dietlab.view.lab import missing_lab

FOLDER = "dietlab-notebooks"
"""The folder that notebooks are copied to by default."""


@click.command()
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--port", default=8888, show_default=True, help="JupyterLab's port.")
def lab(folder: Path | None, port: int) -> None:
    """Copy the notebooks to FOLDER and open JupyterLab on them.

    FOLDER is ./dietlab-notebooks by default. A notebook that is there already stays as it is. In a clone of
    the repository JupyterLab opens on its own notebooks unless a FOLDER is named.
    """
    if find_spec("jupyterlab") is None:
        raise missing_lab("notebooks", "no package jupyterlab")
    opened = folder or _cloned() or Path(FOLDER)
    if opened != _cloned():
        copied = [path for path in copy_notebooks(opened) if path.suffix == ".ipynb"]
        click.echo(f"{len(copied)} notebooks copied to {opened}; what was there stays")
    command = [sys.executable, "-m", "jupyterlab", f"--port={port}", str(opened)]
    if os.geteuid() == 0:  # as in a container; JupyterLab refuses root otherwise
        command.append("--allow-root")
    raise SystemExit(subprocess.call(command))


def _cloned() -> Path | None:
    """Returns the folder of notebooks if the working folder is a clone of the repository."""
    here = Path.cwd().resolve() / "notebooks"
    return here if here == shipped_folder("notebooks") else None

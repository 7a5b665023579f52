"""JupyterLab or Jupyter Notebook on the loopback address, in a home folder of its own that is thrown away."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from notebook_runs import hide_torch

SECONDS_TO_START = 90.0
APPS = {
    "jupyterlab": ("LabApp", "lab/workspaces/{workspace}/tree"),
    "notebook": ("JupyterNotebookApp", "notebooks"),
}
"""The name of a server's settings and where it shows a notebook, by Python module."""

SETTINGS: dict[str, dict[str, Any]] = {
    # No dialog may cover the page, and no copy of a notebook changes behind a test's back.
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    # Outputs outside the window are drawn too.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    # Jupyter Notebook's cells are as wide as its window, not at most 1200 pixels.
    "@jupyter-notebook/notebook-extension/full-width-notebook": {"fullWidthNotebook": True},
}
"""Settings of both that differ from their defaults."""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab, or a running Jupyter Notebook.

    Attributes:
        url: with the port, without a path.
        root: the folder that it shows.
        config: the folder of its configuration.
        module: which of :data:`APPS` it is.
    """

    url: str
    token: str
    root: Path
    config: Path
    module: str = "jupyterlab"

    def address(self, name: str) -> str:
        """Where a notebook is shown, in a workspace that no other page has."""
        _, place = APPS[self.module]
        return f"{self.url}/{place.format(workspace=uuid4().hex)}/{name}?token={self.token}"

    @contextmanager
    def without(self, *extensions: str) -> Iterator[None]:
        """Pages that are opened meanwhile lack these extensions."""
        path = self.config / "labconfig" / "page_config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"disabledExtensions": dict.fromkeys(extensions, True)}), encoding="utf-8")
        try:
            yield
        finally:
            path.unlink()


@contextmanager
def serve(folder: Path, module: str = "jupyterlab") -> Iterator[Lab]:
    """Starts one of :data:`APPS` on ``folder / "root"`` and ends it, with its kernels, afterwards."""
    root, port, token = folder / "root", _free_port(), secrets.token_hex()
    root.mkdir()
    for name, values in SETTINGS.items():
        path = folder / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    hide_torch(folder / "ipython")
    command = [
        sys.executable,
        "-m",
        module,
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={root}",
        f"--{APPS[module][0]}.expose_app_in_browser=True",
    ]
    log = folder / f"{module}.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=root,
            env=_environment(folder, token),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait(server, port, log)
        yield Lab(f"http://127.0.0.1:{port}", token, root, folder / "config", module)
    finally:
        _end(server)


def _environment(folder: Path, token: str) -> dict[str, str]:
    """This process's, with every folder that Jupyter writes to in ``folder``."""
    places = {
        "HOME": "home",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "share",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "MPLCONFIGDIR": "matplotlib",
    }
    for name in places.values():
        (folder / name).mkdir(exist_ok=True)
    return {**os.environ, "JUPYTER_TOKEN": token, **{k: str(folder / name) for k, name in places.items()}}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    started = monotonic()
    while server.poll() is None and monotonic() - started < SECONDS_TO_START:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            sleep(0.1)
    raise RuntimeError(f"Jupyter did not start:\n{log.read_text(encoding='utf-8')[-3000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """JupyterLab ends its kernels when it is asked to end."""
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()

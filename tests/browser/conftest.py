"""One JupyterLab and one Chromium for all tests of this folder, or the reason why there are none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser.lab import Lab, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIR", help="Where pictures of the widgets go.")


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    """JupyterLab on copies of the notebooks, with the data that they read beside them."""
    with serve(tmp_path_factory.mktemp("lab")) as running:
        shutil.copytree(ROOT / "notebooks", running.root / "notebooks")
        (running.root / "data").symlink_to(ROOT / "data")
        yield running


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium, with a profile of its own."""
    executable = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip("no Chromium: on Debian, apt-get install chromium")
    playwright: Any = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install playwright"
    )
    home = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=list(FLAGS), env=home)
        yield running
        running.close()


@pytest.fixture(scope="package")
def screenshots(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``--screenshots``, or a temporary one."""
    chosen = request.config.getoption("--screenshots", default=None)
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder

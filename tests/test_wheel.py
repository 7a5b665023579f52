"""The built package works away from a clone: with its data and notebooks, with and without the extra lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from shutil import copy, unpack_archive

import pytest
from conftest import ROOT
from packaging.requirements import Requirement

LARGEST_BYTES = 8 << 20
"""What a wheel may take; most of it are tables of results and the notebooks' pictures."""
SECONDS = 240
"""How long a command may take on a busy machine."""
EXTRA_LAB = ("anywidget", "ipywidgets", "jinja2", "jupyterlab", "matplotlib", "PIL", "plotly")
"""What the packages of the extra are imported as."""

IMPORT_ALL = """
import importlib, pkgutil, dietlab
names = [module.name for module in pkgutil.walk_packages(dietlab.__path__, "dietlab.")]
for name in names:
    try:
        importlib.import_module(name) if not name.endswith("__main__") else None
    except ModuleNotFoundError as error:
        if error.name != "triton":  # a CUDA build of PyTorch brings it; nothing else may be missing
            raise
print(len(names), dietlab.__file__)
"""
FIND_ALL = """
import json, sys
from dietlab.base import shipped
from dietlab.lab import lessons
made = [path.name for path in shipped.copy_notebooks("mine")]
print(json.dumps([len(lessons.recorded().records), made, str(shipped.data_path("paper"))]))
"""


@dataclass(frozen=True)
class Built:
    """A source archive, and the wheel that was built from what is in it."""

    archive: Path
    wheel: Path

    def names(self) -> list[str]:
        return zipfile.ZipFile(self.wheel).namelist()

    def metadata(self) -> Message:
        (name,) = [name for name in self.names() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(zipfile.ZipFile(self.wheel).read(name).decode())


def tracked(folder: str = "") -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder or "."], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def build(kind: str, source: Path, out: Path) -> Path:
    """``kind`` is ``wheel`` or ``sdist``; nothing is downloaded."""
    out.mkdir()
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(out)], cwd=source, check=True, capture_output=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    home = tmp_path_factory.mktemp("built")
    for name in tracked():
        (home / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, home / "clone" / name)
    archive = build("sdist", home / "clone", home / "sdist")
    unpack_archive(archive, home / "unpacked")
    (source,) = (home / "unpacked").iterdir()
    return Built(archive, build("wheel", source, home / "wheel"))


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and a folder to work in, both away from the clone."""

    python: Path
    home: Path

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        outer = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.home,
            env={**outer, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def dietlab(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.python.parent / "dietlab"), *arguments, **variables)


def make_environment(home: Path, *, with_pip: bool) -> Path:
    """Returns the Python of a new environment."""
    option = [] if with_pip else ["--without-pip"]
    subprocess.run([sys.executable, "-m", "venv", *option, str(home / "venv")], check=True)
    return home / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a new environment that sees this one's packages, but not its dietlab."""
    home = tmp_path_factory.mktemp("installed")
    python = make_environment(home, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    install = ("install", "--quiet", "--no-index", "--no-deps", str(built.wheel))
    subprocess.run([*pip, *install], check=True)
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    # A line of a .pth file adds a folder alone, and not what .pth files in it add: an editable dietlab.
    outer = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "outer.pth").write_text("\n".join(outer) + "\n", encoding="utf-8")
    (home / "work").mkdir()
    return Installed(python, home / "work")


# --- what is in it --------------------------------------------------------------------------------


def test_wheel_has_the_data_and_the_notebooks_of_the_clone(built: Built) -> None:
    wheel = zipfile.ZipFile(built.wheel)
    inside = {name for name in built.names() if name.startswith("dietlab/files/")}
    wanted = [*tracked("notebooks"), *(name for name in tracked("data") if not name.endswith(".py"))]
    assert len(wanted) > 20 and "notebooks/mini_dietcode.py" in wanted
    assert inside == {f"dietlab/files/{name}" for name in wanted}
    for name in wanted:
        assert wheel.read(f"dietlab/files/{name}") == (ROOT / name).read_bytes(), name
    assert {name.partition("/")[0].partition("-")[0] for name in built.names()} == {"dietlab"}
    assert built.wheel.stat().st_size < LARGEST_BYTES


def test_source_archive_has_all_that_is_tracked(built: Built, tmp_path: Path) -> None:
    unpack_archive(built.archive, tmp_path)
    (root,) = tmp_path.iterdir()
    inside = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert set(tracked()) - inside == {".gitignore"}


def test_metadata_say_what_is_needed_and_for_whom(built: Built) -> None:
    metadata = built.metadata()
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    always = {requirement.name for requirement in required if requirement.marker is None}
    assert {"apache-tvm", "numpy", "click"} <= always
    assert not always & {"jupyterlab", "plotly", "matplotlib", "ipywidgets", "torch"}
    assert {"lab", "zendnn", "cuda"} <= set(metadata.get_all("Provides-Extra") or [])
    classifiers = metadata.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)} <= set(classifiers)
    assert metadata["Author"] == "The dietlab authors"


# --- away from a clone ----------------------------------------------------------------------------


def test_installed_commands_work_away_from_a_clone(installed: Installed) -> None:
    assert "quickstart" in installed.dietlab("--help").stdout
    assert "dietlab, version" in installed.run("-m", "dietlab", "--version").stdout
    space = json.loads(installed.dietlab("space", "--hardware", "zen4-1core", "--json").stdout)
    assert len(space["schemes"]) > 1000
    replayed = installed.dietlab("replay", "quickstart", "--effort", "smoke", "--json")
    assert json.loads(replayed.stdout)["space"] == 1088, replayed.stderr


def test_installed_lessons_and_notebooks_are_found(installed: Installed) -> None:
    found = installed.run("-c", FIND_ALL)
    assert found.returncode == 0, found.stderr
    records, made, paper = json.loads(found.stdout)
    assert records == 1088 * 16 and str(ROOT) not in paper
    assert made == sorted(Path(name).name for name in tracked("notebooks"))
    assert sorted(path.name for path in (installed.home / "mine").iterdir()) == made


@pytest.mark.thorough
def test_every_module_is_imported_from_the_wheel(installed: Installed) -> None:
    found = installed.run("-c", IMPORT_ALL)
    assert found.returncode == 0, found.stderr
    count, place = found.stdout.split(maxsplit=1)
    assert int(count) > 200 and str(installed.home.parent) in place


# --- without the extra lab ------------------------------------------------------------------------

VIEWS = """
import dietlab as dl
from dietlab.base.errors import DietlabError
from dietlab.compare.results.report import Report
report = Report({}, {}, {}, {}, {}, ())
tried = {
    "figure": lambda: dl.plot_speedup(report), "page": lambda: dl.write_html(report, "page.html"),
    "live": lambda: dl.show(None), "panel": lambda: dl.TuningPanel,
    "explorer": lambda: dl.space_explorer(None, None),
}
for name, view in tried.items():
    try:
        view()
    except DietlabError as error:
        assert "pip install 'dietlab[lab]'" in str(error), (name, error)
    else:
        raise SystemExit(f"{name} needs no package of the extra")
print(dl.render_text(report))
"""


def assert_views_say_what_to_install(installed: Installed, **variables: str) -> None:
    views = installed.run("-c", VIEWS, **variables)
    assert views.returncode == 0, views.stderr
    assert "an unknown processor" in views.stdout


def test_views_without_the_extra_say_what_to_install(installed: Installed, tmp_path: Path) -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in EXTRA_LAB)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{hidden}", encoding="utf-8")
    assert_views_say_what_to_install(installed, PYTHONPATH=str(tmp_path))
    replayed = installed.dietlab("replay", "quickstart", "--effort", "smoke", PYTHONPATH=str(tmp_path))
    assert replayed.returncode == 0 and "of 1088 measured" in replayed.stdout


LOAD = """
import numpy as np
import dietlab as dl
op = dl.load("x/library")
x, w = np.ones((5, 32), np.float32), np.ones((64, 32), np.float32)
print(float(op.pack(w)(x).max()))
"""


@pytest.mark.thorough
def test_base_packages_are_enough_to_tune_build_load_and_evaluate(built: Built, tmp_path: Path) -> None:
    """A new environment with the wheel and what it requires, from the package index, without any extra."""
    python = make_environment(tmp_path, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, str(built.wheel)], check=True)
    (tmp_path / "work").mkdir()
    alone = Installed(python, tmp_path / "work")
    layer = ("dense", "--dim", "T=1:16", "--dim", "N=64", "--dim", "K=32", "--threads", "1")
    for command in (
        ("tune", *layer, "--shapes", "1,8,16", "--effort", "smoke", "--out", "x"),
        ("build", "x"),
        ("evaluate", "x", "--shapes", "1,5,16", "--against", "openblas,oracle", "--effort", "smoke"),
        ("bench", "--suite", "smoke", "--effort", "smoke", "--out", "b"),
        ("replay", "quickstart", "--effort", "smoke"),
    ):
        done = alone.dietlab(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if command[0] in ("evaluate", "bench"):
            assert "openblas" in done.stdout and "pip install 'dietlab[lab]'" in done.stdout
    assert not list(alone.home.rglob("*.html"))
    loaded = alone.run("-c", LOAD)
    assert loaded.stdout.strip() == "32.0", loaded.stderr
    assert_views_say_what_to_install(alone)

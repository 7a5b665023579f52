"""The first use of dietlab in PyTorch, and models that were saved: other processes, folders and machines."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from conftest import in_turn
from layers_of_torch import same, shared_study, synthetic_study

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dietlab.torch import extension as doors  # noqa: E402
from dietlab.torch import find_libraries, replace_linears  # noqa: E402
from dietlab.torch import operators as checking  # noqa: E402
from dietlab.torch.operators import SOURCE  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

COMPILER = """#!{python}
import json, sys
from pathlib import Path
into = Path(sys.argv[sys.argv.index("-o") + 1])
into.write_text(json.dumps(sys.argv[1:]))
"""
"""Stands for a compiler: writes what it is called with."""


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder, with a blank in its name, in which nothing was compiled; its compiler is a script."""
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable))
    compiler.chmod(0o755)
    home = tmp_path / "my project" / "extensions"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(home))
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(doors, "COMPILED", tmp_path / "package with a blank" / "compiled")
    return home


def test_a_path_with_a_blank_reaches_the_compiler_whole(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors.cpp_extension, "include_paths", lambda: ["/an environment/include"])
    made = doors.extension(SOURCE)
    arguments = json.loads(made.read_text())
    assert "-isystem/an environment/include" in arguments
    assert made.is_relative_to(empty_home) and Path(arguments[-1]).parent == made.parent
    assert doors.extension(SOURCE) == made


def test_what_is_compiled_needs_no_compiler_and_no_writing(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = doors.extension(SOURCE)
    (made.parent / "lock").touch()  # as PyTorch's builder leaves when it is killed
    monkeypatch.setenv("CXX", "/no/compiler")
    monkeypatch.setenv("PATH", "/none")
    writable = list[object]()
    monkeypatch.setattr(Path, "mkdir", lambda *arguments, **options: writable.append(arguments))
    assert doors.extension(SOURCE) == made
    assert not writable


def test_one_command_compiles_into_the_package(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = doors.keep(SOURCE)
    assert kept.is_relative_to(doors.COMPILED)
    shutil.rmtree(empty_home)
    monkeypatch.setenv("CXX", "/no/compiler")
    assert doors.extension(SOURCE) == kept == doors.keep(SOURCE)


def test_a_folder_that_cannot_be_written_is_told(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "file" / "extensions"))
    made = doors.extension(SOURCE)
    told = capsys.readouterr().err
    assert made.is_file() and "which cannot be written (Not a directory)" in told
    assert "`python -m dietlab.torch`, where the environment can be written" in told


@pytest.mark.parametrize(
    ("compiler", "found", "remedy"),
    [
        ("/no/compiler", "no /no/compiler", "CXX=path"),
        (f"{sys.executable} -c 'import sys; sys.exit(\"a.h:1: fatal error: too old\")'", "too old", "GCC 11"),
    ],
)
def test_a_compiler_that_is_missing_or_fails_is_told(
    empty_home: Path, compiler: str, found: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(MissingDependencyError, match=f"{found}.*{remedy}"):
        doors.extension(SOURCE)
    assert not list(empty_home.rglob("*.so"))


def test_a_process_that_was_killed_while_it_compiled_keeps_nobody_waiting(
    empty_home: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "compiler"
    slow.write_text(f"#!{sys.executable}\nimport time\nprint(flush=True)\ntime.sleep(600)\n")
    program = f"import dietlab.torch.extension as e; e.COMPILED = e.Path('/none'); e.extension({SOURCE!r})"
    # The package itself imports the operators, as they were compiled for this test's process.
    paths = {"TORCH_EXTENSIONS_DIR": str(empty_home), "CXX": str(slow)}
    start = "import sys, types; m = types.ModuleType('dietlab.torch'); import dietlab; "
    start += "m.__path__ = [dietlab.__path__[0] + '/torch']; sys.modules['dietlab.torch'] = m; "
    child = subprocess.Popen([sys.executable, "-c", start + program], env={**os.environ, **paths})
    try:
        until = time.monotonic() + 120
        while not list(empty_home.rglob("*.new")):
            assert child.poll() is None and time.monotonic() < until
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    slow.write_text(COMPILER.format(python=sys.executable))
    assert doors.extension(SOURCE).is_file()


# ---- Models that were saved ----

CALL = """
import sys, torch, dietlab.torch
torch.set_num_threads(1)
path, found, given = sys.argv[1:4]
if given:
    dietlab.torch.find_libraries(given)
model = torch.load(path, weights_only=False) if path.endswith(".pt") else torch.export.load(path).module()
with torch.no_grad():
    torch.save(model(torch.ones(3, 64)), found)
"""


def called(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    around = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=around)
    assert done.returncode == 0, done.stderr
    return done


def call_elsewhere(path: Path, given: Path | str = "", **environment: str) -> tuple[torch.Tensor, str]:
    """Returns what a saved model computes in a new process, and what is said."""
    found = path.with_suffix(".found")
    command = [sys.executable, "-c", CALL, str(path), str(found), str(given)]
    told = called(command, environment).stderr
    return torch.load(found), told


@pytest.fixture(scope="module")
def moved(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, nn.Module]:
    """A folder with a model, saved in two ways, the study that moved since, and the original model."""
    home = tmp_path_factory.mktemp("moved")
    study = synthetic_study(here, home / "before")
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
    model = replace_linears(copy.deepcopy(original), study)
    torch.save(model, home / "model.pt")
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (torch.ones(3, 64),)), home / "model.pt2")
    (home / "studies").mkdir()
    study.folder.rename(home / "studies" / "after")
    return home, home / "studies" / "after", original


@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_saved_model_whose_study_moved_is_computed_and_told(
    name: str, moved: tuple[Path, Path, nn.Module]
) -> None:
    home, _, original = moved
    found, told = call_elsewhere(home / name)
    same(original, lambda x: found, torch.ones(3, 64))
    assert "dietlab: a layer's library must be loadable; got the path must be that of a study" in told
    assert "PyTorch computes the layer. dietlab.torch.find_libraries(FOLDER)" in told


@pytest.mark.parametrize(
    ("given", "name"), in_turn(("its study", "a folder of studies", "a variable"), ("model.pt", "model.pt2"))
)
def test_a_saved_model_finds_the_study_that_moved(
    given: str, name: str, moved: tuple[Path, Path, nn.Module]
) -> None:
    home, study, original = moved
    folder = {"its study": study, "a folder of studies": study.parent}.get(given, "")
    listed = "" if folder else f"/none:{study.parent}"
    found, told = call_elsewhere(home / name, folder, DIETLAB_LIBRARIES=listed)
    same(original, lambda x: found, torch.ones(3, 64))
    assert "dietlab" not in told


def test_a_library_that_is_damaged_is_not_opened(moved: tuple[Path, Path, nn.Module], tmp_path: Path) -> None:
    home, study, original = moved
    shutil.copytree(study, tmp_path / "study")
    for library in (tmp_path / "study").rglob("library.so"):
        os.truncate(library, 5000)
    found, told = call_elsewhere(home / "model.pt", tmp_path / "study")
    same(original, lambda x: found, torch.ones(3, 64))
    assert "file_bytes" in told and "PyTorch computes the layer" in told


WITHOUT_PYTHON = """
import sys, torch, dietlab.torch
torch.ops.dietlab.check_with(0)  # as in a program in C++, which has no Python to ask
model = torch.load(sys.argv[1], weights_only=False)
with torch.no_grad():
    print(float(model(torch.ones(3, 64)).sum()))
"""


@pytest.mark.parametrize("damage", ["", "cut", "processor", "no manifest"])
def test_a_process_without_python_opens_what_it_can_run(
    damage: str, moved: tuple[Path, Path, nn.Module], tmp_path: Path
) -> None:
    home, study, original = moved
    copied = shutil.copytree(study, tmp_path / "study")
    for manifest in copied.rglob("library/manifest.json"):
        if damage == "cut":
            os.truncate(manifest.with_name("library.so"), 5000)
        elif damage == "processor":
            told = json.loads(manifest.read_text())
            told["requires"]["instructions"].append("avx4096")
            manifest.write_text(json.dumps(told))
        elif damage:
            manifest.unlink()
    command = [sys.executable, "-c", WITHOUT_PYTHON, str(home / "model.pt")]
    done = called(command, {"DIETLAB_LIBRARIES": str(copied)})
    with torch.no_grad():
        assert float(done.stdout) == pytest.approx(float(original(torch.ones(3, 64)).sum()), rel=1e-4)
    said = {"": "", "cut": "not as long as", "processor": "without avx4096", "no manifest": "not as long as"}
    assert said[damage] in done.stderr and ("PyTorch computes the layer" in done.stderr) == bool(damage)


@pytest.mark.parametrize("error", [OSError("a disk that fails"), MemoryError(), TypeError("a fault of ours")])
def test_a_library_that_cannot_be_looked_at_stays_closed(
    error: Exception,
    study_of_doors: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    copied = Study.open(shutil.copytree(study_of_doors.folder, tmp_path / "study"))
    torch.manual_seed(0)
    original = nn.Linear(64, 96)
    layer = replace_linears(copy.deepcopy(original), copied)

    def fail(folder: str) -> None:
        raise error

    monkeypatch.setattr(checking, "load", fail)
    # PyTorch 2.15 hands a warning of C++ to Python, earlier releases write it to the terminal.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same(layer, original, torch.ones(3, 64))
    told = capfd.readouterr().err + "".join(str(warning.message) for warning in caught)
    assert f"must be loadable; got {str(error) or 'MemoryError()'}. PyTorch computes" in told


def test_libraries_are_looked_for_in_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="must be in the folder of a study, or in a folder of studies; got"):
        find_libraries(tmp_path / "none")


@pytest.fixture(scope="module")
def study_of_doors(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return shared_study(here, tmp_path_factory.getbasetemp() / "of torch")

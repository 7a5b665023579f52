"""The files around the package agree with it and with each other."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dietlab

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FINDING = ["Guess", "Versions", "Behaviour", "Seen"]
"""The parts of a finding's header, in their order."""

CONDA_NAMES = {"pytorch": "torch"}
"""What conda-forge calls otherwise than the package index."""

OF_NVIDIA = (
    "nvidia-cuda-cccl",
    "nvidia-cuda-crt",
    "nvidia-cuda-cuobjdump",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvdisasm",
    "nvidia-cuda-runtime",
    "nvidia-matmul-heuristics",
    "nvidia-nvvm",
)
"""What of NVIDIA's is pinned: the compiler with what it needs, what prints machine code, the heuristics.
Other packages come with a CUDA build of torch, which asks for its own versions."""

PRINTERS = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")
"""What prints machine code: of any release, since a newer one knows what an older compiler writes."""

TARGETS = (
    *("help", "quickstart", "test", "test-thorough", "test-explore"),
    *("lab", "docs", "install", "clean", "lint"),
)


def project() -> dict[str, Any]:
    value: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return value


def required() -> dict[str, Requirement]:
    """Every direct dependency, extras included."""
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    found = dict[str, Requirement]()
    for requirement in (Requirement(line) for group in groups for line in group):
        name = canonicalize_name(requirement.name)
        if name in found:  # several extras bound it
            requirement.specifier &= found[name].specifier
        found[name] = requirement
    return found


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def environment() -> tuple[dict[str, Requirement], dict[str, Requirement], list[str]]:
    """The conda section and the pip section by the package index's names, and pip's options."""
    value = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert value["channels"] == ["conda-forge"]
    (pip,) = [entry["pip"] for entry in value["dependencies"] if isinstance(entry, dict)]
    conda = [Requirement(entry) for entry in value["dependencies"] if isinstance(entry, str)]
    return (
        {canonicalize_name(CONDA_NAMES.get(r.name, r.name)): r for r in conda},
        {canonicalize_name(r.name): r for r in map(Requirement, (e for e in pip if not e.startswith("-")))},
        [entry for entry in pip if entry.startswith("-")],
    )


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# --- environment.yml and constraints.txt ---------------------------------------------------------


def test_environment_has_every_dependency_once() -> None:
    conda, pip, options = environment()
    assert conda.pop("python").specifier.contains(".".join(map(str, sys.version_info[:2])))
    assert conda.pop("pip")
    assert not set(conda) & set(pip)
    assert {*conda, *pip} == set(required())
    assert options == ["-e ."]


def test_environment_has_the_same_bounds() -> None:
    conda, pip, _ = environment()
    for name, requirement in required().items():
        assert {**conda, **pip}[name].specifier == requirement.specifier, name


def test_environment_has_the_same_python() -> None:
    oldest = project()["requires-python"].removeprefix(">=")
    specifier = environment()[0]["python"].specifier
    assert specifier.contains(oldest)
    assert not specifier.contains("3.9")


def test_constraints_cover_direct_dependencies() -> None:
    pinned = constraints()
    for name, requirement in required().items():
        (pin,) = pinned[name].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), name


def test_constraints_are_versions_only() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--" not in text
    for name, requirement in constraints().items():
        assert requirement.url is None, name
        foreign = re.match(r"nvidia-|cuda-|triton", name) and name not in OF_NVIDIA
        assert not foreign, f"{name}: which build of torch, pip decides"
        assert not any(Version(pin.version).local for pin in requirement.specifier), name


def test_the_cuda_compiler_is_of_one_release() -> None:
    """nvcc asks for its parts in any version; pip would mix the newest with an older nvcc."""
    parts = [Requirement(line) for line in project()["optional-dependencies"]["cuda"]]
    assert {part.name for part in parts} == {name for name in OF_NVIDIA if "heuristics" not in name}
    assert len({str(part.specifier) for part in parts if part.name not in PRINTERS}) == 1


def test_constraints_cover_what_they_install() -> None:
    """From the packages installed as pinned: each dependency of theirs is pinned."""
    pinned, missing = constraints(), set()
    for name, pin in pinned.items():
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not pin.specifier.contains(distribution.version):
            continue
        for requirement in map(Requirement, distribution.requires or []):
            needed = canonicalize_name(requirement.name)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            # A CUDA build of torch asks for more; see above.
            if applies and needed not in pinned and name != "torch":
                missing.add(f"{needed} (for {name})")
    assert missing == set()


# --- Makefile and continuous integration ---------------------------------------------------------


def run_make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """As from a shell, even if the tests were started by make; ``path`` is its PATH."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "EXTRAS", "PYTEST_ARGS", "PYTHON", "THREADS")
    clean = {name: value for name, value in os.environ.items() if name not in outer}
    clean |= {} if path is None else {"PATH": path}
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, env=clean)


def make(*arguments: str, path: str | None = None) -> str:
    done = run_make(ROOT, *arguments, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_makefile_has_target(target: str) -> None:
    make("-n", target)


def test_make_alone_teaches() -> None:
    text = make()
    assert all(f"make {target}" in text for target in TARGETS if target != "help")
    assert all(setting in text for setting in ("THREADS", "EXTRAS", "PYTEST_ARGS", "PYTHON"))


def test_make_passes_settings_on() -> None:
    assert "--threads 2" in make("-n", "quickstart", "THREADS=2")
    assert "--threads" not in make("-n", "quickstart")
    assert '-m "not thorough"' in make("-n", "test") and "-m thorough" in make("-n", "test-thorough")
    assert "-x tests/test_space.py" in make("-n", "test", "PYTEST_ARGS=-x tests/test_space.py")
    assert "-c constraints.txt" in make("-n", "-B", "install", "EXTRAS=mkl,torch")
    assert "'.[mkl,torch]'" in make("-n", "-B", "install", "EXTRAS=mkl,torch")


@pytest.mark.parametrize("explore", [False, True])
def test_property_tests_get_new_examples_only_where_they_explore(
    explore: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    (command,) = (
        line for line in make("-n", "test-explore" if explore else "test").splitlines() if "-m pytest" in line
    )
    options = [word for word in command.split() if "hypothesis" in word]
    assert options == (["hypothesis", "--hypothesis-profile=explore"] if explore else [])
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_examples.py").write_text(
        "from hypothesis import given, settings, strategies\n"
        "drawn = []\n"
        "@given(strategies.integers())\n"
        "def test_draw(number): drawn.append(number)\n"
        "def test_show(): print('\\ndrew', settings.default.derandomize, len(drawn), sum(drawn))\n",
        encoding="utf-8",
    )
    run = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *options[1:], str(tmp_path)]
    printed = [subprocess.run(run, cwd=tmp_path, capture_output=True, text=True).stdout for _ in range(2)]
    first, second = (re.findall("^drew (.*) (.*) (.*)$", text, re.MULTILINE) for text in printed)
    assert first[0][:2] == (("False", "300") if explore else ("True", "60")), printed
    assert (first == second) == (not explore)


def path_of(folder: Path, *, nvcc: bool) -> str:
    """A PATH that has make, and CUDA's compiler or not."""
    found = shutil.which("make")
    assert found
    (folder / "make").symlink_to(found)
    if nvcc:
        (folder / "nvcc").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (folder / "nvcc").chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("nvcc", [False, True])
def test_make_test_installs_the_cuda_compiler_where_there_is_none(nvcc: bool, tmp_path: Path) -> None:
    steps = make("-n", "-B", "test", path=path_of(tmp_path, nvcc=nvcc))
    (installed,) = re.findall(r"'\.\[([\w,]+)\]'", steps)
    extras = installed.split(",")
    assert ("cuda" in extras) == (not nvcc)
    assert {"test", "heuristics"} <= set(extras) <= set(project()["optional-dependencies"])
    # A compiler that came or went is another stamp, so that the next `make test` installs anew.
    assert f"touch '.venv/.installed-{installed}'" in steps


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    done = run_make(tmp_path, "install", "PYTHON=no-such-python")
    assert done.returncode != 0
    assert "Python 3.10" in done.stderr
    assert "no-such-python" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_continuous_integration_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert "make test" in text


# --- texts ---------------------------------------------------------------------------------------


def test_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == dietlab.__version__ == project()["version"]
    assert citation["license"] == project()["license"]
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("DietCode")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").replace("\n> ", " ").split())
    for author in paper["authors"]:
        assert f"{author['given-names']} {author['family-names']}" in readme


def test_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{dietlab.__version__}]" in text


def test_licence_is_the_declared_one() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_nothing_names_a_machine_or_an_index() -> None:
    """No tracked file holds a path of somebody's machine or a package index's address."""
    folders = "|".join(("work", "root", "home", "Users", "opt"))
    paths = re.compile(rf"(?<![\w.~:-])/(?:{folders})/\w")
    words = ("pypi" + r"\.org", "python" + "hosted", "index" + "-url", "find" + "-links")
    hosts = re.compile("|".join(words))
    found = []
    for path in tracked():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(lines, 1)
            if paths.search(line) or hosts.search(line)
        ]
    assert found == []


def test_notebooks_carry_no_paths() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            outputs = json.dumps(cell.get("outputs", []))
            assert not re.search(r'(?:^|[\s"(\'])/\w+/\w', outputs), path.name


@pytest.mark.parametrize("script", sorted((ROOT / "findings").glob("*.sh")), ids=lambda path: path.stem)
def test_a_finding_says_what_was_guessed_and_seen(script: Path) -> None:
    text = script.read_text()
    header = [line for line in text.splitlines() if line.startswith("#")]
    parts = [part for line in header if (part := line[2:].split(":")[0]) in FINDING]
    assert parts == FINDING
    assert text.startswith("#!/usr/bin/env bash\n# ") and "\nset -euo pipefail\n" in text
    assert "mktemp -d" in text and "| grep -q" not in text and "import dietlab" not in text
    assert re.search(r"[\w-]+==\d", text), "no package is pinned"
    assert script.stat().st_mode & 0o111

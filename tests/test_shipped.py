"""Data and notebooks that come with dietlab are found by name, and notebooks are copied without harm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

import dietlab as dl
from dietlab.base import shipped
from dietlab.base.errors import RecordError
from dietlab.base.shipped import copy_notebooks, data_names, data_path
from dietlab.cli import lab as lab_command
from dietlab.cli import main

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
FILES = sorted([*NOTEBOOKS, "mini_dietcode.py"])
"""Notebooks, and what one of them imports from beside it."""


def test_a_clone_has_the_data_themselves() -> None:
    assert dl.data_path("quickstart/records.jsonl.gz") == ROOT / "data/quickstart/records.jsonl.gz"
    assert data_path("cuda").is_dir()
    assert "paper/dietcode_latency.csv" in data_names()


def test_a_built_package_has_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one.csv").write_text("1\n", encoding="utf-8")
    monkeypatch.setattr(shipped, "PACKAGED", tmp_path)
    assert data_names() == ("one.csv",)
    assert data_path("one.csv") == tmp_path / "data/one.csv"
    with pytest.raises(RecordError, match="the package must include its notebooks"):
        copy_notebooks(tmp_path / "mine")


@pytest.mark.parametrize("name", ["quickstart/record.jsonl.gz", "../pyproject.toml", "", "/etc/hosts"])
def test_another_name_is_refused_with_those_near_it(name: str) -> None:
    with pytest.raises(
        RecordError, match=r"the name of the data must be .*data_names.*Similar names are "
    ) as raised:
        data_path(name)
    assert ("quickstart/records.jsonl.gz" in raised.value.remedy) == name.startswith("quickstart")


def test_notebooks_are_copied_and_never_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "deep" / "mine"
    mine.mkdir(parents=True)
    (mine / NOTEBOOKS[0]).write_text("my own", encoding="utf-8")
    assert [path.name for path in copy_notebooks(mine)] == FILES[1:]
    assert (mine / NOTEBOOKS[0]).read_text(encoding="utf-8") == "my own"
    assert (mine / NOTEBOOKS[1]).read_bytes() == (ROOT / "notebooks" / NOTEBOOKS[1]).read_bytes()
    assert copy_notebooks(mine) == ()


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that ``dietlab lab`` would have run."""
    commands: list[list[str]] = []

    def call(command: list[str]) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(lab_command.subprocess, "call", call)
    return commands


def test_lab_copies_the_notebooks_beside_the_user(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, folder in (([], "dietlab-notebooks"), (["mine"], "mine")):
        result = CliRunner().invoke(main, ["lab", *arguments])
        assert result.exit_code == 0 and f"{len(NOTEBOOKS)} notebooks" in result.output
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == FILES
        assert started[-1][1:3] == ["-m", "jupyterlab"] and folder in started[-1]


def test_lab_opens_a_clone_itself(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert CliRunner().invoke(main, ["lab", "--port", "1234"]).exit_code == 0
    assert {"--port=1234", str(ROOT / "notebooks")} <= set(started[0])


def test_lab_without_jupyterlab_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    result = CliRunner().invoke(main, ["lab"])
    assert result.exit_code == 2 and "pip install 'dietlab[lab]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_replay_takes_records_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["replay", "quickstart", "--effort", "smoke"])
    assert result.exit_code == 0 and "schemes of 1088 measured" in result.output
    result = CliRunner().invoke(main, ["replay", "quickstarts"])
    assert result.exit_code == 2
    known = ["cost/batch-nn", "cost/batch-nt", "cost/dense", "h200/batch-nn", "h200/batch-nt", "h200/bf16"]
    known += ["h200/bf16-again", "h200/bf16-later", "h200/bf16-one-box", "h200/fp32"]
    known += ["h200/fp32-again", "h200/fp32-later", "h200/k14336", "h200/n14336"]
    names = " or ".join([*known, "layers", "quickstart", "search/xeon-dense"])
    assert f"got 'quickstarts'. Such a name is {names}." in result.stderr

"""The README's examples run, in its order, on a small operator in place of BERT's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

from dietlab.cli.main import main as command

README = (ROOT / "README.md").read_text(encoding="utf-8")

SMALLER = {
    "Dim(1, 128)": "Dim(1, 24)",
    "2304": "80",
    "768": "32",
    "(43, ": "(7, ",
    "detect()": "detect(measure=False)",
    'effort="quick"': 'effort="smoke"',
    "ShapeSet.every(dense)": "ShapeSet.uniform(dense, n=3)",
    '["mkl", "openblas", "ansor", "oracle"], tuned=run': '["openblas", "oracle"], tuned=run, effort="smoke"',
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def smaller(text: str) -> str:
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the names that the one-screen example leaves."""
    folder = tmp_path_factory.mktemp("readme")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(smaller(blocks("python")[0]), names)
    return folder, names


def test_examples_use_every_substitution() -> None:
    text = "\n".join(blocks("python"))
    assert [old for old in SMALLER if old not in text] == []


def test_one_screen_example(loop: tuple[Path, dict[str, Any]]) -> None:
    folder, names = loop
    assert (folder / "runs/dense/library/library.so").is_file()
    assert names["run"].trials > 0
    assert len(names["dispatcher"].micro_kernels) <= 8
    rows = names["report"].rows
    assert {row.contender for row in rows} >= {"dietlab", "openblas", "oracle"}
    assert all(row.correct for row in rows)
    assert len(names["shapes"]) == 8


def test_loading_example(loop: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = loop
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(smaller(blocks("python")[1]), names)
    np.testing.assert_allclose(names["y"], np.full((7, 80), 32.0), rtol=1e-6)


def test_library_runs_without_dietlab(loop: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = loop
    unused = "\nimport sys\nassert not {'dietlab', 'tvm'} & set(sys.modules)\n"
    script = smaller(blocks("python")[2]) + unused
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_screen_is_one_screen() -> None:
    assert len(blocks("python")[0].splitlines()) <= 24


def test_commands_exist() -> None:
    lines = [line.split() for block in blocks("sh") for line in block.splitlines()]
    dietlab = [words for words in lines if words[0] == "dietlab"]
    assert len(dietlab) >= 3
    for _, name, *arguments in dietlab:
        options = {option for parameter in command.commands[name].params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options
    made = {words[1] for words in lines if words[0] == "make"}
    assert made == {"quickstart", "test"}


def test_linked_files_exist() -> None:
    for name in re.findall(r"`([\w/]+\.(?:md|cff|ipynb|yml))`", README):
        assert (ROOT / name).is_file(), name


def test_results_block_is_marked() -> None:
    assert README.count("<!-- results:start -->") == README.count("<!-- results:end -->") == 1
    assert README.index("<!-- results:start -->") < README.index("<!-- results:end -->")

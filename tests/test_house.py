"""The rooms: a processor in one folder, the laboratory on top of all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, python

PACKAGE = ROOT / "dietlab"

OF_A_PROCESSOR = re.compile(r"Cpu|Cuda|Gpu|lanes|smem")
"""Words that one kind of processor has."""


def test_a_processor_is_named_in_its_folder_alone() -> None:
    """The package's face lists public names, and the laboratory is about processors."""
    elsewhere = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ("targets", "lab", "__init__.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_A_PROCESSOR.search(line)
    ]
    assert elsewhere == []


@pytest.fixture(scope="module")
def without_laboratory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its data, but for the laboratory."""
    folder = tmp_path_factory.mktemp("library")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "dietlab", ignore=left_out)
    shutil.rmtree(folder / "dietlab" / "lab")
    (folder / "data").symlink_to(ROOT / "data")
    return folder


TUNED = """
import dietlab as dl

assert "Heuristics" not in dl.__all__ and all(getattr(dl, name) is not None for name in dl.__all__)
work = dl.Dense(T=dl.Dim(1, 16), N=32, K=8)
shapes, here = dl.ShapeSet.uniform(work, 3), dl.Hardware.detect(measure=False)
run = dl.tune(dl.build_space(work, here), shapes, runner=dl.SyntheticRunner(here), effort="smoke")
dispatcher = dl.train_dispatcher(dl.choose_portfolio(run, shapes, max_kernels=2), shapes)
op = dl.build(dispatcher, "built")
report = dl.evaluate(op, shapes, against=["openblas"], effort="smoke")
assert all(row.correct for row in report.rows)
print(len({row.contender for row in report.rows}))
"""


def test_the_library_works_without_the_laboratory(without_laboratory: Path) -> None:
    """An import of it fails, also where an installed copy could be found."""
    without = "import sys\nsys.modules['dietlab.lab'] = None\n"

    def printed(code: str) -> str:
        return python("-c", without + code, cwd=without_laboratory, path=()).stdout

    listed = printed("from dietlab.cli import main\nmain(['--help'])")
    commands = set(re.findall(r"^  ([a-z-]+)  +\S", listed, re.M))
    assert {"tune", "bench", "doctor"} <= commands and not {"model", "reproduce", "ablate"} & commands
    assert int(printed(TUNED)) >= 2

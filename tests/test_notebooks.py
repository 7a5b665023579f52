"""The notebooks run from top to bottom, show what they say, and are committed with what they drew."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import course
import nbformat
import pytest
from conftest import ROOT
from notebook_probes import PROBES
from notebook_runs import NOTEBOOKS as FOLDER
from notebook_runs import probed, ran
from render_notebooks import KEPT, fingerprint

from dietlab.lab import puzzles

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.stem[:2].isdigit()]
MAX_CELLS, MAX_WORDS = 45, 1500


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def quickstart() -> dict[str, Any]:
    """What the names of the first notebook are bound to after it ran."""
    found, _ = probed("00_quickstart")
    return found


def test_search_comes_near_the_oracle(quickstart: dict[str, Any]) -> None:
    curves = quickstart["curves"]
    assert set(curves) == {"marginal", "random"}
    assert curves[quickstart["best"]][-1] < 1.1
    for curve in curves.values():
        improving = [value for value in curve if value == value]  # NaN until something was measured
        assert improving == sorted(improving, reverse=True)


def test_largest_length_gets_a_good_kernel(quickstart: dict[str, Any]) -> None:
    assert quickstart["at_128"] in quickstart["portfolio"]
    assert 1.0 <= quickstart["slowdown_at_128"] < 1.1


def test_dispatcher_beats_one_schedule_on_unseen_lengths(quickstart: dict[str, Any]) -> None:
    assert len(quickstart["held_out"]) >= 4
    assert 0 <= quickstart["regret"]["tuned"] < 10
    assert 1 + quickstart["regret"]["held out"] / 100 < quickstart["largest"]


def test_dispatcher_is_readable(quickstart: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    exec(quickstart["rules"], names)
    assert names["choose"](128) == quickstart["at_128"]
    assert 1 <= len(quickstart["curve"]) <= 8


def test_puzzles_notebook_runs_with_nothing_solved() -> None:
    found, _ = probed("puzzles")
    assert found["solved"] == [False] * len(puzzles.PUZZLES)
    code = [cell for cell in ran("puzzles").cells if cell.cell_type == "code"]
    said = "".join(o.get("data", {}).get("text/plain", "") for cell in code for o in cell.outputs)
    assert all(f"{puzzle.title}: not solved yet." in said for puzzle in puzzles.PUZZLES)


def test_solutions_notebook_solves_all() -> None:
    found, _ = probed("solutions")
    assert found["solved"] == [True] * len(puzzles.PUZZLES)


@pytest.mark.thorough
@pytest.mark.parametrize("stem", [stem for stem in course.order() if stem not in PROBES])
def test_notebook_runs_whose_values_no_test_compares(stem: str) -> None:
    *_, last = (cell for cell in ran(stem).cells if cell.cell_type == "code")
    assert last.execution_count


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_with_what_a_page_without_javascript_can_show(path: Path) -> None:
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    found = notebook.metadata.get("dietlab", {}).get("outputs_of")
    assert found == fingerprint(notebook), f"run `make notebooks`: {path.name} has outputs of other code"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds <= set(KEPT) and ("image/png" in kinds or path not in LESSONS)
    assert not [output for output in outputs if output.output_type == "error"]
    assert str(ROOT) not in json.dumps(outputs) and str(Path.home()) not in json.dumps(outputs)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_sections(path: Path) -> None:
    cells = read(path).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert text.startswith("# ")
    assert "?" in text.splitlines()[0], "a notebook asks one question, in its title"
    for section in ("Afterwards you can", "**Time**", "**Hardware**", "## Summary"):
        assert section in text
    assert _numbered(text, "## Exercises") == 3
    assert _numbered(text, "## Check yourself") == 5
    assert len(cells) <= MAX_CELLS
    assert len(_outside(text).split()) <= MAX_WORDS


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_cells_are_short(path: Path) -> None:
    lengths = [len(c.source.splitlines()) for c in read(path).cells if c.cell_type == "code"]
    assert sum(length <= 5 for length in lengths) > len(lengths) / 2
    assert max(lengths) <= 12


def _outside(text: str) -> str:
    """Returns a text without what is folded, and without the line of links."""
    return re.sub(r"<details>[\s\S]*?</details>|^\*\*Links\*\*: .*$", "", text, flags=re.MULTILINE)


def _numbered(text: str, heading: str) -> int:
    section = _outside(text.split(heading, 1)[1].split("\n## ", 1)[0])
    return sum(line[:1].isdigit() for line in section.splitlines())

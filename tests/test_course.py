"""The order of the notebooks, their lines of links, and the table of docs/workbench.md."""

from __future__ import annotations

import re
from pathlib import Path

import course
import pytest
from conftest import ROOT

STEMS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_each_notebook_has_one_place() -> None:
    assert sorted([*course.order(), *course.signposts()]) == STEMS
    assert sum(map(len, course.COURSE.values())) == len(course.order())
    assert set(course.ABOUT) <= set(STEMS)


@pytest.mark.parametrize("path", course.written(), ids=lambda path: path.stem)
def test_written_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == course.written()[path], "run `python docs/course.py`"


def test_links_lead_from_the_first_to_the_last() -> None:
    stems = course.order()
    seen, at = [stems[0]], stems[0]
    while found := re.search(r"next: \[[^]]+\]\((\w+)\.ipynb\)", course.links(at)):
        at = found[1]
        seen.append(at)
    assert seen == stems
    assert "before" not in course.links(stems[0])
    assert f"before: [{course.label(stems[-2])}]" in course.links(stems[-1])


@pytest.mark.parametrize("stem", STEMS)
def test_links_of_a_notebook_stay_in_its_folder(stem: str) -> None:
    """JupyterLab opens no other file, and ``dietlab lab`` copies no other."""
    folder = ROOT / "notebooks"
    text = "\n".join(course.texts(course.loaded(stem), "markdown"))
    found = re.findall(r"\]\(([^)#\s]+)|\b(?:src|href)=\"([^\"#]+)", text)
    targets = [first or second for first, second in found]
    relative = [target for target in targets if not re.match(r"\w+:", target)]
    assert {"index.ipynb", "words.ipynb"} - {f"{stem}.ipynb"} <= {*relative}
    lost = [target for target in relative if folder not in (folder / target).resolve().parents]
    assert lost == [] and [target for target in relative if not (folder / target).is_file()] == []


def test_signposts_have_every_notebook_and_every_word() -> None:
    index, words = (course.signposts()[name] for name in ("index", "words"))
    assert re.findall(r"\]\((\w+)\.ipynb\) \|", index) == course.order()
    assert words.count("\n| ") == course.WORDS.read_text(encoding="utf-8").count("\n| ") > 30


def test_an_earlier_line_is_replaced() -> None:
    notebook = {"cells": [{"source": ["# Why?\n", "\n", "Text.\n", "\n", "**Links**: old."]}]}
    once = course.with_links(notebook, "**Links**: new.")
    assert "".join(once["cells"][0]["source"]) == "# Why?\n\nText.\n\n**Links**: new."
    assert course.with_links(once, "**Links**: new.") == once


def test_badges_need_a_public_repository() -> None:
    assert course.badges("06_dispatch", None) == []
    assert course.badges("06_dispatch", "https://example.org/dietlab") == []
    (badge,) = course.badges("06_dispatch", "https://github.com/someone/dietlab.git")
    assert "github/someone/dietlab/blob/main/notebooks/06_dispatch.ipynb" in badge
    assert "mybinder.org/v2/gh/someone/dietlab/main?labpath=notebooks/06_dispatch.ipynb" in badge


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks where the table of notebooks is"):
        course.with_table("# Notebooks\n")


def test_every_name_in_a_line_is_public() -> None:
    for stem in course.order():
        assert all(hasattr(course.dietlab, name) for name in course.calls(course.loaded(stem))), stem

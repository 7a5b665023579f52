"""The programs of the how-tos run, and print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "--- end of a block ---"
TARGETS = '[project.entry-points."dietlab.targets"]\n'


@dataclass
class Page:
    """What a page has: files by name, the blocks of its program, and what each is to print."""

    files: dict[str, str] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


def page_of(text: str) -> Page:
    page = Page()
    for language, title, code in BLOCK.findall(text):
        if title:
            page.files[title] = code
        elif language == "python":
            page.blocks.append(code)
            page.shown.append("")
        elif language == "text":
            page.shown[-1] = code
    return page


def installed(page: Page, folder: Path) -> None:
    """Writes the files of a page, and makes its entry points known as an installation does."""
    for name, text in page.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if points := page.files.get("pyproject.toml", "").partition(TARGETS)[2]:
        about = folder / "how_to-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: how-to\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[dietlab.targets]\n" + points.replace('"', ""))


def printed(page: Page, folder: Path) -> list[str]:
    """Returns what each block prints, all of them run as one program."""
    installed(page, folder)
    program = "".join(f"{block}\nprint({END!r})\n" for block in page.blocks)
    (folder / "program.py").write_text(program, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(END + "\n")[:-1]


def test_each_part_that_can_be_added_has_a_page() -> None:
    assert [page.stem for page in PAGES] == [
        "cost-model",
        "operator",
        "strategy",
        "target",
        "vendor",
        "widget",
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_program_of_a_how_to_prints_what_the_page_shows(path: Path, tmp_path: Path) -> None:
    page = page_of(path.read_text(encoding="utf-8"))
    assert any(page.shown)
    found = printed(page, tmp_path)
    assert [text.strip() for text in found] == [text.strip() for text in page.shown]


def test_a_page_that_shows_something_else_is_found(tmp_path: Path) -> None:
    one = '```python title="one.py"\nONE = 1\n```\n\n'
    page = page_of(one + "```python\nimport one\nprint(one.ONE)\n```\n\n```text\n2\n```\n")
    assert page.shown == ["2\n"]
    assert printed(page, tmp_path) == ["1\n"]

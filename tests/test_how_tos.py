"""The programs and commands of the how-tos run, and print what the pages show."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT, python

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "--- end of a block ---"
TARGETS = '[project.entry-points."dietlab.targets"]\n'


@dataclass
class Page:
    """What a page has: files by name, the blocks of its program, what each is to print, commands, and lines
    that are added to a file of dietlab's."""

    files: dict[str, str] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    added: str = ""


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
        elif language == "sh":
            page.commands += code.replace("\\\n", "").splitlines()
        elif language == "diff":
            page.added = code
    return page


def page_named(name: str) -> Page:
    return page_of((ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8"))


def installed(page: Page, folder: Path) -> None:
    """Writes the files of a page, and makes its entry points known as an installation does."""
    for name, text in page.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if points := page.files.get("pyproject.toml", "").partition(TARGETS)[2]:
        about = folder / "how_to-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: how-to\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[dietlab.targets]\n" + points.replace('"', ""))


def run(folder: Path, *arguments: str, path: tuple[Path, ...]) -> str:
    """Returns what Python prints in a folder."""
    return python(*arguments, cwd=folder, path=path).stdout


def printed(page: Page, folder: Path) -> list[str]:
    """Returns what each block prints, all of them run as one program."""
    installed(page, folder)
    program = "".join(f"{block}\nprint({END!r})\n" for block in page.blocks)
    (folder / "program.py").write_text(program, encoding="utf-8")
    return run(folder, "program.py", path=(folder, ROOT)).split(END + "\n")[:-1]


def commanded(page: Page, folder: Path) -> list[str]:
    """Returns what each command of a page prints, in the folder that has the files of the page: only the
    command line says that they may be imported."""
    found = []
    for command in page.commands:
        dietlab, *arguments = shlex.split(command)
        assert dietlab == "dietlab"
        # Not "-m dietlab", which would put the folder first: the command that is installed does not.
        start = "import sys; sys.path.remove(''); from dietlab.cli import main; main(prog_name='dietlab')"
        found.append(run(folder, "-c", start, *arguments, path=(ROOT,)))
    return found


def test_each_part_that_can_be_added_has_a_page() -> None:
    added = ["cost-model", "operator", "strategy", "target", "vendor", "widget"]
    assert [page.stem for page in PAGES] == added


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_program_of_a_how_to_prints_what_the_page_shows(path: Path, tmp_path: Path) -> None:
    page = page_of(path.read_text(encoding="utf-8"))
    assert any(page.shown)
    found = printed(page, tmp_path)
    assert [text.strip() for text in found] == [text.strip() for text in page.shown]
    if path.stem == "operator":  # opened by another process, which has not entered it
        space, report = commanded(page, tmp_path)
        assert "product T=1..16 N=96 K=40 on" in space and "openblas" in report


def test_commands_of_the_other_how_tos_take_what_a_module_has(tmp_path: Path) -> None:
    """A strategy and a cost model through the command line, then a contender on the strategy's study."""
    for name in ("strategy", "cost-model", "vendor"):
        installed(page_named(name), tmp_path)
    compared, tuned = commanded(page_named("strategy"), tmp_path)
    assert "| climbing:Promising " in compared and "(0 failed)" in tuned
    (judged,) = commanded(page_named("cost-model"), tmp_path)
    assert "| nearest:NearestPredictor " in judged
    built, report = commanded(page_named("vendor"), tmp_path)
    assert "library.so" in built
    assert "numpy_transposed:NumpyTransposed: NumPy" in report


def with_added(source: str, added: str) -> str:
    """Returns a file with the lines of a page that begin with ``+``, each behind the lines above it."""
    lines, above = source.splitlines(keepends=True), list[str]()
    for line in added.splitlines(keepends=True):
        if line.startswith("+"):
            places = [n for n in range(len(lines)) if lines[n : n + len(above)] == above]
            assert len(places) == 1, above
            lines.insert(places[0] + len(above), line[1:])
            above = []
        else:
            above.append(line[1:])
    return "".join(lines)


def test_an_operator_is_added_to_dietlab_itself_as_the_page_says(tmp_path: Path) -> None:
    page, package = page_named("operator"), tmp_path / "dietlab"
    shutil.copytree(ROOT / "dietlab", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "problem" / "product.py").write_text(page.files["product.py"], encoding="utf-8")
    operators = package / "problem" / "operators.py"
    operators.write_text(with_added(operators.read_text(encoding="utf-8"), page.added), encoding="utf-8")
    program = """import dietlab as dl
from dietlab.problem import OPERATORS
assert 'product' in OPERATORS.own
work = dl.make_workload('product', {'T': dl.Dim(1, 16), 'N': 96, 'K': 40})
print(type(dl.workload_from_json(work.to_json())).__module__, work)"""
    told = run(tmp_path, "-c", program, path=(tmp_path,))
    assert told == "dietlab.problem.product product T=1..16 N=96 K=40\n"


def test_a_page_that_shows_something_else_is_found(tmp_path: Path) -> None:
    one = '```python title="one.py"\nONE = 1\n```\n\n'
    page = page_of(one + "```python\nimport one\nprint(one.ONE)\n```\n\n```text\n2\n```\n")
    assert page.shown == ["2\n"]
    assert printed(page, tmp_path) == ["1\n"]


def test_a_line_is_added_behind_those_above_it() -> None:
    assert with_added("a\nb\na\nc\n", " b\n a\n+d\n") == "a\nb\na\nd\nc\n"
    with pytest.raises(AssertionError):
        with_added("a\na\n", " a\n+d\n")

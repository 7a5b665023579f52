"""The documentation as a site: what is in it, and that `make docs` builds it without a warning."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import site_names
import yaml
from conftest import ROOT
from site_notebooks import loaded, placeholder, rendered

import dietlab

TOOLS = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
MISSING = [name for name in TOOLS if find_spec(name) is None]
needs_tools = pytest.mark.skipif(
    bool(MISSING), reason=f"the extra docs is not installed: {', '.join(MISSING)}"
)

# --- without the tools of the site ---------------------------------------------------------------


def test_reference_has_every_name_of_the_package_once() -> None:
    found = [name.name for names in site_names.pages().values() for name in names if name.top]
    assert sorted(found) == sorted(set(dietlab.__all__) - {"__version__"})


def test_reference_has_every_name_of_the_parts() -> None:
    found = {(name.home, name.name) for names in site_names.pages().values() for name in names}
    listed = {
        (site_names.home_of(module, name), name)
        for module in site_names.modules()
        for name in site_names.exported(module)
    }
    assert listed <= found
    assert len(listed) > 250


@pytest.mark.parametrize("part", sorted({*site_names.pages()} - {"torch"}))
def test_reference_says_where_names_are(part: str) -> None:
    """Sources were only parsed; this imports them, but for PyTorch, which takes half a minute."""
    for name in site_names.pages()[part]:
        module = __import__(name.home, fromlist=[name.name])
        assert hasattr(module, name.name), name
        assert name.summary, f"{name.canonical} has neither a text nor a value"


def test_reference_links_names_as_docstrings_write_them() -> None:
    ways = site_names.linkable()
    assert ways["dietlab.tune"] == ways["dietlab.tuning.tune"] == "dietlab.tuning.tune.tune"
    assert ways["dietlab.cost.model.CostModel"] == ways["dietlab.CostModel"] == "dietlab.cost.CostModel"


@pytest.mark.parametrize("part", sorted(site_names.pages()))
def test_reference_says_what_parameters_fields_and_methods_are(part: str) -> None:
    names = site_names.pages()[part]
    assert [told for name in names for told in site_names.undescribed(name.home, name.name)] == []


def test_what_a_docstring_leaves_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    source = '''
def call(known, forgotten, *rest, named, option=1):
    """Returns a number, unless forgotten is, or ``named``.

    Args:
        known, rest: of any
            forgotten: size.

    Raises:
        option: never.
    """

class Value:
    """A value with a ``third``."""

    first: int
    second: int
    """It has a text."""
    third: int
    example: ClassVar[str]
    _hidden: int

    def method(self): ...

    def told(self):
        """Returns nothing."""

    def _private(self): ...

class Made:
    """A thing.

    Args:
        work: what to do.
    """

    def __init__(self, work, *, observers=()): ...
'''
    monkeypatch.setattr(site_names, "parsed", lambda module: ast.parse(source))
    assert site_names.undescribed("any", "call") == ["call(forgotten)", "call(option)"]
    assert site_names.undescribed("any", "Value") == ["Value.first", "Value.method"]
    assert site_names.undescribed("any", "Made") == ["Made(observers)"]
    assert site_names.undescribed("any", "nothing") == []


def test_notebook_becomes_markdown() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "print('```')",
            "outputs": [
                {"output_type": "stream", "text": ["```\n"]},
                {
                    "output_type": "execute_result",
                    "data": {"text/html": "<style scoped>p {}</style><p>", "text/plain": "x"},
                },
                {
                    "output_type": "display_data",
                    "data": {"image/png": "AAEC", "text/plain": ["A [line]\n", "more"]},
                },
            ],
        },
    ]
    page = rendered("01_name.ipynb", {"cells": cells})
    assert page.title == "Title"
    assert page.pictures == {"01_name-1.png": b"\0\1\2"}
    assert page.fragments == ["<p>"]
    assert page.markdown.split("\n\n") == [
        "# Title\ntext",
        "````python\nprint('```')\n````",
        "````text\n```\n````",
        placeholder(0),
        "![A line](01_name-1.png)\n",
    ]


def test_pages_show_what_notebooks_were_saved_with() -> None:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        page = rendered(path.name, loaded(text))
        assert len(page.pictures) == text.count('"image/png"'), path.name
        assert page.title != path.name
        assert "<script" not in " ".join(page.fragments)


# --- with them -----------------------------------------------------------------------------------


@needs_tools
def test_docstrings_become_markdown() -> None:
    from site_roles import markdown_of

    text = """Returns what :func:`~dietlab.tuning.tune` and :class:`Space` say (:meth:`Nobody.knows`)::

    code

Args:
    low, high: two bounds,
        on two lines.
    step: ``1``.
"""
    expected = """Returns what [`tune`][dietlab.tuning.tune.tune] and [`Space`][dietlab.scheme.Space]
say (`Nobody.knows`):

    code

Args:
    low: two bounds,
        on two lines.
    high: two bounds,
        on two lines.
    step: `1`.
"""
    assert markdown_of(text, "dietlab.scheme") == expected.replace("\nsay", " say")


@dataclass
class Links(HTMLParser):
    """What a page links to or loads, and the anchors that it has."""

    targets: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src", "srcset") and value is not None:
                self.targets.append(value)
                if tag != "a":
                    self.loaded.append(value)


@cache
def links(page: Path) -> Links:
    parser = Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the built site and what the build printed."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


@needs_tools
def test_build_has_no_warning(built: tuple[Path, str]) -> None:
    """Nothing but its beginning and its end is told: what mkdocs only mentions counts, too."""
    printed = [line for line in built[1].splitlines() if line.strip()]
    assert len(printed) == 3 and all(line.startswith("INFO") for line in printed), built[1]


@needs_tools
def test_links_of_the_site_are_right(built: tuple[Path, str]) -> None:
    folder, wrong = built[0], list[str]()
    pages = sorted(folder.rglob("*.html"))
    # The page for what was not found is shown at any address: its links are those of the whole site.
    for page in (page for page in pages if page.name != "404.html"):
        for target in links(page).targets:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "data", "mailto"):
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            anchor = unquote(parts.fragment)
            if not path.is_file():
                wrong.append(f"{page.relative_to(folder)}: {target} is missing")
            elif anchor and path.suffix == ".html" and anchor not in links(path).anchors:
                wrong.append(f"{page.relative_to(folder)}: {target} has no such place")
    assert len(pages) > 60
    assert wrong == []


@needs_tools
def test_site_loads_nothing_from_elsewhere(built: tuple[Path, str]) -> None:
    for page in built[0].rglob("*.html"):
        assert [target for target in links(page).loaded if urlsplit(target).netloc] == [], page


@needs_tools
def test_site_has_every_name_with_its_parameters(built: tuple[Path, str]) -> None:
    for part, names in site_names.pages().items():
        anchors = links(built[0] / "reference" / f"{part}.html").anchors
        assert {name.identifier for name in names} <= anchors, part
    text = (built[0] / "reference" / "tuning.html").read_text(encoding="utf-8")
    assert "the weighted shapes to tune for" in text
    assert ":class:" not in text and "Args:" not in text


@needs_tools
def test_site_has_all_pages(built: tuple[Path, str]) -> None:
    folder = built[0]
    for source in (
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "how-to").glob("*.md"),
        *(ROOT / "notebooks").glob("*.ipynb"),
        ROOT / "CITATION.cff",
    ):
        if "_" in source.stem and source.parent.name == "docs":
            continue  # a part that a page is made of
        assert (folder / source.relative_to(ROOT)).with_suffix(".html").is_file(), source
    assert 'class="dataframe"' in (folder / "notebooks" / "02_search_space.html").read_text(encoding="utf-8")
    assert len(re.findall("<img", (folder / "docs/widgets/index.html").read_text(encoding="utf-8"))) > 90


def test_navigation_is_of_this_repository() -> None:
    """Pages that are files exist; folders and generated pages are those that the hook knows."""

    def leaves(entries: list[Any]) -> list[str]:
        values = [next(iter(entry.values())) if isinstance(entry, dict) else entry for entry in entries]
        return [leaf for value in values for leaf in (leaves(value) if isinstance(value, list) else [value])]

    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    generated = {"docs/widgets/index.md", "notebooks/", "reference/", "data/"}
    pages = set(leaves(config["nav"])) - generated
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    assert config["strict"] is True
    assert config["theme"]["font"] is False

"""What mkdocs.yml builds the site from: files of the repository at their own paths, and generated pages.

The site has the repository's layout, so that relative links between pages are right as they are written for
readers of the repository. A page is in the site because one that is reads links to it, beginning at the
README; a link to another kind of file copies that file. The reference has a page for each part of dietlab.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

import site_names
import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_notebooks import Rendered, loaded, placeholder, rendered

ROOT = Path(__file__).resolve().parent.parent
START = ("README.md", "CITATION.cff", "docs/site/stages.md")
LINK = re.compile(r"""(\]\(|\b(?:src|srcset|href)=")([^)\s"#:]+)(?=[)"#])""")
CALLED = re.compile(r"^\*\*Links\*\*: .*$", re.MULTILINE)
GALLERY = "docs/widgets/index.md"
FOLDERS = {"notebooks": "index.ipynb", "docs/widgets": "index.md"}
"""Folders that are linked as such, and the page that stands for each."""


class SourcePage(File):
    """A file of the repository that is a page, of whatever suffix."""

    def is_documentation_page(self) -> bool:
        return True


@cache
def notebook(uri: str) -> Rendered:
    """Returns a notebook of the repository as Markdown with its pictures."""
    return rendered(posixpath.basename(uri), loaded((ROOT / uri).read_text(encoding="utf-8")))


def linked_names(line: re.Match[str]) -> str:
    """Returns a line of links in which each name of dietlab leads to the reference."""
    return re.sub(r"`dl\.(\w+)`", r"[`dl.\1`][dl.\1]", line[0])


def is_page(uri: str) -> bool:
    """Returns whether a file of the repository becomes a page."""
    return uri.endswith((".md", ".ipynb", ".cff"))


def text_of(uri: str) -> str:
    """Returns the Markdown of a page made from a file.

    Links to folders become links to their pages, and ``[text][dl.NAME]`` a link to the reference, as are the
    names of a notebook's line of links.
    """
    if uri.endswith(".ipynb"):
        text = CALLED.sub(linked_names, notebook(uri).markdown)
    elif uri.endswith(".cff"):
        text = citation((ROOT / uri).read_text(encoding="utf-8"))
    else:
        text = (ROOT / uri).read_text(encoding="utf-8")

    def indexed(found: re.Match[str]) -> str:
        before, target = found.groups()
        folder = posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))
        return f"{before}{target.rstrip('/')}/{FOLDERS[folder]}" if folder in FOLDERS else found[0]

    text = re.sub(
        r"\]\[dl\.(\w+)\]", lambda found: f"][{site_names.linkable()[f'dietlab.{found[1]}']}]", text
    )
    return LINK.sub(indexed, text)


@cache
def linked() -> tuple[str, ...]:
    """Returns the files of the repository that can be reached by links, in the order of their names."""
    found, ahead = set[str](), [*START, *(path.relative_to(ROOT).as_posix() for path in notebooks())]
    while ahead:
        uri = ahead.pop()
        if uri in found:
            continue
        found.add(uri)
        if is_page(uri):
            for _, target in LINK.findall(text_of(uri)):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))
                if not path.startswith("..") and (ROOT / path).is_file():
                    ahead.append(path)
    return tuple(sorted(found))


def notebooks() -> list[Path]:
    """Returns the notebooks, in the order of their numbers."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


# --- generated pages -----------------------------------------------------------------------------


def generated() -> dict[str, str]:
    """Returns the Markdown of the pages that no file has, by their paths in the site."""
    reference = {f"reference/{part}.md": reference_page(part) for part in site_names.pages()}
    return {
        "reference/index.md": reference_index(),
        GALLERY: gallery(),
        **reference,
    }


def reference_index() -> str:
    """Returns the page that lists every name of ``import dietlab as dl``, and the parts with more."""
    tops = sorted(
        (name for names in site_names.pages().values() for name in names if name.top),
        key=lambda name: name.name.lower(),
    )
    rows = [f"| [`dl.{name.name}`][{name.identifier}] | {cell(name)} |" for name in tops]
    parts = [
        f"| [`dietlab.{part}`]({part}.md) | {site_names.module_summary(f'dietlab.{part}')} |"
        for part in site_names.pages()
    ]
    return "\n".join(
        [
            "# Reference",
            "",
            "Every public name, from the sources. Parameters have their types, docstrings their shapes and",
            "units, and *Raises* the errors; all derive from",
            "[`DietlabError`][dietlab.base.errors.DietlabError].",
            "Seconds are seconds in every value and table; shares are of 1, never percent.",
            "",
            "## After `import dietlab as dl`",
            "",
            "| name | what it is |",
            "|---|---|",
            *rows,
            "",
            "## Parts",
            "",
            "| part | what it is |",
            "|---|---|",
            *parts,
            "",
        ]
    )


def cell(name: site_names.Name) -> str:
    """Returns what a name is as a cell of a table."""
    return roles_removed(name.summary).replace("|", "\\|")


def roles_removed(text: str) -> str:
    """Returns a docstring's text with references as code."""
    return re.sub(r":\w+:`~?(?:[^`]*\.)?([^`]+)`", r"`\1`", text).replace("``", "`")


def reference_page(part: str) -> str:
    """Returns the page of a part of dietlab: a line for each name, then each name in full."""
    names = site_names.pages()[part]
    module = f"dietlab.{part}"
    lines = [
        f"# {module}",
        "",
        roles_removed(site_names.module_summary(module)),
        "",
        "| name | what it is |",
        "|---|---|",
        *(f"| [`{imported(name)}`][{name.identifier}] | {cell(name)} |" for name in names),
        "",
    ]
    for name in names:
        lines += [f"::: {name.identifier}", ""]
    return "\n".join(lines)


def imported(name: site_names.Name) -> str:
    """Returns how a name is written after ``import dietlab as dl``, or its whole path."""
    return f"dl.{name.name}" if name.top else name.path


def words(stem: str) -> str:
    """Returns a file name as words: `00_quickstart` is `00 quickstart`."""
    return stem.replace("_", " ").replace("-", " ")


def gallery() -> str:
    """Returns the page of all pictures: of the widgets, and of each notebook with a link to it."""
    lines = ["# Gallery", "", "## Widgets and cards", ""]
    folder = ROOT / "docs" / "widgets"
    for path in sorted(folder.glob("*.png")):
        if path.stem.endswith("-dark"):
            continue
        kind = words(path.stem.removesuffix("-light"))
        lines += [f"### {kind.capitalize()}", ""]
        if path.stem.endswith("-light"):
            dark = path.name.replace("-light", "-dark")
            lines += [f"![{kind}]({path.name}#only-light)", f"![{kind}, dark]({dark}#only-dark)", ""]
        else:
            lines += [f"![{kind}]({path.name})", ""]
    lines += ["## Figures of the notebooks", ""]
    for path in notebooks():
        page = notebook(f"notebooks/{path.name}")
        if page.pictures:
            lines += [
                f"### {words(path.stem).capitalize()}",
                "",
                f"[{page.title}](../../notebooks/{path.name})",
                "",
            ]
            lines += [
                f"![{words(path.stem)}](../../notebooks/{name}){{ loading=lazy }}" for name in page.pictures
            ]
            lines += [""]
    return "\n".join(lines)


def citation(text: str) -> str:
    """Returns the page on how to cite, from CITATION.cff."""
    value = yaml.safe_load(text)
    paper = value["preferred-citation"]
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    bibtex = "\n".join(
        [
            "@inproceedings{dietcode,",
            f"  title = {{{paper['title']}}},",
            f"  author = {{{' and '.join(names)}}},",
            f"  booktitle = {{{paper['collection-title']} ({paper['conference']['name']})}},",
            f"  year = {{{paper['year']}}},",
            "}",
            "",
            f"@software{{{value['title']},",
            f"  title = {{{value['title']}: {value['abstract']}}},",
            f"  author = {{{{{value['authors'][0]['name']}}}}},",
            f"  version = {{{value['version']}}},",
            f"  license = {{{value['license']}}},",
            "}",
        ]
    )
    return "\n".join(
        [
            "# How to cite",
            "",
            value["message"],
            "",
            f"> {', '.join(names)}: {paper['title']}. {paper['conference']['name']}.",
            "",
            "```bibtex",
            bibtex,
            "```",
            "",
            f"dietlab {value['version']} has the licence {value['license']}. The same as `CITATION.cff`:",
            "",
            "```yaml",
            text.rstrip(),
            "```",
            "",
        ]
    )


# --- mkdocs's events -----------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of a folder into the navigation where it names the folder."""
    config.nav = expanded(config.nav or [])
    return config


def expanded(entries: list[Any]) -> list[Any]:
    """Returns entries of the navigation, with the pages of a folder in place of its name."""
    found = list[Any]()
    for entry in entries:
        if isinstance(entry, dict):
            ((title, target),) = entry.items()
            found.append({title: expanded(target) if isinstance(target, list) else target})
        else:
            found += pages_of(entry)
    return found


def pages_of(folder: str) -> list[dict[str, str]]:
    """Returns title and path of each page of a folder, that of the folder first."""
    if folder == "notebooks/":
        titled = {"index.ipynb": "All notebooks", "words.ipynb": "Words", **labels()}
        order = [name for name in titled if (ROOT / "notebooks" / name).is_file()]
        return [{titled[name]: f"notebooks/{name}"} for name in order]
    if folder == "reference/":
        parts = [{part: f"reference/{part}.md"} for part in site_names.pages()]
        return [{"All names": "reference/index.md"}, *parts]
    if folder == "data/":
        pages = [uri for uri in linked() if uri.startswith("data/") and is_page(uri)]
        others = [{f"Data: {Path(uri).parent.name}": uri} for uri in pages if uri != "data/README.md"]
        return [{"Data": "data/README.md"}, *others]
    raise LookupError(f"the navigation names {folder}, a folder that this hook does not know")


@cache
def labels() -> dict[str, str]:
    """Returns what docs/workbench.md calls each notebook, by file name."""
    text = (ROOT / "docs" / "workbench.md").read_text(encoding="utf-8")
    return {name: label for label, name in re.findall(r"\[([^\]]+)\]\(\.\./notebooks/([^)]+)\)", text)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is linked, the pictures of notebooks and of widgets, and the generated pages."""
    for uri in linked():
        if is_page(uri):
            files.append(SourcePage.generated(config, uri, content=text_of(uri)))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / uri)))
    for path in notebooks():
        for name, picture in notebook(f"notebooks/{path.name}").pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for path in sorted((ROOT / "docs" / "widgets").glob("*.png")):
        uri = path.relative_to(ROOT).as_posix()
        if uri not in linked():
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri, text in generated().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Puts the HTML outputs of a notebook where they belong."""
    if page.file.src_uri.endswith(".ipynb"):
        for number, fragment in enumerate(notebook(page.file.src_uri).fragments):
            html = html.replace(placeholder(number), f'<div class="cell-output">{fragment}</div>')
    return html

"""Links out of the documentation: their form is checked and, on demand, whether they answer.

``python docs/links.py`` lists them and checks their form, without a network; ``--reach`` (``make links``)
also opens each of them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "*.cff", "docs/**/*.md", "data/**/*.md", "notebooks/*.ipynb")
URL = re.compile(r"https?://[^\s<>\"'`\]}|\\]+")
TRAILING = ".,;:!?*_"
"""Marks that end a sentence after a link, not the link."""

REGISTRIES = {"anaconda", "npmjs", "crates", "docker"}
"""Names of package indexes in a host; those of Python are in no file at all (tests/test_project.py).
Installing names packages: which index answers is up to the installer."""

TRACKING = re.compile(r"utm_\w+|fbclid|gclid|ref|source")
"""Parameters that tell a site where its reader comes from."""

SECONDS = 20.0
"""The time that a page may take to answer."""


def links(root: Path = ROOT) -> dict[str, list[str]]:
    """Returns the links in the pages of a repository, sorted, each with the pages that have it."""
    found: dict[str, list[str]] = {}
    for path in sorted({path for pattern in PAGES for path in root.glob(pattern)}):
        for url in sorted(set(urls(text_of(path)))):
            found.setdefault(url, []).append(path.relative_to(root).as_posix())
    return dict(sorted(found.items()))


def text_of(path: Path) -> str:
    """Returns the text of a page; of a notebook, that of its Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def urls(text: str) -> list[str]:
    """Returns the links in a text; a parenthesis that the link did not open ends it."""
    found = list[str]()
    for url in URL.findall(text):
        closing = next((n for n in range(len(url)) if url[: n + 1].count(")") > url[:n].count("(")), len(url))
        found.append(url[:closing].rstrip(TRAILING))
    return found


def fault(url: str) -> str:
    """Returns what is wrong with the form of a link; empty if nothing is."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if parts.scheme != "https":
        return "is not https"
    if "." not in host or parts.username or parts.port:
        return "has no plain host"
    if host.split(".")[-2] in REGISTRIES:
        return "is of a package index"
    if any(TRACKING.fullmatch(name) for name in parse_qs(parts.query, keep_blank_values=True)):
        return "tells where its reader comes from"
    return ""


def answer(url: str) -> str:
    """Returns what a link answers that is no page; empty for a page."""
    try:
        with urlopen(Request(url, headers={"User-Agent": "dietlab-links"}), timeout=SECONDS):
            return ""
    except HTTPError as error:
        return f"answers {error.code} {error.reason}"
    except (URLError, OSError, ValueError) as error:
        return f"cannot be reached: {getattr(error, 'reason', error)}"


def report(found: Mapping[str, Iterable[str]], checks: Iterable[Callable[[str], str]]) -> tuple[str, int]:
    """Returns a line for each link, and how many are at fault by one of the checks."""
    lines, wrong, checks = list[str](), 0, tuple(checks)
    for url, pages in found.items():
        told = next((told for check in checks if (told := check(url))), "")
        wrong += bool(told)
        lines.append(f"{'FAULT' if told else 'ok   '} {url} {told or 'is fine'} ({', '.join(pages)})")
    return "\n".join([*lines, f"{len(lines)} links, {wrong} at fault"]), wrong


if __name__ == "__main__":
    text, wrong = report(links(), (fault, answer) if "--reach" in sys.argv[1:] else (fault,))
    print(text)
    sys.exit(1 if wrong else 0)

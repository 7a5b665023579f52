"""Links out of the documentation are well-formed; whether they answer is asked by `make links` alone."""

from __future__ import annotations

import json
from pathlib import Path

import links
import pytest
from conftest import ROOT


def test_links_of_the_documentation_are_well_formed() -> None:
    found = links.links()
    assert found, "no page has a link"
    text, wrong = links.report(found, [links.fault])
    assert wrong == 0, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [a](https://a.org/x) and <https://b.org>.", ["https://a.org/x", "https://b.org"]),
        ("(https://a.org/x_(y)), then", ["https://a.org/x_(y)"]),
        ("`https://a.org/x`; https://a.org/y.", ["https://a.org/x", "https://a.org/y"]),
        ("no link: a.org, file.md", []),
    ],
)
def test_links_are_found_in_a_text(text: str, expected: list[str]) -> None:
    assert links.urls(text) == expected


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://a.org/page?q=1#place", ""),
        ("http://a.org", "is not https"),
        ("https://localhost/x", "has no plain host"),
        ("https://a.org:8080/x", "has no plain host"),
        ("https://me@a.org/x", "has no plain host"),
        ("https://registry.npmjs.example/x", "is of a package index"),
        ("https://a.org/?utm_source=b", "tells where its reader comes from"),
    ],
)
def test_fault_of_a_link_is_told(url: str, told: str) -> None:
    assert links.fault(url) == told


def test_links_are_listed_with_their_pages(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("[a](https://a.org) [b](http://b.org)")
    (tmp_path / "notebooks").mkdir()
    cells = [
        {"cell_type": "markdown", "source": ["[a](https://a.org)\n", "text"]},
        {"cell_type": "code", "source": ["'https://code.org'"]},
    ]
    (tmp_path / "notebooks" / "01.ipynb").write_text(json.dumps({"cells": cells}))
    found = links.links(tmp_path)
    assert found == {"http://b.org": ["README.md"], "https://a.org": ["README.md", "notebooks/01.ipynb"]}
    text, wrong = links.report(found, [links.fault])
    assert wrong == 1
    assert text.splitlines() == [
        "FAULT http://b.org is not https (README.md)",
        "ok    https://a.org is fine (README.md, notebooks/01.ipynb)",
        "2 links, 1 at fault",
    ]


def test_a_link_that_does_not_answer_is_told() -> None:
    """The loopback address refuses: no network is needed."""
    assert links.answer("https://127.0.0.1:9/").startswith("cannot be reached: ")


def test_making_links_is_a_target_of_make() -> None:
    assert "\nlinks: " in (ROOT / "Makefile").read_text(encoding="utf-8")

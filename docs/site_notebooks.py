"""A notebook as Markdown: its texts, its code and the outputs that it was saved with. Nothing runs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any


@dataclass
class Rendered:
    """A notebook's Markdown, with what stands beside it.

    ``pictures`` are bytes by file name; ``fragments`` is the HTML that takes the place of
    ``placeholder(i)`` after Markdown was converted, since Markdown would change it.
    """

    title: str
    markdown: str = ""
    pictures: dict[str, bytes] = field(default_factory=dict)
    fragments: list[str] = field(default_factory=list)


def placeholder(number: int) -> str:
    """Returns what stands for the HTML output of that number until Markdown was converted."""
    return f'<div data-output="{number}"></div>'


def joined(lines: str | list[str]) -> str:
    """Returns a text of a notebook, which may be saved as lines."""
    return lines if isinstance(lines, str) else "".join(lines)


def fenced(text: str, language: str) -> str:
    """Returns a block of code or of output, in a fence longer than any inside."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def rendered(name: str, notebook: dict[str, Any]) -> Rendered:
    """Returns a notebook's page; ``name`` is its file name, after which those of its pictures are called."""
    texts = [joined(cell["source"]) for cell in notebook["cells"]]
    titles = re.findall(r"^# (.+)$", "\n".join(texts), re.MULTILINE)
    page = Rendered(titles[0] if titles else name)
    blocks = list[str]()
    for cell, text in zip(notebook["cells"], texts, strict=True):
        if cell["cell_type"] != "code":
            blocks.append(text)
        elif text.strip():
            blocks.append(fenced(text, "python"))
        blocks += outputs(PurePosixPath(name).stem, cell.get("outputs", []), page)
    page.markdown = "\n\n".join(blocks) + "\n"
    return page


def outputs(stem: str, saved: list[dict[str, Any]], page: Rendered) -> Iterator[str]:
    """Yields the outputs of a cell, each in the richest form that a page without scripts shows."""
    for output in saved:
        data = output.get("data", {})
        if "image/png" in data:
            file = f"{stem}-{len(page.pictures) + 1}.png"
            page.pictures[file] = base64.b64decode(joined(data["image/png"]))
            yield f"![{caption(joined(data.get('text/plain', '')))}]({file})"
        elif "text/html" in data:
            # The style of a table would hold for the whole page.
            page.fragments.append(
                re.sub(r"<style scoped>.*?</style>", "", joined(data["text/html"]), flags=re.S)
            )
            yield placeholder(len(page.fragments) - 1)
        elif text := joined(output.get("text", data.get("text/plain", ""))).strip("\n"):
            yield fenced(text, "text")


def caption(text: str) -> str:
    """Returns a picture's text for who does not see it: the first line of its plain form, if it is words."""
    line = text.strip().split("\n")[0]
    return "Figure" if not line or line.startswith("<") else re.sub(r"[\[\]]", "", line)


def loaded(text: str) -> dict[str, Any]:
    """Returns the content of a notebook's file."""
    value: dict[str, Any] = json.loads(text)
    return value

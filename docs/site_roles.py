"""Docstrings of dietlab as the site's Markdown: references to public names become links, others code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

import site_names

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`(~?)([^`]+)`")
GROUP = re.compile(r"^( *)(\w+(?:, \w+)+)(: .*(?:\n\1 +.*)*)$", re.MULTILINE)
"""Parameters that are described together, as ``low, high: the bounds``; griffe knows one at a time."""

LITERAL = re.compile(r"(?<=\S)::(?=\n\n +)")
"""The end of a paragraph before a block of code, which Markdown writes with one colon."""


def markdown_of(text: str, module: str) -> str:
    """Returns a docstring of a module with its roles as links and code."""

    def link(found: re.Match[str]) -> str:
        short, target = found.groups()
        path = linked(target, module)
        shown = target.rpartition(".")[2] if short else target
        return f"[`{shown}`][{path}]" if path else f"`{shown}`"

    def apart(found: re.Match[str]) -> str:
        indent, names, description = found.groups()
        return "\n".join(f"{indent}{name}{description}" for name in names.split(", "))

    head, args, tail = text.partition("\nArgs:\n")
    sections = re.split(r"(?=\n\n\S)", tail, maxsplit=1)
    text = "".join([head, args, GROUP.sub(apart, sections[0]), *sections[1:]])
    return LITERAL.sub(":", ROLE.sub(link, text.replace("``", "`")))


def linked(target: str, module: str) -> str | None:
    """Returns the reference's path of a name as a docstring of ``module`` writes it, or None."""
    ways = site_names.linkable()
    return ways.get(target) or ways.get(f"{module}.{target}")


class Roles(griffe.Extension):
    """Rewrites every docstring before mkdocstrings reads it.

    Fields of dataclasses without a text of their own are left out: the signature has them.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrites those of a whole package, once it is loaded and dataclasses have their signatures."""
        self._rewrite(pkg)

    def _rewrite(self, obj: griffe.Object) -> None:
        if obj.docstring:
            obj.docstring.value = markdown_of(obj.docstring.value, obj.module.path)
        if isinstance(obj, griffe.Class) and "dataclass" in obj.labels:
            shown = {parameter.name for parameter in obj.parameters}
            for name in shown & {*obj.members}:
                if obj.members[name].is_attribute and not obj.members[name].has_docstring:
                    del obj.members[name]
        for member in obj.members.values():
            if not member.is_alias:
                self._rewrite(member)

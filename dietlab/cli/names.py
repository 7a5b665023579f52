"""Names on the command line: those that dietlab has, and MODULE:NAME of others' code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from dietlab.base.registry import Registry, import_named


def words(text: str) -> list[str]:
    """Returns the words of ``"a,b"``, without empty and repeated ones."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def named_words(registry: Registry[Any], text: str) -> list[str]:
    """Returns the words of ``"a,MODULE:NAME"``; MODULE is imported, and the registry then has NAME."""
    names = words(text)
    import_here(names)
    registry.take(names)
    return names


def import_here(names: Sequence[str]) -> None:
    """Adds the current folder to the end of Python's path if one of the names is MODULE:NAME."""
    if any(":" in name for name in names) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def import_modules(named: Sequence[str]) -> None:
    """Imports the ``MODULE`` or ``MODULE:NAME`` of ``--import``."""
    if named and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for text in named:
        import_named(text)


class Named(click.ParamType):
    """A name in a registry, or MODULE:NAME."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.name, self._registry = "NAME", registry

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self._registry)}|MODULE:NAME]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import_here([value])
        self._registry.named(value)
        return str(value)

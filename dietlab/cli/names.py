"""Names on the command line: of what comes with dietlab, and MODULE:NAME of what others bring."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from dietlab.base.registry import Registry, import_named


def words(text: str) -> list[str]:
    """Returns ``"a,b"`` as a list without empty and repeated words."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def named_words(registry: Registry[Any], text: str) -> list[str]:
    """Returns ``"a,MODULE:NAME"`` as a list; what a module has is imported, and known from then on."""
    names = words(text)
    import_here(names)
    registry.take(names)
    return names


def import_here(names: Sequence[str]) -> None:
    """Lets modules be imported from the current folder, after all others, if one of the names needs it."""
    if any(":" in name for name in names) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def import_modules(named: Sequence[str]) -> None:
    """Imports what ``--import`` names: ``MODULE`` or ``MODULE:NAME``."""
    if named and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for text in named:
        import_named(text)


class Named(click.ParamType):
    """A name that a registry knows, or MODULE:NAME."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.name, self._registry = "NAME", registry

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self._registry)}|MODULE:NAME]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import_here([value])
        self._registry.named(value)
        return str(value)

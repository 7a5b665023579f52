"""Names of a package that are loaded when they are first used.

A package lists its names once, below ``if TYPE_CHECKING:``, where type checkers and editors also read them.
Each line is ``from MODULE import NAME as NAME``, or ``from PACKAGE import *`` for all lazy names of PACKAGE.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: Path) -> dict[str, str]:
    """Returns the lazy names of a package and the modules that define them.

    Args:
        package: the package's ``__init__.py``, which is read and not imported.
    """
    found: dict[str, str] = {}
    for line in package.read_text(encoding="utf-8").splitlines():
        match line.split():
            case ["from", module, "import", name, "as", same] if name == same:
                found[name] = module
            case ["from", module, "import", "*", *_]:
                below = package.parent.joinpath(*module.split(".")[1:], "__init__.py")
                found |= dict.fromkeys(lazy_names(below), module)
    return found


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package. This function loads a name and keeps it in the package.

    Args:
        homes: the module of each name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            from dietlab.base.errors import closest

            hint = closest(name, homes)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint and f'. {hint}'}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load

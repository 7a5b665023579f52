"""Takes what was entered in this process to its worker processes, which no file tells of it.

What an importable module has is taken by its name, and imported there, from the folders of this process.
What a script or a notebook defines itself is taken whole, with ``cloudpickle``. Each object is made when a
worker first asks for it: the libraries of a contender are loaded in the process of that contender only.
"""

from __future__ import annotations

import io
import pickle
import sys
from base64 import b64decode, b64encode
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from dietlab.base.errors import DietlabError
from dietlab.base.registry import Deferred, Registry, tell

PYTHON = "{}.{}".format(*sys.version_info)
"""The version of Python that can make what was taken whole."""


def carried() -> Mapping[str, Any]:
    """Returns what was entered in this process as a JSON value, for :func:`enter`; empty if nothing was.

    The value is the same object as long as nothing else is entered. What cannot be taken stands in it with
    the reason, which the process tells that asks for it.
    """
    return _carried(Registry.changes)


@lru_cache(1)
def _carried(changes: int) -> Mapping[str, Any]:
    entered = {
        registry.group: {name: _entry(value) for name, value in registry.entered.items()}
        for registry in Registry.all
        if registry.travels and registry.entered
    }
    return {"python": PYTHON, "path": sys.path, "entered": entered} if entered else {}


def enter(value: Mapping[str, Any]) -> None:
    """Enters in this process what another process entered; this replaces what that process sent before.

    Args:
        value: what :func:`carried` returned there.
    """
    sys.path += [folder for folder in value.get("path", ()) if folder not in sys.path]
    tell(
        {
            group: {name: _Carried(value["python"], entry) for name, entry in values.items()}
            for group, values in value.get("entered", {}).items()
        }
    )


def require_carried(registry: Registry[Any], name: str) -> None:
    """Checks that what a name stands for can be sent to worker processes.

    Args:
        registry: that knows the name.
        name: entered in this process, or known without.

    Raises:
        DietlabError: if it cannot be taken to another process.
    """
    entry = carried().get("entered", {}).get(registry.group, {}).get(name, {})
    _require_pickled(f"{registry.noun} {name!r}", entry)


REMEDY = "Define it in a module, and import it from there."


def _require_pickled(what: str, entry: Mapping[str, str]) -> None:
    """Raises the error of the process that could not pickle an object."""
    if "failed" in entry:
        raise DietlabError(f"{what} can be taken to other processes", entry["failed"], REMEDY)


class _Carried(Deferred):
    """An object of another process, unpickled when it is first asked for.

    Args:
        python: the version of Python that pickled it.
        entry: the pickle in base64, as ``pickled``, or as ``failed`` the reason why there is none.
    """

    def __init__(self, python: str, entry: Mapping[str, str]) -> None:
        super().__init__(self._made)
        self._python, self.entry = python, entry

    def _made(self) -> object:
        _require_pickled("it", self.entry)
        if self._python != PYTHON:
            raise DietlabError(
                f"what was entered is taken to a process of the same Python, {self._python}",
                PYTHON,
                "Put it into a package, and install that on both sides.",
            )
        return pickle.loads(b64decode(self.entry["pickled"]))


def _entry(value: object) -> Mapping[str, str]:
    if isinstance(value, _Carried):
        return value.entry
    try:
        return {"pickled": b64encode(_pickled(value)).decode()}
    except Exception as error:  # whatever the code of others raises
        return {"failed": f"{type(error).__name__}: {error}"}


def _pickled(value: object) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        # Before Python 3.12 a cached property has a lock, which cannot be taken along.
        dispatch_table: ClassVar[Any] = ChainMap(
            {cached_property: _reduced}, cloudpickle.Pickler.dispatch_table
        )

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def _reduced(value: cached_property[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return _property, (value.func, value.attrname)


def _property(func: Callable[[Any], Any], name: str | None) -> cached_property[Any]:
    made = cached_property(func)
    made.attrname = name
    return made

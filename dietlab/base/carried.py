"""Sends objects that were entered in this process's registries to its worker processes.

An object of an importable module is sent by name and imported there, with this process's ``sys.path``. An
object that a script or a notebook defines is pickled whole, by ``cloudpickle``. A worker unpickles an object
when it first uses it, so that only a contender's own process loads the contender's libraries.
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
from dietlab.base.registry import Deferred, Registry, replace_entered

PYTHON = "{}.{}".format(*sys.version_info)
"""This process's version of Python; only the same version can read its pickled functions."""


def carried() -> Mapping[str, Any]:
    """Returns all objects entered in this process, as a JSON value for :func:`enter`; empty if there are
    none.

    Calls return the same value until another object is entered. If an object cannot be pickled, the value has
    the reason in its place; a process that uses the object raises an error with this reason.
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
    """Replaces all entered objects by those of another process; ``value`` is the result of its
    :func:`carried`."""
    sys.path += [folder for folder in value.get("path", ()) if folder not in sys.path]
    replace_entered(
        {
            group: {name: _Carried(value["python"], entry) for name, entry in values.items()}
            for group, values in value.get("entered", {}).items()
        }
    )


def require_carried(registry: Registry[Any], name: str) -> None:
    """Checks that the object entered as ``name`` can be sent to worker processes."""
    entry = carried().get("entered", {}).get(registry.group, {}).get(name, {})
    _require_pickled(f"{registry.noun} {name!r}", entry)


REMEDY = "Define it in a module, and import it from there."


def _require_pickled(what: str, entry: Mapping[str, str]) -> None:
    """Raises an error if the object could not be pickled where it was entered."""
    if "failed" in entry:
        raise DietlabError(f"{what} must be fit to send to other processes", entry["failed"], REMEDY)


class _Carried(Deferred):
    """An object of another process, unpickled on first use.

    Args:
        python: the version of Python that pickled it.
        entry: the object's part of the value of :func:`carried`: under ``pickled`` the pickle in base64, or
            under ``failed`` the reason why there is none.
    """

    def __init__(self, python: str, entry: Mapping[str, str]) -> None:
        super().__init__(self._made)
        self._python, self.entry = python, entry

    def _made(self) -> object:
        _require_pickled("the object", self.entry)
        if self._python != PYTHON:
            raise DietlabError(
                f"objects can only be sent to processes of the same Python version, {self._python}",
                PYTHON,
                "Put the object into a package, and install the package on both sides.",
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
        # Before Python 3.12 a cached property has a lock, which cannot be pickled.
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

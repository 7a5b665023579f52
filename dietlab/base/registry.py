"""Operators, strategies, cost models, contenders and targets by name.

A :class:`Registry` has the names that come with dietlab, those entered in this process
(``STRATEGIES["climb"] = HillClimb``), and those of installed packages (entry points of its group).

A name from a *person*, in an argument or on the command line, may also be ``MODULE:NAME``, as in
``climbing:HillClimb``. Such a name imports the module (:meth:`Registry.named`). A name from a *file* is only
looked up (:meth:`Registry.found`): reading a file imports no module that it names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from types import FunctionType
from typing import Any, ClassVar, Generic, TypeVar

from dietlab.base.errors import DietlabError, closest

Value = TypeVar("Value")

NAME = re.compile(r"[\w.+-]+(:[\w.]+)?")
"""Names that can stand in lists with commas, in files and in tables."""


class Deferred:
    """An object that ``load`` makes when it is first used."""

    def __init__(self, load: Callable[[], object]) -> None:
        self.load = load


class Registry(MutableMapping[str, Value], Generic[Value]):
    """Objects by name: dietlab's own first, then those entered, then those of installed packages.

    Args:
        noun: the noun for an object in errors, with its article, as in ``"a strategy"``.
        group: the group of entry points of installed packages.
        own: dietlab's own objects, in the form that users enter; an entry point is loaded on first use.
        taken: a function that converts an entered object to a value of the registry, or raises ``error``.
        error: the class of its errors.
        reserved: names that cannot be entered, because arguments that name these objects give them another
            meaning.
        travels: whether entered objects are sent to worker processes.
        also: a function that returns a value's name in files, such as an operator's ``operator``. A value
            entered as ``MODULE:NAME`` is then found by this name, too. None: it has no such name.
    """

    all: ClassVar[list[Registry[Any]]] = []
    """Every registry, in the order of the stages."""

    changes: ClassVar[int] = 0
    """The number of changes to all registries so far."""

    def __init__(
        self,
        noun: str,
        group: str,
        own: Mapping[str, object],
        taken: Callable[[str, object], Value],
        error: type[DietlabError],
        *,
        reserved: Collection[str] = (),
        travels: bool = False,
        also: Callable[[Value], object] = lambda value: None,
    ) -> None:
        self.noun, self.group, self.own, self.travels = noun, group, own, travels
        self._taken, self._error, self._reserved, self._also = taken, error, reserved, also
        self.entered: dict[str, object] = _ENTERED.setdefault(group, {})
        Registry.all.append(self)

    def __getitem__(self, name: str) -> Value:
        """Returns the object of a name.

        Raises:
            KeyError: for an unknown name; the error of :meth:`found` says more.
            DietlabError: if it cannot be loaded.
        """
        if name in self.own:
            known = self.own[name]
            return self._taken(name, known.load() if isinstance(known, EntryPoint) else known)
        if name in self.entered:
            value = self.entered[name]
            if isinstance(value, Deferred):
                value = self.entered[name] = self._loaded(
                    name, "from the process that entered it", value.load
                )
            return self._taken(name, value)
        point = entry_points().get(self.group, {})[name]
        return self._taken(name, self._loaded(name, f"from {point.value}", point.load))

    def __setitem__(self, name: str, value: object) -> None:
        """Enters an object by a name, in this process and in the worker processes that it starts.

        Raises:
            DietlabError: if the name is one of dietlab's own, or the object is of another kind.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            rule = f"the name of {self.noun} must consist of letters, digits and any of -, _, . and +"
            raise self._error(rule, repr(name))
        if name in self.own or name in self._reserved:
            raise self._error(
                f"the name of {self.noun} must differ from dietlab's own", repr(name), "Choose another name."
            )
        self._taken(name, value)
        self.entered[name] = value
        Registry.changes += 1

    def __delitem__(self, name: str) -> None:
        del self.entered[name]
        Registry.changes += 1

    def __contains__(self, name: object) -> bool:
        points = entry_points().get(self.group, {})
        return isinstance(name, str) and (name in self.own or name in self.entered or name in points)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.own, *entry_points().get(self.group, {}), *self.entered)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def found(self, name: object) -> Value:
        """Returns the object that a file names.

        Raises:
            DietlabError: for an unknown name, for ``MODULE:NAME`` unless a person named it or its module
                before, or if an installed package cannot be loaded.
        """
        if isinstance(name, str) and name in self:
            return self[name]
        module, _, place = name.partition(":") if isinstance(name, str) else ("", "", "")
        if place and module in _TRUSTED:
            value = _imported(module, place, self.noun, self._error)
            # Objects that the module imported from elsewhere are refused: they could be any function.
            if self.suits(value) and getattr(value, "__module__", "").split(".")[0] in (
                module.split(".")[0],
                "dietlab",
            ):
                return self.named(name)
        raise self._error(f"{self.noun} is one of {', '.join(self)}", repr(name), self._remedy(name))

    def named(self, name: object) -> Value:
        """Returns the object that a person names; for ``MODULE:NAME``, imports the module and enters the
        object.

        Raises:
            DietlabError: for an unknown name, a module that cannot be imported, or an object of another kind.
        """
        module, colon, place = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not colon:
            return self.found(name)
        value = _imported(module, place, self.noun, self._error)
        if self.entered.get(str(name)) is not value:
            self[str(name)] = value
        found = self[str(name)]
        also = self._also(found)
        if isinstance(also, str) and also not in self.own and self.entered.get(also) is not value:
            self[also] = value
        return found

    def suits(self, value: object) -> bool:
        """Returns whether an object can be entered. Functions never suit: they could be anything."""
        try:
            self._taken("", value)
        except self._error:
            return False
        return not isinstance(value, FunctionType)

    def take(self, names: Iterable[object]) -> None:
        """Enters each ``MODULE:NAME`` in a person's list of names; other names are ignored."""
        for name in () if isinstance(names, str) else names:
            if isinstance(name, str) and ":" in name:
                self.named(name)

    @property
    def added(self) -> dict[str, str]:
        """The names that are not dietlab's own, each with its origin."""
        points = entry_points().get(self.group, {})
        installed = {name: f"entry point {point.value}" for name, point in points.items()}
        found = {**installed, **dict.fromkeys(self.entered, "entered in this process")}
        return {name: place for name, place in found.items() if name not in self.own}

    def _loaded(self, name: str, place: str, load: Callable[[], object]) -> object:
        try:
            return load()
        except Exception as error:  # whatever the code of others raises
            raise self._error(
                f"{self.noun} {name!r} must be loadable {place}", f"{type(error).__name__}: {error}"
            ) from error

    def _remedy(self, name: object) -> str:
        module, colon, _ = name.partition(":") if isinstance(name, str) else ("", "", "")
        if colon:
            return (
                "A file has this name, and reading a file imports nothing: import it by "
                f"`dietlab --import {module} ...`, or enter the object by this name in Python."
            )
        return closest(str(name), self) or (
            "For your own, write MODULE:NAME, enter it where it is used (`dietlab --import MODULE ...`), or "
            f"make it an entry point of the group {self.group}."
        )


_ENTERED: dict[str, dict[str, object]] = {}
"""Objects entered in this process, by group and name; the group's registry may be made later."""


def replace_entered(entered: Mapping[str, Mapping[str, object]]) -> None:
    """Replaces all entered objects of this process by those of ``entered``, by group and name."""
    for group in {*_ENTERED, *entered}:
        values = _ENTERED.setdefault(group, {})
        values.clear()
        values.update(entered.get(group, {}))
    Registry.changes += 1


_TRUSTED: set[str] = set()
"""Modules that a person imported: files may name their objects."""


@lru_cache(1)
def entry_points() -> Mapping[str, Mapping[str, EntryPoint]]:
    """Returns the entry points of all installed packages in dietlab's groups, by group and name."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for package in distributions():
        for point in package.entry_points:
            if point.group.startswith("dietlab."):
                found.setdefault(point.group, {}).setdefault(point.name, point)
    return found


def import_named(text: str) -> None:
    """Imports a module that a person named and, for ``MODULE:NAME``, enters the object. From then on, files
    may name the module's objects.

    Args:
        text: a module that enters its objects itself, such as ``climbing``, or a module with the object to
            enter, such as ``climbing:HillClimb``.

    Raises:
        DietlabError: if it cannot be imported, or the object suits no registry.
    """
    module, _, place = text.partition(":")
    value = _imported(module, place, "an import", DietlabError)
    _TRUSTED.add(module)
    if place:
        suiting = [registry for registry in Registry.all if registry.suits(value)]
        if not suiting:
            kinds = ", ".join(registry.noun for registry in Registry.all)
            raise DietlabError(f"an import must be {kinds}, or a module that enters one", repr(text))
        suiting[0].named(text)


def _imported(module: str, place: str, noun: str, error: type[DietlabError]) -> object:
    """Returns a module, or the object at a ``place`` in it."""
    try:
        value: object = import_module(module)
    except Exception as cause:  # whatever the code of others raises
        missing = isinstance(cause, ModuleNotFoundError) and cause.name in (module, module.partition(".")[0])
        raise error(
            f"the module {module!r} of {noun} must be importable",
            f"{type(cause).__name__}: {cause}",
            "Is its folder the current one, on PYTHONPATH, or installed?" if missing else "",
        ) from cause
    for part in filter(None, place.split(".")):
        if not hasattr(value, part):
            known = [name for name in dir(value) if not name.startswith("_")]
            file = getattr(sys.modules[module], "__file__", module)
            raise error(f"{file} must define {noun}", repr(place), closest(part, known))
        value = getattr(value, part)
    return value

"""The targets: a target is a kind of processor with everything that is particular to it.

A stage asks a target for its part (:func:`part`), whose protocol stands in the stage: here
:class:`HardwareTarget`. Nothing of a target is imported before. ``dietlab/targets`` has a folder for each,
with a module for each part. An installed package adds a target by an entry point of the group
``dietlab.targets``, such as ``npu = "my_npu"``: a package of the same form, or one module that has all parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dietlab.base.contracts import shown
from dietlab.base.errors import HardwareError
from dietlab.base.registry import Registry
from dietlab.machine.knob import Knob
from dietlab.machine.limits import Limits

if TYPE_CHECKING:
    from dietlab.machine.ceilings import Ceiling
    from dietlab.machine.description import Hardware

PACKAGE = "dietlab.targets"
"""The package of the targets that come with dietlab, and the group of entry points of others."""

Part = Literal["machine", "space", "lowering", "device", "cost", "contenders"]


class HardwareTarget(Protocol):
    """The part of a target that describes its processors."""

    @property
    def LIMITS(self) -> type[Limits]:
        """The class of their limits."""

    @property
    def KNOBS(self) -> tuple[Knob, ...]:
        """The figures that an explorer turns."""

    def detect(self, *, measure: bool, device: int) -> Hardware:
        """Returns a processor of this machine; the arguments are those of
        :meth:`~dietlab.machine.Hardware.detect`."""

    def ceilings(self, hardware: Hardware) -> Sequence[Ceiling]:
        """Returns the bandwidths of the processor's caches that are known, the slowest first."""

    def measured(self, hardware: Hardware) -> Hardware:
        """Returns the processor, which is here, with its peaks measured if they do not follow from what the
        system tells."""


def hardware_target(name: str) -> HardwareTarget:
    """Returns the part of a target that describes its processors."""
    found: HardwareTarget = part(name, "machine")
    return found


def part(name: str, stage: Part) -> Any:
    """Returns what a target tells a stage.

    Raises:
        HardwareError: if there is no such target.
    """
    if not isinstance(name, str):  # as a damaged file may have it
        TARGETS.found(name)
    return _part(name, stage, Registry.changes)


@lru_cache
def _part(name: str, stage: Part, changes: int) -> Any:
    module = TARGETS.found(name)
    return import_module(f"{module.__name__}.{stage}") if hasattr(module, "__path__") else module


def _own() -> Mapping[str, EntryPoint]:
    package = find_spec(PACKAGE)
    folders = package.submodule_search_locations if package else None
    names = [found.name for found in iter_modules(folders)]
    return {name: EntryPoint(name, f"{PACKAGE}.{name}", PACKAGE) for name in names}


def _target(name: str, value: object) -> ModuleType:
    if not isinstance(value, ModuleType):
        raise HardwareError(f"the target {name} is a package, or a module, with its parts", shown(value))
    return value


TARGETS: Registry[ModuleType] = Registry("the target", PACKAGE, _own(), _target, HardwareError, travels=True)
"""The module or package of each target by name."""

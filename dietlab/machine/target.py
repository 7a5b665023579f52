"""The targets: a target is a kind of processor with everything that is particular to it.

A stage gets a target's part from :func:`part`, which imports it on demand. The stage defines the part's
protocol, here :class:`HardwareTarget`. ``dietlab/targets`` has a folder for each target and a module for each
part. An installed package adds a target by an entry point of the group ``dietlab.targets``, such as
``npu = "my_npu"``: a package of the same form, or one module with all parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from dietlab.machine.limits import Limits
from dietlab.machine.roofline import Ceiling

if TYPE_CHECKING:
    from dietlab.machine.description import Hardware

PACKAGE = "dietlab.targets"
"""The package of dietlab's own targets, and the group of the entry points that add others."""

Part = Literal["machine", "space", "lowering", "device", "cost", "contenders"]


@dataclass(frozen=True)
class Knob:
    """A number that describes a processor, such as its cores, and that an explorer can vary.

    Args:
        field: the name of a field of :class:`~dietlab.machine.Hardware` or of its limits.
        label: its name for people.
        values: a function that returns the values to choose from, given the real value.
    """

    field: str
    label: str
    values: Callable[[int], Sequence[int]]


def times(*factors: float) -> Callable[[int], Sequence[int]]:
    """Returns a function that multiplies a value by each of these factors and rounds the results, to at least
    1."""
    return lambda real: sorted({max(1, round(real * factor)) for factor in factors})


def some_cores(real: int) -> Sequence[int]:
    """Returns the powers of two up to 64, the real number of cores, and its double."""
    return sorted({1, 2, 4, 8, 16, 32, 64, real, 2 * real})


SIZES = times(1 / 4, 1 / 2, 1, 2, 4)
"""The values to choose from for a size: a quarter to four times the real size."""


class HardwareTarget(Protocol):
    """The part of a target that describes its processors."""

    @property
    def LIMITS(self) -> type[Limits]:
        """The class of the processors' limits."""

    @property
    def KNOBS(self) -> tuple[Knob, ...]:
        """The numbers of a processor that an explorer can vary."""

    def detect(self, *, measure: bool, device: int) -> Hardware:
        """Returns a processor of this machine, as :meth:`~dietlab.machine.Hardware.detect`."""

    def ceilings(self, hardware: Hardware) -> Sequence[Ceiling]:
        """Returns the known bandwidths of the processor's caches, the slowest first."""

    def measured(self, hardware: Hardware) -> Hardware:
        """Returns this machine's processor with its peaks, measured or computed from its description."""


def hardware_target(name: str) -> HardwareTarget:
    """Returns the part of a target that describes its processors."""
    found: HardwareTarget = part(name, "machine")
    return found


def part(name: str, stage: Part) -> Any:
    """Returns a target's part for a stage, as a module."""
    if not isinstance(name, str):  # from a damaged file; it cannot be a key of the cache
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
        raise HardwareError(f"the target {name} must be a package or module with its parts", shown(value))
    return value


TARGETS: Registry[ModuleType] = Registry("the target", PACKAGE, _own(), _target, HardwareError, travels=True)
"""The module or package of each target by name."""

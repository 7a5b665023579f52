"""The targets: a target is a kind of processor with everything that is particular to it.

A stage asks a target for its part (:func:`part`), whose protocol stands in the stage: here
:class:`HardwareTarget`. Nothing of a target is imported before. ``dietlab/targets`` has a folder for each,
with a module for each part. An installed package adds a target by an entry point of the group
``dietlab.targets``, such as ``npu = "my_npu"``: a package of the same form, or one module that has all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dietlab.errors import HardwareError, closest
from dietlab.hardware.knob import Knob
from dietlab.hardware.limits import Limits

if TYPE_CHECKING:
    from dietlab.hardware.description import Hardware

TARGETS = "dietlab.targets"
"""The package of the targets that come with dietlab, and the group of entry points of others."""

Part = Literal["hardware", "space", "lower", "timing", "cost", "evaluation"]


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
        :meth:`~dietlab.hardware.Hardware.detect`."""

    def measured(self, hardware: Hardware) -> Hardware:
        """Returns the processor, which is here, with its peaks measured if they do not follow from what the
        system tells."""


def hardware_target(name: str) -> HardwareTarget:
    """Returns the part of a target that describes its processors."""
    found: HardwareTarget = part(name, "hardware")
    return found


@lru_cache
def part(name: str, stage: Part) -> Any:
    """Returns what a target tells a stage.

    Raises:
        HardwareError: if there is no such target.
    """
    known = known_targets()
    if name not in known:
        raise HardwareError(f"the target is {' or '.join(known)}", repr(name), closest(name, known))
    module = import_module(known[name])
    return import_module(f"{known[name]}.{stage}") if hasattr(module, "__path__") else module


@lru_cache(1)
def known_targets() -> Mapping[str, str]:
    """Returns the module or package of each target by name, those that come with dietlab first."""
    package = find_spec(TARGETS)
    folders = package.submodule_search_locations if package else None
    own = {found.name: f"{TARGETS}.{found.name}" for found in iter_modules(folders)}
    others = {found.name: found.value for found in entry_points(group=TARGETS) if found.name not in own}
    return {**own, **others}

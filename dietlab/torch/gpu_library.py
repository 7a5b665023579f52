"""Libraries for a GPU, opened in this process, and the devices that run them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dietlab.base.errors import DietlabError
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements
from dietlab.torch.places import place_of
from dietlab.tuning import load
from dietlab.tuning.manifest import read_manifest
from dietlab.tuning.operator import Operator

KIND = "cuda"
"""The kind of processor (:attr:`~dietlab.machine.Hardware.kind`) of a GPU's studies."""


@dataclass(frozen=True)
class DeviceLibrary:
    """A library for a GPU, opened in this process.

    Args:
        devices: by a device's index, whether its kernels run there; found out at the first call on each. A
            tensor on the CPU has the index -1.
    """

    operator: Operator
    run: Callable[..., object]
    dtype: torch.dtype
    devices: dict[int, bool]

    def runs_on(self, index: int) -> bool:
        """Returns whether its kernels run on a device.

        Warns:
            UserWarning: the first time, if they do not.
        """
        if (known := self.devices.get(index)) is not None:
            return known
        lacking = lacking_on(index, arch_of(self.operator.manifest))
        self.devices[index] = not lacking
        if lacking:
            warnings.warn(
                f"a layer's library does not run: {lacking}. PyTorch computes the layer.", stacklevel=2
            )
        return not lacking


OPENED: dict[str, DeviceLibrary | None] = {}
"""Libraries that were opened or could not be, by folder; None for those of a CPU, too."""


def gpu_library(folder: str) -> DeviceLibrary | None:
    """Returns the library in a folder, opened at first use; None if it is for a CPU or cannot be opened.

    Warns:
        UserWarning: if it cannot be opened.
    """
    if folder not in OPENED:
        try:
            OPENED[folder] = _opened(place_of(folder))
        except DietlabError as error:
            warnings.warn(
                f"a layer's library must be loadable; got {error} PyTorch computes the layer. "
                "dietlab.torch.find_libraries(FOLDER), or DIETLAB_LIBRARIES=FOLDER in the environment, says "
                "where its study is now.",
                stacklevel=2,
            )
            OPENED[folder] = None
    return OPENED[folder]


def _opened(place: Path) -> DeviceLibrary | None:
    if read_manifest(place)["hardware"].get("kind") != KIND:
        return None
    operator = load(place)
    dtype = getattr(torch, operator.workload.dtype)
    return DeviceLibrary(operator, operator.library.run, dtype, {-1: False})


def forget_missing() -> None:
    """Lets the next call look again for libraries that could not be opened."""
    for folder in [folder for folder, library in OPENED.items() if library is None]:
        del OPENED[folder]


def arch_of(manifest: Any) -> str:
    """Returns the architecture of a library's kernels, such as ``"sm_90a"``."""
    from dietlab.targets.cuda.limits import gpu_of

    recorded = manifest.get("requires")
    arch = None if recorded is None else Requirements.from_json(recorded).arch
    return arch or gpu_of(Hardware.from_json(manifest["hardware"])).arch


def lacking_on(index: int, arch: str) -> str:
    """Returns in words why a device does not run kernels of an architecture; empty if it does."""
    from dietlab.targets.cuda.limits import gpu_of

    try:
        found = Hardware.detect(KIND, measure=False, device=index)
    except DietlabError as error:
        return f"cuda:{index} cannot be described ({error.value})"
    if gpu_of(found).runs(arch):
        return ""
    return f"cuda:{index} is a {found.name} with {gpu_of(found).arch}, and its kernels are for {arch}"

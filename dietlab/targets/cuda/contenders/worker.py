"""Checks one contender's results on a GPU, then times it, in a separate process:
``python -m dietlab.targets.cuda.contenders.worker`` answers as :mod:`dietlab.measure.timing.bench` says.

Contenders are those of :mod:`dietlab.targets.cuda.contenders`, ``library`` (``options``: ``{"library":
folder}``) and ``ansor`` (``{"library": folder}``), which has no program for shapes that were not tuned. Other
options: ``l2_bytes``, ``problems``, a folder through which contenders share operands and correct results, and
``device``, which is ``cuda`` unless it is ``cpu`` in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dietlab.compare.contenders import AnsorContender, LibraryContender, opened_contender
from dietlab.lower.runtime import load_library
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.contender import Array, Call, Contender, Operands, Prepared, WithConstants
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.worker import show_torch
from dietlab.problem import Workload
from dietlab.targets.cuda.contenders import VENDORS
from dietlab.targets.cuda.contenders.pytorch import open_torch
from dietlab.targets.cuda.contenders.tensors import EventClock, GpuSetting, TorchArrays, cycle_probe
from dietlab.targets.cuda.gpu import Gpu, HostClock, StreamClock
from dietlab.tuning.operator import bound

L2_BYTES = 64 << 20
"""The size of L2 in bytes if the request does not give it: no GPU up to Hopper has more."""


def make_contender(name: str, setting: GpuSetting, options: Mapping[str, Any]) -> Contender:
    """Returns the contender of that name, as :func:`~dietlab.compare.contenders.opened_contender` does."""
    ours: dict[str, Callable[[], Contender]] = {
        "library": lambda: LibraryContender(options["library"]),
        "ansor": lambda: AnsorContender(options["library"], "cuda", partial(load_tuned, setting.device)),
    }
    return opened_contender(name, VENDORS, setting, ours, ("plain", "prepacked", "tuned", "compiled"))


def load_tuned(device: str, path: Path, saved: Mapping[str, Any]) -> Callable[[Workload, Operands], Prepared]:
    """Returns a function that prepares a tuned program for a workload; the program takes all operands
    unpacked."""
    program = load_library(path, device)

    def bound_all(workload: Workload, operands: Operands, out: Array) -> Call:
        names = [name for name in workload.signature if name != "out"]
        return bound(program, [*(operands[name] for name in names), out], None)

    return lambda workload, constants: WithConstants(partial(bound_all, workload), constants)


def opened(request: Mapping[str, Any], workload: Workload) -> Bench:
    """Returns the bench of the contender that a request opens."""
    options = request.get("options") or {}
    setting = setting_for(options)
    contender = make_contender(request["contender"], setting, options)
    return Bench(setting.gpu, contender, workload, problems=options.get("problems"))


def setting_for(options: Mapping[str, Any]) -> GpuSetting:
    """Returns PyTorch and its device.

    Raises:
        MissingDependencyError: without PyTorch, or without the device.
    """
    device = str(options.get("device", "cuda"))
    torch = open_torch(device)
    clock: StreamClock = EventClock(torch) if device == "cuda" else HostClock()
    probe, unprobed = cycle_probe(torch) if device == "cuda" else (None, "a CPU stands in for the GPU")
    l2_bytes = int(options.get("l2_bytes") or L2_BYTES)
    return GpuSetting(torch, device, Gpu(TorchArrays(torch, device), clock, l2_bytes, probe, unprobed))


if __name__ == "__main__":
    show_torch()
    serve(Service(opened))

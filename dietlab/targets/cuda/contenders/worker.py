"""Checks one contender's results on a GPU, then times it, in a separate process:
``python -m dietlab.targets.cuda.contenders.worker`` answers as :mod:`dietlab.measure.timing.bench` says.

Contenders are those of :mod:`dietlab.targets.cuda.contenders`, ``library`` (``options``:
``{"library": folder}``) and ``ansor`` (``{"library": folder}``), which has no program for shapes that were
not tuned. Other options: ``l2_bytes``, ``problems``, a folder through which contenders share operands and
right results, and ``device``, which is ``cuda`` unless it is ``cpu`` in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.worker import show_torch
from dietlab.problem import Workload
from dietlab.targets.cuda.contenders.entrants import GpuSetting, make_gpu_contender
from dietlab.targets.cuda.contenders.pytorch import open_torch
from dietlab.targets.cuda.contenders.tensors import EventClock, TorchArrays, cycle_probe
from dietlab.targets.cuda.gpu import Gpu, HostClock, StreamClock

L2_BYTES = 64 << 20
"""Bytes of L2 where the request does not tell: no GPU up to Hopper has more."""


def opened(request: Mapping[str, Any], workload: Workload) -> Bench:
    """Returns the bench of the contender that a request opens."""
    setting = setting_for(request.get("options") or {})
    contender = make_gpu_contender(request["contender"], setting)
    return Bench(setting.gpu, contender, workload, problems=setting.options.get("problems"))


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
    return GpuSetting(
        torch, device, Gpu(TorchArrays(torch, device), clock, l2_bytes, probe, unprobed), options
    )


if __name__ == "__main__":
    show_torch()
    serve(Service(opened))

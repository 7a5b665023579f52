"""Checks one contender's results on a GPU, then times it, in a separate process:
``python -m dietlab.evaluation.gpu.worker`` answers as :mod:`dietlab.timing.bench` says.

Contenders are those of :mod:`dietlab.evaluation.gpu`, ``library`` (``options``: ``{"library": folder}``) and
``ansor`` (``{"library": folder}``), which has no program for shapes that were not tuned. Other options:
``l2_bytes``, ``problems``, a folder through which contenders share operands and right results, and
``device``, which is ``cuda`` unless it is ``cpu`` in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.evaluation.gpu.contenders import GpuSetting, make_gpu_contender
from dietlab.evaluation.gpu.pytorch import open_torch
from dietlab.evaluation.gpu.tensors import EventClock, TorchArrays, cycle_probe
from dietlab.timing.bench import Bench, Service
from dietlab.timing.gpu import Gpu, HostClock, StreamClock
from dietlab.timing.process import serve
from dietlab.timing.worker import show_torch
from dietlab.workloads import Workload

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

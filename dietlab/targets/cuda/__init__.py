"""The target of NVIDIA's GPUs: tiles of thread blocks, whose CUDA C++ TVM generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # mypy compares each part with its protocol
    from dietlab.targets import Parts
    from dietlab.targets.cuda import contenders, cost, device, lowering, machine, space

    PARTS = Parts(machine, space, lowering, device, cost, contenders)

"""The target of CPUs: register tiles of vector instructions, which TVM compiles with LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # mypy compares each part with its protocol
    from dietlab.targets import Parts
    from dietlab.targets.cpu import contenders, cost, device, lowering, machine, space

    PARTS = Parts(machine, space, lowering, device, cost, contenders)

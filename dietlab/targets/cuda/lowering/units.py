"""The worker of a micro-kernel, by the unit that multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import BlockGeometry, panels
from dietlab.targets.cuda.lowering.layout import Layout, Worker
from dietlab.targets.cuda.lowering.multiply_adds import multiply_adds
from dietlab.targets.cuda.lowering.tensor_core import tensor_core
from dietlab.targets.cuda.lowering.tir import bound, int32
from dietlab.targets.cuda.lowering.warp_group import warp_group
from dietlab.targets.cuda.unit import Unit

WORKERS: dict[Unit, Callable[[Layout], Worker]] = {
    "fma": multiply_adds,
    "mma": tensor_core,
    "wgmma": warp_group,
}


def worker_of(kernel: CudaMicroKernel, geometry: BlockGeometry, shared: Any, thread: Any) -> Worker:
    """Returns the worker that ``thread`` is, with its registers."""
    x_panel, w_panel = panels(kernel, geometry)
    stage = x_panel.elements + w_panel.elements
    group = kernel.threads // kernel.slices
    slice_ = bound("slice", tirx.truncdiv(thread, int32(group))) if kernel.slices > 1 else int32(0)
    inside = bound("inside", tirx.truncmod(thread, int32(group))) if kernel.slices > 1 else thread
    layout = Layout(kernel, geometry, shared, x_panel, w_panel, stage, slice_, inside)
    return WORKERS[kernel.unit](layout)

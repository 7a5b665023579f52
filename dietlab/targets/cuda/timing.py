"""Measuring on a GPU: TVM's tensors, events on the driver's stream, and a simple machine in its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dietlab.hardware import Hardware
from dietlab.hardware.occupancy import blocks_per_sm
from dietlab.plans import plan_for
from dietlab.shapes import Shape
from dietlab.space import CudaMicroKernel, CudaScheme, compiled_registers, shared_bytes
from dietlab.timing.cuda_clock import CudaClock, require_gpu
from dietlab.timing.cuda_driver import CudaDriver
from dietlab.timing.gpu import Gpu
from dietlab.timing.protocol import GPU_CACHE_STATES
from dietlab.timing.tvm_arrays import TvmArrays
from dietlab.workloads import Workload, extents, require_dtype

CACHE_STATES = GPU_CACHE_STATES
START_SECONDS = 120.0
"""A timing process imports TVM and makes the device's context: a minute on a host that was lent a moment
ago."""

LAUNCH_SECONDS = 2e-6
BUSY_WARPS = 12.0
"""Warps of a multiprocessor that hide each other's latency."""


def rotated(workload: Workload) -> tuple[str, ...]:
    """Returns no operand: all rotate."""
    return ()


def options(hardware: Hardware, folder: Path) -> tuple[dict[str, Any], str]:
    """Returns the size of L2."""
    return {"kind": hardware.kind, "l2_bytes": hardware.gpu.l2_bytes}, ""


def device(cores: int, options: Mapping[str, Any]) -> Gpu:
    """Returns the first GPU."""
    driver = CudaDriver()
    return Gpu(TvmArrays(driver), CudaClock(driver), int(options["l2_bytes"]))


def require_here(hardware: Hardware) -> None:
    """Checks for a GPU that runs what is compiled for this one."""
    require_gpu(hardware)


def seconds(hardware: Hardware, workload: Workload, scheme: CudaScheme, shape: Shape) -> float:
    """Returns the seconds of a launch and of waves of blocks at a throughput that grows with the thread's
    tile and with the warps that a multiprocessor has to choose from; or the operands' trip from memory, if it
    takes longer."""
    sizes, itemsize = extents(workload, shape), require_dtype(workload.dtype).itemsize
    plan, kernel = plan_for(scheme, sizes["rows"]), scheme.kernel
    columns = -(-sizes["cols"] // kernel.cols) * sizes["batch"] * kernel.splits
    registers = compiled_registers(kernel, hardware.gpu)
    blocks = blocks_per_sm(hardware.gpu, kernel.threads, registers, shared_bytes(kernel, itemsize))
    places = hardware.cores * max(1, blocks)
    waves = -(-plan.tiles * columns // places)
    adding = 2 if kernel.splits > 1 else 0
    steps = -(-sizes["depth"] // (kernel.step * kernel.splits)) + kernel.stages + adding
    work = 2.0 * kernel.cols * kernel.step * steps * max((r.kernel.rows for r in plan.regions), default=0)
    resident = min(-(-plan.tiles * columns // hardware.cores), max(1, blocks))
    computing = waves * work * max(1, blocks) / _throughput(hardware, kernel, resident)
    return LAUNCH_SECONDS + max(computing, workload.bytes(shape) / (1e9 * (hardware.dram_gbps or 1000.0)))


def _throughput(hardware: Hardware, kernel: CudaMicroKernel, resident: int) -> float:
    """Returns flop/s of one multiprocessor with ``resident`` blocks."""
    reuse = (
        kernel.tile_rows
        * kernel.tile_cols
        / (kernel.tile_rows * kernel.tile_cols + 0.8 * (kernel.tile_rows + kernel.tile_cols))
    )
    hidden = min(1.0, (resident * kernel.threads / 32 + 4 * (kernel.stages - 1)) / BUSY_WARPS)
    peak = hardware.peak_for("float32" if kernel.unit == "fma" else "float16")
    return (peak or 100.0) * 1e9 * reuse * hidden

"""Computes plausible times from a simple machine of each kind, so that a search needs no hardware."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dietlab.errors import MeasureError
from dietlab.hardware import Hardware
from dietlab.hardware.occupancy import blocks_per_sm
from dietlab.measure.record import Record, Trial
from dietlab.plans import plan_for
from dietlab.shapes import Shape
from dietlab.space import (
    FMA_LATENCY,
    CpuMicroKernel,
    CpuScheme,
    CudaMicroKernel,
    CudaScheme,
    Scheme,
    compiled_registers,
    shared_bytes,
)
from dietlab.workloads import Workload, extents, require_dtype

LAUNCH_SECONDS = 2e-6
BUSY_WARPS = 12.0
"""Warps of a multiprocessor that hide each other's latency."""


def synthetic_seconds(hardware: Hardware, workload: Workload, scheme: Scheme, shape: Shape) -> float:
    """Returns the seconds of a call on a simple machine.

    Raises:
        MeasureError: if the micro-kernel is of another kind of processor.
    """
    if hardware.kind == "cpu" and isinstance(scheme.kernel, CpuMicroKernel):
        return _cpu_seconds(hardware, workload, scheme, shape)
    if hardware.kind == "cuda" and isinstance(scheme.kernel, CudaMicroKernel):
        return _cuda_seconds(hardware, workload, scheme, shape)
    raise MeasureError(f"micro-kernels are of a {hardware.kind} processor", scheme.key)


def _cpu_seconds(hardware: Hardware, workload: Workload, scheme: CpuScheme, shape: Shape) -> float:
    """Returns the seconds of the padded multiply-adds at a throughput that grows with the register tile, plus
    the weights' first trip from the last-level cache."""
    sizes, kernel = extents(workload, shape), scheme.kernel
    plan = plan_for(scheme, sizes["rows"])
    column_tiles = -(-sizes["cols"] // kernel.cols)
    columns_a_core = -(-column_tiles // hardware.cores) * kernel.cols * sizes["batch"]
    steps = 2.0 * columns_a_core * sizes["depth"]
    compute = sum(steps * r.executed_rows / _cpu_throughput(hardware, r.kernel) for r in plan.regions)
    weights = 4.0 * columns_a_core * sizes["depth"] * (1 if scheme.order == "ws" else plan.tiles)
    stream = (hardware.l3_gbps or 30.0) * 1e9
    return compute + (0.1 if kernel.ahead else 0.3) * weights / stream


def _cpu_throughput(hardware: Hardware, kernel: CpuMicroKernel) -> float:
    """Returns flop/s of one core: each step loads ``vectors`` weights and ``rows`` inputs for rows x vectors
    multiply-adds, of which some must be under way at once."""
    vectors = kernel.vectors(hardware.cpu.lanes)
    reuse = kernel.rows * vectors / (kernel.rows * vectors + 0.25 * (kernel.rows + vectors))
    hidden = min(1.0, kernel.rows * vectors / FMA_LATENCY)
    return (hardware.peak_gflops or 100.0) * 1e9 * reuse * hidden * (1 - 0.08 / kernel.unroll)


def _cuda_seconds(hardware: Hardware, workload: Workload, scheme: CudaScheme, shape: Shape) -> float:
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
    computing = waves * work * max(1, blocks) / _cuda_throughput(hardware, kernel, resident)
    return LAUNCH_SECONDS + max(computing, workload.bytes(shape) / (1e9 * (hardware.dram_gbps or 1000.0)))


def _cuda_throughput(hardware: Hardware, kernel: CudaMicroKernel, resident: int) -> float:
    """Returns flop/s of one multiprocessor with ``resident`` blocks."""
    reuse = (
        kernel.tile_rows
        * kernel.tile_cols
        / (kernel.tile_rows * kernel.tile_cols + 0.8 * (kernel.tile_rows + kernel.tile_cols))
    )
    hidden = min(1.0, (resident * kernel.threads / 32 + 4 * (kernel.stages - 1)) / BUSY_WARPS)
    peak = hardware.peak_for("float32" if kernel.unit == "fma" else "float16")
    return (peak or 100.0) * 1e9 * reuse * hidden


@dataclass(frozen=True)
class SyntheticRunner:
    """Computes times from a simple machine: for tests and for playing, never for results.

    ``noise`` is the relative spread of a disturbance that depends only on the micro-kernel, the shape and
    ``seed``.
    """

    hardware: Hardware
    noise: float = 0.02
    seed: int = 0

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        for trial in trials:
            for shape in trial.shapes:
                seconds = self.seconds(workload, trial.scheme, shape)
                yield Record(trial.scheme, shape, "ok", seconds=seconds, code_bytes=2000)

    def seconds(self, workload: Workload, scheme: Scheme, shape: Shape) -> float:
        plain = synthetic_seconds(self.hardware, workload, scheme, shape)
        return plain * (1 + self.noise * self._disturbance(scheme, shape))

    def _disturbance(self, scheme: Scheme, shape: Shape) -> float:
        """Returns a number in [-1, 1) that depends only on what is measured."""
        digest = hashlib.sha256(f"{self.seed}/{scheme.key}/{shape}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**63 - 1

"""Measuring on a CPU: arrays in the host's memory, its own clock, and a simple machine in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dietlab.errors import BuildError, MissingDependencyError
from dietlab.hardware import Hardware
from dietlab.plans import plan_for
from dietlab.shapes import Shape
from dietlab.space import FMA_LATENCY, CpuMicroKernel, CpuScheme
from dietlab.timing.host import Host, host_options
from dietlab.timing.protocol import CACHE_STATES as CACHE_STATES
from dietlab.workloads import Workload, extents

START_SECONDS = 30.0
"""A timing process imports TVM, which takes a second on an idle machine."""

device = Host.opened


def rotated(workload: Workload) -> tuple[str, ...]:
    """Returns the constant operands, as if the model had many such layers."""
    return workload.constants


def options(hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
    """Returns the sizes of the caches, and the probe of slow moments where it can be compiled."""
    kind = {"kind": hardware.kind}
    if folder is None:
        return {**kind, **host_options(hardware)}, ""
    try:
        from dietlab.lower.probe import compile_fma_probe  # imports TVM, as no other line here

        probe = compile_fma_probe(hardware, folder / "fma.so")
    except (BuildError, MissingDependencyError, ImportError) as error:
        return {**kind, **host_options(hardware)}, str(error)
    return {**kind, **host_options(hardware, probe)}, ""


def require_here(hardware: Hardware) -> None:
    """Checks nothing: a child process that the CPU cannot run becomes a record."""


def seconds(hardware: Hardware, workload: Workload, scheme: CpuScheme, shape: Shape) -> float:
    """Returns the seconds of the padded multiply-adds at a throughput that grows with the register tile, plus
    the weights' first trip from the last-level cache."""
    sizes, kernel = extents(workload, shape), scheme.kernel
    plan = plan_for(scheme, sizes["rows"])
    column_tiles = -(-sizes["cols"] // kernel.cols)
    columns_a_core = -(-column_tiles // hardware.cores) * kernel.cols * sizes["batch"]
    steps = 2.0 * columns_a_core * sizes["depth"]
    compute = sum(steps * r.executed_rows / _throughput(hardware, r.kernel) for r in plan.regions)
    weights = 4.0 * columns_a_core * sizes["depth"] * (1 if scheme.order == "ws" else plan.tiles)
    stream = (hardware.l3_gbps or 30.0) * 1e9
    return compute + (0.1 if kernel.ahead else 0.3) * weights / stream


def _throughput(hardware: Hardware, kernel: CpuMicroKernel) -> float:
    """Returns flop/s of one core: each step loads ``vectors`` weights and ``rows`` inputs for rows x vectors
    multiply-adds, of which some must be under way at once."""
    vectors = kernel.vectors(hardware.cpu.lanes)
    reuse = kernel.rows * vectors / (kernel.rows * vectors + 0.25 * (kernel.rows + vectors))
    hidden = min(1.0, kernel.rows * vectors / FMA_LATENCY)
    return (hardware.peak_gflops or 100.0) * 1e9 * reuse * hidden * (1 - 0.08 / kernel.unroll)

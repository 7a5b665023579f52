"""NVIDIA's matmul heuristics, an outside reference: the tiles that they would choose for a shape.

The package ``nvidia-matmul-heuristics`` orders tiles of thread blocks by a performance model of NVIDIA's own
(NVIDIA Matmul Heuristics, Python API reference). It knows GPUs by name and needs none.
:mod:`~dietlab.lab.heuristics.agreement` looks its choices up in a space of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dietlab.base.errors import DietlabError, HardwareError, MissingDependencyError, WorkloadError
from dietlab.machine import Hardware
from dietlab.problem import Shape, Workload, extents
from dietlab.targets.cuda import limits

MODULE = "nvMatmulHeuristics"
PACKAGE = "nvidia-matmul-heuristics"

KernelLibrary = Literal["cutlass", "cutlass3", "triton", "generic"]
TARGETS: dict[KernelLibrary, str] = {
    "cutlass": "CUTLASS",
    "cutlass3": "CUTLASS3",
    "triton": "TRITON",
    "generic": "GENERIC",
}
"""The libraries whose programs the heuristics can choose. ``cutlass`` has the stages and instructions of
dietlab's kernels; ``cutlass3`` has stages and instructions that only compute capability 9.0 and later have;
``generic`` has tiles that perhaps no library has."""

PRODUCTS = {"float32": "SSS", "float16": "HSH", "bfloat16": "TST"}
"""The heuristics' letters for operands, sums and output. ``SSS`` is timed as CUDA cores are (TF32 would be
``SFS``), but its tiles are multiples of an instruction of tensor cores."""

GPUS = {
    "NVIDIA A100 40GB SXM": "A100_SXM_80GB",
    "NVIDIA A100-SXM4-40GB": "A100_SXM_80GB",
    "NVIDIA A100-SXM4-80GB": "A100_SXM_80GB",
    "NVIDIA A100-PCIE-40GB": "A100_PCIE_80GB",
    "NVIDIA A100 80GB PCIe": "A100_PCIE_80GB",
    "NVIDIA A30": "A30_PCIE",
    "NVIDIA A10": "A10_PCIE",
    "NVIDIA A40": "A40_PCIE",
    "NVIDIA GeForce RTX 3090": "RTX_3090",
    "NVIDIA RTX A6000": "RTX_A6000",
    "NVIDIA L20": "L20",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA L4": "L4",
    "NVIDIA GeForce RTX 4090": "RTX_4090",
    "NVIDIA RTX 6000 Ada Generation": "RTX_6000_ADA",
    "NVIDIA H100 SXM": "H100_SXM",
    "NVIDIA H100 80GB HBM3": "H100_SXM",
    "NVIDIA H100 PCIe": "H100_PCIE",
    "NVIDIA H100 NVL": "H100_NVL",
    "NVIDIA H200 SXM": "H200_SXM",
    "NVIDIA H200": "H200_SXM",
    "NVIDIA H20": "H20_SXM",
    "NVIDIA B200": "B200",
    "NVIDIA GeForce RTX 5080": "RTX_5080",
    "NVIDIA GeForce RTX 5090": "RTX_5090",
}
"""The heuristics' names of GPUs, by the names in drivers and presets. An A100 of 40 GB counts as one of 80
GB, which differs only in its faster memory."""

COUNT = 8
"""The most configurations that are requested for a shape."""


@dataclass(frozen=True)
class Configuration:
    """A program that the heuristics propose; ``key`` reads ``128x64x32.s4``, with a split
    ``128x64x32.s4.k3``, as keys of dietlab do.

    Args:
        step: the number of steps of the reduction axis that one stage holds.
        splits: the number of blocks that share one tile's reduction (split-K); 1 for none. NVIDIA's programs
            add up their sums in memory, dietlab's in a cluster.
        seconds: the seconds of a call, as NVIDIA's model estimates them; None without an estimate.
            Configurations that differ only in their seconds are equal.
    """

    rows: int
    cols: int
    step: int
    stages: int
    splits: int = 1
    seconds: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if min(self.rows, self.cols, self.step, self.stages, self.splits) < 1:
            raise DietlabError("a configuration's sizes must be positive", self.key, "Make each 1 or more.")

    @classmethod
    def of(cls, kernel: Any, seconds: float) -> Configuration:
        """Returns the package's own value as one of ours."""
        tile = (kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k)
        return cls(*tile, kernel.stages, kernel.split_k, float(seconds) if seconds > 0 else None)

    @property
    def key(self) -> str:
        splits = f".k{self.splits}" if self.splits > 1 else ""
        return f"{self.rows}x{self.cols}x{self.step}.s{self.stages}{splits}"


class Reference(Protocol):
    """A reference proposes configurations for one shape, best first."""

    def configurations(self, workload: Workload, shape: Shape, count: int) -> Sequence[Configuration]: ...


class Heuristics:
    """NVIDIA's heuristics for one GPU.

    Args:
        hardware: a GPU of :data:`GPUS`; this machine need not have it.
        target: the library whose programs the heuristics choose, of :data:`TARGETS`.
        gpu: the heuristics' name of a GPU (default: the name of ``hardware``).

    Raises:
        MissingDependencyError: if the package is not installed or cannot be loaded.
        HardwareError: if ``hardware`` is a CPU, or a GPU that the heuristics do not know.
        DietlabError: if there is no such target.
    """

    def __init__(self, hardware: Hardware, target: KernelLibrary = "cutlass", gpu: str | None = None) -> None:
        if target not in TARGETS:
            known = ", ".join(TARGETS)
            raise DietlabError(f"a target is one of {known}", repr(target), "cutlass is nearest to ours.")
        self.gpu = gpu or gpu_of(hardware)
        self.target = target
        try:
            self._module: Any = importlib.import_module(MODULE)
        except (ImportError, OSError) as error:
            raise _absent(error) from None
        gpus = [gpu.name for gpu in self._module.NvMatmulHeuristicsNvidiaGpu if gpu.name != "END"]
        if self.gpu not in gpus:
            rule = "the GPU must be one that NVIDIA's heuristics know"
            raise HardwareError(rule, self.gpu, f"They know {', '.join(gpus)}.")
        try:
            self._library: Any = self._module.NvMatmulHeuristicsInterfaceEx(
                backend=self._module.NvMatmulHeuristicsTarget[TARGETS[target]],
                flags=self._module.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
                gpu=self._module.NvMatmulHeuristicsNvidiaGpu[self.gpu],
            )
        # Its own checks of the version are assertions.
        except (OSError, AssertionError, RuntimeError) as error:
            raise _absent(error) from None

    def configurations(
        self, workload: Workload, shape: Shape, count: int = COUNT
    ) -> tuple[Configuration, ...]:
        """Returns the best configurations for one shape, best first; their estimates are not always in this
        order.

        There are fewer than ``count`` if the heuristics know no more, or if some differ only in what
        :class:`Configuration` leaves out, such as the tiles of warps.

        Raises:
            WorkloadError: if there is nothing to compute, or the heuristics know no such product.
        """
        if workload.dtype not in PRODUCTS:
            rule = "the operands must have a type that NVIDIA's heuristics have, too"
            raise WorkloadError(rule, workload.dtype, f"Use {', '.join(PRODUCTS)}.")
        size = extents(workload, shape)
        if min(size.values()) < 1 or count < 1:
            rule, found = (
                "something is to be computed, and a configuration requested",
                f"{workload} at {shape}",
            )
            raise WorkloadError(rule, f"{found}, {count} configurations", "Leave empty shapes out.")
        layouts = self._module.NvMatmulHeuristicsMatmulLayout
        layout = layouts.NN_ROW_MAJOR if workload.weights == "direct" else layouts.NT_ROW_MAJOR
        sizes = (size["rows"], size["cols"], size["depth"], layout, size["batch"])
        problem = self._library.makeNvMatmulHeuristicsProblem(*sizes)
        found = self._library.get(problem, count, PRODUCTS[workload.dtype])
        if not found:
            others = ", ".join(target for target in TARGETS if target != self.target)
            rule = f"NVIDIA's heuristics must know {workload.dtype} products on {self.gpu} for {self.target}"
            raise WorkloadError(rule, "no configuration", f"Try another target: {others}.")
        return tuple(dict.fromkeys(Configuration.of(one["kernel"], one["runtime"]) for one in found))


def gpu_of(hardware: Hardware) -> str:
    """Returns the heuristics' name of a GPU."""
    limits.gpu_of(hardware)
    if hardware.name not in GPUS:
        known = ", ".join(dict.fromkeys(GPUS.values()))
        remedy = f"Name one that is like it: Heuristics(hardware, gpu=...) takes {known}."
        raise HardwareError("the GPU must be one that NVIDIA's heuristics know", hardware.name, remedy)
    return GPUS[hardware.name]


def _absent(reason: object) -> MissingDependencyError:
    rule = f"NVIDIA's matmul heuristics must be installed (package {PACKAGE}, 0.1)"
    return MissingDependencyError(rule, reason, f"pip install {PACKAGE}")

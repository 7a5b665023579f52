"""The limits of a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware
from dietlab.machine.limits import Limits, require_numbers, require_positive
from dietlab.targets.cuda.unit import FLOATS, TENSOR_CORES_SINCE

RATES = ("clock_ghz", "tensor_macs", "warp_share", "l2_bytes_cycle")
"""The fields that a detected GPU takes from the preset of its name, in addition to ``half_gflops``."""


@dataclass(frozen=True)
class GpuLimits(Limits):
    """The limits of a GPU that bound a micro-kernel (CUDA C Programming Guide, technical specifications by
    compute capability; allocation units are those of ``cuda_occupancy.h`` in the CUDA toolkit).

    Args:
        compute_capability: the compute capability, as in ``"9.0"``.
        threads_per_block: the most threads of a block; all fields with "per" are maxima.
        registers_per_thread, threads_per_sm, registers_per_sm: the most of each, likewise.
        l2_bytes: the size of the L2 cache of the whole GPU.
        smem_per_block_bytes: the shared memory of a block that opts in to more than 48 KiB.
        smem_per_sm_bytes: the shared memory of all resident blocks, with the driver's part.
        registers_per_block: the most registers of a block, of 32 bits, as in the other fields.
        blocks_per_sm: the most blocks that are resident at the same time.
        smem_reserved_bytes: the shared memory that the driver takes in addition for each resident block.
        smem_unit_bytes: the unit in which a block gets shared memory.
        register_unit: the unit in which a warp gets registers.
        warp_threads: the number of threads that execute together.
        half_gflops: the speed of dense float16 products summed in float32 on the tensor cores of *one*
            multiprocessor, in GFLOP/s (bfloat16 is as fast from compute capability 8.0 on, and unsupported
            before); None if unknown.
        clock_ghz: the clock that the bound assumes: the highest of the data sheet. For 9.0 it is an estimate,
            since the power limit keeps dense products below the highest clock.
        tensor_macs: the number of multiply-adds of one multiprocessor's tensor cores in a cycle, of 16-bit
            operands with float32 sums (NVIDIA's architecture white papers).
        warp_share: the share of ``tensor_macs`` that instructions of single warps reach; groups of warps
            reach all (Luo et al., "Dissecting the NVIDIA Hopper Architecture", arXiv 2501.12084).
        l2_bytes_cycle: the number of bytes from L2 to one multiprocessor in a cycle while all read: an
            estimate. For 8.0 and 9.0 it follows from the bound's ranks of public measurements (docs/gpu.md);
            for the others it is of the order that microbenchmarks report.

    The last four are None in older files (:func:`~dietlab.targets.cuda.rates.gpu_rates` has the defaults),
    and are ignored when GPUs are compared.

    Raises:
        HardwareError: if a number is not positive, or the compute capability is malformed.
    """

    kind = "cuda"
    unit = "multiprocessor"
    device = "GPU"
    on_host = False

    compute_capability: str
    threads_per_block: int
    smem_per_block_bytes: int
    smem_per_sm_bytes: int
    registers_per_block: int
    registers_per_thread: int
    threads_per_sm: int
    l2_bytes: int
    blocks_per_sm: int
    registers_per_sm: int
    smem_reserved_bytes: int
    smem_unit_bytes: int
    register_unit: int
    warp_threads: int = 32
    half_gflops: float | None = None
    clock_ghz: float | None = field(default=None, compare=False)
    tensor_macs: int | None = field(default=None, compare=False)
    warp_share: float | None = field(default=None, compare=False)
    l2_bytes_cycle: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        capability: object = self.compute_capability
        if not isinstance(capability, str) or not re.fullmatch(r"\d+\.\d", capability):
            raise HardwareError("a compute capability reads like '9.0'", repr(capability))
        require_positive(
            self,
            "threads_per_block",
            "smem_per_block_bytes",
            "smem_per_sm_bytes",
            "registers_per_block",
            "registers_per_thread",
            "threads_per_sm",
            "l2_bytes",
            "blocks_per_sm",
            "registers_per_sm",
            "smem_unit_bytes",
            "register_unit",
            "warp_threads",
        )
        require_numbers(self, "smem_reserved_bytes")
        if self.smem_reserved_bytes < 0:
            raise HardwareError("smem_reserved_bytes must be 0 or more", self.smem_reserved_bytes)
        require_positive(self, *(name for name in ("half_gflops", *RATES) if getattr(self, name) is not None))

    @property
    def last_level_bytes(self) -> int:
        """The L2 cache in bytes."""
        return self.l2_bytes

    def peak_for(self, dtype: str, float32: float | None) -> float | None:
        """Returns the peak of the CUDA cores (``float32``) or, for 16-bit types, of the tensor cores; None if
        unknown."""
        if dtype in FLOATS:
            return float32
        since = TENSOR_CORES_SINCE.get(dtype)
        return self.half_gflops if since is not None and self.capability >= since else None

    @property
    def arch(self) -> str:
        """The compiler's name of the architecture, as in ``"sm_80"``. For 9.0 it is ``"sm_90a"``, with the
        instructions that no other GPU has; no other GPU would run ``sm_90`` either."""
        return f"sm_{self.compute_capability.replace('.', '')}{'a' if self.warp_groups else ''}"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as numbers, to compare."""
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

    def runs(self, arch: str) -> bool:
        """Returns whether this GPU runs a cubin of an architecture, such as ``"sm_80"``.

        A cubin runs on GPUs of its major compute capability from its minor one on; a cubin of ``sm_90a`` runs
        on 9.0 only (CUDA C Programming Guide, binary compatibility and architecture-specific features).
        """
        digits = arch.removeprefix("sm_").rstrip("a")
        major, minor = int(digits[:-1]), int(digits[-1])
        if arch.endswith("a"):
            return self.capability == (major, minor)
        return self.capability[0] == major and self.capability[1] >= minor

    @property
    def float32_lanes(self) -> int:
        """The number of float32 multiply-adds that a multiprocessor starts in a cycle (CUDA C Programming
        Guide, throughput of arithmetic instructions)."""
        return float32_lanes(self.capability)

    @property
    def asynchronous(self) -> bool:
        """True if copies to shared memory can bypass the registers (cp.async, from 8.0 on; the tensor
        cores of these GPUs multiply 16 x 16 by 16 x 8)."""
        return self.capability >= (8, 0)

    @property
    def clusters(self) -> bool:
        """True if blocks can be launched in clusters that read each other's shared memory."""
        return self.capability >= (9, 0)

    @property
    def warp_groups(self) -> bool:
        """True if four warps together multiply from shared memory (PTX ISA, ``wgmma``: of 9.0 only; later
        GPUs have other instructions instead)."""
        return self.capability == (9, 0)


def float32_lanes(capability: tuple[int, int]) -> int:
    """Returns :attr:`GpuLimits.float32_lanes` of a compute capability."""
    return 64 if capability <= (8, 0) else 128


def gpu_of(hardware: Hardware) -> GpuLimits:
    """Returns the limits of a GPU.

    Raises:
        HardwareError: if this is another processor.
    """
    return hardware.limits_as(
        GpuLimits, "Use Hardware.detect('cuda') (--target cuda) or a preset like h100 (--hardware)."
    )

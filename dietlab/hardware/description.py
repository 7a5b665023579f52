"""The value that describes a processor; units stand in the names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dietlab.cards import Card, Carded, Cell, Fold, Listing, Quantity, bytes_text, cell_text, counted
from dietlab.errors import HardwareError
from dietlab.files import write_json
from dietlab.hardware.cpu_units import UNITS, CpuUnit, units_of
from dietlab.hardware.roofline import Roofline

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
Target = Literal["cpu", "cuda"]


def _positive(owner: object, *names: str) -> None:
    for name in names:
        if not getattr(owner, name) > 0:
            raise HardwareError(f"{name} is positive", getattr(owner, name))


@dataclass(frozen=True)
class CpuLimits:
    """The limits of a CPU that bound a micro-kernel; caches are per core except the last level."""

    llvm_cpu: str
    vector_bytes: int
    vector_registers: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int

    def __post_init__(self) -> None:
        _positive(self, "vector_registers", "l1d_bytes", "l2_bytes")
        if self.vector_bytes not in (16, 32, 64):
            raise HardwareError("vectors have 16, 32 or 64 bytes", self.vector_bytes)

    @property
    def lanes(self) -> int:
        """float32 values in one vector register."""
        return self.vector_bytes // 4

    @property
    def last_level_bytes(self) -> int:
        """The last cache before memory."""
        return self.l3_bytes or self.l2_bytes

    def units(self, dtype: str) -> tuple[CpuUnit, ...]:
        """Returns the units that multiply operands of a type, the fastest first; empty if there is none."""
        return units_of(self.llvm_cpu, dtype)

    @property
    def coherent_code(self) -> bool:
        """True if the instruction cache sees what is written as data, as on x86, whose LLVM name is never
        ``generic`` here, and not on ARM."""
        return self.llvm_cpu != "generic"


@dataclass(frozen=True)
class GpuLimits:
    """The limits of a GPU that bound a micro-kernel (CUDA C Programming Guide, technical specifications by
    compute capability; allocation units are those of ``cuda_occupancy.h`` in the CUDA toolkit).

    Args:
        compute_capability: as in ``"9.0"``.
        threads_per_block: at most, as are all figures "per" something.
        smem_per_block_bytes: shared memory of a block that opts in to more than 48 KiB.
        smem_per_sm_bytes: shared memory of all resident blocks, what the driver reserves included.
        registers_per_block: 32-bit registers, as are all registers.
        threads_per_sm: of resident blocks.
        l2_bytes: of the whole GPU.
        blocks_per_sm: resident at the same time.
        smem_reserved_bytes: what the driver takes beside the shared memory of each resident block.
        smem_unit_bytes: shared memory is given to a block in multiples of it.
        register_unit: registers are given to a warp in multiples of it.
        warp_threads: threads that execute together.
        half_gflops: dense float16 products summed in float32 on the tensor cores of *one*
            multiprocessor, in GFLOP/s (bfloat16 is as fast from compute capability 8.0 on, and not there
            before); None if unknown.

    Raises:
        HardwareError: if a figure is not positive, or the compute capability is none.
    """

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

    def __post_init__(self) -> None:
        capability: object = self.compute_capability
        if not isinstance(capability, str) or not re.fullmatch(r"\d+\.\d", capability):
            raise HardwareError("a compute capability reads like '9.0'", repr(capability))
        _positive(
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
        if self.smem_reserved_bytes < 0:
            raise HardwareError("smem_reserved_bytes is 0 or more", self.smem_reserved_bytes)
        if self.half_gflops is not None:
            _positive(self, "half_gflops")

    @property
    def arch(self) -> str:
        """The compiler's name of the architecture, as in ``"sm_80"``. That of 9.0 is ``"sm_90a"``, with the
        instructions that no other GPU has: a cubin of ``sm_90`` would run on 9.0 only, too, as there is no
        other GPU of that major capability."""
        return f"sm_{self.compute_capability.replace('.', '')}{'a' if self.warp_groups else ''}"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as numbers, to compare."""
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

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


@dataclass(frozen=True, repr=False)
class Hardware(Carded):
    """A processor: how many cores, how fast, and the limits that bound a micro-kernel.

    Args:
        name: what people call it.
        source: where the figures come from (``"detected"``, or a public data sheet).
        cores: cores used by one operator call (CPU), or streaming multiprocessors (GPU).
        peak_gflops: fp32 multiply-adds of *one* core or multiprocessor, in GFLOP/s; None if
            it was never measured.
        dram_gbps: memory bandwidth of all cores together, in GB/s (1e9 bytes).
        l3_gbps: what one core streams from the last-level cache, in GB/s.

    Raises:
        HardwareError: if a figure contradicts itself.
    """

    name: str
    source: str
    cores: int
    limits: CpuLimits | GpuLimits
    peak_gflops: float | None = None
    dram_gbps: float | None = None
    l3_gbps: float | None = None

    def __post_init__(self) -> None:
        _positive(self, "cores")
        for name in ("peak_gflops", "dram_gbps", "l3_gbps"):
            if getattr(self, name) is not None:
                _positive(self, name)

    @property
    def kind(self) -> Target:
        """``"cpu"`` or ``"cuda"``."""
        return "cpu" if isinstance(self.limits, CpuLimits) else "cuda"

    @property
    def cpu(self) -> CpuLimits:
        """The limits of a CPU.

        Raises:
            HardwareError: if this is a GPU.
        """
        if not isinstance(self.limits, CpuLimits):
            raise HardwareError(
                "this stage needs a CPU", self.name, "Use Hardware.detect() or a preset like haswell-1core."
            )
        return self.limits

    @property
    def gpu(self) -> GpuLimits:
        """The limits of a GPU.

        Raises:
            HardwareError: if this is a CPU.
        """
        if not isinstance(self.limits, GpuLimits):
            raise HardwareError(
                "this stage needs a GPU", self.name, "Use Hardware.detect('cuda') or a preset like h100."
            )
        return self.limits

    @property
    def last_level_bytes(self) -> int:
        """The last cache before memory: of a CPU's cores together, or of a GPU's multiprocessors."""
        return self.limits.last_level_bytes if isinstance(self.limits, CpuLimits) else self.limits.l2_bytes

    @property
    def total_gflops(self) -> float | None:
        """Peak of all cores together, in GFLOP/s."""
        return None if self.peak_gflops is None else self.peak_gflops * self.cores

    def peak_for(self, dtype: str) -> float | None:
        """Returns the peak GFLOP/s of *one* core or multiprocessor on operands of a type; None if it is not
        known or there is none. 16-bit types run on a GPU's tensor cores; on a CPU the fastest unit counts,
        by its rate (:data:`~dietlab.hardware.cpu_units.UNITS`)."""
        if dtype == "float32":
            return self.peak_gflops
        if not isinstance(self.limits, CpuLimits):
            return self.limits.half_gflops
        units = self.limits.units(dtype)
        return self.peak_gflops * UNITS[units[0]].rate if units and self.peak_gflops else None

    def is_same_as(self, other: Hardware) -> bool:
        """Returns whether both are the same processor, however many of its cores an operator uses."""
        return (self.name, self.limits) == (other.name, other.limits)

    def with_cores(self, cores: int) -> Hardware:
        """Returns the processor with an operator that uses ``cores`` of it."""
        return replace(self, cores=cores)

    def roofline(
        self, flops: float, moved_bytes: float, dtype: str = "float32", memory_bytes: float | None = None
    ) -> Roofline | None:
        """Returns the roofline of a call; None where the peak or the memory bandwidth is not known.

        Args:
            flops: two for each multiply-add.
            moved_bytes: what any implementation must move at least once.
            dtype: of the operands.
            memory_bytes: those that come from memory in rotating calls (default: all).
        """
        peak = self.peak_for(dtype)
        if peak is None or self.dram_gbps is None:
            return None
        from_l3 = None if self.l3_gbps is None else moved_bytes / (self.l3_gbps * self.cores) / 1e9
        fetched = moved_bytes if memory_bytes is None else memory_bytes
        return Roofline(flops / (peak * self.cores) / 1e9, fetched / self.dram_gbps / 1e9, from_l3)

    @classmethod
    def detect(cls, target: Target = "cpu", *, measure: bool = True, device: int = 0) -> Hardware:
        """This machine's CPU, or one of its GPUs.

        Args:
            target: ``"cpu"``, or ``"cuda"`` for a GPU as the NVIDIA driver describes it.
            measure: whether the FMA peak and the bandwidths of a CPU are measured (some 3 s). Those of a
                GPU always follow from its clocks.
            device: which GPU, counted by the driver.

        Raises:
            HardwareError: on a processor without vector units that TVM can target; without a driver or
                such a GPU, or if it is too old.
        """
        if target == "cuda":
            from dietlab.hardware.detect_gpu import detect_gpu

            return detect_gpu(device)
        if target != "cpu":
            raise HardwareError("the target is cpu or cuda", repr(target))
        from dietlab.hardware.detect import detect_cpu

        return detect_cpu(measure=measure)

    @classmethod
    def preset(cls, name: str) -> Hardware:
        """Returns a processor that need not be here; ``Hardware.presets()`` lists them.

        Raises:
            HardwareError: if there is no such preset.
        """
        known = _presets()
        if name not in known:
            raise HardwareError(f"a preset is one of {', '.join(sorted(known))}", repr(name))
        return cls.from_json(known[name])

    @staticmethod
    def presets() -> tuple[str, ...]:
        return tuple(sorted(_presets()))

    @property
    def card(self) -> Card:
        facts = [counted(self.cores, "core" if self.kind == "cpu" else "multiprocessor")]
        if self.total_gflops is not None:
            facts.append(Quantity(f"{self.total_gflops:,.0f} GFLOP/s", "float32 peak"))
        if self.dram_gbps is not None:
            facts.append(Quantity(f"{self.dram_gbps:,.0f} GB/s", "memory"))
        return Card("Hardware", self.name, tuple(facts), (Fold("Description", self.table, unfolded=True),))

    def table(self) -> Listing:
        """Returns the rows of its card: every figure with its unit."""
        value = asdict(self)
        figures = [*value.pop("limits").items(), *value.items()]
        return Listing(("figure", "value"), [_figure(*figure) for figure in figures])

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row and a column for each figure: the fields, the ``kind``, and those of
        the limits. Rows of processors of a kind can be put below each other."""
        import pandas as pd

        value = asdict(self)
        limits = value.pop("limits")
        return pd.DataFrame([{**value, "kind": self.kind, **limits}])

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Hardware:
        """Returns the processor of a JSON value made by ``to_json``.

        Raises:
            HardwareError: if a field is missing or unknown, or the schema is another.
        """
        if not isinstance(value, Mapping):
            raise HardwareError("a hardware file holds one JSON object", value)
        if value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise HardwareError(f"a hardware file has schema {SCHEMA_VERSION}", value.get("schema_version"))
        try:
            given = {k: v for k, v in value.items() if k not in ("schema_version", "kind")}
            return cls(limits=_limits(value["kind"], given.pop("limits")), **given)
        except (KeyError, TypeError) as error:
            raise HardwareError("a hardware file has all fields of Hardware", error) from None

    def save(self, path: str | Path) -> None:
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Hardware:
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HardwareError("a hardware file is readable JSON", f"{path}: {error}") from None
        return cls.from_json(value)


def _figure(name: str, value: Cell) -> tuple[str, str]:
    """Returns a field in words: ``("l2", "1 MiB")``."""
    stem, _, unit = name.rpartition("_")
    words = {"gflops": "GFLOP/s", "gbps": "GB/s"}
    if unit == "bytes" and isinstance(value, int):
        return stem.replace("_", " "), bytes_text(value)
    if unit in words:
        return stem.replace("_", " "), f"{cell_text(value)} {words[unit]}" if value else "unknown"
    return name.replace("_", " "), cell_text(value)


def _limits(kind: str, value: Mapping[str, Any]) -> CpuLimits | GpuLimits:
    if kind == "cuda":
        required = [field.name for field in fields(GpuLimits) if field.default is MISSING]
        missing = [name for name in required if name not in value]
        if missing:
            raise HardwareError(
                "a file that describes a GPU has all of its limits",
                f"no {', '.join(missing)}",
                "Describe the GPU anew, by Hardware.detect('cuda') or a preset.",
            )
    limits: CpuLimits | GpuLimits = {"cpu": CpuLimits, "cuda": GpuLimits}[kind](**value)
    return limits


def _presets() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "presets.json").read_text(encoding="utf-8")
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets

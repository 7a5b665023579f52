"""The value that describes a processor; units stand in the names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dietlab.errors import HardwareError

SCHEMA_VERSION = 1


def _positive(owner: object, *names: str) -> None:
    for name in names:
        if not getattr(owner, name) > 0:
            raise HardwareError(f"{name} is positive", getattr(owner, name))


@dataclass(frozen=True)
class CpuLimits:
    """What bounds a CPU micro-kernel; caches are per core except the last level."""

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


@dataclass(frozen=True)
class GpuLimits:
    """What bounds a CUDA micro-kernel (CUDA C Programming Guide, compute capabilities)."""

    compute_capability: str
    threads_per_block: int
    smem_per_block_bytes: int
    smem_per_sm_bytes: int
    registers_per_block: int
    registers_per_thread: int
    threads_per_sm: int
    l2_bytes: int

    def __post_init__(self) -> None:
        _positive(self, "threads_per_block", "smem_per_block_bytes", "registers_per_block")


@dataclass(frozen=True)
class Hardware:
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
    def kind(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return "cpu" if isinstance(self.limits, CpuLimits) else "cuda"

    @property
    def cpu(self) -> CpuLimits:
        if not isinstance(self.limits, CpuLimits):
            raise HardwareError("this stage needs a CPU", self.name, "CUDA is not built yet.")
        return self.limits

    @property
    def total_gflops(self) -> float | None:
        """Peak of all cores together, in GFLOP/s."""
        return None if self.peak_gflops is None else self.peak_gflops * self.cores

    def with_cores(self, cores: int) -> Hardware:
        """The same processor with an operator that uses ``cores`` of it."""
        return replace(self, cores=cores)

    def roofline_seconds(self, flops: float, moved_bytes: float) -> float | None:
        """The least time a call can take from memory: max of compute and traffic, in seconds."""
        if self.total_gflops is None or self.dram_gbps is None:
            return None
        return max(flops / self.total_gflops, moved_bytes / self.dram_gbps) / 1e9

    @classmethod
    def detect(cls, *, measure: bool = True) -> Hardware:
        """This machine's CPU; with ``measure``, its FMA peak and bandwidths too (some 3 s).

        Raises:
            HardwareError: on a processor without vector units that TVM can target.
        """
        from dietlab.hardware.detect import detect_cpu

        return detect_cpu(measure=measure)

    @classmethod
    def preset(cls, name: str) -> Hardware:
        """A processor that need not be here; ``Hardware.presets()`` lists them.

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

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Hardware:
        if not isinstance(value, Mapping):
            raise HardwareError("a hardware file holds one JSON object", value)
        if value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise HardwareError(f"a hardware file has schema {SCHEMA_VERSION}", value.get("schema_version"))
        try:
            fields = {k: v for k, v in value.items() if k not in ("schema_version", "kind")}
            limits = {"cpu": CpuLimits, "cuda": GpuLimits}[value["kind"]](**fields.pop("limits"))
            return cls(limits=limits, **fields)
        except (KeyError, TypeError) as error:
            raise HardwareError("a hardware file has all fields of Hardware", error) from None

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Hardware:
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HardwareError("a hardware file is readable JSON", f"{path}: {error}") from None
        return cls.from_json(value)


def _presets() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "presets.json").read_text(encoding="utf-8")
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets

"""The description of a processor; the names of its numbers contain their units."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dietlab.base.cards import Card, Carded, Cell, Fold, Listing, Quantity, bytes_text, cell_text, counted
from dietlab.base.errors import HardwareError
from dietlab.base.files import read_json, reading, reason_of, write_json
from dietlab.machine.limits import Limits, require_positive
from dietlab.machine.roofline import Roofline
from dietlab.machine.target import hardware_target

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

Of = TypeVar("Of", bound=Limits)


@dataclass(frozen=True, repr=False)
class Hardware(Carded):
    """A processor: cores, speeds, and the limits that bound a micro-kernel.

    Args:
        name: its name for people.
        source: where the numbers come from (``"detected"``, or a public data sheet).
        cores: the number of cores that one operator call uses (CPU), or of streaming multiprocessors (GPU).
        limits: the limits that bound a micro-kernel, of the class for this kind of processor.
        peak_gflops: the fp32 peak of *one* core or multiprocessor, in GFLOP/s; None if not measured.
        dram_gbps: the memory bandwidth of all cores together, in GB/s (1e9 bytes).
        l3_gbps: the bandwidth of one core from the last-level cache, in GB/s.
        l3_mib: the last-level cache that one core can use, in MiB: the array size at which the bandwidth
            drops. In a virtual machine this is often less than the system reports. None if not measured, or
            if no drop was found.

    Raises:
        HardwareError: if the numbers contradict each other.
    """

    name: str
    source: str
    cores: int
    limits: Limits
    peak_gflops: float | None = None
    dram_gbps: float | None = None
    l3_gbps: float | None = None
    l3_mib: float | None = None

    def __post_init__(self) -> None:
        require_positive(self, "cores")
        for name in ("peak_gflops", "dram_gbps", "l3_gbps", "l3_mib"):
            if getattr(self, name) is not None:
                require_positive(self, name)

    @property
    def kind(self) -> str:
        """The name of its target, such as ``"cpu"`` or ``"cuda"``."""
        return self.limits.kind

    @property
    def threads(self) -> int:
        """The number of host threads of a call: the cores of a CPU, or one for a GPU, which is used as a
        whole."""
        return self.cores if self.limits.on_host else 1

    def limits_as(self, kind: type[Of], remedy: str) -> Of:
        """Returns the limits with the type of one kind of processor.

        Raises:
            HardwareError: if this is another kind of processor, with the ``remedy``.
        """
        if not isinstance(self.limits, kind):
            raise HardwareError(f"the stage needs a {kind.device}", self.name, remedy)
        return self.limits

    @property
    def last_level_bytes(self) -> int:
        """The bytes of the last cache before memory, which all cores or multiprocessors share: as measured,
        or else as the system reports."""
        return self.limits.last_level_bytes if self.l3_mib is None else round(self.l3_mib * (1 << 20))

    @property
    def total_gflops(self) -> float | None:
        """Peak of all cores together, in GFLOP/s."""
        return None if self.peak_gflops is None else self.peak_gflops * self.cores

    def peak_for(self, dtype: str) -> float | None:
        """Returns the peak GFLOP/s of *one* core or multiprocessor for a type of operands; None if it is
        unknown, or the type is not supported."""
        return self.limits.peak_for(dtype, self.peak_gflops)

    def is_same_as(self, other: Hardware) -> bool:
        """Returns whether ``other`` is the same processor, whatever the number of cores in use."""
        return (self.name, self.limits) == (other.name, other.limits)

    def as_programmed(self) -> Hardware:
        """Returns the processor with only the numbers that its programs may depend on: its limits, its cores,
        and the ratio of peak to memory bandwidth, in steps of the square root of 2. Two measurements of one
        machine then give the same programs, which are compiled once."""
        peak = bandwidth = None
        if self.total_gflops and self.dram_gbps:
            bandwidth = float(self.cores)
            peak = 2 ** (round(2 * math.log2(self.total_gflops / self.dram_gbps)) / 2)
        return replace(self, peak_gflops=peak, dram_gbps=bandwidth, l3_gbps=None, l3_mib=None)

    def with_cores(self, cores: int) -> Hardware:
        """Returns the processor with ``cores`` of its cores in use."""
        return replace(self, cores=cores)

    def roofline(
        self, flops: float, moved_bytes: float, dtype: str = "float32", memory_bytes: float | None = None
    ) -> Roofline | None:
        """Returns the roofline of a call; None if the peak or the memory bandwidth is unknown.

        Args:
            flops: the operations of the call, two for each multiply-add.
            moved_bytes: the bytes that any implementation must move at least once.
            dtype: the type of the operands.
            memory_bytes: the bytes that come from memory in rotating calls (default: all).
        """
        peak = self.peak_for(dtype)
        if peak is None or self.dram_gbps is None:
            return None
        from_l3 = None if self.l3_gbps is None else moved_bytes / (self.l3_gbps * self.cores) / 1e9
        fetched = moved_bytes if memory_bytes is None else memory_bytes
        return Roofline(flops / (peak * self.cores) / 1e9, fetched / self.dram_gbps / 1e9, from_l3)

    @classmethod
    def detect(cls, target: str = "cpu", *, measure: bool = True, device: int = 0) -> Hardware:
        """Returns a processor of this machine.

        Args:
            target: ``"cpu"``, or ``"cuda"`` for a GPU as the NVIDIA driver describes it
                (:data:`~dietlab.machine.target.TARGETS` has all).
            measure: whether to measure the FMA peak, the bandwidths and the last-level cache of a CPU (about
                1 s). The peaks of a GPU are computed from its clocks.
            device: the index of the GPU, as the driver counts.

        Raises:
            HardwareError: for a CPU without vector units that TVM can target, a missing driver or GPU, or a
                GPU that is too old.
        """
        return hardware_target(target).detect(measure=measure, device=device)

    def measured(self) -> Hardware:
        """Returns this processor with peaks measured for its cores in use; it must be the processor of this
        machine."""
        return hardware_target(self.kind).measured(self)

    @classmethod
    def preset(cls, name: str) -> Hardware:
        """Returns a known processor, which this machine need not have; ``Hardware.presets()`` lists them.

        Raises:
            HardwareError: if there is no such preset.
        """
        known = _presets()
        if name not in known:
            raise HardwareError(f"a preset is one of {', '.join(sorted(known))}", repr(name))
        return cls.from_json(known[name])

    @staticmethod
    def presets() -> tuple[str, ...]:
        """Returns the names that :meth:`preset` knows, sorted."""
        return tuple(sorted(_presets()))

    @property
    def card(self) -> Card:
        """Its card in a notebook: cores and peaks, and a section with every figure."""
        facts = [counted(self.cores, self.limits.unit)]
        if self.total_gflops is not None:
            facts.append(Quantity(f"{self.total_gflops:,.0f} GFLOP/s", "float32 peak"))
        if self.dram_gbps is not None:
            facts.append(Quantity(f"{self.dram_gbps:,.0f} GB/s", "memory"))
        return Card("Hardware", self.name, tuple(facts), (Fold("Description", self.table, unfolded=True),))

    def table(self) -> Listing:
        """Returns the rows of its card: every number with its unit."""
        value = asdict(self)
        figures = [*value.pop("limits").items(), *value.items()]
        return Listing(("figure", "value"), [_figure(*figure) for figure in figures])

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row and a column for each number: the fields, the ``kind`` and the limits.
        Processors of a kind have the same columns."""
        import pandas as pd

        value = asdict(self)
        limits = value.pop("limits")
        return pd.DataFrame([{**value, "kind": self.kind, **limits}])

    def to_json(self) -> dict[str, Any]:
        """Returns the processor as a JSON value: all fields and the limits."""
        value = asdict(self)
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Hardware:
        """Returns the processor of a JSON value made by ``to_json``.

        Raises:
            HardwareError: if a field is missing or unknown, or the schema differs.
        """
        if not isinstance(value, Mapping):
            raise HardwareError("a hardware file must hold one JSON object", value)
        if value.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise HardwareError(f"a hardware file needs schema {SCHEMA_VERSION}", value.get("schema_version"))
        try:
            given = {k: v for k, v in value.items() if k not in ("schema_version", "kind")}
            return cls(limits=_limits(value["kind"], given.pop("limits")), **given)
        except (KeyError, TypeError) as error:
            found = reason_of(error) if isinstance(error, KeyError) else error
            raise HardwareError("a hardware file must have all fields of Hardware", found) from None

    def save(self, path: str | Path) -> None:
        """Writes the processor to a JSON file, which :meth:`load` reads."""
        write_json(Path(path), self.to_json(), error=HardwareError)

    @classmethod
    def load(cls, path: str | Path) -> Hardware:
        """Reads a processor from a file of :meth:`save`.

        Raises:
            HardwareError: if it is unreadable, a field is missing or unknown, or the schema differs.
        """
        with reading(HardwareError, "a hardware file must be readable JSON", path):
            return cls.from_json(read_json(path))


def _figure(name: str, value: Cell) -> tuple[str, str]:
    """Returns a field in words: ``("l2", "1 MiB")``."""
    stem, _, unit = name.rpartition("_")
    words = {"gflops": "GFLOP/s", "gbps": "GB/s", "mib": "MiB"}
    if unit == "bytes" and isinstance(value, int):
        return stem.replace("_", " "), bytes_text(value)
    if unit in words:
        return stem.replace("_", " "), f"{cell_text(value)} {words[unit]}" if value else "unknown"
    return name.replace("_", " "), cell_text(value)


def _limits(kind: str, value: Mapping[str, Any]) -> Limits:
    limits = hardware_target(kind).LIMITS
    missing = [f.name for f in fields(limits) if f.default is MISSING and f.name not in value]
    if missing:
        raise HardwareError(
            "a file that describes a processor must have all of its limits",
            f"no {', '.join(missing)}",
            f"Describe it anew, by Hardware.detect({kind!r}), or use a preset (--hardware).",
        )
    return limits(**value)


def _presets() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "presets.json").read_text(encoding="utf-8")
    presets: dict[str, dict[str, Any]] = json.loads(text)
    return presets

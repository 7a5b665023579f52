"""Timed steps, and the file that they are kept in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError, closest
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.shipped import data_path
from dietlab.lab.loops.programs import Layer
from dietlab.lab.loops.steps import STEPS, Step
from dietlab.machine import Hardware

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
SHIPPED = "loops/xeon.json"
"""The recorded climb; its README names machine, date and command."""

DIETLAB = "dietlab's own"
"""The name of the goal among timed programs."""


@dataclass(frozen=True)
class Timed:
    """One program on one layer.

    Args:
        step: the program's name.
        layer: of fixed extents.
        seconds_median: of a call, over blocks (s).
        seconds_low, seconds_high: ends of the median's 95 % interval (s).
        blocks: of calls that were timed (count).
    """

    step: str
    layer: Layer
    seconds_median: float
    seconds_low: float
    seconds_high: float
    blocks: int

    @property
    def gflops(self) -> float:
        """Throughput in GFLOP/s by the median."""
        return self.layer.flops / self.seconds_median / 1e9

    def to_json(self) -> dict[str, Any]:
        """Returns all fields, the layer's own in its place."""
        value = asdict(self)
        return {"step": value.pop("step"), **value.pop("layer"), **value}


@dataclass(frozen=True)
class Climb:
    """Timed programs of one machine.

    Args:
        hardware: with its measured peak and bandwidths.
        rows: times.
        about: how and when they were taken: ``at``, ``command``, ``versions``.
    """

    hardware: Hardware
    rows: tuple[Timed, ...]
    about: Mapping[str, Any]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths T that were timed, ascending."""
        return tuple(sorted({row.layer.T for row in self.rows}))

    def of(self, step: str, T: int) -> Timed:
        """Returns one program's time at one length.

        Raises:
            RecordError: if it was not timed.
        """
        found = [row for row in self.rows if (row.step, row.layer.T) == (step, T)]
        if not found:
            names = dict.fromkeys(row.step for row in self.rows)
            raise RecordError(
                f"a timed program is one of {', '.join(names)} at T in {self.lengths}",
                f"{step!r} at T={T}",
                closest(step, names),
            )
        return found[-1]

    def to_frame(self) -> pd.DataFrame:
        """Returns a row for each timed program, times in seconds."""
        import pandas as pd

        return pd.DataFrame([{**row.to_json(), "gflops": row.gflops} for row in self.rows])

    def save(self, path: str | Path) -> None:
        """Writes a JSON file."""
        facts = {"about": dict(self.about), "hardware": self.hardware.to_json()}
        rows = [row.to_json() for row in self.rows]
        write_json(Path(path), {"schema_version": SCHEMA_VERSION, **facts, "rows": rows})

    @classmethod
    def load(cls, path: str | Path) -> Climb:
        """Reads what :meth:`save` wrote.

        Raises:
            RecordError: if the file is missing or is no such file.
        """
        with reading(RecordError, "a file of timed steps can be read", path):
            value = read_json(path)
            if value["schema_version"] != SCHEMA_VERSION:
                raise RecordError(f"version {SCHEMA_VERSION} of timed steps", value["schema_version"])
            rows = tuple(
                Timed(row.pop("step"), Layer(**{n: row.pop(n) for n in "TNK"}), **row)
                for row in value["rows"]
            )
            return cls(Hardware.from_json(value["hardware"]), rows, value["about"])


@cache
def recorded() -> Climb:
    """Returns the climb that comes with dietlab."""
    return Climb.load(data_path(SHIPPED))


def step_named(name: str) -> Step:
    """Returns a step of the climb.

    Args:
        name: as in a step's ``name``.

    Raises:
        RecordError: for another name.
    """
    found = {step.name: step for step in STEPS}
    if name not in found:
        raise RecordError(f"a step is one of {', '.join(found)}", repr(name), closest(name, found))
    return found[name]

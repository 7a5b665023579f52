"""Timed steps and the file that they are kept in; each step's reason, primitives and loops, and the figure
that climbs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, RecordError, closest
from dietlab.base.files import read_json, reading, write_json
from dietlab.base.shipped import data_path
from dietlab.lab.loops.programs import BERT, Layer, nest, scheduled
from dietlab.lab.loops.steps import STEPS, Step, before, change_of
from dietlab.machine import Hardware
from dietlab.view.figures.base import new_figure
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SCHEMA_VERSION = 1
SHIPPED = "loops/xeon.json"
"""The recorded climb; its README names machine, date and command."""

DIETLAB = "dietlab's own"
"""The name of the goal among timed programs."""


@dataclass(frozen=True)
class Timed:
    """The program of a ``step``, by name, on one ``layer``: ``seconds_median`` of a call over the timed
    ``blocks`` (count), and the ends of its 95 % interval, ``seconds_low`` and ``seconds_high``."""

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
        """Returns all fields, with the layer's fields in place of ``layer``."""
        value = asdict(self)
        return {"step": value.pop("step"), **value.pop("layer"), **value}


@dataclass(frozen=True)
class Climb:
    """Timed programs of one machine.

    Args:
        hardware: the machine, with its measured peak and bandwidths.
        rows: one time for each pair of program and layer.
        about: the way and the time in which the times were taken: ``at``, ``command``, ``versions``.
    """

    hardware: Hardware
    rows: tuple[Timed, ...]
    about: Mapping[str, Any]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths T that were timed, ascending."""
        return tuple(sorted({row.layer.T for row in self.rows}))

    def of(self, step: str, T: int) -> Timed:
        """Returns one program's time at one length, which must have been timed."""
        found = [row for row in self.rows if (row.step, row.layer.T) == (step, T)]
        if not found:
            names = dict.fromkeys(row.step for row in self.rows)
            rule = f"a timed program is one of {', '.join(names)} at T in {self.lengths}"
            raise RecordError(rule, f"{step!r} at T={T}", closest(step, names))
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
        """Reads what :meth:`save` wrote, or raises a RecordError."""
        with reading(RecordError, "a file of timed steps must be readable", path):
            value = read_json(path)
            if value["schema_version"] != SCHEMA_VERSION:
                raise RecordError(f"timed steps must have schema {SCHEMA_VERSION}", value["schema_version"])
            rows = [Timed(layer=Layer(**{n: row.pop(n) for n in "TNK"}), **row) for row in value["rows"]]
            return cls(Hardware.from_json(value["hardware"]), tuple(rows), value["about"])


@cache
def recorded() -> Climb:
    """Returns the climb that comes with dietlab."""
    return Climb.load(data_path(SHIPPED))


def step_named(name: str) -> Step:
    """Returns a step of the climb.

    Args:
        name: the ``name`` of the step.

    Raises:
        RecordError: for another name.
    """
    found = {step.name: step for step in STEPS}
    if name not in found:
        raise RecordError(f"a step is one of {', '.join(found)}", repr(name), closest(name, found))
    return found[name]


ROOM = 2.5
"""The factor by which the y-axis reaches below the lowest and above the highest value of the whole climb."""

LINES = {DIETLAB: ("oracle", "dot"), "peak": ("muted", "solid")}
"""The roles of colours and the dashes of the goal's and the peak's lines."""


def bounds(climb: Climb, layer: Layer) -> dict[str, float]:
    """Returns the roofline's two bounds on a layer's throughput, in GFLOP/s: the peak of multiply-adds, and
    the throughput at which the last-level cache can deliver each byte once.

    Args:
        climb: the climb of the machine, whose peak and bandwidth must have been measured.
        layer: the layer whose operations and bytes are counted.
    """
    hardware = climb.hardware
    if hardware.peak_gflops is None or hardware.l3_gbps is None:
        raise DietlabError("the machine's peak and bandwidth must have been measured", hardware.name)
    cached = hardware.l3_gbps * layer.flops / layer.moved_bytes
    return {"peak": hardware.peak_gflops, "cache's bandwidth": cached}


def frame_climb(climb: Climb, upto: str = STEPS[-1].name, T: int = BERT.T) -> pd.DataFrame:
    """Returns the steps up to one: throughput with its interval (GFLOP/s), the gain over the step that it
    changes (a ratio) and the share of the roofline (of 1).

    Args:
        climb: the times of the steps.
        upto: the name of the last step shown.
        T: the length, in rows; it must have been timed.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for step in STEPS[: STEPS.index(step_named(upto)) + 1]:
        timed = climb.of(step.name, T)
        operations = timed.layer.flops / 1e9
        rows.append(
            {
                "step": step.name,
                "gflops": timed.gflops,
                "gflops_low": operations / timed.seconds_high,
                "gflops_high": operations / timed.seconds_low,
                "gain": timed.gflops / climb.of(before(step).name, T).gflops if rows else math.nan,
                "roofline": timed.gflops / min(bounds(climb, timed.layer).values()),
            }
        )
    return pd.DataFrame(rows).set_index("step")


def plot_climb(climb: Climb, upto: str = STEPS[-1].name, T: int = BERT.T) -> go.Figure:
    """Draws the steps so far as bars, the last one strong, below the roofline and the goal; later steps have
    a place on the axis but no bar.

    Args:
        climb, upto, T: as in :func:`frame_climb`.
    """
    frame, names = frame_climb(climb, upto, T), [step.name for step in STEPS]
    layer = climb.of(STEPS[0].name, T).layer
    lines = {**bounds(climb, layer), DIETLAB: climb.of(DIETLAB, T).gflops}
    low = min(climb.of(name, T).gflops for name in names) / ROOM
    figure = new_figure(frame, f"The climb at T = {T}", None)
    _draw_bars(figure, frame, upto, low)
    for name, value in lines.items():
        colour, dash = LINES.get(name, ("accent4", "dash"))
        look = {"color": PALETTE[colour], "dash": dash, "width": 2}
        ends = {"x": [names[0], names[-1]], "y": [value, value]}
        figure.add_scatter(**ends, mode="lines", line=look, name=f"{name}: {value:,.0f}", hoverinfo="name")
    shown = [math.log10(low), math.log10(max(lines.values()) * ROOM)]
    figure.update_xaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(names) - 0.4])
    figure.update_yaxes(title_text="throughput (GFLOP/s)", type="log", range=shown, dtick=1)
    figure.update_layout(showlegend=True)
    return figure


def _draw_bars(figure: go.Figure, frame: pd.DataFrame, upto: str, low: float) -> None:
    """Draws a bar for each step, with its value at the bar's foot, where no line crosses the value."""
    names = list(frame.index)
    figure.add_bar(
        x=names,
        y=frame["gflops"],
        marker={"color": [PALETTE["ours"] if name == upto else PALETTE["needed"] for name in names]},
        error_y={
            "type": "data",
            "array": frame["gflops_high"] - frame["gflops"],
            "arrayminus": frame["gflops"] - frame["gflops_low"],
            "color": PALETTE["muted"],
        },
        hoverinfo="text",
        hovertext=[f"<b>{name}</b>: {v:.3g} GFLOP/s" for name, v in frame["gflops"].items()],
        showlegend=False,
    )
    figure.add_scatter(
        x=names,
        y=[1.05 * low] * len(names),
        mode="text",
        text=[f"{v:.3g}" for v in frame["gflops"]],
        textposition="top center",
        textfont={"color": "white"},
        hoverinfo="skip",
        showlegend=False,
    )


def told(name: str, layer: Layer = BERT) -> str:
    """Returns a step as a text: its reason, the schedule's primitives, and the loops before and after.

    Args:
        name: the name of a step.
        layer: the layer, which has the extents of the loops.
    """
    step = step_named(name)
    after = nest(scheduled(step, layer))
    if not step.recipe:
        return f"{step.why}\n\n{after}"
    source = inspect.getsource(change_of(step))
    primitives = dedent(source.rpartition('"""')[2]).strip()
    earlier = nest(scheduled(before(step), layer))
    return f"{step.why}\n\n{primitives}\n\nbefore\n{indent(earlier, '  ')}\nafter\n{indent(after, '  ')}"

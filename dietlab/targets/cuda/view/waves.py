"""Waves of thread blocks on a GPU: how many a multiprocessor holds and why, and how the last wave is left
partly empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import WorkloadError
from dietlab.cost import adaptation_cost
from dietlab.cost.adaptation import AdaptationCost
from dietlab.machine import Hardware
from dietlab.measure import Record
from dietlab.problem import Shape, Workload, extents, precision_of
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Scheme, plan_on
from dietlab.targets.cuda.ending import places, rounds_of_ending
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.needs import compiled_registers, shared_bytes
from dietlab.targets.cuda.occupancy import LIMITERS, Limiter, block_bounds, limiter
from dietlab.view.figures.base import MICRO, add_legend_key, add_ring, hovering, new_figure
from dietlab.view.theme import GRID, PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_ROUNDS = 64
"""The most rounds that are drawn: cells of more rounds would be thinner than the lines between them. The last
rounds are kept, since places stay empty there."""

CURVE_POINTS = 192
"""The most lengths at which expected times are drawn: enough to see each wave's step, and computed in
milliseconds."""

EMPTY, EARLIER, LAST = 0, 1, 2
"""Values of a cell: no block, a block of a full wave, and one of the last wave."""


@dataclass(frozen=True)
class Occupancy:
    """The blocks of a micro-kernel that one multiprocessor holds.

    Args:
        registers: the number of registers of a thread.
        shared_bytes: shared memory of a block.
        bounds: for each resource, the number of blocks that it alone has room for.
        by: the resource that bounds the blocks.
    """

    registers: int
    shared_bytes: int
    bounds: Mapping[Limiter, int]
    by: Limiter

    @property
    def blocks(self) -> int:
        """The number of blocks at a time; 0 if not even one fits."""
        return min(self.bounds.values())


def occupancy_of(
    kernel: CudaMicroKernel, workload: Workload, hardware: Hardware, registers: int | None = None
) -> Occupancy:
    """Returns the occupancy of a micro-kernel.

    Args:
        registers: the number of registers of a thread, as a compiler reports it (default: an estimate from
            the sizes).
    """
    gpu = gpu_of(hardware)
    used = compiled_registers(kernel, gpu) if registers is None else registers
    shared = shared_bytes(kernel, precision_of(workload).itemsize)
    sizes = gpu, kernel.threads, used, shared
    return Occupancy(used, shared, block_bounds(*sizes), limiter(*sizes))


@dataclass(frozen=True)
class Waves:
    """The launch of a scheme on a shape.

    A round is one block on each multiprocessor; a wave is as many rounds as a multiprocessor holds blocks.

    Args:
        blocks: the number of blocks of the launch.
        multiprocessors: the number of multiprocessors of the GPU.
        resident: blocks that one multiprocessor holds, 1 or more.
    """

    blocks: int
    multiprocessors: int
    resident: int

    @property
    def places(self) -> int:
        """The number of blocks that run at the same time."""
        return self.multiprocessors * self.resident

    @property
    def waves(self) -> int:
        return ceil(self.blocks / self.places)

    @property
    def rounds(self) -> int:
        return ceil(self.blocks / self.multiprocessors)

    @property
    def last_blocks(self) -> int:
        """The number of blocks of the last wave; 0 for an empty launch."""
        return self.blocks - (self.waves - 1) * self.places if self.blocks else 0

    @property
    def empty(self) -> float:
        """The share of the rounds' places that no block takes, in [0, 1)."""
        return 1 - self.blocks / (self.rounds * self.multiprocessors) if self.blocks else 0.0


def waves_of(workload: Workload, hardware: Hardware, scheme: Scheme, length: int, resident: int) -> Waves:
    """Returns the waves of a scheme's launch at a length.

    Args:
        resident: blocks that one multiprocessor holds.
    """
    shape = shape_at(workload, length)
    sizes = extents(workload, shape)
    tiles = plan_on(scheme, workload, shape).tiles * ceil(sizes["cols"] / scheme.cols) * sizes["batch"]
    kernel, resident = scheme.kernel, max(1, resident)
    held, steps = int(places(kernel.cluster, resident, hardware.cores)), ceil(sizes["depth"] / kernel.step)
    shared = tiles % held if rounds_of_ending(tiles, held, kernel.ending, steps) else 0
    return Waves(tiles * kernel.splits + shared * (kernel.ending - 1), hardware.cores, resident)


def shape_at(workload: Workload, length: int) -> Shape:
    """Returns the shape of a length."""
    name, _ = only_dim(workload)
    if length < 0:
        raise WorkloadError("a length must be 0 or more", f"{name}={length}")
    return Shape.of(**{name: length})


def frame_waves(
    workload: Workload, hardware: Hardware, scheme: Scheme, length: int, registers: int | None = None
) -> pd.DataFrame:
    """Returns one row for each round, in which each multiprocessor gets at most one block: the ``wave`` it
    belongs to, the number of its ``blocks``, and the number of multiprocessors without one (``idle``).

    Args:
        workload: the workload, with one dynamic dimension.
        hardware: the GPU.
        scheme: a scheme of thread blocks.
        length: the extent of the dynamic dimension.
        registers: the number of registers of a thread (default: an estimate).

    Raises:
        WorkloadError: if not exactly one dimension is dynamic, or the length is negative.
        HardwareError: if ``hardware`` is no GPU, or registers are negative.
    """
    import pandas as pd

    resident = occupancy_of(scheme.kernel, workload, hardware, registers).blocks
    launch = waves_of(workload, hardware, scheme, length, resident)
    rounds = np.arange(launch.rounds)
    blocks = np.minimum(launch.multiprocessors, launch.blocks - rounds * launch.multiprocessors)
    waves, idle = rounds // launch.resident + 1, launch.multiprocessors - blocks
    return pd.DataFrame({"round": rounds + 1, "wave": waves, "blocks": blocks, "idle": idle})


def waves_cost(
    workload: Workload, hardware: Hardware, kernel: CudaMicroKernel, registers: int | None
) -> AdaptationCost:
    """Returns the bound of a micro-kernel with its occupancy, with operands in memory when a call begins.
    ``registers`` are those of a thread (None: an estimate)."""
    blocks = max(1, occupancy_of(kernel, workload, hardware, registers).blocks)
    return adaptation_cost(workload, hardware, cache="rotating", resident={kernel: blocks})


def frame_wave_times(
    workload: Workload,
    hardware: Hardware,
    scheme: Scheme,
    records: Iterable[Record] = (),
    registers: int | None = None,
    lengths: Iterable[int] | None = None,
) -> pd.DataFrame:
    """Returns the expected seconds of a scheme over lengths and, where records have it, the measured ones.

    Columns: ``T``, ``blocks``, ``waves``, ``expected_seconds``, ``measured_seconds`` (missing where nothing
    was measured).

    Args:
        workload, hardware, scheme, registers: as in :func:`frame_waves`.
        records: the records of this workload on this GPU; records of other schemes do not count.
        lengths: the extents of the dynamic dimension (default: some evenly over its range, and the measured
            ones).

    Raises:
        WorkloadError: if not exactly one dimension is dynamic.
        HardwareError: if ``hardware`` is no GPU, or registers are negative.
    """
    import pandas as pd

    name, dim = only_dim(workload)
    took: dict[int, float] = {}
    for record in records:
        if record.scheme == scheme and record.ok and record.seconds:
            extent = record.shape[name]
            took[extent] = min(record.seconds, took.get(extent, record.seconds))
    if lengths is None:
        even = np.linspace(dim.low, dim.high, min(CURVE_POINTS, dim.high - dim.low + 1)).round()
        lengths = {*map(int, even), *took}
    chosen = sorted(set(lengths))
    cost = waves_cost(workload, hardware, scheme.kernel, registers)
    expected = cost.bound([scheme], [shape_at(workload, length) for length in chosen])[0]
    resident = occupancy_of(scheme.kernel, workload, hardware, registers).blocks
    launches = [waves_of(workload, hardware, scheme, length, resident) for length in chosen]
    return pd.DataFrame(
        {
            "T": chosen,
            "blocks": [launch.blocks for launch in launches],
            "waves": [launch.waves for launch in launches],
            "expected_seconds": expected,
            "measured_seconds": [took.get(length, np.nan) for length in chosen],
        }
    )


def plot_waves(
    workload: Workload,
    hardware: Hardware,
    scheme: Scheme,
    length: int,
    registers: int | None = None,
    records: Sequence[Record] = (),
    template: str | None = None,
) -> go.Figure:
    """Draws the launch as a grid of multiprocessors and rounds, with empty places, and below it the expected
    time over lengths with measured ones.

    Args:
        workload, hardware, scheme, length, registers: as in :func:`frame_waves`.
        records: the records of this workload on this GPU.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        WorkloadError: if not exactly one dimension is dynamic, or the length is negative.
        HardwareError: if ``hardware`` is no GPU, or registers are negative.
    """
    resident = occupancy_of(scheme.kernel, workload, hardware, registers).blocks
    launch = waves_of(workload, hardware, scheme, length, resident)
    times = frame_wave_times(workload, hardware, scheme, records, registers)
    name, _ = only_dim(workload)
    title = f"{scheme} at {name}={length}: {launch.blocks:,} blocks on {hardware.name}"
    figure = new_figure(times, title, template)
    _add_grid(figure, launch)
    _add_times(figure, times)
    chosen = frame_wave_times(workload, hardware, scheme, (), registers, [length])
    place = {"xaxis": "x2", "yaxis": "y2"}
    add_ring(figure, chosen["T"], MICRO * chosen["expected_seconds"], "this length", 14, **place)
    _lay_out(figure, name, launch)
    return figure


def _add_grid(figure: go.Figure, launch: Waves) -> None:
    """Adds the last rounds as cells, and a name for each of their colours."""
    first = max(0, launch.rounds - MOST_ROUNDS)
    rounds = np.arange(first, launch.rounds)
    block = rounds[:, None] * launch.multiprocessors + np.arange(launch.multiprocessors)[None, :]
    last = rounds[:, None] // launch.resident + 1 == launch.waves
    cells = np.where(block < launch.blocks, np.where(last, LAST, EARLIER), EMPTY)
    colours = ["rgba(128,128,128,0.18)", PALETTE["needed"], PALETTE["ours"]]
    figure.add_heatmap(
        z=cells,
        x=list(range(launch.multiprocessors)),
        y=[int(number) + 1 for number in rounds],
        zmin=EMPTY,
        zmax=LAST,
        colorscale=[[end, colours[i]] for i in range(3) for end in (i / 3, (i + 1) / 3)],
        showscale=False,
        xgap=1,
        ygap=1,
        hovertemplate="multiprocessor %{x}, round %{y}<extra></extra>",
        name="places",
    )
    for words, colour in zip(("no block", "a block", "a block of the last wave"), colours, strict=True):
        add_legend_key(figure, words, colour, size=11)


def _add_times(figure: go.Figure, frame: pd.DataFrame) -> None:
    below = {"xaxis": "x2", "yaxis": "y2"}
    figure.add_scatter(
        x=frame["T"],
        y=MICRO * frame["expected_seconds"],
        name="expected by the bound",
        mode="lines",
        line={"color": PALETTE["best_vendor"], "width": 2, "shape": "hv"},
        **hovering(frame, partial(_time_words, "expected")),
        **below,
    )
    known = frame[frame["measured_seconds"].notna()]
    if len(known):
        figure.add_scatter(
            x=known["T"],
            y=MICRO * known["measured_seconds"],
            name="measured",
            mode="markers",
            marker={"color": PALETTE["ours"], "symbol": "diamond", "size": 10},
            **hovering(known, partial(_time_words, "measured")),
            **below,
        )


def _time_words(how: str, row: Any) -> str:
    seconds = getattr(row, f"{how}_seconds")
    waves = f"{row.waves} wave{'s' * (row.waves != 1)}"
    return f"<b>T={row.T}: {MICRO * seconds:.1f} us, {escape(how)}</b><br>{row.blocks:,} blocks, {waves}"


def _lay_out(figure: go.Figure, name: str, launch: Waves) -> None:
    bare, grid = {"showgrid": False, "zeroline": False}, {"gridcolor": GRID, "zerolinecolor": GRID}
    below = {"domain": [0, 0.4], "anchor": "x2"}
    hidden = max(0, launch.rounds - MOST_ROUNDS)
    rounds = f"round (first {hidden} not drawn)" if hidden else "round"
    few = {"tickvals": list(range(1, launch.rounds + 1))} if launch.rounds <= 12 else {}  # whole numbers only
    figure.update_layout(
        height=640,
        legend={"orientation": "h", "y": -0.12},
        margin={"b": 100},
        xaxis={**bare, "anchor": "y", "title": {"text": "multiprocessor"}},
        yaxis={**bare, **few, "domain": [0.56, 1], "autorange": "reversed", "title": {"text": rounds}},
        xaxis2={**grid, "anchor": "y2", "title": {"text": f"{name} (extent)"}},
        yaxis2={**grid, **below, "rangemode": "tozero", "title": {"text": "one call (us)"}},
    )


def bounds_words(occupancy: Occupancy) -> str:
    """Returns a text that says what each resource has room for: ``"threads 8, blocks 32, ..."``."""
    return ", ".join(f"{name} {occupancy.bounds[name]}" for name in LIMITERS)

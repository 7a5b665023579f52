"""The roofline: what arithmetic intensity allows at each level of memory, and measured calls below it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import HardwareError, WorkloadError
from dietlab.compare.results.report import Report
from dietlab.machine import Hardware
from dietlab.machine.roofline import Ceiling
from dietlab.machine.target import hardware_target
from dietlab.problem import USUAL, Shape, Workload, length_dim, require_dtype
from dietlab.view.figures.base import add_ring, hovering, new_figure
from dietlab.view.theme import PALETTE, TIE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LENGTHS = tuple(2**n for n in range(13))
"""The lengths at which a layer is drawn: each doubling from 1 to 4096."""

STATES = {
    "rotating": ("measured, operands from memory", PALETTE["ours"], "circle"),
    "interleaved": ("measured, weights in the last cache", PALETTE["selected"], "diamond"),
    "hot": ("measured, hot", PALETTE["accent3"], "square"),
}
"""The label, colour and symbol of each cache state."""

DASHES = ("solid", "dash", "dot")
"""The dashes of the ceilings, from the slowest level of memory to the fastest."""


def ceilings(hardware: Hardware) -> tuple[Ceiling, ...]:
    """Returns the known ceilings of a processor, the slowest level first: memory, then the caches that its
    target knows.

    Raises:
        HardwareError: if neither the peak nor the memory's bandwidth is known.
    """
    if hardware.peak_gflops is None or hardware.dram_gbps is None:
        raise HardwareError(
            "a roofline needs a peak and a bandwidth of memory",
            f"{hardware.name} without them",
            "Measure them (Hardware.detect()) or take a preset.",
        )
    memory = Ceiling("memory", hardware.dram_gbps, hardware.source)
    return memory, *hardware_target(hardware.kind).ceilings(hardware)


def peak_of(hardware: Hardware, dtype: str) -> float:
    """Returns the peak of all cores or multiprocessors, in GFLOP/s."""
    peak = hardware.peak_for(dtype) if hardware.peak_gflops else None
    if peak is None:
        raise HardwareError(f"a roofline of {dtype} needs a peak", f"{hardware.name} without one")
    return peak * hardware.cores


def tile_intensity(rows: int, cols: int, dtype: str = USUAL) -> float:
    """Returns the floating-point operations of a tile of the output for each byte that it loads. Every step
    of the reduction loads ``rows + cols`` operands for ``rows * cols`` multiply-adds.

    Args:
        rows, cols: the extents of the tile, 1 or more.
    """
    if min(rows, cols) < 1:
        raise WorkloadError("a tile must have rows and columns", f"{rows} x {cols}", "Make both 1 or more.")
    return 2 * rows * cols / ((rows + cols) * require_dtype(dtype).itemsize)


def tile_level(hardware: Hardware) -> Ceiling:
    """Returns the level of memory from which a tile loads its operands: L1 for a register tile, L2 for a
    thread block's tile."""
    wanted = "L1" if hardware.limits.on_host else "L2"
    return next(ceiling for ceiling in ceilings(hardware) if ceiling.level == wanted)


def frame_roofline(workload: Workload, hardware: Hardware, lengths: Iterable[int] = LENGTHS) -> pd.DataFrame:
    """Returns one row for each pair of a length and a level of memory: the ``intensity`` of a call
    (operations for each byte, if every operand and the output move once), the GFLOP/s that the level allows,
    and what bounds the GFLOP/s.

    Columns: ``T``, ``level``, ``gbps``, ``flops``, ``bytes``, ``intensity``, ``gflops``, ``bound`` (the
    level, or ``"peak"``).

    Args:
        workload: a layer with one dynamic dimension.
        hardware: a processor whose peak and memory bandwidth are known.
        lengths: the extents of the dynamic dimension, each 1 or more.

    Raises:
        WorkloadError: if not exactly one dimension is dynamic, or a length is not positive.
        HardwareError: if the peak or the memory's bandwidth is unknown.
    """
    import pandas as pd

    name, peak = only_length(workload), peak_of(hardware, workload.dtype)
    rows = []
    for length in lengths:
        if length < 1:
            raise WorkloadError("a call on a roofline needs rows", f"{name}={length}", "Make it 1 or more.")
        shape = Shape.of(**{name: length})
        flops, moved = workload.flops(shape), workload.bytes(shape)
        for ceiling in ceilings(hardware):
            allowed = flops / moved * ceiling.gbps
            bound = ceiling.level if allowed < peak else "peak"
            least = min(allowed, peak)
            rows.append((length, ceiling.level, ceiling.gbps, flops, moved, flops / moved, least, bound))
    columns = ["T", "level", "gbps", "flops", "bytes", "intensity", "gflops", "bound"]
    return pd.DataFrame(rows, columns=columns)


def only_length(workload: Workload) -> str:
    """Returns the only dynamic dimension."""
    name = length_dim(workload)
    if len(workload.dims) > 1:
        remedy = "Bind the others: Report.of_layer, or dietlab.problem.at_layer."
        raise WorkloadError("a roofline can only be of one dynamic dimension", str(workload), remedy)
    return name


def frame_below_roofline(report: Report) -> pd.DataFrame:
    """Returns one row for each measured call of dietlab: its ``intensity`` as in :func:`frame_roofline`, its
    ``gflops``, and its ``share`` of the roofline of its cache state. A share is above 1 if the call moved
    bytes faster than the measured bandwidth.

    Columns: ``T``, ``cache``, ``intensity``, ``gflops``, ``share``, ``plan``.

    Args:
        report: a report with measured calls of one layer.

    Raises:
        WorkloadError: if not exactly one dimension is dynamic.
    """
    import pandas as pd

    workload = report.operator
    name = only_length(workload)
    rows = []
    for row in report.rows:
        if row.contender == report.maker and row.correct and (length := row.shape[name]) > 0:
            intensity = workload.flops(row.shape) / workload.bytes(row.shape)
            rows.append((length, row.cache, intensity, row.gflops, row.roofline, row.plan))
    return pd.DataFrame(rows, columns=["T", "cache", "intensity", "gflops", "share", "plan"])


def plot_roofline(
    workload: Workload,
    hardware: Hardware,
    report: Report | None = None,
    length: int | None = None,
    tile: tuple[int, int] | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws the ceilings over arithmetic intensity on two logarithmic axes, and the layer at each doubling of
    its length, at the GFLOP/s that memory allows.

    Args:
        workload, hardware: as in :func:`frame_roofline`.
        report: a report whose measured calls are drawn; it is of the same layer and processor.
        length: the length that gets a ring.
        tile: rows and columns of a tile, drawn at the GFLOP/s that its level of memory allows.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        WorkloadError: if not exactly one dimension is dynamic, or ``length`` or a side is not positive.
        HardwareError: if the peak or the memory's bandwidth is unknown.
    """
    frame = frame_roofline(workload, hardware)
    figure = new_figure(frame, f"{workload} on {hardware.name}", template)
    peak, levels = peak_of(hardware, workload.dtype), ceilings(hardware)
    ends = _ends(frame, peak, levels)
    _add_layer(figure, frame[frame["level"] == "memory"])
    _add_ceilings(figure, peak, levels, ends)
    if report is not None:
        _add_measured(figure, frame_below_roofline(report))
    if tile is not None:
        _add_tile(figure, tile, workload.dtype, hardware, peak)
    if length is not None:
        one = frame_roofline(workload, hardware, [length])
        row = next(one[one["level"] == "memory"].itertuples())
        figure.add_vline(x=row.intensity, line=TIE)
        add_ring(figure, [row.intensity], [row.gflops], f"T={row.T}")
    log = {"type": "log", "dtick": 1, "exponentformat": "none"}
    below = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    figure.update_layout(height=580, legend=below, margin_b=150)  # room for a name an entry, in two columns
    figure.update_xaxes(title_text="arithmetic intensity (FLOP for each byte that moves)", **log)
    figure.update_yaxes(title_text="GFLOP/s", **log)
    return figure


def _ends(frame: pd.DataFrame, peak: float, levels: Iterable[Ceiling]) -> tuple[float, float]:
    """Returns the intensities between which ceilings are drawn: every ridge lies well inside."""
    ridges = [peak / ceiling.gbps for ceiling in levels]
    return min(0.2, min(ridges) / 2), max(frame["intensity"].max(), 4 * max(ridges))


def _add_layer(figure: go.Figure, frame: pd.DataFrame) -> None:
    """Adds the layer as T grows. It is the first trace, where a click chooses a length."""
    figure.add_scatter(
        x=frame["intensity"],
        y=frame["gflops"],
        name="the layer at T = 1, 2, 4 ... 4096, from memory",
        mode="lines+markers",
        line={"color": PALETTE["muted"], "width": 1},
        marker={"color": PALETTE["muted"], "size": 5, "symbol": "circle"},
        **hovering(
            frame,
            lambda row: (
                f"<b>T={row.T}: at most {row.gflops:,.0f} GFLOP/s, by {row.bound}</b>"
                f"<br>{row.intensity:.3g} FLOP/byte: {row.flops:,} FLOP, {row.bytes:,} bytes"
            ),
        ),
    )


def _add_ceilings(
    figure: go.Figure, peak: float, levels: tuple[Ceiling, ...], ends: tuple[float, float]
) -> None:
    low, high = ends
    for ceiling, dash in zip(levels, DASHES, strict=False):
        ridge = peak / ceiling.gbps
        figure.add_scatter(
            x=[low, ridge],
            y=[low * ceiling.gbps, peak],
            name=f"{ceiling.level}: {ceiling.gbps:,.0f} GB/s",
            mode="lines",
            line={"color": PALETTE["best_vendor"], "dash": dash, "width": 2},
            hoverinfo="text",
            hovertext=f"<b>{ceiling.level}: {ceiling.gbps:,.0f} GB/s</b><br>{escape(ceiling.source)}"
            f"<br>reaches the peak from {ridge:.3g} FLOP/byte on",
        )
    first = min(peak / ceiling.gbps for ceiling in levels)
    figure.add_scatter(
        x=[first, high],
        y=[peak, peak],
        name=f"peak: {peak:,.0f} GFLOP/s",
        mode="lines",
        line={"color": PALETTE["oracle"], "width": 3},
        hoverinfo="text",
        hovertext=f"<b>peak: {peak:,.0f} GFLOP/s</b>",
    )


def _add_measured(figure: go.Figure, frame: pd.DataFrame) -> None:
    for cache, (name, colour, symbol) in STATES.items():
        part = frame[frame["cache"] == cache]
        if len(part):
            figure.add_scatter(
                x=part["intensity"],
                y=part["gflops"],
                name=name,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 7, "opacity": 0.8},
                **hovering(part, _measured_hover),
            )


def _measured_hover(row: Any) -> str:
    share = f"<br>{100 * row.share:.0f} % of the roofline of this state" if row.share == row.share else ""
    return f"<b>T={row.T}: {row.gflops:,.1f} GFLOP/s</b> ({row.cache}){share}<br>{escape(str(row.plan))}"


def _add_tile(figure: go.Figure, tile: tuple[int, int], dtype: str, hardware: Hardware, peak: float) -> None:
    level, intensity = tile_level(hardware), tile_intensity(*tile, dtype)
    figure.add_scatter(
        x=[intensity],
        y=[min(peak, intensity * level.gbps)],
        name=f"a tile of {tile[0]} x {tile[1]}, from {level.level}",
        mode="markers",
        marker={"color": PALETTE["wasted"], "symbol": "star", "size": 14},
        hoverinfo="text",
        hovertext=f"<b>{intensity:.3g} FLOP for each byte from {level.level}</b>",
    )

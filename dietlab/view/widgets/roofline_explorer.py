"""An explorer of the roofline: a layer's length, a tile's size, and measured calls below the ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dietlab.compare.results.report import Report
from dietlab.machine import Hardware
from dietlab.problem import Workload
from dietlab.view.figures.roofline import (
    LENGTHS,
    frame_below_roofline,
    frame_roofline,
    only_length,
    peak_of,
    plot_roofline,
    tile_intensity,
    tile_level,
)
from dietlab.view.widgets.arguments import Source, hardware_of, reports_of, workload_of
from dietlab.view.widgets.controls import OneOf

if TYPE_CHECKING:
    from dietlab.compare.study import Study
    from dietlab.view.widgets.explorer import Explorer

LAYER_TRACE = 0
"""The index of the layer's trace: a click on the trace chooses a length."""

ROWS, COLS = (1, 2, 4, 6, 8, 12, 16, 32, 64, 128, 256), (1, 4, 8, 16, 32, 64, 128, 256)
"""The rows and columns to choose from, for a register tile or a thread block's tile."""

STUDY = "The layer with its processor, and whether calls of it were measured"
LENGTH = "Extent of the dynamic dimension (a count); a click on the layer's curve chooses it, too"
TILE_ROWS = "Rows of the output that a tile computes (a count): more rows reuse each weight more often"
TILE_COLS = "Columns of the output that a tile computes (a count): more columns reuse each input more often"


def roofline_explorer(
    workload: Workload | Study, hardware: Hardware | Study | str, reports: Source | Iterable[Report] = ()
) -> Explorer:
    """Explores the roofline of a layer: the level of memory that bounds a length, the effect of a tile's
    size, and the measured calls.

    A click on the layer's curve chooses a length. ``explorer.frame`` is
    :func:`~dietlab.view.figures.roofline.frame_roofline` of the length on display.

    Args:
        workload: an operator with one dynamic dimension, or a study of one.
        hardware: a processor with a known peak and memory bandwidth, the name of a preset, or a study on the
            processor.
        reports: reports of measured layers to choose from, each on its processor, or a bench or a study with
            such reports.

    Raises:
        WorkloadError: if not exactly one dimension of an operator is dynamic.
        HardwareError: if a peak or a bandwidth of memory is unknown.
        RecordError: if ``reports`` holds anything but reports.
    """
    return _explorer(workload_of(workload), hardware_of(hardware), reports_of(reports))


def _explorer(workload: Workload, hardware: Hardware, reports: tuple[Report, ...]) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    studies: dict[str, tuple[Workload, Hardware, Report | None]] = {}
    _add(studies, workload, hardware, None)
    for report in reports:
        _add(studies, report.operator, report.processor, report)
    for work, chip, _ in studies.values():
        frame_roofline(work, chip, LENGTHS[:1])  # what cannot be drawn is refused at the door

    def draw(study: str, length: int, rows: int, cols: int) -> Drawn:
        work, chip, report = studies[study]
        frame = frame_roofline(work, chip, [length])
        figure = plot_roofline(work, chip, report, length, (rows, cols))
        return Drawn(figure, frame, _numbers(work, chip, length, (rows, cols)), _note(report, length))

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        number = point.get("point")
        if point.get("trace") != LAYER_TRACE or number is None or not 0 <= number < len(LENGTHS):
            return {}
        return {"length": LENGTHS[number]}

    def slider(label: str, tooltip: str, options: tuple[int, ...], value: int) -> OneOf:
        return OneOf(value, options, slider=True, label=label, tooltip=tooltip)

    names = tuple(studies)
    tile = (8, 32) if hardware.limits.on_host else (128, 128)
    controls = {
        "study": OneOf(names[min(1, len(names) - 1)], names, label="layer", tooltip=STUDY),
        "length": slider(only_length(workload), LENGTH, LENGTHS, 1),
        "rows": slider("rows", TILE_ROWS, ROWS, tile[0]),
        "cols": slider("columns", TILE_COLS, COLS, tile[1]),
    }
    groups = {"Layer": ["study"], "Shape": ["length"], "Tile": ["rows", "cols"]}
    given = "workload, hardware, reports" if len(studies) > 1 else "workload, hardware"
    opener = f"dl.roofline_explorer({given})"
    return Explorer(draw, controls, clicked, groups=groups, opener=opener, wide=("study",))


def _add(
    studies: dict[str, tuple[Workload, Hardware, Report | None]],
    workload: Workload,
    hardware: Hardware,
    report: Report | None,
) -> None:
    """Adds a study under a name that no other study has."""
    used = hardware.limits.used(hardware.cores)
    name = f"{hardware.name}, {used}: {workload}{', measured' if report else ''}"
    number = sum(known == name or known.startswith(f"{name} (") for known in studies)
    studies[f"{name} ({number + 1})" if number else name] = workload, hardware, report


def _numbers(workload: Workload, hardware: Hardware, length: int, tile: tuple[int, int]) -> dict[str, str]:
    one = frame_roofline(workload, hardware, [length])
    every = frame_roofline(workload, hardware)
    numbers = {"intensity": f"{one['intensity'].iloc[0]:.3g} FLOP/byte"}
    for row in one[~one["level"].isin(("L1", "shared memory"))].itertuples():
        by = "by multiply-adds" if row.bound == "peak" else "by its bandwidth"
        numbers[f"with all from {row.level}"] = f"{row.gflops:,.0f} GFLOP/s, {by}"
    from_memory = every[(every["level"] == "memory") & (every["bound"] == "peak")]
    first = from_memory["T"].min() if len(from_memory) else None
    reached = f"from T = {first} on" if first else f"not up to T = {LENGTHS[-1]}"
    numbers["bound by multiply-adds, cold"] = reached
    level, peak = tile_level(hardware), peak_of(hardware, workload.dtype)
    intensity = tile_intensity(*tile, workload.dtype)
    fed = min(1.0, intensity * level.gbps / peak)
    numbers["the tile"] = f"{intensity:.3g} FLOP for a byte from {level.level}: {100 * fed:.0f} % of the peak"
    return numbers


def _note(report: Report | None, length: int) -> str:
    """Returns a sentence that compares a measured call with the roofline of its cache state."""
    if report is None:
        return "Nothing was measured here: choose a measured layer to see its calls."
    frame = frame_below_roofline(report)
    at = frame[(frame["T"] == length) & frame["share"].notna()]
    if at.empty:
        return f"T = {length} was not measured; {len(frame)} calls of other lengths are drawn."
    of_peak = {"hot": ": of the peak, which alone bounds it"}
    shares = ", ".join(
        f"{100 * row.share:.3g} % ({row.cache}{of_peak.get(row.cache, '')})" for row in at.itertuples()
    )
    faster = " Above 100 %, bytes came faster than when the bandwidth was measured."
    above = faster if at["share"].max() > 1 else ""
    return f"Measured at T = {length}, of the roofline of its cache state: {shares}.{above}"

"""Waves of thread blocks to play with: a tile, its occupancy, and what the last wave leaves empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import RecordError
from dietlab.cost import f_pad
from dietlab.machine import Hardware
from dietlab.measure import Record
from dietlab.problem import Workload, extents
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Edge, Scheme
from dietlab.targets.cuda.kernel import CLUSTER, CudaMicroKernel
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.space import ARRANGEMENTS, STAGES, STEPS, units
from dietlab.targets.cuda.space import limits as cuda_limits
from dietlab.targets.cuda.unit import GROUPED, Unit
from dietlab.targets.cuda.view.waves import (
    Occupancy,
    bounds_words,
    frame_wave_times,
    occupancy_of,
    plot_waves,
    shape_at,
    waves_cost,
    waves_of,
)
from dietlab.view.figures.base import MICRO
from dietlab.view.widgets.arguments import hardware_of, records_of, workload_of
from dietlab.view.widgets.controls import Control, Number, OneOf

if TYPE_CHECKING:
    from pathlib import Path

    from dietlab.compare.study import Study
    from dietlab.view.widgets.explorer import Explorer

OWN = "the tile below"
"""The option for a tile of the controls below; the others are measured schemes."""

WORKERS: dict[Unit, str] = {"fma": "threads", "mma": "warps", **dict.fromkeys(GROUPED, "groups")}
"""The names of the workers that share a block's tile."""

ESTIMATED = 0
REGISTERS = (ESTIMATED, 32, 40, 48, 64, 80, 96, 128, 168, 200, 255)
"""The numbers of registers of a thread to choose from; :data:`ESTIMATED` follows from the sizes."""

SIZES = ("down", "across", "each_rows", "each_cols")
"""The controls of a tile: workers in both directions, and what each of them computes."""

SPLITS = (1, 2, 4, CLUSTER)
MIDDLE = 1024
"""The extent that is shown first, or the one nearest to it in the range: several waves of most tiles."""
OPENING: dict[Unit, tuple[int, int, int, int]] = {
    "fma": (16, 16, 8, 4),
    "mma": (2, 2, 64, 64),
    "wgmma": (2, 1, 64, 256),
    "tma": (2, 1, 64, 256),
    "swapped": (1, 2, 16, 64),
}
"""The arrangement that an explorer opens with: a usual one of each unit."""

EDGES: tuple[tuple[str, Edge], ...] = (
    ("even", "even"),
    ("full tiles and a rest", "rest"),
    ("padded", "padded"),
)
GROUPS = {
    "Launch": ["chip", "length", "scheme", "registers"],
    "Tile": ["unit", *SIZES, "step", "stages", "splits", "edge"],
}
TOOLTIPS = {
    "chip": "The GPU on which the blocks are launched; measured times are those of the first one",
    "length": "Extent of the dynamic dimension (a count)",
    "scheme": "A measured scheme, or the tile that the other controls make",
    "registers": "Registers of a thread (a count), as a compiler reports them, or an estimate from the sizes",
    "unit": "What multiplies: arithmetic of single threads, or matrix instructions of warps or of groups",
    "down": "Workers of a block that share its rows (a count)",
    "across": "Workers of a block that share its columns (a count)",
    "each_rows": "Rows of the output that each of them computes (a count)",
    "each_cols": "Columns of the output that each of them computes (a count)",
    "step": "Depth of the sums that a block loads at a time (a count)",
    "stages": "Loads in flight at a time, each with a buffer in shared memory (a count)",
    "splits": "Blocks that share the sums of one tile (a count)",
    "edge": "How rows that are no multiple of the tile are covered: by tiles of several heights, or padded",
}
MOST_KEYS = 40
"""The most measured schemes to choose from: first those that were fastest at a length, then others by their
mean."""


def waves_explorer(
    workload: Workload | Study,
    gpu: Hardware | Study | str,
    records: Study | str | Path | Iterable[Record] = (),
) -> Explorer:
    """Explores waves and occupancy: the blocks that a multiprocessor holds and the limit that bounds them,
    the grid of a launch with its empty places, and the time that the bound expects beside measured ones.

    The controls of the tile apply while ``scheme`` is :data:`OWN`. ``explorer.frame`` is
    :func:`~dietlab.targets.cuda.view.waves.frame_wave_times` over lengths.

    Args:
        workload: a workload with one dynamic dimension, or a study of one.
        gpu: the GPU to begin with, the name of a preset, or a study's; all presets can be chosen, too.
        records: records measured on ``gpu``, or a study or its folder, which has some. They are drawn where
            their scheme is chosen.

    Raises:
        WorkloadError: if not exactly one dimension is dynamic.
        HardwareError: if ``gpu`` is no GPU.
        RecordError: if something else than records is given.
    """
    work, chip = workload_of(workload), hardware_of(gpu)
    only_dim(work)
    _ = gpu_of(chip)
    return _explorer(work, chip, _checked(records))


def _explorer(workload: Workload, gpu: Hardware, measured: tuple[Record, ...]) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    chips = {gpu.name: gpu}
    for name in Hardware.presets():
        chip = Hardware.preset(name)
        if chip.kind == gpu.kind:
            chips.setdefault(chip.name, chip)

    def draw(chip: str, length: int, scheme: str, registers: int, unit: Unit, **sizes: Any) -> Drawn:
        on, used = chips[chip], registers or None
        known = units(workload, on)
        arranged = unit if unit in known else known[0]
        options = {"unit": known, **_options(arranged)}
        if arranged != unit or any(sizes[name] not in options[name] for name in _options(arranged)):
            sizes = {**sizes, **_opening(arranged)}
        chosen = _scheme(arranged, **sizes) if scheme == OWN else Scheme.from_key(scheme)
        seen = measured if on.name == gpu.name else ()
        frame = frame_wave_times(workload, on, chosen, seen, used)
        figure = plot_waves(workload, on, chosen, length, used, seen)
        numbers = _numbers(workload, on, chosen, length, used)
        return Drawn(figure, frame, numbers, _note(workload, on, chosen, used), options)

    controls = _controls(workload, gpu, tuple(chips), _keys(measured, workload))
    given = "workload, gpu, records" if measured else "workload, gpu"
    explorer = Explorer(draw, controls, groups=GROUPS, opener=f"dl.waves_explorer({given})")

    def call_workers(change: Any) -> None:
        for way, label in _workers(change["new"]).items():
            explorer.controls[way].description = label

    explorer.controls["unit"].observe(call_workers, "value")
    return explorer


def _checked(records: object) -> tuple[Record, ...]:
    invariant = "measured times must be records of thread blocks"
    found = records_of(records, invariant)
    for record in found:
        if not isinstance(record.scheme.kernel, CudaMicroKernel):
            remedy = "Take dietlab.read_records(path).records of a GPU."
            raise RecordError(invariant, repr(record), remedy)
    return found


def _keys(records: Iterable[Record], workload: Workload) -> tuple[str, ...]:
    """Returns the measured schemes to choose from: the fastest of each length, and then the best of the
    others by their mean time over the fastest."""
    name, _ = only_dim(workload)
    times: dict[int, dict[str, float]] = {}
    for record in records:
        if record.ok and record.seconds:
            at = times.setdefault(record.shape[name], {})
            at[record.scheme.key] = min(record.seconds, at.get(record.scheme.key, record.seconds))
    best = [min(at, key=at.__getitem__) for _, at in sorted(times.items())]
    ratios: dict[str, list[float]] = {}
    for at in times.values():
        fastest = min(at.values())
        for key, seconds in at.items():
            ratios.setdefault(key, []).append(seconds / fastest)
    others = sorted(ratios, key=lambda key: sum(ratios[key]) / len(ratios[key]))
    return tuple(dict.fromkeys([*best, *others]))[:MOST_KEYS]


def _options(unit: Unit) -> dict[str, tuple[int, ...]]:
    """Returns the sizes that a unit's tiles have, by control."""
    return {**dict(zip(SIZES, ARRANGEMENTS[unit], strict=True)), "step": STEPS[unit], "stages": STAGES[unit]}


def _opening(unit: Unit) -> dict[str, int]:
    """Returns the sizes that a unit begins with."""
    sizes = dict(zip(SIZES, OPENING[unit], strict=True))
    return {**sizes, "step": STEPS[unit][0], "stages": STAGES[unit][0]}


def _scheme(
    unit: Unit,
    down: int,
    across: int,
    each_rows: int,
    each_cols: int,
    step: int,
    stages: int,
    splits: int,
    edge: Edge,
) -> Scheme:
    """Returns the scheme that the controls make."""
    tile = down * each_rows, across * each_cols, step
    return Scheme(CudaMicroKernel(*tile, down, across, stages=stages, unit=unit, splits=splits), edge)


def _numbers(
    workload: Workload, hardware: Hardware, scheme: Scheme, length: int, registers: int | None
) -> dict[str, str]:
    kernel = scheme.kernel
    fits = occupancy_of(kernel, workload, hardware, registers)
    launch = waves_of(workload, hardware, scheme, length, fits.blocks)
    shape = shape_at(workload, length)
    cost = waves_cost(workload, hardware, kernel, registers)
    static, padded = cost.static(scheme, shape), f_pad(extents(workload, shape), scheme.cover_tile)
    busy = min(1.0, static / padded) if padded > 0 else 0.0
    how = "as given" if registers else "estimated"
    warps = f"{fits.blocks * kernel.threads // gpu_of(hardware).warp_threads} warps"
    return {
        "tile": f"{kernel.rows} x {kernel.cols} outputs by {kernel.threads} threads",
        "registers, shared memory": f"{fits.registers} a thread ({how}), {fits.shared_bytes / 1024:.1f} KiB",
        "blocks on a multiprocessor": f"{fits.blocks} ({warps}), by {fits.by}",
        "room by each limit": bounds_words(fits),
        "waves": f"{launch.waves} of {launch.places} places, {launch.last_blocks} blocks in the last",
        "places left empty": f"{100 * launch.empty:.1f} % of {launch.rounds} rounds",
        "idle by the bound": f"{100 * (1 - busy):.1f} % of the time of computing",
        "expected": f"{MICRO * cost.bound([scheme], [shape])[0, 0]:.1f} us",
    }


def _note(workload: Workload, hardware: Hardware, scheme: Scheme, registers: int | None) -> str:
    """Returns a sentence that says whether the tile can run and is in the space, and the reason if not."""
    fits: Occupancy = occupancy_of(scheme.kernel, workload, hardware, registers)
    if not fits.blocks:
        return f"Not one block fits a multiprocessor, by {fits.by}: times and waves are those of one."
    broken = next((one for one in cuda_limits(workload, hardware) if one.excess(scheme) > 0), None)
    if broken is None:
        return f"A micro-kernel of these sizes is in the space of {hardware.name}."
    found = f"{broken.measure(scheme):,.0f} {broken.unit}, at most {broken.most:,.0f}"
    return f"No micro-kernel of these sizes is in the space: {broken.reason} ({found})."


def _controls(
    workload: Workload, gpu: Hardware, chips: tuple[str, ...], keys: tuple[str, ...]
) -> Mapping[str, Control]:
    name, dim = only_dim(workload)
    known = units(workload, gpu)
    unit = known[-1]
    opening, options = _opening(unit), _options(unit)
    labels = {**_workers(unit), "each_rows": "rows of each", "each_cols": "columns of each"}
    registers = [(str(count) if count else "estimated", count) for count in REGISTERS]
    middle = min(dim.high, max(dim.low, MIDDLE))

    def choice(field: str, value: Any, options: Any, label: str = "") -> OneOf:
        return OneOf(value, options, label=label or field, tooltip=TOOLTIPS[field])

    return {
        "chip": choice("chip", gpu.name, chips, "GPU"),
        "length": Number(middle, dim.low, dim.high, lazy=True, label=name, tooltip=TOOLTIPS["length"]),
        "scheme": choice("scheme", OWN, (OWN, *keys)),
        "unit": choice("unit", unit, known),
        **{field: choice(field, opening[field], options[field], labels.get(field, "")) for field in options},
        "splits": choice("splits", 1, SPLITS),
        "registers": choice("registers", ESTIMATED, registers),
        "edge": choice("edge", "even", EDGES, "last rows"),
    }


def _workers(unit: Unit) -> dict[str, str]:
    """Returns by control the labels of a unit's worker counts."""
    return {way: f"{WORKERS[unit]} {way}" for way in ("down", "across")}

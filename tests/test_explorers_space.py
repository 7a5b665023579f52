"""The space explorer and the padding explorer: what they show is what the stages compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import trace
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import EVERY
from schemes import cpu_scheme

from dietlab.base.errors import HardwareError, WorkloadError
from dietlab.compare.results.policies import POLICIES, policy_waste
from dietlab.cost import f_occ, f_pad, padding_waste
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, extents
from dietlab.scheme import EDGES, MicroKernel, build_space, edges_of, plan_for
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.targets.cpu.machine import KNOBS
from dietlab.targets.cpu.space import limits as cpu_limits
from dietlab.targets.cuda.limits import GpuLimits
from dietlab.view.figures.padding import (
    MOST_CELLS,
    MOST_ROW_TILES,
    THIS,
    frame_policies,
    frame_tiling,
    frame_waste,
    plot_tiling,
    plot_waste,
)
from dietlab.view.widgets.space_explorer import amount, frame_funnel, plot_funnel

QKV = Dense(T=Dim(1, 128), N=2304, K=768)
SCORES = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nt")
CONTEXT = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nn")
HASWELL = Hardware.preset("haswell-1core")
ZEN = Hardware.preset("zen4-1core")

WORKLOADS = pytest.mark.parametrize("work", [QKV, SCORES, CONTEXT], ids=["dense", "nt", "nn"])
KERNELS = st.builds(
    cpu_scheme, st.integers(1, 32), st.integers(1, 8).map(lambda v: 16 * v), edge=st.sampled_from(EDGES)
)


def space_explorer(work: Workload = QKV, hardware: Hardware = HASWELL) -> Any:
    from dietlab.view.widgets.space_explorer import space_explorer

    return space_explorer(work, hardware)


def padding_explorer(work: Workload = QKV, hardware: Hardware = HASWELL) -> Any:
    from dietlab.targets.cpu.view.padding_explorer import padding_explorer

    return padding_explorer(work, hardware)


# --- the funnel -------------------------------------------------------------------------------


@WORKLOADS
def test_the_funnel_loses_nothing(work: Workload) -> None:
    space = build_space(work, HASWELL)
    frame, table = frame_funnel(space), space.rejections
    assert [*frame.columns] == ["limit", "left", "rejected", "most", "unit", "nearest_miss", "nearest_value"]
    assert frame["left"].iloc[0] == len(space) + table["rejected"].sum()
    assert frame["left"].iloc[-1] == len(space)
    assert (-frame["left"].diff().iloc[1:] == frame["rejected"].iloc[1:]).all()
    steps = frame.iloc[1:]
    assert steps["limit"].tolist() == table["reason"].tolist()
    assert steps["rejected"].tolist() == table["rejected"].tolist()
    assert steps["nearest_miss"].tolist() == table["nearest_miss"].tolist()
    assert (steps["nearest_value"].astype(float) > steps["most"]).all()


def test_the_funnel_is_drawn_with_bounds_and_nearest_misses() -> None:
    space = build_space(QKV, HASWELL)
    frame, figure = frame_funnel(space), plot_funnel(space)
    left, rejected = trace(figure, "left"), trace(figure, "rejected by this limit")
    assert list(left.x) == frame["left"].tolist() and list(rejected.x) == frame["rejected"].tolist()
    assert figure.layout.barmode == "stack"
    assert figure.layout.xaxis.title.text == "candidates (count)"
    total = frame["left"].iloc[0]
    assert figure.layout.title.text == f"{len(space):,} of {total:,} candidates fit {HASWELL.name}"
    first = " ".join(left.y[1].split("<br>"))
    assert first == "accumulators and operands fit the vector registers (at most 16 registers)"
    assert f"<b>{frame['rejected'].iloc[1]:,} candidates are rejected here</b>" in rejected.hovertext[1]
    assert f"nearest miss {frame['nearest_miss'].iloc[1]} with 17 registers" in rejected.hovertext[1]
    assert figure.data[2].text[1] == (
        f" {frame['left'].iloc[1]:,} left, {frame['rejected'].iloc[1]:,} rejected"
        f"<br> nearest miss: 17 registers<br> ({frame['nearest_miss'].iloc[1]})"
    )
    assert plot_funnel(space, "plotly_white").layout.paper_bgcolor is None


AMOUNTS = {
    "33 registers": (33, "registers"),
    "64 bytes": (64, "bytes"),
    "768 KiB": (786432, "bytes"),
    "1 MiB": (1 << 20, "bytes"),
    "1.5 MiB": (1.5 * (1 << 20), "bytes"),
    "2,304 columns": (2304, "columns"),
}


def test_amounts_have_units() -> None:
    assert [amount(value, unit) for value, unit in AMOUNTS.values()] == [*AMOUNTS]


# --- the space explorer -----------------------------------------------------------------------


@WORKLOADS
def test_the_explorer_opens_on_the_real_processor(work: Workload) -> None:
    explorer, space = space_explorer(work), build_space(work, HASWELL)
    assert explorer.drawn.numbers["schemes that fit"] == f"{len(space):,}"
    assert explorer.drawn.numbers["on the real processor"] == f"{len(space):,}"
    assert explorer.frame.equals(frame_funnel(space))
    assert "What would another processor change?" in explorer.drawn.note
    assert explorer.values == {
        "vector_registers": 16,
        "vector_bytes": 32,
        "cores": 1,
        "l1d_bytes": 32 << 10,
        "l2_bytes": 256 << 10,
        "cover": "composed",
    }


def test_twice_the_cache_is_another_space() -> None:
    wide = replace(QKV, K=3072)  # its panels do not fit a small L2
    explorer = space_explorer(wide)
    real = set(build_space(wide, HASWELL))
    explorer.controls["l2_bytes"].value = 512 << 10
    twice = set(build_space(wide, replace(HASWELL, limits=replace(HASWELL.limits, l2_bytes=512 << 10))))
    assert len(twice) > len(real)
    assert explorer.drawn.numbers["schemes that fit"] == f"{len(twice):,}"
    assert explorer.drawn.numbers["on the real processor"] == f"{len(real):,}"
    assert explorer.drawn.note == (
        f"With L2 cache 512 KiB instead of 256 KiB: {len(twice - real):,} more schemes fit, 0 fit no longer."
    )
    assert "changed" in explorer.figure.layout.title.text
    assert f"{len(twice):,}" in explorer.live.figure_json
    explorer.controls["l2_bytes"].value = 256 << 10
    assert explorer.frame.equals(frame_funnel(build_space(wide, HASWELL)))


def test_what_no_limit_depends_on_changes_nothing() -> None:
    explorer = space_explorer()
    before = explorer.frame
    explorer.controls["l1d_bytes"].value = 128 << 10
    assert explorer.frame.equals(before)
    told = "With L1 data cache 128 KiB instead of 32 KiB: exactly the same schemes fit."
    assert explorer.drawn.note == told


def test_several_limits_turned_at_once() -> None:
    explorer = space_explorer()
    explorer.set(vector_registers=32, vector_bytes=64, cores=4, cover="paper")
    chip = replace(HASWELL, cores=4, limits=replace(HASWELL.limits, vector_registers=32, vector_bytes=64))
    space = build_space(QKV, chip, edges_of("paper", QKV, chip))
    assert explorer.frame.equals(frame_funnel(space))
    for words in ("vector registers 32 instead of 16", "vector width 64 bytes", "cores 4 instead of 1"):
        assert words in explorer.drawn.note


def test_a_processor_on_which_nothing_fits_is_a_sentence() -> None:
    explorer = space_explorer()
    explorer.controls["vector_registers"].value = 4
    note = explorer.drawn.note
    assert "at least one scheme for dense" in note and "vector registers (" in note
    assert explorer.frame.empty
    explorer.controls["vector_registers"].value = 8
    assert len(explorer.frame) > 1


limits = st.sampled_from(["l2_bytes", "vector_registers"])


@settings(max_examples=10)
@given(st.sampled_from([QKV, SCORES]), limits, st.sampled_from([768, 8192]))
def test_a_larger_limit_rejects_nothing_more(work: Workload, field: str, depth: int) -> None:
    from dietlab.view.widgets.space_explorer import _turned, figure_of

    work = replace(work, K=depth) if isinstance(work, Dense) else replace(work, D=depth)
    (knob,) = [knob for knob in KNOBS if knob.field == field]
    real = {k.field: figure_of(ZEN, k) for k in KNOBS}
    kept: set[MicroKernel] = set()
    for value in knob.values(figure_of(ZEN, knob)):
        space = build_space(work, _turned(ZEN, {**real, field: value}))
        # Reductions are cut only where L2 is small, so that these come and go.
        larger = {k for k in space if not (isinstance(k.kernel, CpuMicroKernel) and k.kernel.block)}
        assert kept <= larger
        kept = larger


@pytest.mark.parametrize("preset", ["t4", "h100"])
def test_a_gpu_has_its_own_sliders(preset: str) -> None:
    hardware = Hardware.preset(preset)
    assert isinstance(hardware.limits, GpuLimits)
    explorer = space_explorer(QKV, hardware)
    assert {"threads_per_block", "smem_per_block_bytes", "cores"} < set(explorer.controls)
    explorer.controls["cores"].value = 64
    assert "exactly the same schemes fit" in explorer.drawn.note
    explorer.set(threads_per_block=256)
    assert "exactly the same schemes fit" not in explorer.drawn.note


# --- tiles ------------------------------------------------------------------------------------


@given(KERNELS, st.integers(1, 200), st.integers(1, 300))
def test_tiles_cover_every_output_once_and_waste_what_the_cost_says(
    kernel: MicroKernel, rows: int, cols: int
) -> None:
    frame = frame_tiling(kernel, rows, cols)
    covered = np.zeros((rows, cols), int)
    for t in frame.itertuples():
        assert 1 <= t.needed_rows <= t.rows <= kernel.rows and 1 <= t.needed_cols <= t.cols
        covered[t.first_row : t.first_row + t.needed_rows, t.first_col : t.first_col + t.needed_cols] += 1
    assert (covered == 1).all()
    executed = frame["rows"] * frame["cols"]
    waste = padding_waste({"rows": rows, "cols": cols, "depth": 1}, kernel.cover_tile)
    assert 1 - rows * cols / executed.sum() == pytest.approx(waste)
    assert (executed * frame["padding_waste"]).sum() / executed.sum() == pytest.approx(waste)
    assert frame["row_tile"].max() == plan_for(kernel, rows).tiles


tiles = st.tuples(st.integers(1, 9), st.integers(1, 9))
outputs = st.tuples(st.integers(1, 60), st.integers(1, 60))


@given(tiles, st.sampled_from(["even", "rest"]), outputs)
def test_dot_products_are_composed_on_both_axes(
    tile: tuple[int, int], edge: Any, output: tuple[int, int]
) -> None:
    frame = frame_tiling(cpu_scheme(*tile, edge=edge, along="depth"), *output)
    assert (frame["padding_waste"] == 0).all()
    assert (frame["rows"] * frame["cols"]).sum() == output[0] * output[1]


def test_a_tiling_has_cells_of_true_size() -> None:
    figure = plot_tiling(cpu_scheme(14, 32, edge="padded"), 31, 80)
    drawn = figure.data[0]
    assert list(drawn.y) == [0, 14, 28, 31, 42] and list(drawn.x) == [0, 32, 64, 80, 96]
    cells = np.array(drawn.z)
    assert cells[:3, :3].tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]  # tiles told apart
    assert (cells[3] == 2).all() and (cells[:, 3] == 2).all()
    assert "padding: no output needs this" in drawn.text[3][0]
    assert "row tile 3 of 3: 3 of 14 rows are needed" in drawn.text[3][0]
    assert "column tile 1 of 3: all 32 columns are needed" in drawn.text[3][0]
    assert figure.layout.title.text == "31 x 80 outputs in tiles of 14 x 32: 38.5 % padding"
    assert figure.layout.xaxis.title.text == "column of the output"
    assert {t.name for t in figure.data[1:]} == {"needed by the output", "padding"}


@settings(max_examples=20)
@given(KERNELS, st.integers(1, 200), st.integers(1, 300))
def test_the_coloured_area_is_the_waste(kernel: MicroKernel, rows: int, cols: int) -> None:
    drawn = plot_tiling(kernel, rows, cols).data[0]
    down, across = np.diff(drawn.y), np.diff(drawn.x)
    if down.sum() < rows or across.sum() < cols:
        return  # drawn from its end only
    area = np.outer(down, across)
    padded = area[np.array(drawn.z) == 2].sum() / area.sum()
    waste = padding_waste({"rows": rows, "cols": cols, "depth": 1}, kernel.cover_tile)
    assert padded == pytest.approx(waste, abs=1e-12)


def test_very_many_tiles_are_drawn_from_the_end() -> None:
    figure = plot_tiling(cpu_scheme(3, 16, edge="padded"), 4096, 9216)
    drawn = figure.data[0]
    assert np.size(drawn.z) <= MOST_CELLS + MOST_ROW_TILES
    assert max(drawn.y) == 4098 and max(drawn.x) == 9216
    assert figure.layout.yaxis.title.text == "row of the output (the last 64 of 1,366 tiles)"
    assert "of 576 tiles)" in figure.layout.xaxis.title.text
    assert len(frame_tiling(cpu_scheme(3, 16, edge="padded"), 4096, 9216)) == 1366 * 576


def test_outputs_without_rows_have_no_tiles() -> None:
    kernel = cpu_scheme(14, 32)
    assert frame_tiling(kernel, 0, 64).empty and len(plot_tiling(kernel, 0, 64).data) == 0
    with pytest.raises(WorkloadError, match="negative extent; got -1"):
        frame_tiling(kernel, -1, 64)


# --- waste ------------------------------------------------------------------------------------


@WORKLOADS
@pytest.mark.parametrize("edge", ["padded", "even"])
def test_the_map_has_the_waste_of_every_shape_and_height(work: Workload, edge: Any) -> None:
    kernel = cpu_scheme(14, 32, edge=edge)
    frame = frame_waste(work, kernel, heights=[1, 5, 14], extents=[1, 14, 15, 128])
    assert list(frame.columns) == ["T", "rows", "padding_waste"] and len(frame) == 12
    for row in frame.itertuples():
        waste = padding_waste(extents(work, Shape.of(T=row.T)), kernel.changed(rows=row.rows).cover_tile)
        assert row.padding_waste == pytest.approx(waste)
    figure = plot_waste(work, kernel, heights=[1, 5, 14], extents=[1, 14, 15, 128])
    drawn = figure.data[0]
    assert (list(drawn.x), list(drawn.y)) == ([1, 14, 15, 128], [1, 5, 14])
    chosen = frame[(frame["T"] == 15) & (frame["rows"] == 14)]["padding_waste"].item()
    assert drawn.z[2][2] == pytest.approx(100 * chosen)
    assert figure.layout.yaxis.title.text == "height of the tile (rows)"
    assert drawn.colorbar.title.text == "waste (%)"


def test_composition_leaves_no_padded_rows() -> None:
    padded, even = (frame_waste(QKV, cpu_scheme(14, 32, edge=e))["padding_waste"] for e in ("padded", "even"))
    assert padded.max() > 0.9  # T=1 in a tile of 32 rows
    assert even.max() == 0  # 2,304 columns are a multiple of 32
    assert len(padded) == 128 * 32
    some = frame_waste(QKV, cpu_scheme(14, 32), heights=iter([1, 2]), extents=iter([3, 4]))
    assert len(some) == 4


@WORKLOADS
def test_policies_waste_what_the_report_says(work: Workload) -> None:
    kernel, shape = cpu_scheme(14, 32, edge="padded"), Shape.of(T=43)
    frame = frame_policies(work, kernel, shape).set_index("policy")
    assert list(frame.index) == [THIS, *POLICIES]
    for name, policy in POLICIES.items():
        assert frame.loc[name, "padding_waste"] == pytest.approx(policy_waste(work, shape, policy))
    useful = f_pad(extents(work, shape), kernel.cover_tile)
    assert frame.loc[THIS, "executed_for_one_needed"] == pytest.approx(1 / useful)


def test_padding_needs_a_dynamic_dimension() -> None:
    with pytest.raises(WorkloadError, match="at least one dimension must be dynamic; got dense T=43"):
        frame_waste(Dense(T=43, N=64, K=8), cpu_scheme(14, 32))
    with pytest.raises(WorkloadError, match="at least one dimension must be dynamic; got dense T=43"):
        padding_explorer(Dense(T=43, N=64, K=8))


# --- the padding explorer ---------------------------------------------------------------------


@WORKLOADS
def test_numbers_of_a_shape_and_a_micro_kernel(work: Workload) -> None:
    explorer = padding_explorer(work, ZEN)
    explorer.set(T=43, rows=14, cols=32, cores=3)
    kernel = cpu_scheme(14, 32, edge=explorer.values["edge"])
    assert not kernel.composed  # it opens without composition
    sizes, numbers = extents(work, Shape.of(T=43)), explorer.drawn.numbers
    useful = f_pad(sizes, kernel.cover_tile)
    assert numbers["rows of the tiles"] == "4 x 14"
    assert numbers["padding waste"] == f"{100 * (1 - useful):.1f} %"
    assert numbers["executed for one needed"] == f"{1 / useful:.2f} multiply-adds"
    across = -(-sizes["cols"] // 32)
    assert numbers["tiles"].startswith(f"4 down, {across} across")
    dealt = 4 * across if work is QKV else sizes["batch"]
    assert numbers["idle"] == f"{100 * (1 - f_occ(dealt, 3)):.1f} % of the time of 3 cores"
    assert explorer.frame.equals(frame_tiling(kernel, sizes["rows"], sizes["cols"]))


def test_composition_is_switched_on_and_off() -> None:
    explorer = padding_explorer()
    explorer.set(T=31, rows=14, cols=16, edge="padded")
    off = explorer.drawn.numbers
    assert (off["rows of the tiles"], off["padding waste"]) == ("3 x 14", "26.2 %")
    explorer.controls["edge"].value = "even"
    on = explorer.drawn.numbers
    assert (on["rows of the tiles"], on["padding waste"]) == ("1 x 11 + 2 x 10", "0.0 %")
    explorer.controls["edge"].value = "rest"
    assert explorer.drawn.numbers["rows of the tiles"] == "2 x 14 + 1 x 3"
    assert 2 not in np.array(explorer.figure.data[0].z)


def test_idle_cores_follow_their_slider() -> None:
    explorer = padding_explorer(replace(QKV, N=64))
    explorer.set(T=14, rows=14, cols=16)  # four tiles
    for cores, idle in ((1, "0.0 % of the time of 1 core"), (3, "33.3 % of the time of 3 cores")):
        explorer.controls["cores"].value = cores
        assert explorer.drawn.numbers["idle"] == idle


def test_policies_stand_beside_the_plan() -> None:
    explorer = padding_explorer()
    explorer.set(T=43, rows=14)
    bars = trace(explorer.figure, "policies")
    frame = frame_policies(QKV, cpu_scheme(14, 16, edge="padded"), Shape.of(T=43))
    assert list(bars.y) == pytest.approx((100 * frame["padding_waste"]).tolist())
    assert len(set(bars.marker.color)) == 4
    assert "to powers of two at T=43" in bars.hovertext[2]
    assert explorer.figure.layout.yaxis3.title.text == "waste (%)"


def test_a_click_on_the_map_chooses_shape_and_height() -> None:
    explorer = padding_explorer()
    drawn = explorer.figure.data[1]
    assert drawn.type == "heatmap" and drawn.xaxis == "x2"
    explorer.live.clicked = {"trace": 1, "point": [4, 99], "x": 100, "y": 5, "count": 1}
    assert (explorer.values["T"], explorer.values["rows"]) == (100, 5)
    chosen = trace(explorer.figure, "chosen")
    assert (list(chosen.x), list(chosen.y)) == ([100], [5])
    assert explorer.drawn.numbers["rows of the tiles"] == "20 x 5"
    explorer.live.clicked = {"trace": 0, "point": [0, 0], "x": 3, "y": 3, "count": 2}
    assert explorer.values["T"] == 100


def test_the_note_says_which_limit_breaks() -> None:
    explorer = padding_explorer()
    assert "fits a CPU with AVX2" in explorer.drawn.note
    explorer.set(rows=16, cols=64)
    first = next(x for x in cpu_limits(QKV, HASWELL) if x.excess(cpu_scheme(16, 64)) > 0)
    assert first.reason in explorer.drawn.note and "(137 registers, at most 16)" in explorer.drawn.note


@settings(max_examples=25)
@given(st.integers(1, 4096))
def test_the_map_shows_lengths_around_the_chosen_one(extent: int) -> None:
    from dietlab.targets.cpu.view.padding_explorer import SHOWN, _window

    window = _window(Dim(1, 4096), extent)
    assert extent in window and len(window) == SHOWN
    assert window[0] >= 1 and window[-1] <= 4096
    assert list(_window(Dim(5, 9), 7)) == [5, 6, 7, 8, 9]


def test_every_end_of_every_control_is_drawn() -> None:
    for work in (QKV, SCORES, CONTEXT):
        explorer = padding_explorer(work)
        sliders = {n: c for n, c in explorer.controls.items() if n != "edge"}
        for edge in [value for _, value in explorer.controls["edge"].options]:
            for end in ("min", "max"):
                explorer.set(edge=edge, **{name: getattr(c, end) for name, c in sliders.items()})
                assert explorer.drawn.numbers and not explorer.frame.empty


def test_the_padding_explorer_is_for_cpus() -> None:
    with pytest.raises(HardwareError, match="needs a CPU; got NVIDIA T4"):
        padding_explorer(QKV, Hardware.preset("t4"))


@WORKLOADS
def test_both_explorers_keep_a_picture(work: Workload) -> None:
    for explorer in (space_explorer(work), padding_explorer(work)):
        data, _ = explorer._repr_mimebundle_()
        assert len(data["image/png"]) > 1000


def test_padding_of_several_dimensions_has_a_slider_for_each() -> None:
    from dietlab.view.figures.shape_map import middle

    explorer = padding_explorer(EVERY, HASWELL)
    assert list(explorer.values)[:3] == ["T", "N", "K"]
    assert explorer.values["N"] == middle(EVERY.dims["N"]) == 512
    explorer.set(T=11, N=100, K=64, rows=4, cols=16, edge="even")
    layer = replace(EVERY, N=100, K=64)
    assert explorer.frame.equals(frame_tiling(cpu_scheme(4, 16, edge="even"), 11, 100))
    alone = padding_explorer(layer, HASWELL)
    alone.set(T=11, rows=4, cols=16, edge="even")
    assert explorer.drawn.numbers == alone.drawn.numbers and explorer.drawn.note == alone.drawn.note
    explorer.live.clicked = {"trace": 1, "point": 0, "x": 20, "y": 5, "count": 1}
    assert (explorer.values["T"], explorer.values["rows"], explorer.values["N"]) == (20, 5, 100)


def test_waste_of_several_dimensions_is_of_a_layer() -> None:
    kernel = cpu_scheme(6, 16, edge="padded")
    layer = {"N": 100, "K": 64}
    frame = frame_waste(EVERY, kernel, [4, 6], [10, 11], layer)
    assert frame.equals(frame_waste(replace(EVERY, **layer), kernel, [4, 6], [10, 11]))
    assert "N=100 K=64" in plot_waste(EVERY, kernel, layer=layer).layout.title.text
    told = r"but T: N, K; got missing K, N\. Give layer=\{'N': 512, 'K': 512\}"
    with pytest.raises(WorkloadError, match=told):
        plot_waste(EVERY, kernel)

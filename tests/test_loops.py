"""The first lesson's steps: each computes what NumPy does, and is the program that it says it is."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import (
    BuildError,
    DietlabError,
    MeasureError,
    MissingDependencyError,
    RecordError,
    WorkloadError,
)
from dietlab.compare.ansor.hooks import MODULE
from dietlab.lab.loops import (
    DIETLAB,
    GOAL,
    OTHER_TILES,
    STEPS,
    Climb,
    Layer,
    Program,
    Step,
    Tile,
    Timed,
    bounds,
    build,
    check,
    decisions,
    frame_climb,
    inputs,
    instructions,
    measure,
    nest,
    plot_climb,
    recorded,
    scheduled,
    sketches,
    step_named,
    told,
)
from dietlab.lab.loops.steps import ASKS_AHEAD, VECTOR, before, change_of
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.scheme import Scheme
from dietlab.targets.cpu.kernel import CpuMicroKernel

SMALL = Layer(T=19, N=96, K=384)
"""Rows that no tile divides, two panels, two K-blocks."""

NAMES = [step.name for step in STEPS]

LOOKUP = inspect.getmodule
"""What making sketches may replace for a moment only."""


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return Hardware.detect(measure=False).with_cores(1)


@pytest.fixture(scope="module")
def programs(hardware: Hardware) -> dict[str, Program]:
    layer = replace(SMALL, T=16)
    return {step.name: build(step, layer, hardware) for step in STEPS}


# --- the programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("rows", [1, 8, 19])
def test_each_step_computes_what_numpy_does(step: Step, rows: int, hardware: Hardware) -> None:
    program = build(step, replace(SMALL, T=rows), hardware)
    assert 0 < check(program) < 1e-3


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 20),
    vectors=st.integers(1, 4),
    T=st.integers(1, 23),
    panels=st.integers(1, 2),
    block=st.sampled_from([1, 5, 64]),
    ahead=st.integers(1, 200),
    step=st.sampled_from(STEPS[-2:]),
)
def test_any_tile_is_right_on_any_layer(
    rows: int, vectors: int, T: int, panels: int, block: int, ahead: int, step: Step
) -> None:
    """Prefetches beyond the weights' end do no harm, and blocks that do not divide K are computed whole."""
    tile = Tile(rows, VECTOR * vectors, block, ahead)
    layer = Layer(T, panels * tile.cols, 64)
    check(build(replace(step, tile=tile), layer, Hardware.detect(measure=False).with_cores(1)))


def test_a_wrong_result_is_told(programs: dict[str, Program]) -> None:
    def half(x: Any, w: Any, y: Any) -> None:
        program.call(x, w, y)
        y *= 0.5

    program = programs["registers"]
    with pytest.raises(BuildError, match="registers: the result must equal NumPy's"):
        check(replace(program, call=half))
    with pytest.raises(BuildError, match="off by nan"):
        check(replace(program, call=lambda x, w, y: None))


def test_packing_is_a_permutation_in_the_order_of_use(programs: dict[str, Program]) -> None:
    layer = replace(SMALL, T=16)
    _, w = inputs(layer)
    cols = STEPS[-1].tile.cols
    packed = programs["pack"].weights(w)
    assert packed.shape == (layer.N // cols, layer.K, cols)
    assert packed[1, 5, 3] == w[cols + 3, 5]
    assert np.array_equal(np.sort(packed, axis=None), np.sort(w, axis=None))
    assert programs["tile"].weights(w) is w


def test_inputs_are_repeated_by_their_seed_and_lie_on_cache_lines() -> None:
    (x, w), (again, _), (other, _) = inputs(SMALL), inputs(SMALL), inputs(SMALL, seed=1)
    assert np.array_equal(x, again) and not np.array_equal(x, other)
    assert x.ctypes.data % 64 == w.ctypes.data % 64 == 0


# --- each step makes what it says -------------------------------------------------------------


def test_loops_are_in_the_order_that_a_step_names() -> None:
    loops = {name: nest(scheduled(step_named(name), SMALL)) for name in NAMES}
    assert loops["plain loops"].startswith("for i, j, k in T.grid(19, 96, 384):\n  y[i, j] += ")
    assert loops["reorder"].startswith("for i, k, j in T.grid(19, 384, 96):")
    assert "j_0, i_0, k, i_1, j_1 in T.grid(2, 3, 384, 8, 48)" in loops["tile"]
    assert "w[j // 48, k, j % 48]" in loops["pack"] and "w[j, k]" in loops["tile"]
    assert "T.vectorized(16)" in loops["vectorise"] and "vectorized" not in loops["pack"]
    assert "T.unroll(8)" in loops["unroll"] and "unroll" not in loops["vectorise"]
    assert ASKS_AHEAD in loops["prefetch"] and ASKS_AHEAD not in loops["registers"]
    assert "k_0, i_0 in T.grid(2, 3)" in loops["K-blocks"] and "T.vectorized(16)" in loops["K-blocks"]


def test_with_registers_the_sum_over_k_stores_nothing_to_y() -> None:
    inside = nest(scheduled(step_named("registers"), SMALL)).partition("for k in range(384):")[2]
    loop, _, after = inside.partition("for ax0")
    assert "y_local[i, j] += " in loop and "y[i, j]" not in loop
    assert "y[i, j] = y_local[i, j]" in after


def test_machine_code_has_what_the_steps_are_about(programs: dict[str, Program]) -> None:
    found = {name: instructions(program) for name, program in programs.items()}
    assert found["plain loops"]["fma"] == 0  # floats may not be summed in another order
    tile = STEPS[-1].tile
    lanes = VECTOR // Hardware.detect(measure=False).limits.lanes
    assert found["registers"]["fma"] >= tile.rows * tile.vectors * lanes
    asked = found["prefetch"]["prefetches"] - found["registers"]["prefetches"]
    assert asked >= tile.vectors and found["registers"]["prefetches"] == 0


def test_the_inner_loop_of_whole_tiles_has_no_branch_but_its_own(programs: dict[str, Program]) -> None:
    """Each tile's multiply-adds are followed by one conditional jump, that of the loop over K."""
    lines = [line.split() for line in programs["registers"].assembly.splitlines() if line.strip()]
    places = [n for n, words in enumerate(lines) if re.fullmatch(r"vfmadd\d+ps", words[0])]
    jumps = [words for words in lines[places[0] : places[-1]] if re.fullmatch(r"j(?!mp)\w+", words[0])]
    tile = STEPS[-1].tile
    each = tile.rows * tile.vectors * VECTOR // Hardware.detect(measure=False).limits.lanes
    assert len(places) % each == 0 and len(jumps) <= len(places) // each - 1


def test_each_step_changes_one_thing_and_tells_it() -> None:
    assert ["plain loops", *dict.fromkeys(NAMES[1:])] == NAMES
    for step in STEPS[1:]:
        assert set(before(step).recipe) | {change_of(step)} == set(step.recipe)
        text = told(step.name, SMALL)
        assert text.startswith(step.why) and "before\n  for" in text and "after\n  for" in text
        assert "schedule." in text and '"""' not in text
    assert told("plain loops", SMALL).count("\n") == 3
    assert before(step_named("tile")).name == "plain loops"  # the reordering is taken back


def test_sketches_are_annotated_by_factors_of_the_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer(12, 96, 40)
    found = sketches(layer, seed=1)
    assert [nest(sketch) for sketch in found] == [nest(sketch) for sketch in sketches(layer, seed=1)]
    assert len({decisions(sketch) for seed in range(4) for sketch in sketches(layer, seed)}) > 1
    for sketch in found:
        assert [len(factors) for factors in decisions(sketch)] == [4, 4, 2]  # SSRSRS
        assert [math.prod(factors) for factors in decisions(sketch)] == [12, 96, 40]
    assert inspect.getmodule is LOOKUP and getattr(sys.modules.get(MODULE), "__file__", "real")
    monkeypatch.setattr("dietlab.compare.ansor.contender.find_spec", lambda module: None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        sketches(layer)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{"rows": 0}, {"cols": 24}, {"cols": 0}, {"block": 0}, {"ahead": -1}])
def test_tiles_that_cannot_be_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(BuildError, match="multiple of 16 columns"):
        Tile(**sizes)


def test_layers_and_names_are_checked_at_the_door() -> None:
    with pytest.raises(WorkloadError, match="at least 1"):
        Layer(T=0)
    with pytest.raises(BuildError, match="panels must divide the columns"):
        scheduled(step_named("pack"), Layer(8, 100, 16))
    with pytest.raises(RecordError, match=r"'vectorize'.*vectorise"):
        step_named("vectorize")
    with pytest.raises(BuildError, match="reorder must be applicable"):
        scheduled(Step("twice", "Nonsense.", (*STEPS[2].recipe, STEPS[1].recipe[0])), SMALL)
    for stranger in (STEPS[0], OTHER_TILES[0]):
        with pytest.raises(BuildError, match="must change another"):
            before(stranger)


# --- times ------------------------------------------------------------------------------------


def test_measures_checks_and_keeps(tmp_path: Path, hardware: Hardware) -> None:
    said: list[str] = []
    climb = measure(STEPS[-2:], [replace(SMALL, T=8)], hardware, rounds=2, tell=said.append)
    assert [row.step for row in climb.rows] == [*NAMES[-2:], DIETLAB]
    assert all(row.blocks == 2 and 0 < row.seconds_low <= row.seconds_median for row in climb.rows)
    assert said[0] == "building prefetch, T=8" and said[-1] == "round 2 of 2"
    climb.save(tmp_path / "climb.json")
    assert Climb.load(tmp_path / "climb.json") == climb
    for wrong in ({"rounds": 0}, {"hardware": hardware.with_cores(2)}):
        with pytest.raises(MeasureError, match="needs a round and one core"):
            measure(STEPS[:1], [SMALL], **{"hardware": hardware, **wrong})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema_version": 2}', '{"schema_version": 1, "rows": 1}']
)
def test_files_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "climb.json").write_text(text)
    with pytest.raises(RecordError):
        Climb.load(tmp_path / "climb.json")
    with pytest.raises(RecordError, match="must be readable"):
        Climb.load(tmp_path / "none.json")


def test_the_shipped_climb_has_every_step_and_goes_up() -> None:
    climb = recorded()
    assert {row.step for row in climb.rows} == {*NAMES, DIETLAB, *(step.name for step in OTHER_TILES)}
    assert climb.lengths == (5, 121, 128) and climb.hardware.cores == 1
    assert all(row.seconds_low <= row.seconds_median <= row.seconds_high for row in climb.rows)
    at_128 = frame_climb(climb)
    assert at_128.loc["registers", "gflops"] > 50 * at_128.loc["plain loops", "gflops"]
    assert at_128["gflops"].iloc[-3:].max() > 0.8 * climb.of(DIETLAB, 128).gflops
    readme = (ROOT / "data/loops/README.md").read_text()
    assert climb.about["at"][:10] in readme and climb.about["command"] in readme
    assert json.loads((ROOT / "data/loops/xeon.json").read_text())["schema_version"] == 1


def test_the_goal_has_the_tile_of_the_last_step() -> None:
    kernel = Scheme.from_key(GOAL).kernel
    assert isinstance(kernel, CpuMicroKernel)
    assert (kernel.rows, kernel.cols) == (STEPS[-1].tile.rows, STEPS[-1].tile.cols)


# --- the figure -------------------------------------------------------------------------------


def made_up(**peaks: float | None) -> Climb:
    """A climb whose steps take half of the time of the one before."""
    hardware = replace(Hardware.preset("zen4-1core"), **{"peak_gflops": 100.0, "l3_gbps": 50.0, **peaks})
    seconds = {name: 1.0 / 2**n for n, name in enumerate([*NAMES, DIETLAB])}
    rows = tuple(Timed(n, SMALL, s, 0.9 * s, 1.1 * s, 5) for n, s in seconds.items())
    return Climb(hardware, rows, {})


@pytest.mark.parametrize("upto", NAMES)
def test_the_figure_shows_steps_so_far_and_hides_those_to_come(upto: str) -> None:
    figure = plot_climb(made_up(), upto, SMALL.T)
    bars = figure.data[0]
    assert list(bars.x) == NAMES[: NAMES.index(upto) + 1]
    assert list(figure.layout.xaxis.categoryarray) == NAMES  # their places are kept
    whole = plot_climb(made_up(), NAMES[-1], SMALL.T)
    assert figure.layout.yaxis.range == whole.layout.yaxis.range
    lines = [trace.name for trace in figure.data if getattr(trace, "mode", "") == "lines"]
    drawn = [trace.name for trace in whole.data if getattr(trace, "mode", "") == "lines"]
    assert lines == drawn and len(lines) == 3
    assert len(set(bars.marker.color)) == min(2, len(bars.x))


def test_the_frame_has_gains_and_the_share_of_the_roofline() -> None:
    climb = made_up()
    frame = frame_climb(climb, "tile", SMALL.T)
    assert list(frame.index) == NAMES[:3]
    assert math.isnan(frame["gain"].iloc[0]) and frame["gain"].iloc[1:].tolist() == pytest.approx([2, 4])
    assert (frame["gflops_low"] < frame["gflops"]).all() and (frame["gflops"] < frame["gflops_high"]).all()
    limit = min(bounds(climb, SMALL).values())
    assert frame["roofline"].tolist() == pytest.approx((frame["gflops"] / limit).tolist())
    bytes_, flops = 4 * (19 * 384 + 96 * 384 + 19 * 96), 2 * 19 * 96 * 384
    assert bounds(climb, SMALL)["cache's bandwidth"] == pytest.approx(50 * flops / bytes_)


def test_a_figure_of_what_was_not_timed_is_refused() -> None:
    with pytest.raises(RecordError, match="at T=7"):
        plot_climb(made_up(), "pack", 7)
    with pytest.raises(DietlabError, match="peak and bandwidth must have been measured"):
        plot_climb(made_up(l3_gbps=None), "pack", SMALL.T)


def test_a_call_leaves_its_inputs_as_they_are(programs: dict[str, Program]) -> None:
    layer = replace(SMALL, T=16)
    x, w = inputs(layer)
    y = aligned_empty((layer.T, layer.N))
    for program in programs.values():
        weights = program.weights(w)
        kept = x.copy(), weights.copy()
        program.call(x, weights, y)
        assert np.array_equal(x, kept[0]) and np.array_equal(weights, kept[1])

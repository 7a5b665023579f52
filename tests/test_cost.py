"""The cost model: formulas against brute force, ranking on what was never measured, files without code."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xgboost
from hypothesis import assume, given
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.base.errors import ModelError
from dietlab.cost import (
    Calibrated,
    Calibration,
    CostModel,
    LearnedPredictor,
    adaptation_cost,
    best_shape,
    evaluate_model,
    f_occ,
    f_pad,
    fit_cost_model,
    padding_waste,
    ranking_metrics,
)
from dietlab.cost.adaptation import Adaptation
from dietlab.cost.gaussian_process import GaussianProcess
from dietlab.cost.measured import program_on, same_work, settled_seconds
from dietlab.cost.metrics import FEWEST_PAIRS, TOO_FEW, mean_metrics, too_few_pairs
from dietlab.cost.model import features
from dietlab.cost.trees import ask_trees
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record, Round, SyntheticRunner, Trial
from dietlab.problem import BatchMatmul, Dense, Dim, Role, Shape, ShapeSet, Workload, extents
from dietlab.scheme import EDGES, Scheme, Space, build_space, plan_for
from dietlab.targets.cpu.cost import ALL_HIDDEN, CPU_FEATURES, EDGE_STEPS, Hiding
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.space import FMA_LATENCY
from dietlab.tuning import TuningRun, tune

HARDWARE = Hardware.preset("cascadelake-1core")
WORK = Dense(T=Dim(1, 128), N=768, K=256)
ROLES: tuple[Role, ...] = ("rows", "cols", "depth")
small = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5))


@given(small, small)
def test_padding_is_useful_over_executed_multiply_adds(sizes: tuple[int, ...], tile: tuple[int, ...]) -> None:
    executed = useful = 0
    for starts in product(*(range(0, size, step) for size, step in zip(sizes, tile, strict=True))):
        for point in product(*(range(s, s + t) for s, t in zip(starts, tile, strict=True))):
            executed += 1
            useful += all(p < size for p, size in zip(point, sizes, strict=True))
    extents, tiles = dict(zip(ROLES, sizes, strict=True)), dict(zip(ROLES, tile, strict=True))
    assert f_pad(extents, tiles) == pytest.approx(useful / executed)
    assert padding_waste(extents, tiles) == pytest.approx(1 - useful / executed)
    spatial = f_pad({**extents, "depth": tile[2]}, tiles)
    assert f_pad(extents, tiles, spatial_only=True) == pytest.approx(spatial)


def test_empty_shape_wastes_nothing() -> None:
    assert padding_waste({"rows": 0, "cols": 5, "depth": 5}, {"rows": 4, "cols": 4, "depth": 4}) == 0
    assert f_occ(0, 8) == 1


@given(st.integers(1, 400), st.integers(1, 64))
def test_occupancy_is_busy_over_paid_processors(tiles: int, processors: int) -> None:
    waves, left = 0, tiles
    while left > 0:
        waves, left = waves + 1, left - processors
    assert f_occ(tiles, processors) == pytest.approx(tiles / (waves * processors))


@given(st.integers(1, 400), st.integers(1, 64), st.floats(1, 50))
def test_fitted_occupancy_is_latency_proportional_to_the_papers_sum(
    tiles: int, processors: int, c: float
) -> None:
    full = processors * math.ceil(tiles / processors)
    latency = full + (c - 1) * tiles
    assert f_occ(tiles, processors, c) == pytest.approx(c * tiles / latency)
    assert f_occ(tiles, processors) - 1e-12 <= f_occ(tiles, processors, c) <= 1 + 1e-12
    assert f_occ(tiles, processors, 1.0) == pytest.approx(f_occ(tiles, processors))
    assert f_occ(full, processors, c) == pytest.approx(1)


def test_papers_constants_on_a_t4() -> None:
    assert f_occ(10, 40, 1.433) == pytest.approx(14.33 / (4.33 + 40))
    assert f_occ(50, 40, 2.14) == pytest.approx(107 / (57 + 80))


kernels = st.builds(
    cpu_scheme,
    st.integers(1, 14),
    st.sampled_from([64, 80, 96]),
    order=st.sampled_from(["ws", "is"]),
    edge=st.sampled_from(EDGES),
    ahead=st.booleans(),
)
rows = st.integers(1, 300).map(lambda t: Shape.of(T=t))
works = st.sampled_from(
    [
        WORK,
        Dense(T=Dim(1, 128), N=100, K=7),
        Dense(T=Dim(1, 128), N=768, K=256, constant=False),
        BatchMatmul(T=Dim(1, 128), B=6, D=64, form="nt"),
        BatchMatmul(T=Dim(1, 128), B=6, D=64, form="nn"),
    ]
)
speeds = st.floats(1e9, 2e11)
GBPS = {"hot": 24.0, "rotating": 11.0}
"""What the preset's last level and memory give; the weights of WORK fit half of the last level."""


def alike(speed: float) -> Callable[[Scheme], float]:
    return lambda kernel: speed


def steps_of(kernel: Scheme, shape: Shape, depth: int) -> float:
    """Multiply-adds of all row tiles down one column tile, their starts and stores counted as steps."""
    return plan_for(kernel, shape["T"]).executed_rows * kernel.cols * (depth + EDGE_STEPS)


@given(kernels, works, rows, speeds, st.integers(1, 4), st.sampled_from(["paper", "streamed"]))
def test_parts_of_a_time_are_what_their_names_say(
    kernel: Scheme, work: Workload, shape: Shape, speed: float, cores: int, kind: Adaptation
) -> None:
    cost = adaptation_cost(work, HARDWARE.with_cores(cores), kind)
    parts = cost.parts(kernel, shape, alike(speed))
    values = [parts.compute, parts.edges, parts.padding, parts.weights, parts.idle]
    assert all(value >= 0 for value in values)
    assert cost.seconds(kernel, shape, alike(speed)) == parts.total == pytest.approx(sum(values))
    sizes = extents(work, shape)
    column_tiles = math.ceil(sizes["cols"] / kernel.cols)
    passes = sizes["batch"] * column_tiles
    assert parts.compute == pytest.approx(work.flops(shape) / speed / cores)
    steps = 2 * passes * steps_of(kernel, shape, sizes["depth"]) / cores / speed
    computing = parts.compute + parts.edges + parts.padding
    # To transpose weights on the fly costs as much as some more rows.
    transposing = 2 * passes * kernel.cols * sizes["depth"] / cores / speed
    more_rows = (computing - steps) / transposing
    assert more_rows == pytest.approx(0, abs=1e-9) or (work.weights == "transposed" and 0 < more_rows < 16)
    if kernel.composed and sizes["cols"] % kernel.cols == 0:
        assert parts.padding == pytest.approx(0, abs=1e-15)
    if kind == "paper" or work.weights != "packed":
        assert parts.weights == 0
    dealt = column_tiles * plan_for(kernel, shape["T"]).tiles
    if isinstance(work, BatchMatmul):
        dealt = work.B
    elif work.weights == "transposed":
        dealt = column_tiles
    busy = parts.total - parts.idle
    assert parts.idle == pytest.approx(busy * (cores * math.ceil(dealt / cores) / dealt - 1), abs=1e-15)


@given(kernels, rows, st.floats(1e9, 1e11), st.floats(1e9, 1e11))
def test_a_composed_plan_computes_each_tile_at_its_own_throughput(
    kernel: Scheme, shape: Shape, full: float, lower: float
) -> None:
    cost = adaptation_cost(WORK, HARDWARE, "paper")
    speed = {kernel.rows: full}
    found = cost.seconds(kernel, shape, lambda k: speed.get(k.rows, lower))
    steps = 2 * kernel.cols * (WORK.K + EDGE_STEPS)
    expected = sum(
        steps * part.tiles * part.kernel.rows / (full if part.kernel.rows == kernel.rows else lower)
        for part in plan_for(kernel, shape["T"]).regions
    )
    assert found == pytest.approx(math.ceil(WORK.N / kernel.cols) * expected)


def test_an_empty_call_costs_nothing() -> None:
    parts = adaptation_cost(WORK, HARDWARE).parts(cpu_scheme(8, 32, edge="even"), Shape.of(T=0), alike(1e9))
    assert parts.total == 0


@given(kernels, works, rows, speeds, st.integers(1, 4))
def test_without_traffic_throughput_is_the_inverse_of_seconds(
    kernel: Scheme, work: Workload, shape: Shape, speed: float, cores: int
) -> None:
    cost = adaptation_cost(work, HARDWARE.with_cores(cores), "paper")
    seconds = cost.seconds(kernel, shape, alike(speed))
    assert cost.throughput(kernel, shape, seconds) == pytest.approx(speed)
    depth = extents(work, shape)["depth"]
    useful = work.flops(shape) / (speed * cores * cost.static(kernel, shape)) * (1 + EDGE_STEPS / depth)
    assert seconds == pytest.approx(useful) or (work.weights == "transposed" and seconds > useful)


@given(kernels, rows, speeds, st.sampled_from(["hot", "rotating"]))
def test_hidden_traffic_changes_nothing_and_visible_traffic_costs(
    kernel: Scheme, shape: Shape, speed: float, cache: CacheState
) -> None:
    cost, free = adaptation_cost(WORK, HARDWARE, cache=cache), adaptation_cost(WORK, HARDWARE, "paper")
    seconds = cost.seconds(kernel, shape, alike(speed))
    plan = plan_for(kernel, shape["T"])
    first = 2 * plan.regions[0].kernel.rows * kernel.cols * (WORK.K + EDGE_STEPS) / speed
    computing = 2 * steps_of(kernel, shape, WORK.K) / speed
    fetch = 4 * kernel.cols * WORK.K / (GBPS[cache] * 1e9)
    if kernel.kernel.ahead:
        waiting = fetch - computing
    else:
        waiting = fetch - first if kernel.order == "ws" else plan.tiles * fetch - computing
    visible = math.ceil(WORK.N / kernel.cols) * max(0.0, waiting)
    assert seconds == pytest.approx(free.seconds(kernel, shape, alike(speed)) + visible)
    assert cost.throughput(kernel, shape, seconds) <= speed * (1 + 1e-9)
    if waiting <= 0:
        assert cost.throughput(kernel, shape, seconds) == pytest.approx(speed)


@given(kernels, rows, speeds)
def test_rotating_weights_are_never_faster_than_hot_ones(kernel: Scheme, shape: Shape, speed: float) -> None:
    hot, rotating = (adaptation_cost(WORK, HARDWARE, cache=cache) for cache in ("hot", "rotating"))
    assert hot.seconds(kernel, shape, alike(speed)) <= rotating.seconds(kernel, shape, alike(speed))
    # Weights beyond half of the last level come from memory however they are called.
    large = Dense(T=Dim(1, 128), N=16384, K=4096)
    hot, rotating = (adaptation_cost(large, HARDWARE, cache=cache) for cache in ("hot", "rotating"))
    assert hot.seconds(kernel, shape, alike(speed)) == rotating.seconds(kernel, shape, alike(speed))


@given(kernels, st.integers(15, 300), st.floats(1.01, 1.9))
def test_first_trip_of_the_weights_is_divided_out_of_a_label(kernel: Scheme, size: int, ratio: float) -> None:
    """``ratio`` is the weights' fetch over what the first tile computes meanwhile."""
    kernel = kernel.changed(order="ws", ahead=False)
    cost, shape, fetch = adaptation_cost(WORK, HARDWARE), Shape.of(T=size), 4 * kernel.cols * WORK.K / 24e9
    first = plan_for(kernel, size).regions[0].kernel.rows
    # The first tile itself is not slower.
    assume(first * kernel.kernel.vectors(HARDWARE.limits.lanes) >= FMA_LATENCY)
    speed = ratio * 2 * first * kernel.cols * (WORK.K + EDGE_STEPS) / fetch
    seconds = cost.seconds(kernel, shape, alike(speed))
    assert cost.parts(kernel, shape, alike(speed)).weights > 0
    assert cost.throughput(kernel, shape, seconds) == pytest.approx(speed)


def test_a_tile_with_few_accumulators_waits_for_its_multiply_adds() -> None:
    cost, shape = adaptation_cost(WORK, HARDWARE, "paper"), Shape.of(T=12)
    tiles = {rows: cpu_scheme(rows, 16, edge="even") for rows in (1, 2, 4, 6)}
    times = {rows: cost.seconds(tile, shape, alike(1e11)) for rows, tile in tiles.items()}
    assert times[1] == pytest.approx(4 * times[4]) and times[2] == pytest.approx(2 * times[4])
    assert times[6] == pytest.approx(times[4])


def test_best_shape_wastes_least_and_is_the_largest_of_equals() -> None:
    shapes = tuple(Shape.of(T=t) for t in (5, 8, 9, 16, 17))
    cost = adaptation_cost(WORK, HARDWARE)
    assert best_shape(cpu_scheme(8, 16), shapes, cost) == Shape.of(T=16)
    assert best_shape(cpu_scheme(9, 16), shapes, cost) == Shape.of(T=9)
    assert best_shape(cpu_scheme(1, 16), shapes, cost) == Shape.of(T=17)
    # A composed plan wastes nothing on any.
    assert best_shape(cpu_scheme(8, 16, edge="even"), shapes, cost) == Shape.of(T=17)


# Metrics


def test_metrics_of_a_known_case() -> None:
    found = ranking_metrics([1.0, 3.0, 2.0, 4.0], [2.0, 1.0, 4.0, 8.0])
    # Right: (0,2), (0,3), (1,3), (2,3); wrong: (0,1), (1,2).
    assert found["pairwise"] == pytest.approx(4 / 6)
    assert found["peak@1"] == pytest.approx(1 / 2) and found["peak@5"] == 1
    assert found["mape"] == pytest.approx((0.5 + 2 + 0.5 + 0.5) / 4)
    logs = [math.log(1 / 2), math.log(3), math.log(1 / 2), math.log(1 / 2)]
    assert found["rmse"] == pytest.approx(math.sqrt(sum(x * x for x in logs) / 4))
    told, real = (1, 1 / 3, 1 / 2, 1 / 4), (1 / 2, 1, 1 / 4, 1 / 8)
    pairs = list(combinations(range(4), 2))
    residual = sum((told[i] - told[j] - real[i] + real[j]) ** 2 for i, j in pairs)
    assert found["r2"] == pytest.approx(1 - residual / sum((real[i] - real[j]) ** 2 for i, j in pairs))
    assert found["pairs"] == len(pairs)


times = st.lists(st.floats(1e-6, 1), min_size=2, max_size=30, unique=True)


@given(times)
def test_perfect_and_reversed_rankings_are_the_extremes(measured: list[float]) -> None:
    perfect = ranking_metrics(measured, measured)
    reverse = ranking_metrics([1 / t for t in measured], measured)
    assert (perfect["pairwise"], perfect["peak@1"], perfect["rmse"], perfect["mape"]) == (1, 1, 0, 0)
    assert perfect["r2"] == pytest.approx(1)
    assert reverse["pairwise"] == 0 and reverse["peak@1"] == pytest.approx(min(measured) / max(measured))


def test_near_ties_do_not_count() -> None:
    """A pair counts if its times differ by more than the larger noise of the two."""
    assert ranking_metrics([1.0, 2.0, 3.0], [5.0, 5.0, 6.0])["pairwise"] == 1
    times, noise = [1.00, 1.03, 1.20, 1.21], [0.01, 0.05, 0.01, 0.01]
    found = ranking_metrics([1.03, 1.00, 1.20, 1.21], times, noise)
    assert (found["pairs"], found["pairwise"]) == (4, 1) and found["r2"] > 0.8
    assert ranking_metrics([1.03, 1.00, 1.20, 1.21], times)["pairs"] == 6
    alike = ranking_metrics([1.0, 3.0, 2.0], [5.0, 5.001, 5.002], [0.01] * 3)
    assert alike["pairs"] == 0 and not {"pairwise", "r2"} & set(alike)
    with pytest.raises(ModelError, match="each time must have its noise; got 1 for 2 times"):
        ranking_metrics([1.0, 2.0], [1.0, 2.0], [0.1])


def test_too_few_pairs_are_told_instead_of_a_number() -> None:
    """Each shape has one pair beyond the noise: it takes many shapes to judge a model by."""
    one = ranking_metrics([1.0, 2.0, 3.0], [1.0, 1.01, 1.06], [0.03, 0.03, 0.055])
    assert one["pairs"] == 1
    few, enough = mean_metrics([one] * (FEWEST_PAIRS - 1)), mean_metrics([one] * FEWEST_PAIRS)
    assert enough["pairs"] == FEWEST_PAIRS and enough["pairwise"] == 1 and too_few_pairs(enough) == {}
    assert few["pairs"] == FEWEST_PAIRS - 1 and few["peak@1"] == 1
    assert too_few_pairs(few) == {"pairwise": TOO_FEW, "r2": TOO_FEW} and too_few_pairs({}) == {}
    none = ranking_metrics([1.0, 2.0], [1.0, 1.0])
    assert mean_metrics([none, *[one] * FEWEST_PAIRS])["pairwise"] == 1, "a shape of near-ties says nothing"
    assert mean_metrics([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0} and mean_metrics([]) == {}


@pytest.mark.parametrize(
    ("predicted", "measured"),
    [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [-1.0, 2.0])],
)
def test_too_few_or_impossible_times_are_refused(predicted: list[float], measured: list[float]) -> None:
    with pytest.raises(ModelError, match="two or more positive times"):
        ranking_metrics(predicted, measured)


# The learned model


def synthetic_records(count: int, seed: int) -> tuple[list[Record], list[Record]]:
    """Micro-kernels measured once each, and others on all eight shapes."""
    space, shapes = build_space(WORK, HARDWARE), ShapeSet.uniform(WORK)
    chosen = Random(seed).sample(space.schemes, 2 * count)
    runner, cost = SyntheticRunner(HARDWARE), adaptation_cost(WORK, HARDWARE)
    train = [Trial(kernel, (best_shape(kernel, shapes.shapes, cost),)) for kernel in chosen[:count]]
    others = [Trial(kernel, shapes.shapes) for kernel in chosen[count:]]
    return list(runner.measure(WORK, train)), list(runner.measure(WORK, others))


@pytest.mark.parametrize("seed", [0, 1])
def test_model_ranks_micro_kernels_and_shapes_it_never_saw(seed: int) -> None:
    train, held_out = synthetic_records(64, seed)
    model = fit_cost_model(WORK, HARDWARE, train)
    assert not {r.scheme for r in train} & {r.scheme for r in held_out}
    metrics = evaluate_model(model, held_out)
    assert metrics["pairwise"] > 0.8 and metrics["peak@5"] > 0.85, metrics


@pytest.fixture(scope="module")
def model() -> CostModel:
    return fit_cost_model(WORK, HARDWARE, synthetic_records(40, 0)[0])


def test_saved_model_predicts_the_same(model: CostModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    loaded = CostModel.load(tmp_path / "model.json")
    kernels, shapes = build_space(WORK, HARDWARE).schemes, ShapeSet.uniform(WORK).shapes
    np.testing.assert_array_equal(model.seconds(kernels, shapes), loaded.seconds(kernels, shapes))
    assert loaded.cost == model.cost and loaded.samples == model.samples == 40
    rotating = replace(model, cost=model.cost.with_cache("rotating"))
    rotating.save(tmp_path / "rotating.json")
    assert CostModel.load(tmp_path / "rotating.json").cost.cache == "rotating"
    assert json.loads((tmp_path / "model.json").read_text())["features"] == list(CPU_FEATURES)


def test_a_model_predicts_the_parts_of_its_seconds(model: CostModel) -> None:
    kernel, shapes = cpu_scheme(9, 32, edge="even"), [Shape.of(T=t) for t in (1, 31, 128)]
    for shape, seconds in zip(shapes, model.seconds([kernel], shapes)[0], strict=True):
        assert model.parts(kernel, shape).total == pytest.approx(seconds)


def overlapped(hiding: Hiding, shapes: list[Shape]) -> list[Record]:
    """What a processor would measure that hides so much of each fetch, with weights from memory and from the
    cache; the micro-kernels' throughputs differ."""
    rotating = adaptation_cost(WORK, HARDWARE, cache="rotating", hiding=hiding)
    hot = rotating.with_cache("hot")

    def throughput(kernel: CpuScheme) -> float:
        return 1e9 * (100.0 + 2 * kernel.rows)

    return [
        replace(
            recorded(kernel, shape, rotating.seconds(kernel, shape, throughput)),
            cached_seconds=hot.seconds(kernel, shape, throughput),
        )
        for kernel in (cpu_scheme(rows, 32, edge="even", ahead=True) for rows in range(4, 15))
        for shape in shapes
    ]


@pytest.mark.parametrize("hiding", [Hiding(0.4, 0.7), Hiding(0.9, 0.2), ALL_HIDDEN])
def test_how_much_of_a_fetch_computing_hides_is_fitted(hiding: Hiding, tmp_path: Path) -> None:
    records = overlapped(hiding, [Shape.of(T=t) for t in (1, 5, 8, 17, 20, 24, 32, 40, 64, 128)])
    fitted = fit_cost_model(WORK, HARDWARE, records, cache="rotating")
    assert fitted.cost.formulas.hiding == pytest.approx(hiding, abs=0.07)
    pairs = [(record.scheme, record.shape) for record in records]
    for model, measured in (
        (fitted, [record.seconds for record in records]),
        (fitted.in_cache, [record.cached_seconds for record in records]),
    ):
        assert np.abs(np.log(model.seconds_of(pairs) / measured)).mean() < 0.03
    fitted.save(tmp_path / "model.json")
    assert CostModel.load(tmp_path / "model.json").cost.formulas.hiding == fitted.cost.formulas.hiding


def test_without_telling_records_a_fetch_is_taken_for_hidden() -> None:
    """Where a pass has one row tile, or computes much longer than it fetches."""
    records = overlapped(Hiding(0.4, 0.7), [Shape.of(T=t) for t in (1, 4, 128)])
    assert fit_cost_model(WORK, HARDWARE, records, cache="rotating").cost.formulas.hiding == ALL_HIDDEN


def test_what_was_predicted_before_is_predicted_again(model: CostModel) -> None:
    """It is kept, for each kernel and set of shapes: whoever changes an answer changes no other."""
    first, second, third = (cpu_scheme(rows, 32, edge="even") for rows in (3, 9, 12))
    shapes = [Shape.of(T=t) for t in (1, 31, 128)]
    expected = replace(model).seconds([third, first, second, first], shapes)
    model.seconds([first, second], shapes)[:] = 0.0
    np.testing.assert_array_equal(model.seconds([third, first, second, first], shapes), expected)
    np.testing.assert_array_equal(model.seconds([first], shapes[::-1]), expected[1:2, ::-1])
    assert (model.in_cache.cost.cache, model.seconds([], shapes).shape) == ("hot", (0, 3))


def test_fitting_is_reproducible_and_ignores_failures(model: CostModel) -> None:
    train = synthetic_records(40, 0)[0]
    failures = [Record(cpu_scheme(3, 16, edge="even"), Shape.of(T=5), "crashed")]
    again = fit_cost_model(WORK, HARDWARE, [*train, *failures])
    kernels = build_space(WORK, HARDWARE).schemes
    np.testing.assert_array_equal(again.throughput(kernels), model.throughput(kernels))


def test_no_successful_record_is_no_model() -> None:
    with pytest.raises(ModelError, match="fitted on successful records; got none"):
        fit_cost_model(WORK, HARDWARE, [Record(cpu_scheme(3, 16), Shape.of(T=5), "crashed")])


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (self.path,))


def test_a_model_that_is_missing_or_pickled_is_named_and_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for path in (tmp_path / "model.json", tmp_path / "nowhere.json"):
        with pytest.raises(ModelError, match=f"readable JSON; got .*{path.stem}"):
            CostModel.load(path)
    assert not (tmp_path / "sprung").exists()


def test_trees_of_a_later_xgboost_are_refused(
    model: CostModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier one reads them and begins its sums at 0.5 (findings/xgboost_base_score.sh)."""
    path = tmp_path / "model.json"
    model.save(path)
    wrote = json.loads(path.read_text())["booster"]["version"]
    assert wrote == [int(part) for part in xgboost.__version__.split(".")[:3]]
    kernels, shapes = build_space(WORK, HARDWARE).schemes[:5], ShapeSet.uniform(WORK).shapes
    for later in (xgboost.__version__, "99.0.0"):
        monkeypatch.setattr(xgboost, "__version__", later)
        found = CostModel.load(path).seconds(kernels, shapes)
        np.testing.assert_array_equal(found, model.seconds(kernels, shapes))
    for earlier in ("3.0.5", "2.1.4", f"{wrote[0]}.{wrote[1] - 1}.9"):
        monkeypatch.setattr(xgboost, "__version__", earlier)
        remedy = rf"pip install 'xgboost-cpu>={wrote[0]}\.{wrote[1]}', or fit the model again"
        with pytest.raises(
            ModelError, match=rf"need that version.*; got XGBoost {earlier} in .*json\. {remedy}"
        ):
            CostModel.load(path)


DAMAGE: dict[str, tuple[list[Any], Any]] = {
    "no trees": (["booster"], {}),
    "none": (["booster"], None),
    "text": (["booster"], "trees"),
    "no version": (["booster", "version"], None),
    "words for a version": (["booster", "version"], "new"),
    "no learner": (["booster", "learner"], {}),
    "fewer trees": (["booster", "learner", "gradient_booster", "model", "trees"], []),
    "an objective that is none": (["booster", "learner", "objective", "name"], "nonsense"),
    "a base score that is none": (["booster", "learner", "learner_model_param", "base_score"], "abc"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_trees_that_xgboost_cannot_read_are_a_model_error(
    model: CostModel, damage: str, tmp_path: Path
) -> None:
    path, ((*inside, last), value) = tmp_path / "model.json", DAMAGE[damage]
    whole = json.loads(json.dumps(model.to_json()))
    part = whole
    for key in inside:
        part = part[key]
    part[last] = value
    path.write_text(json.dumps(whole))
    with pytest.raises(ModelError, match=r"trees.*Fit it again from the records") as raised:
        CostModel.load(path)
    assert "Stack trace" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["workload", "hardware", "adaptation", "cache", "booster", "samples"])
def test_a_model_without_a_field_is_refused(model: CostModel, name: str, tmp_path: Path) -> None:
    left = {field: value for field, value in model.to_json().items() if field != name}
    (tmp_path / "model.json").write_text(json.dumps(left))
    with pytest.raises(ModelError, match=rf"a model must have all its fields; got .*model.json: no '{name}'"):
        CostModel.load(tmp_path / "model.json")


def test_trees_are_asked_about_the_features_of_their_fit(model: CostModel) -> None:
    with pytest.raises(ModelError, match="applied to the features that they were fitted on"):
        ask_trees(model.booster, np.ones((2, len(CPU_FEATURES) + 1)))


FOREIGN = ['{"schema_version": 1}', '{"schema_version": 2, "features": []}']


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "null", *FOREIGN, '{"schema_version": 2, "features": ["rows"]}']
)
def test_foreign_model_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(text)
    told = r"a model must have the features of the installed version.*Fit it again from the records"
    with pytest.raises(ModelError, match=told):
        CostModel.load(tmp_path / "model.json")


def test_features_do_not_depend_on_the_range_of_shapes() -> None:
    chosen = build_space(WORK, HARDWARE).schemes[:50]
    formulas, longer = adaptation_cost(WORK, HARDWARE).formulas, Dense(T=Dim(3, 999), N=768, K=256)
    table = features(formulas, chosen)
    assert table.shape == (50, len(CPU_FEATURES)) and np.isfinite(table).all()
    np.testing.assert_array_equal(table, features(replace(formulas, workload=longer), chosen))


def test_importances_are_shares_of_known_features(model: CostModel) -> None:
    shares = model.importances()
    assert set(shares) <= set(CPU_FEATURES) and sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_where_it_was_measured_a_prediction_is_near_the_measurement(synthetic_run: TuningRun) -> None:
    kernels, shapes = synthetic_run.schemes, tuple(ShapeSet.every(synthetic_run.space.workload))
    settled = settled_seconds(synthetic_run.space.workload, synthetic_run.records)
    assert len(settled) > 100
    errors = []
    for table in (f(kernels, shapes) for f in (synthetic_run.seconds_table, synthetic_run.model.seconds)):
        assert np.isfinite(table).all() and (table > 0).all()
        found = {program(k, s): table[i, j] for i, k in enumerate(kernels) for j, s in enumerate(shapes)}
        errors.append([abs(math.log(found[key] / seconds)) for key, seconds in settled.items()])
    calibrated, plain = (sum(error) / len(error) for error in errors)
    assert calibrated < 0.05 and 4 * calibrated < plain, (calibrated, plain)


def recorded(kernel: Scheme, shape: Shape, seconds: float) -> Record:
    return Record(kernel, shape, "ok", seconds=seconds)


def program(kernel: Scheme, shape: Shape) -> tuple[Hashable, Shape]:
    return program_on(kernel, WORK, shape), shape


COST = adaptation_cost(WORK, HARDWARE)
SIZES = [Shape.of(T=t) for t in (2, 8, 16, 32, 64)]


def at_peak(kernels: list[CpuScheme], shapes: list[Shape]) -> npt.NDArray[np.float64]:
    return COST.table(kernels, shapes, alike(1e9 * (HARDWARE.peak_gflops or 0)))


def slowed(kernel: CpuScheme, shape: Shape, ratio: float, number: int = 0) -> Record:
    """It was measured to take so many times what it would at the processor's peak, in a round."""
    seconds = ratio * at_peak([kernel], [shape])[0, 0]
    return replace(recorded(kernel, shape, seconds), asked_by=Round("check", number))


USUAL = 1.5
USUALLY = [
    slowed(cpu_scheme(rows, 16, order="is", edge="even"), shape, USUAL)
    for rows in (2, 6, 10)
    for shape in SIZES
]
"""What strangers to the tests' micro-kernels measured: the median that deviations are from."""


def ratios(
    records: list[Record], kernels: list[CpuScheme], shapes: list[Shape] = SIZES
) -> npt.NDArray[np.float64]:
    """Predicted seconds over those at the peak."""
    return Calibration(COST, records).seconds(kernels, shapes) / at_peak(kernels, shapes)


def test_calibration_moves_predictions_towards_what_was_measured() -> None:
    kernel = cpu_scheme(4, 32, edge="even")
    ends = [slowed(kernel, SIZES[i], 4.0) for i in (1, 3)]
    (found,) = ratios([*USUALLY, *ends], [kernel])
    np.testing.assert_allclose(found[[1, 3]], 4.0, rtol=0.1)
    assert (found > 1.5 * USUAL).all() and found[2] == pytest.approx(4.0, rel=0.1)
    opposed = [slowed(kernel, SIZES[1], 2.0), slowed(kernel, SIZES[3], 8.0)]
    (found,) = ratios([*USUALLY, *opposed], [kernel])
    assert 1.8 < found[1] < found[2] < found[3] < 8.8


def test_predictions_have_no_digits_that_depend_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vector instructions of another length add in another order, which changes the last digits."""
    kernels = [cpu_scheme(rows, 32, edge="even") for rows in (2, 4, 6)]
    records = [slowed(kernel, SIZES[1], 3.0) for kernel in kernels]
    mean, deviation = GaussianProcess.mean, GaussianProcess.deviation
    here = Calibration(COST, records)
    seconds, doubt = here.seconds(kernels, SIZES), here.doubt(kernels, SIZES)
    monkeypatch.setattr(GaussianProcess, "mean", lambda *given: mean(*given) + 1e-14)
    monkeypatch.setattr(GaussianProcess, "deviation", lambda *given: deviation(*given) + 1e-14)
    elsewhere = Calibration(COST, records)
    np.testing.assert_array_equal(elsewhere.seconds(kernels, SIZES), seconds)
    np.testing.assert_array_equal(elsewhere.doubt(kernels, SIZES), doubt)


def test_what_all_measured_is_expected_of_everything() -> None:
    kernels = [cpu_scheme(4, 32), cpu_scheme(9, 48, order="is", edge="rest"), cpu_scheme(1, 16, ahead=True)]
    records = [slowed(cpu_scheme(rows, 32, edge="even"), SIZES[1], 3.0) for rows in (2, 4, 6)]
    np.testing.assert_allclose(ratios(records, kernels), 3.0)
    failures = [Record(cpu_scheme(3, 16), SIZES[0], "crashed")]
    np.testing.assert_array_equal(ratios([*records, *failures], kernels), ratios(records, kernels))


def test_a_time_tells_of_lengths_whose_blocks_do_the_same_work() -> None:
    """129 to 256 rows in granules of 128 are one grid; 257 rows are another, and so is a product whose
    columns grow with its rows."""
    work = Dense(T=Dim(1, 512), N=256, K=512, dtype="bfloat16")
    kernel = Scheme.from_key("256x64x64.p2x1.s4.even")
    at = {T: same_work(kernel, work, Shape.of(T=T)) for T in (129, 255, 256, 257)}
    assert at[129] == at[255] == at[256] != at[257]
    scores = BatchMatmul(T=Dim(1, 512), B=2, D=64, form="nt", dtype="bfloat16")
    assert same_work(kernel, scores, Shape.of(T=255)) == Shape.of(T=255)
    assert same_work(cpu_scheme(6, 32, edge="even"), WORK, Shape.of(T=59)) == Shape.of(T=59)
    space = build_space(work, Hardware.preset("h200"))
    shapes = [Shape.of(T=T) for T in (129, 200, 256, 257)]
    times = {shapes[2]: 50e-6, Shape.of(T=64): 5e-6}
    measured = [Record(kernel, shape, "ok", seconds=seconds) for shape, seconds in times.items()]
    told = Calibration(adaptation_cost(work, space.hardware), measured).seconds([kernel], shapes)[0]
    np.testing.assert_allclose(told[:3], told[2], rtol=0.1)


def test_a_pair_that_was_measured_often_is_trusted_more() -> None:
    """Its neighbours say 2; so does it, but for luck, if only one round found it faster."""
    kernel, shape = cpu_scheme(6, 32, edge="even"), Shape.of(T=60)
    others = [slowed(cpu_scheme(rows, 32, edge="even"), shape, 2.0) for rows in (4, 5, 7, 10, 12)]
    found, doubts = [], []
    for rounds in (1, 2, 8):
        records = [*others, *(slowed(kernel, shape, 1.6, number) for number in range(1, 1 + rounds))]
        found.append(ratios(records, [kernel], [shape])[0, 0])
        doubts.append(Calibration(COST, records).doubt([kernel], [shape])[0, 0])
    assert 2.0 > found[0] > found[1] > found[2] > 1.6
    assert doubts[0] > doubts[1] > doubts[2] > 0
    beside = Calibration(COST, records).doubt([kernel], [Shape.of(T=59)])[0, 0]
    assert beside > 2 * doubts[2], "what is a pair's own is known of measured pairs only"
    again = [*others, slowed(kernel, shape, 1.6, 1), slowed(kernel, shape, 1.6, 1)]
    assert ratios(again, [kernel], [shape])[0, 0] == found[0], "twice in one round is one measurement"


@given(
    plans=st.lists(st.floats(1e-6, 1e-2), min_size=2, max_size=6),
    rounds=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5),
    data=st.data(),
)
def test_how_slow_a_round_was_drops_out_of_its_times(
    plans: list[float], rounds: list[float], data: st.DataObject
) -> None:
    """The first plan runs in every round; of the others each runs in some."""
    shape, kernels = Shape.of(T=8), [cpu_scheme(rows, 32) for rows in range(1, 1 + len(plans))]
    records = [
        replace(recorded(kernels[plan], shape, plans[plan] * slow), asked_by=Round("check", number))
        for number, slow in enumerate(rounds)
        for plan in range(len(plans))
        if plan == 0 or number == plan % len(rounds) or data.draw(st.booleans())
    ]
    found = settled_seconds(WORK, records)
    ratios = [found[program(k, shape)] / seconds for k, seconds in zip(kernels, plans, strict=True)]
    np.testing.assert_allclose(ratios, ratios[0])
    assert min(rounds) * (1 - 1e-9) <= ratios[0] <= max(rounds) * (1 + 1e-9)


def test_one_disturbed_record_moves_no_other() -> None:
    shape, kernels = Shape.of(T=8), [cpu_scheme(rows, 32) for rows in (1, 2, 3)]
    quick = [replace(recorded(k, shape, 1e-5 * k.rows), asked_by=Round("verify", 1)) for k in kernels]
    slow = [replace(recorded(k, shape, 2e-5 * k.rows), asked_by=Round("verify", 2)) for k in kernels]
    disturbed = replace(quick[0], seconds=4e-3)
    found = settled_seconds(WORK, [disturbed, *quick[1:], *slow])
    first, *others = (found[program(kernel, shape)] for kernel in kernels)
    assert others[1] / others[0] == pytest.approx(3 / 2)
    assert first / others[0] == pytest.approx(1 / 2, rel=0.02)


def test_rounds_that_share_nothing_are_taken_as_they_are() -> None:
    shape, kernels = Shape.of(T=8), [cpu_scheme(rows, 32) for rows in (1, 2)]
    records = [replace(recorded(k, shape, 1e-5 * k.rows), asked_by=Round("check", k.rows)) for k in kernels]
    assert settled_seconds(WORK, records) == {program(k, shape): 1e-5 * k.rows for k in kernels}


def test_micro_kernels_that_run_the_same_tiles_have_one_time() -> None:
    """12 rows are 2 x 6 by all of these but the last, and their records link the rounds."""
    shape, other = Shape.of(T=12), Shape.of(T=13)
    twins = [cpu_scheme(6, 32, edge="even"), cpu_scheme(6, 32, edge="rest")]
    twins.append(cpu_scheme(8, 32, edge="even"))
    stranger = cpu_scheme(8, 32, edge="rest")
    records = [
        replace(recorded(twins[0], shape, 1e-4), asked_by=Round("check", 1)),
        replace(recorded(twins[1], shape, 2e-4), asked_by=Round("check", 2)),
        replace(recorded(stranger, shape, 4e-4), asked_by=Round("check", 2)),
    ]
    assert len({program(kernel, shape) for kernel in twins}) == 1
    calibration = Calibration(COST, records)
    seconds, doubts = (f([*twins, stranger], [shape])[:, 0] for f in (calibration.seconds, calibration.doubt))
    np.testing.assert_allclose(seconds[:3], seconds[0])
    np.testing.assert_allclose(doubts[:3], doubts[0])
    assert seconds[3] > 1.5 * seconds[0] and doubts[3] > doubts[0], "one round less measured it"
    assert (calibration.doubt(twins, [other]) > calibration.doubt(twins, [shape])).all()


def test_what_is_expected_lies_between_both_states_of_the_caches(synthetic_run: TuningRun) -> None:
    """Operands in memory take twice the time here: the mean is measured, not predicted."""
    measured = [r for r in synthetic_run.records if r.seconds]
    records = tuple(replace(r, seconds=2 * r.seconds, cached_seconds=r.seconds) for r in measured)
    run = replace(synthetic_run, records=records, predictor=Calibrated(synthetic_run.model, records))
    kernels, shapes = run.schemes, tuple(ShapeSet.every(run.space.workload))
    table, cached = run.seconds_table(kernels, shapes), run.seconds_table(kernels, shapes, cached=True)
    pairs = {(r.scheme, r.shape) for r in records}
    known = np.array([[(k, s) in pairs for s in shapes] for k in kernels])
    assert run.model.cost.cache == "rotating"
    assert np.abs(np.log(2 * cached[known] / table[known])).mean() < 0.05
    np.testing.assert_allclose(run.mean_seconds(kernels, shapes), np.sqrt(table * cached))


def test_what_nobody_measured_in_cache_changes_as_the_model_expects(synthetic_run: TuningRun) -> None:
    run, shapes = synthetic_run, tuple(ShapeSet.every(synthetic_run.space.workload))[:8]
    assert not any(record.cached_seconds for record in run.records)
    kernels, in_cache = run.schemes, replace(run.model, cost=run.model.cost.with_cache("hot"))
    change = in_cache.seconds(kernels, shapes) / run.model.seconds(kernels, shapes)
    table = run.seconds_table(kernels, shapes)
    assert (change < 0.95).any()
    np.testing.assert_allclose(run.seconds_table(kernels, shapes, cached=True), table * change)
    np.testing.assert_array_equal(run.mean_seconds(kernels, shapes), table)


def test_the_more_alike_a_micro_kernel_is_the_more_it_follows_what_was_measured() -> None:
    measured = cpu_scheme(4, 32, edge="even")
    records = [*USUALLY, *(slowed(measured, shape, 4.0) for shape in SIZES[1:4])]
    family = [measured, *(cpu_scheme(rows, 32, edge="even") for rows in (3, 2))]
    relatives = [measured, cpu_scheme(4, 32, edge="even", ahead=True), cpu_scheme(4, 48, edge="even")]
    relatives.append(cpu_scheme(4, 96, edge="even"))
    stranger = cpu_scheme(4, 32, edge="checked", order="is")
    doubt = Calibration(COST, records).doubt
    for kernels in (family, relatives):
        found, doubts = ratios(records, kernels, [SIZES[2]])[:, 0], doubt(kernels, [SIZES[2]])[:, 0]
        assert (np.diff(found) < 0).all() and found[-1] > ratios(records, [stranger], [SIZES[2]]) > USUAL
        assert (np.diff(doubts) > 0).all() and doubts[-1] < doubt([stranger], [SIZES[2]])


@pytest.mark.parametrize(
    "stranger",
    [cpu_scheme(4, 32, edge="even", order="is"), cpu_scheme(4, 32), cpu_scheme(4, 32, edge="checked")],
    ids=str,
)
def test_other_loop_orders_and_edges_are_strangers(stranger: CpuScheme) -> None:
    """They learn how slow all are on average, but neither where nor which."""
    kernel = cpu_scheme(4, 32, edge="even")
    records = [slowed(kernel, shape, ratio) for shape, ratio in zip(SIZES, (6, 5, 4, 3, 2), strict=True)]
    own, its = ratios(records, [kernel, stranger])
    assert np.ptp(np.log(own)) > 0.8 > 0.1 > np.ptp(np.log(its))
    calibration = Calibration(COST, records)
    own, its = calibration.doubt([kernel, stranger], SIZES)
    assert (its > 5 * own).all() and np.ptp(its) < 0.01
    far = [cpu_scheme(14, 128, unroll=8, edge="even")]
    assert (calibration.doubt(far, SIZES) <= its).all(), "nobody is less certain than a stranger"


def test_doubt_grows_with_the_distance_to_what_was_measured() -> None:
    """In rows, in height, in width and in the other parameters; nearly nothing is known far away."""
    kernel, shapes = cpu_scheme(4, 32, edge="even"), [Shape.of(T=t) for t in (8, 16, 64, 128)]
    doubt = Calibration(COST, [slowed(kernel, shapes[0], 2.0)]).doubt
    steps = [
        doubt([kernel], shapes)[0],
        doubt([cpu_scheme(rows, 32, edge="even") for rows in (4, 3, 2, 1)], shapes)[:, 0],
        doubt([cpu_scheme(4, cols, edge="even") for cols in (32, 48, 64, 128)], shapes)[:, 0],
        doubt([cpu_scheme(4, 32, unroll=unroll, edge="even") for unroll in (1, 2, 8, 16)], shapes)[:, 0],
    ]
    for doubts in steps:
        assert 0 < doubts[0] == steps[0][0] and (np.diff(doubts) > 0).all(), doubts
    (stranger,) = doubt([cpu_scheme(4, 32, edge="even", order="is")], shapes)
    assert max(doubts.max() for doubts in steps) < stranger.min()


def test_no_prediction_is_faster_than_the_processor() -> None:
    kernels = [cpu_scheme(rows, 32, edge="even") for rows in (4, 6)]
    shapes = [Shape.of(T=t) for t in (8, 120)]
    least = [WORK.flops(shape) / (1e9 * (HARDWARE.total_gflops or 0)) for shape in shapes]
    impossible = [recorded(kernels[0], shapes[0], least[0] / 4)]
    np.testing.assert_allclose(Calibration(COST, impossible).seconds(kernels, shapes), [least] * 2)
    four = HARDWARE.with_cores(4)
    cost = adaptation_cost(WORK, four)
    found = Calibration(cost, impossible).seconds(kernels, shapes)
    assert (found >= np.array(least) / 4 * (1 - 1e-12)).all()


def test_no_successful_record_is_no_calibration() -> None:
    with pytest.raises(ModelError, match="fitted on successful records; got none"):
        Calibration(COST, [Record(cpu_scheme(3, 16), SIZES[0], "crashed")])


def test_without_a_known_peak_measurements_still_correct_each_other() -> None:
    cost = adaptation_cost(WORK, replace(HARDWARE, peak_gflops=None))
    kernel, shapes = cpu_scheme(4, 32, edge="even"), SIZES[1:4]
    records = [recorded(kernel, shape, 1e-4 * shape["T"]) for shape in shapes]
    (found,) = Calibration(cost, records).seconds([kernel], shapes)
    np.testing.assert_allclose(found, [1e-4 * shape["T"] for shape in shapes], rtol=0.2)


def test_one_measurement_at_an_end_says_less_about_the_other() -> None:
    """Far from its own measured shapes a micro-kernel is nearly what its relatives are there."""
    shapes = [Shape.of(T=t) for t in (4, 16, 48, 128)]
    kernel, relative = (cpu_scheme(4, cols, edge="even") for cols in (32, 48))
    family = [slowed(relative, shape, 2.0) for shape in shapes]
    (before,) = ratios(family, [kernel], shapes)
    (after,) = ratios([*family, slowed(kernel, shapes[0], 7.0)], [kernel], shapes)
    np.testing.assert_allclose(before, 2.0)
    changes = np.log(after / before)
    assert (np.diff(changes) < 0).all() and changes[0] > np.log(2) and 0 < changes[3] < changes[0] / 2


def test_of_two_plans_said_to_be_as_fast_the_one_measured_often_counts(synthetic_run: TuningRun) -> None:
    kernels, shapes = synthetic_run.schemes, tuple(ShapeSet.every(synthetic_run.space.workload))
    run = synthetic_run
    plain, expected = (f(kernels, shapes) for f in (run.mean_seconds, run.expected_seconds))
    measured = {(r.scheme, r.shape) for r in synthetic_run.records}
    known = np.array([[(k, s) in measured for s in shapes] for k in kernels])
    raised = expected / plain
    assert (raised > 1).all() and np.median(raised[known]) < np.median(raised[~known])
    rows, columns = known.any(axis=1), known.any(axis=0)
    assert raised[known].mean() < raised[rows][:, columns].mean()


# Other predictors


class Flops:
    """The time is that of the flops; whoever measured nothing knows as much."""

    def __init__(self, work: Workload) -> None:
        self.work = work

    def seconds(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> npt.NDArray[np.float64]:
        return np.array([[self.work.flops(s) / (1e9 * k.rows) for s in shapes] for k in schemes])

    def doubt(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> npt.NDArray[np.float64]:
        return np.full((len(schemes), len(shapes)), 0.1)


class FlopsPredictor:
    def __init__(self) -> None:
        self.fits: list[int] = []

    def fit(self, space: Space, records: Sequence[Record]) -> Flops:
        self.fits.append(len(records))
        return Flops(space.workload)


def test_a_predictor_of_ones_own_runs_the_whole_loop() -> None:
    predictor, shapes, hardware = FlopsPredictor(), ShapeSet.uniform(WORK), Hardware.preset("haswell-1core")
    run = tune(build_space(WORK, hardware), shapes, SyntheticRunner(hardware), "smoke", predictor=predictor)
    stages = {record.asked_by.stage for record in run.records if record.asked_by}
    assert stages == {"search", "decide"} and predictor.fits[-1] == len(run.records)
    assert isinstance(run.predictor.fitted, Flops)
    kernels, own = run.schemes, Flops(WORK).seconds(run.schemes, tuple(shapes))
    np.testing.assert_array_equal(run.seconds_table(kernels, tuple(shapes)), own)
    np.testing.assert_array_equal(run.seconds_table(kernels, tuple(shapes), cached=True), own)
    np.testing.assert_allclose(run.expected_seconds(kernels, tuple(shapes)), own * np.exp(0.1))
    assert run.held_out_metrics == {}  # of one round nothing was predicted
    with pytest.raises(
        ModelError, match=r"got Flops.*Tune with LearnedPredictor\(\) .*, or fit_cost_model on"
    ):
        _ = run.model


def test_any_predictor_is_judged_by_the_order_that_it_predicts() -> None:
    """Taller tiles are faster: right for one of two shapes."""
    kernels, shapes = [cpu_scheme(rows, 32) for rows in range(1, 9)], SIZES[:2]
    records = [
        recorded(k, shape, 1e-4 * (k.rows if wrong else 1 / k.rows))
        for wrong, shape in enumerate(shapes)
        for k in kernels
    ]
    right, wrong = (evaluate_model(Flops(WORK), [r for r in records if r.shape == s]) for s in shapes)
    assert (right["pairwise"], wrong["pairwise"]) == (1, 0)
    assert evaluate_model(Flops(WORK), records)["pairwise"] == pytest.approx(0.5)


def test_the_default_predictor_is_a_calibrated_model() -> None:
    train, space = synthetic_records(40, 0)[0], build_space(WORK, HARDWARE)
    fitted = LearnedPredictor(adaptation="paper", cache="rotating", seed=3).fit(space, train)
    assert (fitted.model.cost.kind, fitted.model.cost.cache) == ("paper", "rotating")
    kernels, shapes = [record.scheme for record in train[:5]], ShapeSet.uniform(WORK).shapes
    calibration = Calibration(fitted.model.cost, train)
    np.testing.assert_array_equal(fitted.seconds(kernels, shapes), calibration.seconds(kernels, shapes))
    np.testing.assert_array_equal(fitted.doubt(kernels, shapes), calibration.doubt(kernels, shapes))
    with pytest.raises(ModelError, match="successful records; got none"):
        LearnedPredictor().fit(space, [])


def test_a_label_comes_from_where_a_micro_kernel_computes_and_is_not_above_the_peak() -> None:
    work = BatchMatmul(T=Dim(1, 128), B=12, D=64, form="nt")
    cost, small, large = adaptation_cost(work, HARDWARE), Shape.of(T=1), Shape.of(T=128)
    kernels = [cpu_scheme(rows, 16, edge="even") for rows in (4, 6, 8, 10, 12)]
    some, most = cost.working_shares([kernels[0]] * 2, [small, large])
    assert some < 0.2 < 0.8 < most
    peak = 1e9 * (HARDWARE.peak_gflops or 0)
    records = [recorded(k, large, cost.seconds(k, large, alike(0.5 * peak))) for k in kernels]
    # At T = 1 all of it is transposing, here faster than the adaptation cost has it.
    records += [recorded(k, small, cost.seconds(k, small, alike(3 * peak))) for k in kernels]
    found = fit_cost_model(work, HARDWARE, records).throughput(kernels)
    np.testing.assert_allclose(found, 0.5 * peak, rtol=1e-3)
    impossible = [recorded(k, large, cost.seconds(k, large, alike(3 * peak))) for k in kernels]
    found = fit_cost_model(work, HARDWARE, impossible).throughput(kernels)
    np.testing.assert_allclose(found, peak, rtol=1e-3)


def test_what_waited_for_memory_is_no_label_unless_there_is_nothing_else() -> None:
    cost = adaptation_cost(WORK, HARDWARE, cache="rotating")
    kernels = [cpu_scheme(r, 32, edge="even") for r in (4, 6, 8)]
    small, large = Shape.of(T=1), Shape.of(T=128)
    slow = 1.2 * WORK.bytes(small) / (1e9 * (HARDWARE.dram_gbps or 0))
    waited = [recorded(k, small, slow) for k in kernels]
    computed = recorded(kernels[0], large, cost.seconds(kernels[0], large, alike(9e10)))
    model = fit_cost_model(WORK, HARDWARE, [*waited, computed], cache="rotating")
    np.testing.assert_allclose(model.throughput(kernels), 9e10, rtol=1e-3)
    assert fit_cost_model(WORK, HARDWARE, waited, cache="rotating").samples == 3


def test_both_ways_to_compose_share_their_label() -> None:
    cost, shape = adaptation_cost(WORK, HARDWARE), Shape.of(T=128)
    even, rest = cpu_scheme(4, 32, edge="even"), cpu_scheme(4, 32, edge="rest")
    records = [recorded(even, shape, cost.seconds(even, shape, alike(9e10)))]
    records.append(recorded(rest, shape, cost.seconds(rest, shape, alike(1e10))))
    model = fit_cost_model(WORK, HARDWARE, records)
    assert model.samples == 1
    np.testing.assert_allclose(model.throughput([even, rest]), 9e10, rtol=1e-3)

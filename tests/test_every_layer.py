"""One library for every layer: rows, columns and depth are dynamic."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import in_turn, python

from dietlab.base.errors import DietlabError, DispatchError
from dietlab.cli.options import parse_shapes
from dietlab.cost.calibration import Calibration
from dietlab.lower.runtime import aligned_empty, as_tensor
from dietlab.machine import Hardware
from dietlab.measure import Record, SyntheticRunner
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload, tolerance
from dietlab.scheme import (
    Leaf,
    Scheme,
    Split,
    boxes,
    build_space,
    depth,
    intervals,
    leaves,
    restricted,
    route,
    split_dims,
)
from dietlab.tuning import (
    Dispatcher,
    Operator,
    TuningRun,
    build,
    choose_portfolio,
    load,
    train_dispatcher,
    tune,
)
from dietlab.tuning.tree_growth import grown

EVERY = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
KEYS = ("8x32.u4.ws.p0a.even", "6x48.u2.ws.p24a.k256.rest", "1x64.u8.ws.p0.even", "4x16.u8.is.p16.even")
TREE = Split("T", 10, Split("N", 100, Leaf(0), Leaf(2)), Split("K", 90, Leaf(3), Leaf(1)))
BERT = [(2304, 768), (768, 768), (3072, 768), (768, 3072)]


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.thorough)], ids="{}-core".format)
def library(
    request: pytest.FixtureRequest, here: Hardware, tmp_path_factory: pytest.TempPathFactory
) -> Operator:
    schemes = tuple(map(Scheme.from_key, KEYS))
    folder = tmp_path_factory.mktemp("every-layer")
    return build(Dispatcher(EVERY, here.with_cores(request.param), schemes, TREE), folder)


def drawn(count: int, most: float, seed: int) -> list[Shape]:
    """Returns shapes of 1 to 2 ** most rows, columns and steps."""
    dice = random.Random(seed)
    return [Shape.of(**{dim: round(2 ** dice.uniform(0, most)) for dim in "TNK"}) for _ in range(count)]


@pytest.mark.parametrize("shape", [*drawn(40, 7, 0), *drawn(6, 10, 1), Shape.of(T=1, N=1, K=1)], ids=str)
def test_any_layer_is_right_inside_the_range_and_beyond(library: Operator, shape: Shape) -> None:
    inputs = EVERY.inputs(shape)
    result = library(*inputs.values())
    assert np.abs(result - EVERY.reference(inputs)).max() <= tolerance(EVERY, inputs)
    sizes = shape.to_json()
    assert library.scheme(sizes["T"], sizes["N"], sizes["K"]) == KEYS[route(TREE, shape)]


def test_layers_of_different_sizes_share_a_library_in_one_process(library: Operator) -> None:
    shapes = [Shape.of(T=5, N=n, K=k) for n, k in ((37, 19), (64, 200), (200, 64))]
    inputs = [EVERY.inputs(shape) for shape in shapes]
    layers = [library.pack(given["w"]) for given in inputs]
    for layer, given in zip(layers[::-1], inputs[::-1], strict=True):
        assert np.abs(layer(given["x"]) - EVERY.reference(given)).max() <= tolerance(EVERY, given)


OTHERS = (
    Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256), bias=True, constant=False),
    BatchMatmul(T=Dim(1, 64), B=Dim(1, 8), D=Dim(16, 128), form="nt"),
    BatchMatmul(T=Dim(1, 64), B=Dim(1, 8), D=Dim(16, 128), form="nn"),
)
"""Weights that come with every call: panels are transposed to memory of a size that depends on the call,
vectors run along a depth that nobody knows, lengths up to 32 are compiled one by one."""


@pytest.mark.parametrize(("work", "cores"), in_turn(OTHERS, (1, 2)), ids=str)
def test_operands_that_vary_are_right_in_every_dimension(
    work: Workload, cores: int, here: Hardware, tmp_path: Path
) -> None:
    last = "5x5.u4.ws.p0.depth.even" if "nt" in work.operator else "6x48.u2.ws.p16.rest"
    schemes = (Scheme.from_key("8x32.u4.ws.p0.even"), Scheme.from_key(last))
    tree = Split("T", 20, Leaf(0), Split(list(work.dims)[-1], 60, Leaf(1), Leaf(0)))
    op = build(Dispatcher(work, here.with_cores(cores), schemes, tree), tmp_path)
    dice = random.Random(5)
    for _ in range(40):
        sizes = {name: round(2 ** dice.uniform(0, 3 if name == "B" else 7.5)) for name in work.dims}
        inputs = work.inputs(Shape.of(**sizes))
        error = np.abs(op(*inputs.values()) - work.reference(inputs)).max()
        assert error <= tolerance(work, inputs), (str(work), sizes)


def test_such_a_library_needs_no_runtime(here: Hardware, tmp_path: Path) -> None:
    """Its memory comes from the C library; TVM's own would be absent where only dietlab.load() is used."""
    build(Dispatcher(OTHERS[1], here, (Scheme.from_key("8x32.u4.ws.p0.even"),), Leaf(0)), tmp_path)
    script = """import sys; sys.modules['tvm'] = None; import numpy as np, dietlab as dl
x = np.ones((2, 5, 20), np.float32); y = dl.load(sys.argv[1])(x, x)
assert y.shape == (2, 5, 5) and (y == 20).all()"""
    python("-c", script, tmp_path)


@pytest.mark.parametrize("empty", [{"T": 0}, {"N": 0}])
def test_an_empty_output_is_no_work(library: Operator, empty: dict[str, int]) -> None:
    sizes = {"T": 3, "N": 32, "K": 16, **empty}
    packed = np.zeros(library.library.packed_floats(sizes["N"], sizes["K"]), np.float32)
    out = np.empty((sizes["T"], sizes["N"]), np.float32)
    library.library.run(*map(as_tensor, (np.ones((sizes["T"], sizes["K"]), np.float32), packed, out)))


def test_weights_without_depth_give_zero(library: Operator) -> None:
    result = library(np.empty((3, 0), np.float32), np.empty((20, 0), np.float32))
    assert result.shape == (3, 20) and not result.any()


def test_weights_of_another_layer_library_or_version_are_refused(
    library: Operator, here: Hardware, tmp_path: Path
) -> None:
    inputs = EVERY.inputs(Shape.of(T=3, N=48, K=40))
    layer = library.pack(inputs["w"])
    with pytest.raises(DispatchError, match="of another layer, library or version: pack them with this"):
        layer(np.ones((3, 39), np.float32))
    out, run = np.empty((3, 48), np.float32), library.library.run
    packed = aligned_empty((library.library.packed_floats(48, 40),))
    library.library.pack(inputs["w"], packed)
    run(inputs["x"], packed, out)
    for word in range(4):
        packed.view(np.int32)[word] += 1
        with pytest.raises(ValueError, match="of another layer, library or version"):
            run(inputs["x"], packed, out)
        packed.view(np.int32)[word] -= 1
    # A library of narrower tiles leaves fewer empty panels behind the last column.
    narrow = build(Dispatcher(EVERY, here, (Scheme.from_key("4x16.u4.ws.p0.even"),), Leaf(0)), tmp_path)
    few = aligned_empty((narrow.library.packed_floats(48, 40),))
    narrow.library.pack(inputs["w"], few)
    with pytest.raises(ValueError, match="of another layer, library or version"):
        run(inputs["x"], few, out)


# Trees over several dimensions


def test_boxes_of_a_tree_are_the_extents_of_its_leaves() -> None:
    assert split_dims(TREE) == ("T", "N", "K")
    found = boxes(TREE, {"T": (1, None)})
    assert found[0] == (0, {"T": (1, 10), "N": (1, 100)})
    assert found[-1][1] == {"T": (11, None), "K": (91, None)}

    def holds(box: dict[str, tuple[int, int | None]], shape: Shape) -> bool:
        return all(low <= shape[dim] <= (high or shape[dim]) for dim, (low, high) in box.items())

    for shape in drawn(200, 9, 3):
        inside = [number for number, box in found if holds(box, shape)]
        assert inside == [route(TREE, shape)]
        left = restricted(TREE, {"T": shape["T"], "K": shape["K"]})
        assert route(left, shape) == route(TREE, shape) and set(split_dims(left)) <= {"N"}
    within = [(0, {"T": (1, 5), "N": (1, 100)}), (2, {"T": (1, 5), "N": (101, None)})]
    assert boxes(TREE, {"T": (1, 5)}) == within
    assert intervals(Split("N", 4, Leaf(1), Leaf(0))) == [(1, 1, 4), (0, 5, None)]


def test_a_grown_tree_finds_a_rule_of_two_dimensions() -> None:
    """Neither split alone saves anything: the better choice changes with both (exclusive or)."""
    shapes = [(t, n) for t in range(1, 17) for n in range(1, 17)]
    extents = {name: np.array([shape[i] for shape in shapes]) for i, name in enumerate("TN")}
    right = np.array([int((t <= 8) != (n <= 5)) for t, n in shapes])
    losses = np.where(right[:, None] == np.arange(2), 0.0, 1.0)
    tree = grown(losses, extents, 0.5)
    assert depth(tree) == 2 and len(leaves(tree)) == 4
    assert all(route(tree, Shape.of(T=t, N=n)) == right[i] for i, (t, n) in enumerate(shapes))
    assert grown(losses, extents, 1000.0) == Leaf(0)


# The command line


def test_held_out_layers_are_drawn_from_the_ranges() -> None:
    work = Dense(T=Dim(1, 64), N=Dim(64, 4096), K=Dim(64, 4096))
    shapes = parse_shapes("held-out/5/3@1,7", work)
    layers = {(shape["N"], shape["K"]) for shape in shapes}
    assert len(layers) == 5 and len(shapes) == 10 and {shape["T"] for shape in shapes} == {1, 7}
    assert parse_shapes("held-out/5/3@1,7", work) == shapes != parse_shapes("held-out/5/4@1,7", work)
    assert all(64 <= extent <= 4096 for layer in layers for extent in layer)
    assert len({(s["N"], s["K"]) for s in parse_shapes("held-out@3", work)}) == 12
    with pytest.raises(DietlabError, match="drawing layers needs ranges of N and K; got dense"):
        parse_shapes("held-out@1", replace(work, N=64, K=64))


# Tuning for every layer at once


@pytest.fixture(scope="module")
def whole() -> TuningRun:
    hardware = Hardware.preset("haswell-1core")
    work = Dense(T=Dim(1, 256), N=Dim(64, 4096), K=Dim(64, 4096))
    shapes = ShapeSet.layers(BERT, lengths=(1, 3, 8, 24, 64, 200), workload=work)
    return tune(build_space(work, hardware), shapes, SyntheticRunner(hardware), "smoke")


def test_one_tuning_serves_layers_that_it_never_saw(whole: TuningRun) -> None:
    portfolio = choose_portfolio(whole, max_kernels=12)
    dispatcher = train_dispatcher(portfolio)
    assert len(portfolio) <= 12 and set(dispatcher.micro_kernels) <= set(portfolio.micro_kernels)
    for shape in ShapeSet.log_uniform(whole.space.workload, 60, seed=4):
        plan = dispatcher.plan(shape)
        assert plan.rows == shape["T"]
        assert {region.kernel for region in plan.regions} <= set(dispatcher.micro_kernels)
    assert dispatcher.to_source().startswith("def choose(T, N, K):")
    frame = dispatcher.to_frame()
    assert {"low_T", "high_T", "low_N", "high_K", "plan", "scheme"} <= set(frame.columns)
    assert len(frame) == len(leaves(dispatcher.tree)) and dispatcher._repr_html_()


def test_beyond_the_range_of_any_dimension_the_safe_scheme_serves(whole: TuningRun) -> None:
    portfolio = choose_portfolio(whole)
    dispatcher = train_dispatcher(portfolio)
    inside = {"T": 200, "N": 768, "K": 768}
    for name in inside:
        beyond = Shape.of(**{**inside, name: 10**6})
        assert dispatcher.scheme(beyond) == portfolio.safe_scheme


def test_what_was_measured_of_a_layer_corrects_its_neighbours_most(whole: TuningRun) -> None:
    """The layer turned out twice as slow as it was predicted to be."""
    cost, scheme = whole.model.cost, whole.schemes[0]
    shapes = [Shape.of(T=10, N=768, K=768), Shape.of(T=10, N=1024, K=768), Shape.of(T=200, N=4096, K=4096)]
    (plain,) = whole.seconds_table([scheme], shapes)
    seen = Record(scheme, shapes[0], "ok", seconds=2 * plain[0])
    calibration = Calibration(cost, [*whole.records, seen])
    changes = np.log(calibration.seconds([scheme], shapes)[0] / plain)
    assert np.log(2) > changes[0] > changes[1:].max() and changes[1] > 0.1
    doubts = calibration.doubt([scheme], shapes)[0]
    assert 0 < doubts[0] < doubts[1] < doubts[2]


def test_a_library_is_loaded_with_its_dimensions(library: Operator) -> None:
    again = load(library.path)
    assert again.workload == EVERY and again.schemes == library.schemes

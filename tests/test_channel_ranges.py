"""Convolutions whose channels are ranges: one library for all layers of a network with the same kernel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli
from convolutions import epilogues, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from test_convolution import IN_PLACE, KEYS, LAYER, ONE_CORE, computed, library_of, of_torch

from dietlab.base.errors import BuildError, DispatchError, SpaceError, WorkloadError
from dietlab.compare.study import Study
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import load_library
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import (
    Conv1d,
    Conv2d,
    Dim,
    Shape,
    ShapeSet,
    extents,
    name_of_role,
    require_workload,
    split_extents,
    static_extent,
    workload_from_json,
    workload_to_json,
)
from dietlab.scheme import Leaf, Scheme, Split, build_space
from dietlab.targets.cpu.lowering.assembly import assembly_of
from dietlab.targets.cuda.lowering.geometry import BlockGeometry
from dietlab.tuning import Dispatcher, build

CHANNELS = Dim(3, 64)
EVERY = replace(LAYER, IC=CHANNELS, OC=CHANNELS)
RESNET = Conv2d(N=1, H=Dim(5, 80), W=Dim(5, 80), IC=Dim(64, 512), OC=Dim(64, 512), padding=1)
sizes = st.tuples(st.integers(0, 2), *[st.integers(13, 24)] * 2, *[st.integers(1, 70)] * 2)


def test_channels_are_dimensions() -> None:
    shape = Shape.of(H=9, W=8, IC=20, OC=40)
    assert list(EVERY.dims) == ["H", "W", "IC", "OC"]
    assert str(EVERY) == "conv2d N=1 H=7..80 W=7..80 IC=3..64 OC=3..64 kernel=3 padding=1"
    assert extents(EVERY, shape) == {"batch": 1, "rows": 72, "cols": 40, "depth": 180}
    assert (name_of_role(EVERY, "depth"), static_extent(EVERY, "depth")) == ("depth", None)
    assert split_extents(EVERY, shape) == {"H": 9, "W": 8, "IC": 20, "OC": 40, "rows": 72}
    assert EVERY.signature["w"] == ("OC", "IC", 3, 3)
    assert EVERY.output_shape(shape) == (1, 9, 8, 40)
    assert EVERY.flops(shape) == replace(LAYER, IC=20, OC=40).flops(shape)
    assert EVERY.bytes(shape) == replace(LAYER, IC=20, OC=40).bytes(shape)
    inputs = EVERY.inputs(shape)
    np.testing.assert_allclose(EVERY.reference(inputs), of_torch(EVERY, inputs), atol=1e-9)


@pytest.mark.parametrize(
    "work", [EVERY, replace(LAYER, OC=CHANNELS), Conv1d(N=1, L=Dim(9, 90), IC=CHANNELS, OC=8, kernel=5)]
)
def test_files_have_the_ranges(work: Any) -> None:
    require_workload(work)
    assert workload_from_json(json.loads(json.dumps(workload_to_json(work)))) == work


# --- libraries ------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(
    windows(st.sampled_from((1, 2, 3, (1, 5), (4, 3)))),
    st.sampled_from((*IN_PLACE, "3x64.u4.ws.p16.lines.rest", "11x16.u4.is.p0.lines.even")),
    st.lists(sizes, min_size=2, max_size=4),
    epilogues,
    st.sampled_from((("IC", "OC"), ("IC",), ("OC",))),
)
def test_every_layer_is_served(
    tmp_path_factory: pytest.TempPathFactory, options: Any, key: str, layers: Any, epilogue: Any, ranges: Any
) -> None:
    channels: Any = {"IC": 20, "OC": 40} | dict.fromkeys(ranges, CHANNELS)
    work = Conv2d(N=Dim(1, 2), H=Dim(13, 24), W=Dim(13, 24), **channels, **options, **epilogue)
    if not any(window.moves for window in work.windows):
        key = key.replace(".lines", "")
    library = library_of(work, key, tmp_path_factory.mktemp("channels"))
    for extent in layers:
        bound = dict(zip(("N", "H", "W", "IC", "OC"), extent, strict=True))
        inputs = work.inputs(Shape.of(**{name: bound[name] for name in work.dims}))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@pytest.mark.parametrize("key", [*IN_PLACE, *KEYS])
def test_two_cores_serve_every_layer(key: str, tmp_path: Path) -> None:
    """Also without input channels, and where no whole tile of columns fits. A kernel of one element is a
    dense product, whose tiles read rows."""
    work = EVERY if key in IN_PLACE else replace(EVERY, kernel=1, padding=0, bias=True)
    library = library_of(work, key, tmp_path, cores=2)
    for height, width, inner, outer in ((7, 7, 16, 24), (9, 31, 3, 100), (40, 12, 33, 5), (7, 7, 0, 8)):
        inputs = work.inputs(Shape.of(H=height, W=width, IC=inner, OC=outer))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@pytest.mark.parametrize("key", IN_PLACE)
def test_images_smaller_than_the_kernel(key: str, tmp_path: Path) -> None:
    work = replace(EVERY, kernel=5, padding=2)
    library = library_of(work, key, tmp_path)
    for height, width in ((1, 1), (2, 5), (5, 3), (1, 13)):
        inputs = work.inputs(Shape.of(H=height, W=width, IC=7, OC=33))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


def test_sequences_are_served(tmp_path: Path) -> None:
    work = Conv1d(N=2, L=Dim(9, 90), IC=CHANNELS, OC=CHANNELS, kernel=5, stride=2, padding=((4, 0),))
    library = library_of(work, IN_PLACE[0], tmp_path)
    for length, inner, outer in ((9, 3, 40), (50, 16, 16)):
        inputs = work.inputs(Shape.of(L=length, IC=inner, OC=outer))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


def test_results_are_those_of_fixed_channels_bit_by_bit(tmp_path: Path) -> None:
    inputs = EVERY.inputs(Shape.of(H=12, W=14, IC=20, OC=40))
    found = []
    for number, work in enumerate((EVERY, replace(LAYER, IC=20, OC=40))):
        (tmp_path / str(number)).mkdir()
        found.append(computed(library_of(work, IN_PLACE[0], tmp_path / str(number)), work, inputs))
    np.testing.assert_array_equal(*found)


def test_a_program_for_measuring_serves_its_shapes(tmp_path: Path) -> None:
    """It has code for the given shapes only."""
    shape, path = Shape.of(H=9, W=11, IC=24, OC=48), tmp_path / "library.so"
    compile_plans(EVERY, ONE_CORE, [Scheme.from_key(IN_PLACE[0])], Leaf(0), path, only=[[shape]])
    inputs = EVERY.inputs(shape)
    found = computed(load_library(path, "cpu", 1), EVERY, inputs)
    np.testing.assert_allclose(found, EVERY.reference(inputs), atol=2e-3)


def test_a_tree_may_split_channels_and_rows(tmp_path: Path) -> None:
    schemes = tuple(Scheme.from_key(key) for key in IN_PLACE)
    tree = Split("IC", 16, Split("rows", 100, Leaf(0), Leaf(1)), Split("OC", 32, Leaf(1), Leaf(0)))
    dispatcher = Dispatcher(EVERY, ONE_CORE, schemes, tree)
    op = build(dispatcher, tmp_path / "library")
    for height, width, inner, outer, number in (
        (10, 10, 16, 40, 0),
        (10, 11, 16, 40, 1),
        (10, 10, 17, 32, 1),
        (10, 10, 17, 33, 0),
    ):
        shape = Shape.of(H=height, W=width, IC=inner, OC=outer)
        assert dispatcher.scheme(shape) == schemes[number]
        assert op.scheme(1, height, width, inner, outer) == schemes[number].key
        inputs = EVERY.inputs(shape)
        np.testing.assert_allclose(op.pack(inputs["w"])(inputs["x"]), EVERY.reference(inputs), atol=2e-3)
    namespace: dict[str, Any] = {}
    exec(dispatcher.to_source(), namespace)
    assert namespace["choose"](10, 11, 16, 40) == schemes[1].key
    assert Dispatcher.from_json(json.loads(json.dumps(dispatcher.to_json()))) == dispatcher


def test_accumulators_stay_in_registers() -> None:
    for key in ("6x64.u2.ws.p0.lines.even", "12x32.u4.ws.p0.lines.even"):
        assert assembly_of(RESNET, ONE_CORE, Scheme.from_key(key)).loop_spills == 0


# --- a study --------------------------------------------------------------------------------------


def test_one_study_serves_all_layers_of_a_network(tmp_path: Path) -> None:
    shapes = ShapeSet.layers("resnet50", [160, 224], RESNET)
    study = Study.create(tmp_path / "study", RESNET, ONE_CORE, shapes, "smoke", max_kernels=4)
    study.tune(SyntheticRunner(ONE_CORE))
    study.dispatch()
    op = study.build()
    for inner, outer in ((64, 64), (3, 7), (70, 130)):
        inputs = RESNET.inputs(Shape.of(H=14, W=9, IC=inner, OC=outer))
        layer, right = op.pack(inputs["w"]), RESNET.reference(inputs)
        np.testing.assert_allclose(layer(inputs["x"]), right, atol=2e-3)
        np.testing.assert_allclose(op(inputs["x"], inputs["w"]), right, atol=2e-3)
    with pytest.raises(DispatchError, match=r"x \[1, H, W, IC\].*packed weights are of another layer"):
        layer(inputs["x"][..., :64].copy())
    with pytest.raises(DispatchError, match=r"w \[OC, IC, 3, 3\].*The size of w differs"):
        op.pack(inputs["w"][:, :, :2])
    with pytest.raises(DispatchError, match=r"must be 1 or more, so that the kernel"):
        layer(np.zeros((1, 0, 9, 70), np.float32))


def test_the_layers_of_a_network() -> None:
    found = ShapeSet.layers("resnet50", [224], RESNET)
    assert {(s["IC"], s["OC"], s["H"]): w for s, w in zip(found, found.weights, strict=True)} == {
        (64, 64, 56): pytest.approx(3 / 13),
        (128, 128, 28): pytest.approx(3 / 13),
        (256, 256, 14): pytest.approx(5 / 13),
        (512, 512, 7): pytest.approx(2 / 13),
    }
    assert found.dropped == 0 and found.source.startswith("resnet50")
    narrow = ShapeSet.layers("resnet50", [224], replace(RESNET, IC=Dim(64, 300)))
    assert {s["IC"] for s in narrow} == {64, 128, 256}
    assert narrow.dropped == pytest.approx(2 / 13)
    fixed = ShapeSet.layers("resnet50", [224], replace(RESNET, IC=128, OC=Dim(64, 512)))
    assert [str(shape) for shape in fixed] == ["H=28,OC=128,W=28"]
    with pytest.raises(WorkloadError, match="the operator must be a layer of resnet50: channels, kernel"):
        ShapeSet.layers("resnet50", [224], replace(RESNET, IC=Dim(513, 600)))
    with pytest.raises(WorkloadError, match=r"must be in the operator's ranges.*The layer meets 1x56x56"):
        ShapeSet.layers("resnet50", [224], replace(RESNET, H=Dim(81, 90)))


# --- what is refused --------------------------------------------------------------------------------


def test_rows_are_read_in_place_and_in_float32() -> None:
    """A copy of rows needs a length that is known beforehand."""
    assert {scheme.kernel.lines for scheme in build_space(RESNET, ONE_CORE)} == {True}
    for kernel, padding in ((3, 1), (1, 0)):
        work = replace(RESNET, dtype="bfloat16", kernel=kernel, padding=padding)
        with pytest.raises(SpaceError, match=r"candidates: a range of depths .* on a CPU \([\d,]+\)\. Take"):
            build_space(work, ONE_CORE)
    pixels = build_space(replace(RESNET, kernel=1, padding=0), ONE_CORE)
    assert {scheme.kernel.lines for scheme in pixels} == {False}


def test_a_gpu_refuses_ranges_of_channels() -> None:
    gpu = Hardware.preset("h200")
    for work in (RESNET, replace(RESNET, IC=64), replace(RESNET, kernel=1, padding=0)):
        with pytest.raises(SpaceError, match=r"channels are numbers \(a CPU serves ranges\)"):
            build_space(work, gpu)
        with pytest.raises(BuildError, match="channels of a GPU's convolution must be numbers"):
            BlockGeometry.of(work, gpu)


def test_an_operator_of_others_has_no_range_of_groups() -> None:
    """The check of an operator refuses it with a sentence, whoever wrote the operator."""

    class Grouped(Conv2d):
        @property
        def axes(self) -> Any:  # type: ignore[override]
            axis = type(super().axes[0])
            return (axis("G", 2, "batch"), *super().axes)

    work = Grouped(N=1, H=9, W=9, IC=CHANNELS, OC=16)
    with pytest.raises(WorkloadError, match="windows and groups must be numbers"):
        require_workload(work)


def test_the_command_line_takes_ranges_of_channels() -> None:
    dims = [option for name in ("IC", "OC") for option in ("--dim", f"{name}=64:512")]
    dims += ["--dim", "N=1", "--dim", "H=5:80", "--dim", "W=5:80"]
    said = cli("space", "conv2d", *dims, "--padding", "1", "--hardware", "zen4-1core").stdout
    assert said.startswith(f"{RESNET} on ") and "not read in place, have a length" in said

"""Convolutions in int8: the operator as a value, and programs of every unit against the exact sums."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli, in_turn
from convolutions import channels, images, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from test_units import AMX, ARM, AVX512, HERE, walled

from dietlab.base.errors import BuildError, DispatchError, SpaceError, WorkloadError
from dietlab.compare.study import Study
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import (
    Conv1d,
    Conv2d,
    Dense,
    Dim,
    Shape,
    ShapeSet,
    dtypes_of,
    require_dtype,
    require_workload,
    tolerance,
    workload_from_json,
    workload_to_json,
)
from dietlab.problem.convolution import Convolution
from dietlab.scheme import Leaf, Scheme, build_space
from dietlab.targets.cpu.lowering import compile_packing
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.library import library_module
from dietlab.targets.cpu.units import UNITS, CpuUnit

SIDE = Dim(7, 40)
LAYER = Conv2d(N=1, H=SIDE, W=SIDE, IC=16, OC=24, padding=1, dtype="int8")
DEPTHWISE = replace(LAYER, OC=16, groups=16)
TILES = ("5x2.u2.ws.p0.{}.even", "4x1.u1.is.p16.{}.rest")
"""Tiles by rows and vectors: one that copies blocks of rows, and one that copies its own."""
COPYING: tuple[CpuUnit, ...] = tuple(
    unit for unit, facts in UNITS.items() if facts.dtype == "int8" and not facts.matrix
)
"""The units that read copied rows."""


def exact(work: Convolution, inputs: dict[str, Any]) -> Any:
    """Returns the sums of an int8 convolution as whole numbers, output by output."""
    padded = np.pad(inputs["x"].astype(np.int64), [(0, 0), *work.padding, (0, 0)])
    w, inner = inputs["w"].astype(np.int64), inputs["w"].shape[1]
    sums = np.zeros(work.output_shape(Shape.of()), np.int64)
    for place in np.ndindex(*sums.shape):
        image, *at, col = place
        first = col // (len(w) // work.groups) * inner
        under = tuple(
            slice(p * step, p * step + (k - 1) * apart + 1, apart)
            for p, k, step, apart in zip(at, work.kernel, work.stride, work.dilation, strict=True)
        )
        here = np.moveaxis(padded[(image, *under, slice(first, first + inner))], -1, 0)
        sums[place] = (here * w[col]).sum()
    return sums


class Library:
    """Two plans of an operator for one unit; where this processor lacks it, it is emulated in the layout of
    ``described``."""

    def __init__(
        self, work: Convolution, unit: CpuUnit, folder: Path, described: Hardware = AVX512, cores: int = 1
    ) -> None:
        has = unit in HERE.limits.units("int8")
        described = (HERE if has and described is AVX512 else described).with_cores(cores)
        keys = []
        for tile in TILES:
            rows, rest = tile.format(unit).split("x", 1)
            keys.append(f"{rows}x{int(rest[0]) * described.limits.lanes}{rest[1:]}")
        self.work, schemes = work, [Scheme.from_key(key) for key in keys]
        geometry = replace(Geometry.of(work, described, schemes), emulated=not has)
        module = library_module(geometry, schemes, Leaf(0), every_plan=True)
        artifact = compile_packing(module, geometry, HERE.with_cores(cores), folder / "library.so")
        self.library = load_library(artifact.path, cores=cores)

    def results(self, inputs: dict[str, Any]) -> list[Any]:
        """Returns the output of each plan; no byte beyond an operand can be read, none beyond the output
        written."""
        packed = aligned_empty((int(self.library.packed_floats(*inputs["w"].shape)),))
        packed.fill(np.nan)
        self.library.pack(*(as_tensor(walled(inputs[name])) for name in self.work.constants), packed)
        right = self.work.reference(inputs)
        dtype = require_dtype(dtypes_of(self.work)["out"]).numpy
        others = [as_tensor(walled(inputs["residual"]))] if "residual" in inputs else []
        found = []
        for plan in range(len(TILES)):
            out = walled(np.where(right > 0, -128, 127).astype(dtype))  # what is not written is wrong
            self.library.run_plan(as_tensor(walled(inputs["x"])), packed, *others, as_tensor(out), plan)
            found.append(out.astype(np.float64))
        return found

    def check(self, *shapes: Shape) -> None:
        for shape in shapes:
            inputs = self.work.inputs(shape, seed=3)
            right = self.work.reference(inputs)
            for found in self.results(inputs):
                error = np.abs(found - right).max(initial=0.0)
                assert error <= tolerance(self.work, inputs, right), (str(self.work), shape, error)


# --- the operator ---------------------------------------------------------------------------------


def test_an_int8_convolution_has_scales() -> None:
    work = replace(LAYER, bias=True, residual=True)
    shape = Shape.of(H=7, W=9)
    require_workload(work)
    assert list(work.signature) == ["x", "w", "scale", "bias", "residual", "out"]
    assert work.constants == ("w", "scale", "bias")
    assert str(work).endswith("kernel=3 padding=1 int8 to float32 +bias +residual")
    assert dtypes_of(work) == {"x": "int8", "w": "int8"} | dict.fromkeys(
        ("scale", "bias", "residual", "out"), "float32"
    )
    outputs = 7 * 9 * 24
    assert work.bytes(shape) == 7 * 9 * 16 + 24 * 16 * 9 + 4 * (24 + 24 + 2 * outputs)
    assert replace(work, residual=False, out_dtype="int8").bytes(shape) == (
        7 * 9 * 16 + 24 * 16 * 9 + 4 * (24 + 24) + outputs
    )


def test_an_int8_convolution_survives_json_and_others_have_the_same_json_as_before() -> None:
    for work in (LAYER, replace(LAYER, out_dtype="int8"), Conv1d(N=1, L=9, IC=4, OC=4, dtype="int8")):
        assert workload_from_json(json.loads(json.dumps(workload_to_json(work)))) == work
    assert replace(LAYER, out_dtype="float32") == LAYER and LAYER.to_json()["out_dtype"] == "float32"
    for dtype in ("float32", "bfloat16"):
        assert "out_dtype" not in replace(LAYER, dtype=dtype).to_json()


@pytest.mark.parametrize("out_dtype", ["float32", "int8"])
def test_random_outputs_are_about_as_large_as_inputs(out_dtype: str) -> None:
    work = replace(LAYER, out_dtype=out_dtype, groups=4)
    inputs = work.inputs(Shape.of(H=20, W=20))
    spread = work.reference(inputs).std() / require_dtype(out_dtype).deviation
    assert 0.5 < spread < 2 and (inputs["scale"] > 0).all()
    assert np.abs(work.reference({**inputs, "scale": inputs["scale"] * 1000})).max() == (
        128 if out_dtype == "int8" else pytest.approx(1000 * np.abs(work.reference(inputs)).max())
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"out_dtype": "int8", "activation": "gelu_erf"}, "must have the activation none or relu"),
        ({"out_dtype": "float16"}, "an output of int8 operands is float32 or int8; got 'float16'"),
        ({"dtype": "float32", "out_dtype": "int8"}, "an output of float32 operands is float32"),
        ({"IC": 14564, "OC": 4}, "sums of int8 products must have at most 131071 terms.* got 131076"),
    ],
)
def test_int8_that_cannot_be_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        replace(LAYER, **options)
    assert replace(LAYER, IC=14563 * 2, OC=4, groups=2)


# --- programs -------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    windows(),
    st.sampled_from(((1, 3, 40), (1, 1, 3), (1, 16, 16), (1, 33, 37), (3, 3, 40), (2, 16, 2), (5, 1, 3))),
    st.sampled_from(COPYING),
    images,
    st.sampled_from(("plain", "rich", "int8")),
)
def test_every_image_is_served(
    tmp_path_factory: pytest.TempPathFactory, window: Any, size: Any, unit: CpuUnit, called: Any, form: str
) -> None:
    options = {**window, **channels(*size), "bias": form != "plain"}
    if form == "int8":
        options |= {"out_dtype": "int8", "activation": "relu"}
    elif form == "rich":
        options |= {"residual": True, "activation": "gelu_tanh"}
    work = Conv2d(N=Dim(1, 2), H=Dim(10, 24), W=Dim(10, 24), dtype="int8", **options)
    library = Library(work, unit, tmp_path_factory.mktemp("int8"))
    library.check(*(Shape.of(N=number, H=height, W=width) for number, height, width in called))


@settings(max_examples=6)
@given(windows(), st.sampled_from(((1, 5, 7), (2, 3, 9))), st.sampled_from(COPYING))
def test_sums_are_exact(
    tmp_path_factory: pytest.TempPathFactory, options: Any, size: Any, unit: CpuUnit
) -> None:
    """With scales of 1 every sum is a number that float32 has: not one bit may differ."""
    work = Conv2d(N=1, H=11, W=13, dtype="int8", **options, **channels(*size))
    inputs = work.inputs(Shape.of())
    inputs["scale"] = np.ones_like(inputs["scale"])
    right = exact(work, inputs)
    np.testing.assert_array_equal(work.reference(inputs), right)
    for found in Library(work, unit, tmp_path_factory.mktemp("exact")).results(inputs):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("unit", COPYING)
@pytest.mark.parametrize(
    ("options", "inner"),
    [
        ({"kernel": 5, "padding": 4}, 3),
        ({"kernel": (3, 2), "padding": ((0, 2), (1, 0)), "stride": 2, "groups": 2}, 16),
        ({"kernel": 3, "padding": 2, "dilation": 2}, 70),
        ({"kernel": 1, "padding": 3}, 5),  # whole rows of zeros
    ],
)
def test_zeros_around_the_image_are_zeros(unit: CpuUnit, options: Any, inner: int, tmp_path: Path) -> None:
    """Where a unit's inputs are made unsigned, a zero is 128, and the first sums take 128 times *all* weights
    back. Weights of one sign make a wrong zero visible in every output beside the border."""
    groups = options.get("groups", 1)
    work = replace(LAYER, IC=inner * groups, OC=21 * groups, **options)
    library = Library(work, unit, tmp_path)
    for height, width in ((7, 7), (9, 31)):
        inputs = work.inputs(Shape.of(H=height, W=width))
        inputs["scale"] = np.ones_like(inputs["scale"])
        for x_end in (-128, 0, 127):
            for w_end in (-128, 127):
                ends = {"x": np.full_like(inputs["x"], x_end), "w": np.full_like(inputs["w"], w_end)}
                right = work.reference({**inputs, **ends})
                assert x_end == 0 or len(np.unique(right)) > 1, "no output sees the border"
                for found in library.results({**inputs, **ends}):
                    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(("unit", "cores"), [*in_turn(COPYING, (1, 2))])
def test_sequences_are_served(unit: CpuUnit, cores: int, tmp_path: Path) -> None:
    work = Conv1d(
        N=Dim(1, 3), L=Dim(5, 90), IC=10, OC=37, kernel=5, padding=((4, 0),), bias=True, dtype="int8"
    )
    library = Library(work, unit, tmp_path, cores=cores)
    library.check(*(Shape.of(N=number, L=length) for number, length in ((1, 5), (3, 17), (2, 90), (0, 9))))


@pytest.mark.parametrize("groups", [1, 2])
def test_two_cores_serve_every_image(groups: int, tmp_path: Path) -> None:
    library = Library(replace(LAYER, groups=groups), COPYING[-1], tmp_path, cores=2)
    library.check(*(Shape.of(H=height, W=width) for height, width in ((7, 7), (9, 31), (40, 12))))


def test_narrow_vectors_read_the_same_copy(tmp_path: Path) -> None:
    """In the layout of a processor with AVX2 only, whose unit widens to 16 bits."""
    haswell = Hardware.preset("haswell-1core")
    assert haswell.limits.units("int8") == ("maddwd",)
    library = Library(replace(LAYER, IC=17, bias=True), "maddwd", tmp_path, haswell)
    library.check(Shape.of(H=7, W=7), Shape.of(H=9, W=31))


def test_a_kernel_of_one_element_is_the_dense_product_bit_by_bit(tmp_path: Path) -> None:
    dense, work = Dense(T=Dim(1, 900), N=24, K=16, dtype="int8"), replace(LAYER, kernel=1, padding=0)
    unit = next((unit for unit in HERE.limits.units("int8") if unit in COPYING), None)
    if unit is None:
        pytest.skip("this processor has no unit that multiplies int8")
    scheme = Scheme.from_key(f"5x{2 * HERE.limits.lanes}.u2.ws.p0.{unit}.even")
    inputs, results = work.inputs(Shape.of(H=13, W=21)), []
    flat = {"x": inputs["x"].reshape(-1, 16), "w": inputs["w"].reshape(24, 16), "scale": inputs["scale"]}
    for name, one, taken in (("dense", dense, flat), ("conv", work, inputs)):
        library = load_library(
            compile_plans(one, HERE, [scheme], Leaf(0), tmp_path / f"{name}.so").path, "cpu", 1
        )
        packed = aligned_empty((int(library.packed_floats(*taken["w"].shape)),))
        library.pack(as_tensor(taken["w"]), as_tensor(taken["scale"]), packed)
        out = np.full((*taken["x"].shape[:-1], 24), np.nan, np.float32)
        library.run(as_tensor(taken["x"]), packed, as_tensor(out))
        results.append(out.reshape(-1, 24))
    np.testing.assert_array_equal(*results)


# --- what there is not ----------------------------------------------------------------------------


def test_units_of_copied_rows() -> None:
    """AMX multiplies rows where they lie: those of a kernel of one element, but no copied ones."""
    deep, pixels = replace(LAYER, IC=64), replace(LAYER, IC=64, kernel=1, padding=0)
    found = {
        (work.kernel, hardware): {scheme.kernel.unit for scheme in build_space(work, hardware)}
        for work in (deep, pixels)
        for hardware in (AVX512, AMX)
    }
    assert found[deep.kernel, AVX512] == found[deep.kernel, AMX] == {"vnni"}
    assert found[pixels.kernel, AMX] == {"amxint8", "vnni"}
    key = Scheme.from_key("32x32.u16.ws.p0.amxint8.even")
    with pytest.raises(BuildError, match="copied from an image are whole, under composed tiles of vectors"):
        compile_plans(deep, AMX, [key], Leaf(0), Path("unused.so"))


ONLY = "got none; rejected candidates: "
"""What is in front of the first reason."""


@pytest.mark.parametrize(
    ("work", "hardware", "complaint"),
    [
        (DEPTHWISE, AVX512, rf"{ONLY}a depthwise convolution is of float32 on a CPU \([\d,]+\)\. "),
        (
            replace(LAYER, IC=Dim(1, 16)),
            AVX512,
            rf"{ONLY}a range of depths .* is of float32 on a CPU \([\d,]+\)\. ",
        ),
        (replace(DEPTHWISE, dtype="bfloat16"), AVX512, rf"{ONLY}a depthwise convolution is of float32"),
        (LAYER, ARM, r"the micro-kernel's unit multiplies int8 on this processor \("),
        (LAYER, Hardware.preset("h100"), r"the micro-kernel's unit multiplies int8 \("),
    ],
)
def test_a_convolution_without_a_unit_is_refused(
    work: Convolution, hardware: Hardware, complaint: str
) -> None:
    with pytest.raises(SpaceError, match=complaint):
        build_space(work, hardware)


# --- studies --------------------------------------------------------------------------------------

SHAPES = ShapeSet.of({Shape.of(H=h, W=w): 1.0 for h, w in ((7, 7), (14, 20), (28, 28), (40, 33))})
CPU = pytest.mark.skipif(not HERE.limits.units("int8"), reason="this processor has no unit of int8")


@CPU
@pytest.mark.parametrize("out_dtype", ["float32", "int8"])
def test_a_study_ends_in_a_library(out_dtype: str, tmp_path: Path) -> None:
    work = replace(LAYER, out_dtype=out_dtype, bias=True, groups=2)
    study = Study.create(tmp_path / "study", work, HERE, SHAPES, "smoke", max_kernels=4)
    study.tune(SyntheticRunner(HERE))
    study.dispatch()
    study.build()
    operator = Study.open(tmp_path / "study").operator()
    assert operator.workload == work
    inputs = work.inputs(Shape.of(H=33, W=27))
    layer = operator.pack(inputs["w"], inputs["bias"], scale=inputs["scale"])
    out = layer(inputs["x"])
    assert out.dtype == np.dtype(out_dtype)
    assert np.abs(out - work.reference(inputs)).max() <= tolerance(work, inputs)
    np.testing.assert_array_equal(operator(*inputs.values()), out)
    with pytest.raises(DispatchError, match="to pack must be w, scale, bias"):
        operator.pack(inputs["w"], inputs["bias"])
    wrong = np.where(np.arange(24) == 7, np.nan, inputs["scale"]).astype(np.float32)
    with pytest.raises(WorkloadError, match=r"scale\[7\]"):
        operator.pack(inputs["w"], inputs["bias"], scale=wrong)
    with pytest.raises(DispatchError, match="int8, contiguous"):
        layer(inputs["x"].astype(np.float32))


@CPU
def test_the_command_tunes_and_evaluates_an_int8_convolution(tmp_path: Path) -> None:
    processor, out = tmp_path / "hardware.json", tmp_path / "study"
    HERE.save(processor)
    dims = [part for text in ("N=1", "H=7:20", "W=7:20", "IC=8", "OC=16") for part in ("--dim", text)]
    options = ("--kernel", 3, "--padding", 1, "--dtype", "int8", "--hardware", processor)
    said = cli("space", "conv2d", *dims, *options, "--out-dtype", "int8").stdout
    assert said.startswith("conv2d N=1 H=7..20 W=7..20 IC=8 OC=16 kernel=3 padding=1 int8 to int8 on ")
    cli("tune", "conv2d", *dims, *options, "--effort", "smoke", "--shapes", "log-uniform:2", "--out", out)
    cli("dispatch", out)
    cli("build", out)
    pytest.importorskip("torch")
    said = cli(
        "evaluate", out, "--effort", "smoke", "--shapes", "H=9;W=16", "--against", "onednn-packed"
    ).stdout
    assert "int8 to float32" in said and "speedup of dietlab over each contender" in said
    assert "onednn-packed" in said and "absent" not in said

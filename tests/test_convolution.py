"""Convolutions: the operator as a value, and libraries that serve every image."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli
from convolutions import channels, epilogues, images, windows
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DispatchError, WorkloadError
from dietlab.compare.study import Study
from dietlab.cost import adaptation_cost
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.measure.timing.problem import Problem
from dietlab.problem import (
    Conv1d,
    Conv2d,
    Dense,
    Dim,
    Shape,
    ShapeSet,
    Workload,
    extents,
    inside_share,
    largest,
    line_of,
    name_of_role,
    require_workload,
    smallest,
    static_extent,
    workload_from_json,
    workload_to_json,
)
from dietlab.problem.tolerance import tolerance
from dietlab.scheme import Leaf, Scheme, Split, build_space, plan_on, scheme_with, tiling
from dietlab.tuning import Dispatcher, build
from dietlab.view import frame_map

torch = pytest.importorskip("torch")

ONE_CORE = Hardware.preset("zen4-1core")
LAYER = Conv2d(N=1, H=Dim(7, 80), W=Dim(7, 80), IC=16, OC=24, padding=1)


def of_torch(work: Conv2d | Conv1d, inputs: dict[str, Any]) -> Any:
    """Returns PyTorch's result in float64, channels last."""
    x, w = (torch.tensor(inputs[name]).double() for name in ("x", "w"))
    given = [pad for pair in reversed(work.padding) for pad in pair]
    padded = torch.nn.functional.pad(x.movedim(-1, 1), given)
    form = torch.nn.functional.conv2d if x.ndim == 4 else torch.nn.functional.conv1d
    bias = torch.tensor(inputs["bias"]).double() if work.bias else None
    return form(padded, w, bias, work.stride, 0, work.dilation, work.groups).movedim(1, -1).numpy()


@given(windows(), st.sampled_from((1, 2, 6)), st.integers(1, 12), st.integers(1, 12))
def test_the_reference_is_pytorchs(options: Any, groups: int, height: int, width: int) -> None:
    kernel, padding, dilation = options["kernel"], options["padding"], options["dilation"]
    options = {**options, "groups": groups}
    reach = [dilation[at] * (kernel[at] - 1) + 1 for at in (0, 1)]
    if any(reach[at] > size + sum(padding[at]) for at, size in enumerate((height, width))):
        with pytest.raises(WorkloadError, match=r"must fit into the padded image; .* is at least \d"):
            Conv2d(N=2, H=height, W=width, IC=6, OC=12, **options)
        return
    work = Conv2d(N=2, H=height, W=width, IC=6, OC=12, bias=True, **options)
    inputs = work.inputs(Shape(()))
    right = work.reference(inputs)
    assert right.shape == work.output_shape(Shape(()))
    np.testing.assert_allclose(right, of_torch(work, inputs), atol=1e-9)
    require_workload(work)
    assert workload_from_json(json.loads(json.dumps(workload_to_json(work)))) == work


@pytest.mark.parametrize("kernel", [1, 3, (1, 5)])
def test_the_tolerance_is_of_whole_rows(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Correct results of a deep sum pass, a missing element of the kernel does not; also of a call so long
    that only some rows of a dense product would be compared."""
    monkeypatch.setattr("dietlab.measure.timing.problem.MOST_FLOPS", 1e5)
    work = Conv2d(N=1, H=Dim(5, 40), W=Dim(5, 40), IC=512, OC=24, kernel=kernel, padding=2)
    problem = Problem.make(work, Shape.of(H=11, W=7))
    right = of_torch(work, problem.operands)
    assert problem.verdict(right.astype(np.float32)).correct
    w = problem.operands["w"].copy()
    w[0, :, 0, 0] = 0.0
    missing = of_torch(work, {**problem.operands, "w": w}).astype(np.float32)
    assert "an error of" in problem.verdict(missing).reason
    magnitude = float(np.abs(right).max())
    assert 1e-7 * magnitude < problem.tolerance < 0.02 * magnitude


def test_a_sequence_is_an_image_of_one_line() -> None:
    work = Conv1d(N=2, L=Dim(4, 9), IC=3, OC=4, kernel=5, padding=((4, 0),), bias=True)
    inputs = work.inputs(Shape.of(L=7))
    assert inputs["w"].shape == (4, 3, 5) and work.output_shape(Shape.of(L=7)) == (2, 7, 4)
    np.testing.assert_allclose(work.reference(inputs), of_torch(work, inputs), atol=1e-9)
    assert str(work) == "conv1d N=2 L=4..9 IC=3 OC=4 kernel=5 padding=(4,0) +bias"


def test_roles_are_products_of_axes() -> None:
    work = replace(LAYER, N=Dim(1, 4), stride=2)
    assert extents(work, Shape.of(N=2, H=9, W=8)) == {"batch": 1, "rows": 40, "cols": 24, "depth": 144}
    assert (smallest(work, "rows"), largest(work, "rows")) == (16, 6400)
    assert (static_extent(work, "depth"), static_extent(work, "rows")) == (144, None)
    assert (name_of_role(work, "rows"), name_of_role(work, "cols")) == ("rows", "OC")
    assert str(work) == "conv2d N=1..4 H=7..80 W=7..80 IC=16 OC=24 kernel=3 stride=2 padding=1"


@given(windows(), st.integers(1, 9), st.integers(1, 9))
def test_the_share_of_products_inside_the_image(options: Any, height: int, width: int) -> None:
    """It is what ones around an image of ones would add, left out."""
    try:
        work = Conv2d(N=2, H=height, W=width, IC=1, OC=1, **options)
    except WorkloadError:
        return
    ones = {name: np.ones_like(value) for name, value in work.inputs(Shape(())).items()}
    share = inside_share(work, Shape(()))
    assert share == pytest.approx(2 * work.reference(ones).sum() / work.flops(Shape(())))
    lines, line = line_of(work, Shape(()))
    assert (lines * line, line) == (extents(work, Shape(()))["rows"], work.output_shape(Shape(()))[2])


def test_tiles_cover_lines_or_all_rows() -> None:
    work, shape = replace(LAYER, N=2), Shape.of(H=8, W=11)
    copied, in_place = (Scheme.from_key(f"6x16.u1.ws.p0.{kind}even") for kind in ("", "lines."))
    assert str(plan_on(copied, work, shape)) == f"26 x 6 + 4 x 5 rows of {copied}"
    plan = plan_on(in_place, work, shape)
    assert str(plan) == f"16 lines of 1 x 6 + 1 x 5 rows of {in_place}"
    assert (plan.tiles, plan.rows, plan.executed_rows) == (32, 176, 176)
    taller = Scheme.from_key("11x16.u1.ws.p0.lines.even")
    assert tiling(taller, work, shape) == tiling(scheme_with(taller, rows=14), work, shape)
    assert tiling(copied, work, shape) != tiling(in_place, work, shape)
    deeper = scheme_with(in_place, rows=11)
    dispatcher = Dispatcher(work, ONE_CORE, (deeper,), Split("W", 11, Leaf(0), Leaf(0)))
    assert {kernel.rows for kernel in dispatcher.micro_kernels} == set(range(1, 12))


def test_the_cost_counts_lines_and_what_they_skip() -> None:
    """Of the same throughput, tiles in place take less for an image that is mostly border."""
    cost = adaptation_cost(LAYER, ONE_CORE, "paper")
    copied, in_place = (Scheme.from_key(f"8x16.u1.ws.p0.{kind}even") for kind in ("", "lines."))
    small, large = Shape.of(H=8, W=8), Shape.of(H=80, W=80)
    table = cost.table([copied, in_place], [small, large], lambda scheme: 1e11)
    skipped = [inside_share(LAYER, shape) for shape in (small, large)]
    assert table[1] / table[0] == pytest.approx(skipped, rel=0.01)
    found = cost.throughputs([copied, in_place], [small, small], table[:, 0])
    assert found == pytest.approx([1e11, 1e11])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kernel": 0}, "kernel must be a number of 1 or more, or one for each of H, W; got kernel=0"),
        ({"kernel": (3, 3, 3)}, r"one for each of H, W; got kernel=\(3, 3, 3\)"),
        ({"stride": 1.5}, "got stride=1.5"),
        ({"stride": ((1, 2), 1)}, "got stride="),
        ({"padding": -1}, r"or a pair of numbers \(before, after\) for each; got padding=-1"),
        ({"dilation": True}, "got dilation=True"),
        ({"groups": 0}, "groups must be a number of 1 or more; got groups=0"),
        ({"groups": 5}, "groups=5 with IC=16 and OC=24. They divide by 8"),
        ({"kernel": 10}, "H=7 with padding 1 and 1, and a kernel of 10 elements"),
        (
            {"IC": Dim(8, 64), "groups": 2},
            r"channels of a convolution with groups must be numbers; got IC=8\.\.64 with groups=2\. A ",
        ),
        (
            {"IC": Dim(8, 64), "OC": Dim(8, 64), "groups": 8},
            r"with groups must be numbers; got IC=8\.\.64 with groups=8",
        ),
        ({"OC": Dim(8, 64), "kernel": 10}, "H=7 with padding 1 and 1, and a kernel of 10 elements"),
        ({"H": 0}, "every dimension must be at least 1; got H=0"),
        ({"activation": "tanh"}, "an activation"),
        ({"dtype": "float64"}, "a dtype is one of float32, float16, bfloat16, int8; got 'float64'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        replace(LAYER, **options)


# --- libraries ------------------------------------------------------------------------------------


def library_of(work: Workload, key: str, folder: Path, cores: int = 1) -> Any:
    """Returns the functions of a library of one scheme."""
    path = folder / "library.so"
    hardware = ONE_CORE.with_cores(cores)
    compile_plans(work, hardware, [Scheme.from_key(key)], Leaf(0), path)
    return load_library(path, "cpu", cores)


def computed(library: Any, work: Conv2d | Conv1d, inputs: dict[str, Any]) -> Any:
    """Returns the result for operands; elements that the library does not write are NaN. Nothing around the
    packed weights and the output is written."""
    packed, around_packed = fenced((int(library.packed_floats(*inputs["w"].shape)),), np.float32)
    library.pack(*(as_tensor(inputs[name]) for name in work.constants), packed)
    sizes = (w.positions(size) for w, size in zip(work.windows, inputs["x"].shape[1:], strict=False))
    out, around = fenced((len(inputs["x"]), *sizes, len(inputs["w"])), inputs["x"].dtype)
    others = [as_tensor(inputs["residual"])] if "residual" in inputs else []
    library.run(as_tensor(inputs["x"]), packed, *others, as_tensor(out))
    assert all((fence == FENCE).all() for fence in (*around_packed, *around))
    return out.astype(np.float32)


FENCE, FENCE_BYTES = 0xA5, 4096


def fenced(shape: tuple[int, ...], dtype: Any) -> tuple[Any, tuple[Any, Any]]:
    """Returns an array of NaN, and the bytes in front of and behind it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = aligned_empty((size + 2 * FENCE_BYTES,), np.uint8)
    memory[:] = FENCE
    array = memory[FENCE_BYTES : FENCE_BYTES + size].view(dtype).reshape(shape)
    array[...] = np.nan
    return array, (memory[:FENCE_BYTES], memory[FENCE_BYTES + size :])


KEYS = ("8x32.u4.ws.p0.even", "14x32.u2.is.p0.even", "5x48.u1.ws.p0a.rest", "6x16.u1.is.p16.rest")
IN_PLACE = ("6x32.u2.ws.p0.lines.even", "5x48.u1.is.p16.lines.rest")
"""Tiles on lines of the output, which read the image in place."""
LINE_KEYS = ("7x32.u1.ws.p0.even", "4x16.u1.is.p0.rest", "2x48.u1.ws.p0.rest", "6x16.u1.is.p0.even")
"""Tiles of depthwise convolutions, one for each of the others."""


@settings(max_examples=20)
@given(
    windows(),
    st.sampled_from(((1, 3, 40), (1, 1, 3), (1, 16, 16), (1, 20, 24), (3, 3, 40), (2, 16, 2), (5, 1, 1))),
    st.sampled_from((*KEYS, *IN_PLACE)),
    images,
    epilogues,
)
def test_every_image_is_served(
    tmp_path_factory: pytest.TempPathFactory, options: Any, size: Any, key: str, called: Any, epilogue: Any
) -> None:
    work = Conv2d(N=Dim(1, 2), H=Dim(10, 24), W=Dim(10, 24), **options, **channels(*size), **epilogue)
    key = LINE_KEYS[KEYS.index(key) if key in KEYS else 0] if work.depthwise else key
    library = library_of(work, key, tmp_path_factory.mktemp("convolution"))
    for number, height, width in called:
        inputs = work.inputs(Shape.of(N=number, H=height, W=width))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@settings(max_examples=6)
@given(windows(), st.sampled_from((3, 16, 20, 50)), st.sampled_from(LINE_KEYS), images, epilogues)
def test_every_image_is_served_by_a_depthwise_kernel(
    tmp_path_factory: pytest.TempPathFactory, options: Any, size: int, key: str, called: Any, epilogue: Any
) -> None:
    work = Conv2d(N=Dim(1, 2), H=Dim(10, 24), W=Dim(10, 24), **options, **channels(size, 1, 1), **epilogue)
    library = library_of(work, key, tmp_path_factory.mktemp("depthwise"))
    for number, height, width in called:
        inputs = work.inputs(Shape.of(N=number, H=height, W=width))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (3, {"padding": 1}),
        (7, {"padding": 3, "stride": 2, "bias": True}),
        (5, {"padding": ((4, 0), (0, 4)), "residual": True}),
        (4, {"padding": 2, "dilation": 2}),
        (3, {"padding": 1, "bias": True, "activation": "relu", "residual": "before"}),
        (1, {"stride": 2, "padding": 2}),
    ],
)
@pytest.mark.parametrize("key", IN_PLACE)
def test_images_smaller_than_the_kernel(key: str, kernel: int, options: Any, tmp_path: Path) -> None:
    """Elements of the kernel lie beyond both ends of a line, at some pixels or all."""
    work = replace(LAYER, N=Dim(1, 2), H=Dim(9, 20), W=Dim(9, 20), kernel=kernel, **options)
    library = library_of(work, key, tmp_path)
    for height, width in ((1, 1), (2, 5), (5, 3), (4, 4), (1, 13)):
        if all(w.positions(size) > 0 for w, size in zip(work.windows, (height, width), strict=True)):
            inputs = work.inputs(Shape.of(N=2, H=height, W=width))
            np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@pytest.mark.parametrize("key", [KEYS[0], IN_PLACE[0]])
def test_nothing_is_written_behind_the_output_of_an_image_without_pixels(key: str, tmp_path: Path) -> None:
    """Many zeros around it give it output pixels: fewer than those of the smallest image, 3."""
    work = Conv1d(N=1, L=Dim(9, 40), IC=8, OC=16, kernel=3, dilation=2, padding=3)
    library = library_of(work, key, tmp_path)
    x, out = np.empty((1, 0, 8), np.float32), np.full((1, 5, 16), np.nan, np.float32)
    packed = aligned_empty((int(library.packed_floats(16, 8, 3)),))
    library.pack(as_tensor(work.inputs(Shape.of(L=9))["w"]), packed)
    library.run(as_tensor(x), packed, as_tensor(out[:, :2]))
    assert not out[:, :2].any() and np.isnan(out[:, 2:]).all()


def test_what_lies_beyond_the_image_is_skipped_in_place(tmp_path: Path) -> None:
    """An infinite weight beside zeros enters no sum of a tile that reads the image in place."""
    work = Conv2d(N=1, H=Dim(4, 9), W=Dim(4, 9), IC=8, OC=16, padding=1)
    inputs = work.inputs(Shape.of(H=5, W=6))
    inputs["w"][:, :, 0, 0] = np.inf
    found = computed(library_of(work, IN_PLACE[0], tmp_path), work, inputs)
    inputs["w"][:, :, 0, 0] = 0.0
    right = work.reference(inputs)
    np.testing.assert_allclose(found[:, 0], right[:, 0], atol=2e-3)
    np.testing.assert_allclose(found[:, :, 0], right[:, :, 0], atol=2e-3)
    assert not np.isfinite(found[:, 1:, 1:]).any()


@pytest.mark.parametrize("unit", ["bf16fma", "bf16dot"])
@pytest.mark.parametrize(
    ("groups", "inner", "options"),
    [
        (1, 16, {"padding": 1}),
        (1, 3, {"kernel": 7, "stride": 2, "padding": 3, "bias": True, "activation": "relu"}),  # an odd depth
        (2, 17, {"dilation": 2, "padding": 2, "residual": True}),
        (1, 20, {"kernel": 1}),
    ],
)
def test_bfloat16(groups: int, inner: int, options: Any, unit: str, tmp_path: Path) -> None:
    sizes: Any = {"IC": groups * inner, "OC": groups * 20, "groups": groups}
    work = Conv2d(N=1, H=Dim(7, 40), W=Dim(7, 40), **sizes, **options, dtype="bfloat16")
    for edge, order in (("even", "ws"), ("rest", "is")):
        folder = tmp_path / order
        folder.mkdir()
        library = library_of(work, f"5x32.u2.{order}.p0.{unit}.{edge}", folder)
        for height, width in ((7, 7), (9, 31)):
            inputs = work.inputs(Shape.of(H=height, W=width))
            right = work.reference(inputs)
            error = np.abs(computed(library, work, inputs) - right).max()
            assert error <= tolerance(work, inputs, right)


@pytest.mark.parametrize(
    ("key", "groups"),
    [
        *((key, 1) for key in (*KEYS, *IN_PLACE)),
        *((KEYS[0], 2), (IN_PLACE[1], 2), (KEYS[1], 8)),
        *((key, 16) for key in LINE_KEYS),
    ],
)
def test_two_cores_serve_every_image(key: str, groups: int, tmp_path: Path) -> None:
    work = replace(LAYER, groups=groups, OC=16 if groups == 16 else 24)
    library = library_of(work, key, tmp_path, cores=2)
    for height, width in ((7, 7), (9, 31), (40, 12)):
        inputs = work.inputs(Shape.of(H=height, W=width))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


@pytest.mark.parametrize("depthwise", [False, True])
def test_packed_weights_of_another_kernel_are_refused(depthwise: bool, tmp_path: Path) -> None:
    """A depth of the same length in another order, or other groups of the same size, are other weights."""
    key = LINE_KEYS[0] if depthwise else KEYS[0]
    works = [replace(LAYER, IC=16, OC=16, kernel=3), replace(LAYER, IC=144, OC=16, kernel=1, padding=0)]
    if depthwise:
        works = [replace(works[0], groups=16), replace(works[0], IC=16, OC=16, groups=1, kernel=(1, 9))]
    libraries = []
    for number, work in enumerate(works):
        (tmp_path / str(number)).mkdir()
        own = key if number == 0 or not depthwise else KEYS[0]
        libraries.append(library_of(work, own, tmp_path / str(number)))
    first, other = libraries
    w = works[1].inputs(Shape.of(H=9, W=9))["w"]
    packed = aligned_empty((int(other.packed_floats(*w.shape)),))
    other.pack(as_tensor(w), packed)
    x = works[0].inputs(Shape.of(H=9, W=9))["x"]
    with pytest.raises(ValueError, match="packed weights are of another layer"):
        first.run(as_tensor(x), packed, as_tensor(np.empty((1, 9, 9, 16), np.float32)))


def test_a_kernel_of_one_element_is_the_dense_product_bit_by_bit(tmp_path: Path) -> None:
    dense, work = Dense(T=Dim(1, 900), N=24, K=16), replace(LAYER, kernel=1, padding=0)
    for name in ("conv", "dense"):
        (tmp_path / name).mkdir()
    inputs = work.inputs(Shape.of(H=13, W=21))
    x = inputs["x"].reshape(-1, 16)
    library = library_of(dense, KEYS[0], tmp_path / "dense")
    packed = aligned_empty((int(library.packed_floats(24, 16)),))
    library.pack(as_tensor(inputs["w"].reshape(24, 16)), packed)
    right = np.empty((len(x), 24), np.float32)
    library.run(as_tensor(x), packed, as_tensor(right))
    found = computed(library_of(work, KEYS[0], tmp_path / "conv"), work, inputs)
    np.testing.assert_array_equal(found.reshape(-1, 24), right)


@pytest.mark.parametrize(("key", "groups"), [(KEYS[0], 1), (KEYS[0], 4), (LINE_KEYS[0], 16)])
def test_zeros_beyond_the_image_do_not_meet_other_images(key: str, groups: int, tmp_path: Path) -> None:
    """What lies beside an image in memory, another one or NaN, is no part of it."""
    work = replace(LAYER, N=Dim(1, 3), groups=groups, OC=16)
    inputs = work.inputs(Shape.of(N=3, H=9, W=9))
    inputs["x"][1] = np.nan
    found = computed(library_of(work, key, tmp_path), work, inputs)
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


def test_a_study_of_a_convolution_ends_in_a_library(tmp_path: Path) -> None:
    shapes = ShapeSet.of({Shape.of(H=h, W=w): 1.0 for h, w in ((7, 7), (14, 20), (28, 28), (56, 60))})
    study = Study.create(tmp_path / "study", LAYER, ONE_CORE, shapes, "smoke", max_kernels=4)
    study.tune(SyntheticRunner(ONE_CORE))
    study.dispatch()
    operator = study.build()
    inputs = LAYER.inputs(Shape.of(H=33, W=47))
    layer = operator.pack(inputs["w"])
    np.testing.assert_allclose(layer(inputs["x"]), LAYER.reference(inputs), atol=2e-3)
    assert layer(inputs["x"][:, :5]).shape == (1, 5, 47, 24)
    with pytest.raises(DispatchError, match=r"x \[1, H, W, 16\], out \[1, OH, OW, 24\]: float32, contig"):
        layer(inputs["x"].transpose(0, 3, 1, 2))
    with pytest.raises(DispatchError, match=r"must come last: x\.permute\(0, 2, 3, 1\)\.contiguous\(\)"):
        layer(inputs["x"].transpose(0, 3, 1, 2))
    with pytest.raises(DispatchError, match="contiguous"):
        layer(inputs["x"][:, :, ::2])
    assert layer(inputs["x"][:0]).shape == (0, 33, 47, 24)
    with pytest.raises(DispatchError, match=r"W of an image must be 1 or more, so that the kernel"):
        layer(np.zeros((1, 9, 0, 16), np.float32))
    with pytest.raises(DispatchError, match=r"w \[24, 16, 3, 3\]"):
        operator.pack(inputs["w"][:, :, :2])


@pytest.mark.parametrize(("key", "groups"), [(KEYS[0], 1), (KEYS[1], 2), (LINE_KEYS[0], 16)])
def test_an_infinite_weight_beside_the_border(key: str, groups: int, tmp_path: Path) -> None:
    """Zeros are multiplied, as in PyTorch's own kernel (docs/library.md); a depthwise kernel skips them."""
    work = replace(LAYER, OC=16, groups=groups)
    inputs = work.inputs(Shape.of(H=9, W=9))
    inputs["w"][:, :, 0, 0] = np.inf
    found = computed(library_of(work, key, tmp_path), work, inputs)
    assert np.isnan(found[:, 0]).all() == (groups < 16)
    assert np.isfinite(found[:, 0]).all() == (groups == 16)
    if groups == 1:
        x, w = torch.tensor(inputs["x"]).movedim(-1, 1), torch.tensor(inputs["w"])
        for onednn in (False, True):
            with torch.backends.mkldnn.flags(enabled=onednn):
                big = torch.nn.functional.conv2d(x.repeat(1, 1, 9, 9), w, padding=1)
            assert bool(torch.isnan(big[:, :, 0]).all()) is not onednn


def of_rows(at_most: int) -> Dispatcher:
    """Returns a dispatcher with one scheme for images of few output pixels, and another for all others."""
    schemes = tuple(Scheme.from_key(key) for key in ("4x16.u1.ws.p0.rest", "8x32.u4.ws.p0.even"))
    tree = Split("H", 80, Split("rows", at_most, Leaf(0), Leaf(1)), Leaf(1))
    return Dispatcher(replace(LAYER, W=Dim(3, 90)), ONE_CORE, schemes, tree)


def test_a_tree_may_split_the_rows(tmp_path: Path) -> None:
    dispatcher = of_rows(200)
    library = build(dispatcher, tmp_path / "library")
    for height, width in ((7, 28), (7, 29), (20, 10), (20, 11), (80, 3), (81, 2)):
        plan = dispatcher.scheme(Shape.of(H=height, W=width)).key
        assert plan == dispatcher.schemes[height > 80 or height * width > 200].key
        assert library.scheme(1, height, width) == plan
    namespace: dict[str, Any] = {}
    exec(dispatcher.to_source(), namespace)
    assert namespace["choose"](7, 28) == dispatcher.schemes[0].key != namespace["choose"](7, 29)
    assert Dispatcher.from_json(json.loads(json.dumps(dispatcher.to_json()))) == dispatcher
    with pytest.raises(
        DispatchError, match=r"every split must be of an extent of .* that varies: H, W, rows; g"
    ):
        replace(dispatcher, tree=Split("cols", 3, Leaf(0), Leaf(1)))


def test_a_map_of_plans_follows_the_number_of_rows() -> None:
    frame = frame_map(of_rows(200), x="W", y="H")
    for height, width in ((7, 28), (7, 29), (20, 10), (20, 11), (80, 3)):
        here = frame[(frame.low_W <= width) & (width <= frame.high_W)]
        here = here[(here.low_H <= height) & (height <= here.high_H)]
        assert abs(height * width - 200) < 2 * width or [*here.plan] == [height * width > 200]


def test_the_code_covers_the_rows_that_reach_it() -> None:
    """Above 13 * 14 rows, an even split into tiles of at most 14 needs no lower tile than 13."""
    narrow = Split("L", 199, Leaf(0), Leaf(1))
    schemes = tuple(Scheme.from_key(key) for key in ("8x32.u4.ws.p0.even", "14x32.u2.is.p0.even"))
    dispatcher = Dispatcher(Conv1d(N=1, L=Dim(5, 900), IC=8, OC=32), ONE_CORE, schemes, narrow)
    assert {kernel.rows for kernel in dispatcher.micro_kernels} == {*range(1, 9), 13, 14}


@pytest.mark.parametrize(("kernel", "stride"), [(4, 1), (5, 1), (7, 2)])
def test_few_rows_of_a_large_kernel_are_computed(kernel: int, stride: int, tmp_path: Path) -> None:
    """A kernel that does not fit has no positions: two negative counts are no rows."""
    work = replace(LAYER, H=Dim(8, 20), W=Dim(8, 20), kernel=kernel, stride=stride, padding=0)
    library = library_of(work, "6x16.u1.ws.p0.even", tmp_path)
    for height in range(kernel, kernel + 2 * stride + 1):
        inputs = work.inputs(Shape.of(H=height, W=kernel))
        np.testing.assert_allclose(computed(library, work, inputs), work.reference(inputs), atol=2e-3)


def test_a_line_narrower_than_a_depthwise_kernel_is_measured(tmp_path: Path) -> None:
    """All its pixels are at the border. A library for measuring has code for the given shapes only."""
    work = Conv2d(N=1, H=Dim(2, 20), W=Dim(2, 20), IC=16, OC=16, groups=16, kernel=5, padding=2)
    shape = Shape.of(H=9, W=3)
    path = tmp_path / "library.so"
    scheme = Scheme.from_key(LINE_KEYS[0])
    compile_plans(work, ONE_CORE, [scheme], Leaf(0), path, only=[[shape]])
    inputs = work.inputs(shape)
    found = computed(load_library(path, "cpu", 1), work, inputs)
    np.testing.assert_allclose(found, work.reference(inputs), atol=2e-3)
    dispatcher = Dispatcher(work, ONE_CORE, (scheme,), Split("rows", 3, Leaf(0), Leaf(0)))
    assert {kernel.rows for kernel in dispatcher.micro_kernels} == set(range(1, scheme.rows + 1))


def test_lines_without_a_pixel_whose_kernel_lies_inside(tmp_path: Path) -> None:
    """No tile covers such a line. What two plans divide a line among, here 0 tiles, is divided once, before
    either of them: the process ended."""
    work = Conv2d(N=1, H=Dim(8, 28), W=Dim(8, 28), IC=240, OC=240, groups=240, padding=1)
    schemes = tuple(Scheme.from_key(f"3x80.u1.{order}.p0.even") for order in ("is", "ws"))
    op = build(Dispatcher(work, ONE_CORE, schemes, Split("rows", 9, Leaf(0), Leaf(1))), tmp_path / "library")
    for height, width in ((9, 1), (9, 2), (9, 3), (18, 2)):
        inputs = work.inputs(Shape.of(H=height, W=width))
        found = op.pack(inputs["w"])(inputs["x"])
        np.testing.assert_allclose(found, work.reference(inputs), atol=2e-3)


def test_the_command_line_describes_a_kernel() -> None:
    dims = ("--dim", "N=1", "--dim", "L=50:900", "--dim", "IC=64", "--dim", "OC=96")
    kernel = ("--kernel", "5", "--padding", "4:0", "--hardware", "zen4-1core")
    said = cli("space", "conv1d", *dims, *kernel).stdout
    assert said.startswith("conv1d N=1 L=50..900 IC=64 OC=96 kernel=5 padding=(4,0) on ")
    said = cli("space", "conv2d", "--kernel", "3x5", "--stride", "2", "--hardware", "zen4-1core").stdout
    assert "kernel=3x5 stride=2" in said
    assert "'3x' is not a number" in cli("space", "conv2d", "--kernel", "3x", exits=2).stderr
    assert "got kernel" in cli("space", "dense", "--kernel", "3", exits=2).stderr


def test_a_gpu_has_schemes_for_images_too() -> None:
    """What they compute is in tests/test_cuda_convolution.py."""
    found = build_space(LAYER, Hardware.preset("h200"))
    assert len(found) > 1000 and {scheme.kernel.unit for scheme in found} == {"fma"}


def test_rows_that_are_copied_are_whole() -> None:
    deep, pixels = replace(LAYER, IC=2048), replace(LAYER, IC=2048, kernel=1, padding=0)
    blocks = {work: {s.kernel.block for s in build_space(work, ONE_CORE).schemes} for work in (deep, pixels)}
    assert blocks[deep] == {0} and len(blocks[pixels]) > 1

"""The bench of a network's convolutions: suites, the summary by class of kernel, the check, the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from dietlab.base.errors import DietlabError
from dietlab.base.events import audience
from dietlab.compare.overhead import empty_call, overheads
from dietlab.compare.results.criteria import CONVOLUTION_CRITERIA, criteria_of
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.results.samples import kernels_of
from dietlab.compare.results.summary import summarise
from dietlab.compare.results.table import ResultTable
from dietlab.compare.suites import run_bench
from dietlab.compare.suites.images import DEPTHWISE, LONGEST, SIDES, SIDES_TUNED, Images
from dietlab.compare.suites.lengths import LENGTHS
from dietlab.compare.suites.random_shapes import IMAGES, SHAPES, check_shapes, random_shapes
from dietlab.compare.suites.suite import SUITES, Task
from dietlab.machine import Hardware
from dietlab.problem import Conv1d, Conv2d, Dim, Shape, ShapeSet, Workload, extents
from dietlab.problem.networks import network_named
from dietlab.problem.networks.met import sizes_of
from dietlab.scheme import Leaf, build_space
from dietlab.tuning import Dispatcher, Operator, build
from dietlab.view.pages.bench import render_bench_page
from dietlab.view.pages.bench_text import render_bench

NOBODY = audience(())
NAMES = ("resnet50", "resnet50-layers", "speech", "depthwise", "smoke-conv")
TASKS = [task for name in NAMES for task in SUITES[name].tasks]
LAYER = Conv2d(N=1, H=Dim(7, 40), W=Dim(7, 40), IC=8, OC=24, padding=1)


# Suites


def test_suites_have_the_layers_of_the_networks() -> None:
    layers = {name: [task.workload for task in SUITES[name].tasks] for name in NAMES}
    classes = {name: {kernels_of(work) for work in found} for name, found in layers.items()}
    assert classes == {
        "resnet50": {"1x1", "3x3"},
        "resnet50-layers": {"1x1", "3x3"},
        "speech": {"3", "10", "2"},
        "depthwise": {"depthwise"},
        "smoke-conv": {"1x1", "3x3", "3", "depthwise"},
    }
    assert [len(layers[name]) for name in NAMES] == [22, 2, 5, 6, 5]
    assert {(w.IC, w.kernel) for w in layers["depthwise"] if isinstance(w, Conv2d)} == {
        (channels, kernel) for channels in DEPTHWISE for kernel in ((3, 3), (7, 7))
    }
    whisper = next(work for work in layers["speech"] if isinstance(work, Conv1d) and work.IC == 80)
    assert isinstance(whisper.L, Dim) and whisper.L.high <= LONGEST
    assert 22 * IMAGES >= SHAPES


@pytest.mark.parametrize("effort", LENGTHS)
def test_what_is_evaluated_is_held_out_and_in_the_ranges(effort: str) -> None:
    for task in TASKS:
        shapes = task.evaluated(effort)
        assert list(shapes) == sorted(set(shapes))
        # The deepest images of once-for-all are those of the tuned resolutions.
        assert not set(shapes) & set(task.shapes) or "depthwise" in task.name
        for shape in (*shapes, *task.shapes):
            assert {*shape.to_json()} == {*task.workload.dims}
            assert all(shape[name] in dim for name, dim in task.workload.dims.items())
    for layers in SUITES["resnet50-layers"].tasks:
        kernel = layers.name.partition("-")[0]
        alone = [task for task in SUITES["resnet50"].tasks if task.name.startswith(f"{kernel}-")]
        assert len(layers.evaluated(effort)) == sum(len(task.evaluated(effort)) for task in alone)
        assert len(layers.shapes) == sum(len(task.shapes) for task in alone)
    batches = {shape["N"] for task in SUITES["resnet50"].tasks for shape in task.evaluated(effort)}
    assert batches == {1, 8}


def test_tuned_and_evaluated_inputs_are_those_of_the_network() -> None:
    assert not set(SIDES["full"]) & set(SIDES_TUNED)
    usual = sizes_of(network_named("resnet50"))
    assert {(side, side) for side in (*SIDES["full"], *SIDES_TUNED)} == set(usual)


def test_impossible_tasks_are_refused() -> None:
    tuned = ShapeSet.of({Shape.of(H=7, W=7): 1.0})
    with pytest.raises(DietlabError, match="every effort needs a shape; got smoke"):
        Images(tuned, {"smoke": (), "full": (Shape.of(H=8, W=8),)})
    images = Images(tuned, {"smoke": (Shape.of(H=8, W=8),)})
    with pytest.raises(DietlabError, match="a task must have either images, or lengths; got x"):
        Task("x", LAYER, ((1, 1.0),), (), images=images)
    task = Task("x", LAYER, (), (), images=images)
    with pytest.raises(DietlabError, match="an effort of the bench is one of smoke; got 'full'"):
        task.evaluated("full")
    with pytest.raises(DietlabError, match="one dynamic dimension"):
        Task("x", LAYER, (), ())


# The summary


def report(name: str, work: Workload, speedups: dict[Shape, float]) -> Report:
    """Returns a study whose fastest prepacked vendor takes these multiples of our 100 us."""
    hardware = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0, dram_gbps=20.0, l3_gbps=60.0)
    contenders = (ContenderInfo("dietlab", "ours"), ContenderInfo("vendor", "prepacked"))
    found = list[Row]()
    for shape, speedup in speedups.items():
        gflops = work.flops(shape) / 1e-4 / 1e9
        ours = Row(shape, True, "dietlab", "rotating", 1e-4, 9e-5, 1.1e-4, gflops, True)
        found += [ours, replace(ours, contender="vendor", seconds_median=speedup * 1e-4, speedup=speedup)]
    tuning = {"total_seconds": 90.0, "trials": 64}
    library = {"bytes": 90 << 10, "kernels": 8, "shapes_checked": IMAGES, "shapes_wrong": []}
    return Report(
        work.to_json(), hardware.to_json(), {}, tuning, library, tuple(found), contenders, name=name
    )


def images(*sides: int) -> Iterable[Shape]:
    return (Shape.of(H=side, W=side) for side in sides)


DEEP = Conv2d(N=1, H=Dim(7, 40), W=Dim(7, 40), IC=24, OC=24, kernel=7, padding=3, groups=24)
SEQUENCE = Conv1d(N=1, L=Dim(9, 90), IC=8, OC=24)
HAND_MADE = ResultTable(
    (
        report("conv3x3", LAYER, dict(zip(images(9, 12), (2.0, 0.5), strict=True))),
        report("conv1x1", replace(LAYER, kernel=1, padding=0), dict(zip(images(9), (1.5,), strict=True))),
        report("depthwise", DEEP, dict(zip(images(9), (0.9,), strict=True))),
        report("conv3", SEQUENCE, {Shape.of(L=20): 1.25}),
    ),
    {"suite": "resnet50", "effort": "none", "versions": {"dietlab": "0"}},
)


def test_the_summary_has_a_line_for_each_class_of_kernel() -> None:
    assert all(criteria_of(name) == CONVOLUTION_CRITERIA for name in NAMES)
    lines = {
        (line.criterion.what, line.criterion.statistic): (line.value, line.met)
        for line in summarise(HAND_MADE)
        if line.criterion.measure == "prepacked"
    }
    assert lines == {
        ("3x3 layers, over the best prepacked vendor", "geomean"): (pytest.approx(1.0), False),
        ("3x3 layers, over the best prepacked vendor, worst", "worst"): (0.5, False),
        ("1x1 layers, over the best prepacked vendor", "geomean"): (pytest.approx(1.5), True),
        ("1x1 layers, over the best prepacked vendor, worst", "worst"): (1.5, True),
        ("1-D layers, over the best prepacked vendor", "geomean"): (pytest.approx(1.25), True),
        ("1-D layers, over the best prepacked vendor, worst", "worst"): (1.25, True),
        ("depthwise layers, over the best prepacked vendor", "geomean"): (pytest.approx(0.9), False),
        ("depthwise layers, over the best prepacked vendor, worst", "worst"): (0.9, None),
    }


def test_a_table_of_images_is_written_read_and_shown(tmp_path: Path) -> None:
    HAND_MADE.save(tmp_path / "bench.csv")
    again = ResultTable.load(tmp_path / "bench.csv")
    assert again.to_csv() == HAND_MADE.to_csv() and again.reports[0].rows == HAND_MADE.reports[0].rows
    text = render_bench(again)
    part = next(line for line in text.splitlines() if line.startswith("| conv3x3 ") and "0.500 x" in line)
    assert "H=12,W=12" in part
    assert "3x3 layers, over the best prepacked vendor" in text
    assert "depthwise layers" in render_bench_page(again)
    wrong = replace(
        again.reports[3], rows=(replace(again.reports[3].rows[0], correct=False, plan="crashed"),)
    )
    assert "L=20: crashed" in render_bench(replace(again, reports=(wrong,)))


# The check of random images


@pytest.mark.parametrize("work", [task.workload for task in TASKS])
def test_random_images_fit_the_kernel(work: Any) -> None:
    shapes = list(random_shapes(work, 200))
    inside = [s for s in shapes if all(s[name] in dim for name, dim in work.dims.items())]
    assert 50 < len(inside) < 200
    assert all(min(work.output_shape(shape)) >= 0 for shape in shapes)
    assert any(min(extents(work, shape).values()) == 0 for shape in shapes) or work.kernel == (1, 1)


def library_of(work: Workload, here: Hardware, folder: Path, seed: int = 0) -> Operator:
    """Returns a library of one scheme, drawn from the operator's space."""
    scheme = Random(seed).choice(tuple(build_space(work, here)))
    return build(Dispatcher(work, here, (scheme,), Leaf(0)), folder)


def test_a_wrong_pixel_is_found(here: Hardware, tmp_path: Path) -> None:
    library = library_of(LAYER, here, tmp_path)
    shapes = [Shape.of(H=h, W=w) for h, w in ((9, 9), (1, 40), (33, 7))]
    assert check_shapes(library, NOBODY, shapes).wrong == ()

    class Spoilt:
        workload = library.workload

        def __call__(self, x: Any, w: Any, out: Any) -> None:
            library(x, w, out=out)
            if x.shape[1] == 33:
                out[0, -1, -1, -1] = np.nan

    spoilt: Any = Spoilt()
    assert check_shapes(spoilt, NOBODY, shapes).wrong == (shapes[2],)


@pytest.mark.parametrize("images", [2, Dim(1, 4)])
@pytest.mark.parametrize("residual", [False, True])
def test_a_call_without_images_is_timed(
    images: Any, residual: bool, here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each call: a library that refuses an empty array is called again, which takes far longer."""
    library = library_of(replace(LAYER, N=images, residual=residual), here, tmp_path)
    monkeypatch.setattr("dietlab.tuning.operator.is_empty", pytest.fail)
    monkeypatch.setattr("dietlab.compare.overhead.CALLS", 3)
    assert overheads(library, [Shape.of(N=1, H=9, W=9)])["python_call_us"] > 0
    call: Any = empty_call(library, library.workload)
    call()
    x, *others = call.args
    assert (x.shape, call.keywords["out"].shape) == ((0, 7, 7, 8), (0, 7, 7, 24))
    assert [other.shape for other in others] == [(0, 7, 7, 24)] * residual


GROUPS = (1, 1, 1, 2, 3)
"""Numbers of groups that libraries are compiled for, each as often as it is listed."""

DEPTHWISE_SHARE = 0.25
"""The share of the drawn convolutions whose groups have one channel."""

COMPILED, CALLED = 60, 70
"""The number of random kernels, and of images that each is called with: more than 4,000 results."""


def random_layer(seed: int) -> Conv1d | Conv2d:
    """Draws a convolution: kernel, stride, padding (asymmetric, too), dilation, groups and channels."""
    draw = Random(seed)
    form = draw.choice((Conv1d, Conv2d, Conv2d))
    sides = range(len(form.image))
    groups = draw.choice(GROUPS)
    options: dict[str, Any] = {
        "kernel": tuple(draw.choice((1, 1, 2, 3, 3, 5, 7)) for _ in sides),
        "stride": tuple(draw.choice((1, 1, 1, 2, 3)) for _ in sides),
        "dilation": tuple(draw.choice((1, 1, 1, 2, 3)) for _ in sides),
        "padding": tuple((draw.randint(0, 3), draw.randint(0, 3)) for _ in sides),
        "IC": groups * draw.choice((1, 3, 8, 16, 20)),
        "OC": groups * draw.choice((1, 3, 16, 24, 40)),
        "groups": groups,
        "bias": draw.random() < 0.5,
        "residual": draw.random() < 0.3,
        "activation": draw.choice(("none", "relu")),
    }
    if draw.random() < DEPTHWISE_SHARE:
        options |= dict.fromkeys(("IC", "OC", "groups"), draw.choice((3, 16, 40, 72)))
    size = {name: Dim(20, 48) for name in form.image}
    return form(N=draw.choice((1, 2, Dim(1, 4))), **size, **options)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.thorough] if seed > 1 else []) for seed in range(COMPILED)]
)
def test_random_kernels_are_right_on_random_images(seed: int, here: Hardware, tmp_path: Path) -> None:
    work = random_layer(seed)
    library = library_of(work, here, tmp_path, seed)
    found = check_shapes(library, NOBODY, random_shapes(work, CALLED, seed))
    assert found.checked == CALLED and found.wrong == (), f"{work}, {library.schemes}: {found.wrong}"


# The run


@pytest.mark.parametrize("task", ["conv3-", "conv3x3-tiny-layers"])
def test_a_bench_of_convolutions_runs_to_its_summary(task: str, tmp_path: Path) -> None:
    suite = SUITES["smoke-conv"].only(task)
    table = run_bench(suite, tmp_path, caches=("hot",), effort="smoke")
    (found,) = table.reports
    assert not found.failure and not table.wrong
    assert {"dispatch_ns", "python_call_us"} <= set(found.library)
    assert found.library["shapes_checked"] == IMAGES and found.library["shapes_wrong"] == []
    assert {row.shape for row in found.ours} == set(suite.tasks[0].evaluated("smoke"))
    assert "random images called, wrong results" in render_bench(table)

"""The whole pipeline for a GPU, from tune to library, on a synthetic machine and without a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import python
from cuda_samples import few, has_driver, typed

from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.measure.synthetic import synthetic_seconds
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import Space, build_space, route
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.nvcc import Compiler
from dietlab.tuning import Dispatcher, TuningRun, choose_portfolio, train_dispatcher, tune

H100 = Hardware.preset("h100")
WORKS: dict[str, Workload] = {
    "dense": Dense(T=Dim(1, 128), N=2304, K=768),
    "bfloat16": typed(Dense(T=Dim(1, 512), N=4096, K=4096), "bfloat16"),
    "context": BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nn"),
}
SWEEP = [pytest.param(name, marks=pytest.mark.thorough) for name in WORKS]
"""Operators of a longer search, half a minute each."""

EACH = [
    *((name, "smoke") for name in WORKS),
    *(pytest.param(name, "quick", marks=pytest.mark.thorough) for name in WORKS),
]
"""Operators and efforts: a short search of each."""

TRIALS = {"smoke": 8, "quick": 64}
CANDIDATES = {"smoke": 400, "quick": 1500}
"""Micro-kernels of the spaces that searches are tried on: predicting all of them takes long."""

MOST_KERNELS = 12
LIBRARY_KERNELS = 2
"""Micro-kernels of a library that is built: nvcc takes seconds for each."""

MOST_REGRET = {"dense": 0.02, "bfloat16": 0.02, "context": 0.04}
"""Time lost by the tree's choice against the library's best, in the mean over lengths: at most the 6 % by
which a micro-kernel deviates from what its sizes tell. With a reduction of 64, the start and end of its
blocks are a good part of a call, and more of it is lost."""


@cache
def space_of(work: Workload, effort: str) -> Space:
    return few(build_space(work, H100), CANDIDATES[effort])


@cache
def tuned(name: str, effort: str, seed: int) -> TuningRun:
    work, runner = WORKS[name], SyntheticRunner(H100)
    shapes, space = ShapeSet.uniform(work), space_of(work, effort)
    return tune(space, shapes, runner, effort, max_kernels=MOST_KERNELS, seed=seed)


@cache
def dispatcher_of(name: str, effort: str, seed: int) -> Dispatcher:
    return train_dispatcher(choose_portfolio(tuned(name, effort, seed), max_kernels=MOST_KERNELS))


@pytest.mark.parametrize(("name", "effort"), EACH)
def test_a_search_measures_what_it_should_and_learns(name: str, effort: str) -> None:
    trials = TRIALS[effort]
    run = tuned(name, effort, 0)
    assert run.trials >= trials and run.failures == 0
    searched = list(dict.fromkeys(record.scheme for record in run.records))[:trials]
    assert set(searched) <= set(run.space)
    assert len({(r.asked_by, r.scheme, r.shape) for r in run.records}) == len(run.records)
    assert {type(scheme.kernel) for scheme in run.schemes} == {CudaMicroKernel}
    kernels, shapes = run.schemes[:20], ShapeSet.every(WORKS[name]).shapes[::9]
    table = run.seconds_table(kernels, shapes)
    assert table.shape == (len(kernels), len(shapes)) and np.isfinite(table).all() and (table > 0).all()
    if effort == "quick":
        assert {"pairwise", "peak@1", "rmse"} <= set(run.held_out_metrics)


def test_a_whole_space_is_searched() -> None:
    work = WORKS["bfloat16"]
    space = build_space(work, H100)
    run = tune(space, ShapeSet.uniform(work), SyntheticRunner(H100), "smoke", max_kernels=MOST_KERNELS)
    assert run.space == space and len(space) > 10 * CANDIDATES["smoke"]
    searched = list(dict.fromkeys(record.scheme for record in run.records))[: TRIALS["smoke"]]
    assert len(searched) == TRIALS["smoke"] and run.failures == 0 and set(searched) <= set(space)


@pytest.mark.parametrize(("name", "effort"), EACH)
def test_a_dispatcher_serves_every_length(name: str, effort: str) -> None:
    run, dispatcher = tuned(name, effort, 0), dispatcher_of(name, effort, 0)
    compiled = set(dispatcher.micro_kernels)
    assert 0 < len(compiled) <= MOST_KERNELS and dispatcher.expected_slowdown < 1.25
    assert {type(kernel) for kernel in compiled} == {CudaMicroKernel}
    namespace: dict[str, Any] = {}
    exec(dispatcher.to_source(), namespace)
    high = run.space.workload.dims["T"].high
    for length in (*range(0, 3 * high), 8191, 8192):
        plan = dispatcher.plan(Shape.of(T=length))
        assert plan.rows == length and {region.kernel for region in plan.regions} <= compiled
        assert namespace["choose"](length) == dispatcher.scheme(Shape.of(T=length)).key
    assert Dispatcher.from_json(json.loads(json.dumps(dispatcher.to_json()))) == dispatcher


def regrets(work: Workload, dispatcher: Dispatcher, shapes: Iterable[Shape]) -> list[float]:
    """Against the best of the library's plans on each shape, without the synthetic machine's noise."""
    found = []
    for shape in shapes:
        best = min(synthetic_seconds(H100, work, plan, shape) for plan in dispatcher.schemes)
        found.append(synthetic_seconds(H100, work, dispatcher.scheme(shape), shape) / best - 1)
    return found


@pytest.mark.parametrize("name", SWEEP)
def test_regret_is_small_on_lengths_that_were_not_tuned(name: str) -> None:
    """On average over two searches: that of one goes from a twentieth of a percent to five."""
    lost: list[float] = []
    for seed in (0, 1):
        run, dispatcher = tuned(name, "quick", seed), dispatcher_of(name, "quick", seed)
        work = run.space.workload
        held_out = [shape for shape in ShapeSet.every(work) if shape not in set(run.shapes.train)]
        assert len(held_out) > 100 and len(dispatcher.micro_kernels) <= MOST_KERNELS
        lost += regrets(work, dispatcher, held_out)
    assert float(np.mean(lost)) <= MOST_REGRET[name], sorted(lost)


@pytest.mark.thorough
def test_regret_is_small_on_lengths_that_nothing_was_measured_on() -> None:
    """In a range that is too long to measure on each of its lengths."""
    work, dispatcher = WORKS["bfloat16"], dispatcher_of("bfloat16", "quick", 0)
    seen = {record.shape for record in tuned("bfloat16", "quick", 0).records}
    unseen = [shape for shape in ShapeSet.every(work) if shape not in seen]
    lost = regrets(work, dispatcher, unseen)
    assert len(unseen) > 100 and float(np.mean(lost)) <= MOST_REGRET["bfloat16"], sorted(lost)


def test_both_covers_are_searched() -> None:
    """DietCode's one micro-kernel a shape, beside compositions of two heights."""
    work = WORKS["dense"]
    for edges, composed in ((("padded",), False), (("even",), True)):
        space = few(build_space(work, H100, edges), 200)  # type: ignore[arg-type]
        run = tune(space, ShapeSet.uniform(work), SyntheticRunner(H100), "smoke")
        dispatcher = train_dispatcher(choose_portfolio(run, max_kernels=4))
        assert {plan.composed for plan in dispatcher.schemes} == {composed}


# A study, and the library


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Study]]:
    """Studies whose spaces are those of the searches above."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "space", lambda study: space_of(study.workload, "smoke"))
        yield {name: studied(tmp_path_factory.mktemp(name), work) for name, work in WORKS.items()}


def studied(folder: Path, work: Workload) -> Study:
    study = Study.create(folder, work, H100, ShapeSet.uniform(work), "smoke", max_kernels=MOST_KERNELS)
    study.tune(SyntheticRunner(H100))
    study.dispatch(LIBRARY_KERNELS)
    return study


@pytest.mark.parametrize("name", WORKS)
def test_a_study_folder_keeps_every_stage(name: str, studies: dict[str, Study]) -> None:
    study = Study.open(studies[name].folder)
    assert study == studies[name] and study.hardware == H100
    run, before = study.run(), tuned(name, "smoke", 0)
    assert run.records == before.records and run.space == before.space
    kernels, shapes = run.schemes, ShapeSet.uniform(WORKS[name]).shapes
    np.testing.assert_array_equal(run.seconds_table(kernels, shapes), before.seconds_table(kernels, shapes))
    assert study.dispatcher() == train_dispatcher(choose_portfolio(before, study.shapes, LIBRARY_KERNELS))
    records = (study.folder / "records.jsonl").read_bytes()
    study.tune(SyntheticRunner(H100))
    assert (study.folder / "records.jsonl").read_bytes() == records, "a finished study measures nothing again"


BUILD = """
import json, sys
from pathlib import Path
from dietlab.base.errors import DispatchError
from dietlab.problem.shapes import Shape
from dietlab.compare.study import Study
for folder in map(Path, sys.argv[1:]):
    op = Study.open(folder).build()
    try:
        op(*op.workload.inputs(Shape.of(T=3)).values())
        refusal = ""
    except DispatchError as error:
        refusal = str(error)
    plans = [op.scheme(length) for length in range(1025)]
    print(json.dumps({"plans": plans, "refusal": refusal, "facts": op.facts, "name": repr(op)}))
"""
"""A process of its own: to build without a driver brings a library that stands in for it into the process."""


@pytest.fixture(scope="module")
def built(studies: dict[str, Study], compiler: Compiler) -> dict[str, dict[str, Any]]:
    done = python("-c", BUILD, *(study.folder for study in studies.values()))
    return dict(zip(studies, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.cuda_compile
@pytest.mark.parametrize("name", WORKS)
def test_a_library_chooses_as_the_tree_does(
    name: str, studies: dict[str, Study], built: dict[str, dict[str, Any]]
) -> None:
    dispatcher = studies[name].dispatcher()
    expected = [dispatcher.schemes[route(dispatcher.tree, Shape.of(T=length))].key for length in range(1025)]
    assert built[name]["plans"] == expected
    assert built[name]["facts"]["kernels"] == len(dispatcher.micro_kernels)
    if name != "bfloat16":  # no array of NumPy's own
        assert "on one GPU like NVIDIA H100 SXM" in built[name]["refusal"]
        assert "x.to('cuda', torch.float32).contiguous()" in built[name]["refusal"]


@pytest.mark.cuda_compile
@pytest.mark.parametrize("name", WORKS)
def test_a_manifest_tells_what_the_cubin_uses(
    name: str, studies: dict[str, Study], built: dict[str, dict[str, Any]]
) -> None:
    folder = studies[name].folder / "library"
    manifest = json.loads((folder / "manifest.json").read_text())
    used = manifest["resources"]
    assert set(used) == {"registers", "spill_bytes", "shared_bytes", "blocks_per_sm"}
    assert 16 <= used["registers"] <= 255 and used["spill_bytes"] == 0
    assert 0 < used["shared_bytes"] <= H100.limits.smem_per_block_bytes and used["blocks_per_sm"] >= 1
    assert not manifest["packs"] and "pack" not in manifest["entries"]
    assert manifest["entries"]["run"].startswith("run(x ") and "y [" in manifest["entries"]["run"]
    assert manifest["needs"] == ["libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_cuda.so"]
    assert all((folder / needed).is_file() for needed in manifest["needs"][1:])
    library = (folder / "library.so").read_bytes()
    assert len(library) == manifest["file_bytes"] > manifest["code_bytes"] > 1000
    # The cubin is an ELF file inside, for CUDA; there is nothing left to compile.
    machines = [int.from_bytes(library[at + 18 : at + 20], "little") for at in starts_of(library, b"\x7fELF")]
    assert 190 in machines and b"__global__" not in library


def starts_of(data: bytes, sign: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(sign), data)]


@pytest.mark.cuda_compile
@pytest.mark.usefixtures("built")
@pytest.mark.skipif(has_driver(), reason="there is a driver, with which it loads")
def test_loading_without_a_driver_says_what_is_missing(studies: dict[str, Study]) -> None:
    script = "import sys; from dietlab.tuning import load; load(sys.argv[1])"
    last = python("-c", script, studies["dense"].folder, exits=1).stderr.strip().splitlines()[-1]
    assert "MissingDependencyError: libtvm_runtime_cuda.so must find libcuda.so.1; got" in last
    assert "It comes with NVIDIA's driver" in last

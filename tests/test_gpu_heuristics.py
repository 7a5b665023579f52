"""NVIDIA's matmul heuristics: what they are asked and answer, and where a model ranks their choices."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from conftest import cli, python
from cuda_samples import CONTEXT, DENSE, SCORES, few, typed
from schemes import cuda_scheme

import dietlab
from dietlab.base.errors import DietlabError, HardwareError, MissingDependencyError, WorkloadError
from dietlab.base.statistics import Values
from dietlab.compare.study import Study
from dietlab.cost import Analytic, adaptation_cost, fit_cost_model
from dietlab.lab.heuristics.agreement import compare_with_heuristics, frame_heuristics
from dietlab.lab.heuristics.nvidia import GPUS, MODULE, PRODUCTS, TARGETS, Configuration, Heuristics, gpu_of
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner, Trial
from dietlab.problem import Dense, Dim, Shape, ShapeSet, Workload
from dietlab.problem.precision import FLOATS
from dietlab.scheme import MicroKernel, Scheme, Space, build_space
from dietlab.targets.cuda.machine import PRESETS

H100, H200 = (Hardware.preset(name) for name in ("h100", "h200"))
KNOWN = ("rtx3090", "a100", "h100", "h200")
DIMS = ("--dim", "T=1:512", "--dim", "N=768", "--dim", "K=256")
LONG = Shape.of(T=512)


@pytest.fixture
def installed() -> None:
    if importlib.util.find_spec(MODULE) is None:
        pytest.skip("NVIDIA's heuristics are not installed (pip install nvidia-matmul-heuristics)")


def cuda(*arguments: object, exits: int = 0) -> Result:
    return cli("heuristics", *arguments, exits=exits)


# What stands in for the package

Answer = Mapping[str, Any]


@dataclass
class Asked:
    """What the package was asked."""

    opened: dict[str, Any] = field(default_factory=dict)
    problem: tuple[int, ...] = ()
    count: int = 0
    precision: str = ""


def answer(
    rows: int, cols: int, step: int, stages: int = 3, splits: int = 1, seconds: float = 1e-5
) -> Answer:
    kernel = SimpleNamespace(cta_tile_m=rows, cta_tile_n=cols, cta_tile_k=step, stages=stages, split_k=splits)
    return {"kernel": kernel, "runtime": seconds}


def package(found: Sequence[Answer], asked: Asked, error: Exception | None = None) -> Any:
    """A module with the interface of the package's, which always finds the same."""

    class Interface:
        def __init__(self, **settings: Any) -> None:
            asked.opened = settings
            if error:
                raise error

        def makeNvMatmulHeuristicsProblem(self, *sizes: int) -> str:
            asked.problem = sizes
            return "problem"

        def get(self, problem: str, count: int, precision: str) -> list[Answer]:
            assert problem == "problem"
            asked.count, asked.precision = count, precision
            return list(found)[:count]

    return SimpleNamespace(
        NvMatmulHeuristicsInterfaceEx=Interface,
        NvMatmulHeuristicsNvidiaGpu=Enum("Gpu", [*dict.fromkeys(GPUS.values()), "END"]),
        NvMatmulHeuristicsTarget=Enum("Target", [*TARGETS.values()]),
        NvMatmulHeuristicsFlags=Enum("Flags", ["NONE", "PERF_MODEL_BASED_AUTO_TUNING"]),
        NvMatmulHeuristicsMatmulLayout=IntEnum("Layout", ["NN_ROW_MAJOR", "NT_ROW_MAJOR"], start=0),
    )


ANSWERS = (answer(128, 64, 16, 3), answer(32, 64, 16, 4, splits=2), answer(512, 512, 8))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    record = Asked()
    monkeypatch.setitem(sys.modules, MODULE, package(ANSWERS, record))
    return record


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (DENSE, (43, 2304, 768, 1, 1)),
        (replace(DENSE, constant=False), (43, 2304, 768, 1, 1)),
        (SCORES, (43, 43, 64, 1, 192)),
        (CONTEXT, (43, 64, 43, 0, 192)),
    ],
)
def test_products_are_asked_about_as_they_are(
    workload: Workload, problem: tuple[int, ...], asked: Asked
) -> None:
    """Rows, columns, depth, whether ``w`` is transposed, and how many products."""
    found = Heuristics(H100).configurations(workload, Shape.of(T=43), 2)
    assert asked.problem == problem and (asked.count, asked.precision) == (2, "SSS")
    assert found == (Configuration(128, 64, 16, 3), Configuration(32, 64, 16, 4, 2))
    assert [(one.key, one.seconds) for one in found] == [("128x64x16.s3", 1e-5), ("32x64x16.s4.k2", 1e-5)]


@pytest.mark.parametrize(("dtype", "letters"), PRODUCTS.items())
def test_every_type_has_its_letters(dtype: str, letters: str, asked: Asked) -> None:
    Heuristics(H200, "cutlass3").configurations(typed(DENSE, dtype), Shape.of(T=1), 1)
    assert asked.precision == letters
    opened = [asked.opened[name].name for name in ("backend", "gpu", "flags")]
    assert opened == ["CUTLASS3", "H200_SXM", "PERF_MODEL_BASED_AUTO_TUNING"]
    assert set(PRODUCTS) == set(FLOATS), "the types of workloads"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            [answer(64, 64, 8, seconds=2e-6), answer(64, 64, 16), answer(64, 64, 8, seconds=3e-6)],
            [("64x64x8.s3", 2e-6), ("64x64x16.s3", 1e-5)],
        ),
        ([answer(64, 64, 8, seconds=0.0)], [("64x64x8.s3", None)]),
    ],
    ids=["that we cannot tell apart are one", "without an estimate have none"],
)
def test_configurations(
    answers: list[Answer], told: list[tuple[str, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, package(answers, Asked()))
    found = Heuristics(H100).configurations(DENSE, LONG)
    assert [(one.key, one.seconds) for one in found] == told


def test_detected_gpus_with_a_preset_are_known_as_such() -> None:
    """Turing is older than what the heuristics know."""
    for name, preset in PRESETS.items():
        detected = replace(Hardware.preset(preset), name=name)
        if preset == "t4":
            with pytest.raises(HardwareError):
                gpu_of(detected)
        else:
            assert gpu_of(detected).partition("_")[0] == gpu_of(Hardware.preset(preset)).partition("_")[0]


def test_an_unknown_gpu_is_a_clear_error(asked: Asked) -> None:
    with pytest.raises(HardwareError, match=r"NVIDIA's heuristics know; got NVIDIA T4\. .*gpu=.*H100_SXM"):
        Heuristics(Hardware.preset("t4"))
    assert Heuristics(Hardware.preset("t4"), gpu="A100_SXM_80GB").gpu == "A100_SXM_80GB"
    with pytest.raises(
        HardwareError, match=r"NVIDIA's heuristics know; got T4\. They know A100_SXM_80GB, .*B200"
    ):
        Heuristics(Hardware.preset("t4"), gpu="T4")
    with pytest.raises(HardwareError, match="NVIDIA's heuristics know; got END"):
        Heuristics(H100, gpu="END")
    with pytest.raises(HardwareError, match="the stage needs a GPU"):
        Heuristics(Hardware.preset("haswell-1core"))


def test_what_cannot_be_asked_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, package([], Asked()))
    with pytest.raises(DietlabError, match=r"a target is one of cutlass, .*; got 'cublas'\. cutlass"):
        Heuristics(H100, "cublas")  # type: ignore[arg-type]
    reference = Heuristics(H100)
    for shape, count in ((Shape.of(T=0), 8), (Shape.of(T=5), 0)):
        with pytest.raises(WorkloadError, match=rf"is to be computed.*T={shape['T']}, {count} conf.*Leave"):
            reference.configurations(DENSE, shape, count)
    told = r"know bfloat16 products on H100_SXM for cutlass; got no configuration\. .*: cutlass3, triton"
    with pytest.raises(WorkloadError, match=told):
        reference.configurations(typed(DENSE, "bfloat16"), LONG)
    other = SimpleNamespace(dtype="float64", axes=DENSE.axes, dims=DENSE.dims, weights="packed")
    with pytest.raises(WorkloadError, match=r"must have a type .*; got float64\. Use float32"):
        reference.configurations(other, LONG)  # type: ignore[arg-type]


def test_sizes_of_a_configuration_are_positive() -> None:
    with pytest.raises(DietlabError, match=r"sizes must be positive; got 0x64x8\.s3\. Make"):
        Configuration(0, 64, 8, 3)


FAULTS = {
    "no library": OSError("no such file"),
    "another version": AssertionError("0.2"),
    "refused": RuntimeError("status: 3"),
}


@pytest.mark.parametrize("fault", ["absent", *FAULTS])
def test_without_the_package_there_is_one_error(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = None if fault == "absent" else package([], Asked(), FAULTS[fault])
    monkeypatch.setitem(sys.modules, MODULE, module)
    with pytest.raises(
        MissingDependencyError, match=r"must be installed .*pip install nvidia-matmul-heuristics"
    ):
        Heuristics(H100)


def test_names_load_nothing_of_nvidia() -> None:
    names = "dietlab.Heuristics, dietlab.compare_with_heuristics, dietlab.frame_heuristics"
    python("-c", f"import dietlab, sys; {names}; assert not {{{MODULE!r}, 'tvm'}} & set(sys.modules)")


# Where a model ranks their choices


@dataclass(frozen=True)
class Listed:
    """A reference that proposes the same for every shape."""

    wanted: tuple[Configuration, ...]

    def configurations(self, workload: Workload, shape: Shape, count: int = 8) -> tuple[Configuration, ...]:
        return self.wanted[:count]


@dataclass(frozen=True)
class Table:
    """A model that was told seconds."""

    known: Mapping[str, float]

    def seconds(self, kernels: Sequence[MicroKernel], shapes: Sequence[Shape]) -> Values:
        return np.array([[self.known[kernel.key] * shape["T"] for shape in shapes] for kernel in kernels])


TIMES = {
    "128x64x16.t16x16.s3": 5.0,
    "128x64x16.t16x16.s4": 4.0,
    "128x64x16.t16x8.s4": 6.0,
    "128x64x32.t16x16.s3": 1.0,
    "64x64x16.t8x16.s3": 2.0,
    "64x64x16.t8x16.s3.k4": 8.0,
    "64x64x32.t8x16.s3.k4": 7.0,
    "64x32x8.t8x16.s2": 2.0,
}
SPACE = Space(DENSE, H100, tuple(sorted(Scheme.from_key(key) for key in TIMES)))


def compared(*wanted: Configuration, shapes: Sequence[Shape] = (Shape.of(T=1),), count: int = 8) -> Any:
    return compare_with_heuristics(SPACE, shapes, Table(TIMES), Listed(wanted), count)


@pytest.mark.parametrize(
    ("wanted", "key", "rank", "exact"),
    [
        (Configuration(128, 64, 16, 4), "128x64x16.t16x16.s4", 4, True),  # not the slower one of 128 threads
        (Configuration(128, 64, 16, 3), "128x64x16.t16x16.s3", 5, True),
        (Configuration(128, 64, 8, 6), "128x64x16.t16x16.s4", 4, False),  # the nearest step goes before
        (Configuration(128, 64, 64, 4), "128x64x32.t16x16.s3", 1, False),
        (Configuration(128, 64, 32, 3, 2), "128x64x32.t16x16.s3", 1, False),  # nobody splits this tile
        (Configuration(64, 64, 16, 3, 4), "64x64x16.t8x16.s3.k4", 8, True),
        (Configuration(64, 64, 16, 3, 3), "64x64x16.t8x16.s3.k4", 8, False),  # splits go before the step
        (Configuration(64, 64, 32, 3), "64x64x16.t8x16.s3", 2, False),
        (Configuration(64, 32, 8, 2), "64x32x8.t8x16.s2", 2, True),  # as fast as another: the same rank
        (Configuration(64, 128, 16, 3), None, None, False),  # 128 x 64 is another tile
    ],
)
def test_the_nearest_micro_kernel_of_a_tile(
    wanted: Configuration, key: str | None, rank: int | None, exact: bool
) -> None:
    ((match,),) = (one.matches for one in compared(wanted))
    assert (match.scheme and match.scheme.key, match.rank, match.exact) == (key, rank, exact)
    assert match.seconds == (TIMES[key] if key else None)


def test_a_comparison_counts_what_the_space_has() -> None:
    wanted = (
        Configuration(64, 64, 16, 3, seconds=3e-6),
        Configuration(256, 64, 16, 3),
        Configuration(128, 64, 16, 2),
        Configuration(128, 64, 32, 3),
    )
    shapes = [Shape.of(T=2), Shape.of(T=7)]
    for one, shape in zip(compared(*wanted, shapes=shapes), shapes, strict=True):
        assert (one.shape, one.in_space, one.exact, one.best_rank) == (shape, 3, 2, 1)
        assert one.slowdown == pytest.approx(2) and one.ranked == len(SPACE)
        assert one.choice.key == "128x64x32.t16x16.s3" and one.seconds == shape["T"]
    (one,) = compared(*wanted, count=2)
    assert (len(one.matches), one.in_space, one.best_rank) == (2, 1, 2)


def test_a_first_choice_that_the_space_lacks_has_no_time() -> None:
    (one,) = compared(Configuration(256, 64, 16, 3), Configuration(64, 64, 16, 3))
    assert one.slowdown is None and one.best_rank == 2
    (one,) = compared(Configuration(256, 64, 16, 3))
    assert (one.in_space, one.exact, one.best_rank) == (0, 0, None)


def test_the_table_has_a_row_a_shape() -> None:
    shapes = [Shape.of(T=1), Shape.of(T=3)]
    found = compared(Configuration(64, 64, 8, 3, seconds=3e-6), shapes=shapes)
    table = frame_heuristics(found)
    assert list(table["T"]) == [1, 3] and list(table["slowdown"]) == [2.0, 2.0]
    assert table.iloc[1].to_dict() == {
        "T": 3,
        "nvidia": "64x64x8.s3",
        "nvidia_seconds": 3e-6,
        "scheme": "64x64x16.t8x16.s3",
        "scheme_seconds": 6.0,
        "rank": 2,
        "ranked": 8,
        "slowdown": 2.0,
        "choice": "128x64x32.t16x16.s3",
        "choice_seconds": 3.0,
        "proposed": 1,
        "in_space": 1,
        "exact": 0,
        "best_rank": 2,
    }
    lacking = frame_heuristics([*found, *compared(Configuration(8, 8, 8, 2))])
    assert list(lacking["slowdown"].isna()) == [False, False, True]
    assert lacking["rank"].iloc[0] == 2 and str(lacking["rank"].dtype) == "Int64", "ranks are whole numbers"
    assert frame_heuristics([]).empty


def test_a_cpu_has_no_such_reference() -> None:
    space = build_space(Dense(T=Dim(1, 64), N=64, K=64), Hardware.preset("haswell-1core"))
    with pytest.raises(HardwareError, match="the stage needs a GPU"):
        compare_with_heuristics(space, [LONG], None, Listed(()))


@pytest.mark.parametrize("dtype", PRODUCTS)
def test_the_papers_prior_is_its_adaptation_at_the_peak(dtype: str) -> None:
    space = few(build_space(typed(DENSE, dtype), H100, ("padded",)), 12)
    shapes = [Shape.of(T=t) for t in (1, 129, 2048)]
    cost = adaptation_cost(space.workload, H100, "paper")
    peak = 1e9 * (H100.peak_for(dtype) or 0)
    table = Analytic.of(space, kind="paper").seconds(space.schemes, shapes)
    assert table.shape == (12, 3)
    for row, kernel in enumerate(space):
        for column, shape in enumerate(shapes):
            assert table[row, column] == pytest.approx(cost.seconds(kernel, shape, lambda _: peak))


def test_the_bound_ranks_by_padding_too() -> None:
    low, high = (cuda_scheme(rows, 64, 16, 4, 16) for rows in (8, 128))
    space, wanted = Space(DENSE, H100, (low, high)), Listed((Configuration(128, 64, 16, 2),))
    (one,) = compare_with_heuristics(space, [Shape.of(T=1)], None, wanted)
    assert one.choice == low and one.matches[0].rank == 2 and (one.slowdown or 0) > 1.5


def test_a_fitted_model_ranks_too() -> None:
    space = few(build_space(DENSE, H200), 24)
    shapes = [Shape.of(T=t) for t in (16, 512)]
    records = list(SyntheticRunner(H200).measure(DENSE, [Trial(k, tuple(shapes)) for k in space]))
    model = fit_cost_model(DENSE, H200, records)
    wanted = tuple(Configuration(k.rows, k.cols, 16, 3) for k in space.schemes[::6])
    for column, one in enumerate(compare_with_heuristics(space, shapes, model, Listed(wanted))):
        seconds = model.seconds(space.schemes, shapes)[:, column]
        assert one.seconds == seconds.min() and one.in_space == len(wanted)
        for match in one.matches:
            assert match.rank == 1 + (seconds < match.seconds).sum()


# The command


def test_command_prints_a_row_a_shape(asked: Asked) -> None:
    done = cuda("dense", *DIMS, "--hardware", "h200", "--shapes", "16,512", "--top", 3)
    assert "ranked by the bound alone" in done.stdout and "128x64x16.s3" in done.stdout
    assert "for H200_SXM, cutlass: the space has the tiles of 4 of 6" in done.stdout
    assert "None" not in done.stdout and "nan" not in done.stdout
    assert asked.count == 3 and asked.problem[1:3] == (768, 256)
    rows = json.loads(cuda("dense", *DIMS, "--hardware", "h200", "--shapes", "16,512", "--json").stdout)
    assert [row["T"] for row in rows] == [16, 512] and all(1 <= row["rank"] <= row["ranked"] for row in rows)


def test_command_ranks_by_each_draft(asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "ranks.csv"
    ask = ("dense", *DIMS, "--hardware", "h200", "--shapes", "16,512", "--drafts")
    done, _ = (cuda(*ask, "--csv", path) for _ in range(2))
    assert "waves: in the median NVIDIA's first choice is among the best" in done.stdout
    head, *lines = path.read_text().splitlines()
    assert head.startswith("hardware,workload,draft,T,nvidia,") and len(lines) == 8 and lines[:4] == lines[4:]
    rows = json.loads(cuda(*ask, "--json").stdout)
    drafts = [*product(("waves", "bound"), (16, 512))]
    assert [(row["draft"], row["T"]) for row in rows] == drafts
    for row in rows:
        assert row["nvidia"] == "128x64x16.s3" and row["share"] == round(row["rank"] / row["ranked"], 5)
        assert row["best_rank"] <= row["rank"] and row["ranked"] > 1000


def test_drafts_go_with_no_study_and_into_their_table_only(asked: Asked, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("T,rank\n")
    options = (*DIMS, "--hardware", "h200", "--csv", other)
    done = cuda("dense", *options, "--shapes", "16", "--drafts", exits=2)
    assert "added rows need a table with their columns" in done.stderr
    assert other.read_text() == "T,rank\n"
    assert "--csv needs it; got --csv" in cuda("dense", *options, exits=2).stderr


def test_command_ranks_by_a_study(asked: Asked, tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 64), N=192, K=128, dtype="float16")
    study = Study.create(tmp_path / "s", work, H100, ShapeSet.uniform(work, 3), "smoke")
    study.tune(SyntheticRunner(H100))
    done = cuda("--study", study.folder, "--shapes", "7,64", "--json")
    assert asked.precision == "HSH" and asked.problem[1:3] == (192, 128)
    first = json.loads(done.stdout)[0]
    run = study.run()
    table = run.model.seconds(run.space.schemes, [Shape.of(T=7)])[:, 0]
    assert first["choice"] == run.space.schemes[int(table.argmin())].key
    assert "ranked by the model of" in cuda("--study", study.folder, "--shapes", "7").stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "--hardware must name a GPU"),
        (("--hardware", "t4"), "the GPU must be one that NVIDIA's heuristics know; got NVIDIA T4"),
        (("--hardware", "haswell-1core"), "the stage needs a GPU"),
    ],
)
def test_command_says_in_one_line_what_is_wrong(arguments: tuple[str, ...], text: str, asked: Asked) -> None:
    (line,) = cuda("dense", *DIMS, *arguments, exits=2).stderr.strip().splitlines()
    assert line.startswith("dietlab: ") and text in line


def test_command_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    (line,) = cuda("dense", *DIMS, "--hardware", "h200", exits=2).stderr.strip().splitlines()
    assert "pip install nvidia-matmul-heuristics" in line


# The package itself


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("preset", KNOWN)
@pytest.mark.parametrize("dtype", PRODUCTS)
def test_nvidia_proposes_tiles(dtype: str, preset: str) -> None:
    hardware = Hardware.preset(preset)
    reference = Heuristics(hardware)
    for work in (DENSE, SCORES, CONTEXT):
        for length in (1, 43, 128):
            found = reference.configurations(typed(work, dtype), Shape.of(T=length), 5)
            assert 1 <= len(found) <= 5
            for one in found:
                assert one.rows % 8 == one.cols % 8 == one.step % 8 == 0, one
                assert one.rows * one.cols <= 256 * 256 and 1 <= one.stages <= 16, one


@pytest.mark.usefixtures("installed")
def test_nvidias_tiles_lie_as_ours_do() -> None:
    """Few rows get a low tile, few columns a narrow one."""
    low = Heuristics(H100).configurations(DENSE, Shape.of(T=16), 1)[0]
    narrow = Heuristics(H100).configurations(replace(DENSE, N=16), Shape.of(T=2304), 1)[0]
    assert low.rows <= 16 < low.cols and narrow.cols <= 16 < narrow.rows


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("preset", KNOWN)
def test_nvidias_float32_is_not_tf32(preset: str) -> None:
    """No estimate is faster than CUDA cores are; tensor cores would be at least twice as fast."""
    hardware = Hardware.preset(preset)
    work, shape = Dense(T=Dim(1, 8192), N=8192, K=8192), Shape.of(T=8192)
    least = work.flops(shape) / (1e9 * (hardware.total_gflops or 0))
    for one in Heuristics(hardware).configurations(work, shape):
        assert one.seconds and 0.95 * least < one.seconds < 2 * least, one


@pytest.mark.usefixtures("installed")
def test_nvidia_knows_every_gpu_that_is_named() -> None:
    module = importlib.import_module(MODULE)
    assert set(GPUS.values()) <= {gpu.name for gpu in module.NvMatmulHeuristicsNvidiaGpu}
    for name in dict.fromkeys(GPUS.values()):
        assert Heuristics(H100, gpu=name).configurations(typed(DENSE, "float16"), LONG, 1), name
    assert set(TARGETS.values()) <= {target.name for target in module.NvMatmulHeuristicsTarget}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("dtype", PRODUCTS)
@pytest.mark.parametrize("hardware", [H100, H200], ids=["h100", "h200"])
def test_nvidias_choices_have_a_rank(hardware: Hardware, dtype: str) -> None:
    work = Dense(T=Dim(1, 2048), N=2304, K=768, dtype=dtype)
    space = build_space(work, hardware)
    found = dietlab.compare_with_heuristics(space, [Shape.of(T=t) for t in (16, 300, 2048)])
    assert [one.shape["T"] for one in found] == [16, 300, 2048]
    assert any(one.in_space for one in found)
    for one in found:
        assert one.ranked == len(space) and one.choice in space and one.seconds > 0
        for match in one.matches:
            tile = (match.configuration.rows, match.configuration.cols)
            held = any((kernel.rows, kernel.cols) == tile for kernel in space)
            assert held == (match.scheme is not None)
            if match.scheme is not None:
                assert (match.scheme.rows, match.scheme.cols) == tile
                assert match.rank is not None and 1 <= match.rank <= len(space)
        assert one.slowdown is None or one.slowdown >= 1

"""Layers of a model by programs tuned for their very shapes: right, compiled whole, tuned once."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import cli

from dietlab.base.errors import DietlabError
from dietlab.base.events import audience
from dietlab.compare.ansor import contender as tuner
from dietlab.compare.ansor.contender import AnsorResult
from dietlab.compare.study import Study
from dietlab.lab.models import Model, evaluate_model, forms, speedups
from dietlab.lab.models.forms import tune_layers, with_programs
from dietlab.lab.models.zoo import CONFIGURATIONS
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.targets.cpu.ansor import packing_program
from dietlab.targets.cpu.lowering import target_of
from dietlab.tuning import EFFORTS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tvm")
pytest.importorskip("xgboost")

from dietlab.lab.models import worker  # noqa: E402
from dietlab.torch.static_linear import StaticLinear  # noqa: E402

ROWS = (3, 8)


@pytest.fixture(autouse=True)
def inference(one_thread: None) -> Iterator[None]:
    with torch.no_grad():
        yield


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


# --- programs, made by hand ------------------------------------------------------------------------


def write_program(folder: Path, rows: int, n: int, k: int, bias: bool, cores: int) -> None:
    """Writes a program as tuning leaves it, which needs scratch memory and has parallel loops."""
    import tvm
    from tvm import te

    sizes = {"x": (rows, k), "w": (k, n), "b": (n,)}
    x, w, b = (te.placeholder(size, name=name) for name, size in sizes.items())
    twice = te.compute((rows, k), lambda i, j: 2 * x[i, j], name="twice")
    r = te.reduce_axis((0, k))
    y = te.compute((rows, n), lambda i, j: te.sum(twice[i, r] * w[r, j], axis=r), name="y")
    z = te.compute((rows, n), lambda i, j: 0.5 * y[i, j] + (b[j] if bias else 0), name="z")
    main = te.create_prim_func([x, w, *([b] if bias else []), z]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": main}))
    for block in ("twice", "y", "z"):
        schedule.parallel(schedule.get_loops(schedule.get_sblock(block))[0])
    pack, packed_shape = packing_program((n, k), None)
    hardware = Hardware.detect(measure=False).with_cores(cores)
    module = tvm.IRModule({"main": schedule.mod["main"], "pack": pack})
    built = tvm.compile(module, target=target_of(hardware))
    folder.mkdir(parents=True, exist_ok=True)
    built.export_library(str(folder / f"T={rows}.so"))
    (folder / f"T={rows}.json").write_text(json.dumps({"packed_shape": packed_shape}, indent=1))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("programs")
    for rows, bias in product(ROWS, (False, True)):
        write_program(home / f"n100-k200{'-bias' if bias else ''}", rows, 100, 200, bias, 1)
    assert b"__TVMBackendAllocWorkspace" in (home / "n100-k200" / "T=3.so").read_bytes()
    return home


def layer(programs: Path, bias: bool = True) -> tuple[torch.nn.Linear, StaticLinear]:
    torch.manual_seed(0)
    linear = torch.nn.Linear(200, 100, bias=bias)
    (static,) = with_programs(torch.nn.Sequential(copy.deepcopy(linear)), programs)
    return linear, static


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_each_number_of_rows_has_its_program(programs: Path, bias: bool, threads: int) -> None:
    torch.set_num_threads(threads)
    linear, static = layer(programs, bias)
    for size in ((3, 200), (2, 4, 200), (8, 200), (1, 3, 200)):
        x = torch.randn(size)
        close(static(x), linear(x))
    columns_first, off_the_line = torch.randn(200, 8).t(), torch.randn(8 * 200 + 1)[1:].view(8, 200)
    for x in (columns_first, off_the_line):
        close(static(x), linear(x))


def test_weights_that_changed_are_packed_again(programs: Path) -> None:
    linear, static = layer(programs)
    x = torch.randn(3, 200)
    static(x)
    for changed in (linear, static):
        changed.weight.mul_(2)
    close(static(x), linear(x))


def test_what_no_program_serves_is_said(programs: Path) -> None:
    _, static = layer(programs)
    with pytest.raises(RuntimeError, match=r"rows that a program was tuned for; got 5: .*T=5\.so"):
        static(torch.randn(5, 200))
    with pytest.raises(RuntimeError, match=r"take float32 tensors of a layer.*got torch\.DoubleTensor"):
        static(torch.randn(3, 200).double())
    with torch.enable_grad(), pytest.raises(RuntimeError, match="have no gradients"):
        static(torch.randn(3, 200))
    folder = programs / "n100-k200-bias"
    (folder / "T=4.so").write_bytes((folder / "T=3.so").read_bytes())
    (folder / "T=4.json").write_text("{}")
    with pytest.raises(RuntimeError, match=r"T=4\.json names the packed shape"):
        static(torch.randn(4, 200))


def test_compiled_whole_for_every_number_of_rows(programs: Path) -> None:
    linear, static = layer(programs)
    torch.compiler.reset()
    model = torch.nn.Sequential(static, torch.nn.GELU())
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    x = torch.randn(3, 200)
    close(compiled(x), torch.nn.functional.gelu(linear(x)))
    x = torch.randn(8, 200)
    with torch._dynamo.config.patch(error_on_recompile=True):
        close(compiled(x), torch.nn.functional.gelu(linear(x)))
    operands = (x, linear.weight.detach(), linear.bias.detach(), static.folder)
    torch.library.opcheck(torch.ops.dietlab.static_linear.default, operands)


# --- tuning ------------------------------------------------------------------------------------------


@pytest.fixture
def square(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model whose layers are of one size."""
    family, sizes = CONFIGURATIONS["bert-tiny"]
    made = family, {**sizes, "intermediate_size": 64}
    monkeypatch.setitem(CONFIGURATIONS, "bert-square", made)  # type: ignore[arg-type]
    return Model("bert-square", 2, Dim(1, 32))


def test_a_model_is_tuned_once_and_computes_the_same(
    square: Model, here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = ShapeSet.extents(square, [5])
    tuned = tune_layers(square, here, lengths, tmp_path, 1, audience([]))
    assert [(result.shape, result.trials) for result in tuned] == [(Shape.of(T=10, N=64, K=64), 1)]
    assert (tmp_path / "n64-k64-bias" / "T=10.so").is_file()
    original, model = square.build(), with_programs(square.build(), tmp_path)
    words = square.input(Shape.of(T=5))
    close(model(input_ids=words)[0], original(input_ids=words)[0])
    monkeypatch.setattr(tuner, "WorkerProcess", None)
    assert tune_layers(square, here, lengths, tmp_path, 1, audience([])) == tuned


def test_every_layer_at_every_length_is_tuned(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def tune(
        work: Dense, hardware: Hardware, shape: Shape, folder: Path, trials: int, **_: Any
    ) -> AnsorResult:
        asked.append((folder.name, work.N, work.K, shape["T"], trials))
        return AnsorResult(shape, trials, 0, 2.0, 1.0, folder / "x.so")

    monkeypatch.setattr(forms, "tune_static", tune)
    tiny = Model("bert-tiny", 2, Dim(1, 32))
    tune_layers(tiny, here, ShapeSet.extents(tiny, [4, 9]), tmp_path, 7, audience([]))
    sizes = (("n128-k64-bias", 128, 64), ("n64-k128-bias", 64, 128), ("n64-k64-bias", 64, 64))
    assert asked == [(*size, rows, 7) for rows in (8, 18) for size in sizes]
    many = ShapeSet.extents(tiny, range(1, 10))
    wanted = r"at most 8 lengths; got 9: 27 tunings of 64 trials, .*about \d{4} s\. .*--ansor-lengths"
    with pytest.raises(DietlabError, match=wanted):
        tune_layers(tiny, here, many, tmp_path, 64, audience([]))


def one_layer(folder: Path, hardware: Hardware) -> Study:
    dense = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
    shapes = ShapeSet.layers([(64, 64)], lengths=[2], workload=dense)
    return Study.create(folder, dense, hardware, shapes, "smoke")


def test_lengths_that_are_not_timed_are_refused(square: Model, here: Hardware, tmp_path: Path) -> None:
    study = one_layer(tmp_path, here)
    lengths, others = (ShapeSet.extents(square, listed) for listed in ([4, 9], [9, 12, 20]))
    with pytest.raises(DietlabError, match="must be timed, too; got T=12, T=20"):
        evaluate_model(square, [study], lengths, ["ansor"], ansor_lengths=others)


def test_the_command_refuses_before_it_tunes(here: Hardware, tmp_path: Path) -> None:
    one_layer(tmp_path / "study", here)
    command = ["model", str(tmp_path / "study"), "--name", "bert-tiny", "--out", str(tmp_path / "out")]
    command += ["--shapes", "1,2,3,4,5,6,7,8,9", "--against", "ansor", "--ansor-trials", "64", "--quiet"]
    for more, told in (
        ([], "at most 8 lengths; got 9: 27 tunings of 64 trials"),
        (["--ansor-lengths", "8,9,10"], "must be timed, too; got T=10"),
    ):
        assert told in cli(*command, *more, exits=2).output
    assert not list(tmp_path.glob("out/ansor/**/*.so"))


def test_it_has_nothing_for_lengths_that_were_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "runtime", lambda name, model, original, options: (None, "1.0"))
    service = worker.Service()
    workload, options = Model("bert-tiny", 1, Dim(1, 32)).to_json(), {"lengths": [5]}
    service({"op": "open", "contender": "ansor", "workload": workload, "threads": 1, "options": options})
    assert service({"op": "check", "shape": {"T": 6}}) == {"absent": "it was not made for T=6"}


@pytest.mark.thorough
def test_a_whole_model_is_compared(here: Hardware, tmp_path: Path) -> None:
    tiny = Model("bert-tiny", 2, Dim(1, 32))
    dense = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
    layers = ShapeSet.layers([(64, 64), (128, 64), (64, 128)], lengths=[2, 16, 64], workload=dense)
    study = Study.create(tmp_path / "study", dense, here, layers, "smoke")
    study.tune(SyntheticRunner(here))
    lengths, few = ShapeSet.extents(tiny, [4, 9]), ShapeSet.extents(tiny, [9])
    effort = replace(EFFORTS["smoke"], ansor_trials=2)
    report = evaluate_model(
        tiny, [study], lengths, ["ansor"], effort=effort, ansor_lengths=few, shares=True, folder=tmp_path
    )
    rows = [row for row in report.rows if row.contender == "ansor"]
    assert [(row.shape["T"], row.correct) for row in rows] == [(9, True)], report.rows
    assert [*speedups(report)["ansor"]] == [9]
    assert not any(row.shares for row in report.rows), "both are compiled ahead of time"
    assert report.tuning["ansor_trials"] == dict.fromkeys(
        ("K=64,N=128,T=18", "K=128,N=64,T=18", "K=64,N=64,T=18"), 2
    )
    assert sum(report.tuning["ansor_seconds"].values()) > 0 < report.tuning["total_seconds"]
    (info,) = (info for info in report.contenders if info.name == "ansor")
    assert "MetaSchedule" in info.version and info.detail.startswith("2 trials a shape, 3 shapes tuned")

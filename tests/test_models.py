"""A whole model from end to end: the same results from all who run it, timed, and told on a page."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import cli, python

import dietlab as dl
from dietlab.base.errors import (
    DietlabError,
    MissingDependencyError,
    RecordError,
    StudyError,
    WorkloadError,
)
from dietlab.compare.results import Report, Row
from dietlab.compare.results.journal import Journal, Turn
from dietlab.compare.results.row import ContenderInfo, TimeShares
from dietlab.compare.study import Study
from dietlab.lab.models import (
    CONFIGURATIONS,
    DEFAULT_MODEL_CONTENDERS,
    Model,
    evaluate_model,
    forms,
    frame_models,
    frame_padding,
    padded_lengths,
    speedups,
    time_shares,
)
from dietlab.lab.models.forms import compile_ahead, example_of, write_onnx
from dietlab.lab.models.run import tuned_for
from dietlab.lab.models.runtimes import ALSO_OURS, called, onnx_shares, replaced, runtime, shares_of_trace
from dietlab.lab.models.summary import BEST
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Conv1d, Conv2d, Dense, Dim, Shape, ShapeSet
from dietlab.problem.networks import network_named
from dietlab.view.static.picture import redraw

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dietlab.lab.models import worker  # noqa: E402
from dietlab.torch.convolution import Convolution  # noqa: E402
from dietlab.torch.convolution_groups import ends_and_between  # noqa: E402

TINY = Model("bert-tiny", 2, Dim(1, 32))

OPENVINO = pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
"""Not by an import, which would find what reports conversions to its makers."""


@pytest.fixture(scope="module")
def studies(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, ...]:
    home = tmp_path_factory.mktemp("studies")
    dense = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
    layers = ShapeSet.layers([(64, 64), (128, 64), (64, 128)], lengths=[2, 16, 64], workload=dense)
    works = {"dense": (dense, layers)}
    for form in ("nt", "nn"):
        work = BatchMatmul(T=Dim(1, 32), B=Dim(1, 16), D=16, form=form)  # type: ignore[arg-type]
        works[form] = work, ShapeSet.of({Shape.of(T=4, B=8): 1.0, Shape.of(T=32, B=8): 1.0})
    made = [Study.create(home / name, work, here, shapes, "smoke") for name, (work, shapes) in works.items()]
    for study in made:
        study.tune(SyntheticRunner(here))
    return tuple(made)


def test_a_model_counts_its_own_operations() -> None:
    bert = Model("bert-base", 16, Dim(1, 128))
    assert bert.layers() == {(768, 768): 48, (3072, 768): 12, (768, 3072): 12}
    # 85 million weights of the encoder, twice each word; scores and context.
    assert bert.flops(Shape.of(T=1)) == 16 * (2 * 12 * 12 * 768 * 768 + 12 * 4 * 768)
    assert Model.from_json(json.loads(json.dumps(bert.to_json()))) == bert


@pytest.mark.parametrize(
    ("name", "size"),
    [("bert-tiny", {"T": 7}), ("resnet-tiny", {"side": 71}), ("whisper-tiny", {"frames": 18})],
)
def test_a_model_is_traced_with_a_size_of_no_layer(name: str, size: dict[str, int]) -> None:
    model = Model(name)
    assert torch.equal(example_of(model), model.input(Shape.of(**size)))


@pytest.mark.parametrize(("name", "batch"), [("bert-huge", 1), ("bert-base", 0)])
def test_no_model(name: str, batch: int) -> None:
    with pytest.raises(WorkloadError, match=r"models|a batch must have"):
        Model(name, batch)


def test_random_weights_and_words_repeat() -> None:
    first, second = TINY.build(), TINY.build()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(TINY.input(Shape.of(T=5)), TINY.input(Shape.of(T=5)))


def test_weights_are_read_from_a_folder(tmp_path: Path) -> None:
    model = TINY.build()
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight.fill_(0.25)
    model.save_pretrained(tmp_path)
    read = Model("bert-tiny", 1, weights=str(tmp_path)).build()
    assert torch.equal(read.encoder.layer[0].output.dense.weight, model.encoder.layer[0].output.dense.weight)


@pytest.mark.thorough
def test_everybody_computes_the_same(studies: tuple[Study, ...], tmp_path: Path) -> None:
    lengths = ShapeSet.extents(TINY, [1, 9, 32])
    report = evaluate_model(TINY, studies, lengths, effort="smoke", folder=tmp_path)
    present = {info.name for info in report.contenders if not info.absent}
    assert {"dietlab", "dietlab-eager", "torch", "torch-compile"} <= present
    assert {info.name for info in report.contenders} == {"dietlab", *DEFAULT_MODEL_CONTENDERS}
    assert len(report.rows) == 3 * len(present)
    assert all(row.correct and row.seconds_median > 0 for row in report.rows), report.rows
    assert {row.shape["T"] for row in report.rows if row.held_out} == {9}  # 2 x 9 rows are no shape of tuning
    assert all(row.speedup for row in report.rows if row.contender != "dietlab")


def opening(model: Model = TINY, contender: str = "torch") -> dict[str, Any]:
    return {"op": "open", "contender": contender, "workload": model.to_json(), "threads": 1, "options": {}}


def test_a_model_that_differs_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def slightly_off(name: str, model: Model, original: torch.nn.Module, options: object) -> object:
        return lambda words: original(input_ids=words)[0] + 2e-4, "1.0"

    monkeypatch.setattr(worker, "runtime", slightly_off)
    service = worker.Service()
    assert service(opening()) == {"version": "1.0", "kind": "eager"}
    answer = service({"op": "check", "shape": {"T": 5}})
    assert answer["correct"] is False
    assert answer["reason"].startswith("differs by 2.0e-04 from PyTorch")


def test_the_first_call_at_a_length_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before PyTorch's own, which may leave something for it, and after one at another length."""
    calls: list[str] = []

    def slow(name: str, model: Model, original: torch.nn.Module, options: object) -> object:
        def run(words: torch.Tensor) -> torch.Tensor:
            call = f"run {words.shape[1]}"
            if call not in calls:
                time.sleep(0.02)
            calls.append(call)
            hidden: torch.Tensor = forward(input_ids=words)[0]
            return hidden

        forward = original.forward
        original.register_forward_hook(lambda *given: calls.append("PyTorch"))
        return run, "1.0"

    monkeypatch.setattr(worker, "runtime", slow)
    service = worker.Service()
    service(opening())
    answers = [service({"op": "check", "shape": {"T": length}}) for length in (5, 7, 7, 9)]
    assert all(answer["correct"] for answer in answers)
    each = "run 5, PyTorch; run 5, run 7, PyTorch; run 7, PyTorch; run 7, run 9, PyTorch"
    assert calls == re.split("[;,] ", each)
    first = [answer["first_seconds"] for answer in answers]
    assert [seconds is None for seconds in first] == [True, False, True, False]
    assert min(filter(None, first)) >= 0.01  # half of it: waiting for a core is not counted


def test_studies_that_do_not_fit_are_refused(studies: tuple[Study, ...], tmp_path: Path) -> None:
    lengths = ShapeSet.extents(TINY, [9])
    with pytest.raises(DietlabError, match="two of its attention or none"):
        evaluate_model(TINY, studies[:2], lengths)
    dense, haswell = studies[0], Hardware.preset("haswell-1core")
    far = Study.create(tmp_path / "far", dense.workload, haswell, dense.shapes, "smoke")
    with pytest.raises(DietlabError, match="one processor and number of cores"):
        evaluate_model(TINY, [far, *studies[1:]], lengths)
    with pytest.raises(DietlabError, match="contenders"):
        evaluate_model(TINY, studies, lengths, ["tensorflow"])
    works = [BatchMatmul(T=Dim(1, 32), B=8, D=16, form=form) for form in ("nt", "nn")]  # type: ignore[arg-type]
    shapes = [ShapeSet.of({Shape.of(T=4): 1.0})] * 2
    hardware = studies[0].hardware
    made = zip(works, shapes, strict=True)
    fixed = [Study.create(tmp_path / w.form, w, hardware, s, "smoke") for w, s in made]
    with pytest.raises(DietlabError, match=r"a range that holds batch x heads.*got B=8.*--dim B=1:12 "):
        evaluate_model(replace(TINY, batch=3), [studies[0], *fixed], lengths)


@pytest.mark.thorough
def test_lengths_of_a_stopped_run_are_not_timed_again(studies: tuple[Study, ...], tmp_path: Path) -> None:
    journal = Journal(tmp_path / "kept.jsonl", {"model": TINY.to_json()})
    kept = [Row(Shape.of(T=9), True, "dietlab", "model", 7.0, 7.0, 7.0, 1.0, True)]
    journal.add_rows(Turn("", 1, "model", Shape.of(T=9)), kept)
    lengths = ShapeSet.extents(TINY, [9])
    made = evaluate_model(TINY, studies[:1], lengths, [], effort="smoke", journal=journal)
    assert [*made.rows] == kept


def test_the_command_tells_and_keeps_a_report(studies: tuple[Study, ...], tmp_path: Path) -> None:
    dense, scores, context = (str(study.folder) for study in studies)
    command = [
        "model",
        dense,
        scores,
        context,
        "--name",
        "bert-tiny",
        "--batch",
        "2",
        "--longest",
        "32",
        "--quiet",
    ]
    command += ["--against", "torch", "--effort", "smoke", "--shares"]
    printed = cli(*command, "--shapes", "4,9", "--out", tmp_path / "out").output
    assert "bert-tiny" in printed and "torch" in printed
    report = Report.load(tmp_path / "out" / "report.json")
    assert [row.shape["T"] for row in report.rows] == [4, 4, 9, 9]
    profiled = [row for row in report.rows if row.contender == "torch"]
    assert all(row.shares and row.shares.contractions > 0 and row.shares.attention > 0 for row in profiled)
    assert not any(row.shares for row in report.rows if row.contender == "dietlab"), "compiled ahead of time"
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").count("bert-tiny")


# --- models as files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert-tiny", pytest.param("experts-tiny", marks=pytest.mark.thorough)])
def test_a_model_compiled_ahead_of_time_computes_the_same(name: str, studies: tuple[Study, ...]) -> None:
    model = Model(name, 1, Dim(1, 64))
    original = model.build()
    run = compile_ahead(model, replaced(original, [str(studies[0].folder)]))
    for length in (1, 9, 64):
        words = model.input(Shape.of(T=length))
        assert (run(words) - original(input_ids=words)[0]).abs().max() < worker.TOLERANCE


@pytest.mark.thorough
def test_a_model_of_short_sentences_is_compiled_ahead_of_time() -> None:
    model = Model("bert-tiny", 1, Dim(1, 4))
    original, words = model.build(), model.input(Shape.of(T=4))
    run = compile_ahead(model, original)
    assert (run(words) - original(input_ids=words)[0]).abs().max() < worker.TOLERANCE


def test_what_cannot_be_compiled_ahead_of_time_says_why() -> None:
    class Depends(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor]:
            return (input_ids if input_ids.sum() > 3 else -input_ids,)

    with pytest.raises(
        MissingDependencyError, match=r"must be able to compile bert-tiny ahead of time; got .*data-dep"
    ):
        compile_ahead(TINY, Depends())


def test_what_onnx_has_no_form_of_leaves_onnx_runtime_out(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    with pytest.raises(
        MissingDependencyError, match=r"ONNX must have a form.*experts-tiny; got .*grouped_mm"
    ):
        write_onnx(Model("experts-tiny", 1), tmp_path)
    assert not list(tmp_path.iterdir())


@OPENVINO
@pytest.mark.parametrize("name", ["bert-tiny", "decoder-tiny"])
def test_openvino_computes_the_same_after_a_sentence_of_one_word(name: str) -> None:
    """As it would not without a mask."""
    model, level = Model(name, 2, Dim(1, 64)), logging.getLogger().level
    service = worker.Service()
    assert service(opening(model, "openvino"))["kind"] == "prepacked"
    assert logging.getLogger().level == level, "warnings of others are still told"
    for length in (1, 9, 16, 64):
        answer = service({"op": "check", "shape": {"T": length}})
        assert answer["correct"], (length, answer)
    assert service({"op": "shares", "shape": {"T": 9}}) == {}


@OPENVINO
def test_what_openvino_has_no_form_of_is_named() -> None:
    model = Model("experts-tiny", 1)
    with pytest.raises(MissingDependencyError, match=r"OpenVINO must have a form.*experts-tiny; got .*histc"):
        runtime("openvino", model, model.build(), {"threads": 1})


# --- what reports say together ---------------------------------------------------------------------


def report(times: dict[str, dict[int, float]], model: Model = TINY, **more: Any) -> Report:
    """A report of seconds by contender and length; without another model, ours took 1 s everywhere."""
    rows = [
        Row(Shape.of(T=t), False, name, "model", s, s, s, 1.0, True, None if name == "dietlab" else s)
        for name, by_length in times.items()
        for t, s in by_length.items()
    ]
    return Report(model.to_json(), Hardware.preset("haswell-1core").to_json(), rows=tuple(rows), **more)


def test_the_best_of_all_is_another_one_at_each_length() -> None:
    ours = {1: 1.1, 2: 1.1}
    others = {"dietlab-eager": ours, "dietlab-compile": ours, "ansor": {2: 1.2}}
    rivals = {"torch": {1: 2.0, 2: 4.0}, "onnxruntime": {1: 3.0, 2: 1.5}}
    made = report({"dietlab": {1: 1.0, 2: 1.0}, **rivals, **others})
    assert speedups(made)[BEST] == {1: 2.0, 2: 1.5}, "ours is no rival, nor what was tuned for each length"
    first, *others = frame_models([made]).to_dict("records")
    assert (first["contender"], first["batch"], first["cores"], first["lengths"]) == (BEST, 2, 1, 2)
    assert first["geomean"] == pytest.approx(3**0.5)
    assert (first["low"], first["high"]) == (pytest.approx(1.5), pytest.approx(2.0))
    assert (first["worst"], first["worst_T"]) == (1.5, 2)
    assert [row["contender"] for row in others] == ["torch", "onnxruntime", *ALSO_OURS, "ansor"]


def test_wrong_results_count_nowhere() -> None:
    made = report({"dietlab": {1: 1.0}, "torch": {1: 2.0}, "onnxruntime": {1: 1.5}})
    wrong = [replace(row, correct=row.contender != "onnxruntime") for row in made.rows]
    assert speedups(replace(made, rows=tuple(wrong)))[BEST] == {1: 2.0}


# --- where the time goes ----------------------------------------------------------------------------


def test_shares_of_the_time_are_of_the_whole() -> None:
    shares = time_shares(called(TINY.build()), TINY.input(Shape.of(T=8)), calls=2)
    assert 0 < shares.contractions < 1 and 0 < shares.attention < 1 and 0 < shares.rest < 1
    assert shares.contractions + shares.attention + shares.rest == pytest.approx(1.0)


def test_shares_in_onnx_runtime_are_of_all_calls_but_the_first() -> None:
    def node(at: int, took: int, operator: str, *operands: list[int]) -> dict[str, object]:
        args = {"op_name": operator, "input_type_shape": [{"float": shape} for shape in operands]}
        return {"cat": "Node", "name": f"{operator}_kernel_time", "ts": at, "dur": took, "args": args}

    runs = [{"cat": "Session", "name": "model_run", "ts": at, "dur": 100, "args": {}} for at in (200, 0)]
    nodes = [
        node(10, 90, "MatMul", [1, 8, 64]),
        node(201, 20, "MatMul", [1, 8, 64]),
        node(221, 10, "Gemm", [8, 64], [64, 64]),
        node(231, 12, "FusedMatMul", [1, 4, 8, 16], [1, 4, 16, 8]),
        node(250, 8, "Softmax", [1, 4, 8, 8]),
        node(260, 5, "Add", [1, 8, 64], [64]),
    ]
    assert shares_of_trace([{"name": "process"}, *nodes, *runs]) == TimeShares(0.3, 0.2)


def test_onnx_runtime_tells_its_shares(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = write_onnx(TINY, tmp_path)
    shares = onnx_shares(path, 1, TINY.input(Shape.of(T=8)), calls=2)
    assert 0 < shares.contractions < 1 and 0 < shares.attention < 1 and 0 < shares.rest < 1
    assert sorted(file.name for file in path.parent.iterdir()) == ["model.onnx", "model.onnx.data"]


def test_a_file_for_onnx_runtime_is_whole_and_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(model: Model, path: Path) -> None:
        path.write_text("graph")
        path.with_name("model.onnx.data").write_text("weights")

    def stopped(model: Model, path: Path) -> None:
        written(model, path)
        raise KeyboardInterrupt

    home = tmp_path / "home"
    monkeypatch.setattr(forms, "_export", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(TINY, home)
    assert not list(home.iterdir())
    monkeypatch.setattr(forms, "_export", written)
    first = write_onnx(TINY, home)
    assert [file.read_text() for file in sorted(first.parent.iterdir())] == ["graph", "weights"]
    TINY.build().save_pretrained(tmp_path / "mine")
    mine = replace(TINY, weights=str(tmp_path / "mine"))
    second = write_onnx(mine, home)
    monkeypatch.setattr(forms, "_export", stopped)
    assert write_onnx(replace(TINY, batch=7), home) == first != second == write_onnx(mine, home)
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"others")
    with pytest.raises(KeyboardInterrupt):
        write_onnx(mine, home)


def test_a_report_keeps_and_draws_where_the_time_goes() -> None:
    made = report({"dietlab": dict.fromkeys(range(1, 9), 0.002), "torch": {1: 0.004}})
    assert dl.frame_time_shares(made).empty and not dl.plot_time_shares(made).data
    rows = [replace(row, shares=TimeShares(0.5, 0.25)) for row in made.rows]
    infos = tuple(ContenderInfo(name, "eager") for name in ("dietlab", "torch"))
    kept = replace(made, rows=tuple(rows), contenders=infos).to_json()
    told = Report.from_json(json.loads(json.dumps(kept)))
    assert [*told.rows] == rows and "shares" not in told.to_frame()
    frame = dl.frame_time_shares(told)
    first = frame[(frame["T"] == 1) & (frame["contender"] == "torch")]
    assert [*first["part"]] == ["contractions", "attention", "rest"]
    assert [*first["seconds"]] == pytest.approx([0.002, 0.001, 0.001])
    figure = dl.plot_time_shares(told)
    assert not any("Not in this picture" in text.get_text() for text in redraw(figure).texts)
    titles = [figure.layout[axis].title.text for axis in ("xaxis", "xaxis2", "xaxis3", "xaxis4")]
    assert titles == [f"T={t} (ms)" for t in (1, 3, 6, 8)]
    assert len(figure.data) == 4 * 3 and [*figure.data[0].x] == pytest.approx([1.0, 2.0])
    assert len(dl.plot_time_shares(told, [2]).data) == 3
    with pytest.raises(RecordError, match=r"a length must have been profiled; got \[9\]"):
        dl.plot_time_shares(told, [2, 9])


# --- decoders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decoder-tiny", "experts-tiny"])
def test_a_decoder_computes_the_same(name: str, studies: tuple[Study, ...]) -> None:
    model = Model(name, 1, Dim(1, 64))
    original = model.build()
    ours = replaced(original, [str(studies[0].folder)])
    with torch.no_grad():
        for length in (1, 9, 64):
            words = model.input(Shape.of(T=length))
            assert (called(ours)(words) - called(original)(words)).abs().max() < worker.TOLERANCE


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_model_has_the_layers_that_its_configuration_tells(name: str) -> None:
    model = Model(name, 1)
    with torch.device("meta"):
        built = model.build()
    found = Counter[tuple[int, int]]()
    for module in built.modules():
        if isinstance(module, torch.nn.Linear):
            found[module.out_features, module.in_features] += 1
    for path, weights in built.named_parameters():
        if "experts" in path:  # [experts, N, K]
            found[weights.shape[1], weights.shape[2]] += model.configuration.num_experts_per_tok
    assert model.layers() == found


def test_a_token_meets_the_experts_that_it_chooses() -> None:
    decoder, mixture = Model("decoder"), Model("experts")
    assert decoder.layers() == {(1280, 1280): 12, (320, 1280): 12, (3456, 1280): 12, (1280, 3456): 6}
    assert mixture.layers()[2816, 1024] == 2 * 2  # two layers, two experts each
    # A token sees those before it and itself.
    dense = 2 * sum(count * n * k for (n, k), count in decoder.layers().items())
    assert decoder.flops(Shape.of(T=3)) == 3 * dense + 6 * 4 * 6 * 1280


def test_no_model_is_longer_than_its_positions() -> None:
    with pytest.raises(WorkloadError, match="at most 512 tokens"):
        Model("bert-base", 1, Dim(1, 513)).build()


def test_padding_takes_the_time_of_the_padded_length() -> None:
    model = Model("decoder-tiny", 1, Dim(1, 40))
    lengths = ShapeSet.extents(model, [5, 33])
    # Multiples of 16, powers of two, and never beyond the longest.
    assert [shape["T"] for shape in padded_lengths(model, lengths)] == [8, 16, 40]
    times = {"dietlab": {5: 1.0, 33: 3.0}, "torch": {5: 2.0, 8: 2.5, 33: 4.0, 40: 5.0}}
    weighted = ShapeSet.of({Shape.of(T=5): 3.0, Shape.of(T=33): 1.0})
    frame = frame_padding(report(times, model, shape_set=weighted)).set_index(["policy", "contender"])
    assert frame.step_ms["none", "dietlab"] == pytest.approx(1500)
    assert frame.step_ms["none", "torch"] == pytest.approx(2500)
    assert frame.step_ms["to powers of two", "torch"] == pytest.approx(3125)
    assert frame.speedup["to powers of two", "torch"] == pytest.approx(3125 / 1500)
    asked, executed = 0.75 * 5 + 0.25 * 33, 0.75 * 8 + 0.25 * 40
    assert frame.waste["to powers of two", "torch"] == pytest.approx(1 - asked / executed)
    assert frame.tokens_per_second["none", "dietlab"] == pytest.approx(asked / 1.5)
    # Nobody timed 16 tokens.
    assert ("to multiples of 16", "torch") not in frame.index


FROZEN_OPERATIONS = """
import sys
import zipfile
import torch
from torch.profiler import profile
from dietlab.lab.models.runtimes import runtime
from dietlab.lab.models.zoo import Model
from dietlab.problem.shapes import Shape
model = Model("bert-tiny", 1)
sources, load = [], torch._inductor.aoti_load_package
def seen(package):  # of a model that was compiled ahead of time, a profiler sees hardly any operation
    with zipfile.ZipFile(package) as parts:
        sources.extend(parts.read(name).decode() for name in parts.namelist() if name.endswith(".cpp"))
    return load(package)
torch._inductor.aoti_load_package = seen
with torch.no_grad():
    original = model.build()
    run, version = runtime(sys.argv[1], model, original, {})
    for length in (3, 9):
        words = model.input(Shape.of(T=length))
        assert (run(words) - original(input_ids=words)[0]).abs().max() < 1e-4
    with profile() as profiled:
        run(words)
called = {event.key for event in profiled.key_averages()}
print(version, any("_linear_pointwise" in text for text in (*called, *sources)), sep="\\n")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["torch-compile", "torch-aot"])
@pytest.mark.parametrize("frozen", ["", "-frozen"])
def test_only_frozen_weights_are_packed_where_rows_are_dynamic(way: str, frozen: str) -> None:
    version, packed = python("-c", FROZEN_OPERATIONS, way + frozen).stdout.splitlines()
    assert ("packed by oneDNN" in version, packed) == (bool(frozen), str(bool(frozen)))


# --- images and speech -------------------------------------------------------------------------------


CONVOLVED = {"resnet-tiny": (33, 45, 64), "whisper-tiny": (4, 62, 200)}
"""Models with convolutions, and sizes of their inputs."""


@pytest.fixture(scope="module")
def windows(
    here: Hardware, studies: tuple[Study, ...], tmp_path_factory: pytest.TempPathFactory
) -> list[Study]:
    """Studies of the convolutions of both models, the smaller ones' channels as ranges; and the dense one."""
    home, size, channels = tmp_path_factory.mktemp("windows"), Dim(2, 80), Dim(16, 64)
    many = {"N": 1, "IC": channels, "OC": channels, "bias": True}
    image = {"H": size, "W": size}
    works = [
        Conv2d(N=1, **image, IC=3, OC=16, kernel=7, stride=2, padding=3, bias=True),
        *(Conv2d(**many, **image, kernel=3, stride=stride, padding=1) for stride in (1, 2)),
        *(Conv2d(**many, **image, kernel=1, stride=stride) for stride in (1, 2)),
        Conv1d(N=1, L=Dim(4, 300), IC=20, OC=64, kernel=3, padding=1, bias=True),
        Conv1d(N=1, L=Dim(4, 300), IC=64, OC=64, kernel=3, stride=2, padding=1, bias=True),
    ]
    made = [studies[0]]
    for number, work in enumerate(works):
        shapes = ShapeSet.of(dict.fromkeys(ends_and_between(work.dims, 0), 1.0))
        study = Study.create(home / f"{number}", work, here, shapes, "smoke", max_kernels=1)
        study.tune(SyntheticRunner(here))
        study.dispatch()
        made.append(study)
    return made


@pytest.mark.filterwarnings("ignore:.*stay")
@pytest.mark.parametrize("name", CONVOLVED)
def test_a_model_of_convolutions_computes_the_same(name: str, windows: list[Study]) -> None:
    model = Model(name, 1, sizes=Dim(CONVOLVED[name][0], 200))
    original = model.build()
    twin = replaced(original, [str(study.folder) for study in windows])
    ours = called(twin)
    ahead = compile_ahead(model, original)
    for size in CONVOLVED[name]:
        given = model.input(Shape.of(**{model.given.dim: size}))
        wanted = original(given)[0]
        scale = worker.TOLERANCE * max(1.0, wanted.square().mean().sqrt().item())
        for run in (ours, ahead):
            assert (run(given) - wanted).abs().max() < scale
    assert any(isinstance(module, Convolution) for module in twin.modules())


def test_flops_of_convolutions_are_those_of_the_network() -> None:
    model, shape = Model("resnet50", 2), Shape.of(side=224)
    calls = network_named("resnet50").calls((224, 224))
    counted = (
        kernel.workload(2, size, "float32").flops(Shape(())) * number
        for (kernel, size), number in calls.items()
    )
    assert model.flops(shape) == sum(counted)


def test_speech_comes_in_pairs_of_frames() -> None:
    with pytest.raises(WorkloadError, match="frames of whisper-tiny must be a multiple of 2; got 61"):
        Model("whisper-tiny").input(Shape.of(frames=61))


def test_studies_that_serve_no_layer_are_refused(windows: list[Study], tmp_path: Path) -> None:
    original = Model("bert-tiny").build()
    refused = pytest.raises(StudyError, match="must serve some layer of the model; got conv2d")
    with pytest.warns(UserWarning, match="no layer of BertModel was replaced"), refused:
        replaced(original, [str(windows[1].folder)])
    speech = ShapeSet.extents(Model("whisper-tiny"), [4, 9])
    with pytest.raises(WorkloadError, match="frames of whisper-tiny must be a multiple of 2; got 9"):
        evaluate_model(Model("whisper-tiny"), windows, speech, ["torch"], folder=tmp_path)


def test_a_size_is_held_out_if_a_layer_was_not_tuned_for_what_it_meets(
    windows: list[Study], here: Hardware, tmp_path: Path
) -> None:
    model = Model("whisper-tiny", 1)
    conv = Conv1d(N=1, L=Dim(4, 300), IC=20, OC=64, kernel=3, padding=1, bias=True)
    lengths = ShapeSet.of(dict.fromkeys((Shape.of(L=size) for size in (4, 32, 300)), 1.0))
    study = Study.create(tmp_path / "study", conv, here, lengths, "smoke", max_kernels=1)
    shapes = [Shape.of(frames=size) for size in (4, 30, 32)]
    assert [tuned_for(model, [study], shape) for shape in shapes] == [True, False, True]
    # The dense study was tuned for 2, 16 and 64 rows.
    assert [tuned_for(model, [study, windows[0]], shape) for shape in shapes] == [True, False, True]
    assert not tuned_for(model, [study, windows[0]], Shape.of(frames=300))

"""The bench of a library for every layer: suites, the table, its lines and targets, the check, the run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli

from dietlab.base.errors import DietlabError, DispatchError, RecordError
from dietlab.base.events import Audience, StageStarted, TrialMeasured, audience
from dietlab.compare.contenders import LibrariesContender, NotTunedError
from dietlab.compare.results.criteria import CRITERIA, LAYER_CRITERIA, criteria_of
from dietlab.compare.results.journal import read_journal
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.results.summary import Line, summarise
from dietlab.compare.results.table import COLUMNS, ResultTable
from dietlab.compare.study import Study
from dietlab.compare.suites import random_shapes, run_bench
from dietlab.compare.suites.every_layer import OWN, EveryLayer
from dietlab.compare.suites.lengths import LENGTHS
from dietlab.compare.suites.memory import SECONDS_BETWEEN, PeakMemory, tree_bytes
from dietlab.compare.suites.random_shapes import check_shapes
from dietlab.compare.suites.run import JOURNAL, TABLE
from dietlab.compare.suites.suite import SUITES, Task, own_task, suite_named
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dense, Dim, Shape
from dietlab.problem.layers import MODELS
from dietlab.scheme import Leaf, Scheme
from dietlab.tuning import Dispatcher, Operator, build
from dietlab.view.pages.bench import render_bench_page
from dietlab.view.pages.bench_text import part_table, render_bench

NOBODY = audience(())
EVERY = Dense(T=Dim(1, 2048), N=Dim(64, 4096), K=Dim(64, 4096))
BERT = ((768, 768), (2304, 768), (3072, 768), (768, 3072))
CONTENDERS = (
    ContenderInfo("dietlab", "ours"),
    ContenderInfo(OWN, "own tuning"),
    ContenderInfo("mkl-packed", "prepacked"),
    ContenderInfo("onednn-packed", "prepacked"),
    ContenderInfo("oracle", "bound"),
)
TINY = SUITES["smoke-layers"].tasks[0]


def rows(shape: Shape, regret: float, **others: float) -> list[Row]:
    """Our row of 100 us and those of others, whose times are given as multiples of ours."""
    gflops = EVERY.flops(shape) / 1e-4 / 1e9
    ours = Row(shape, shape["N"] == 97, "dietlab", "rotating", 1e-4, 9e-5, 1.1e-4, gflops, True)
    named = {name.replace("_", "-"): factor for name, factor in others.items()}
    theirs = (replace(ours, contender=n, seconds_median=f * 1e-4, speedup=f) for n, f in named.items())
    return [replace(ours, regret=regret), *theirs]


def facts(name: str = "dense-every-layer", work: Any = EVERY, **changed: Any) -> Report:
    hardware = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0, dram_gbps=20.0, l3_gbps=60.0)
    tuning = {"total_seconds": 200.0, "trials": 64, "measurements": 900, "peak_bytes": 6e8}
    library = {"bytes": 90 << 10, "kernels": 11, "dispatch_ns": 12.0, "python_call_us": 1.5}
    library |= {"shapes_checked": 4000, "shapes_wrong": []}
    made = Report(work.to_json(), hardware.to_json(), {}, tuning, library, (), CONTENDERS, name=name)
    return replace(made, **changed)


def table(found: Iterable[Row], studies: tuple[Report, ...] = (), suite: str = "layers") -> ResultTable:
    first, *others = studies or (facts(),)
    about = {"suite": suite, "effort": "none", "versions": {"dietlab": "0"}}
    return ResultTable((replace(first, rows=tuple(found)), *others), about)


FOUR = {
    Shape.of(T=5, N=768, K=768): {"own": 1.0, "mkl_packed": 1.5, "onednn_packed": 1.2, "oracle": 0.99},
    Shape.of(T=300, N=768, K=768): {"own": 0.96, "mkl_packed": 1.1, "onednn_packed": 1.02, "oracle": 1.0},
    Shape.of(T=5, N=97, K=301): {"own": 0.9, "mkl_packed": 1.3, "onednn_packed": 1.4, "oracle": 0.9},
    Shape.of(T=300, N=97, K=301): {"own": 0.92, "mkl_packed": 0.9, "onednn_packed": 1.4, "oracle": 0.95},
}
HAND_MADE = table(
    [row for (shape, others), lost in zip(FOUR.items(), (0.01, 0.0, 0.1, 0.05), strict=True)
     for row in rows(shape, lost, **others)]
)  # fmt: skip


def line(lines: Iterable[Line], measure: str, statistic: str, **match: Any) -> Line:
    (found,) = [
        line
        for line in lines
        if (line.criterion.measure, line.criterion.statistic) == (measure, statistic)
        and all(getattr(line.criterion.of, name) == value for name, value in match.items())
    ]
    return found


# Suites


def test_the_suite_holds_one_operator_for_all_layers_and_both_products() -> None:
    dense, *batched = SUITES["layers"].tasks
    assert dense.workload == EVERY and dense.max_kernels == 12
    assert {task.workload.operator for task in batched} == {"batch-matmul-nt", "batch-matmul-nn"}
    assert all(task.max_kernels == 8 for task in batched)
    assert {(s["N"], s["K"]) for s in dense.shapes} == set(BERT) and len(dense.shapes) == 4 * 12
    often, seldom = (dense.shapes.weight(Shape.of(T=t, N=768, K=768)) for t in (5, 512))
    assert seldom == pytest.approx(often / 2)
    held_out = {(s["N"], s["K"]) for s in dense.evaluated("quick")} - set(BERT)
    assert len(held_out) == 12
    assert any(n % 2 for n, _ in held_out) and any(k % 2 for _, k in held_out)
    assert any(n % 2 and k % 2 for n, k in held_out)


@pytest.mark.parametrize("effort", LENGTHS)
def test_efforts_hold_shapes_of_the_ranges_and_own_libraries(effort: str) -> None:
    for task in (SUITES["layers"].tasks[0], TINY):
        shapes = task.evaluated(effort)
        assert list(shapes) == sorted(set(shapes))
        assert all(shape[name] in dim for shape in shapes for name, dim in task.workload.dims.items())
        assert task.layers is not None
        owners = {(layer.N, layer.K) for layer in task.layers.owners(effort)}
        assert owners <= {(s["N"], s["K"]) for s in shapes}


def test_quick_tunes_own_libraries_of_bert_and_of_odd_layers() -> None:
    (task, *_) = SUITES["layers"].tasks
    assert task.layers is not None
    owners = task.layers.owners("quick")
    assert len(owners) == 6 and len(task.layers.owners("full")) == 16
    assert {(layer.N, layer.K) for layer in owners[:3]} < set(BERT)
    assert any(layer.N % 2 or layer.K % 2 for layer in owners[3:])
    alone = own_task(task, owners[0])
    assert alone.workload == Dense(T=Dim(1, 2048), N=owners[0].N, K=owners[0].K)
    assert alone.tuned == task.tuned and alone.max_kernels == 8


def test_impossible_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DietlabError, match=r"a task without layers needs one dynamic dimension; got .*Name"):
        Task("x", EVERY, ((1, 1.0),), ("mkl",))
    with pytest.raises(DietlabError, match=r"must have the dynamic dimensions T, N and K; got \['T'\]"):
        replace(TINY, workload=Dense(T=Dim(1, 16), N=64, K=32))
    once = {"smoke": (1,)}
    with pytest.raises(DietlabError, match="held-out layers must differ, also from tuned ones"):
        EveryLayer("bert-base", ((768, 768),), once, once, {"smoke": (0, 0)})
    with pytest.raises(DietlabError, match=r"at most \(4, 1\) own libraries; got \(4, 2\)"):
        EveryLayer("bert-base", ((5, 7),), once, once, {"smoke": (4, 2)})
    with pytest.raises(DietlabError, match="every effort must have lengths"):
        EveryLayer("bert-base", ((5, 7),), once, {}, {"smoke": (4, 1)})
    bert = suite_named("bert-cpu").against((OWN,))
    with pytest.raises(DietlabError, match=r"contenders are .*; got own"):
        run_bench(bert, tmp_path / "a")
    assert OWN in SUITES["layers"].contenders and not (tmp_path / "a").exists()
    assert len(MODELS["bert-base"].layers) == len(BERT)


# The table


def test_the_table_has_a_column_for_each_dimension(tmp_path: Path) -> None:
    work = BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nt")
    more = replace(rows(Shape.of(T=9, N=1, K=1), 0.0)[0], shape=Shape.of(T=9))
    batched = facts("batch-matmul-nt", work, rows=(more,))
    turned = (replace(report, rows=report.rows[::-1]) for report in HAND_MADE.reports)
    both = replace(HAND_MADE, reports=(*turned, batched))
    both.save(tmp_path / "bench.csv.gz")
    loaded = ResultTable.load(tmp_path / "bench.csv.gz")
    assert loaded.to_csv() == both.to_csv()
    assert {e.row.shape for e in loaded.entries} == {*FOUR, more.shape}
    header, first, *_ = both.to_csv().splitlines()
    assert header.startswith("workload,threads,cache,T,N,K,held_out,")
    assert first.startswith("batch-matmul-nt,1,rotating,9,,,")
    frame = both.to_frame()
    assert frame["N"].isna().sum() == 1 and str(frame["N"].dtype) == "Int64"
    alone = replace(both, reports=(batched,))
    assert alone.columns == COLUMNS and not alone.has_layers


def test_a_table_of_layers_without_a_dimension_is_refused(tmp_path: Path) -> None:
    HAND_MADE.save(tmp_path / "bench.csv")
    text = (tmp_path / "bench.csv").read_text()
    (tmp_path / "bench.csv").write_text(text.replace(",T,N,K,", ",T,N,", 1))
    with pytest.raises(RecordError, match="a bench's CSV must have the right columns"):
        ResultTable.load(tmp_path / "bench.csv")
    (tmp_path / "bench.csv").write_text(text.replace(",5,97,301,", ",5,97,,", 1))
    with pytest.raises(RecordError, match="line 2"):
        ResultTable.load(tmp_path / "bench.csv")


# The summary


def test_lines_of_the_layers_by_hand() -> None:
    lines = summarise(HAND_MADE)
    own = line(lines, "own", "geomean")
    assert own.value == pytest.approx(math.prod((1.0, 0.96, 0.9, 0.92)) ** 0.25) and own.met is False
    worst = line(lines, "own", "worst")
    assert worst.shapes == 2 and worst.value == pytest.approx(math.sqrt(0.9 * 0.92)) and worst.met is False
    assert worst.worst.shape == Shape.of(N=97, K=301) and worst.worst.length == 0
    short, long = (line(lines, "prepacked", "geomean", lengths=e) for e in ((1, 128), (129, 2048)))
    assert short.value == pytest.approx(math.sqrt(1.2 * 1.3)) and short.met is True
    assert long.value == pytest.approx(math.sqrt(1.02 * 0.9)) and long.met is False
    assert line(lines, "prepacked", "worst").value == pytest.approx(0.9)
    mean = line(lines, "held-out", "mean")
    assert mean.shapes == 2 and mean.value == pytest.approx(7.5) and mean.met is False
    assert mean.worst.shape == Shape.of(T=5, N=97, K=301)
    most = {"measurements": 900, "memory": 0.6, "kernels": 11, "code": 90, "dispatch": 12, "call": 1.5}
    for measure, value in {**most, "tuning": 200, "wrong": 0}.items():
        found = line(lines, measure, "total" if measure == "wrong" else "most")
        assert found.value == pytest.approx(value) and found.met is True, measure
    assert line(lines, "tuning", "total").met is None, "one of three operators"


def test_three_studies_are_judged_together() -> None:
    studies = tuple(facts(f"w{i}", tuning={"total_seconds": 161.0}) for i in range(3))
    total = line(summarise(table(rows(Shape.of(T=5, N=64, K=64), 0.0), studies)), "tuning", "total")
    assert total.value == 483 and total.met is False


def test_wrong_results_of_random_shapes_are_counted() -> None:
    library = {**facts().library, "shapes_wrong": [{"T": 0, "N": 1, "K": 5}]}
    wrong = table(rows(Shape.of(T=5, N=64, K=64), 0.0), (facts(library=library),))
    found = line(summarise(wrong), "wrong", "total")
    assert found.value == 1 and found.met is False


def test_the_targets_of_the_layers_hold_in_their_suite_only() -> None:
    assert criteria_of("layers") == criteria_of("smoke-layers") == LAYER_CRITERIA
    assert criteria_of("bert-cpu") == criteria_of("") == CRITERIA
    other = summarise(replace(HAND_MADE, about={"suite": "bert-cpu"}))
    assert {line.criterion for line in other} <= set(CRITERIA)
    targets = {
        (c.measure, c.statistic, c.of.lengths[0], c.of.operators): c.target and c.target.bound[1]
        for c in LAYER_CRITERIA
    }
    assert targets["own", "geomean", 1, "dense"] == 0.98 and targets["own", "worst", 1, "dense"] == 0.95
    assert targets["prepacked", "geomean", 1, "dense"] == 1.10
    assert targets["prepacked", "geomean", 129, "dense"] == 1.0
    assert targets["prepacked", "worst", 1, "dense"] == 0.92
    assert targets["held-out", "mean", 1, "dense"] == 1.5 and targets["held-out", "p99", 1, "dense"] == 8
    assert targets["tuning", "most", 1, "dense"] == 240 and targets["tuning", "total", 1, ""] == 480
    assert targets["measurements", "most", 1, ""] == 1000 and targets["kernels", "most", 1, ""] == 12
    assert targets["code", "most", 1, ""] == 256 and targets["memory", "most", 1, ""] == 2
    assert targets["dispatch", "most", 1, ""] == 50 and targets["call", "most", 1, ""] == 2


def test_frame_of_the_summary_names_the_worst_layer() -> None:
    frame = HAND_MADE.summary_frame().set_index("what")
    assert frame.loc["over each layer's own library, worst layer", "worst_layer"] == "K=301,N=97"
    assert frame.loc["dispatch in the library", "value"] == pytest.approx(12e-9)
    assert frame.loc["peak memory of tuning", ["unit", "value"]].tolist() == ["bytes", 6e8]


# By layer and by length


def test_parts_by_hand() -> None:
    header, layers = part_table("layer", HAND_MADE)
    odd, square = (dict(zip(header, cells, strict=True)) for cells in layers)
    assert (odd["layer"], odd["held out"], odd["shapes"]) == ("K=301,N=97", "yes", "2")
    assert odd["over its own library"] == f"{math.sqrt(0.9 * 0.92):.3f} x"
    assert odd["worst of these"] == "0.900 x" and odd["mean regret"] == "7.5 %"
    assert not square["held out"] and square["most regret"] == "1.0 %"
    header, lengths = part_table("length", HAND_MADE)
    short, long = (dict(zip(header, cells, strict=True)) for cells in lengths)
    assert (short["length"], long["length"]) == ("T=5", "T=300")
    assert long["over the best prepacked vendor"] == f"{math.sqrt(1.02 * 0.9):.3f} x"


def test_text_and_page_show_layers_and_lengths() -> None:
    tuning = {**facts().tuning, "own_failures": {"N=1 K=1": "no linker"}}
    failed = facts(tuning=tuning, rows=HAND_MADE.reports[0].rows)
    text = render_bench(replace(HAND_MADE, reports=(failed,)))
    assert "## By layer" in text and "## By length" in text
    odd = next(row for row in text.splitlines() if "| K=301,N=97 " in row and "0.910 x" in row)
    assert [cell.strip() for cell in odd.split("|")][4:7] == ["K=301,N=97", "yes", "2"]
    assert "own (dense-every-layer, N=1 K=1): no linker" in text
    page = render_bench_page(HAND_MADE)
    assert page.count('class="plotly-graph-div"') == 3  # over own libraries, vendors, the oracle
    assert "N=97 K=301 (held out)" in page
    wrong = replace(rows(Shape.of(T=7, N=97, K=301), 0.0)[0], correct=False, plan="crashed")
    assert "1 shape, K=301,N=97,T=7: crashed" in render_bench(table([wrong]))


# The check of random shapes


def test_random_shapes_reach_every_edge() -> None:
    shapes = list(random_shapes.random_shapes(EVERY, 2000))
    assert shapes == list(random_shapes.random_shapes(EVERY, 2000))
    assert shapes != list(random_shapes.random_shapes(EVERY, 2000, seed=1))
    inside = [s for s in shapes if all(s[name] in dim for name, dim in EVERY.dims.items())]
    assert len(inside) > 900
    for name, dim in EVERY.dims.items():
        assert {0, 1} <= {s[name] for s in shapes} and max(s[name] for s in shapes) > dim.high
    assert any(s["N"] % 2 and s["K"] % 2 for s in inside)
    for s in shapes:
        assert s["T"] * s["N"] * s["K"] <= random_shapes.MOST_STEPS
        assert max(s["T"] * s["K"], s["N"] * s["K"], s["T"] * s["N"]) <= random_shapes.MOST_ELEMENTS


@pytest.fixture(scope="module")
def library(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    work = Dense(T=Dim(1, 16), N=Dim(16, 96), K=Dim(16, 64))
    schemes = (Scheme.from_key("4x32.u4.ws.p0.even"),)
    return build(Dispatcher(work, here, schemes, Leaf(0)), tmp_path_factory.mktemp("layers"))


def test_a_right_library_passes_and_a_wrong_value_or_call_is_found(library: Operator) -> None:
    assert check_shapes(library, NOBODY, random_shapes.random_shapes(library.workload, 300)).wrong == ()

    class Spoilt:
        workload = library.workload

        def __call__(self, x: Any, w: Any, out: Any) -> None:
            if w.shape[1] == 9:
                raise DispatchError("the weights fit", "others")
            library(x, w, out=out)
            if w.shape[0] == 7:
                out[0, 3] += 0.1
            if w.shape[0] == 11:
                out[0, 0] = np.nan

    spoilt: Any = Spoilt()
    shapes = [Shape.of(T=2, N=n, K=k) for n, k in ((7, 5), (8, 5), (11, 5), (8, 9))]
    found = check_shapes(spoilt, NOBODY, shapes)
    assert found.checked == 4 and set(found.wrong) == {shapes[0], shapes[2], shapes[3]}
    assert found.to_json()["shapes_wrong"][0] == {"K": 5, "N": 7, "T": 2}


# Libraries of single layers


def test_a_contender_of_several_libraries_serves_their_layers_only(here: Hardware, tmp_path: Path) -> None:
    schemes = (Scheme.from_key("4x32.u4.ws.p0.even"),)
    folders = []
    for cols, depth in ((32, 8), (40, 9)):
        work = Dense(T=Dim(1, 16), N=cols, K=depth)
        op = build(Dispatcher(work, here, schemes, Leaf(0)), tmp_path / str(cols))
        folders.append(str(op.path.parent))
    several = LibrariesContender(folders)
    assert several.version() == "2 layers" and several.kind(TINY.workload) == "library"
    shape = Shape.of(T=3, N=40, K=9)
    inputs, out = TINY.workload.inputs(shape), np.empty((3, 40), np.float32)
    several.prepare(TINY.workload, {"w": inputs["w"]}, shape).bind({"x": inputs["x"]}, out, None)()
    assert np.abs(out - TINY.workload.reference(inputs)).max() < 1e-4
    for other in (Shape.of(T=3, N=41, K=9), Shape.of(T=17, N=40, K=9)):
        with pytest.raises(NotTunedError, match=r"one of the libraries must serve the shape; got K=9"):
            several.prepare(TINY.workload, {}, other)


# Memory


def test_the_peak_of_memory_is_of_the_looks_while_trials_are_measured() -> None:
    now, looks = 0.0, iter((5, 9, 7))
    memory = PeakMemory(lambda: next(looks), lambda: now)
    memory.on_event(StageStarted("tune", 3))
    assert memory.bytes is None
    now += SECONDS_BETWEEN
    memory.on_event(TrialMeasured("k", "T=1", 1.0, "ok", 1))
    memory.on_event(TrialMeasured("k", "T=1", 1.0, "ok", 2))  # too early for another look
    assert memory.bytes == 9
    now += SECONDS_BETWEEN
    memory.on_event(StageStarted("tune", 3))
    assert memory.bytes == 9


def test_the_memory_of_this_process_is_plausible() -> None:
    block = np.ones(30_000_000 // 8)
    assert block.nbytes < tree_bytes() < 1 << 40


# The run


def built_without_measuring(study: Study, listeners: Audience, max_kernels: int = 8) -> Operator:
    """Tunes on computed times: a library of this machine in seconds."""
    try:
        return study.operator()
    except DispatchError:
        study.tune(SyntheticRunner(study.hardware), listeners.observers)
        study.dispatch(max_kernels)
        return study.build(listeners.observers)


def test_a_suite_of_layers_runs_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietlab.compare.suites.studies.built", built_without_measuring)
    monkeypatch.setattr(Hardware, "measured", lambda hardware: hardware)
    monkeypatch.setattr(random_shapes, "SHAPES", 200)
    run = partial(
        cli,
        *["bench", "--suite", "smoke-layers", "--effort", "smoke", "--caches", "rotating", "--out"],
        tmp_path,
    )
    done = run()
    found, shapes = ResultTable.load(tmp_path / TABLE), TINY.evaluated("smoke")
    assert all(entry.row.correct for entry in found.entries)
    by_name: dict[str, set[Shape]] = {}
    for entry in found.entries:
        by_name.setdefault(entry.row.contender, set()).add(entry.row.shape)
    assert by_name["dietlab"] == by_name["openblas"] == by_name["oracle"] == set(shapes)
    assert {(s["N"], s["K"]) for s in by_name[OWN]} == {(64, 32), (37, 19)}, "others are not served"
    assert {e.row.shape for e in found.entries if e.row.held_out} >= {s for s in shapes if s["N"] in (37, 50)}
    (study,) = found.reports
    assert study.library["shapes_checked"] == 200 and study.library["shapes_wrong"] == []
    assert {"dispatch_ns", "python_call_us"} <= set(study.library)
    assert set(study.tuning["own_seconds"]) == {"N=64 K=32", "N=37 K=19"}
    assert study.tuning["peak_bytes"] > 1 << 20
    assert "over each layer's own library, worst layer" in done.stdout and "## By layer" in done.stdout
    # A kill after three turns: the rest is measured, nothing is tuned or checked again.
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    turns = [line for line in lines if b'"rows"' in line]
    kept = [line for line in lines if line not in turns] + turns[:3]
    (tmp_path / JOURNAL).write_bytes(b"".join(kept) + b'{"workload":"dense-ti')
    monkeypatch.setattr("dietlab.compare.suites.run.check_shapes", None)
    run()
    journal = read_journal(tmp_path / JOURNAL)
    assert {turn.shape for turn in journal.rows} == set(shapes)
    assert (tmp_path / JOURNAL).read_bytes().startswith(b"".join(kept))
    assert journal.studies[study.name, 1].tuning["peak_bytes"] == study.tuning["peak_bytes"]
    assert "<html" in (tmp_path / "bench.html").read_text()


def test_a_layer_whose_own_library_fails_has_a_reason(
    tmp_path: Path, here: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietlab.compare.suites.studies import own_libraries

    def refuse(*_: Any) -> Any:
        raise DispatchError("a linker must be installed", "none")

    monkeypatch.setattr("dietlab.compare.suites.studies.built", refuse)
    found = own_libraries(TINY, "smoke", here, tmp_path, "smoke", NOBODY)
    assert found.entrants == () and set(found.failures) == {"N=64 K=32", "N=37 K=19"}
    assert found.facts == {
        "own_failures": dict.fromkeys(found.failures, "a linker must be installed; got none")
    }
    without = replace(TINY, against=("mkl",))
    assert own_libraries(without, "smoke", here, tmp_path, "smoke", NOBODY).facts == {}

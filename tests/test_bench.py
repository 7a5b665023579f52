"""The bench: suites, the resumable run, the table, the summary's arithmetic and targets, the page."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from time import sleep
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import psutil
import pytest
from conftest import ROOT, Golden, cli, python
from hypothesis import given
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.base.errors import BuildError, DietlabError, RecordError, StudyError
from dietlab.base.events import Event, Stage, StageAdvanced, StageFinished, StageStarted, audience
from dietlab.cli.bench import LEFT_OVER, chosen_suite
from dietlab.compare.lineup import contenders_for
from dietlab.compare.results.criteria import CPU_CRITERIA, CRITERIA, SHORT, Criterion, Target
from dietlab.compare.results.journal import Journal, Turn, read_journal
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.results.samples import bounds, is_prime
from dietlab.compare.results.summary import Line, by_workload, interval, line_of, summarise
from dietlab.compare.results.table import COLUMNS, ResultTable
from dietlab.compare.study import Study
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.compare.suites.lengths import LENGTHS, PAPER_LENGTHS
from dietlab.compare.suites.run import JOURNAL, TABLE, jobs, play, run_bench
from dietlab.compare.suites.suite import SUITES, suite_named
from dietlab.lab.ablation import SYMBOLIC, chosen_variants, dominating, heights, variants
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.scheme import Leaf, Scheme, Split
from dietlab.targets.cpu.space import layout_limits
from dietlab.tuning import Dispatcher
from dietlab.view.pages.bench import render_bench_page, write_bench
from dietlab.view.pages.bench_text import markdown, render_bench
from dietlab.view.pages.report import render_html, render_text

HOSTILE = "<script>alert('x')</script>"
QKV = Dense(T=Dim(1, 2048), N=2304, K=768)
CONTENDERS = (
    ContenderInfo("dietlab", "ours"),
    ContenderInfo("mkl", "plain"),
    ContenderInfo("openblas", "plain"),
    ContenderInfo("mkl-packed", "prepacked"),
    ContenderInfo("onednn-packed", "prepacked"),
    ContenderInfo("ansor", "scheduler"),
    ContenderInfo("oracle", "bound"),
    ContenderInfo("onnxruntime", "prepacked", absent="not installed " + HOSTILE),
)


def row(length: int, contender: str, us: float, ours: float | None = None, **changed: Any) -> Row:
    s = us / 1e6
    gflops = 2 * length * 2304 * 768 / s / 1e9
    made = Row(Shape.of(T=length), length == 7, contender, "rotating", s, 0.9 * s, 1.1 * s, gflops, True)
    return replace(made, speedup=us / ours if ours else None, **changed)


def facts(name: str = "qkv", threads: int = 1, **changed: Any) -> Report:
    hardware = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0, dram_gbps=20.0, l3_gbps=60.0)
    tuning, library = {"total_seconds": 30.0, "trials": 64}, {"bytes": 20480, "kernels": 4}
    made = Report(QKV.to_json(), hardware.with_cores(threads).to_json(), {}, tuning, library, (), CONTENDERS)
    return replace(made, name=name, **changed)


def table(rows: Iterable[Row], studies: tuple[Report, ...] = (), threads: int = 1) -> ResultTable:
    found = tuple(rows)
    reports = (replace(study, rows=found) for study in studies or (facts(threads=threads),))
    about = {"suite": "hand-made", "effort": "none", "versions": {"dietlab": "0"}}
    return ResultTable(tuple(reports), about)


def turn_rows(length: int, ours: float = 100.0, cache: str = "rotating", **others: float) -> list[Row]:
    """Our row and those of others; their times are given as multiples of ours."""
    names = {name.replace("_", "-"): factor for name, factor in others.items()}
    rows = [row(length, name, ours * factor, ours, cache=cache) for name, factor in names.items()]
    return [row(length, "dietlab", ours, cache=cache, roofline=0.5, plan="8x32.u4.ws.p0"), *rows]


HAND_MADE = table(
    [
        *turn_rows(7, 100.0, mkl=1.5, openblas=2.5, mkl_packed=1.2, onednn_packed=1.1, oracle=0.95),
        *turn_rows(64, 500.0, mkl=2.0, mkl_packed=0.9, onednn_packed=1.3),
        row(64, "openblas", math.nan, correct=False, gflops=0.0, plan="an error of 1e+00 is above 1e-05"),
        *turn_rows(7, 80.0, "hot", mkl=1.5, mkl_packed=1.0),
    ]
)


def pick(lines: Iterable[Line], measure: str, statistic: str, cache: str = "rotating", **match: Any) -> Line:
    found = [
        line
        for line in lines
        if (line.criterion.measure, line.criterion.statistic, line.cache) == (measure, statistic, cache)
        and all(getattr(line.criterion.of, name) == value for name, value in match.items())
    ]
    assert len(found) == 1, found
    return found[0]


# Suites


def test_suites_hold_the_operators_of_the_models() -> None:
    bert = SUITES["bert-cpu"].tasks
    dense = {(t.workload.to_json()["K"], t.workload.to_json()["N"]) for t in bert if "dense" in t.name}
    assert dense == {(768, 768), (768, 2304), (768, 3072), (3072, 768)}
    batched = [t.workload for t in bert if "batch" in t.name]
    assert {w.operator for w in batched} == {"batch-matmul-nt", "batch-matmul-nn"}
    assert all((w.to_json()["B"], w.to_json()["D"], w.dims["T"]) == (192, 64, Dim(1, 128)) for w in batched)
    (llm,) = SUITES["llm-cpu"].tasks
    assert llm.workload == Dense(T=Dim(1, 512), N=4096, K=4096)
    for suite in SUITES.values():
        assert len({task.name for task in suite.tasks}) == len(suite.tasks)


def test_lengths_of_the_efforts() -> None:
    assert ShapeSet.uniform(Dense(T=Dim(1, 128), N=1, K=1), 8).shapes == tuple(
        Shape.of(T=length) for length in PAPER_LENGTHS
    )
    full, quick = LENGTHS["full"], LENGTHS["quick"]
    assert full[:128] == tuple(range(1, 129)) and len([t for t in full if t > 128]) == 24
    assert 20 <= len([t for t in quick if t <= 128]) <= 28
    for effort, lengths in LENGTHS.items():
        assert list(lengths) == sorted(set(lengths)), effort
    for lengths in (full, quick):
        primes = [t for t in lengths if is_prime(t) and t >= 17]
        between = [t for t in primes if {t // 8 * 8, t // 8 * 8 + 8} <= set(lengths)]
        assert len(between) >= 5 and max(between) > 128
    for task in SUITES["bert-cpu"].tasks:
        assert set(task.evaluated("quick")) - set(task.shapes), "some lengths are held out"
        assert all(shape["T"] in task.workload.dims["T"] for shape in task.evaluated("full"))


def test_a_suite_is_narrowed_by_a_pattern_and_by_contenders() -> None:
    bert = suite_named("bert-cpu")
    assert [t.name for t in bert.only("n2304").tasks] == ["dense-k768-n2304"]
    assert len(bert.only("batch*").tasks) == 2 and bert.only("") == bert
    assert {t.against for t in bert.against(("mkl",)).tasks} == {("mkl",)}
    more = bert.against(("ansor", "mkl"), added=True)
    assert [t.against for t in more.tasks] == [(*t.against, "ansor") for t in bert.tasks]
    assert chosen_suite("bert-cpu", None, "+ansor,mkl") == more
    assert chosen_suite("bert-cpu", "cpu", "mkl") == bert.against(("mkl",))
    assert chosen_suite("bert-cpu", None, None) == bert
    with pytest.raises(DietlabError, match="bert-cpu has dense-k768-n768"):
        bert.only("conv")
    with pytest.raises(
        DietlabError,
        match="a suite is one of bert-cpu, layers, paper-cpu, low-precision, llm-cpu, resnet50, "
        "resnet50-layers, speech, depthwise, smoke-conv, smoke, smoke-layers, smoke-gpu, "
        "paper-gpu, bert-gpu, llm-gpu, decoder-gpu, first-gpu, resnet50-gpu; got 'gpt'",
    ):
        suite_named("gpt")


def test_suites_of_a_gpu_hold_the_issue_s_operators() -> None:
    dense, *batched = SUITES["paper-gpu"].tasks
    assert dense.workload == Dense(T=Dim(16, 2048), N=2304, K=768)
    quick = sorted({1, 2, 4, 8, 16, 32, *PAPER_LENGTHS})
    assert [s["T"] for s in dense.evaluated("quick")] == [16 * t for t in quick]
    assert [s["T"] for s in dense.evaluated("full")] == [16 * t for t in range(1, 129)]
    assert dense.shapes == ShapeSet.extents(dense.workload, [16 * t for t in PAPER_LENGTHS])
    assert {task.workload.operator for task in batched} == {"batch-matmul-nt", "batch-matmul-nn"}
    for task in batched:
        assert (task.workload.to_json()["B"], task.workload.to_json()["D"]) == (192, 64)
        assert [s["T"] for s in task.evaluated("quick")] == quick
        assert [s["T"] for s in task.evaluated("full")] == list(range(1, 129))
    llm = SUITES["llm-gpu"].tasks
    layers = [task.workload.to_json() for task in llm]
    assert [(w["N"], w["K"]) for w in layers] == [(4096, 4096), (4096, 14336), (14336, 4096)]
    for task in llm:
        assert task.workload.dtype == "bfloat16"
        assert [s["T"] for s in task.evaluated("full")][:512] == list(range(1, 513))
        assert task.evaluated("full")[-1] == Shape.of(T=4096)


def test_one_operator_of_a_gpu_serves_all_layers_of_a_model() -> None:
    """Evaluated at lengths, and at layers, that tuning does not see."""
    bert, decoder = SUITES["bert-gpu"].tasks, SUITES["decoder-gpu"].tasks
    assert [task.workload.dtype for task in (*bert, *decoder)] == ["float32", "bfloat16", "bfloat16"]
    for task in (*bert, *decoder):
        tuned = list(task.shapes)
        layers = {(shape["N"], shape["K"]) for shape in tuned}
        evaluated = task.evaluated("full")
        assert {s["T"] for s in evaluated}.isdisjoint({s["T"] for s in tuned})
        assert layers < {(s["N"], s["K"]) for s in evaluated}
    assert {(s["N"], s["K"]) for s in bert[0].shapes} == {
        (768, 768), (2304, 768), (3072, 768), (768, 3072),
    }  # fmt: skip


def test_convolutions_on_a_gpu_meet_cudnn() -> None:
    tasks = SUITES["resnet50-gpu"].tasks
    assert {t.against for t in tasks} == {("cudnn", "cudnn-tuned", "oracle")}
    for dtype in ("float32", "bfloat16"):
        found = [task.workload.to_json() for task in tasks if task.workload.dtype == dtype]
        assert sorted(work["IC"] for work in found) == [64, 128, 256, 512]


def test_the_first_operators_on_a_lent_gpu_are_the_paper_s_dense_layer_and_one_in_bfloat16() -> None:
    first = SUITES["first-gpu"].tasks
    assert [t.name for t in first[:2]] == ["dense-k768-n2304", "dense-k4096-n4096-bfloat16"]
    assert [t.workload.dtype for t in first[:2]] == ["float32", "bfloat16"]
    assert {t.against for t in first} == {("cublas", "cublaslt", "cublaslt-tuned")}
    others = (*SUITES["paper-gpu"].tasks, *SUITES["llm-gpu"].tasks)
    assert {(t.name, t.workload, t.tuned) for t in first} == {(t.name, t.workload, t.tuned) for t in others}


@pytest.mark.parametrize("name", ["paper-gpu", "bert-gpu", "llm-gpu", "decoder-gpu", "first-gpu"])
def test_suites_of_a_gpu_are_complete(name: str) -> None:
    suite = suite_named(name)
    assert suite.target == "cuda" and suite.caches == ("hot", "rotating")
    for task in suite.tasks:
        assert set(task.against) <= set(contenders_for("cuda")) and "cublas" in task.against
        for effort in LENGTHS:
            shapes = task.evaluated(effort)
            assert list(shapes) == sorted(set(shapes)) and shapes
        assert task.shapes and len(task.evaluated("quick")) <= 21
    assert suite.only("").target == suite.against(("cublas",)).target == "cuda"


# The table


def test_table_has_the_promised_columns(golden: Golden) -> None:
    golden("bench.csv", HAND_MADE.to_csv())


def test_table_survives_its_files(tmp_path: Path) -> None:
    for name in ("bench.csv", "bench.csv.gz"):
        HAND_MADE.save(tmp_path / name)
        loaded = ResultTable.load(tmp_path / name)
        assert loaded.to_csv() == HAND_MADE.to_csv() and loaded.about == HAND_MADE.about
        assert [r.facts for r in loaded.reports] == [r.facts for r in HAND_MADE.reports]
        values, expected = ([line.value for line in summarise(made)] for made in (loaded, HAND_MADE))
        assert values == pytest.approx(expected, rel=1e-5)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".new"]


@pytest.mark.parametrize("lacking", [["again"], ["first_seconds"], ["again", "first_seconds"]])
def test_tables_from_before_a_column_was_measured_are_read(lacking: list[str], tmp_path: Path) -> None:
    (report,) = HAND_MADE.reports
    rows = tuple(replace(row, again=1.1, first_seconds=0.5) for row in report.rows)
    table = replace(HAND_MADE, reports=(replace(report, rows=rows),))
    table.save(tmp_path / "bench.csv")
    assert ResultTable.load(tmp_path / "bench.csv").to_csv() == table.to_csv()
    older = pd.read_csv(io.StringIO(table.to_csv()), dtype=str).drop(columns=lacking)
    older.to_csv(tmp_path / "bench.csv", index=False)
    loaded = ResultTable.load(tmp_path / "bench.csv")
    expected = tuple(replace(row, **dict.fromkeys(lacking)) for row in rows)
    table = replace(table, reports=(replace(report, rows=expected),))
    assert loaded.to_csv() == table.to_csv()


def test_frame_is_the_csv_with_the_micro_kernel_of_each_plan() -> None:
    frame, kernel = HAND_MADE.to_frame(), cpu_scheme(8, 32, 4, edge="padded")
    assert (*frame.columns,) == (*COLUMNS[:-1], *kernel.columns, "reason")
    assert len(frame) == len(HAND_MADE.entries)
    first = frame.iloc[0]
    assert (first["T"], first["seconds_median"], first["roofline"]) == (7, 80e-6, 0.5)
    assert first[list(kernel.columns)].to_dict() == kernel.columns
    assert frame[frame["contender"] == "mkl"]["rows"].isna().all()


def test_frame_of_the_summary_has_the_numbers_of_its_lines() -> None:
    frame, lines = HAND_MADE.summary_frame(), summarise(HAND_MADE)
    assert frame["what"].tolist() == [line.criterion.what for line in lines]
    for row, line in zip(frame.to_dict("records"), lines, strict=True):
        percent = line.criterion.unit == "%"
        scale = {"share": 0.01, "bytes": 1024}.get(row["unit"], 1)
        assert (row["unit"] == "share") == percent
        assert row["value"] == pytest.approx(scale * line.value)
        assert (None if pd.isna(row["met"]) else row["met"]) is line.met
        assert pd.isna(row["target"]) == (line.met is None)
        if line.met is not None:
            above = row["value"] >= row["target"]
            assert line.met == (above if row["better"] == "higher" else row["value"] <= row["target"])
    assert set(frame["unit"]) <= {"ratio", "share", "s", "bytes", "count"} and frame["target"].notna().any()
    assert ResultTable(()).summary_frame().empty


def test_order_of_the_table_does_not_depend_on_the_order_of_measuring() -> None:
    (report,) = HAND_MADE.reports
    turned = replace(HAND_MADE, reports=(replace(report, rows=report.rows[4:] + report.rows[:4]),))
    lines = csv.DictReader(io.StringIO(turned.to_csv()))
    key = [(r["workload"], int(r["threads"]), r["cache"], int(r["T"])) for r in lines]
    assert key == sorted(key)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a,b\n1,2\n", "the right columns"),
        (",".join(COLUMNS) + "\nqkv,x" + "," * (len(COLUMNS) - 2) + "\n", "line 2"),
        (",".join(COLUMNS) + "\nother,1" + "," * (len(COLUMNS) - 2) + "\n", "KeyError"),
    ],
)
def test_foreign_tables_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    HAND_MADE.save(tmp_path / "bench.csv")
    (tmp_path / "bench.csv").write_text(content)
    with pytest.raises(RecordError, match=complaint):
        ResultTable.load(tmp_path / "bench.csv")


def test_a_table_without_its_facts_is_refused(tmp_path: Path) -> None:
    HAND_MADE.save(tmp_path / "bench.csv")
    (tmp_path / "bench.json").write_text('{"schema_version": 9}')
    with pytest.raises(RecordError, match="schema 2"):
        ResultTable.load(tmp_path / "bench.csv")
    (tmp_path / "bench.json").unlink()
    with pytest.raises(RecordError, match="JSON beside it"):
        ResultTable.load(tmp_path / "bench.csv")
    with pytest.raises(RecordError, match=r"got other, 3 threads. It has qkv \(one core\)"):
        HAND_MADE.report("other", 3)


# The journal


def turn(length: int) -> Turn:
    return Turn("qkv", 1, "rotating", Shape.of(T=length))


def test_journal_keeps_whole_turns_and_drops_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    journal = Journal(path, {"suite": "s", "started": "today"})
    journal.add_study(facts(failure="no"))
    journal.add_rows(turn(7), turn_rows(7, mkl=1.5))
    whole = path.read_bytes()
    journal.add_rows(turn(64), turn_rows(64, mkl=2.0))
    path.write_bytes(path.read_bytes()[:-9])
    assert list(read_journal(path).rows) == [turn(7)]  # reading leaves the file as it is
    assert path.read_bytes() != whole
    again = Journal(path, {"suite": "s", "started": "tomorrow"})
    assert path.read_bytes() == whole
    again.add_study(facts())
    assert list(again.rows[turn(7)]) == turn_rows(7, mkl=1.5) and not again.kept.table.failures
    assert again.kept.about["started"] == "today"


def test_rows_without_their_study_are_no_table(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL, {})
    journal.add_rows(turn(7), turn_rows(7, mkl=1.5))
    with pytest.raises(RecordError, match=r"the study of each of its rows; got .*qkv"):
        _ = journal.kept.table


def test_journal_of_another_bench_or_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    Journal(path, {"suite": "s"})
    with pytest.raises(
        RecordError, match=r"a bench must have been begun in the folder; got .*: no .* `dietlab bench --out"
    ):
        read_journal(tmp_path / "elsewhere" / JOURNAL)
    with pytest.raises(
        StudyError, match=r"must be continued with its own suite; got other. It has s. Choose another --out"
    ):
        Journal(path, {"suite": "other"})
    path.write_text(path.read_text() + "{torn\n" + "{}\n")
    with pytest.raises(RecordError, match="is JSON"):
        Journal(path, {"suite": "s"})
    path.write_text('{"schema_version": 7}\n')
    with pytest.raises(RecordError, match="schema 1"):
        Journal(path, {"suite": "s"})


# The summary


def test_summary_by_hand() -> None:
    lines = summarise(HAND_MADE)
    best = pick(lines, "prepacked", "geomean", lengths=(1, 128))
    assert best.value == pytest.approx(math.sqrt(1.1 * 0.9)) and best.shapes == 2
    assert best.met is False and best.verdict == "missed"
    assert (best.worst.length, best.worst.value) == (64, pytest.approx(0.9))
    assert pick(lines, "prepacked", "geomean", lengths=(1, 32)).value == pytest.approx(1.1)
    assert pick(lines, "prepacked", "worst", lengths=(1, 128)).met is False
    assert pick(lines, "plain", "geomean", operators="dense").value == pytest.approx(math.sqrt(1.5 * 2.0))
    assert pick(lines, "plain", "geomean", operators="dense").met is True
    # A target for cold weights is none for hot ones.
    assert pick(lines, "prepacked", "geomean", "hot", lengths=(1, 128)).met is None
    assert pick(lines, "tuning", "total", "").value == 30 and pick(lines, "tuning", "total", "").met is None
    assert pick(lines, "code", "most", "").value == 20 and pick(lines, "code", "most", "").met is True
    assert not [line for line in lines if line.criterion.measure in ("ansor", "cores", "peak", "prime")]


def test_by_workload_says_the_same_for_one_workload() -> None:
    pooled = {(x.criterion, x.cache): x for x in summarise(HAND_MADE) if x.cache}
    assert {(x.criterion, x.cache): x for x in by_workload(HAND_MADE)} == pooled


def test_regret_peak_and_prime() -> None:
    rows = [
        row(16, "dietlab", 100.0, regret=0.01),
        row(17, "dietlab", 120.0, regret=0.03),
        row(24, "dietlab", 150.0, regret=-0.01),
        row(128, "dietlab", 5000.0),
        row(19, "dietlab", 1.0, correct=False),
    ]
    lines = summarise(table(rows))
    assert pick(lines, "regret", "mean").value == pytest.approx(1.0)
    assert pick(lines, "regret", "mean").worst.length == 17
    assert pick(lines, "regret", "p99").met is True
    prime = pick(lines, "prime", "worst")
    assert prime.shapes == 1 and prime.value == pytest.approx((17 / 120) / (16 / 100))
    peak = pick(lines, "peak", "mean")
    assert peak.shapes == 1 and peak.value == pytest.approx(2 * 128 * 2304 * 768 / 5e-3 / 1e9)
    other = summarise(table(rows, (facts(workload=replace(QKV, N=768).to_json()),)))
    assert not [line for line in other if line.criterion.measure == "peak"]


def test_two_cores_are_compared_with_one() -> None:
    one = facts(rows=tuple(row(t, "dietlab", 200.0) for t in (8, 32, 64)))
    on_two = ((8, 1.0), (32, 100.0), (64, 125.0), (96, 1.0))  # 96 was not measured on one core
    two = facts(threads=2, rows=tuple(row(t, "dietlab", us) for t, us in on_two))
    line = pick(summarise(ResultTable((one, two))), "cores", "geomean")
    assert (line.threads, line.shapes) == (2, 2)
    assert line.value == pytest.approx(math.sqrt(2.0 * 1.6)) and line.met is False


def test_tuning_is_judged_when_all_workloads_are_there() -> None:
    def total(seconds: float, count: int) -> Line:
        studies = tuple(facts(f"w{i}", tuning={"total_seconds": seconds}) for i in range(count))
        return pick(summarise(table(turn_rows(7), studies)), "tuning", "total", "")

    assert total(90.0, 6).met is True and total(90.0, 6).value == 540
    assert total(101.0, 6).met is False
    assert total(90.0, 5).met is None
    assert total(130.0, 5).met is False, "beyond the limit already"


def test_failed_studies_are_named_and_count_nowhere() -> None:
    failed = facts("broken", failure="the linker is missing " + HOSTILE, tuning={}, library={})
    found = replace(HAND_MADE, reports=(*HAND_MADE.reports, failed))
    assert found.failures == (failed,)
    assert pick(summarise(found), "tuning", "total", "").value == 30
    assert "broken, one core: the linker is missing" in render_bench(found)


def test_targets_stand_in_one_table_and_are_complete() -> None:
    found = {
        (c.measure, c.statistic, c.of.lengths): (c.target.at_least, c.target.at_most)
        for c in CPU_CRITERIA
        if c.target
    }
    large = 1 << 30
    expected = {
        ("prepacked", "geomean", (1, 128)): (1.10, None),
        ("prepacked", "geomean", (1, 32)): (1.25, None),
        ("prepacked", "worst", (1, 128)): (0.92, None),
        ("prepacked", "geomean", (129, 2048)): (1.0, None),
        ("plain", "geomean", (1, 64)): (1.6, None),
        ("ansor", "geomean", (1, large)): (1.3, None),
        ("ansor", "worst", (1, large)): (1.0, None),
        ("regret", "mean", (1, large)): (None, 1.0),
        ("regret", "p99", (1, large)): (None, 5.0),
        ("kernels", "most", (1, large)): (None, 8.0),
        ("code", "most", (1, large)): (None, 256.0),
        ("peak", "mean", (128, large)): (88.0, None),
        ("tuning", "total", (1, large)): (None, 600.0),
        ("cores", "geomean", (32, large)): (1.85, None),
    }
    assert {name: found[name] for name in expected} == expected


ratios = st.lists(st.floats(0.2, 5.0), min_size=1, max_size=40)


@given(ratios)
def test_geometric_mean_and_interval_stay_between_the_extremes(values: list[float]) -> None:
    rows = [r for i, v in enumerate(values, 1) for r in turn_rows(i, mkl_packed=v)]
    line = pick(summarise(table(rows)), "prepacked", "geomean", lengths=(1, 128))
    assert line.shapes == len(values) and line.value == pytest.approx(geometric_mean(values))
    assert line.worst.value == pytest.approx(min(values))
    if line.low is not None and line.high is not None:
        assert min(values) - 1e-9 <= line.low <= line.value * (1 + 1e-9)
        assert line.value * (1 - 1e-9) <= line.high <= max(values) + 1e-9
    assert (line.low is None) == (len(values) == 1)
    assert line.met == (line.value >= 1.10)


@given(ratios, st.floats(0.2, 5.0))
def test_the_best_vendor_is_never_easier_to_beat_than_any(values: list[float], other: float) -> None:
    both = [r for i, v in enumerate(values, 1) for r in turn_rows(i, mkl_packed=v, onednn_packed=other)]
    line = pick(summarise(table(both)), "prepacked", "geomean", lengths=(1, 128))
    assert line.value <= min(geometric_mean(values), other) * (1 + 1e-9)
    assert line.worst.value == pytest.approx(min(*values, other))


@given(st.lists(st.floats(0.5, 20.0), min_size=2, max_size=60), st.integers(0, 3))
def test_interval_holds_the_mean_and_repeats(values: list[float], seed: int) -> None:
    import numpy as np

    array = np.array(values)
    low, high = interval("mean", array, seed)
    assert low is not None and high is not None
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert (low, high) == interval("mean", array, seed)
    assert interval("worst", array) == (None, None)


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_a_target_is_met_exactly_from_its_bound_on(value: float, bound: float) -> None:
    above = Criterion("prepacked", "geomean", "", target=Target(at_least=bound))
    below = Criterion("regret", "mean", "", target=Target(at_most=bound))
    assert above.met(value) == (value >= bound) and below.met(value) == (value <= bound)
    assert Criterion("plain", "geomean", "").met(value) and not Criterion("plain", "geomean", "").goal


def test_targets_hold_where_they_are_meant() -> None:
    from dietlab.compare.results.samples import Sample

    target = Target(88.0, threads=(1,), caches=("hot",))
    criterion = Criterion("peak", "mean", "", "%", target=target)
    found = [Sample("w", Shape.of(T=128), 90.0)]
    assert line_of(criterion, 1, "hot", found).verdict == "met"
    assert line_of(criterion, 2, "hot", found).verdict == ""
    assert line_of(criterion, 1, "rotating", found).verdict == ""


# The roofline


def test_bounds_by_hand() -> None:
    (bound,) = [b for b in bounds(HAND_MADE) if b.length == 64]
    flops, moved = 2 * 64 * 2304 * 768, 4 * (64 * 768 + 2304 * 768 + 64 * 2304)
    assert (bound.flops, bound.bytes) == (flops, moved)
    roofline = bound.roofline
    assert roofline.compute_seconds == pytest.approx(flops / 100e9)
    assert roofline.memory_seconds == pytest.approx(4 * 2304 * 768 / 20e9), "weights rotate, x and y do not"
    assert roofline.l3_seconds == pytest.approx(moved / 60e9)
    assert bound.compute_share == pytest.approx(flops / 100e9 / 500e-6)
    assert bound.share == roofline.least_seconds(bound.cache) / 500e-6
    unknown = replace(Hardware.preset("haswell-1core"), peak_gflops=None).to_json()
    assert not list(bounds(table(turn_rows(64), (facts(hardware=unknown),))))


def test_the_summary_says_what_a_kernel_at_the_roofline_would_reach() -> None:
    line = pick(summarise(HAND_MADE), "prepacked", "geomean", lengths=SHORT)
    measured = ((7, 110e-6), (64, 450e-6))  # length, seconds of the fastest prepacked vendor
    ceilings = [s / max(2 * t * 2304 * 768 / 100e9, 4 * 2304 * 768 / 20e9) for t, s in measured]
    assert line.ceiling == pytest.approx(geometric_mean(ceilings))
    assert pick(summarise(HAND_MADE), "kernels", "most", cache="").ceiling is None
    unknown = replace(Hardware.preset("haswell-1core"), peak_gflops=None).to_json()
    unmeasured = table(turn_rows(64, mkl_packed=1.5), (facts(hardware=unknown),))
    assert pick(summarise(unmeasured), "prepacked", "geomean", lengths=SHORT).ceiling is None


def test_while_weights_come_from_memory_a_prime_length_cannot_be_as_fast_as_a_longer_one() -> None:
    def roofline(length: int) -> float:
        flops = 2 * length * 2304 * 768
        return flops / max(flops / 100e9, 4 * 2304 * 768 / 20e9)

    rows = [row(length, "dietlab", 10.0 * length) for length in (8, 11, 16, 128, 131, 136)]
    prime = pick(summarise(table(rows)), "prime", "worst")
    assert prime.value == pytest.approx(1) and prime.shapes == 1 and prime.worst.length == 131
    assert prime.ceiling == pytest.approx(roofline(131) / roofline(136)) == 1
    slow = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0, dram_gbps=1.0).to_json()
    starved = pick(summarise(table(rows, (facts(hardware=slow),))), "prime", "worst")
    assert starved.ceiling == pytest.approx(131 / 136)


# Views


def test_markdown_is_aligned_and_safe() -> None:
    text = markdown(("a", "what"), [("x|y", "1"), ("long cell", "2")])
    assert len({len(line) for line in text.splitlines()}) == 1
    assert "x\\|y" in text and text.splitlines()[1].startswith("| ---")


def test_text_has_the_summary_with_intervals_targets_and_notes() -> None:
    text = render_bench(HAND_MADE)
    line = next(x for x in text.splitlines() if "prepacked vendor, T=1..128" in x and "rotating" in x)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:3] == ["one core", "rotating"] and cells[4] == "0.995 x" and " to " in cells[5]
    assert cells[6] == "0.900 qkv T=64" and cells[8:10] == [">= 1.1 x", "missed"]
    assert cells[7].endswith(" x") and float(cells[7][:-2]) > 0
    assert "openblas, qkv, one core, rotating: 1 shape, T=64" in text
    assert "onnxruntime (qkv): not installed" in text
    assert "## Roofline" in text and "100 GFLOP/s" in text


def test_page_is_self_contained_and_escapes(tmp_path: Path) -> None:
    from test_view import Page

    html = write_bench(HAND_MADE, tmp_path / "bench.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.loads == []
    assert "@import" not in html.partition("<script>")[0]
    assert HOSTILE not in html
    assert html.count('class="plotly-graph-div"') == 3  # two speedups, one share of the roofline
    assert '<td class="missed">missed</td>' in html and '<td class="met">met</td>' in html
    assert "Which plan each length got" not in page.text


def test_names_have_no_place_in_a_script() -> None:
    reports = tuple(replace(report, name=HOSTILE) for report in HAND_MADE.reports)
    assert HOSTILE not in render_bench_page(replace(HAND_MADE, reports=reports, about={"suite": HOSTILE}))


def test_page_has_a_place_for_plans() -> None:
    figure = go.Figure(go.Bar(x=[1, 2], y=[3.0, 4.0]))
    html = render_bench_page(HAND_MADE, {"qkv, one core": figure})
    assert "Which plan each length got, and why" in html and "qkv, one core" in html
    assert html.count('class="plotly-graph-div"') == 4


def test_shares_of_the_roofline_above_one_are_explained() -> None:
    fast = replace(row(7, "dietlab", 10.0), roofline=1.08)
    text = render_bench(table([fast, *turn_rows(64, mkl=1.0)]))
    assert "1 time is above 100 % of the roofline, up to 108 %: the bandwidth was measured once" in text
    report = table([fast]).report("qkv", 1)
    assert "up to 108 %" in report.remarks[-1] and report.remarks[:-1] == report.notes
    assert "up to 108 %" in render_text(report) and "up to 108 %" in render_html(report)
    assert "above 100 %" not in render_bench(HAND_MADE)


def test_a_bench_without_a_single_right_result_is_shown_as_such() -> None:
    wrong = row(7, "dietlab", math.nan, correct=False, gflops=0.0, plan="crashed")
    found = table([wrong, row(7, "mkl", 10.0)])
    assert "dietlab, qkv, one core, rotating: 1 shape, T=7: crashed" in render_bench(found)
    assert [entry.length for entry in found.wrong] == [7] and not HAND_MADE.wrong
    assert "Wrong results, not counted" in render_bench_page(found)


def test_worst_shapes_are_marked_and_long_ranges_have_a_logarithmic_axis() -> None:
    from dietlab.view.figures.bench import frame_worst, plot_bench_roofline, plot_bench_speedup

    figure = plot_bench_speedup(HAND_MADE, "qkv", 1, "rotating")
    (worst,) = [trace for trace in figure.data if trace.name.startswith("worst: ")]
    assert worst.name == "worst: T=64 0.90x<br>T=7 1.10x" and list(worst.x) == [64, 7]
    assert figure.layout.xaxis.type != "log"
    worst_of = frame_worst(HAND_MADE.report("qkv", 1), "rotating", 1)
    assert [*worst_of["contender"]] == ["best prepacked vendor"]
    wide = table([*turn_rows(1, mkl=1.0), *turn_rows(2048, mkl=3.0)])
    assert plot_bench_speedup(wide, "qkv", 1, "rotating").layout.xaxis.type == "log"
    shares = plot_bench_roofline(HAND_MADE, "qkv")
    assert {trace.name for trace in shares.data} == {"hot", "rotating"}
    assert [list(trace.y) for trace in shares.data if trace.name == "rotating"] == [[50.0, 50.0]]


# The run


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def test_what_is_measured_is_not_to_do_again(tmp_path: Path) -> None:
    smoke = suite_named("smoke")
    journal = Journal(tmp_path / JOURNAL, {})
    (job,) = jobs(smoke, [1], ["hot", "rotating"], "smoke", journal)
    lengths = [t["T"] for t in smoke.tasks[0].evaluated("smoke")]
    assert len(job.turns) == 2 * len(lengths) and {t.shape["T"] for t in job.turns} == set(lengths)
    journal.add_rows(job.turns[3], turn_rows(7))
    (rest,) = jobs(smoke, [1], ["hot", "rotating"], "smoke", journal)
    assert rest.turns == job.turns[:3] + job.turns[4:] and rest.name == "dense-tiny-1t"


def test_a_task_that_fails_leaves_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise BuildError("a linker must be installed", "none")

    monkeypatch.setattr("dietlab.compare.suites.studies.built", refuse)
    monkeypatch.setattr(Hardware, "measured", lambda hardware: hardware)
    heard = Heard()
    found = run_bench(suite_named("smoke"), tmp_path, caches=("hot",), effort="smoke", observers=[heard])
    assert [f.failure for f in found.failures] == [
        "a linker must be installed; got none"
    ] and not found.entries
    started, study, ended, advanced, _ = heard.events
    assert isinstance(started, StageStarted) and isinstance(advanced, StageAdvanced)
    assert isinstance(study, StageStarted) and isinstance(ended, StageFinished)
    assert study.stage == ended.stage == "dense-tiny-1t"
    assert advanced.done == started.total and "failed" in advanced.note
    assert "a linker must be installed" in cli("bench", "--summary", "--out", tmp_path, exits=1).stdout


def test_impossible_runs_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    smoke = suite_named("smoke")
    with pytest.raises(DietlabError, match=r"contenders are .*; got cublas"):
        run_bench(smoke.against(("cublas",)), tmp_path / "a")
    with pytest.raises(DietlabError, match=r"cache states are hot, .*; got cold"):
        run_bench(smoke, tmp_path / "a", caches=("cold",))
    with pytest.raises(DietlabError, match="as many cores as threads; got 4096"):
        run_bench(smoke, tmp_path / "b", threads=(4096,))
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="the folder must be creatable"):
        run_bench(smoke, tmp_path / "file")


def test_help_teaches() -> None:
    shown = cli("bench", "--help").output
    for word in ("bert-cpu", "llm-cpu", "goes on", "bench.csv", "--only", "--effort full"):
        assert word in shown
    assert "as in 1,2" in cli("bench", "--threads", "two", exits=2).output


COMMAND = ["bench", "--suite=smoke", "--effort=smoke", "--caches=hot,rotating", "--against", "openblas"]


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def state_of(out: Path) -> Path:
    return out.with_name("state.tar.gz")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A bench that was killed in the middle of its rows, and its whole lines."""
    out = tmp_path_factory.mktemp("bench") / "out"
    child = subprocess.Popen(
        [sys.executable, "-m", "dietlab", *COMMAND, "--out", str(out), "--state", str(state_of(out))],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while child.poll() is None and lines_of(out / JOURNAL) < 5:  # header, study, three turns
        sleep(0.002)
    if child.poll() is not None:
        pytest.fail(f"the bench ended before it was killed: {child.communicate()[0]}")
    workers = psutil.Process(child.pid).children(recursive=True)
    os.killpg(child.pid, signal.SIGKILL)
    output, _ = child.communicate()
    psutil.wait_procs(workers, timeout=10)
    assert child.returncode == -signal.SIGKILL, output
    data = (out / JOURNAL).read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    (out / JOURNAL).write_bytes(whole + b'{"workload":"dense-tiny","threads":1,"cac')
    return out, whole


def test_a_killed_bench_goes_on_at_the_next_length(killed: tuple[Path, bytes]) -> None:
    out, whole = killed
    result = cli(*COMMAND, "--out", out)
    data = (out / JOURNAL).read_bytes()
    assert data.startswith(whole) and len(data) > len(whole)
    turns = [json.loads(line) for line in data.splitlines()[1:]]
    keys = [(v["workload"], v["threads"], v["cache"], v["shape"]["T"]) for v in turns if "rows" in v]
    lengths = [shape["T"] for shape in suite_named("smoke").tasks[0].evaluated("smoke")]
    assert len(keys) == len(set(keys))
    assert set(keys) == {("dense-tiny", 1, cache, t) for cache in ("hot", "rotating") for t in lengths}
    found = ResultTable.load(out / TABLE)
    assert len(found.entries) == 2 * len(keys) and all(entry.row.correct for entry in found.entries)
    assert {e.length for e in found.entries if e.row.held_out} < set(lengths)
    for made in found.entries:
        assert 0 < made.row.seconds_low <= made.row.seconds_median <= made.row.seconds_high
        assert (made.row.speedup is None) == (made.row.contender == "dietlab")
    assert "over the best plain vendor" in result.stdout
    assert (out / "bench.md").read_text() in result.stdout
    assert "Which plan each length got" in (out / "bench.html").read_text()


def rows_in(data: bytes) -> list[dict[str, Any]]:
    return [value for line in data.splitlines()[1:] if "rows" in (value := json.loads(line))]


def kept_journal(state: Path) -> tuple[bytes, list[str]]:
    """Returns the journal in a state's archive, and the names of all of its files."""
    with tarfile.open(state) as archive:
        kept = archive.extractfile(JOURNAL)
        assert kept is not None
        return kept.read(), archive.getnames()


HEAVY = ("plotly", "ipywidgets", "anywidget", "matplotlib")


@pytest.mark.thorough
def test_a_killed_bench_goes_on_from_its_state_without_the_packages_of_figures(
    killed: tuple[Path, bytes], tmp_path: Path
) -> None:
    """On another machine: no file of the first is there but the archive, and nothing that draws."""
    out, whole = killed
    before, names = kept_journal(state_of(out))
    assert whole.startswith(before) and len(rows_in(before)) >= len(rows_in(whole)) - 1 > 0
    assert {f"dense-tiny-1t/{name}" for name in ("manifest.json", "records.jsonl", "model.json")} < set(names)
    assert not [name for name in names if name.endswith((".so", "lock", ".new"))]
    hidden = (f"sys.modules[{name!r}] = None\n" for name in HEAVY)
    (tmp_path / "sitecustomize.py").write_text("import sys\n" + "".join(hidden), encoding="utf-8")
    later, state = tmp_path / "out", tmp_path / "state.tar.gz"
    shutil.copy(state_of(out), state)
    there = ("--out", later, "--state", state)
    done = python("-m", "dietlab", *COMMAND, *there, path=(tmp_path, ROOT))
    assert "no HTML page was written: figures need the extra lab" in done.stdout
    assert "over the best plain vendor" in done.stdout and not (later / "bench.html").exists()
    after = (later / JOURNAL).read_bytes()
    assert after.startswith(before) and after.count(b'"rows"') > before.count(b'"rows"')
    assert kept_journal(state)[0] == after


def test_a_finished_bench_measures_nothing_and_keeps_to_its_settings(killed: tuple[Path, bytes]) -> None:
    out, _ = killed
    cli(*COMMAND, "--out", out)
    before = (out / JOURNAL).read_bytes()
    cli(*COMMAND, "--out", out)
    assert (out / JOURNAL).read_bytes() == before
    (out / TABLE).unlink()
    cli("bench", "--summary", "--out", out)
    assert (out / TABLE).is_file()
    other = cli(*COMMAND[:-1], "mkl", "--out", out, exits=2)
    assert "must be continued with its own against" in (other.stderr or other.output)


def test_values_are_frozen() -> None:
    for value in (HAND_MADE, facts(), CRITERIA[0], SUITES["smoke"], suite_named("smoke").tasks[0]):
        with pytest.raises(AttributeError):
            value.name = "other"  # type: ignore[misc, union-attr]
    assert isinstance(HAND_MADE.about, Mapping)


# Slices


def test_a_gpu_s_suite_meets_nobody_of_a_cpu(tmp_path: Path) -> None:
    paper = suite_named("paper-gpu")
    with pytest.raises(DietlabError, match=r"contenders are cublas, .*; got mkl"):
        run_bench(paper.against(("mkl", "ansor")), tmp_path / "a")
    with pytest.raises(DietlabError, match="cache states are hot, rotating; got interleaved"):
        run_bench(paper, tmp_path / "a", caches=("interleaved",))
    with pytest.raises(
        DietlabError, match=r"threads must be \[1\] on a GPU, which is used as a whole; got \[2\]"
    ):
        run_bench(paper, tmp_path / "a", threads=(2,))
    assert not (tmp_path / "a").exists()
    refused = cli("bench", "--suite", "paper-gpu", "--target", "cpu", exits=2)
    assert "paper-gpu must run on cuda" in (refused.stderr or refused.output)


def test_a_deadline_counts_what_the_next_step_needs() -> None:
    now = 100.0
    deadline = Deadline(10.0, lambda: now)
    deadline.check(9.9)
    with pytest.raises(OutOfTime):
        deadline.check(10.0)
    now = 110.0
    with pytest.raises(OutOfTime):
        deadline.on_event(StageStarted("bench", 3))
    deadline.on_event(StageFinished("bench", 1.0))  # sent on the way out
    Deadline(None).check(1e9)


def test_a_turn_that_would_not_fit_is_not_begun(tmp_path: Path) -> None:
    now = 0.0

    class Opened:
        def rows(self, shape: Shape, cache: str, held_out: bool) -> list[Row]:
            nonlocal now
            now += 3.0
            return turn_rows(shape["T"])

    turns = [turn(length) for length in range(1, 6)]
    journal, stage = Journal(tmp_path / JOURNAL, {}), Stage(audience(()), "bench")
    opened: Any = Opened()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dietlab.compare.suites.run.perf_counter", lambda: now)
        with pytest.raises(OutOfTime):
            play(opened, turns, (), journal, stage, Deadline(10.0, lambda: now))
    assert list(journal.rows) == turns[:3]


def test_time_that_is_up_leaves_a_whole_journal_and_says_what_is_left(tmp_path: Path) -> None:
    command = ("bench", "--suite", "smoke", "--effort", "smoke", "--out", tmp_path)
    stopped = cli(*command, "--seconds", "0.000001", exits=75)
    lengths = suite_named("smoke").tasks[0].evaluated("smoke")
    assert LEFT_OVER == 75
    assert f"{3 * len(lengths)} shapes are left. The same command goes on" in stopped.stdout
    assert not read_journal(tmp_path / JOURNAL).rows and (tmp_path / TABLE).is_file()
    cli(*command, "--seconds", "0", exits=2)


def test_a_bench_is_packed_small(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL, {"suite": "hand-made"})
    journal.add_study(facts())
    journal.add_rows(turn(7), turn_rows(7, mkl=1.5))
    packed = tmp_path / "packed.csv.gz"
    assert "2 rows" in cli("bench", "--out", tmp_path, "--pack", packed).stdout
    assert ResultTable.load(packed).to_csv() == journal.kept.table.to_csv()
    assert {path.name for path in tmp_path.iterdir()} == {JOURNAL, "packed.csv.gz", "packed.json"}
    other = cli("bench", "--out", tmp_path, "--pack", "table.csv", exits=2)
    assert "must be a .csv.gz" in (other.stderr or other.output)


# The ablation


def test_every_idea_has_a_variant_without_it() -> None:
    kernel = cpu_scheme(8, 32, 4, prefetch=16, ahead=True, edge="even")
    found = {variant.name: variant for variant in variants(kernel, QKV)}
    assert found["dietlab"].scheme == kernel and found["dietlab"].workload == QKV
    edges = {v.scheme.edge for v in found.values()}
    assert edges == {"even", "rest", "padded", "partitioned", "checked"}
    plain = found["no prefetch"].scheme
    assert (plain.kernel.prefetch, plain.kernel.ahead, plain.edge) == (0, False, "even")
    assert found["no packing"].built == replace(QKV, constant=False)
    for name, variant in found.items():
        assert (variant.built == QKV) == (name != "no packing" and "+bias" not in name)
        assert (variant.scheme.rows, variant.scheme.cols, variant.scheme.kernel.unroll) == (8, 32, 4)
    assert "no prefetch" not in {v.name for v in variants(kernel.changed(prefetch=0, ahead=False), QKV)}
    batched = SUITES["bert-cpu"].tasks[-1].workload
    assert "no packing" not in {v.name for v in variants(kernel, batched)}


def test_a_bare_dense_layer_has_a_variant_with_each_epilogue() -> None:
    kernel = cpu_scheme(8, 32, 4, prefetch=16, ahead=True, edge="even")
    fused = {v.name: v for v in variants(kernel, QKV) if v.workload != QKV}
    assert set(fused) == {"+bias", "+bias relu", "+bias gelu_tanh", "+bias gelu_erf", "+bias +residual"}
    for name, variant in fused.items():
        assert variant.scheme == kernel and variant.built == variant.workload
        assert str(variant.built.epilogue) == name
        assert replace(variant.built, bias=False, activation="none", residual=False) == QKV
    with_bias = replace(QKV, bias=True)
    assert all(v.workload == with_bias for v in variants(kernel, with_bias))


@pytest.mark.parametrize("key", ["4x32.u2.ws.p0a.even", "6x16.u4.is.p16.even", "4x32.u2.ws.p0a.k256.even"])
def test_without_packing_a_kernel_fits_weights_that_vary(key: str) -> None:
    (found,) = (v for v in variants(Scheme.from_key(key), QKV) if v.name == "no packing")
    assert all(limit.excess(found.scheme) <= 0 for limit in layout_limits(found.built))


def test_tiles_of_several_heights_are_timed_with_constant_and_with_symbolic_extents() -> None:
    scheme, avx2 = cpu_scheme(4, 24, 4, ahead=True, edge="even"), Hardware.preset("haswell-1core")
    whole, *pairs = heights(scheme, QKV, avx2)
    assert (whole.name, whole.scheme, whole.workload) == ("symbolic extents", scheme, QKV)
    assert whole.built == replace(QKV, N=Dim(1, 2304), K=Dim(1, 768))
    # A tile of 4 x 24 is the scheme itself; 16 registers hold 8 x 8 and 14 x 8.
    assert [(v.name, v.scheme.rows, v.scheme.cols, v.built == QKV) for v in pairs] == [
        ("8 rows", 8, 8, True),
        ("8 rows, symbolic extents", 8, 8, False),
        ("14 rows", 14, 8, True),
        ("14 rows, symbolic extents", 14, 8, False),
    ]
    for other in (whole.built, replace(QKV, constant=False), SUITES["bert-cpu"].tasks[-1].workload):
        assert heights(scheme, other, avx2) == ()


def test_some_variants_are_built_alone() -> None:
    kernel, avx2 = cpu_scheme(8, 32, 4, edge="even"), Hardware.preset("haswell-1core")
    some = chosen_variants(kernel, QKV, avx2, ("bound checks", "local padding"))
    assert [v.name for v in some] == ["dietlab", "local padding", "bound checks"]
    every = chosen_variants(kernel, QKV, avx2)
    assert {v.name for v in every} > {"no packing", SYMBOLIC, "+bias"}
    with pytest.raises(DietlabError, match=r"variants of the scheme are dietlab, .*got glue"):
        chosen_variants(kernel, QKV, avx2, ("glue",))


def test_the_dominating_micro_kernel_serves_most_usual_lengths() -> None:
    few, most, long = (cpu_scheme(rows, 32) for rows in (2, 6, 8))
    tree = Split("T", 10, Leaf(0), Split("T", 128, Leaf(1), Leaf(2)))
    dispatcher = Dispatcher(QKV, Hardware.preset("haswell-1core"), (few, most, long), tree)
    assert dominating(dispatcher) == most and dominating(dispatcher, usual=10) == few
    late = replace(dispatcher, workload=replace(QKV, T=Dim(500, 600)))
    assert dominating(late) == long


@pytest.mark.thorough
def test_a_micro_kernel_is_taken_apart(killed: tuple[Path, bytes]) -> None:
    out, _ = killed
    cli(*COMMAND, "--out", out)
    study = out / "dense-tiny-1t"
    command = ("ablate", study, "--effort", "smoke", "--caches", "hot", "--scheme", "6x16.u2.ws.p16")
    done = cli(*command)
    found = ResultTable.load(study / "ablation" / TABLE)
    assert all(entry.row.correct for entry in found.entries), [e.row.plan for e in found.entries]
    layer, taken = Dense(Dim(1, 16), 64, 32), Scheme.from_key(command[-1])
    pairs = heights(taken, layer, Study.open(study).hardware)
    names = [variant.name for variant in (*variants(taken, layer), *pairs)]
    assert SYMBOLIC in names and f"8 rows, {SYMBOLIC}" in names
    lengths = [shape["T"] for shape in suite_named("smoke").tasks[0].evaluated("smoke")]
    assert {(e.row.contender, e.length) for e in found.entries} == {(n, t) for n in names for t in lengths}
    assert "| bound checks" in done.stdout and "6x16.u2.ws.p16.checked" in done.stdout
    before = (study / "ablation" / JOURNAL).read_bytes()
    cli(*command)
    assert (study / "ablation" / JOURNAL).read_bytes() == before

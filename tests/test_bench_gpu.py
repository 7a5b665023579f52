"""The bench's summary of a GPU: which targets a study is judged by, and each of them by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dietlab.compare.results.criteria import CPU_CRITERIA, CRITERIA, GPU_CRITERIA
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.results.samples import counts
from dietlab.compare.results.summary import Line, by_workload, summarise
from dietlab.compare.results.table import ResultTable
from dietlab.compare.suites.suite import SUITES
from dietlab.machine import Hardware
from dietlab.measure.timing.protocol import GPU_CACHE_STATES
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload
from dietlab.problem.traffic import read_table
from dietlab.targets.cuda.contenders import VENDORS as GPU_VENDORS
from dietlab.view.pages.bench_text import render_bench

H200, CPU = Hardware.preset("h200"), Hardware.preset("haswell-1core")
DENSE = Dense(T=Dim(16, 2048), N=2304, K=768)
SCORES = BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nt")
LAYER = Dense(T=Dim(1, 4096), N=4096, K=4096, dtype="bfloat16")
CONTENDERS = (
    ContenderInfo("dietlab", "ours"),
    ContenderInfo("cublas", "plain"),
    ContenderInfo("cublaslt", "plain"),
    ContenderInfo("cublaslt-tuned", "tuned"),
    ContenderInfo("mkl-packed", "prepacked"),
    ContenderInfo("ansor", "scheduler"),
)


def study(name: str, work: Workload = DENSE, hardware: Hardware = H200, **changed: Any) -> Report:
    tuning, library = {"total_seconds": 300.0, "trials": 64}, {"bytes": 1 << 16, "kernels": 10}
    made = Report(work.to_json(), hardware.to_json(), {}, tuning, library, (), CONTENDERS, name=name)
    return replace(made, **changed)


def turn(
    length: int, cache: str = "hot", of_ours: dict[str, Any] | None = None, **others: float
) -> list[Row]:
    """Our row and those of others; their times are given as multiples of ours."""
    ours = Row(Shape.of(T=length), False, "dietlab", cache, 1e-4, 9e-5, 1.1e-4, 100.0, True, roofline=0.5)
    theirs = [
        replace(ours, contender=n.replace("_", "-"), seconds_median=1e-4 * f, speedup=f, roofline=None)
        for n, f in others.items()
    ]
    return [replace(ours, **(of_ours or {})), *theirs]


Measured = tuple[Report, list[Row]]


def table(*measured: Measured, suite: str = "paper-gpu") -> ResultTable:
    about = {"suite": suite, "effort": "none", "versions": {}}
    return ResultTable(tuple(replace(report, rows=tuple(rows)) for report, rows in measured), about)


def lines(found: ResultTable, measure: str, cache: str = "hot") -> dict[str, Line]:
    """By statistic."""
    chosen = [x for x in summarise(found) if (x.criterion.measure, x.cache) == (measure, cache)]
    assert len({line.criterion.statistic for line in chosen}) == len(chosen)
    return {line.criterion.statistic: line for line in chosen}


def line(found: ResultTable, measure: str, cache: str = "hot") -> Line:
    (only,) = lines(found, measure, cache).values()
    return only


# Which targets


def test_targets_of_a_gpu_are_complete() -> None:
    bounds = {
        (c.measure, c.statistic): (c.target.at_least, c.target.at_most, c.of.dtypes)
        for c in GPU_CRITERIA
        if c.target
    }
    floats, halves = ("float32",), ("float16", "bfloat16")
    assert bounds == {
        ("cublas", "geomean"): (1.15, None, floats),
        ("cublas", "worst"): (0.95, None, floats),
        ("ansor", "geomean"): (1.3, None, floats),
        ("cublaslt", "geomean"): (1.0, None, halves),
        ("cublaslt", "worst"): (0.85, None, halves),
        ("cublaslt-tuned", "geomean"): (1.07, None, halves),
        ("held-out", "mean"): (None, 2.0, ()),
        ("padding", "most"): (None, 1.03, ("bfloat16",)),
        ("tuning", "most"): (None, 600.0, ()),
        ("trials", "most"): (None, 64.0, ()),
        ("kernels", "most"): (None, 12.0, ()),
        ("incorrect", "total"): (None, 0.0, ()),
    }
    processors = [{c.of.processor for c in criteria} for criteria in (GPU_CRITERIA, CPU_CRITERIA)]
    assert processors == [{"cuda"}, {"cpu"}]
    assert set(CRITERIA) == {*GPU_CRITERIA, *CPU_CRITERIA}
    assert {"cublas", "cublaslt", "cublaslt-tuned"} <= set(GPU_VENDORS)
    named = {name for c in GPU_CRITERIA if c.target for name in c.target.suites}
    assert named <= {name for name, suite in SUITES.items() if suite.target == "cuda"}


@pytest.mark.parametrize("name", SUITES)
def test_every_operator_of_a_suite_is_judged_by_its_processor_and_type(name: str) -> None:
    suite = SUITES[name]
    for task in suite.tasks:
        facts = study(task.name, task.workload, H200 if suite.target == "cuda" else CPU)
        found = [c for c in CRITERIA if counts(c, facts)]
        assert {c.of.processor for c in found} == {suite.target}
        vendors = {c.measure for c in found if c.target and (not c.target.suites or name in c.target.suites)}
        vendors &= {"prepacked", "plain", "cublas", "cublaslt", "cublaslt-tuned", "ansor"}
        if suite.target == "cuda" and task.workload.dtype == "float32":
            assert vendors == ({"cublas", "ansor"} if name in ("paper-gpu", "first-gpu") else set())
        elif suite.target == "cuda":
            assert vendors == {"cublaslt", "cublaslt-tuned"}
        else:
            assert vendors >= {"ansor"} and not vendors & {"cublas", "cublaslt", "cublaslt-tuned"}


def test_the_same_rows_are_judged_by_where_they_were_measured() -> None:
    rows = turn(128, "rotating", {"regret": 0.015, "held_out": True}, cublas=1.2, mkl_packed=0.5)
    on_gpu, on_cpu = (table((study("qkv", hardware=hardware), rows)) for hardware in (H200, CPU))
    judged = {
        kind: {(x.criterion.measure, x.criterion.statistic): x.verdict for x in summarise(found) if x.verdict}
        for kind, found in (("gpu", on_gpu), ("cpu", on_cpu))
    }
    on_a_gpu = {"cublas": ("geomean", "worst"), "held-out": ("mean",), "incorrect": ("total",)}
    on_a_gpu |= dict.fromkeys(("tuning", "trials", "kernels"), ("most",))
    assert judged["gpu"] == {(name, which): "met" for name, whole in on_a_gpu.items() for which in whole}
    # Ten micro-kernels, 1.5 % of regret and half of a packed MKL are too little on a CPU.
    assert judged["cpu"] == {
        ("prepacked", "geomean"): "missed",
        ("prepacked", "worst"): "missed",
        ("regret", "mean"): "missed",
        ("regret", "p99"): "met",
        ("kernels", "most"): "missed",
        ("code", "most"): "met",
        ("peak", "mean"): "met",
    }
    assert {x.criterion.of.processor for x in by_workload(on_gpu)} == {"cuda"}
    assert {x.criterion.of.processor for x in by_workload(on_cpu)} == {"cpu"}


def test_the_text_of_a_gpu_names_no_target_of_a_cpu() -> None:
    text = render_bench(table((study("qkv"), turn(128, cublas=1.2))))
    drawn = [x for x in text.splitlines() if x.startswith("|")]
    rows = [[cell.strip() for cell in x.strip("|").split("|")] for x in drawn]
    (judged,) = (cells for cells in rows if cells[0] == "float32 over cuBLAS")
    assert judged[2:5] == ["hot", "1", "1.200 x"] and judged[8:10] == [">= 1.15 x", "met"]
    shown = {cell for cells in rows for cell in cells}
    assert not shown & {c.what for c in CPU_CRITERIA} - {c.what for c in GPU_CRITERIA}
    assert "<= 12" in shown and "<= 8" not in shown


# float32


def test_floats_are_pooled_over_dense_and_batched_products() -> None:
    found = table(
        (study("dense"), turn(16, cublas=1.4) + turn(2048, cublas=1.1)),
        (study("scores", SCORES), turn(5, cublas=1.2)),
    )
    pooled = lines(found, "cublas")
    assert pooled["geomean"].value == pytest.approx((1.4 * 1.1 * 1.2) ** (1 / 3))
    assert pooled["geomean"].shapes == 3 and pooled["geomean"].workloads == ("dense", "scores")
    assert pooled["geomean"].verdict == pooled["worst"].verdict == "met"
    slow = table((study("dense"), turn(16, cublas=2.0) + turn(2048, cublas=0.94)))
    assert lines(slow, "cublas")["geomean"].verdict == "met"
    assert lines(slow, "cublas")["worst"].verdict == "missed"
    assert lines(slow, "cublas")["worst"].worst.length == 2048
    just_below = table((study("dense"), turn(16, cublas=1.149)))
    assert lines(just_below, "cublas")["geomean"].verdict == "missed"


def test_both_cache_states_count() -> None:
    rows = [row for cache in GPU_CACHE_STATES for row in turn(16, cache, cublas=1.2)]
    found = table((study("dense"), rows))
    assert [lines(found, "cublas", cache)["geomean"].verdict for cache in GPU_CACHE_STATES] == ["met"] * 2


def test_targets_of_the_paper_s_operators_hold_for_its_suite() -> None:
    rows = turn(16, cublas=1.0, ansor=1.2)
    in_paper, in_bert = (table((study("dense"), rows), suite=name) for name in ("paper-gpu", "bert-gpu"))
    for measure in ("cublas", "ansor"):
        assert lines(in_paper, measure)["geomean"].verdict == "missed"
        assert lines(in_bert, measure)["geomean"].verdict == ""
        assert lines(in_bert, measure)["geomean"].value == lines(in_paper, measure)["geomean"].value


# Halves


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_meet_cublaslt(dtype: str) -> None:
    facts = study("layer", replace(LAYER, dtype=dtype))
    rows = turn(64, cublas=0.1, cublaslt=1.3, cublaslt_tuned=1.06, ansor=0.1)
    found = table((facts, rows), suite="llm-gpu")
    assert lines(found, "cublaslt")["geomean"].verdict == "met" and not lines(found, "cublas")
    assert not lines(found, "ansor")
    stretch = line(found, "cublaslt-tuned")
    assert (stretch.value, stretch.verdict) == (pytest.approx(1.06), "missed")
    assert "stretch" in stretch.criterion.what and "stretch" in render_bench(found)
    slow = table((facts, turn(64, cublaslt=1.5, cublaslt_tuned=1.08) + turn(512, cublaslt=0.84)))
    assert lines(slow, "cublaslt")["geomean"].verdict == "met"
    assert lines(slow, "cublaslt")["worst"].verdict == "missed"
    assert line(slow, "cublaslt-tuned").verdict == "met"


def test_types_are_judged_apart_in_one_table() -> None:
    halves = study("halves", replace(DENSE, dtype="float16"))
    rows = turn(16, cublas=1.2, cublaslt=0.9, cublaslt_tuned=0.8)
    found = table((study("floats"), rows), (halves, rows))
    assert lines(found, "cublas")["geomean"].workloads == ("floats",)
    assert lines(found, "cublaslt")["geomean"].workloads == ("halves",)
    assert line(found, "cublaslt-tuned").workloads == ("halves",)


# Regret, tuning, library


def test_regret_counts_on_held_out_shapes() -> None:
    tuned = turn(128, of_ours={"regret": 0.5})
    held_out = [turn(t, of_ours={"regret": lost, "held_out": True}) for t, lost in ((17, 0.01), (31, 0.03))]
    found = table((study("dense"), [*tuned, *held_out[0], *held_out[1]]))
    only = line(found, "held-out")
    assert (only.value, only.shapes, only.worst.length) == (pytest.approx(2.0), 2, 31)
    assert only.verdict == "met"
    worse = table((study("dense"), turn(31, of_ours={"regret": 0.021, "held_out": True})))
    assert line(worse, "held-out").verdict == "missed"
    assert not lines(table((study("dense"), tuned)), "held-out")


@pytest.mark.parametrize(
    ("changed", "measure"),
    [
        ({"tuning": {"total_seconds": 601.0, "trials": 64}}, "tuning"),
        ({"tuning": {"total_seconds": 600.0, "trials": 65}}, "trials"),
        ({"library": {"bytes": 1, "kernels": 13}}, "kernels"),
    ],
)
def test_one_operator_over_its_limit_is_enough(changed: dict[str, Any], measure: str) -> None:
    fine = study("fine", tuning={"total_seconds": 600.0, "trials": 64}, library={"bytes": 1, "kernels": 12})
    rows = turn(128, cublas=1.0)
    both = table((fine, rows), (replace(fine, name="over", **changed), rows))
    for name in ("tuning", "trials", "kernels"):
        assert line(table((fine, rows)), name, "").verdict == "met", "at the limit"
        assert line(both, name, "").verdict == ("missed" if name == measure else "met")
    assert line(both, measure, "").worst.workload == "over"


def test_what_a_table_does_not_know_has_no_line() -> None:
    found = table((study("dense", tuning={"total_seconds": 1.0}), turn(128)))
    assert not lines(found, "trials", "") and lines(found, "tuning", "")


def test_one_wrong_result_of_ours_is_too_many() -> None:
    wrong = turn(17, of_ours={"correct": False, "seconds_median": math.nan})
    others_wrong = [replace(row, correct=row.contender == "dietlab") for row in turn(31, cublas=1.2)]
    right = table((study("dense"), turn(16) + others_wrong))
    assert (line(right, "incorrect").value, line(right, "incorrect").verdict) == (0.0, "met")
    found = table((study("dense"), turn(16) + others_wrong + wrong))
    only = line(found, "incorrect")
    assert (only.value, only.shapes, only.verdict) == (1.0, 3, "missed")
    assert (only.worst.length, only.worst.workload) == (17, "dense")


# Padding over the serving trace


def padded(lengths: range, short: float, long: float) -> list[Row]:
    """Our rows, with one waste up to T=64 and another beyond."""
    return [row for t in lengths for row in turn(t, of_ours={"padding_waste": short if t <= 64 else long})]


def test_padding_counts_by_what_the_trace_calls() -> None:
    counted = {t: count for t, count in read_table("serving").counts.items() if t <= 512}
    useful = sum(t * count for t, count in counted.items())
    executed = sum(t * count / (1 - (0.2 if t <= 64 else 0.01)) for t, count in counted.items())
    found = table((study("layer", LAYER), padded(range(1, 513), 0.2, 0.01)), suite="llm-gpu")
    only = line(found, "padding")
    assert only.value == pytest.approx(executed / useful)
    assert only.verdict == ("met" if executed / useful <= 1.03 else "missed")
    little = table((study("layer", LAYER), padded(range(1, 513), 0.02, 0.02)), suite="llm-gpu")
    assert line(little, "padding").value == pytest.approx(1 / 0.98)
    assert line(little, "padding").verdict == "met"
    much = table((study("layer", LAYER), padded(range(1, 513), 0.04, 0.04)), suite="llm-gpu")
    assert line(much, "padding").verdict == "missed"


def test_padding_says_nothing_where_little_of_the_trace_was_measured() -> None:
    few = table((study("layer", LAYER), padded(range(1, 9), 0.0, 0.0)), suite="llm-gpu")
    assert not lines(few, "padding")
    unknown = table((study("layer", LAYER), [row for t in range(1, 513) for row in turn(t)]), suite="llm-gpu")
    assert not lines(unknown, "padding")
    of_bert = table((study("layer", LAYER), padded(range(1, 513), 0.5, 0.5)), suite="bert-gpu")
    assert line(of_bert, "padding").verdict == ""
    halves = study("layer", replace(LAYER, dtype="float16"))
    assert not lines(table((halves, padded(range(1, 513), 0.0, 0.0)), suite="llm-gpu"), "padding")

"""The paper's experiments: claims and findings, steps that go on, the page, and the command."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import ROOT
from observed import Recorder
from test_view import Page

from dietlab.base.errors import DietlabError, MissingDependencyError, StudyError
from dietlab.base.events import StageAdvanced, StageStarted, audience
from dietlab.base.files import locked
from dietlab.cli.bench import LEFT_OVER
from dietlab.cli.main import main
from dietlab.compare.results import ContenderInfo, Report, ResultTable, Row
from dietlab.compare.suites.deadline import Deadline, OutOfTime
from dietlab.lab.models import Model
from dietlab.lab.reproduce import run as run_module
from dietlab.lab.reproduce.findings import FINDERS, Finding, claims_table, treatments
from dietlab.lab.reproduce.paper import (
    AMOUNTS,
    DENSE,
    EDGES,
    read_claims,
    reported_speedups,
    reported_throughput,
)
from dietlab.lab.reproduce.run import (
    EstimatedProgress,
    Reproduction,
    begun,
    render_reproduction,
    reproduce,
    write_claims,
    write_reproduction,
)
from dietlab.lab.reproduce.steps import STEPS, Settings, Step, recorded, sticking_out
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape
from dietlab.tuning import TuningRun
from dietlab.view.figures.table import plot_bars, plot_table

CLAIMS = {claim.id: claim for claim in read_claims()}
HOSTILE = "<script>alert('x')</script>"
PROCESSOR = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0)


def report(name: str, workload: Any, seconds: dict[str, dict[int, float]], **changed: Any) -> Report:
    """A report of seconds by contender and length; each speedup is over dietlab's."""
    ours = seconds["dietlab"]
    rows = [
        Row(Shape.of(T=t), False, who, changed.get("cache", "rotating"), s, s, s, 1 / s, True, s / ours[t])
        for who, times in seconds.items()
        for t, s in times.items()
    ]
    rows = [replace(row, speedup=None) if row.contender == "dietlab" else row for row in rows]
    kinds = {"dietlab": "ours", "mkl": "plain", "mkl-packed": "prepacked", "onnxruntime": "prepacked"}
    infos = tuple(ContenderInfo(who, kinds.get(who, "other"), detail=f"{who}'s") for who in seconds)
    return Report(
        workload.to_json(),
        PROCESSOR.to_json(),
        tuning=changed.get("tuning", {}),
        rows=tuple(rows),
        contenders=infos,
        name=name,
    )


QKV = Dense(T=Dim(1, 2048), N=2304, K=768)
EDGE = report(
    "dense-960x770x2304",
    replace(QKV, K=770),
    {
        "dietlab": {960: 1.0, 15: 1.0},
        "local padding": {960: 1.25, 15: 2.0},
        "loop partitioning": {960: 1.5, 15: 3.0},
        "bound checks": {960: 2.5, 15: 6.0},
    },
)
LAYER = report(
    DENSE,
    QKV,
    {
        "dietlab": {5: 1.0, 24: 1.0, 256: 1.0},
        "mkl": {5: 1.1, 24: 1.1, 256: 1.1},
        "mkl-packed": {5: 2.0, 24: 4.0, 256: 9.0},
        "onnxruntime": {5: 3.0, 24: 2.0, 256: 9.0},
        "ansor": {5: 4.0, 24: 1.0},
        "largest-shape": {5: 2.0, 24: 8.0, 256: 1.0},
    },
    tuning={
        "total_seconds": 50.0,
        "trials": 64,
        "ansor_seconds": {"T=5": 100.0, "T=24": 300.0},
        "ansor_trials": {"T=5": 24, "T=24": 24},
    },
)
PRODUCT = report(
    "batch-matmul-nt",
    BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nt"),
    {"dietlab": {5: 1.0, 24: 1.0}, "mkl": {5: 1.5, 24: 1.5}},
)
BERT = report(
    "",
    Model("bert-base", 16),
    {
        "dietlab": {5: 1.0, 24: 1.0},
        "dietlab-eager": {5: 1.01, 24: 1.01},
        "torch-compile": {5: 2.0, 24: 4.5},
        "onnxruntime": {5: 4.0, 24: 2.0},
        "ansor": {5: 1.5, 24: 6.0},
    },
    cache="model",
)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder of records of the paper's experiments."""
    home = tmp_path / "results"
    home.mkdir()
    ResultTable((LAYER, PRODUCT)).save(home / "zen9-paper.csv.gz")
    ResultTable((EDGE,)).save(home / "zen9-local-padding.csv.gz")
    BERT.save(home / "zen9-bert-b16-1core.report.json.gz")
    return home


# --- claims ---------------------------------------------------------------------------------------


def test_every_claim_has_an_experiment_and_a_way_to_our_value() -> None:
    assert list(FINDERS) == list(CLAIMS)
    assert {claim.experiment for claim in CLAIMS.values()} <= set(STEPS)


@pytest.mark.parametrize(
    ("operator", "over", "claims"),
    [
        ("dense-960x770x2304", "bound checks", ("checks-dense-3090", "checks-dense-2080")),
        ("dense-960x770x2304", "loop partitioning", ("partitioned-dense-3090", "partitioned-dense-2080")),
        ("bmm-nt-192x120x64x120", "bound checks", ("checks-batched-3090", "checks-batched-2080")),
    ],
)
def test_claims_on_local_padding_are_those_of_the_reported_table(
    operator: str, over: str, claims: tuple[str, str]
) -> None:
    table = reported_throughput(operator)
    for claim, gpu in zip(claims, ("RTX 3090", "RTX 2080 Ti"), strict=True):
        ratio = table.loc["local padding", gpu] / table.loc[over, gpu]
        assert CLAIMS[claim].reported == float(f"{ratio:.3g}") and gpu in CLAIMS[claim].source


def test_claims_on_best_lengths_are_those_of_the_figures() -> None:
    bert, dense = reported_speedups("bert_base_e2e"), reported_speedups("dense_16Tx768_2304")
    assert list(bert.index) == [5, 24, 43, 62, 81, 100, 119, 128]
    assert round(bert["vendor"].max(), 3) == CLAIMS["bert-vendor-best"].reported
    assert round(bert["ansor"].max(), 3) == CLAIMS["bert-ansor-best"].reported
    assert round(dense["ansor"].max(), 2) == CLAIMS["dense-ansor-best"].reported


def found(claim: str, results: Path) -> Finding:
    (finding,) = FINDERS[claim](results)
    return finding


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("bert-vendor", 2.0),  # the best of both at each length, Ansor's programs are no vendor's
        ("bert-vendor-best", 2.0),
        ("bert-ansor", geometric_mean([1.5, 6.0])),
        ("bert-ansor-best", 6.0),
        ("dense-vendor", 2.0),  # prepacked only, T <= 128
        ("dense-ansor", 2.0),
        ("dense-ansor-best", 4.0),
        ("dense-one-schedule", 4.0),
        ("tuning-eight", 200.0 * 8 / 50.0),
        ("tuning-all", 200.0 * 128 / 50.0),
        ("checks-dense-3090", 2.0),
        ("checks-dense-2080", 2.0),
        ("partitioned-dense-3090", 1.2),
        ("checks-most", 3.0),
    ],
)
def test_our_value_of_a_claim(claim: str, value: float, records: Path) -> None:
    finding = found(claim, records)
    assert finding.value == pytest.approx(value)
    assert finding.where.startswith("Zen 9, one core")


def test_a_finding_says_where_it_falls_short(records: Path) -> None:
    assert "2 lengths, the least 1.50x at T = 5" in found("bert-ansor", records).method
    assert "ansor's" in found("bert-ansor", records).method, "who tuned it, and how long"
    assert found("dense-ansor-best", records).method.endswith("24 trials a length instead of 1000; at T = 5")
    exact = "composition of exact tiles in place of padding: 2.50x"
    assert exact in found("checks-dense-3090", records).method
    assert found("checks-most", records).method == "dense-960x770x2304, T = 15"


def test_what_was_not_measured_has_no_value(records: Path) -> None:
    assert [*FINDERS["checks-batched-3090"](records)] == []
    another = replace(BERT, workload=Model("bert-tiny", 16).to_json())
    another.save(records / "zen9-bert-b16-1core.report.json.gz")
    assert [*FINDERS["bert-vendor"](records)] == []
    ResultTable((replace(LAYER, name="dense-tiny"),)).save(records / "zen9-paper.csv.gz")
    assert [*FINDERS["dense-vendor"](records)] == [*FINDERS["tuning-eight"](records)] == []
    ResultTable((replace(EDGE, rows=()),)).save(records / "zen9-local-padding.csv.gz")
    assert [*FINDERS["checks-dense-3090"](records)] == [*FINDERS["checks-most"](records)] == []


def test_a_layer_without_per_shape_tuning_has_its_other_values(records: Path) -> None:
    rows = tuple(row for row in LAYER.rows if row.contender != "ansor")
    bare = replace(LAYER, rows=rows, tuning={"total_seconds": 50.0})
    ResultTable((bare,)).save(records / "zen9-paper.csv.gz")
    assert [*FINDERS["tuning-eight"](records)] == [*FINDERS["dense-ansor"](records)] == []
    assert found("dense-vendor", records).value == pytest.approx(2.0)


def test_the_table_says_what_is_reached_and_what_was_not_measured(records: Path) -> None:
    claims = [replace(CLAIMS["dense-vendor"], reported=r) for r in (2.0, 2.1)]
    header, rows = claims_table([*claims, CLAIMS["checks-batched-3090"]], records)
    reached = header.index("reached")
    assert [row[reached] for row in rows] == ["yes", "no", ""]
    assert rows[2][1:5] == ("2.49x", "-", "-", "not measured")


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_a_time_for_every_effort(name: str) -> None:
    step = STEPS[name]
    assert step.name == name and step.shows.endswith(".")
    assert set(step.seconds) == set(AMOUNTS)


def test_quick_fits_forty_minutes() -> None:
    assert sum(step.seconds["quick"] for step in STEPS.values()) <= 40 * 60


def test_the_amounts_are_the_paper_s() -> None:
    quick, full = AMOUNTS["quick"], AMOUNTS["full"]
    assert quick.suite.tasks[0].name == DENSE and "ansor" in quick.suite.tasks[0].against
    lengths = [5, 24, 43, 62, 81, 100, 119, 128]
    for task in quick.suite.tasks:
        assert [shape["T"] for shape in task.evaluated("quick")] == lengths
    assert [case.extent for case in quick.edges] == [*EDGES.values()]
    assert str(quick.edges[0].workload) == "dense T=1..2048 N=2304 K=770"
    assert isinstance(quick.edges[1].workload, BatchMatmul) and quick.edges[1].lengths[0] == 120
    assert (quick.ansor_trials, full.ansor_trials) == (32, 256)
    assert [len(calls.lengths) for calls in full.sentences] == [40, 6]
    assert [calls.model.name for calls in full.served] == ["decoder", "experts"]
    assert all(len(calls.shapes) == calls.steps for calls in full.served)
    assert all(calls.also for calls in full.served) and not any(calls.also for calls in full.sentences)
    assert "ansor" not in quick.against


def test_the_scheme_whose_edge_is_treated_sticks_out(synthetic_run: TuningRun) -> None:
    for rows in (120, 96):
        scheme = sticking_out(synthetic_run, rows)
        assert rows % scheme.rows
        table = synthetic_run.seconds_table([*synthetic_run.schemes], [Shape.of(T=rows)])[:, 0]
        seconds = dict(zip(synthetic_run.schemes, table, strict=True))
        assert all(rows % other.rows == 0 for other in seconds if seconds[other] < seconds[scheme])


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor whose speed is not measured."""
    monkeypatch.setattr(Hardware, "measured", lambda hardware: hardware)


Act = Callable[[Settings], None]


def made(name: str, act: Act = lambda settings: None, **changed: Any) -> Step:
    """A step that writes a file."""

    def run(folder: Path, settings: Settings) -> tuple[Path, ...]:
        act(settings)
        target = folder / "results" / f"here-{name}.csv.gz"
        ResultTable((replace(LAYER, name=name),)).save(target)
        return (target,)

    step = Step(name, f"Shows {name}.", dict.fromkeys(AMOUNTS, 5.0), run, lambda home: recorded(name, home))
    return replace(step, **changed)


def by_name(*steps: Step) -> dict[str, Step]:
    return {step.name: step for step in steps}


def raising(error: BaseException) -> Act:
    def act(settings: Settings) -> None:
        raise error

    return act


@pytest.mark.usefixtures("quiet")
def test_steps_that_cannot_run_do_not_stop_the_others(tmp_path: Path) -> None:
    absent = MissingDependencyError("PyTorch must be installed", "none", "pip install it.")
    steps = by_name(
        made("first", raising(absent)),
        made("second", raising(StudyError("it works", "no"))),
        made("third", needs={"no_such_module": "extra"}),
        made("fourth"),
    )
    work = reproduce(begun(tmp_path, "smoke"), steps=steps)
    states = {name: outcome.state for name, outcome in work.outcomes.items()}
    assert states == {"first": "absent", "second": "failed", "third": "absent", "fourth": "done"}
    assert "pip install 'dietlab[extra]'" in work.outcomes["third"].reason
    assert work.outcomes["fourth"].files == ("results/here-fourth.csv.gz",)
    assert Reproduction.open(tmp_path) == work


@pytest.mark.usefixtures("quiet")
def test_what_is_done_is_not_measured_again(tmp_path: Path) -> None:
    runs: list[str] = []
    broken = [StudyError("it works", "not yet")]

    def second(settings: Settings) -> None:
        runs.append("second")
        if broken:
            raise broken.pop()

    steps = by_name(made("first", lambda s: runs.append("first")), made("second", second))
    reproduce(begun(tmp_path, "smoke"), steps=steps)
    again = reproduce(begun(tmp_path, "smoke"), steps=steps)
    assert runs == ["first", "second", "second"]
    assert again.left(steps=steps) == ()
    (tmp_path / "results" / "here-first.csv.gz").unlink()
    reproduce(begun(tmp_path, "smoke"), ["first"], steps=steps)
    assert runs[3:] == ["first"], "a step whose records are gone is done again"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("by", ["deadline", "left over", "keyboard"])
def test_a_stop_is_kept_and_the_same_call_goes_on(by: str, tmp_path: Path) -> None:
    def stop(settings: Settings) -> None:
        if by == "left over":  # as a bench does, which ends by itself
            settings.deadline.left = 3
        elif by == "deadline":
            raise OutOfTime
        else:
            raise KeyboardInterrupt

    steps = by_name(made("first"), made("second", stop), made("third"))
    work = begun(tmp_path, "smoke")
    if by == "keyboard":
        with pytest.raises(KeyboardInterrupt):
            reproduce(work, steps=steps)
    else:
        reproduce(work, steps=steps)
    stopped = Reproduction.open(tmp_path)
    assert [outcome.state for outcome in stopped.outcomes.values()] == ["done", "stopped"]
    steps["second"] = made("second")
    ended = reproduce(begun(tmp_path, "smoke"), steps=steps, deadline=Deadline())
    assert {outcome.state for outcome in ended.outcomes.values()} == {"done"}


@pytest.mark.usefixtures("quiet")
def test_what_does_not_fit_is_refused_at_the_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = begun(tmp_path, "smoke")
    with pytest.raises(DietlabError, match=r"steps of a reproduction are dense, batched.*got dance"):
        reproduce(work, ["dense", "dance"])
    with pytest.raises(DietlabError, match="efforts of a reproduction are smoke, quick, full; got huge"):
        begun(tmp_path / "other", "huge")
    with pytest.raises(StudyError, match=r"must be continued with its effort.*It has smoke, 1"):
        begun(tmp_path, "quick")
    with pytest.raises(StudyError, match="the cores of this machine; got 999"):
        begun(tmp_path, "smoke", 999)
    with pytest.raises(StudyError, match=r"`dietlab reproduce --out FOLDER` begins one"):
        Reproduction.open(tmp_path / "nowhere")
    (tmp_path / "reproduce.json").write_text('{"schema_version": 99}', encoding="utf-8")
    with pytest.raises(StudyError, match=r"must have schema 1; got .*99"):
        begun(tmp_path, "smoke")


@pytest.mark.usefixtures("quiet")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    work = begun(tmp_path, "smoke")
    with locked(tmp_path, "held by another"), pytest.raises(StudyError, match="one reproduction at a time"):
        reproduce(work, steps=by_name(made("first")))


@pytest.mark.usefixtures("quiet")
def test_a_step_goes_on_with_the_time_up_to_its_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(run_module, "perf_counter", lambda: now[0])
    seen = Recorder()

    def work(settings: Settings) -> None:
        with settings.listeners.stage("bench", 3) as inside:
            for seconds in (0.5, 2.0, 60.0):
                now[0] += seconds
                inside.advance()

    reproduce(begun(tmp_path, "smoke"), observers=[seen], steps=by_name(made("first", work)))
    told = [e.done for e in seen.of(StageAdvanced) if e.stage == "first"]
    assert told == [2, 4, 5], "four of five estimated seconds at most, before it is over"
    begins, _ = seen.of(StageStarted)
    assert (begins.stage, begins.total, begins.unit) == ("first", 5, "estimated second")


def test_an_estimate_never_goes_backwards() -> None:
    with audience(()).stage("first", 10, done=8) as stage:
        EstimatedProgress(stage, 10).on_event(StageAdvanced("inside", 1))
        assert stage.done == 8


# --- figures and the page ---------------------------------------------------------------------------


def test_treatments_of_the_edge_stand_beside_the_reported_ones() -> None:
    frame = treatments(EDGE)
    reported = ["RTX 2080 Ti (reported)", "RTX 3090 (reported)"]
    assert list(frame.columns) == [*reported, f"{PROCESSOR.name}, one core"]
    here = frame.iloc[:, -1]
    assert here["bound checks"] == 1.0 and here["local padding"] == pytest.approx(2.0)
    assert here["composition"] == pytest.approx(2.5) and pd.isna(here["both"])
    bars = plot_bars(frame, "edges & such", "throughput (x)")
    assert [len(trace.x) for trace in bars.data] == [3, 4, 4], "bars of what is known only"
    assert bars.layout.title.text == "edges &amp; such"


def test_a_line_goes_through_the_lengths_that_it_has() -> None:
    table = pd.DataFrame({"a": {1: 1.0, 3: 2.0}, "b": {2: 5.0}})
    figure = plot_table(table.sort_index(), "two", "T", "x")
    assert [list(trace.x) for trace in figure.data] == [[1, 3], [2]]


@pytest.fixture
def work(records: Path) -> Reproduction:
    for path in records.iterdir():
        path.rename(path.with_name(path.name.replace("zen9", "here")))
    hardware = replace(PROCESSOR, name=HOSTILE)
    return Reproduction(records.parent, "quick", hardware, {"dietlab": "0"}, "2026-01-01T00:00:00+00:00")


def test_the_page_has_every_claim_and_says_what_is_missing(work: Reproduction) -> None:
    work = replace(work, outcomes={"batched": run_module.Outcome("failed", 5.0, (), f"no luck {HOSTILE}")})
    page = write_reproduction(work).read_text(encoding="utf-8")
    assert "failed: no luck &lt;script&gt;" in page
    for claim in CLAIMS.values():
        assert page.count(f"<td>{claim.claim} ({claim.source})</td>") == 2, "in its table and its section"
    assert page.count("<b>not run</b>") == len(STEPS) - 1, "all but the one that failed"
    for step in STEPS.values():
        assert f'<h2 id="{step.name}">' in page
    for heading in (
        f"{DENSE}: speedup over Ansor, tuned for each length",
        "dense-960x770x2304: throughput over that with bound checks",
        "BERT-base from end to end: speedup over the vendor",
        "batch-matmul-nt: speedup over each contender",
    ):
        assert f'<section aria-label="{heading}">' in page
    assert '<td class="met">yes</td>' in page and '<td class="missed">no</td>' in page
    pictures = {path.name for path in (work.folder / "figures").iterdir()}
    assert {"dense-0.png", "local-padding-0.png", "bert-0.png"} <= pictures


def test_the_page_needs_no_network_and_escapes(work: Reproduction) -> None:
    page = render_reproduction(work)
    assert HOSTILE not in page
    assert Page(page).loads == []


def test_a_reproduction_without_records_has_its_page(work: Reproduction) -> None:
    for path in work.results.iterdir():
        path.unlink()
    page = render_reproduction(work)
    assert page.count("not measured") == 2 * len(CLAIMS)
    assert "Public material has no figures of this experiment" in page


def test_the_claims_are_a_file_of_text(work: Reproduction) -> None:
    text = write_claims(work).read_text(encoding="utf-8")
    assert all(claim.claim in text for claim in CLAIMS.values())
    assert "effort quick" in text and "| here, one core" in text


# --- the command ----------------------------------------------------------------------------------


def call(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(main, ["reproduce", *map(str, arguments)])
    assert done.exit_code == status, (done.output, done.exception)
    return done.output


def test_the_help_teaches() -> None:
    text = " ".join(call("--help").split())
    for step in STEPS.values():
        assert f"{step.name} (" in text and step.shows[:40] in text
    for word in ("reproduce.html", "goes on", "smoke", "quick", "full", "--summary", "runs/reproduce"):
        assert word in text
    document = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in document for name in STEPS)


def test_another_step_is_refused_before_anything_begins(tmp_path: Path) -> None:
    text = call("--only", "dense,dance", "--out", tmp_path / "new", status=2)
    assert "steps of a reproduction are dense, batched" in text and "got dance" in text
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("quiet")
def test_without_pytorch_the_step_is_absent_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    text = call("--only", "bert", "--effort", "smoke", "--out", tmp_path)
    assert "bert: absent, since the step bert needs torch and transformers; got no torch. pip install" in text
    assert "0 steps" in text
    (outcome,) = Reproduction.open(tmp_path).outcomes.values()
    assert outcome.state == "absent" and "dietlab[torch]" in outcome.reason
    assert "absent: the step bert needs" in (tmp_path / "reproduce.html").read_text(encoding="utf-8")


def test_a_summary_measures_nothing(work: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hardware, "measured", None)
    work.save()
    text = call("--summary", "--out", work.folder)
    assert "| a dense layer over the best vendor, mean over lengths (figure 10)" in text
    assert re.search(r"\| 2\.000x +\| here, one core", text) and "reproduce.html" in text
    stopped = work.with_outcome("dense", run_module.Outcome("stopped", reason="The same command goes on."))
    assert "The same command goes on." in call("--summary", "--out", stopped.folder)
    assert "begins one" in call("--summary", "--out", work.folder / "none", status=2)


def rows_of(folder: Path) -> dict[str, bytes]:
    """Every row that was measured."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("rows.jsonl")}


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet")
def test_treatments_of_the_edge_are_measured_once(tmp_path: Path) -> None:
    command = ("--effort", "smoke", "--out", tmp_path, "--quiet", "--only", "local-padding")
    call(*command)
    before = rows_of(tmp_path)
    (edge,) = recorded("local-padding", tmp_path / "results").reports
    names = {"dietlab", "local padding", "loop partitioning", "bound checks"}
    assert {row.contender for row in edge.rows} == names and all(row.correct for row in edge.rows)
    assert {row.shape["T"] for row in edge.rows} == {7, 15}
    (tmp_path / "results" / "here-local-padding.csv.gz").unlink()
    call(*command)
    assert rows_of(tmp_path) == before and recorded("local-padding", tmp_path / "results").reports


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet")
def test_a_stopped_command_goes_on_at_the_next_shape(tmp_path: Path) -> None:
    """The smallest steps, stopped before anything, then after the first."""
    common = ("--effort", "smoke", "--out", tmp_path, "--quiet")
    text = call(*common, "--only", "dense,ablations", "--seconds", "0.001", status=LEFT_OVER)
    assert "The same command goes on." in text
    call(*common, "--only", "dense")
    before = rows_of(tmp_path)
    call(*common, "--only", "dense,ablations")
    after = rows_of(tmp_path)
    assert before.items() <= after.items() and len(after) == len(before) + 1
    assert [o.state for o in Reproduction.open(tmp_path).outcomes.values()] == ["done", "done"]
    call(*common, "--only", "dense,ablations")
    assert rows_of(tmp_path) == after


@pytest.mark.thorough
def test_the_whole_command(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    text = call("--effort", "smoke", "--out", tmp_path)
    assert f"{len(STEPS)} steps, about" in text
    work = Reproduction.open(tmp_path)
    assert {name: o.state for name, o in work.outcomes.items()} == dict.fromkeys(STEPS, "done")
    names = {path.name for path in work.results.iterdir()}
    kinds = ("paper", "local-padding", "ablation")
    tables = {f"here-{kind}.{end}" for kind in kinds for end in ("csv.gz", "json")}
    assert names == tables | {f"here-{model}-b1-1core.report.json.gz" for model in ("bert", "decoder")}
    for kind in kinds:
        table = recorded(kind, work.results)
        assert table.entries and not table.wrong and not table.failures
    page = (tmp_path / "reproduce.html").read_text(encoding="utf-8")
    assert all(f"<td>{claim.claim} ({claim.source})</td>" in page for claim in CLAIMS.values())
    before = rows_of(tmp_path)
    facts = json.loads((tmp_path / "reproduce.json").read_text())
    call("--effort", "smoke", "--out", tmp_path, "--quiet")
    assert rows_of(tmp_path) == before
    assert json.loads((tmp_path / "reproduce.json").read_text()) == facts

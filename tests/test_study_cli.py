"""The study folder and the ``dietlab`` command: resumed after a kill, locked, and clear about errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import click
import numpy as np
import psutil
import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, python

from dietlab.base.errors import StudyError
from dietlab.cli import doctor as cli_doctor
from dietlab.cli import main
from dietlab.cli.commands import HEADINGS, CommandGroup
from dietlab.cli.options import parse_shapes
from dietlab.compare.evaluate import Contest
from dietlab.compare.results import Row
from dietlab.compare.study import Study
from dietlab.lower.store import Store
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner, Trial, read_records, write_compressed
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload
from dietlab.scheme import build_space
from dietlab.tuning import load

WORK = Dense(T=Dim(1, 16), N=64, K=32)
SHAPES = ShapeSet.uniform(WORK, 4)
DIMS = ("--dim", "T=1:16", "--dim", "N=64", "--dim", "K=32")
COMMAND = (sys.executable, "-c", "from dietlab.cli import main; main()")
COMMANDS = main.list_commands(click.Context(main))


def dietlab(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def done(*arguments: str | Path) -> str:
    result = dietlab(*arguments)
    assert result.exit_code == 0, (result.output, result.stderr, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory, here: Hardware) -> Path:
    """This processor in a file, so that no test waits for its peaks to be measured."""
    path = tmp_path_factory.mktemp("hardware") / "hardware.json"
    here.save(path)
    return path


def tuning(out: Path, processor: Path, *more: str) -> list[str]:
    return [
        "tune",
        "dense",
        *DIMS,
        "--effort",
        "smoke",
        "--shapes",
        "uniform:4",
        "--hardware",
        str(processor),
        "--out",
        str(out),
        *more,
    ]


# Interrupted tuning


def whole_lines(path: Path) -> bytes:
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def stop_after(lines: int, how: signal.Signals, command: list[str], records: Path) -> tuple[int, str]:
    """Runs the command until its records have so many lines, then stops it; its workers end too."""
    child = subprocess.Popen(
        [*COMMAND, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Who runs the tests in the background may have told them to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while child.poll() is None and whole_lines(records).count(b"\n") < lines:
        sleep(0.001)
    workers = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(how)
    output, _ = child.communicate(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive, "workers outlive the command"
    return child.returncode, output


@pytest.mark.thorough
def test_killed_at_several_moments_no_record_is_lost_or_doubled(tmp_path: Path, processor: Path) -> None:
    out = tmp_path / "study"
    records, command = out / "records.jsonl", tuning(out, processor)
    before = b""
    # While it searches, and while it verifies.
    moments = ((5, signal.SIGINT), (30, signal.SIGKILL))
    for lines, how in moments:
        code, output = stop_after(lines, how, command, records)
        assert code == (130 if how == signal.SIGINT else -how), output
        if how == signal.SIGINT:
            assert "what was measured stays, the same command goes on" in output and "Traceback" not in output
        kept = whole_lines(records)
        assert kept.startswith(before) and kept.count(b"\n") >= lines
        before = kept
    facts = json.loads(done(*command, "--json"))
    assert records.read_bytes().startswith(before)
    found = read_records(records).records
    assert len({(r.asked_by, r.scheme, r.shape) for r in found}) == len(found) == facts["measurements"]
    assert len({r.scheme for r in found}) == facts["trials"] >= 8 and facts["failures"] == 0
    assert len(found) > 30
    complete = records.read_bytes()
    done(*command)
    assert records.read_bytes() == complete, "a finished study measures nothing again"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP], ids=lambda how: how.name)
def test_a_signal_ends_tuning_as_ctrl_c_does(
    how: signal.Signals, tmp_path: Path, processor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records stay, temporary folders do not."""
    temporary, records = tmp_path / "temporary", tmp_path / "study" / "records.jsonl"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    code, output = stop_after(3, how, tuning(records.parent, processor), records)
    assert code == 128 + how, output
    assert "what was measured stays, the same command goes on" in output and "Traceback" not in output
    assert whole_lines(records).count(b"\n") >= 3 and not list(temporary.iterdir())


def test_a_fault_in_compiled_code_prints_where_python_was(tmp_path: Path) -> None:
    (tmp_path / "faults.py").write_text(
        "import os, signal\ndef divided():\n    os.kill(os.getpid(), signal.SIGFPE)\ndivided()\n"
    )
    died = python(
        *("-m", "dietlab", "--import", "faults", "space", "dense"),
        path=(ROOT,),
        cwd=tmp_path,
        exits=-signal.SIGFPE,
    )
    told = died.stderr.splitlines()
    assert told[0] == "Fatal Python error: Floating point exception" and not died.stdout
    assert any(re.search(r'faults\.py", line 3 in divided$', line) for line in told)
    assert any("in import_modules" in line for line in told)


def test_a_command_starts_where_standard_error_is_closed(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m dietlab --version 2>&-'
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "dietlab, version" in done.stdout


SIGNALLED = """
import os, signal, click
from dietlab.cli.commands import CommandGroup
group = CommandGroup("some")
@group.command()
def run():
    os.kill(os.getpid(), signal.SIGHUP)
    click.echo("goes on")
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        click.echo("still goes on")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        click.echo("cleaned up")
signal.signal(signal.SIGHUP, signal.SIG_IGN)
group(["run"])
"""


def test_an_ignored_signal_stays_ignored_and_a_second_one_disturbs_no_cleaning() -> None:
    child = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout) == (128 + signal.SIGTERM, "goes on\ncleaned up\n"), child.stderr


def test_folder_left_by_a_kill_before_the_manifest_was_whole_is_used(tmp_path: Path, here: Hardware) -> None:
    (tmp_path / "manifest.json.new").write_text('{"schema_ver')
    study = Study.create(tmp_path, WORK, here, SHAPES)
    assert Study.open(tmp_path) == study


# The folder


def test_study_opens_as_it_was_made_and_goes_on(tmp_path: Path, here: Hardware) -> None:
    study = Study.create(tmp_path / "s", WORK, here, SHAPES.split(0.25), "smoke", "random", 3)
    assert Study.open(tmp_path / "s") == study
    assert Study.create(tmp_path / "s", WORK, here, SHAPES.split(0.25), "smoke", "random", 3) == study
    more = Study.create(tmp_path / "s", WORK, here, SHAPES.split(0.25), "quick", "random", 3)
    assert more.effort == "quick"
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert study.settings == {name: manifest[name] for name in study.settings}
    assert study.settings["seed"] == 3 and study.settings["max_kernels"] == 8
    again = Study.create(tmp_path / "t", WORK, here, study.shapes, **study.settings)
    assert again.settings == study.settings and repr(again).startswith(f"<Study {again.folder}")


@pytest.mark.parametrize(
    ("work", "edge"),
    [
        (WORK, "padded"),
        (BatchMatmul(T=Dim(1, 16), B=2, D=8, form="nt"), "padded"),
        (BatchMatmul(T=Dim(1, 16), B=2, D=8, form="nn"), "partitioned"),
    ],
)
def test_study_searches_the_space_of_its_cover(
    work: Workload, edge: str, tmp_path: Path, here: Hardware
) -> None:
    shapes = ShapeSet.uniform(work, 4)
    for cover, edges in (("composed", {"even"}), ("paper", {edge})):
        study = Study.create(tmp_path / cover, work, here, shapes, "smoke", cover=cover)  # type: ignore[arg-type]
        assert Study.open(tmp_path / cover) == study and study.cover == cover
        assert {kernel.edge for kernel in study.space()} == edges
    run = study.tune(SyntheticRunner(here))
    assert {record.scheme.edge for record in run.records} == {edge}
    dispatcher = study.dispatch(3)
    assert {plan.edge for plan in dispatcher.schemes} == {edge} and 1 <= len(dispatcher.micro_kernels) <= 3


@pytest.mark.parametrize("count", [3, 7, 49])
def test_study_of_any_number_of_shapes_goes_on(count: int, tmp_path: Path, here: Hardware) -> None:
    work = Dense(T=Dim(1, count), N=64, K=32)
    for _ in range(2):
        Study.create(tmp_path / "s", work, here, ShapeSet.every(work))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"workload": Dense(T=Dim(1, 16), N=64, K=33)}, "own workload; got dense .*K=33"),
        ({"shapes": ShapeSet.uniform(WORK, 3)}, "own shapes"),
        ({"strategy": "random"}, "own strategy; got random"),
        ({"seed": 4}, "own seed; got 4. It has 0"),
        ({"cover": "paper"}, "own cover; got paper. It has composed"),
        (
            {"hardware": Hardware.preset("haswell-1core")},
            "on its own processor; got a CPU with AVX2.*another folder",
        ),
    ],
)
def test_folder_of_another_study_is_refused(
    changed: dict[str, Any], complaint: str, tmp_path: Path, here: Hardware
) -> None:
    mine: dict[str, Any] = {"workload": WORK, "hardware": here, "shapes": SHAPES}
    Study.create(tmp_path / "s", **mine)
    with pytest.raises(StudyError, match=complaint):
        Study.create(tmp_path / "s", **{**mine, **changed})


def test_measured_peaks_do_not_make_another_study(tmp_path: Path, here: Hardware) -> None:
    Study.create(tmp_path / "s", WORK, replace(here, peak_gflops=100.0), SHAPES)
    again = Study.create(tmp_path / "s", WORK, replace(here, peak_gflops=101.0), SHAPES)
    assert again.hardware.peak_gflops == 100.0


def test_folder_with_other_things_is_left_alone(tmp_path: Path, here: Hardware) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StudyError, match=r"an empty or new folder; got .*Choose another --out"):
        Study.create(tmp_path, WORK, here, SHAPES)
    with pytest.raises(StudyError, match="an empty or new folder"):
        Study.create(tmp_path / "thesis.txt", WORK, here, SHAPES)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "a study folder must have a readable manifest.json.*dietlab tune --out FOLDER"),
        ("{", "a study folder must have a readable manifest.json"),
        ('{"schema_version": 99}', "a study must have schema 3; got 99 in .*json. Open it with the version"),
        ('{"schema_version": 1}', "a study must have schema 3; got 1 in .* or tune again"),
        ("[]", "a study must have schema 3"),
    ],
)
def test_folder_that_is_no_study_is_refused(text: str | None, complaint: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(StudyError, match=complaint):
        Study.open(tmp_path)


HOLD = """
import sys
from dietlab.compare.study import Study
with Study.open(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_tuner_is_refused_until_the_first_is_gone(tmp_path: Path, here: Hardware) -> None:
    study = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(study.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(
            StudyError, match=r"one tuning or evaluation at a time works on a study; got .*another folder"
        ):
            study.tune(SyntheticRunner(here))
        assert not (study.folder / "records.jsonl").exists()
    finally:
        holder.kill()
        holder.communicate()
    assert study.tune(SyntheticRunner(here)).trials >= 8


def test_stages_of_a_study_that_was_not_tuned_say_what_is_missing(tmp_path: Path, here: Hardware) -> None:
    study = Study.create(tmp_path / "s", WORK, here, SHAPES)
    with pytest.raises(StudyError, match=r"a study must have been tuned; got no records.jsonl.*dietlab tune"):
        study.dispatch()


def test_tuned_study_gives_its_run_back_with_or_without_the_model(tmp_path: Path, here: Hardware) -> None:
    study = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke")
    run = study.tune(SyntheticRunner(here))
    kernels = run.schemes
    expected = run.seconds_table(kernels, SHAPES.shapes)
    for _ in range(2):
        again = study.run()
        assert again.records == run.records
        np.testing.assert_allclose(again.seconds_table(kernels, SHAPES.shapes), expected)
        (study.folder / "model.json").unlink(missing_ok=True)


def test_choosing_the_portfolio_is_part_of_the_cost_of_tuning(tmp_path: Path, here: Hardware) -> None:
    study = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke")
    study.tune(SyntheticRunner(here))
    before = study.run().seconds
    study.dispatch()
    after = study.run().seconds
    assert after.search > before.search and after.model == before.model
    study.tune(SyntheticRunner(here))  # finds all its records
    assert study.run().seconds == after


# The command


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, processor: Path) -> tuple[Path, Result]:
    """A study tuned for real, and what the command told."""
    out = tmp_path_factory.mktemp("studies") / "my study"
    return out, dietlab(*tuning(out, processor))


@pytest.fixture(scope="module")
def study(tuned: tuple[Path, Result], processor: Path) -> Path:
    """A tuned study with dispatcher and library."""
    out, _ = tuned
    facts = json.loads(done(*tuning(out, processor, "--json")))
    assert facts["trials"] >= 8 and facts["failures"] == 0 and facts["best_gflops"] > 0
    rules = done("dispatch", out, "--max-kernels", "3")
    assert "def choose(T):" in rules and "x mean slowdown\n\ndef" in rules
    built = done("build", out)
    assert "library.so" in built and "machine code" in built
    return out


def test_a_command_tells_its_stages_and_the_next_command_or_the_result_only(
    tuned: tuple[Path, Result], study: Path, processor: Path
) -> None:
    _, result = tuned
    command = tuning(study, processor)
    first, _, last = result.stdout.splitlines()
    assert first == f"{WORK} on {Hardware.load(processor).name}, 1 core"
    assert last == f"next: dietlab build '{study}'"
    lines = [re.match(r"tune (\d/2 \w+): \d+ \S+ in ", line) for line in result.stderr.splitlines()]
    assert [line and line[1] for line in lines] == ["1/2 search", "2/2 decide"]
    assert "next:" not in done(*command, "--json")
    built = dietlab("build", study)
    assert built.stderr.startswith("build: 1 library in ") and built.stderr.count("\n") == 1
    assert built.stdout.splitlines()[-1] == f"next: dietlab evaluate '{study}'"
    timed = ("evaluate", study, "--shapes", "1", "--against", "openblas", "--effort", "smoke")
    assert done(*timed).splitlines()[-1] == f"next: dietlab ablate '{study}'"
    for quietly in ((*command, "--quiet"), ("build", study, "--quiet"), (*timed, "--quiet")):
        result = dietlab(*quietly)
        assert result.exit_code == 0 and result.stderr == ""
        assert result.stdout and "next:" not in result.stdout


def test_built_study_is_an_operator(study: Path) -> None:
    op = load(study)
    x, w = (WORK.inputs(SHAPES.shapes[-1])[name] for name in ("x", "w"))
    np.testing.assert_allclose(op(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
    assert 1 <= len(op.micro_kernels) <= 3
    done("build", study, "--max-kernels", "1")
    assert len(load(study).micro_kernels) == 1


def test_a_library_of_an_earlier_dispatcher_is_not_evaluated(study: Path) -> None:
    done("build", study, "--max-kernels", "3")
    done("dispatch", study, "--max-kernels", "1")
    result = dietlab("evaluate", study, "--shapes", "1", "--against", "openblas", "--effort", "smoke")
    assert result.exit_code == 2
    assert re.search(
        r"the library must hold the study's latest dispatcher; got .*dietlab build", result.stderr
    )
    done("build", study)
    assert Study.open(study).operator().micro_kernels == load(study).micro_kernels


def test_evaluate_writes_the_report_that_report_prints(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    text = done(
        "evaluate",
        study,
        "--shapes",
        "1,5",
        "--against",
        "openblas,oracle",
        "--effort",
        "smoke",
        "--json",
        path,
    )
    value = json.loads(path.read_text())
    assert {(r["shape"]["T"], r["contender"]) for r in value["rows"]} == {
        (t, name) for t in (1, 5) for name in ("dietlab", "openblas", "oracle")
    }
    assert all(r["correct"] for r in value["rows"])
    assert json.loads((study / "report.json").read_text()) == value
    assert "openblas" in text
    assert "openblas" in done("report", study, "--html", tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()[:500]
    # Without the extra lab the text still comes.
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    text = done("report", study)
    assert "openblas" in text and "no HTML page was written: HTML pages need the extra lab" in text
    wanted = dietlab("report", study, "--html", tmp_path / "other.html")
    assert wanted.exit_code == 2 and "openblas" in wanted.stdout
    assert "pip install 'dietlab[lab]'" in wanted.stderr and not (tmp_path / "other.html").exists()


def test_an_evaluation_that_was_stopped_goes_on_at_the_next_shape(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, work = Study.open(study), Study.open(study).workload
    played: list[int] = []
    rows = Contest.rows

    def stopping(self: Contest, shape: Shape, *others: Any) -> list[Row]:
        if len(played) == 2:
            played.append(0)
            raise KeyboardInterrupt
        played.append(shape["T"])
        return rows(self, shape, *others)

    monkeypatch.setattr(Contest, "rows", stopping)
    every = ShapeSet.extents(work, [1, 5, 7, 16])
    with pytest.raises(KeyboardInterrupt):
        opened.evaluate(every, ["openblas"], effort="smoke")
    report = opened.evaluate(every, ["openblas"], effort="smoke")
    assert played[2] == 0 and sorted(played) == [0, 1, 5, 7, 16], "no shape is measured twice"
    assert {row.shape["T"] for row in report.rows} == {1, 5, 7, 16} and len(report.rows) == 8
    assert not (study / "evaluation.jsonl").exists()
    # Another evaluation, or one that is complete, begins anew.
    (study / "evaluation.jsonl").write_text("damaged\n")
    opened.evaluate(ShapeSet.extents(work, [1]), ["openblas"], effort="smoke")
    assert played[-1] == 1 and len(played) == 6


@pytest.fixture(scope="module")
def evaluated(study: Path) -> Path:
    done("evaluate", study, "--shapes", "1", "--against", "openblas", "--effort", "smoke", "--cache", "hot")
    return study


def test_a_typo_among_cache_states_costs_no_report(evaluated: Path) -> None:
    files = [evaluated / "report.json", evaluated / "report.html"]
    before = [path.read_bytes() for path in files]
    for against in ("openblas", "openblas,oracle"):
        result = dietlab("evaluate", evaluated, "--shapes", "1,5", "--against", against, "--cache", "warm")
        assert result.exit_code == 2 and not isinstance(result.exception, KeyError)
        assert result.stderr == "dietlab: cache states are hot, interleaved, rotating; got warm\n"
    assert [path.read_bytes() for path in files] == before


def test_an_evaluation_without_a_right_result_keeps_the_last_report(
    evaluated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [evaluated / "report.json", evaluated / "report.html"]
    before = [path.read_bytes() for path in files]
    failed = [replace(row, correct=None, plan="signal 6") for row in Study.open(evaluated).report().rows]
    empty = replace(Study.open(evaluated).report(), rows=tuple(failed))
    monkeypatch.setattr(Study, "evaluate", lambda *_, **__: empty)
    result = dietlab("evaluate", evaluated, "--json", evaluated / "copy.json")
    assert result.exit_code == 2 and "no results\n  dietlab (hot cache)" in result.stdout
    assert "signal 6" in result.stderr and "Nothing was written" in result.stderr
    assert [path.read_bytes() for path in files] == before and not (evaluated / "copy.json").exists()


@pytest.mark.parametrize(("edges", "options"), [(("even",), ["--strategy", "paper"]), (("padded",), [])])
def test_replay_searches_recorded_measurements(edges: Any, options: list[str], tmp_path: Path) -> None:
    """Also among padded micro-kernels."""
    hardware = Hardware.preset("haswell-1core")
    some = build_space(WORK, hardware, edges).schemes[::20]
    trials = [Trial(kernel, SHAPES.shapes) for kernel in some]
    header = {"workload": WORK.to_json(), "hardware": hardware.to_json()}
    path = tmp_path / "records.jsonl.gz"
    write_compressed(path, header, SyntheticRunner(hardware).measure(WORK, trials))
    facts = json.loads(done("replay", path, "--effort", "smoke", *options, "--json"))
    assert 8 <= facts["trials"] <= facts["space"] == len(some) and facts["measurements"] > 8


def test_replay_takes_the_records_of_a_study_that_decided_between_its_tiles(tmp_path: Path) -> None:
    hardware, every = Hardware.preset("haswell-1core"), Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))
    shapes = ShapeSet.layers([(48, 32), (200, 100)], lengths=[1, 5, 8, 33, 64], workload=every)
    study = Study.create(tmp_path / "study", every, hardware, shapes, "smoke", max_kernels=2)
    study.tune(SyntheticRunner(hardware))
    records = study.folder / "records.jsonl"
    assert {r.scheme for r in read_records(records).records} - set(study.space()), "it decides on others, too"
    facts = json.loads(done("replay", records, "--effort", "smoke", "--json"))
    assert facts["trials"] >= 8
    (tmp_path / "none.jsonl").write_text(records.read_text().partition("\n")[0] + "\n")
    failed = dietlab("replay", tmp_path / "none.jsonl")
    assert failed.exit_code == 2 and "replaying a search needs measurements; got none in" in failed.stderr


def test_a_dimension_is_given_once() -> None:
    failed = dietlab("space", "dense", "--dim", "T=1:8", "--dim", "T=1:4")
    assert failed.exit_code == 2 and "a dimension must be given once; got T=1..8 and T=1:4" in failed.stderr


@pytest.mark.parametrize("text", ["x", "99999", "0,-1", "0,²"])
def test_serve_takes_processors_that_are_here(text: str) -> None:
    failed = dietlab("serve", "--key", "k", "--processors", text)
    assert failed.exit_code == 2 and "processors must be among 0" in failed.stderr


def test_space_prints_what_fits_and_why_the_rest_does_not() -> None:
    value = json.loads(done("space", "dense", *DIMS, "--hardware", "haswell-1core", "--json"))
    space = build_space(WORK, Hardware.preset("haswell-1core"))
    assert value["schemes"] == [kernel.key for kernel in space]
    assert sum(r["rejected"] for r in value["rejections"]) == sum(r.count for r in space.rejected)
    padded = json.loads(
        done("space", "dense", *DIMS, "--hardware", "haswell-1core", "--json", "--cover", "paper")
    )
    assert padded["schemes"] and not any(".even" in key for key in padded["schemes"])
    text = done("space", "--hardware", "cascadelake-1core")
    assert "dense T=1..128 N=2304 K=768" in text and "fit the vector registers" in text


def test_doctor_names_what_is_needed() -> None:
    result = dietlab("doctor", "--json")
    findings = {f["what"]: f for f in json.loads(result.stdout)}
    assert result.exit_code == int(any(f["needed"] and not f["ok"] for f in findings.values()))
    assert findings["apache-tvm-ffi"]["found"] and findings["processor"]["ok"]
    assert "C++ compiler" in dietlab("doctor").stdout


def test_doctor_shows_the_store_and_empties_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    monkeypatch.setattr(cli_doctor, "STORE", store)
    store.keep("a", {}, bytes(5000))
    assert "1 program, 4.96 KiB" in dietlab("doctor").stdout and store.size()[0] == 1
    assert "0 programs" in dietlab("doctor", "--empty-store").stdout and store.size() == (0, 0)


def test_doctor_says_what_a_store_that_cannot_be_written_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_doctor, "STORE", Store(Path("/proc/store")))
    (line,) = [line for line in dietlab("doctor").stdout.splitlines() if "store of compiled" in line]
    assert re.match(r"-    store .*/proc/store cannot be written .*compiles all programs again.*HOME", line)


@pytest.mark.parametrize("form", ["nt", "nn"])
def test_batched_products_have_default_dimensions_of_their_own(form: str) -> None:
    found = json.loads(done("space", f"batch-matmul-{form}", "--hardware", "haswell-1core", "--json"))
    work = BatchMatmul(T=Dim(1, 128), B=192, D=64, form=form)  # type: ignore[arg-type]
    space = build_space(work, Hardware.preset("haswell-1core"))
    assert found["schemes"] == [scheme.key for scheme in space]
    assert f"{form}: T=1:128 B=192 D=64" in " ".join(done("tune", "--help").split())


@pytest.mark.parametrize("text", ["17,3", "3,17,17"])
def test_shapes_beyond_the_tuned_range_are_evaluated_with_a_note(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = parse_shapes(text, WORK, beyond=True)
    assert [shape["T"] for shape in found] == [3, 17]
    assert capsys.readouterr().err.startswith("note: outside the tuned range T=1..16: T=17")
    assert [shape["T"] for shape in parse_shapes("3,16", WORK, beyond=True)] == [3, 16]
    assert not capsys.readouterr().err


# What cannot be written


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", [["--help"], ["space", "--hardware", "haswell-1core"], ["space", "--help"]], ids=" ".join
)
def test_output_that_cannot_be_written_is_one_line(command: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        for errors in (subprocess.PIPE, full):
            child = subprocess.run(
                [*COMMAND, *command], stdout=full, stderr=errors, text=True, check=False, env=environment
            )
            assert child.returncode == 1
            if errors is subprocess.PIPE:
                assert re.fullmatch(
                    r"dietlab: the output must be writable; got .*with room.*\n", child.stderr
                )
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run(
        [*COMMAND, *command],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )
    os.close(write)
    assert (child.returncode, child.stderr) == (1, "")


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "dense", *DIMS, "--hardware", "haswell-1core", "--out", "/proc/x"),
        ("reproduce", "--out", "/proc/x"),
        ("bench", "--suite", "smoke", "--out", "/proc/x"),
        ("lab", "/proc/x"),
        ("survey", "--records", "/proc/x.jsonl"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_with_advice(command: tuple[str, ...]) -> None:
    result = dietlab(*command)
    assert result.exit_code == 2
    assert re.search(
        r"/proc/x.*Choose another path, in a folder that exists and can be written"
        r"|a folder that can be written to; got /proc: ",
        result.stderr,
    )


BAD = {
    (
        "tune",
        "dense",
        "--dim",
        "M=4",
        "--dim",
        "N=4",
        "--dim",
        "K=4",
        "--out",
        "x",
    ): "dense must have the dimensions T, N, K; got unknown M",
    (
        "tune",
        "conv",
        *DIMS,
        "--out",
        "x",
    ): "the operator is one of dense, batch-matmul-nt, batch-matmul-nn, conv2d, conv1d; got 'conv'",
    (
        "tune",
        "dense",
        "--dim",
        "T=9:3",
        "--dim",
        "N=4",
        "--dim",
        "K=4",
        "--out",
        "x",
    ): "1 <= low <= high; got low=9, high=3",
    ("space", "--hardware", "zen4"): (
        "--hardware must be a JSON file or one of a100, cascadelake-1core, h100, h200, haswell-1core, "
        "rtx3090, t4, zen4-1core; got 'zen4'. Did you mean 'zen4-1core'?"
    ),
    ("tune", "dense", "--dim", "T", "--out", "x"): "NAME=EXTENT or NAME=LOW:HIGH; got 'T'",
    ("tune", "dense", "--dim", "T=a:b", "--out", "x"): "a number or low:high; got 'a:b'",
    (
        "tune",
        "dense",
        *DIMS,
        "--hardware",
        "haswell-1core",
        "--shapes",
        "sometimes",
        "--out",
        "x",
    ): "shapes are uniform",
    ("space", "--dim", "T=0", "--dim", "N=4", "--dim", "K=4"): "T=Dim(1, 128) (--dim T=1:128)",
    ("space", "--dim", "T=4:1", "--dim", "N=4", "--dim", "K=4"): "T=Dim(1, 128) (--dim T=1:128)",
    ("space", "--hardware", "nowhere.json"): "zen4-1core; got 'nowhere.json'",
    ("space", "--hardware", "."): "a hardware file must be readable JSON",
    ("build", "."): "a study folder must have a readable manifest.json",
    ("evaluate", "."): "a study folder must have a readable manifest.json",
    ("report", "."): "a study folder must have a readable manifest.json",
}


@pytest.mark.parametrize("arguments", BAD, ids=lambda a: " ".join(a))
def test_bad_argument_is_one_clear_line_and_status_two(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = dietlab(*arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("dietlab: ") and BAD[arguments] in line
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_of_every_command(command: str) -> None:
    text = done(*([command] if command else []), "--help")
    assert text.startswith("Usage: main") and len(text.splitlines()) > 4


def test_help_has_every_command_once_under_a_heading_in_a_whole_line() -> None:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"])
    _, *sections = re.split(r"^([A-Z][^\n]*):\n", result.stdout, flags=re.M)
    told = dict(zip(sections[::2], sections[1::2], strict=True))
    listed = {heading: re.findall(r"^  (\S+) +\S", told.pop(heading), re.M) for heading in HEADINGS}
    assert sorted(name for names in listed.values() for name in names) == COMMANDS
    assert {heading: list(names) for heading, names in HEADINGS.items()} == listed
    assert list(told) == ["Options"], "no command is without a heading"
    assert "..." not in result.stdout.replace("COMMAND [ARGS]...", "")
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_command_without_a_heading_stands_at_the_end() -> None:
    group = CommandGroup("some", commands=[click.Command("tune"), click.Command("brew", short_help="Tea.")])
    text = group.get_help(click.Context(group))
    assert re.findall(r"^(\S.*):$|^  (tune|brew)", text, re.M)[-4:] == [
        ("From an operator to a library", ""),
        ("", "tune"),
        ("More", ""),
        ("", "brew"),
    ]


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from dietlab.cli import main
main(sys.argv[2:])
"""


def test_full_disk_stops_tuning_with_a_clear_line_and_blames_no_micro_kernel(
    tmp_path: Path, processor: Path
) -> None:
    """Libraries do not fit into 3 KiB, the manifest and the records' header do."""
    out, limit = tmp_path / "s", str(3 << 10)
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, limit, *tuning(out, processor)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert child.returncode == 2, child.stderr
    assert "Traceback" not in child.stderr
    assert "dietlab: libraries must be writable; got" in child.stderr and "Free some space" in child.stderr
    assert read_records(out / "records.jsonl").records == ()


TUNED = ("tune", "dense", "--effort", "smoke", "--quiet")
STATIC = ("--dim", "T=8", "--dim", "N=64", "--dim", "K=32")
RPC = ("--rpc", "127.0.0.1:1", "--key", "lab")
MANY, MOST = (
    ("--threads", "9999"),
    r"--threads must be at most the cores that this process may use; got 9999. Give at most \d+: ",
)
SEVERAL = ("--dim", "T=1:512", "--dim", "N=64:4096", "--dim", "K=64:4096")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            (*TUNED, *SEVERAL, "--shapes", "uniform:8", "--out", "{}/x"),
            "dimensions.*; got 'uniform:8'",
        ),
        ((*TUNED, "--shapes", "1,x", "--out", "{}/x"), "shapes are uniform"),
        ((*TUNED, "--transfer-from", "nowhere", "--out", "{}/x"), "records must be a file.*; got 'nowhere'"),
        ((*TUNED, "--out", "{}/taken"), "a new study needs an empty or new folder"),
        ((*TUNED, "--dtype", "float16", "--out", "{}/x"), "float16"),
        (("survey", *SEVERAL, "--shapes", "every", "--records", "{}/x.jsonl"), "dimensions.*; got 'every'"),
        (("survey", "--records", "{}/no/x.jsonl"), "a folder that exists; got .*no"),
        (
            ("survey", "--records", "{}/x.jsonl", "--pack", "{}/x.json"),
            "--pack needs the name of a .jsonl.gz file",
        ),
        (("quickstart", "--out", "{}/x", "--shapes", "some"), "shapes are uniform"),
        ((*TUNED, "--hardware", "t4", "--out", "{}/x"), "measured on a GPU; got|must run code for sm_75"),
        (
            (*TUNED, "--hardware", "haswell-1core", "--dtype", "float16", "--out", "{}/x"),
            "at least one scheme.*; got none",
        ),
        (
            (*TUNED, *RPC, "--hardware", "haswell-1core", "--out", "{}/x"),
            "a tracker of TVM's RPC must answer.*dietlab serve",
        ),
        ((*TUNED, *MANY, "--out", "{}/x"), MOST),
        ((*TUNED, *MANY, "--hardware", "haswell-1core", "--out", "{}/x"), MOST),
        (("space", *MANY), MOST),
        (("quickstart", *MANY, "--out", "{}/x"), MOST),
        (("survey", *MANY, "--records", "{}/x.jsonl"), MOST),
        (("compile", "--hardware", "haswell-1core"), "needs a GPU.*--target cuda"),
        (("kit", "pack", "--hardware", "haswell-1core", "--out", "{}/x"), "kind cuda; got.*--hardware h200"),
        *(
            ((*TUNED, *DIMS, "--shapes", shapes, "--out", "{}/x"), said)
            for shapes, said in {
                "uniform:0": r"at least one shape; got 0. For example 8 \(uniform:8\)",
                "log-uniform:-1": r"at least one shape; got -1. For example 8 \(log-uniform:8\)",
                "random:0": r"at least one shape; got 0. For example 8 \(random:8\)",
                "random:-1": r"at least one shape; got -1. For example",
                "serving:0": "one shape or more; got 0. For example",
                "64:32@0": "at least 1; got 0. Leave",
                "held-out/0@1": "at least one layer must be drawn; got 0. For example",
                "1,17": r"its range 1..16.*; got T=17. .*T=Dim\(1, 17\) \(--dim T=1:17\)",
                "0,5": "at least 1; got 0. Leave",
                "-1": "at least 1; got -1. Leave",
                "N=3": "missing T. For example T=1,16",
                "bert-base@17": r"K=Dim\(768, 3072\) \(--dim K=768:3072\)",
                "64:32@17": r"T=Dim\(17, 17\) \(--dim T=17:17\)",
                "": "shapes are uniform.*For example --shapes uniform:8",
            }.items()
        ),
        (
            (*TUNED, *STATIC, "--out", "{}/x"),
            r"one dynamic dimension; got 0.*T=Dim\(1, 128\) \(--dim T=1:128\)",
        ),
        (
            ("tune", "batch-matmul-nt", "--layers", "bert-base", "--out", "{}/x"),
            "dimensions T, N, K.*dense --dim T=1:512",
        ),
        (("quickstart", "--out", "{}/taken"), "a new study needs an empty or new folder"),
    ],
)
def test_arguments_are_checked_before_the_machine_is_measured(
    command: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(hardware: Hardware) -> Hardware:
        raise AssertionError("the machine is measured")

    monkeypatch.setattr(Hardware, "measured", measured)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("dear")
    before = sorted(tmp_path.rglob("*"))
    result = dietlab(*(part.format(tmp_path) for part in command))
    assert result.exit_code == 2 and re.search(said, result.stderr, re.DOTALL), result.output
    assert sorted(tmp_path.rglob("*")) == before, "no folder is left"


def test_a_new_study_is_measured_and_an_equal_one_keeps_its_peaks(
    tmp_path: Path, here: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hardware, "measured", lambda hardware: replace(hardware, peak_gflops=123.0))
    made = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke", measure=True)
    assert Study.open(tmp_path / "s").hardware.peak_gflops == made.hardware.peak_gflops == 123.0
    monkeypatch.setattr(Hardware, "measured", None)
    again = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke", measure=True)
    assert again.hardware.peak_gflops == 123.0


def test_an_evaluation_of_less_leaves_the_report(study: Path, tmp_path: Path) -> None:
    done("build", study)
    timed = ("evaluate", study, "--against", "openblas", "--effort", "smoke", "--cache", "hot", "--quiet")
    done(*timed, "--shapes", "1,5")
    kept = (study / "report.json").read_bytes()
    told = done(*timed, "--shapes", "1")
    assert "report.json stays: it has 4 results, of which this one has 2" in told
    assert (study / "report.json").read_bytes() == kept
    done(*timed, "--shapes", "1", "--json", tmp_path / "few.json")
    assert len(json.loads((tmp_path / "few.json").read_text())["rows"]) == 2
    absent = dietlab("evaluate", study, "--against", "openblas,zendnn", "--shapes", "1,5", "--quiet")
    if absent.exit_code:  # on an AMD it is there
        assert "every contender that is named must be available; got zendnn is absent" in absent.stderr
        assert absent.exit_code == 2 and (study / "report.json").read_bytes() == kept

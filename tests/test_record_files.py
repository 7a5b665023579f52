"""Files of records together: merged, filtered, checked, written as tables; MetaSchedule's databases read."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from dietlab.base.errors import DietlabError, DietlabWarning, MissingDependencyError, RecordError
from dietlab.base.shipped import data_path
from dietlab.cli.main import main
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.journal import read_journal
from dietlab.compare.study import Study
from dietlab.compare.suites.kit import measure
from dietlab.cost import Prior
from dietlab.cost.model import CostModel
from dietlab.lab.loops.climb import Climb
from dietlab.lab.published.records import Published
from dietlab.lab.reproduce.run import Reproduction
from dietlab.lab.strategies.comparison import load_comparison
from dietlab.lab.strategies.fleet import load_tunings
from dietlab.lab.strategies.method_ablation import MethodAblation
from dietlab.machine import Hardware
from dietlab.measure import Record, RecordFile, read_records, write_compressed
from dietlab.measure import record_files as module
from dietlab.measure.metaschedule import TUNED, WORKLOADS, frame_metaschedule
from dietlab.measure.ready import ReadyLibraries
from dietlab.measure.record import Round
from dietlab.measure.record_files import check_records, filter_records, merge_records, write_table
from dietlab.problem import Shape
from dietlab.tuning import Dispatcher

QUICKSTART = "quickstart"


@pytest.fixture(scope="module")
def file() -> RecordFile:
    whole = read_records(data_path("quickstart/records.jsonl.gz"))
    return replace(whole, records=whole.records[:64])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["records", *arguments])


def saved(file: RecordFile, path: Path) -> str:
    write_compressed(path, file.header, file.records)
    return str(path)


def test_merged_records_are_in_order_and_once(file: RecordFile) -> None:
    halves = replace(file, records=file.records[32:]), replace(file, records=file.records[:40])
    merged = merge_records(halves)
    assert merged.header == file.header
    assert len(merged.records) == 64 and {*merged.records} == {*file.records}
    assert [r.at for r in merged.records] == sorted(r.at for r in file.records)


@pytest.mark.parametrize("name", ["workload", "hardware", "cache"])
def test_records_of_different_origin_are_not_mixed(file: RecordFile, name: str) -> None:
    other = replace(file, header={**file.header, name: {"name": "another"}})
    with pytest.raises(RecordError, match=f"merged records must be of one {name}; got .*another"):
        merge_records([file, other])
    with pytest.raises(RecordError, match="at least one file of records"):
        merge_records([])


def test_conditions_of_a_filter_hold_together(file: RecordFile) -> None:
    shapes = sorted({record.shape["T"] for record in file.records})
    chosen = filter_records(file, shapes=[{"T": shapes[0]}], schemes=f"{file.records[0].scheme.rows}x*")
    assert chosen.records and len(chosen.records) < len(file.records)
    assert {record.shape["T"] for record in chosen.records} == {shapes[0]}
    assert {record.scheme.rows for record in chosen.records} == {file.records[0].scheme.rows}
    assert filter_records(file).records == file.records
    assert not filter_records(file, statuses=["wrong"]).records
    asked = replace(file, records=(replace(file.records[0], asked_by=Round("search", 16)), file.records[1]))
    assert len(filter_records(asked, stages=["search"]).records) == 1


def faults(record: Record) -> dict[str, Record]:
    return {
        "equal to record 1": record,
        "ok, and takes None s": replace(record, seconds=None),
        "wrong, and takes": replace(record, status="wrong"),
        "GFLOP/s, where the processor's peak": replace(record, seconds=1e-9),
        "a restless machine": replace(record, spread=0.7),
        "is no shape of": replace(record, shape=Shape.of(T=100_000)),
    }


def test_doubtful_records_are_named_with_the_reason(file: RecordFile) -> None:
    assert not check_records(file)
    for reason, record in faults(file.records[0]).items():
        (doubt,) = check_records(replace(file, records=(file.records[0], record)))
        assert doubt.record == 2 and reason in doubt.reason
    other = replace(file.records[0], shape=Shape.of(N=5))
    assert "is no shape" in check_records(replace(file, records=(other,)))[0].reason


def test_commands_tell_and_write(file: RecordFile, tmp_path: Path) -> None:
    one, out = saved(file, tmp_path / "one.jsonl.gz"), tmp_path / "t.jsonl.gz"
    told = run("summary", one)
    assert (
        told.exit_code == 0
        and "64 measurements" in told.output
        and "GFLOP/s" in told.output
        and "0 failed" in told.output
    )
    assert run("check", one).exit_code == 0
    bad = saved(replace(file, records=(replace(file.records[0], seconds=1e-9),)), tmp_path / "bad.jsonl.gz")
    checked = run("check", one, bad)
    assert checked.exit_code == 1 and "record 1: " in checked.output and "1 doubts" in checked.output
    length = file.records[0].shape["T"]
    kept = run("filter", one, "--shape", f"T={length}", "--status", "ok", "--out", str(out))
    assert kept.exit_code == 0, kept.output
    assert {r.shape["T"] for r in read_records(out).records} == {length}
    assert run("merge", one, str(out), "--out", str(tmp_path / "m.jsonl.gz")).exit_code == 0
    assert {*read_records(tmp_path / "m.jsonl.gz").records} == {*file.records}
    assert run("table", QUICKSTART, "--out", str(tmp_path / "t.csv")).exit_code == 0
    assert {"T", "scheme", "seconds", "gflops"} <= {*pd.read_csv(tmp_path / "t.csv").columns}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("filter", QUICKSTART, "--shape", "five", "--out", "x.jsonl.gz"), "a shape reads like T=5"),
        (("merge", QUICKSTART, "--out", "x.json"), "must be a .jsonl.gz"),
        (("table", QUICKSTART, "--out", "x.xls"), "ends with .parquet or .csv"),
        (("summary", "nowhere"), "records must be a file, a study's folder with records.jsonl, or"),
    ],
)
def test_commands_refuse_with_a_remedy(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["records", *arguments])
    assert done.exit_code == 2 and said in done.output


def test_parquet_keeps_every_value_and_needs_its_library(
    file: RecordFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = file.to_frame()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"dietlab\[parquet\]"):
        write_table(frame, tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    pytest.importorskip("pyarrow")
    write_table(frame, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), frame)


# --- MetaSchedule ----------------------------------------------------------------------------------


def database(folder: Path, *lines: Any) -> Path:
    arguments = [["TENSOR", "float32", [5, 64]], ["TENSOR", "float32", [64, 96]]]
    written = lines or (
        [0, [[[], []], [0.002, 0.004, 0.003], {"kind": "llvm"}, arguments]],
        [0, [[[[]], []], [1e10], {"kind": "llvm"}, arguments]],
    )
    (folder / WORKLOADS).write_text(json.dumps(["7", "bW9k"]) + "\n", encoding="utf-8")
    (folder / TUNED).write_text("".join(json.dumps(line) + "\n" for line in written), encoding="utf-8")
    return folder


def test_a_database_of_metaschedule_is_a_table(tmp_path: Path) -> None:
    frame = frame_metaschedule(database(tmp_path))
    assert [*frame["seconds"].fillna(-1)] == [0.003, -1] and frame["spread"][0] == 1.0
    assert frame["arguments"][0] == "float32[5,64] float32[64,96]"
    assert set(frame["workload_hash"]) == {"7"} and frame["target"][0] == '{"kind": "llvm"}'
    out = tmp_path / "t.csv"
    assert run("table", str(tmp_path), "--out", str(out)).exit_code == 0 and len(pd.read_csv(out)) == 2


DAMAGED = ([0, "trace"], ["0", [[[], []], [1.0], "llvm", []]], [0, [[[]], ["x"], "llvm", []]])


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_database_is_no_table(line: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"line 1 of database_tuning_record.json"):
        frame_metaschedule(database(tmp_path, line))
    with pytest.raises(RecordError, match="a database of MetaSchedule must have"):
        frame_metaschedule(tmp_path / "none")
    (tmp_path / TUNED).write_text("{\n", encoding="utf-8")
    with pytest.raises(RecordError, match="line 1"):
        frame_metaschedule(tmp_path)


def test_of_a_database_that_a_kill_cut_the_whole_programs_are_used(tmp_path: Path) -> None:
    folder = database(tmp_path)
    whole = (folder / TUNED).read_text(encoding="utf-8")
    (folder / TUNED).write_text(whole[:-20], encoding="utf-8")
    with pytest.warns(DietlabWarning, match=rf"{TUNED}: its last line is cut off: .* are used"):
        assert [*frame_metaschedule(folder)["seconds"]] == [0.003]
    out = tmp_path / "t.csv"
    done = run("table", str(folder), "--out", str(out))
    assert done.exit_code == 0 and len(pd.read_csv(out)) == 1 and f"{TUNED}: its last line" in done.stderr
    with (folder / WORKLOADS).open("a", encoding="utf-8") as file:
        file.write('["8", "bW')
    with pytest.warns(DietlabWarning, match=rf"{WORKLOADS}: its last line is cut off"):
        assert len(frame_metaschedule(folder)) == 1


@pytest.mark.parametrize(("workloads", "of"), [("", 0), ('["7", "bW9k"]\n', 1), ('["7", "bW9k"]\n', -1)])
def test_a_program_without_its_workload_is_told_by_the_file_that_lacks_it(
    workloads: str, of: int, tmp_path: Path
) -> None:
    folder = database(tmp_path, [of, [[[], []], [0.002], "llvm", []]])
    (folder / WORKLOADS).write_text(workloads, encoding="utf-8")
    told = rf"{WORKLOADS} must have the workload of each .*{workloads.count(chr(10))} workloads, .* {of}"
    with pytest.raises(RecordError, match=told):
        frame_metaschedule(folder)
    (folder / WORKLOADS).unlink()
    done = run("table", str(folder), "--out", str(tmp_path / "t.csv"))
    assert done.exit_code == 2 and f"No such file or directory: '{folder / WORKLOADS}'" in done.stderr


# --- Files that were cut, marked, or are something else, at every door ------------------------------

OTHERS = {
    "Git LFS": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 313624\n",
    "is a log of TVM's AutoTVM": '{"input": ["llvm", "dense_pack.x86", [], {}], "config": {"index": 3}, '
    '"result": [[0.002], 0, 1.5, 1700000000.0], "version": 0.2, "tvm_version": "0.14.0"}\n',
    "is a log of TVM's auto-scheduler": '{"i": [["[\\"7\\"]", "llvm -keys=cpu"], [[], []]], '
    '"r": [[0.002], 0, 1.5, 1700000000], "v": "v0.6"}\n',
    "tuned programs of a database of TVM's MetaSchedule": '[0, [[[], []], [0.002], {"kind": "llvm"}, []]]\n',
    "workloads of a database of TVM's MetaSchedule": '["7", "bW9k"]\n',
    "is JSON over several lines": '{\n "schema_version": 1\n}\n',
    "it is empty": "",
}


@pytest.mark.parametrize("told", OTHERS)
@pytest.mark.parametrize(
    "command",
    [
        ("records", "summary"),
        ("records", "check"),
        ("replay",),
        ("compare",),
        ("cost-models",),
        ("ablate",),
    ],
)
def test_commands_say_what_a_file_is_that_holds_no_records(
    command: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(OTHERS[told], encoding="utf-8")
    done = CliRunner().invoke(main, [*command, str(path)])
    assert done.exit_code == 2 and told in done.stderr and str(path) in done.stderr, done.output


def test_commands_use_the_whole_records_of_a_cut_file_and_say_so(file: RecordFile, tmp_path: Path) -> None:
    path = Path(saved(file, tmp_path / "cut.jsonl.gz"))
    data = path.read_bytes()
    path.write_bytes(data[:-300])
    with pytest.warns(DietlabWarning, match="the compressed file is cut off"):
        whole = read_records(path).records
    assert 0 < len(whole) < 64 and whole == file.records[: len(whole)]
    for command in ("summary", "check"):
        done = run(command, str(path))
        assert done.exit_code == 0 and f"{len(whole)} " in done.stdout
        assert done.stderr.startswith(f"dietlab: {path}: the compressed file is cut off"), done.stderr
        assert len(done.stderr.splitlines()) == 1
    path.write_bytes(data[:8])
    done = run("summary", str(path))
    assert done.exit_code == 2 and "cut off, after 0 lines" in done.stderr and "Aborted" not in done.output


def test_a_line_that_is_no_record_is_told_with_its_number(file: RecordFile, tmp_path: Path) -> None:
    lines = gzip.decompress(data_path("quickstart/records.jsonl.gz").read_bytes()).decode().splitlines()[:3]
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([*lines, OTHERS["is a log of TVM's auto-scheduler"]]), encoding="utf-8")
    with pytest.raises(RecordError, match=r"mixed\.jsonl, line 4 is a log of TVM's auto-scheduler"):
        read_records(path)
    path.write_text("\n".join([*lines, '{"status": "ok"}', ""]), encoding="utf-8")
    with pytest.raises(
        RecordError, match=r"a record must have all its fields; got .*mixed\.jsonl, line 4: no 'scheme'"
    ):
        read_records(path)


def test_an_end_of_file_is_no_ctrl_d(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click says "Aborted!" of an ``EOFError``, and nothing else."""
    monkeypatch.setattr("dietlab.cli.records.read_records", lambda path: next(ended()))
    done = run("summary", QUICKSTART)
    assert done.exit_code == 2 and "a file that is read is whole; got it ends" in done.stderr


def ended() -> Iterator[Any]:
    raise EOFError("it ends")
    yield


READERS: dict[str, Callable[[Path], Any]] = {
    "records.jsonl": read_records,
    "report.json": Report.load,
    "bench.csv": ResultTable.load,
    "manifest.json": lambda path: Study.open(path.parent),
    "rows.jsonl": read_journal,
    "dispatcher.json": Dispatcher.load,
    "hardware.json": Hardware.load,
    "model.json": CostModel.load,
    "prior.json": Prior.load,
    "published.jsonl.gz": Published.load,
    "climb.json": Climb.load,
    "comparison.json": load_comparison,
    "ablation.json": MethodAblation.load,
    "tunings.json": load_tunings,
    "reproduce.json": lambda path: Reproduction.open(path.parent),
    "kit.json": lambda path: measure(path.parent, path.parent / "out"),
    "libraries.jsonl": lambda path: ReadyLibraries.open(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(OTHERS["Git LFS"].encode(), "git lfs pull", id="lfs"),
        pytest.param(gzip.compress(b'{"schema_version": 1}' * 100)[:-12], "cut off", id="compressed"),
        pytest.param(b'{"schema_version": 1, "rows": [1', "cut off|Expecting", id="cut"),
        pytest.param('{"schema_version": 1}\n'.encode("utf-16"), "UTF-16", id="utf-16"),
    ],
)
def test_every_file_that_is_read_is_told_by_its_name(
    name: str, data: bytes, told: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DietlabError, match=rf"(?s){re.escape(str(path))}.*({told})"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("schema", [1, 2, 3])
def test_no_field_that_is_missing_is_a_key_error(name: str, schema: int, tmp_path: Path) -> None:
    path = tmp_path / name
    rest = "[]\n" if "jsonl" in name else ""
    path.write_text(f'\ufeff{{"schema_version": {schema}}}\n{rest}', encoding="utf-8")
    with pytest.raises(DietlabError):
        READERS[name](path)

"""Files of records together: merged, filtered, checked, written as tables; MetaSchedule's databases read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from dietlab.cli.main import main
from dietlab.errors import MissingDependencyError, RecordError
from dietlab.measure import Record, RecordFile, read_records, write_compressed
from dietlab.measure import record_files as module
from dietlab.measure.metaschedule import TUNED, WORKLOADS, frame_metaschedule
from dietlab.measure.record import Round
from dietlab.measure.record_files import check_records, filter_records, merge_records, write_table
from dietlab.shapes import Shape
from dietlab.shipped import data_path

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
    with pytest.raises(RecordError, match=f"merged records are of one {name}; got .*another"):
        merge_records([file, other])
    with pytest.raises(RecordError, match="one file of records or more"):
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
        (("merge", QUICKSTART, "--out", "x.json"), "are a .jsonl.gz file"),
        (("table", QUICKSTART, "--out", "x.xls"), "ends with .parquet or .csv"),
        (("summary", "nowhere"), "records are a file, or the name"),
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


DAMAGED = ([0, "trace"], [3, [[[], []], [1.0], "llvm", []]], [0, [[[]], ["x"], "llvm", []]])


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_database_is_no_table(line: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"line 1 of database_tuning_record.json"):
        frame_metaschedule(database(tmp_path, line))
    with pytest.raises(RecordError, match="is a folder with"):
        frame_metaschedule(tmp_path / "none")
    (tmp_path / TUNED).write_text("{\n", encoding="utf-8")
    with pytest.raises(RecordError, match="line 1"):
        frame_metaschedule(tmp_path)

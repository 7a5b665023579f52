"""Records survive crashes, runners turn failures into records, and workers leave nothing behind."""

from __future__ import annotations

import gzip
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.errors import BuildError, MeasureError, RecordError
from dietlab.events import PhaseSeconds
from dietlab.hardware import Hardware
from dietlab.measure import (
    LocalRunner,
    Record,
    RecordStore,
    ReplayRunner,
    Round,
    SyntheticRunner,
    Timing,
    Trial,
    read_records,
    write_compressed,
)
from dietlab.measure.pool import WorkerPool
from dietlab.measure.time_worker import _calls_alone, _Library, _packed
from dietlab.shapes import Dim, Shape
from dietlab.space import EDGES
from dietlab.timing.lru_by_bytes import LruByBytes
from dietlab.timing.problem import GUARD, Problem, Verdict, rotating_copies
from dietlab.timing.process import WorkerCrashed, WorkerProcess, WorkerTimeout
from dietlab.timing.protocol import LONGEST_PAUSE, RETAKES, TOGETHER, time_blocks
from dietlab.timing.threads import keep_apart
from dietlab.workloads import BatchMatmul, Dense, Workload

TESTS = Path(__file__).parent
WORK = Dense(T=Dim(1, 16), N=40, K=12)
HEADER = {"workload": WORK.to_json(), "hardware": Hardware.preset("haswell-1core").to_json()}
FAST = Timing(blocks=2, block_seconds=0.0005)


def record(number: int, **changed: object) -> Record:
    made = Record(cpu_scheme(number + 1, 16), Shape.of(T=number + 1), "ok", seconds=1e-6 * (number + 1))
    return replace(made, **changed)  # type: ignore[arg-type]


def filled(path: Path, count: int = 3) -> RecordStore:
    store = RecordStore(path, HEADER)
    for number in range(count):
        store.append(record(number))
    return store


# Records on disk


records = st.builds(
    Record,
    st.builds(
        cpu_scheme,
        st.integers(1, 30),
        st.sampled_from([16, 32]),
        edge=st.sampled_from(EDGES),
        ahead=st.booleans(),
    ),
    st.integers(1, 99).map(lambda t: Shape.of(T=t)),
    st.sampled_from(["ok", "build_failed", "wrong", "crashed", "timeout", "refused"]),
    st.none() | st.floats(1e-9, 10),
    st.floats(0, 3).map(lambda s: round(s, 4)),
    st.text(),
    st.builds(PhaseSeconds, compile=st.floats(0, 9).map(lambda s: round(s, 3))),
    st.integers(0, 1 << 20),
    st.text("0123456789abcdef"),
    st.just("2025-01-01T00:00:00+00:00"),
)


@given(records)
def test_record_survives_json_on_one_line(made: Record) -> None:
    line = json.dumps(made.to_json())
    assert len(line.splitlines()) == 1
    assert Record.from_json(json.loads(line)) == made


def test_store_reopens_with_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path).append(record(3, status="crashed", seconds=None, reason="signal 11"))
    reopened = RecordStore(path, HEADER)
    assert reopened.records == [
        record(0),
        record(1),
        record(2),
        record(3, status="crashed", seconds=None, reason="signal 11"),
    ]
    reopened.append(record(4))
    assert len(read_records(path).records) == 5
    assert read_records(path).header["workload"] == WORK.to_json()


def test_last_line_cut_at_any_byte_costs_that_record_only(tmp_path: Path) -> None:
    path, whole_path = tmp_path / "cut.jsonl", tmp_path / "whole.jsonl"
    filled(whole_path)
    whole = whole_path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = max(0, whole[:length].count(b"\n") - 1)
        store = RecordStore(path, HEADER)
        assert store.records == [record(n) for n in range(kept)], length
        store.append(record(9))
        assert path.read_bytes().startswith(b"".join(lines[: kept + 1]))
        assert read_records(path).records == (*(record(n) for n in range(kept)), record(9))


def test_reading_passes_over_a_truncated_last_line_without_changing_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path)
    cut = path.read_bytes()[:-10]
    path.write_bytes(cut)
    assert read_records(path).records == (record(0), record(1))
    assert path.read_bytes() == cut


@pytest.mark.parametrize("damage", [b"{not json}\n", b'{"scheme": "8x32\n'])
def test_damaged_middle_line_is_refused_with_its_number(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + damage + lines[3])
    before = path.read_bytes()
    for reader in (read_records, lambda p: RecordStore(p, HEADER)):
        with pytest.raises(
            RecordError, match=r"every line .* is JSON; got .*records\.jsonl, line 3: .*Remove the line"
        ):
            reader(path)  # type: ignore[operator]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "round_"),
    [
        ("search 0", Round("search", 0)),
        ("search 16.1", Round("search", 16, 1)),
        ("decide 3", Round("decide", 3)),
        ("decide 3.1", Round("decide", 3, 1)),
        ("confirm", Round("confirm")),
        ("verify 2", Round("verify", 2)),
        ("check 2.1", Round("check", 2, 1)),
    ],
)
def test_round_is_its_name_in_a_record(text: str, round_: Round) -> None:
    made = record(0, asked_by=round_)
    assert made.to_json()["asked_by"] == str(round_) == text
    assert Record.from_json(made.to_json()) == made


def test_rounds_of_earlier_records_are_read_and_others_refused() -> None:
    assert Round.parse("search 24, resumed") == Round("search", 24, 1)
    with pytest.raises(RecordError, match=r"a round reads like search 16 or decide 2; got .*Search"):
        Record.from_json({**record(0).to_json(), "asked_by": "Search"})


@pytest.mark.parametrize(
    "line",
    ['{"scheme":"8x32.u1.ws.p0"}', "5", '{"scheme":"huge","shape":{},"status":"ok","seconds":1}'],
)
def test_line_that_is_no_record_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path, 1)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(RecordError, match="a record has all its fields"):
        read_records(path)


@pytest.mark.parametrize(
    "text", ["", "{}\n", "# A text\n\nwith lines\n", '{"schema_version":99}\n', "[1]\n", "5\n", "null\n"]
)
def test_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.raises(
        RecordError, match=r"begins with a header of schema 1; got .*records\.jsonl, which begins"
    ):
        read_records(path)


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="a records file is readable"):
        read_records(tmp_path / "nowhere.jsonl")
    (tmp_path / "x.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(RecordError, match="a records file is readable"):
        read_records(tmp_path / "x.jsonl.gz")


@pytest.mark.parametrize("name", ["workload", "hardware", "schema_version"])
def test_records_of_something_else_are_not_continued(name: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path)
    before = path.read_bytes()
    with pytest.raises(RecordError, match=f"the records in .* are of this {name}|header of schema"):
        RecordStore(path, {**HEADER, name: {"other": 1}})
    assert path.read_bytes() == before


def test_short_write_is_an_error_and_the_file_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    store = filled(path)
    before, write = path.read_bytes(), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(
            RecordError, match=r"records can be written; got .*20 of .* bytes.*Free some space"
        ):
            store.append(record(3))
    assert path.read_bytes() == before and len(store.records) == 3
    store.append(record(3))
    assert RecordStore(path, HEADER).records == [record(n) for n in range(4)]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_measure import HEADER, record
from dietlab.errors import RecordError
from dietlab.measure import RecordStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    store = RecordStore(Path(sys.argv[2]), HEADER)
    for number in range(100):
        store.append(record(number))
except RecordError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize("limit", [100, 900, 1500])
def test_full_disk_is_a_clear_error_and_the_file_stays_whole(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    command = [sys.executable, "-c", FULL_DISK, str(TESTS), str(path), str(limit)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 3, child.stderr
    assert "records can be written" in child.stdout and "Free some space" in child.stdout
    kept = path.read_bytes()
    assert len(kept) <= limit and (not kept or kept.endswith(b"\n"))
    store = RecordStore(path, HEADER)
    assert store.records == [record(n) for n in range(len(store.records))]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit


def test_compressed_records_are_the_same_bytes_and_read_back(tmp_path: Path) -> None:
    made = tuple(record(n) for n in range(5))
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write_compressed(tmp_path / name, HEADER, made)
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()
    assert read_records(tmp_path / "one.jsonl.gz").records == made
    assert gzip.decompress((tmp_path / "one.jsonl.gz").read_bytes()).count(b"\n") == 6


# Runners without hardware


def test_replay_answers_with_the_recorded_values_in_the_order_asked(tmp_path: Path) -> None:
    filled(tmp_path / "records.jsonl")
    runner = ReplayRunner.load(tmp_path / "records.jsonl")
    trials = [Trial(record(n).scheme, (record(n).shape,)) for n in (2, 0)]
    assert list(runner.measure(WORK, trials)) == [record(2), record(0)]
    assert runner.schemes == tuple(record(n).scheme for n in range(3))
    assert runner.shapes == tuple(record(n).shape for n in range(3))


def test_missing_record_is_an_error_that_names_micro_kernel_and_shape() -> None:
    runner = ReplayRunner([record(0)])
    with pytest.raises(RecordError, match=r"1x16\.u1\.ws\.p0 on T=9.*or measure"):
        list(runner.measure(WORK, [Trial(record(0).scheme, (Shape.of(T=9),))]))


def test_synthetic_times_repeat_and_depend_on_the_seed() -> None:
    hardware = Hardware.preset("haswell-1core")
    trials = [Trial(record(n).scheme, (Shape.of(T=5), Shape.of(T=6))) for n in range(4)]
    first = list(SyntheticRunner(hardware).measure(WORK, trials))
    assert first == list(SyntheticRunner(hardware).measure(WORK, trials))
    other = list(SyntheticRunner(hardware, seed=1).measure(WORK, trials))
    assert all(a.seconds != b.seconds for a, b in zip(first, other, strict=True))
    assert [(r.scheme, r.shape) for r in first] == [(t.scheme, s) for t in trials for s in t.shapes]


# Timing


def test_slow_program_is_timed_by_one_block_only() -> None:
    calls: list[int] = []
    assert len(time_blocks([lambda: calls.append(1)], Timing(4, 1e-9, stop_beyond=None), 1)) == 4
    assert len(time_blocks([lambda: calls.append(1)], Timing(4, 1e-9, stop_beyond=0.0), 1)) == 1


def test_a_call_of_known_length_is_neither_tried_nor_warmed_up_before_its_block() -> None:
    calls: list[int] = []
    blocks = time_blocks([lambda: calls.append(1)], Timing(1, 1e-3), 1, call_seconds=2e-3)
    assert len(blocks) == len(calls) == 1
    calls.clear()
    assert len(time_blocks([lambda: calls.append(1)], Timing(2, 1e-3), 1, call_seconds=5e-4)) == 2
    assert len(calls) == 1 + 2 * 2, "a short call is warmed up"
    assert len(time_blocks([lambda: None], Timing(4, 1e-3, stop_beyond=1e-2), 1, call_seconds=2e-2)) == 1


def test_blocks_go_round_the_copies_without_a_pause() -> None:
    """A block begins where the one before it ended, so that no copy is called twice in a row."""
    order: list[int] = []
    calls = [partial(order.append, copy) for copy in range(5)]
    time_blocks(calls, Timing(3, 1e-5), 1, call_seconds=2.5e-6)
    assert len(order) == 1 + 3 * 4
    assert order == [number % 5 for number in range(len(order))]


def test_candidates_are_timed_in_a_state_that_a_block_can_hold() -> None:
    assert Timing(cache="rotating").to_json()["cache"] == "rotating"
    assert Timing(**Timing(cache="rotating").to_json()) == Timing(cache="rotating")
    for state in ("interleaved", "cold"):
        with pytest.raises(MeasureError, match=f"candidates are timed hot or rotating; got '{state}'"):
            Timing(cache=state)  # type: ignore[arg-type]


# Problems


PROBLEMS: list[Workload] = [
    Dense(T=Dim(1, 16), N=40, K=12, bias=True),
    Dense(Dim(1, 16), 9, 12, True, residual=True, constant=False),
    BatchMatmul(Dim(1, 16), 3, 5, "nt"),
    BatchMatmul(Dim(1, 16), 3, 5, "nn"),
]


@pytest.mark.parametrize("work", PROBLEMS, ids=str)
def test_a_problem_shows_whatever_is_wrong(work: Workload) -> None:
    problem = Problem.make(work, Shape.of(T=7))
    assert {**problem.constants, **problem.variables} == problem.operands
    assert all(a.ctypes.data % 64 == 0 for a in (*problem.operands.values(), problem.out))
    right = problem.reference.astype(np.float32)
    problem.poison()
    assert problem.verdict() == Verdict(math.inf, problem.tolerance, problem.verdict().reason)
    assert problem.verdict().reason == "some results were never written, or are not numbers"
    problem.out[...] = right
    found = problem.verdict()
    assert found.correct and found.max_error <= found.tolerance == problem.tolerance
    flat = problem.out.reshape(-1)
    for value, reason in (
        (np.nan, "never written"),
        (np.inf, "an error of inf"),
        (right.flat[-1] + 1, "an error of 1.00e"),
    ):
        flat[-1] = value
        assert reason in problem.verdict().reason and not problem.verdict().correct
    flat[-1] = right.flat[-1]
    for place in (0, GUARD - 1, -GUARD, -1):
        problem.buffer[place] += 1
        assert problem.verdict().reason == "memory around the output was overwritten"
        problem.poison()
        problem.out[...] = right
        assert problem.verdict().correct


@pytest.mark.parametrize("work", PROBLEMS, ids=str)
@pytest.mark.parametrize("last_level", [0, 1 << 16, 1 << 20, 32 << 20, 1 << 34])
def test_rotated_copies_cover_the_last_level_within_reason(work: Workload, last_level: int) -> None:
    problem = Problem.make(work, Shape.of(T=16))
    rotated = problem.constants or {**problem.operands, "out": problem.out}
    assert problem.copy_bytes == sum(array.nbytes for array in rotated.values())
    copies = rotating_copies(problem, last_level)
    most = 64 if problem.constants else 1024
    assert 2 <= copies <= most and copies * problem.copy_bytes <= 1 << 30
    # While one copy is used, the others fill the cache twice.
    assert copies == most or (copies - 1) * problem.copy_bytes >= 2 * last_level


# Worker processes


@pytest.fixture(autouse=True)
def workers_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not left, left


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40), st.integers(0, 30))
def test_what_was_asked_for_lately_is_kept_as_far_as_there_is_room(
    asked: list[tuple[int, int]], room: int
) -> None:
    """A value is a list of its size; asked for again, it grows by one."""
    kept: LruByBytes[list[int]] = LruByBytes(room, len)
    made: dict[int, list[int]] = {}
    recent: list[int] = []
    for key, size in asked:
        value = kept.get(key, partial(list, [0] * size))
        assert (value is made.get(key)) == (key in recent)
        made[key] = value
        recent = [*(other for other in recent if other != key), key]
        while len(recent) > 1 and sum(len(made[other]) for other in recent) > room:
            del recent[0]
        value.append(0)
    kept.clear()
    assert kept.get(0, lambda: [7]) == [7]


def test_a_pool_answers_in_order_and_stops_at_the_first_error() -> None:
    pool = WorkerPool("no.such.module", workers=2)
    assert list(pool.each(lambda worker, item: (worker.pid, item), range(5))) == [(None, n) for n in range(5)]
    begun: list[int] = []

    def fail(worker: WorkerProcess, item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        list(pool.each(fail, range(1000)))
    assert len(begun) < 1000
    pool.close()


@pytest.mark.usefixtures("no_child_is_left")
def test_worker_answers_and_a_fresh_one_follows_a_crash_or_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerProcess("workers.echo", {"DIETLAB_TEST": "seen"}) as worker:
        first = worker.ask({"a": [1, "\u2028 \n"]}, 30)
        assert first["heard"] == {"a": [1, "\u2028 \n"]} and first["variable"] == "seen"
        assert worker.ask({}, 30)["pid"] == first["pid"] == worker.pid
        with pytest.raises(WorkerTimeout, match=r"answers within 0\.2 s"):
            worker.ask({"hang": 1}, 0.2)
        assert not psutil.pid_exists(first["pid"])
        second = worker.ask({}, 30)
        assert second["pid"] != first["pid"] and second["heard"] == {}
        with pytest.raises(WorkerCrashed, match=r"exit status 7: noise"):
            worker.ask({"exit": 1}, 30)
        assert worker.ask({"b": 2}, 30)["heard"] == {"b": 2}


@pytest.mark.usefixtures("no_child_is_left")
def test_crash_is_told_with_its_signal_and_last_words() -> None:
    with (
        WorkerProcess("workers.crash") as worker,
        pytest.raises(WorkerCrashed, match="signal 6: about to abort"),
    ):
        worker.ask({}, 30)


def test_a_worker_sees_pytorch_only_where_it_times_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "torch.py").write_text("")
    with WorkerProcess("workers.echo", {"PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS}"}) as worker:
        assert worker.ask({}, 60)["torch"] is False
        assert worker.ask({"show": True}, 60)["torch"] is True


def test_worker_that_cannot_start_says_why() -> None:
    with (
        WorkerProcess("workers.nothing_of_that_name") as worker,
        pytest.raises(WorkerCrashed, match="No module named"),
    ):
        worker.ask({}, 30)


# Measuring for real


def moody(here: Hardware, **timeouts: float) -> LocalRunner:
    return LocalRunner(
        here,
        FAST,
        builders=1,
        builder_module="workers.moody_builder",
        timer_module="workers.moody_timer",
        **timeouts,
    )


@pytest.mark.usefixtures("no_child_is_left")
def test_failures_become_records_and_the_run_goes_on(here: Hardware) -> None:
    lanes = here.cpu.lanes
    shapes = tuple(Shape.of(T=t) for t in (1, 2, 3, 4, 5, 6, 7))
    trials = [
        Trial(cpu_scheme(2, 2 * lanes), shapes[:2]),
        Trial(cpu_scheme(5, lanes), shapes[:1]),
        Trial(cpu_scheme(4, lanes, edge="even"), shapes),
    ]
    with moody(here, time_timeout=5) as runner:
        found = list(runner.measure(WORK, trials))
    assert {(r.scheme, r.shape) for r in found} == {(t.scheme, s) for t in trials for s in t.shapes}
    found.sort(key=lambda r: [t.scheme for t in trials].index(r.scheme))
    statuses, reasons = [r.status for r in found], [r.reason for r in found]
    assert statuses[:3] == ["build_failed"] * 3
    assert statuses[3:] == ["ok", "crashed", "timeout", "refused", "wrong", "refused", "ok"]
    assert "signal 6" in reasons[0] and "five rows" in reasons[2]
    assert "signal 6" in reasons[4] and "within 5 s" in reasons[5] and "T=4; got 4" in reasons[6]
    assert (
        reasons[7] == "an error of 2.50e+00 is above 5.00e-01"
        and "ZeroDivisionError: a surprise" in reasons[8]
    )
    assert all((r.seconds is not None) == r.ok for r in found)
    assert all(Record.from_json(r.to_json()).status == r.status for r in found)


@pytest.mark.usefixtures("no_child_is_left")
def test_build_that_hangs_is_a_record_for_each_shape(here: Hardware) -> None:
    with moody(here, build_timeout=1) as runner:
        found = list(runner.measure(WORK, [Trial(cpu_scheme(3, 16), (Shape.of(T=1), Shape.of(T=2)))]))
    assert [(r.status, r.shape["T"]) for r in found] == [("timeout", 1), ("timeout", 2)]
    assert all(r.reason.startswith("build: ") and "within 1 s" in r.reason for r in found)


def in_turns(here: Hardware, timing: Timing) -> LocalRunner:
    return LocalRunner(here, timing, builders=1, timer_module="workers.turns_timer")


@pytest.mark.usefixtures("no_child_is_left")
def test_candidates_on_all_shapes_take_turns(here: Hardware) -> None:
    """Forwards, then backwards: a machine that gets slower is as slow for all, and blocks lie far apart."""
    lanes = here.cpu.lanes
    kernels = [cpu_scheme(rows, lanes, edge="even") for rows in (4, 5)]
    trials = [Trial(kernel, (Shape.of(T=7), Shape.of(T=9))) for kernel in kernels]
    with in_turns(here, Timing(3, 0.001, cache="rotating")) as runner:
        found = list(runner.measure(WORK, trials))
    assert [(r.scheme, r.shape["T"]) for r in found] == [(k, t) for t in (7, 9) for k in kernels]
    # The questions about T=7: 1, 8, 9 and 2, 7, 10; about T=9: 3, 6, 11 and 4, 5, 12.
    assert [r.seconds for r in found] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3])
    assert [r.spread for r in found] == pytest.approx([7.0, 2.5, 1.0, 0.25])
    assert [r.cached_seconds for r in found] == pytest.approx([1e-6, 2e-6, 3e-6, 4e-6])
    assert all(r.phases.measure == pytest.approx(0.6) for r in found)
    assert all(Record.from_json(r.to_json()).cached_seconds == r.cached_seconds for r in found)


@pytest.mark.usefixtures("no_child_is_left")
def test_only_so_many_shapes_take_turns(here: Hardware) -> None:
    """Their operands stay in memory meanwhile."""
    shapes = tuple(Shape.of(T=t) for t in range(1, 2 * TOGETHER + 2, 2))
    with in_turns(here, Timing(2, 0.001)) as runner:
        *first, last = runner.measure(WORK, [Trial(cpu_scheme(4, here.cpu.lanes, edge="even"), shapes)])
    assert [r.seconds for r in first] == pytest.approx([(1 + n) / 1000 for n in range(TOGETHER)])
    assert last.seconds == pytest.approx((2 * TOGETHER + 1) / 1000)


@pytest.mark.usefixtures("no_child_is_left")
@pytest.mark.parametrize("cache", ["hot", "rotating"])
def test_who_is_clearly_behind_after_three_turns_is_not_asked_again(cache: Any, here: Hardware) -> None:
    """The second question about T is number T + 1: 11 % and more up to T=9, 9 % and less from T=11."""
    lengths = tuple(range(1, 15, 2))
    shapes = tuple(Shape.of(T=t) for t in lengths)
    trials = [Trial(cpu_scheme(rows, here.cpu.lanes, edge="even"), shapes) for rows in (4, 5)]
    with in_turns(here, Timing(5, 0.001, cache=cache)) as runner:
        found = {(r.shape["T"], r.scheme.rows): r for r in runner.measure(WORK, trials)}
    assert [found[t, 4].seconds for t in lengths] == pytest.approx([t / 1000 for t in lengths])
    turns = {key: round(r.phases.measure / 0.2) for key, r in found.items()}
    assert turns == {**{(t, 4): 5 for t in lengths}, **{(t, 5): 3 if t < 10 else 5 for t in lengths}}


@pytest.mark.usefixtures("no_child_is_left")
def test_slow_candidates_have_three_turns_if_they_are_among_the_fastest(here: Hardware) -> None:
    """The second question about T is number T + 1: 11 % and more up to T=9, 9 % and less from T=11."""
    lengths = tuple(range(1, 15, 2))
    shapes = tuple(Shape.of(T=t) for t in lengths)
    trials = [Trial(cpu_scheme(rows, here.cpu.lanes, edge="even"), shapes) for rows in (4, 5)]
    with in_turns(here, Timing(5, 0.001, stop_beyond=0.0)) as runner:
        found = {(r.shape["T"], r.scheme.rows): r for r in runner.measure(WORK, trials)}
    assert [found[13, rows].seconds for rows in (4, 5)] == pytest.approx([13e-3, 14e-3])
    turns = {key: round(r.phases.measure / 0.2) for key, r in found.items()}
    assert turns == {**{(t, 4): 3 for t in lengths}, **{(t, 5): 1 if t < 10 else 3 for t in lengths}}


@pytest.mark.usefixtures("no_child_is_left")
def test_a_slow_candidate_behind_has_one_turn_and_a_crash_ends_one_only(here: Hardware) -> None:
    kernels = [cpu_scheme(rows, here.cpu.lanes, edge="even") for rows in (4, 5)]
    with in_turns(here, Timing(3, 0.001, stop_beyond=0.0015)) as runner:
        quick, slow = runner.measure(WORK, [Trial(kernel, (Shape.of(T=3),)) for kernel in kernels])
        assert (quick.seconds, slow.seconds) == (1e-3, 2e-3)
        assert quick.spread > 0 == slow.spread  # the slow one was not asked again
    with in_turns(here, Timing(3, 0.001)) as runner:
        found = list(runner.measure(WORK, [Trial(kernels[0], (Shape.of(T=2), Shape.of(T=3)))]))
    crashed, other = found
    assert other.ok and other.shape["T"] == 3
    assert crashed.status == "crashed" and "signal 6" in crashed.reason and crashed.seconds is None


ROTATING = replace(FAST, cache="rotating")
REAL: dict[str, Workload] = {
    "constant": Dense(T=Dim(1, 16), N=40, K=12, bias=True, residual=True),
    "variable": BatchMatmul(T=Dim(1, 16), B=2, D=12),
}


@pytest.fixture(scope="module")
def rotating(here: Hardware) -> Iterator[LocalRunner]:
    """A runner for several tests, since its workers take seconds to start."""
    with LocalRunner(here, ROTATING, builders=1) as runner:
        yield runner


def check_real(runner: LocalRunner, work: Workload, lanes: int) -> None:
    kernels = [cpu_scheme(4, lanes, 2, edge="even"), cpu_scheme(3, 2 * lanes, 1, edge="checked")]
    shapes = (Shape.of(T=1), Shape.of(T=7))
    found = list(runner.measure(work, [Trial(kernel, shapes) for kernel in kernels]))
    assert [(r.scheme, r.shape, r.status) for r in found] == [(k, s, "ok") for s in shapes for k in kernels]
    for made in found:
        assert made.seconds is not None and 0 < made.seconds < 1
        assert made.gflops(work) == pytest.approx(work.flops(made.shape) / made.seconds / 1e9)
        assert made.code_bytes > 0 and len(made.code_hash) == 16 and made.at and made.spread >= 0
        assert made.phases.compile > 0 and made.phases.measure > 0
        assert (made.cached_seconds is not None) == (runner.timing.cache == "rotating")
    assert len({r.code_hash for r in found}) == 2


@pytest.mark.usefixtures("no_child_is_left")
def test_real_measurements_are_records_with_code_and_phases(here: Hardware) -> None:
    with LocalRunner(here.with_cores(2), FAST) as runner:
        check_real(runner, REAL["constant"], here.cpu.lanes)


def test_who_times_has_no_threads_but_those_of_what_is_timed(here: Hardware) -> None:
    """NumPy multiplies such matrices on all cores; its threads would spin beside a candidate's."""
    work = Dense(T=Dim(1, 256), N=512, K=512)
    with LocalRunner(here.with_cores(2), FAST) as runner:
        trial = Trial(cpu_scheme(6, here.cpu.lanes, edge="even"), (Shape.of(T=256),))
        (made,) = runner.measure(work, [trial])
        assert made.ok, made.reason
        timer = next(
            child for child in psutil.Process().children() if "time_worker" in " ".join(child.cmdline())
        )
        assert timer.num_threads() == 2


@pytest.mark.parametrize("name", REAL)
def test_operands_rotate_in_real_measurements(name: str, rotating: LocalRunner) -> None:
    check_real(rotating, REAL[name], rotating.hardware.cpu.lanes)


def test_library_is_built_for_the_shapes_of_its_trial(rotating: LocalRunner) -> None:
    """Lower micro-kernels that only other shapes need are left out of it."""
    kernel = cpu_scheme(6, rotating.hardware.cpu.lanes, edge="even")
    many = tuple(Shape.of(T=t) for t in (1, 5, 9, 13))
    (one,) = rotating.measure(WORK, [Trial(kernel, (Shape.of(T=12),))])
    several = list(rotating.measure(WORK, [Trial(kernel, many)]))
    assert one.ok and all(made.ok for made in several), [made.reason for made in several]
    assert one.code_bytes < several[0].code_bytes


def test_one_runner_serves_several_operators(rotating: LocalRunner) -> None:
    """The second operator's library is not taken for the first's, though the micro-kernel is the same."""
    trial = Trial(cpu_scheme(5, rotating.hardware.cpu.lanes, edge="even"), (Shape.of(T=3),))
    works = (WORK, Dense(T=Dim(1, 16), N=40, K=13, bias=True), BatchMatmul(Dim(1, 16), 2, 12, "nn"), WORK)
    for work in works:
        (made,) = rotating.measure(work, [trial])
        assert made.ok, made.reason


def test_missing_compiler_stops_before_anything_is_measured(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        LocalRunner(here) as runner,
        pytest.raises(BuildError, match=r"none of g\+\+, clang\+\+, cc.*apt-get install"),
    ):
        list(runner.measure(WORK, [Trial(cpu_scheme(4, 16), (Shape.of(T=1),))]))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind threads")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
def test_the_calling_thread_keeps_off_cores_that_others_are_bound_to() -> None:
    """As TVM's pool does: otherwise a call of microseconds lasts as long as a time slice."""
    cores = sorted(os.sched_getaffinity(0))
    bound, done, seen = Event(), Event(), []

    def pool() -> None:
        os.sched_setaffinity(0, {cores[-1]})
        bound.set()
        done.wait()

    def caller() -> None:
        for _ in range(2):
            keep_apart()
            seen.append(os.sched_getaffinity(0))

    threads = [Thread(target=pool), Thread(target=caller)]
    threads[0].start()
    bound.wait()
    threads[1].start()
    threads[1].join()
    done.set()
    threads[0].join()
    assert seen == [set(cores[:-1])] * 2
    assert os.sched_getaffinity(0) == set(cores)


@pytest.mark.parametrize(
    ("seconds", "in_turns"),
    [(1e-4, [5, 5, 5]), (5e-4, [4, 0, 4]), (1.5e-3, [2, 0, 2]), (3e-3, [1, 0, 0]), (0.02, [0, 0, 0])],
)
def test_calls_in_cache_are_as_many_as_a_block_has_time_for(seconds: float, in_turns: list[int]) -> None:
    timing = Timing(5, 0.002, stop_beyond=0.015, cache="rotating")
    assert [_calls_alone(seconds, timing, turn) for turn in range(3)] == in_turns
    assert _calls_alone(seconds, replace(timing, cache="hot"), 0) == 0


POOL = """
from dietlab.lower.runtime import on_each_thread
from dietlab.timing.private_caches import PrivateCaches
from functools import partial
from threading import get_ident
for threads in (1, 2, 2):
    seen = []
    on_each_thread(threads, lambda: seen.append(get_ident()))
    assert len(seen) == len(set(seen)) == threads and get_ident() in seen, seen
caches, read = PrivateCaches(1 << 14, 2, lambda call: seen.append(call)), len(seen)
caches.empty()
assert len(seen) == read + 1 and float(seen[-1]()) == 2 * (1 << 14) / 64
PrivateCaches(1 << 14, 2, partial(on_each_thread, 2)).empty()
"""


def test_the_threads_of_the_pool_can_be_told_what_to_do() -> None:
    env = {**os.environ, "TVM_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", POOL], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


class Packing:
    """A library whose entry fills the packed weights, all but the last one, with this number."""

    def __init__(self, value: float, size: int = 576) -> None:
        self.value, self.size, self.calls = value, size, 0

    def packed_floats(self, cols: int, depth: int) -> int:
        return self.size

    def pack(self, weights: np.ndarray, packed: np.ndarray) -> None:
        self.calls += 1
        packed[:-1] = self.value

    def run(self, *arrays: object) -> None: ...


def test_libraries_share_the_copies_of_weights_that_they_pack_alike() -> None:
    problem = Problem.make(WORK, Shape.of(T=3))

    def weights(library: _Library, copies: int) -> list[int]:
        calls = library.calls(problem, [problem.arrays] * copies)
        return [np.from_dlpack(call.args[1]).ctypes.data for call in calls]  # type: ignore[attr-defined]

    first, alike, other = (_Library(Packing(value), packs=True) for value in (1.0, 1.0, 2.0))
    longer = _Library(Packing(1.0, 592), packs=True)
    shared = weights(first, 3)
    assert len(set(shared)) == 3 and weights(alike, 2) == shared[:2] and weights(alike, 4)[:3] == shared
    assert weights(first, 4) == weights(alike, 4)
    assert not set(shared) & {*weights(other, 3), *weights(longer, 3)}
    assert all(library._module.calls == 1 for library in (first, alike, other, longer))
    _packed.clear()
    assert len(set(weights(alike, 4))) == 4 and alike._module.calls == 2


def test_blocks_on_several_cores_are_taken_again_while_others_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seconds of the processor per second of the wall: 1 with both threads on one core, 2 on two."""
    shares, pauses = iter([1.0, 1.1, 1.9, *[2.0] * 100]), []
    wall, busy, calls = 0.0, 0.0, []

    def call() -> None:
        nonlocal wall, busy
        share = next(shares)
        calls.append(share)
        wall, busy = wall + 0.004 / share, busy + 0.004

    monkeypatch.setattr("dietlab.timing.protocol.perf_counter", lambda: wall)
    monkeypatch.setattr("dietlab.timing.protocol.process_time", lambda: busy)
    monkeypatch.setattr("dietlab.timing.protocol.sleep", pauses.append)
    blocks = time_blocks([call], Timing(3, 1e-9, stop_beyond=None), 2)
    # The first call warms up; the estimate is taken until the share is right.
    assert calls[:3] == [1.0, 1.1, 1.9] and len(pauses) == 1
    assert blocks == pytest.approx([0.002] * 3, rel=0.06)


def test_a_machine_that_stays_busy_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, pauses = iter(range(10_000)), []
    monkeypatch.setattr("dietlab.timing.protocol.perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr("dietlab.timing.protocol.process_time", lambda: 0.0)
    monkeypatch.setattr("dietlab.timing.protocol.sleep", pauses.append)
    assert time_blocks([lambda: None], Timing(1, 1e-9, stop_beyond=None), 2) == [1.0]
    assert len(pauses) == 1 + RETAKES and max(pauses) <= LONGEST_PAUSE

"""Records survive crashes, runners turn failures into records, and workers leave nothing behind."""

from __future__ import annotations

import gc
import gzip
import json
import math
import os
import resource
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from threading import Event, Thread
from time import sleep, thread_time
from typing import Any

import numpy as np
import psutil
import pytest
from conftest import ROOT, python
from hypothesis import given
from hypothesis import strategies as st
from schemes import cpu_scheme

from dietlab.base.errors import BuildError, DietlabWarning, MeasureError, RecordError
from dietlab.base.events import PhaseSeconds
from dietlab.machine import Hardware
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
from dietlab.measure.budget import Budget, BudgetSpentError
from dietlab.measure.candidates import Candidates
from dietlab.measure.pool import WorkerPool
from dietlab.measure.timing.bench import Bench
from dietlab.measure.timing.device import GUARD_BYTES
from dietlab.measure.timing.lru_by_bytes import LruByBytes
from dietlab.measure.timing.problem import Problem, Verdict
from dietlab.measure.timing.process import WorkerCrashed, WorkerProcess, WorkerTimeout
from dietlab.measure.timing.protocol import TOGETHER
from dietlab.measure.timing.rotation import Arena
from dietlab.measure.timing.threads import keep_apart
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload
from dietlab.scheme import EDGES
from dietlab.targets.cpu.device import Host, HostOutput

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


schemes = st.builds(
    cpu_scheme,
    st.integers(1, 30),
    st.sampled_from([16, 32]),
    edge=st.sampled_from(EDGES),
    ahead=st.booleans(),
)
records = st.builds(
    Record,
    schemes,
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
    path, crashed = tmp_path / "records.jsonl", record(3, status="crashed", seconds=None, reason="signal 11")
    filled(path).append(crashed)
    reopened = RecordStore(path, HEADER)
    assert reopened.records == [record(0), record(1), record(2), crashed]
    reopened.append(record(4))
    assert len(read_records(path).records) == 5
    assert read_records(path).header["workload"] == WORK.to_json()


def test_last_line_cut_at_any_byte_costs_that_record_only(tmp_path: Path) -> None:
    """At one in five, and at all around the ends of lines."""
    path, whole_path = tmp_path / "cut.jsonl", tmp_path / "whole.jsonl"
    filled(whole_path)
    whole = whole_path.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = [*accumulate(map(len, lines))]
    around = {end + off for end in ends for off in range(-3, 3)}
    for length in sorted({*range(0, len(whole), 5), *around} & {*range(len(whole) + 1)}):
        path.write_bytes(whole[:length])
        # A record that only lacks the end of its line is whole.
        kept = max(0, sum(length >= end - 1 for end in ends) - 1)
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
    with pytest.warns(DietlabWarning, match=r"records\.jsonl: its last line is cut off: .* are used"):
        assert read_records(path).records == (record(0), record(1))
    assert path.read_bytes() == cut
    path.write_bytes(path.read_bytes()[: cut.rindex(b"\n")])
    assert read_records(path).records == (record(0), record(1)), "the last one only lacks the end of its line"


@pytest.mark.parametrize("damage", [b"{not json}\n", b'{"scheme": "8x32\n'])
def test_damaged_middle_line_is_refused_with_its_number(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + damage + lines[3])
    before = path.read_bytes()
    told = r"every line .* must be JSON; got .*records\.jsonl, line 3: .*Remove the line"
    for reader in (read_records, lambda p: RecordStore(p, HEADER)):
        with pytest.raises(RecordError, match=told):
            reader(path)  # type: ignore[operator]
    assert path.read_bytes() == before


ROUNDS = {
    "search 0": Round("search", 0),
    "search 16.1": Round("search", 16, 1),
    "decide 3": Round("decide", 3),
    "decide 3.1": Round("decide", 3, 1),
    "confirm": Round("confirm"),
    "verify 2": Round("verify", 2),
    "check 2.1": Round("check", 2, 1),
}


@pytest.mark.parametrize("text", ROUNDS)
def test_round_is_its_name_in_a_record(text: str) -> None:
    made = record(0, asked_by=ROUNDS[text])
    assert made.to_json()["asked_by"] == str(ROUNDS[text]) == text
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
    with pytest.raises(RecordError, match=r"(must have all its fields|key reads like).*, line 3"):
        read_records(path)


@pytest.mark.parametrize(
    "text", ["{}\n", "# A text\n\nwith lines\n", '{"schema_version":99}\n', "[1]\n", "5\n", "null\n"]
)
def test_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(text)
    told = r"must begin with a header of schema 1; got .*records\.jsonl, which begins"
    with pytest.raises(RecordError, match=told):
        read_records(tmp_path / "records.jsonl")


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\x80\x81")
    for name in ("nowhere.jsonl", "x.jsonl"):
        with pytest.raises(RecordError, match="a records file must be readable"):
            read_records(tmp_path / name)


def test_the_first_bytes_tell_whether_a_file_is_compressed(tmp_path: Path) -> None:
    filled(tmp_path / "plain.jsonl.gz")  # as browsers save it
    write_compressed(tmp_path / "packed.jsonl", HEADER, [record(n) for n in range(3)])
    before = (tmp_path / "packed.jsonl").read_bytes()
    for name in ("plain.jsonl.gz", "packed.jsonl"):
        assert read_records(tmp_path / name).records == tuple(record(n) for n in range(3))
    with pytest.raises(RecordError, match=r"file of plain text; got .*packed\.jsonl: compressed by gzip"):
        RecordStore(tmp_path / "packed.jsonl", HEADER)
    assert (tmp_path / "packed.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["workload", "hardware", "schema_version"])
def test_records_of_something_else_are_not_continued(name: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    filled(path)
    before = path.read_bytes()
    with pytest.raises(RecordError, match=f"the records in .* must have the study's {name}|header of schema"):
        RecordStore(path, {**HEADER, name: {"other": 1}})
    assert path.read_bytes() == before


def test_short_write_is_an_error_and_the_file_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    store = filled(path)
    before, write = path.read_bytes(), os.write
    told = r"records must be writable; got .*20 of .* bytes.*Free some space"
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(RecordError, match=told):
            store.append(record(3))
    assert path.read_bytes() == before and len(store.records) == 3
    store.append(record(3))
    assert RecordStore(path, HEADER).records == [record(n) for n in range(4)]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from test_measure import filled
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
filled(Path(sys.argv[1]), 100)
"""


@pytest.mark.parametrize("limit", [100, 900, 1500])
def test_full_disk_is_a_clear_error_and_the_file_stays_whole(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    child = python("-c", FULL_DISK, path, limit, path=(ROOT, ROOT / "tests"), exits=1)
    last = child.stderr.splitlines()[-1]
    assert "RecordError: records must be writable" in last and "Free some space" in last
    kept = path.read_bytes()
    assert len(kept) <= limit and (not kept or kept.endswith(b"\n"))
    store = RecordStore(path, HEADER)
    assert store.records == [record(n) for n in range(len(store.records))]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit


def test_compressed_records_are_the_same_bytes_and_read_back(tmp_path: Path) -> None:
    made, (one, two) = tuple(record(n) for n in range(5)), (tmp_path / "1.jsonl.gz", tmp_path / "2.jsonl.gz")
    for path in (one, two):
        write_compressed(path, HEADER, made)
    assert one.read_bytes() == two.read_bytes() and read_records(one).records == made
    assert gzip.decompress(one.read_bytes()).count(b"\n") == 6


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


def host(**changed: Any) -> Host:
    return Host(1, l2_bytes=1 << 14, last_level_bytes=1 << 20, **changed)


def test_a_call_of_known_length_is_not_tried_and_warmed_up_only_if_it_is_short() -> None:
    calls: list[int] = []
    device = host()
    for about, size, made in ((2e-3, 1, 1), (5e-4, 2, 3)):
        calls.clear()
        block = device.block([lambda: calls.append(1)], "hot", 1e-3, None, about)
        assert (block.calls, calls) == (size, [])
        device.take(block, None)
        assert len(calls) == made


def test_blocks_go_round_the_copies_without_a_pause() -> None:
    """A block begins where the one before it ended, whoever it is of, so that no copy is called too soon."""
    order: list[int] = []
    calls, device = [partial(order.append, copy) for copy in range(5)], host()
    for seconds in (1e-5, 1e-5, 2e-5):
        device.take(device.block(calls, "rotating", seconds, None, 2.5e-6), None)
    assert len(order) == 4 + 4 + 8
    assert order == [number % 5 for number in range(len(order))]


def test_a_block_of_unknown_calls_lasts_as_long_as_it_should() -> None:
    def call() -> None:
        until = thread_time() + 1e-4
        while thread_time() < until:
            pass

    block = host().block([call], "hot", 0.002, None, None)
    assert 10 <= block.calls <= 20 and block.run() >= 1e-4


def test_candidates_are_timed_in_a_state_that_a_block_can_hold() -> None:
    assert Timing(cache="rotating").to_json()["cache"] == "rotating"
    assert Timing(**Timing(cache="rotating").to_json()) == Timing(cache="rotating")
    for state in ("interleaved", "cold"):
        with pytest.raises(
            MeasureError, match=f"the cache state of candidates must be hot or rotating; got '{state}'"
        ):
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
    output = HostOutput(problem.out_shape, problem.dtype)
    assert all(a.ctypes.data % 64 == 0 for a in (*problem.operands.values(), output.array))

    def verdict() -> Verdict:
        return problem.verdict(output.read(), intact=output.intact)

    right = problem.reference.astype(np.float32)
    output.poison()
    assert verdict() == Verdict(math.inf, problem.tolerance, verdict().reason)
    assert verdict().reason == "some results were never written, or are not numbers"
    output.array[...] = right
    assert verdict().correct and verdict().max_error <= verdict().tolerance == problem.tolerance
    flat = output.array.reshape(-1)
    wrong = {np.nan: "never written", np.inf: "an error of inf", right.flat[-1] + 1: "an error of 1.00e"}
    for value, reason in wrong.items():
        flat[-1] = value
        assert reason in verdict().reason and not verdict().correct
    flat[-1] = right.flat[-1]
    guard = GUARD_BYTES // problem.dtype.itemsize
    for place in (0, guard - 1, -guard, -1):
        output.buffer[place] += 1
        assert verdict().reason == "memory around the output was overwritten"
        output.poison()
        output.array[...] = right
        assert verdict().correct


def test_a_large_problem_knows_its_first_and_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietlab.measure.timing.problem.MOST_FLOPS", 4 * WORK.flops(Shape.of(T=1)))
    problem = Problem.make(WORK, Shape.of(T=16))
    assert {0, 15} <= set(problem.rows) and len(problem.rows) < 16
    out = np.zeros(problem.out_shape, np.float32)
    out[problem.rows] = problem.reference
    assert problem.verdict(out).correct
    unknown = next(row for row in range(16) if row not in problem.rows)
    out[unknown, 3] = np.nan
    assert "never written" in problem.verdict(out).reason


@pytest.mark.parametrize("work", PROBLEMS, ids=str)
@pytest.mark.parametrize("last_level", [0, 1 << 16, 1 << 20, 32 << 20, 1 << 28])
def test_rotated_copies_cover_the_last_level_within_reason(work: Workload, last_level: int) -> None:
    problem, device = Problem.make(work, Shape.of(T=16)), Host(1, 1 << 14, last_level)
    first = device.copy(problem, None)
    other = device.copy(problem, first)
    rotated = problem.constant_bytes or problem.bytes
    parts = {**other.constants, **other.variables}
    copied = {name: a for name, a in parts.items() if a is not first.variables.get(name)}
    fresh = sum(array.nbytes for array in copied.values())
    assert fresh + (other.output is not first.output) * other.output.array.nbytes == rotated
    copies = device.copies(problem)
    most = 64 if problem.constants else 1024
    assert 2 <= copies <= most and copies * rotated <= 1 << 30
    # While one copy is used, the others fill the cache twice.
    assert copies == most or (copies - 1) * rotated >= 2 * last_level


# Worker processes


pytestmark = pytest.mark.usefixtures("workers_are_importable")


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
        if item:  # so that all are not over before the first error was seen
            sleep(0.01)
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
        with pytest.raises(WorkerTimeout, match=r"must answer within 0\.2 s"):
            worker.ask({"hang": 1}, 0.2)
        assert not psutil.pid_exists(first["pid"])
        second = worker.ask({}, 30)
        assert second["pid"] != first["pid"] and second["heard"] == {}
        with pytest.raises(WorkerCrashed, match=r"exit status 7: noise"):
            worker.ask({"exit": 1}, 30)
        assert worker.ask({"b": 2}, 30)["heard"] == {"b": 2}


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("workers.crash", "signal 6: about to abort"),
        ("workers.nothing_of_that_name", "No module named"),
    ],
)
@pytest.mark.usefixtures("no_child_is_left")
def test_a_worker_that_crashes_or_cannot_start_says_why(module: str, said: str) -> None:
    with WorkerProcess(module) as worker, pytest.raises(WorkerCrashed, match=said):
        worker.ask({}, 30)


def test_a_worker_leaves_no_file_open() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        with WorkerProcess("workers.echo") as worker:
            worker.ask({}, 30)
        del worker
        gc.collect()
    assert not [warning for warning in told if issubclass(warning.category, ResourceWarning)]


def test_a_worker_sees_pytorch_only_where_it_times_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    with WorkerProcess("workers.echo", {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'tests'}"}) as worker:
        assert worker.ask({}, 60)["torch"] is False
        assert worker.ask({"show": True}, 60)["torch"] is True


# Measuring for real


def moody(here: Hardware, **timeouts: float) -> LocalRunner:
    modules = {"builder_module": "workers.moody_builder", "timer_module": "workers.moody_timer"}
    return LocalRunner(here, FAST, builders=1, **modules, **timeouts)


@pytest.mark.usefixtures("no_child_is_left")
def test_failures_become_records_and_the_run_goes_on(here: Hardware) -> None:
    lanes = here.limits.lanes
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
    assert "ZeroDivisionError: a surprise" in reasons[8]
    assert reasons[7] == "an error of 2.50e+00 is above 5.00e-01"
    assert all((r.seconds is not None) == r.ok for r in found)
    assert all(Record.from_json(r.to_json()).status == r.status for r in found)


@pytest.mark.usefixtures("no_child_is_left")
def test_build_that_hangs_is_a_record_for_each_shape(here: Hardware) -> None:
    with moody(here, build_timeout=1) as runner:
        found = list(runner.measure(WORK, [Trial(cpu_scheme(3, 16), (Shape.of(T=1), Shape.of(T=2)))]))
    assert [(r.status, r.shape["T"]) for r in found] == [("timeout", 1), ("timeout", 2)]
    assert all(r.reason.startswith("build: ") and "within 1 s" in r.reason for r in found)


@pytest.mark.usefixtures("no_child_is_left")
def test_only_so_many_shapes_take_turns(here: Hardware) -> None:
    """Their operands stay in memory meanwhile. The timer answers with the number of the question."""
    shapes = tuple(Shape.of(T=t) for t in range(1, 2 * TOGETHER + 2, 2))
    with LocalRunner(here, Timing(2, 0.001), builders=1, timer_module="workers.turns_timer") as runner:
        *first, last = runner.measure(WORK, [Trial(cpu_scheme(4, here.limits.lanes, edge="even"), shapes)])
    everybody = [1 + n for n in range(2 * TOGETHER)]  # questions, in two turns
    assert sum(r.seconds or 0.0 for r in first) == pytest.approx(sum(everybody) / 2 / 1000)
    assert last.seconds == pytest.approx((2 * TOGETHER + 1.5) / 1000)
    assert all(record.phases.verify > 0 and record.phases.measure > 0 for record in (*first, last))


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
        check_real(runner, REAL["constant"], here.limits.lanes)


def test_who_times_has_no_threads_but_those_of_what_is_timed(here: Hardware) -> None:
    """NumPy multiplies such matrices on all cores; its threads would spin beside a candidate's."""
    work = Dense(T=Dim(1, 256), N=512, K=512)
    with LocalRunner(here.with_cores(2), FAST) as runner:
        trial = Trial(cpu_scheme(6, here.limits.lanes, edge="even"), (Shape.of(T=256),))
        (made,) = runner.measure(work, [trial])
        assert made.ok, made.reason
        children = psutil.Process().children()
        timer = next(one for one in children if "candidate_worker" in " ".join(one.cmdline()))
        assert timer.num_threads() == 2


@pytest.mark.parametrize("name", REAL)
def test_operands_rotate_in_real_measurements(name: str, rotating: LocalRunner) -> None:
    check_real(rotating, REAL[name], rotating.hardware.limits.lanes)


def test_library_is_built_for_the_shapes_of_its_trial(rotating: LocalRunner) -> None:
    """Lower micro-kernels that only other shapes need are left out of it."""
    kernel = cpu_scheme(6, rotating.hardware.limits.lanes, edge="even")
    many = tuple(Shape.of(T=t) for t in (1, 5, 9, 13))
    (one,) = rotating.measure(WORK, [Trial(kernel, (Shape.of(T=12),))])
    several = list(rotating.measure(WORK, [Trial(kernel, many)]))
    assert one.ok and all(made.ok for made in several), [made.reason for made in several]
    assert one.code_bytes < several[0].code_bytes


def test_a_budget_ends_a_round_and_what_was_timed_often_enough_is_kept(here: Hardware) -> None:
    """Its clock goes on by a second whenever it is read: at the builds, the checks, the blocks."""
    ticks = count()
    trials = [Trial(cpu_scheme(rows, 16), (Shape.of(T=3), Shape.of(T=5))) for rows in (2, 3)]
    found = []
    with LocalRunner(here, Timing(blocks=5, block_seconds=1e-4)) as runner:
        for seconds in (2, 5, 17, 1000):
            runner.budget = Budget(seconds, lambda: float(next(ticks)))
            records: list[Record] = []
            with suppress(BudgetSpentError):
                records.extend(runner.measure(WORK, trials))
            assert runner.budget.stopped is (seconds < 1000)
            assert all(record.ok and record.seconds for record in records)
            found.append(len(records))
    assert found[:2] == [0, 0] and 0 < found[2] <= found[3] == 4


def test_one_runner_serves_several_operators(rotating: LocalRunner) -> None:
    """The second operator's library is not taken for the first's, though the micro-kernel is the same."""
    trial = Trial(cpu_scheme(5, rotating.hardware.limits.lanes, edge="even"), (Shape.of(T=3),))
    works = (WORK, Dense(T=Dim(1, 16), N=40, K=13, bias=True), BatchMatmul(Dim(1, 16), 2, 12, "nn"), WORK)
    for work in works:
        (made,) = rotating.measure(work, [trial])
        assert made.ok, made.reason


def test_missing_compiler_stops_before_anything_is_measured(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = pytest.raises(BuildError, match=r"none of g\+\+, clang\+\+, cc.*apt-get install")
    with LocalRunner(here) as runner, told:
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


POOL = """
from dietlab.lower.runtime import on_each_thread
from dietlab.targets.cpu.device import PrivateCaches
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
    python("-c", POOL, TVM_NUM_THREADS="2")


class Packing:
    """A library whose entry fills the packed weights, all but the last one, with this number."""

    def __init__(self, value: float, size: int = 576) -> None:
        self.value, self.size, self.packings = value, size, 0

    def implements_function(self, name: str) -> bool:
        return name == "pack"

    def packed_floats(self, cols: int, depth: int) -> int:
        return self.size

    def pack(self, weights: np.ndarray, packed: np.ndarray) -> None:
        self.packings += 1
        packed[:-1] = self.value

    def run(self, *arrays: object) -> None: ...


def test_libraries_share_weights_that_they_pack_alike_and_rotations_copy_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = {"first": Packing(1.0), "alike": Packing(1.0), "other": Packing(2.0), "long": Packing(1.0, 592)}
    monkeypatch.setattr("dietlab.measure.candidates.load_library", lambda path, *_, **__: modules[path.name])
    problem, candidates = Problem.make(WORK, Shape.of(T=3)), Candidates("cpu", 1, Arena(1 << 20))
    packed = candidates.prepare(WORK, problem.constants, problem.shape)

    def weights(name: str, layer: Any) -> Any:
        call = layer.bind(problem.variables, np.zeros(problem.out_shape, np.float32), name)
        return np.from_dlpack(call.args[1])

    addresses = {name: weights(name, packed).ctypes.data for name in modules}
    assert addresses["first"] == addresses["alike"] and len(set(addresses.values())) == 3
    copied = candidates.copied(candidates.copied(packed))
    for name in modules:
        copies = [weights(name, copied) for _ in range(3)]
        starts = [copy.ctypes.data for copy in copies]
        assert len(set(starts)) == 3 and not {*starts} & {*addresses.values()}
        first = weights(name, packed)
        assert all((copy[:16] == first[:16]).all() and len(copy) == len(first) for copy in copies)
    assert all(module.packings == 1 for module in modules.values())


def test_a_rotation_of_candidates_goes_round_as_many_packed_weights_as_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Packing(1.0)
    monkeypatch.setattr("dietlab.measure.candidates.load_library", lambda path, *_, **__: module)
    called: list[int] = []
    monkeypatch.setattr(module, "run", lambda x, w, y: called.append(np.from_dlpack(w).ctypes.data))
    device = host()
    candidates = Candidates("cpu", 1, device.arena)
    bench = Bench(device, candidates, Dense(T=Dim(1, 16), N=40, K=12), keeps=False)
    asked = {"shape": {"T": 3}, "plan": "any", "cache": "rotating", "min_seconds": 1e-3}
    copies = bench.time(asked)["copies"]
    assert copies == 64 and module.packings == 1
    # The packed weights themselves, and parts of which one more is there than copies are.
    assert copies <= len(set(called)) <= copies + 2 and len(set(called[:copies])) == copies

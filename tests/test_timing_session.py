"""How contenders are checked and timed: cases, cache states, slow moments, and falls that end nothing."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import MeasureError
from dietlab.compare.session import Entrant, TimingSession
from dietlab.compare.vendor import Operands
from dietlab.lower import compiler
from dietlab.lower.store import Store
from dietlab.machine import Hardware
from dietlab.measure.timing import bench as timing_bench
from dietlab.measure.timing import disturbance, rotation
from dietlab.measure.timing.bench import Bench
from dietlab.measure.timing.device import TimedBlock
from dietlab.measure.timing.disturbance import (
    QUICKER,
    RECENT,
    RETAKES,
    Pace,
    Taken,
    fma_probe,
    take,
    timed_once,
)
from dietlab.measure.timing.problem import Problem, shared_problem
from dietlab.measure.timing.rotation import MOST_PACKED, MOST_PLAIN, ROTATED_CACHES, Arena, copies_beyond
from dietlab.measure.timing.target import memory_bytes, roofline_of
from dietlab.problem import BatchMatmul, Dense, Dim, FloatArray, Shape, Workload
from dietlab.targets.cpu import contenders as evaluation
from dietlab.targets.cpu.device import Host, PrivateCaches, host_options

DENSE = Dense(T=Dim(1, 32), N=70, K=45, bias=True)
BATCH = BatchMatmul(T=Dim(1, 32), B=3, D=5)
L2_BYTES, LAST_LEVEL_BYTES = 1 << 14, 1 << 20


class Lying:
    """A contender whose calls write what ``fault`` says; it remembers what they were bound to."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        self.bound: list[dict[str, FloatArray]] = []
        self.log: list[str] = []

    def kind(self, workload: Workload) -> str:
        return "plain"

    def version(self) -> str:
        return "0"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> LyingLayer:
        return LyingLayer(self, workload, constants)

    def corrupt(self, out: FloatArray) -> None:
        if self._fault == "gap":
            out[..., -1, -1] = np.nan
        elif self._fault == "wrong":
            out[..., 0, 0] += 1.0
        elif self._fault == "beyond":
            np.lib.stride_tricks.as_strided(out.reshape(-1), (out.size + 1,))[-1] = 0.0


@dataclass(frozen=True)
class LyingLayer:
    contender: Lying
    workload: Workload
    constants: Operands

    def bind(self, operands: Operands, out: FloatArray, plan: int | None = None) -> Callable[[], None]:
        given = {**self.constants, **operands}
        self.contender.bound.append({**given, "out": out})

        def call() -> None:
            out[...] = self.workload.reference(given)
            self.contender.corrupt(out)
            self.contender.log.append("call")

        return call


def bench(contender: Any, workload: Workload = DENSE, keeps: bool = True, **changed: Any) -> Bench:
    return Bench(Host(1, L2_BYTES, LAST_LEVEL_BYTES, **changed), contender, workload, keeps=keeps)


def rotated(contender: Any, workload: Workload = DENSE, length: int = 5) -> dict[str, Any]:
    request = {"shape": {"T": length}, "cache": "rotating", "min_seconds": 1e-4}
    return bench(contender, workload).time(request)


@pytest.mark.parametrize("workload", [DENSE, BATCH], ids=str)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("", ""), ("gap", "never written"), ("wrong", "is above"), ("beyond", "overwritten")],
)
def test_check_notices(fault: str, reason: str, workload: Workload) -> None:
    answer = bench(Lying(fault), workload).check({"shape": {"T": 5}})
    assert answer["correct"] is (not fault)
    assert reason in answer["reason"]
    assert math.isinf(answer["max_error"]) is (fault == "gap")


@pytest.mark.parametrize("workload", [DENSE, BATCH], ids=str)
def test_everyone_gets_arrays_on_cache_lines(workload: Workload) -> None:
    contender = Lying()
    timed = rotated(contender, workload)
    assert len(contender.bound) == timed["copies"]
    for array in (array for bound in contender.bound for array in bound.values()):
        assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous
    assert contender.bound[0]["out"].shape == workload.output_shape(Shape.of(T=5))


# Cache states


def test_rotation_copies_the_weights_alone_if_they_are_constant() -> None:
    contender = Lying()
    timed = rotated(contender)
    copies = contender.bound[-timed["copies"] :]
    assert len({id(copy["x"]) for copy in copies}) == 1
    assert len({copy["out"].ctypes.data for copy in copies}) == 1
    assert len({copy["w"].ctypes.data for copy in copies}) == timed["copies"] == MOST_PACKED
    # What they hold tells nothing of the time, as long as it is ordinary numbers.
    assert all(((np.abs(copy["w"]) >= 1) & (np.abs(copy["w"]) <= 2)).all() for copy in copies[1:])


def test_rotation_copies_everything_if_nothing_is_constant() -> None:
    contender = Lying()
    timed = rotated(contender, BATCH, length=32)
    copies = contender.bound[-timed["copies"] :]
    for name in ("x", "w", "out"):
        assert len({copy[name].ctypes.data for copy in copies}) == timed["copies"]
    covered = sum(array.nbytes for copy in copies for array in copy.values())
    assert 2 * LAST_LEVEL_BYTES <= covered <= 3 * LAST_LEVEL_BYTES


def test_lengths_of_a_layer_share_its_weights_though_another_layer_comes_between() -> None:
    work = Dense(T=Dim(1, 8), N=Dim(8, 64), K=32)
    layers = [Problem.make(work, Shape.of(T=t, N=n)) for t, n in ((1, 8), (1, 64), (8, 8))]
    assert layers[0].operands["w"] is layers[2].operands["w"] is not layers[1].operands["w"]
    assert all(np.isfinite(layer.reference).all() for layer in layers)


def test_copies_cover_the_cache_within_reason() -> None:
    problem = Problem.make(BATCH, Shape.of(T=1))
    assert Host(1, 0, 0).copies(problem) == 2
    assert Host(1, 0, 10 * problem.bytes).copies(problem) == 10 * ROTATED_CACHES + 1
    assert Host(1, 0, 1 << 40).copies(problem) == MOST_PLAIN


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_arena_gives_ordinary_numbers_of_any_type_elsewhere_each_time(dtype: str) -> None:
    like = {"w": np.zeros((39, 60), getattr(ml_dtypes, dtype, dtype)), "b": np.zeros(3)}
    arena = Arena(1 << 20)
    taken = [arena.take({"w": like["w"]}, packed=False)["w"] for _ in range(900)]
    starts = [array.ctypes.data for array in taken]
    assert all(start % 64 == 0 for start in starts)
    first = starts.index(starts[0], 1)
    assert starts[first - 1] - starts[0] >= ROTATED_CACHES * 2**20, "taken again when the cache is exceeded"
    for array in taken[:first]:
        values = np.abs(array.astype(np.float64))
        if dtype != "int8":
            assert values.min() >= 1 and values.max() <= 2
    assert len(np.unique(taken[0].view(np.uint8))) > 100
    one, other = arena.take(like, packed=False), arena.take(like, packed=False)
    apart = [*one.values(), *other.values()]
    assert not any(np.shares_memory(x, y) for x, y in combinations(apart, 2))


@pytest.mark.parametrize(("free_gib", "told"), [(24, ""), (2, "128 MiB in place of 600 MiB"), (0, "64 MiB")])
def test_operands_rotate_through_less_where_memory_is_short(
    free_gib: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "free_bytes", lambda: free_gib << 30)
    machine = replace(Hardware.preset("haswell-1core"), l3_mib=300.0)
    size = rotation.exceeded_bytes(machine)
    note = rotation.shortage(machine, size)
    assert told in note and bool(note) == bool(told)
    assert size == (300 << 20 if not told else max(64 << 20, free_gib << 26) / ROTATED_CACHES)
    assert host_options(machine)["last_level_bytes"] == size


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6), st.integers(1, 40))
def test_all_calls_of_a_rotation_meet_their_header(sizes: list[int], calls: int) -> None:
    """Also where a rotation has more calls than the arena has parts, after parts of other sizes: packed
    weights are larger than the weights by which calls are counted."""
    arena = Arena(1 << 12)
    for number, size in enumerate(sizes):
        header = bytes([number + 1]) * 64
        like = {"w": np.broadcast_to(np.empty(1, np.float32), (size + 16,))}
        parts = [arena.take(like, packed=True, header=header)["w"] for _ in range(calls)]
        assert {part[:16].tobytes() for part in parts} == {header}


def test_a_header_stays_until_another_part_lies_there() -> None:
    """What is left of it would be denormal numbers among others, whose products take long."""
    arena, tagged = Arena(1 << 16), np.zeros(1000, np.float32)
    tagged.view(np.int32)[:] = np.arange(1, 1001)

    def require_right(array: FloatArray) -> None:
        assert (array[:16].view(np.int32) == tagged[:16].view(np.int32)).all()
        assert (np.abs(array[16:]) >= 1).all()

    def take(size: int) -> FloatArray:
        found = arena.take({"w": tagged[:size]}, packed=True, header=tagged[:16].tobytes())["w"]
        require_right(found)
        return found

    for array in [take(1000) for _ in range(copies_beyond(4000, 1 << 16, packed=True))]:
        require_right(array)
    for size in [300, 777, 1000, 20] * 50:
        take(size)


class Packing(Lying):
    """A contender that can copy what it packed."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared = 0

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> LyingLayer:
        self.prepared += 1
        return super().prepare(workload, constants, shape)

    def copied(self, prepared: LyingLayer) -> LyingLayer:
        return replace(prepared, constants={name: array.copy() for name, array in prepared.constants.items()})


@pytest.mark.parametrize("workload", [DENSE, BATCH], ids=str)
def test_who_can_copy_packed_weights_packs_once(workload: Workload) -> None:
    contender = Packing()
    timed = rotated(contender, workload)
    assert contender.prepared == 1
    assert len({id(bound["w"]) for bound in contender.bound}) == timed["copies"]


@pytest.mark.parametrize("any_shape", [True, False])
def test_who_serves_any_shape_prepares_the_copies_of_a_rotation_once(any_shape: bool) -> None:
    contender = Packing()
    contender.any_shape, contender.copied = any_shape, None  # type: ignore[attr-defined, method-assign, assignment]
    opened = bench(contender, DENSE)
    for cache, length in product(("hot", "rotating"), (5, 7, 5)):
        timed = opened.time({"shape": {"T": length}, "cache": cache, "min_seconds": 1e-4})
    assert contender.prepared == timed["copies"] * (1 if any_shape else 2)
    assert opened.check({"shape": {"T": 9}})["correct"]
    wrong = opened.check({"shape": {"T": 5}, "seed": 1})
    assert wrong["correct"], "other weights are other copies"


class Slow(Packing):
    """A contender that waits somewhere, of calls at the first one for each shape only."""

    def __init__(self, where: str, kind: str = "prepacked", any_shape: bool = False) -> None:
        super().__init__()
        self._where, self._kind, self.any_shape = where, kind, any_shape
        self._met: set[tuple[int, ...]] = set()

    def kind(self, workload: Workload) -> str:
        return self._kind

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> LyingLayer:
        self.wait("prepare")
        return super().prepare(workload, constants, shape)

    def corrupt(self, out: FloatArray) -> None:
        if out.shape not in self._met:
            self.wait("call")
        self._met.add(out.shape)

    def wait(self, where: str) -> None:
        if where == self._where:
            time.sleep(FIRST_SECONDS)


FIRST_SECONDS = 0.02


@pytest.mark.parametrize(
    ("contender", "counts"),
    [
        (Slow("call"), True),
        (Slow("call", any_shape=True), True),
        (Slow("prepare"), True),
        (Slow("prepare", "plain"), False),  # a form of ours: nothing is packed
        (Slow("prepare", any_shape=True), False),
        (Slow("problem"), False),
        (Slow(""), False),
    ],
)
def test_what_a_shape_costs_at_its_first_call_is_told_from_the_rest(
    contender: Slow, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*given: Any) -> Problem:
        contender.wait("problem")
        return shared_problem(*given)

    monkeypatch.setattr(timing_bench, "shared_problem", made)
    opened = bench(contender)

    def first(**request: Any) -> Any:
        answer = opened.check(request)
        assert answer["correct"]
        return answer["first_seconds"]

    assert first(shape={"T": 5}) is None, "the process starts with it"
    opened.time({"shape": {"T": 5}, "min_seconds": 1e-5})
    for length in (7, 6):
        seconds = first(shape={"T": length})
        assert seconds is not None and seconds > 0
        assert (seconds >= FIRST_SECONDS) is counts
        assert first(shape={"T": length}) is None
    opened.time({"shape": {"T": 8}, "min_seconds": 1e-5})
    assert first(shape={"T": 8}) is None and first(shape={"T": 9}, plan=0) is None
    assert (first(shape={"T": 10}, seed=1) is None) is contender.any_shape, "other weights are packed"


def test_what_a_device_loads_at_a_first_call_is_not_the_shape_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "slow_first_call", True)
    opened = bench(Lying())
    for length in (5, 7):
        assert opened.check({"shape": {"T": length}})["first_seconds"] is None
        opened.time({"shape": {"T": length}, "min_seconds": 1e-5})


@pytest.mark.parametrize("packs", [True, False])
def test_what_the_first_call_packs_is_packed_before_a_rotation_is_timed(
    packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    contender, calls = Packing(), list[int]()
    contender.packs_in_call = packs  # type: ignore[attr-defined]
    opened = bench(contender)
    block = opened.device.block

    def counted(*given: Any) -> TimedBlock:
        calls.append(len(contender.log))
        return block(*given)

    monkeypatch.setattr(opened.device, "block", counted)
    opened.check({"shape": {"T": 5}})
    copies = opened.time({"shape": {"T": 5}, "cache": "rotating", "min_seconds": 1e-4})["copies"]
    assert copies > 1 and calls == [1 + copies * packs]


def test_copies_that_others_displaced_are_not_taken_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first copy of a rotation has the weights that results are compared with."""
    monkeypatch.setattr(Host, "kept_bytes", 2100)  # weights of 64 columns, and no others
    contender = Packing()
    contender.any_shape, contender.copied = True, None  # type: ignore[attr-defined, method-assign, assignment]
    opened = bench(contender, Dense(T=Dim(1, 8), N=Dim(8, 64), K=8))
    for cache, length, cols in (("hot", 1, 8), ("hot", 1, 64), ("hot", 2, 64), ("rotating", 1, 8)):
        opened.time({"shape": {"T": length, "N": cols}, "cache": cache, "min_seconds": 1e-4})
    for length in (2, 3):
        assert opened.check({"shape": {"T": length, "N": 8}})["correct"]


@pytest.mark.parametrize("keeps", [True, False])
def test_calls_stay_bound_unless_the_contender_owns_what_they_hold(keeps: bool) -> None:
    contender = Lying()
    opened = bench(contender, keeps=keeps)
    for _ in range(3):
        opened.time({"shape": {"T": 5}, "min_seconds": 1e-5})
    assert (len(contender.bound) == 1) is keeps


@pytest.mark.parametrize("work", [DENSE, BATCH])
def test_what_rotates_comes_from_memory_if_its_copies_exceed_the_cache(work: Workload) -> None:
    """Weights that few copies of fit the last-level cache never leave it: memory bounds no such call."""
    shape = Shape.of(T=32)
    problem = Problem.make(work, shape)
    rotated = problem.constant_bytes or problem.bytes
    most = (MOST_PACKED if work.constants else MOST_PLAIN) * rotated
    haswell = Hardware.preset("haswell-1core")
    for level, expected in ((most // 4, rotated), (most, 0)):
        limits = replace(haswell.limits, l3_bytes=level, l2_bytes=1024)
        processor = replace(haswell, limits=limits, peak_gflops=100.0, dram_gbps=10.0)
        assert memory_bytes(work, shape, processor) == expected
        roofline = roofline_of(work, shape, processor)
        assert roofline is not None and roofline.memory_seconds == pytest.approx(expected / 10e9)
    assert memory_bytes(work, shape, Hardware.preset("h100")) in (0, work.bytes(shape)), "all of it rotates"


def test_interleaved_reads_other_data_before_each_timed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    contender = Lying()
    monkeypatch.setattr(PrivateCaches, "empty", lambda self: contender.log.append("read"))
    timed = bench(contender).time({"shape": {"T": 5}, "cache": "interleaved", "min_seconds": 1e-4})
    assert timed["calls"] > 1 and timed["copies"] == 1
    block = contender.log[-2 * timed["calls"] :]
    assert block == ["read", "call"] * timed["calls"]


@pytest.mark.parametrize("threads", [1, 2])
def test_private_caches_are_emptied_on_every_processor(threads: int) -> None:
    caches = PrivateCaches(1 << 14, threads)
    before = os.sched_getaffinity(0)
    caches.empty()
    assert os.sched_getaffinity(0) == before
    assert len(caches._readers) == (len(before) if threads > 1 else 0)
    where = {tuple(reader.submit(os.sched_getaffinity, 0).result()) for reader in caches._readers}
    assert where == ({(p,) for p in before} if threads > 1 else set())


def test_unknown_cache_state_is_refused() -> None:
    with pytest.raises(MeasureError, match="hot, interleaved, rotating; got 'lukewarm'"):
        bench(Lying()).time({"shape": {"T": 5}, "cache": "lukewarm"})


# Slow moments


class Machine:
    """A processor whose probes take these seconds, one after the other; blocks are numbered."""

    def __init__(self, *probes: float) -> None:
        self._probes = list(probes)
        self.blocks = 0

    def probe(self) -> float:
        return self._probes.pop(0)

    def block(self) -> float:
        self.blocks += 1
        return float(self.blocks)

    def take(self, usual: float | None = None) -> Taken:
        return take(self.block, self.probe, usual)


def test_quick_block_counts_at_once() -> None:
    assert Machine(1.0, 1.05).take() == Taken(1.0, 0, False, 1.0)
    assert Machine(1.05, 1.05).take(usual=1.0) == Taken(1.0, 0, False, 1.05)


@pytest.mark.parametrize("slow", [(1.0, 2.0), (2.0, 1.0), (1.1, 1.1)])
def test_block_in_a_slow_moment_is_taken_again(slow: tuple[float, float]) -> None:
    assert Machine(*slow, 1.0, 1.0).take(usual=1.0) == Taken(2.0, 1, False, 1.0)


def test_block_that_stays_slow_is_kept_and_counted() -> None:
    machine = Machine(*[2.0] * 2 * (RETAKES + 1))
    assert machine.take(usual=1.0) == Taken(RETAKES + 1.0, RETAKES, True, 2.0)
    assert machine.blocks == RETAKES + 1


def test_no_probe_takes_the_first_block() -> None:
    assert take(lambda: 3.0, None, 1.0) == Taken(3.0)


def test_interrupted_block_is_taken_again_after_another_warm_up() -> None:
    """Two blocks lose a core while they run; what is lost while they warm up does not count."""
    machine, lost, warmed = Machine(*[1.0] * 10), [0], [0]

    def warm_up() -> None:
        warmed[0] += 1
        lost[0] += 1

    def block() -> float:
        lost[0] += machine.blocks < 2
        return machine.block()

    taken = take(block, machine.probe, None, warm_up, lambda: lost[0])
    assert taken == Taken(3.0, 2, False, 1.0) and warmed == [3]


def test_the_system_tells_when_it_takes_a_core_away() -> None:
    """Two processes on one core cannot both keep it."""
    core = min(os.sched_getaffinity(0))
    script = (
        f"import os, time; os.sched_setaffinity(0, {{{core}}})\n"
        "from dietlab.measure.timing.disturbance import taken_cores\n"
        "end = time.monotonic() + 1\n"
        "while time.monotonic() < end: pass\n"
        "print(taken_cores())"
    )
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]
    assert all(int(child.communicate()[0]) > 3 for child in both)


def test_probe_finds_the_cores_that_warming_up_woke() -> None:
    seen: list[str] = []

    def note(what: str) -> float:
        seen.append(what)
        return 1.0

    take(lambda: note("block"), lambda: note("probe"), 1.0, lambda: note("warm up"))
    assert seen == ["warm up", "probe", "block", "probe"]


def test_pace_counts() -> None:
    pace = Pace()
    assert pace.usual is None
    for taken in (Taken(9.0, 0, False, 1.0), Taken(9.0, 2, False, 0.9), Taken(9.0, 4, True, 1.8)):
        pace.note(taken)
    assert (pace.blocks, pace.retaken, pace.kept, pace.usual) == (3, 6, 1, 1.0)


@settings(max_examples=30)
@given(slow=st.floats(1.1, 3), share=st.integers(0, 100))
def test_usual_is_what_a_third_of_the_blocks_finds(slow: float, share: int) -> None:
    """Blocks in quick moments, 1, come evenly among those in slow ones."""
    pace = Pace()
    for number in range(RECENT):
        quick = (number + 1) * share // 100 > number * share // 100
        pace.note(Taken(9.0, 0, False, 1.0 if quick else slow))
    assert pace.usual == (1.0 if RECENT * share // 100 > RECENT // QUICKER else slow)


def test_pace_accepts_a_processor_that_settles_at_a_lower_speed() -> None:
    pace = Pace()
    for seconds in [1.0] * RECENT + [1.2] * RECENT:
        pace.note(Taken(9.0, RETAKES, True, seconds))
    assert pace.usual == 1.2


def test_worker_answers_what_the_probe_found() -> None:
    probes = iter([1.0, 3.0, 1.0, 1.0])
    asked = bench(Lying(), probe=lambda: next(probes))
    answer = asked.time({"shape": {"T": 5}, "min_seconds": 1e-4, "usual_probe": 0.99})
    assert (answer["retaken"], answer["kept"], answer["probe"]) == (1, False, 1.0)


def test_probe_is_a_compiled_loop_of_multiply_adds(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietlab.targets.cpu import probe

    monkeypatch.setattr(probe, "STORE", Store(tmp_path / "store"))
    ticks = iter(range(100))
    timed = fma_probe(probe.compile_fma_probe(here, tmp_path / "fma.so"), lambda: float(next(ticks)))
    assert timed() == 1.0
    monkeypatch.setitem(sys.modules, "dietlab.targets.cpu.lowering.probe_loops", None)
    probe.compile_fma_probe(here, tmp_path / "again.so")
    assert (tmp_path / "again.so").read_bytes() == (tmp_path / "fma.so").read_bytes()


@pytest.mark.parametrize(("told", "waited"), [(["1 0 9", "2 15000000 10"], 0.015), (["", ""], 0.0)])
def test_waiting_for_a_core_is_not_in_what_is_timed_once(
    told: list[str], waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = iter((1.0, 1.02)), iter(told)
    monkeypatch.setattr(disturbance, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: next(answers))
    assert timed_once(lambda: "done") == ("done", pytest.approx(0.02 - waited))


# Contenders that fall

FALLING_MATMUL = """
import os, sys, time
import numpy
right = numpy.matmul
def falling(x, w, out):
    if len(x) == 3 and "contenders.worker" in " ".join(sys.orig_argv):
        {fall}
    right(x, w, out)
numpy.matmul = falling
"""


@pytest.mark.parametrize("fall", ["os.abort()", "time.sleep(60)"])
def test_contender_that_falls_on_one_shape_plays_the_next(
    fall: str, here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FALLING_MATMUL.format(fall=fall))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(evaluation, "WORKER", evaluation.WORKER._replace(seconds=3.0))
    with TimingSession(DENSE, here, [Entrant("openblas", "openblas")]) as played:
        assert played.unprobed == ""
        turns = [played.play(Shape.of(T=t), "hot", 2, 0.001, {})["openblas"][0] for t in (2, 3, 4)]
        (pace,), note = played.paces.values(), played.note
    assert [turn.correct for turn in turns] == [True, None, True]
    assert [len(turn.samples) for turn in turns] == [2, 0, 2]
    assert {turn.first_seconds for turn in turns} == {None}, "the third is the first of another process"
    assert ("signal" if "abort" in fall else "must answer within") in turns[1].reason
    assert pace.blocks == 4 and pace.usual is not None and pace.usual > 0
    assert pace.retaken == sum(turn.retaken for turn in turns)
    assert pace.kept == sum(turn.kept for turn in turns)
    assert note.startswith(f"4 blocks were timed; {pace.retaken} more were thrown away")


def test_match_without_a_compiler_goes_on_and_says_so(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "LINKERS", ())
    monkeypatch.setattr("dietlab.targets.cpu.probe.STORE", Store(tmp_path))
    with TimingSession(DENSE, here, [Entrant("openblas", "openblas")]) as played:
        turn = played.play(Shape.of(T=2), "hot", 1, 0.001, {})["openblas"][0]
    assert turn.correct and (turn.retaken, turn.kept) == (0, False)
    assert "C++ compiler" in played.note

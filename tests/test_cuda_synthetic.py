"""The simple GPU behind ``SyntheticRunner``: in the order of real times, and not the bound."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import ROOT
from cuda_samples import DENSE, few, typed

from dietlab.cost import adaptation_cost
from dietlab.cost.metrics import spearman
from dietlab.machine import Hardware
from dietlab.measure import Record, SyntheticRunner, read_records
from dietlab.problem import Dense, Dim, Shape, Workload
from dietlab.scheme import Scheme, build_space
from dietlab.targets.cuda.synthetic import DEVIATION, LAUNCH_SECONDS, synthetic_call

H200 = Hardware.preset("h200")
HALVES = typed(Dense(T=Dim(1, 4096), N=4096, K=4096), "bfloat16")


def plain(key: str, shape: Shape, work: Workload = DENSE, hardware: Hardware = H200) -> float:
    """Seconds without what nothing tells."""
    return synthetic_call(hardware, work, Scheme.from_key(key), shape, deviation=0)


@pytest.mark.parametrize(
    ("name", "least"), [("bf16", 0.80), ("bf16-later", 0.80), ("fp32", 0.70), ("fp32-later", 0.70)]
)
def test_times_are_in_the_order_of_real_ones(name: str, least: float) -> None:
    file = read_records(ROOT / "data" / "h200" / name / "records.jsonl.gz")
    groups: dict[Shape, list[Record]] = {}
    for record in file.records:
        if record.ok:
            groups.setdefault(record.shape, []).append(record)
    ranks, ratios = [], []
    for shape, records in groups.items():
        real = np.array([record.seconds for record in records])
        told = np.array([plain(r.scheme.key, shape, file.workload, file.hardware) for r in records])
        ranks.append(spearman(real, told))
        ratios.extend(told / real)
    assert len(ranks) >= 8 and np.mean(ranks) > least, ranks
    assert 0.8 < np.median(ratios) < 1.25


@pytest.mark.parametrize(("work", "length"), [(DENSE, 700), (HALVES, 512)], ids=["fp32", "bfloat16"])
def test_the_bound_does_not_know_all(work: Workload, length: int) -> None:
    """A test of the bound could fail here: it is another machine."""
    space, shape = few(build_space(work, H200), 200), Shape.of(T=length)
    runner, cost = SyntheticRunner(H200, noise=0.0), adaptation_cost(work, H200)
    told = cost.bound(space.schemes, [shape])[:, 0]
    taken = np.array([runner.seconds(work, scheme, shape) for scheme in space])
    assert np.log(taken / told).std() > 1.5 * DEVIATION
    assert 0.6 < spearman(told, taken) < 0.99


def test_nothing_but_the_micro_kernel_decides_how_it_deviates() -> None:
    keys = [f"128x128x16.t16x16.s3.{edge}" for edge in ("even", "rest")]
    shapes = [Shape.of(T=t) for t in (128, 2048)]
    runner = SyntheticRunner(H200, noise=0.0)
    pairs = [(Scheme.from_key(key), shape) for key in keys for shape in shapes]
    times = [(runner.seconds(DENSE, scheme, shape), plain(scheme.key, shape)) for scheme, shape in pairs]
    found = [(taken - LAUNCH_SECONDS) / (told - LAUNCH_SECONDS) for taken, told in times]
    assert max(found) == pytest.approx(min(found)) and max(found) != pytest.approx(1, abs=1e-4)


def test_waves_end_in_part() -> None:
    """132 multiprocessors with two blocks each: the last wave is shorter where it has one."""
    key = "128x128x16.t16x16.s3.even"
    work = Dense(T=Dim(1, 128 * 660), N=128, K=768)
    one, two, three, four = (plain(key, Shape.of(T=128 * 132 * n), work) for n in (1, 2, 3, 4))
    assert plain(key, Shape.of(T=128), work) == one
    assert one < two < three < four and two - one < one - LAUNCH_SECONDS
    assert four - LAUNCH_SECONDS == pytest.approx(2 * (two - LAUNCH_SECONDS))


@pytest.mark.parametrize(
    ("slower", "faster", "length"),
    [
        ("64x64x32.w2x2.s2.even", "64x64x32.w2x2.s4.even", 64),  # latency
        ("128x128x64.w2x2.s3.even", "128x128x64.g2x1.s4.even", 4096),  # units
        ("64x128x64.p1x1.s4.even", "64x128x64.p1x1.s4.k4.even", 64),  # few blocks
        ("64x64x64.p1x1.s8.even", "64x64x64.p1x1.s8.m4.even", 4096),  # bytes of L2
    ],
)
def test_what_hides_or_saves_is_faster(slower: str, faster: str, length: int) -> None:
    shape = Shape.of(T=length)
    assert plain(faster, shape, HALVES) < plain(slower, shape, HALVES)


def test_memory_bounds_a_call() -> None:
    slow = Hardware.from_json({**H200.to_json(), "dram_gbps": 50.0})
    key, shape = "64x128x64.p1x1.s4.k4.even", Shape.of(T=16)
    moved = HALVES.bytes(shape) / 50e9
    assert moved < plain(key, shape, HALVES, slow) < 1.5 * moved
    assert plain(key, shape, HALVES) < moved / 5

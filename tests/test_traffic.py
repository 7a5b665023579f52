"""Tables of traffic, shape sets drawn from them, and what ways to pad waste on them."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, WorkloadError
from dietlab.cli.options import parse_shapes
from dietlab.compare.results.policies import (
    PLANS,
    POLICIES,
    multiply_adds,
    next_multiple,
    next_power_of_two,
    padding_over,
    policy_waste,
)
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet
from dietlab.problem.traffic import TABLES, aggregated, parse_table, read_table

ROOT = Path(__file__).parent.parent
LENGTHS = Dense(T=Dim(1, 128), N=64, K=32)
STEPS = Dense(T=Dim(1, 2048), N=64, K=32)
histograms = st.dictionaries(st.integers(1, 4096), st.integers(1, 10**6), min_size=1, max_size=60)
extents = st.integers(0, 10**6)


def mean(counts: dict[int, int]) -> float:
    return sum(t * count for t, count in counts.items()) / sum(counts.values())


# Tables


@pytest.mark.parametrize("name", TABLES)
def test_table_says_where_it_comes_from_and_is_the_one_documented(name: str) -> None:
    table = read_table(name)
    assert "Source:" in table.origin and "Licence of this table:" in table.origin
    assert list(table.counts) == sorted(table.counts) and all(type(t) is int for t in table.counts)
    here = ROOT / "data/traffic" / f"{name}.csv"
    assert hashlib.sha256(here.read_bytes()).hexdigest() in (here.parent / "README.md").read_text()


def test_tables_are_what_they_are_called() -> None:
    assert dict(read_table("uniform").counts) == dict.fromkeys(range(1, 129), 1)
    assert list(read_table("paper").counts) == [5, 24, 43, 62, 81, 100, 119, 128]
    bert, serving = read_table("bert").counts, read_table("serving").counts
    assert min(bert) >= 3 and max(bert) == 128  # [CLS], a token, [SEP]
    assert sum(bert.values()) == 16622 and sum(serving.values()) == 109248
    assert max(serving) == 2048
    # Two modes: steps that only decode, one token a request, and steps with a chunk of a prompt.
    share = {
        edge: sum(c for t, c in serving.items() if edge < t <= 4 * edge) / 109248 for edge in (16, 64, 512)
    }
    assert share[16] > 0.6 and share[512] > 0.15 and share[64] < share[512]


def test_utterances_are_those_of_the_corpus() -> None:
    """LibriSpeech's dev-clean and test-clean have 5.4 hours each (Panayotov et al. 2015, table 1)."""
    speech = read_table("speech").counts
    assert sum(speech.values()) == 2703 + 2620 and max(speech) < 35.5 * 100
    assert sum(t * count for t, count in speech.items()) / 100 / 3600 == pytest.approx(5.4 + 5.4, abs=0.05)


def test_a_frame_of_speech_is_160_samples(tmp_path: Path) -> None:
    listed = tmp_path / "list.jsonl"
    listed.write_text(
        "".join(f'{{"durations": [{seconds}]}}\n' for seconds in (0.02, 0.0299, 0.03, 5.2150625))
    )
    script = ROOT / "data/traffic/make_speech.py"
    done = subprocess.run([sys.executable, script, listed], capture_output=True, text=True, check=True)
    assert dict(parse_table("x", done.stdout).counts) == {2: 2, 3: 1, 521: 1}
    assert "4 utterances" in done.stderr


def test_the_simulation_counts_every_token_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,1100,3\n2023-11-16 18:15:46.6805900,700,2\n"
        "2023-11-16 18:16:46.6805900,5,1\n"
    )
    script = ROOT / "data/traffic/make_serving.py"
    command = [sys.executable, str(script), str(trace), "--step-tokens", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # 512 + 488 read; 512 + 212 read; 76 read and 1 decoded; 1 and 1 decoded; after the pause 5 read.
    assert dict(parse_table("x", done.stdout).counts) == {1: 2, 5: 1, 77: 1, 724: 1, 1000: 1}
    assert "3 requests, 6 steps, 2 of them decode only" in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "columns"),
        ("extent,count\n", "columns"),
        ("length,count\n1,1\n", "columns"),
        ("extent,count\n1,1\n1,2\n", "distinct"),
        ("extent,count\n0,1\n", "1 or more"),
        ("extent,count\n3,0\n", "1 or more"),
        ("extent,count\n3\n", "EXTENT,COUNT"),
        ("extent,count\n3,1.5\n", "EXTENT,COUNT"),
    ],
)
def test_broken_table_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        parse_table("x", text)


@given(histograms, st.integers(1, 40))
def test_aggregation_keeps_the_weight_and_the_range(counts: dict[int, int], groups: int) -> None:
    found = aggregated(counts, groups)
    assert len(found) == min(groups, len(counts))
    assert set(found) <= set(counts)
    assert sum(found.values()) == sum(counts.values())
    assert aggregated(found, groups) == found
    if groups >= len(counts):
        assert found == dict(sorted(counts.items()))


@pytest.mark.parametrize("name", ["bert", "serving", "speech"])
@pytest.mark.parametrize("groups", [8, 32, 64])
def test_aggregated_traffic_has_the_same_mean(name: str, groups: int) -> None:
    counts = dict(read_table(name).counts)
    assert mean(aggregated(counts, groups)) == pytest.approx(mean(counts), rel=0.01)


# Shape sets


@given(st.sampled_from(TABLES), st.integers(1, 128), st.integers(0, 3000), st.none() | st.integers(1, 40))
def test_traffic_is_the_table_within_the_range(name: str, low: int, span: int, n: int | None) -> None:
    work = Dense(T=Dim(low, low + span), N=64, K=32)
    table = read_table(name)
    inside, outside = table.within(low, low + span)
    if not inside:
        with pytest.raises(WorkloadError, match="must have an extent in the range"):
            ShapeSet.traffic(work, name, n)
        return
    shapes = ShapeSet.traffic(work, name, n)
    assert math.isclose(math.fsum(shapes.weights), 1)
    assert all(low <= shape["T"] <= low + span for shape in shapes)
    assert shapes.dropped == outside and 0 <= outside < 1
    assert shapes.source == (name if n is None else f"{name}:{n}")
    if n is None:
        total = sum(inside.values())
        assert all(math.isclose(shapes.weight(s), inside[s["T"]] / total) for s in shapes)


def test_known_distributions_are_the_shape_sets_of_old() -> None:
    assert ShapeSet.traffic(LENGTHS, "paper") == ShapeSet.uniform(LENGTHS)
    assert ShapeSet.traffic(LENGTHS, "uniform") == ShapeSet.every(LENGTHS)
    assert ShapeSet.traffic(STEPS, "serving").dropped == 0
    assert ShapeSet.traffic(LENGTHS, "serving").dropped == pytest.approx(0.302, abs=0.001)


def test_source_and_dropped_share_outlive_splits() -> None:
    shapes = ShapeSet.traffic(LENGTHS, "serving").split(0.5)
    assert (shapes.source, shapes.hold_out_all_but([]).source) == ("serving", "serving")
    assert shapes.hold_out_all_but([]).dropped == shapes.dropped > 0


def test_unknown_traffic_is_refused() -> None:
    with pytest.raises(WorkloadError, match="one of uniform, paper, bert, serving, speech; got 'azure'"):
        ShapeSet.traffic(LENGTHS, "azure")
    with pytest.raises(WorkloadError, match="to one shape or more; got 0"):
        ShapeSet.traffic(LENGTHS, "bert", 0)
    with pytest.raises(WorkloadError, match="exactly one dynamic dimension"):
        ShapeSet.traffic(Dense(T=8, N=4, K=4), "bert")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("uniform", ShapeSet.uniform(LENGTHS)),
        ("uniform:3", ShapeSet.uniform(LENGTHS, 3)),
        ("every", ShapeSet.every(LENGTHS)),
        ("random:5:2", ShapeSet.random(LENGTHS, 5, 2)),
        ("paper", ShapeSet.uniform(LENGTHS)),
        ("bert", ShapeSet.traffic(LENGTHS, "bert")),
        ("serving:9", ShapeSet.traffic(LENGTHS, "serving", 9)),
        ("5,24,5", ShapeSet.extents(LENGTHS, [5, 24])),
    ],
)
def test_command_line_names_shape_sets(text: str, shapes: ShapeSet) -> None:
    found = parse_shapes(text, LENGTHS)
    assert found == shapes and found.source == text and found.dropped == shapes.dropped


@pytest.mark.parametrize(
    "text", ["", "azure", "bert:", "bert:x", "bert:3:4", "every:3", "5,,6", "paper,bert"]
)
def test_command_line_refuses_other_names(text: str) -> None:
    with pytest.raises(DietlabError, match=f"paper, bert, serving.*got {re.escape(repr(text))}"):
        parse_shapes(text, LENGTHS)


def test_tables_are_found_from_any_folder(tmp_path: Path) -> None:
    code = "import dietlab as d; print(len(d.ShapeSet.traffic(d.Dense(T=d.Dim(1, 128), N=8, K=8), 'bert')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "102", done.stderr


# Ways to pad


@given(extents, st.integers(1, 512))
def test_next_multiple_is_the_least(extent: int, tile: int) -> None:
    padded = next_multiple(extent, tile)
    assert padded % tile == 0 and extent <= padded < extent + tile


@given(extents)
def test_next_power_of_two_is_below_twice(extent: int) -> None:
    padded = next_power_of_two(extent)
    assert padded == 0 if extent == 0 else padded & (padded - 1) == 0
    assert extent <= padded <= max(0, 2 * extent - 1)


@given(st.integers(1, 2048), st.sampled_from(list(POLICIES)))
def test_waste_is_a_share_and_nothing_where_nothing_is_added(t: int, name: str) -> None:
    shape, policy = Shape.of(T=t), POLICIES[name]
    waste = policy_waste(STEPS, shape, policy)
    assert 0 <= waste < 1 and (waste == 0) == (policy(t) == t)
    assert waste == pytest.approx(1 - t / policy(t))


def test_a_length_on_two_axes_is_padded_on_both() -> None:
    attention = BatchMatmul(T=Dim(1, 128), B=2, D=64)
    shape = Shape.of(T=100)
    assert multiply_adds(attention, shape) == 2 * 100 * 100 * 64 == attention.flops(shape) // 2
    assert policy_waste(attention, shape, POLICIES["to multiples of 128"]) == 1 - (100 / 128) ** 2


@given(histograms, st.floats(0, 0.9))
def test_padding_over_a_trace_is_weighted_by_work(counts: dict[int, int], waste: float) -> None:
    work = Dense(T=Dim(1, 4096), N=64, K=32)
    shapes = ShapeSet.weighted(work, counts)
    weights = dict(zip(shapes.shapes, shapes.weights, strict=True))
    found = {line.policy: line for line in padding_over(work, weights, dict.fromkeys(shapes, waste))}
    assert list(found) == [PLANS, *POLICIES]
    assert found[PLANS].waste == pytest.approx(waste)
    for name, policy in POLICIES.items():
        executed = sum(policy(t) * count for t, count in counts.items())
        useful = sum(t * count for t, count in counts.items())
        assert found[name].waste == pytest.approx(1 - useful / executed)
        assert found[name].ratio == pytest.approx(executed / useful) and found[name].ratio > 1 - 1e-9
    assert found["to powers of two"].ratio < 2


def test_padding_of_traffic_in_numbers() -> None:
    def shares(work: Dense, name: str) -> dict[str, float]:
        shapes = ShapeSet.traffic(work, name)
        weights = dict(zip(shapes.shapes, shapes.weights, strict=True))
        return {line.policy: round(100 * line.waste, 1) for line in padding_over(work, weights, {})}

    names = list(POLICIES)
    assert shares(LENGTHS, "bert") == dict(zip(names, (28.1, 28.9, 84.7), strict=True))
    assert shares(LENGTHS, "uniform") == dict(zip(names, (10.4, 24.4, 49.6), strict=True))
    assert shares(STEPS, "serving") == dict(zip(names, (2.9, 36.5, 26.4), strict=True))


def test_padding_without_our_plans_or_shapes_says_what_it_can() -> None:
    one, two = Shape.of(T=1), Shape.of(T=2)
    assert [line.policy for line in padding_over(LENGTHS, {one: 1, two: 1}, {one: 0.0})] == list(POLICIES)
    assert padding_over(LENGTHS, {}, {}) == ()

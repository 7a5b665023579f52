"""Dimensions, shapes and weighted shape sets."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import WorkloadError
from dietlab.problem import Dense, Dim, Shape, ShapeSet

WORKLOAD = Dense(T=Dim(1, 128), N=64, K=32)
ranges = st.tuples(st.integers(1, 300), st.integers(0, 300)).map(lambda t: Dim(t[0], t[0] + t[1]))
histograms = st.dictionaries(st.integers(1, 4096), st.floats(1e-3, 1e6), min_size=1, max_size=80)


def extents(shapes: ShapeSet) -> list[int]:
    return [shape["T"] for shape in shapes]


def test_uniform_gives_the_eight_lengths_of_the_paper() -> None:
    assert extents(ShapeSet.uniform(WORKLOAD)) == [5, 24, 43, 62, 81, 100, 119, 128]


@given(ranges, st.integers(1, 40))
def test_uniform_stays_in_range_and_ends_at_the_largest(dim: Dim, n: int) -> None:
    chosen = extents(ShapeSet.uniform(Dense(T=dim, N=1, K=1), n))
    assert 1 <= len(chosen) <= n
    assert chosen == sorted(chosen) and chosen[-1] == dim.high
    assert all(t in dim for t in chosen)


@given(histograms)
def test_weights_sum_to_one_and_keep_their_proportions(histogram: dict[int, float]) -> None:
    shapes = ShapeSet.weighted(WORKLOAD, histogram)
    assert math.isclose(math.fsum(shapes.weights), 1.0)
    assert extents(shapes) == sorted(histogram)
    total = math.fsum(histogram.values())
    for extent, weight in histogram.items():
        assert math.isclose(shapes.weight(Shape.of(T=extent)), weight / total)


@given(ranges, st.floats(0, 0.99), st.integers(0, 5))
def test_split_is_disjoint_reproducible_and_never_takes_all(dim: Dim, fraction: float, seed: int) -> None:
    whole = ShapeSet.every(Dense(T=dim, N=1, K=1))
    split = whole.split(fraction, seed)
    assert split == whole.split(fraction, seed)
    train = set(split.train)
    assert train and not train & split.held_out
    assert train | split.held_out == set(whole)
    assert math.isclose(math.fsum(split.train.weights), 1.0)
    assert abs(len(split.held_out) - fraction * len(whole)) <= 1


def test_other_seeds_hold_out_other_shapes() -> None:
    whole = ShapeSet.every(WORKLOAD)
    assert len({whole.split(0.25, seed).held_out for seed in range(5)}) == 5
    assert len({ShapeSet.random(WORKLOAD, 8, seed) for seed in range(5)}) == 5
    assert ShapeSet.random(WORKLOAD, 8, 3) == ShapeSet.random(WORKLOAD, 8, 3)


def test_random_draws_without_replacement_and_takes_all_of_a_short_range() -> None:
    assert len(set(ShapeSet.random(WORKLOAD, 100))) == 100
    assert extents(ShapeSet.random(Dense(T=Dim(3, 7), N=1, K=1), 100)) == [3, 4, 5, 6, 7]


def test_hold_out_all_but_marks_what_tuning_did_not_see() -> None:
    shapes = ShapeSet.extents(WORKLOAD, [1, 2, 3]).hold_out_all_but([Shape.of(T=2), Shape.of(T=99)])
    assert shapes.held_out == {Shape.of(T=1), Shape.of(T=3)}
    assert extents(shapes.train) == [2] and shapes.train.weights == (1.0,)


@given(histograms, st.floats(0, 0.9))
def test_shape_set_survives_json_unchanged(histogram: dict[int, float], fraction: float) -> None:
    shapes = ShapeSet.weighted(WORKLOAD, histogram).split(fraction)
    assert ShapeSet.from_json(json.loads(json.dumps(shapes.to_json()))) == shapes


def test_equal_weights_survive_json_unchanged() -> None:
    for high in range(1, 200):
        shapes = ShapeSet.every(Dense(T=Dim(1, high), N=1, K=1))
        assert ShapeSet.from_json(json.loads(json.dumps(shapes.to_json()))) == shapes


def test_shape_survives_json_and_ignores_the_order_of_its_dimensions() -> None:
    shape = Shape.of(T=5, B=2)
    assert shape == Shape.of(B=2, T=5) == Shape.from_json(json.loads(json.dumps(shape.to_json())))
    assert (shape["T"], shape["B"], str(shape)) == (5, 2, "B=2,T=5")
    with pytest.raises(WorkloadError, match="requested dimension; got N in B=2,T=5"):
        shape["N"]


def test_dim_contains_both_ends_and_nothing_else() -> None:
    dim = Dim(3, 6)
    assert [t for t in range(10) if t in dim] == [3, 4, 5, 6] == list(dim)
    assert len(dim) == 4 and str(dim) == "3..6" and 3.5 not in dim


def test_dim_is_parsed_from_a_range_or_a_number() -> None:
    assert Dim.parse("1:128") == Dim(1, 128)
    assert Dim.parse("768") == 768


@pytest.mark.parametrize(("low", "high"), [(8, 4), (0, 4), (-3, 4), (-5, -2)])
def test_impossible_range_names_rule_values_and_remedy(low: int, high: int) -> None:
    said = rf"1 <= low <= high; got low={low}, high={high}\. Write T=Dim\(1, 128\) \(--dim"
    with pytest.raises(WorkloadError, match=said):
        Dim(low, high)
    with pytest.raises(WorkloadError, match=f"low={low}, high={high}"):
        Dim.parse(f"{low}:{high}")


@pytest.mark.parametrize(("low", "high"), [(1.0, 4), (1, 1e3), ("1", 4)])
def test_range_of_other_than_ints_is_refused(low: Any, high: Any) -> None:
    ends = re.escape(f"Dim({low!r}, {high!r})")
    said = rf"^the ends of a range must be ints; got {ends}\. As in Dim\(1, 128\)\.$"
    with pytest.raises(WorkloadError, match=said):
        Dim(low, high)


@pytest.mark.parametrize("text", ["a:b", "", "1:", ":4", "1.5", "1:2:3"])
def test_text_that_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="a number or low:high"):
        Dim.parse(text)


@pytest.mark.parametrize(
    "weights", [{3: 0.0}, {3: -1.0}, {3: 2.0, 4: -1.0}, {3: math.nan}, {3: math.inf, 4: 1.0}]
)
def test_bad_weight_is_refused(weights: dict[int, float]) -> None:
    with pytest.raises(WorkloadError, match="positive"):
        ShapeSet.weighted(WORKLOAD, weights)


def test_broken_shape_sets_are_refused() -> None:
    one, two = Shape.of(T=1), Shape.of(T=2)
    with pytest.raises(WorkloadError, match="positive sum"):
        ShapeSet.of({})
    with pytest.raises(WorkloadError, match="at least one"):
        ShapeSet((), ())
    with pytest.raises(WorkloadError, match="distinct shapes"):
        ShapeSet((one, one), (0.5, 0.5))
    with pytest.raises(WorkloadError, match="every shape must have a positive, finite weight"):
        ShapeSet((one, two), (1.0,))
    with pytest.raises(WorkloadError, match=r"sum to 1; got 0\.9"):
        ShapeSet((one, two), (0.5, 0.4))
    with pytest.raises(WorkloadError, match="held-out shapes must be members"):
        ShapeSet((one,), (1.0,), frozenset({two}))
    with pytest.raises(WorkloadError, match=r"lie in \[0, 1\); got 1"):
        ShapeSet.of({one: 1.0}).split(1.0)
    with pytest.raises(WorkloadError, match="at least one shape; got 0"):
        ShapeSet.uniform(WORKLOAD, 0)


def test_static_operator_has_no_uniform_shapes() -> None:
    with pytest.raises(WorkloadError, match=r"exactly one dynamic dimension; got 0 \(none\)"):
        ShapeSet.uniform(Dense(T=8, N=4, K=4))


def test_drawn_layers_are_the_same_in_every_process() -> None:
    """The order of a set of texts depends on the process, by PYTHONHASHSEED; that of draws must not."""
    program = (
        "from dietlab.problem import Dense, Dim\n"
        "from dietlab.problem.shapes import drawn_layers\n"
        "print(drawn_layers(Dense(T=Dim(1, 8), N=Dim(1, 4096), K=Dim(1, 4096)), seed=3))\n"
    )
    command = [sys.executable, "-c", program]
    processes = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2", "3")]
    assert len({subprocess.check_output(command, env=environment) for environment in processes}) == 1

"""The Gaussian process of cost: against its covariance written out, pair by pair, and dense algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import exp, log, log2
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemes import cpu_scheme, cuda_scheme
from scipy.stats import multivariate_normal

from dietlab.cost import gaussian_process as module
from dietlab.cost.gaussian_process import LEVEL, OWN, UNEXPLAINED, WIDE, GaussianProcess, pivots
from dietlab.cost.places import (
    HEIGHT,
    NEAR_EXTENT,
    NEAR_HEIGHT,
    OTHERS,
    PARAMETER,
    ROWS,
    WIDTH,
    Pairs,
    height,
    heights_of,
)
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, extents
from dietlab.scheme import EDGES, Scheme, plan_for
from dietlab.targets.cpu.kernel import CpuScheme

Values = npt.NDArray[np.float64]
Pair = tuple[Scheme, Shape]

EVERY = Dense(T=Dim(1, 128), N=Dim(16, 4096), K=Dim(16, 4096))
SCORES = BatchMatmul(T=Dim(1, 128), B=Dim(1, 16), D=64, form="nt")
HALVES = Dense(T=Dim(1, 128), N=768, K=256, dtype="float16")


def cpu_schemes(dice: Random, count: int) -> list[Scheme]:
    """Few families, of several groups: both loop orders, panels along columns and depth, all edges."""
    choose, edges = dice.choice, [*EDGES, "even", "rest"]

    def one() -> Scheme:
        size = dice.randint(1, 14), choose([16, 32]), choose([1, 4])
        order, prefetch = choose(["ws", "ws", "is"]), choose([0, 24])
        return cpu_scheme(*size, order, prefetch, choose(edges), choose([False, True]))

    return [one() for _ in range(count)]


def cuda_schemes(dice: Random, count: int) -> list[Scheme]:
    """Heights are multiples of 16 rows."""
    choose, edges = dice.choice, ["padded", "even", "rest"]
    sizes = ((16 * dice.randint(1, 6), choose([64, 128]), 16, 16, 16) for _ in range(count))
    return [cuda_scheme(*size, stages=choose([2, 3]), edge=choose(edges)) for size in sizes]


def drawn_shapes(workload: Workload, dice: Random, count: int) -> list[Shape]:
    return [
        Shape.of(**{name: round(dim.low * (dim.high / dim.low) ** dice.random()) for name, dim in dims})
        for dims in [list(workload.dims.items())] * count
    ]


class Process(GaussianProcess):
    """A process of measured pairs, whose tables are given as schemes and shapes."""

    def __init__(self, workload: Workload, pairs: Sequence[Pair], values: Values, times: Values) -> None:
        self.pairs = Pairs(workload, [scheme for scheme, _ in pairs], [shape for _, shape in pairs])
        super().__init__(self.pairs.places, values, times)

    def means(self, schemes: Sequence[Scheme], shapes: Sequence[Shape]) -> Values:
        return self.mean(self.pairs.table(schemes, shapes))

    def deviations(
        self, schemes: Sequence[Scheme], shapes: Sequence[Shape], at: npt.NDArray[np.bool_] | None = None
    ) -> Values:
        return self.deviation(self.pairs.table(schemes, shapes), at)


@dataclass(frozen=True)
class Case:
    """Pairs that were measured, and a table of others; some of the pairs stand in it."""

    workload: Workload
    seen: list[Pair]
    values: Values
    times: Values
    schemes: list[Scheme]
    shapes: list[Shape]

    @property
    def process(self) -> Process:
        return self.process_of(self.values)

    def process_of(self, values: Values) -> Process:
        return Process(self.workload, self.seen, values, self.times)


def drawn(workload: Workload, seed: int, count: int = 24) -> Case:
    dice, draw = Random(seed), cuda_schemes if workload is HALVES else cpu_schemes
    schemes, shapes = draw(dice, count), drawn_shapes(workload, dice, count)
    seen = list(dict.fromkeys(zip(schemes, shapes, strict=True)))
    random = np.random.default_rng(seed)
    values = 0.5 + random.normal(0.0, 0.3, len(seen))
    times = random.integers(1, 5, len(seen)).astype(np.float64)
    shapes = [*drawn_shapes(workload, dice, 4), *shapes[:3]]
    return Case(workload, seen, values, times, [*draw(dice, 7), *schemes[:4]], shapes)


CASES = [(work, seed) for work in (EVERY, SCORES, HALVES) for seed in range(2)]
cases = pytest.mark.parametrize("case", [drawn(*c) for c in CASES], ids=lambda c: f"{c.workload}")


def likeness(*differences: tuple[float, float]) -> float:
    """A squared exponential of differences, each with the one at which it has fallen to 0.6."""
    return exp(-0.5 * sum((apart / scale) ** 2 for apart, scale in differences))


def named(scheme: Scheme) -> dict[str, Any]:
    """What no number tells of a scheme; all composed plans have the same tiles."""
    found = {name: value for name, value in scheme.parameters.items() if isinstance(value, str)}
    return {**found, "edge": "composed" if scheme.composed else scheme.edge}


def covariance(workload: Workload, own: float, one: Pair, other: Pair) -> float:
    """That of the module's docstring, without what is a pair's own."""
    (scheme, shape), (beside, elsewhere) = one, other
    here, there = extents(workload, shape), extents(workload, elsewhere)
    extent = {role: log(here[role]) - log(there[role]) for role in here}
    tallest = [plan_for(s, sizes["rows"]).regions for s, sizes in ((scheme, here), (beside, there))]
    tall = log(max(r.kernel.rows for r in tallest[0])) - log(max(r.kernel.rows for r in tallest[1]))
    wide = 0.0
    if named(scheme) == named(beside):
        numbers = scheme.kernel.parameters, beside.kernel.parameters
        others = [n for n, v in numbers[0].items() if not isinstance(v, str) and n not in ("rows", "cols")]
        parameters = [(log2((1 + numbers[0][n]) / (1 + numbers[1][n])), PARAMETER) for n in others]
        wide = likeness(
            (log(scheme.cols / beside.cols), WIDTH),
            *parameters,
            (tall, HEIGHT),
            *((apart, ROWS if role == "rows" else OTHERS) for role, apart in extent.items()),
        )
    close = likeness((tall, NEAR_HEIGHT), *((apart, NEAR_EXTENT) for apart in extent.values()))
    return WIDE**2 * wide + own**2 * close * (scheme.family == beside.family) + LEVEL**2


def dense(workload: Workload, own: float, some: Sequence[Pair], others: Sequence[Pair]) -> Values:
    return np.array([[covariance(workload, own, one, other) for other in others] for one in some])


def likeliest(case: Case) -> tuple[float, float]:
    """The deviations, of families and unexplained, that make the values most likely."""
    values = case.values - np.median(case.values)
    found = {
        (own, left): multivariate_normal(
            cov=dense(case.workload, own, case.seen, case.seen) + left**2 * np.eye(len(values))
        ).logpdf(values)
        for own, left in product(OWN, UNEXPLAINED)
    }
    return max(found, key=lambda tried: found[tried])


def textbook(case: Case) -> tuple[Values, Values]:
    """Mean and standard deviation of the table (Rasmussen and Williams, equations 2.23 and 2.24)."""
    own, left = likeliest(case)
    table = list(product(case.schemes, case.shapes))
    # Half of what is unexplained is the pair's own, half is noise, the less the more often it was measured.
    alone = left**2 / 2 * (1 + 1 / case.times)
    inverse = np.linalg.inv(dense(case.workload, own, case.seen, case.seen) + np.diag(alone))
    across, level = dense(case.workload, own, table, case.seen), np.median(case.values)
    mean = level + across @ inverse @ (case.values - level)
    before = np.array([covariance(case.workload, own, pair, pair) for pair in table])
    variance = before - ((across @ inverse) * across).sum(axis=1)
    form = len(case.schemes), len(case.shapes)
    return mean.reshape(form), np.sqrt(variance).reshape(form)


@cases
def test_mean_and_deviation_are_those_of_the_textbook(case: Case) -> None:
    process, (mean, deviation) = case.process, textbook(case)
    np.testing.assert_allclose(process.means(case.schemes, case.shapes), mean, rtol=1e-6)
    np.testing.assert_allclose(process.deviations(case.schemes, case.shapes), deviation, rtol=1e-6)
    assert np.ptp(mean) > 0.1 and np.ptp(deviation) > 0.05, "the case tells pairs apart"


@cases
def test_fewer_pivots_only_make_it_less_sure(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    _, deviation = textbook(case)
    found = []
    for count in (len(case.seen), 12, 4, 1):
        monkeypatch.setattr(module, "PIVOTS", count)
        found.append(case.process.deviations(case.schemes, case.shapes))
    np.testing.assert_allclose(found[0], deviation, rtol=1e-6)
    for more, fewer in pairwise(found):
        assert (fewer >= more - 1e-9).all() and (fewer > more + 1e-3).any()
    assert (found[-1] <= np.sqrt(WIDE**2 + max(OWN) ** 2 + LEVEL**2)).all()


@cases
def test_a_table_is_what_its_pairs_are_one_by_one(case: Case) -> None:
    process = case.process
    for ask in (process.means, process.deviations):
        single = [[ask([k], [s])[0, 0] for s in case.shapes] for k in case.schemes]
        np.testing.assert_allclose(ask(case.schemes, case.shapes), single, rtol=1e-9)


@given(seed=st.integers(0, 10**6), work=st.sampled_from((EVERY, SCORES, HALVES)))
@settings(max_examples=20)
def test_many_shapes_are_each_as_uncertain_as_alone(seed: int, work: Workload) -> None:
    """What many have in common is computed once, of few columns."""
    case = drawn(work, seed)
    shapes = drawn_shapes(work, Random(seed), 80)
    found = case.process.deviations(case.schemes, shapes)
    alone = [case.process.deviations(case.schemes, [shape])[:, 0] for shape in shapes]
    np.testing.assert_allclose(found.T, alone, rtol=1e-5)
    at = np.random.default_rng(seed).random(found.shape) < 0.3
    some = case.process.deviations(case.schemes, shapes, at)
    np.testing.assert_allclose(some, np.where(at, found, 0.0), rtol=1e-9)


@cases
def test_the_same_measurements_say_the_same_whatever_was_asked_before(case: Case) -> None:
    asked, other = case.process, case.process
    for scheme in case.schemes[::-1]:
        asked.means([scheme], case.shapes[:1])
    for one, two in ((asked.means, other.means), (asked.deviations, other.deviations)):
        np.testing.assert_array_equal(one(case.schemes, case.shapes), two(case.schemes, case.shapes))


@cases
def test_a_measured_pair_counts_to_the_share_of_its_trust(case: Case) -> None:
    process = case.process
    alike = np.array([process.means([scheme], [shape])[0, 0] for scheme, shape in case.seen])
    told = (1 - process.trust) * alike + process.trust * case.values
    np.testing.assert_allclose(alike + process.own, told, rtol=1e-6)
    order = np.argsort(case.times, kind="stable")
    assert (np.diff(process.trust[order])[np.diff(case.times[order]) > 0] > 0).all()
    assert (process.trust > 0).all() and (process.trust < 1).all()
    assert process.trust[case.times == 1] == pytest.approx(0.5), "half of what is unexplained is noise"


@cases
def test_a_factor_on_all_measurements_is_one_on_all_predictions(case: Case) -> None:
    process, shifted = case.process, case.process_of(case.values + 3.0)
    np.testing.assert_allclose(
        shifted.means(case.schemes, case.shapes), process.means(case.schemes, case.shapes) + 3.0
    )
    np.testing.assert_allclose(
        shifted.deviations(case.schemes, case.shapes), process.deviations(case.schemes, case.shapes)
    )


@pytest.mark.parametrize("seed", range(2))
def test_noisier_measurements_leave_more_unexplained(seed: int) -> None:
    """Many neighbours: eight heights of two widths, on eight numbers of rows."""
    schemes: list[Scheme] = [
        cpu_scheme(rows, cols, edge="even") for rows in range(5, 13) for cols in (32, 48)
    ]
    pairs = list(product(schemes, [Shape.of(T=12 * t, N=256, K=256) for t in range(1, 9)]))
    smooth = np.array([0.1 * log(shape["T"]) for _, shape in pairs])
    noise = np.random.default_rng(seed).normal(0.0, 1.0, len(pairs))
    found = [
        Process(EVERY, pairs, smooth + deviation * noise, np.ones(len(pairs)))
        for deviation in (0.005, 0.06, 0.3)
    ]
    left = [process.pair for process in found]
    assert left[0] < left[1] < left[2]
    assert left[0] == pytest.approx(min(UNEXPLAINED) / np.sqrt(2))
    assert left[2] == pytest.approx(max(UNEXPLAINED) / np.sqrt(2))
    assert all(process.noise == process.pair for process in found)


@given(seed=st.integers(0, 10**6), size=st.integers(2, 9), count=st.integers(1, 12))
def test_the_most_telling_pairs_are_those_that_the_others_tell_least_about(
    seed: int, size: int, count: int
) -> None:
    factor = np.random.default_rng(seed).normal(size=(size, size))
    matrix = factor @ factor.T + 0.1 * np.eye(size)
    chosen = pivots(matrix, count).tolist()
    assert len(set(chosen)) == len(chosen) == min(size, count) and set(chosen) <= set(range(size))
    assert chosen[0] == matrix.diagonal().argmax()
    for number, pivot in enumerate(chosen):
        before = chosen[:number]
        known = matrix[:, before] @ np.linalg.inv(matrix[np.ix_(before, before)]) @ matrix[before]
        left = matrix.diagonal() - known.diagonal()
        assert left[pivot] == pytest.approx(max(left[k] for k in range(size) if k not in before))


def tallest(scheme: Scheme, rows: int) -> int:
    return max(region.scheme.rows for region in plan_for(scheme, rows).regions)


@given(st.integers(1, 14), st.sampled_from(EDGES), st.integers(1, 40))
def test_the_height_of_a_plan_is_that_of_its_tallest_tile(rows: int, edge: Any, extent: int) -> None:
    scheme: CpuScheme = cpu_scheme(rows, 16, edge=edge)
    assert height(scheme, extent) == tallest(scheme, extent)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(1, 300), max_size=6))
def test_heights_of_many_plans_are_those_of_each(granules: list[int], extents: list[int]) -> None:
    schemes: list[Scheme] = [
        cuda_scheme(16 * tiles, 64, 16, 16, 16, stages=2, edge=edge)
        for tiles in granules
        for edge in ("padded", "even", "rest")
    ]
    found = heights_of(schemes, np.array(extents, np.int64))
    assert found.tolist() == [[tallest(scheme, rows) for rows in extents] for scheme in schemes]


def test_a_plan_of_no_rows_has_a_height_with_a_logarithm() -> None:
    schemes: list[Scheme] = [cpu_scheme(6, 16, edge=edge) for edge in EDGES]
    assert (heights_of(schemes, np.array([0])) >= 1).all()


def test_one_measurement_is_enough() -> None:
    scheme, shape = cpu_scheme(4, 32, edge="even"), Shape.of(T=8, N=64, K=64)
    process = Process(EVERY, [(scheme, shape)], np.array([0.7]), np.array([1.0]))
    assert process.means([scheme], [shape])[0, 0] == pytest.approx(0.7)
    other = process.deviations([scheme, cpu_scheme(4, 32, order="is")], [shape])[:, 0]
    assert 0 < other[0] < WIDE < other[1]

"""What the lessons on schedules show: the climb from recorded times, and Ansor's search beside DietCode's."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
from notebook_runs import probed

from dietlab.lab.loops import STEPS

# --- 21 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def climb() -> dict[str, Any]:
    return probed("21_from_loops_to_micro_kernel")[0]


def test_the_climb_is_the_recorded_one_and_gains_a_hundredfold(climb: dict[str, Any]) -> None:
    assert climb["recorded"] and list(climb["gflops"]) == [step.name for step in STEPS]
    gflops = climb["gflops"]
    assert gflops["reorder"] < gflops["plain loops"] < gflops["tile"] < gflops["pack"] < gflops["registers"]
    # "By itself it even loses: 40 GFLOP/s in place of 47."
    assert (round(gflops["unroll"]), round(gflops["vectorise"])) == (40, 47)
    assert gflops["prefetch"] / gflops["plain loops"] == pytest.approx(102, abs=1)
    assert gflops["pack"] / gflops["tile"] == pytest.approx(4.8, abs=0.1)
    assert gflops["prefetch"] / climb["goal"]["128"] > 0.95


def test_few_rows_reach_their_bound(climb: dict[str, Any]) -> None:
    assert 0.9 < climb["few"]["prefetch"] < 1.05
    ours = [bounds["cache's bandwidth"] < bounds["peak"] for bounds in climb["bounds"]]
    assert ours == [True, False, False]  # they meet between 13 and 14 rows


def test_too_few_and_too_many_sums_are_slow(climb: dict[str, Any]) -> None:
    at_128, at_121 = climb["tiles"]["T = 128"], climb["tiles"]["T = 121"]
    for tile in ("1x48", "4x16", "16x64"):
        assert at_128[tile] < 0.6 * at_128["8x48"]
    assert at_121["8x48"] < 0.9 * at_128["8x48"] and climb["goal"]["121"] > 0.95 * climb["goal"]["128"]


def test_machine_code_has_no_vectors_before_the_tile_and_prefetches_last(climb: dict[str, Any]) -> None:
    assert climb["counts"]["plain loops"]["fma"] == 0
    assert climb["counts"]["registers"]["fma"] >= 24
    asked = {name for name, found in climb["counts"].items() if found["prefetches"]}
    assert asked == {"prefetch", "K-blocks"}


# --- 22 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searches() -> dict[str, Any]:
    return probed("22_ansor_and_dietcode")[0]


def test_three_sketches_differ_in_where_sums_are_kept(searches: dict[str, Any]) -> None:
    assert len(searches["sketches"]) == 3
    assert ["y_global" in sketch for sketch in searches["sketches"]] == [True, True, False]


def test_perfect_tiles_follow_the_primes(searches: dict[str, Any]) -> None:
    assert searches["ways"] == {"97": 4, "120": comb(6, 3) * 4 * 4, "128": comb(10, 3)}
    assert searches["sizes"]["97"] == searches["sizes"]["31"] < searches["sizes"]["128"] < 1088


def test_evolution_finds_the_best_perfect_tile_and_primes_lose_twofold(searches: dict[str, Any]) -> None:
    found, perfect = searches["over"]["evolution"], searches["over"]["best perfect tile"]
    assert all(1 <= perfect[T] <= found[T] < 1.03 * perfect[T] for T in found)
    assert {T for T, ratio in perfect.items() if ratio > 1.9} == {"31", "43", "97"}
    assert all(1 <= trials <= 48 for trials in searches["trials"].values())


def test_one_search_needs_fewer_measurements_than_eight(searches: dict[str, Any]) -> None:
    eight, one = (
        {int(n): value for n, value in curve.items() if value == value}
        for curve in (
            searches["curves"]["eight searches, one a length"],
            searches["curves"]["one search (paper)"],
        )
    )
    assert list(one.values()) == sorted(one.values(), reverse=True)
    assert min(n for n, value in one.items() if value < 1.05) == 4
    assert min(eight.values()) == pytest.approx(1.10, abs=0.01) and max(eight) == 384
    assert searches["tried"] == 64


def test_hours_are_those_of_the_shipped_results(searches: dict[str, Any]) -> None:
    hours = searches["cost"]["hours for 128"]
    ansor = [value for name, value in hours.items() if name.startswith("Ansor")]
    ours = [value for name, value in hours.items() if name.startswith("dietlab")]
    assert len(ansor) == len(ours) == 2 and all(value > 9 for value in ansor) and max(ours) < 0.1
    assert set(searches["cost"]["programs for 8 lengths"].values()) >= {2048}

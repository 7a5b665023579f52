"""What the notebooks on the roofline and on waves of thread blocks say, from recorded times."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_runs import probed


def by_length(values: dict[str, float]) -> dict[int, float]:
    """JSON has text for keys."""
    return {int(extent): value for extent, value in values.items()}


# --- 26 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def roofline() -> dict[str, Any]:
    return probed("26_roofline")[0]


def test_one_row_has_half_a_flop_for_each_byte(roofline: dict[str, Any]) -> None:
    assert roofline["half"] == pytest.approx(0.5, abs=0.001)
    assert roofline["first"] == 16


def test_cold_weights_need_more_rows_than_warm_ones(roofline: dict[str, Any]) -> None:
    cold, warm = roofline["cold"], roofline["warm"]
    assert {*cold} == {"Zen 4", "Zen 4, 2 cores", "Zen 3", "Xeon", "H200"}
    assert all(cold[name] > warm[name] for name in cold)
    assert cold["Zen 4, 2 cores"] <= cold["Zen 4"] + 1 and cold["H200"] > 200


def test_shares_above_the_roofline_are_few_and_small(roofline: dict[str, Any]) -> None:
    assert sorted(round(share) for share in roofline["over"]) == [105, 111]
    wrong = by_length(roofline["wrong"])
    assert 3 < wrong[1] < roofline["limit"]
    shares = by_length(roofline["rotating"])
    assert min(share for T, share in shares.items() if T >= 13) > 90


def test_squares_are_easiest_to_feed(roofline: dict[str, Any]) -> None:
    assert roofline["fed"]["8 x 8"] / roofline["fed"]["1 x 64"] == pytest.approx(4, abs=0.1)
    assert roofline["shown"]["length"] == 256


# --- 27 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def waves() -> dict[str, Any]:
    return probed("27_gpu_waves")[0]


def test_registers_bound_float32_tiles(waves: dict[str, Any]) -> None:
    assert {room["by"] for room in waves["rooms"].values()} == {"registers"}
    assert all(room["held"] == room["registers"] for room in waves["rooms"].values())
    assert 0.6 < waves["estimated"]["fp32-later"] < waves["estimated"]["bf16-later"] <= 1


def test_sixty_four_rows_more_cost_a_wave(waves: dict[str, Any]) -> None:
    assert waves["waves"]["1024"][:2] == [128, 1] and waves["waves"]["1088"][:2] == [144, 2]
    tall, middle, low = (by_length(curve) for curve in waves["curves"].values())
    assert 1.9 < tall[1088] / tall[1024] < 2
    assert tall[1024] < middle[1024] < low[1024] and middle[1088] < tall[1088] < low[1088]
    assert waves["last"].startswith("1 of 132 places")


def test_splits_pay_where_blocks_are_few(waves: dict[str, Any]) -> None:
    few, many = by_length(waves["splits"]["T=1"]), by_length(waves["splits"]["T=4096"])
    assert 1.1 < few[1] / few[4] < 1.25
    assert sorted(many.values()) == list(many.values())


def test_medians_lie_near_what_is_expected(waves: dict[str, Any]) -> None:
    ratios = [ratio for by in waves["ratios"].values() for ratio in by.values()]
    assert len(ratios) == 17 and all(0.9 < ratio < 1.5 for ratio in ratios)

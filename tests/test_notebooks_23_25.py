"""What the notebooks on transfer, units and serving show."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_runs import probed

from dietlab.targets.cpu.units import UNITS

CHOICE = 0.003
"""By how much, of a slowdown, the greedy choice for a traffic may lose under it to that for another."""

# --- 23 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transfer() -> dict[str, Any]:
    return probed("23_transfer")[0]


def test_layers_of_one_depth_rank_alike(transfer: dict[str, Any]) -> None:
    deep = "768 x 3072"
    for one, row in transfer["alike"].items():
        for other, correlation in row.items():
            if one != other:
                assert correlation < 0.85 if deep in (one, other) else correlation > 0.9


def test_other_layers_choose_well_and_another_machine_hardly(transfer: dict[str, Any]) -> None:
    quality = transfer["quality"]
    for layer, ours in quality["other layers"].items():
        assert ours > 0.9
        assert quality["other machine"][layer] < ours - 0.15
        assert quality["arithmetic"][layer] < ours - 0.3


def test_measurements_are_saved_on_the_same_machine(transfer: dict[str, Any]) -> None:
    gains = {(row["target"], row["source"]): row for row in transfer["gains"]}
    same, foreign = gains["Zen 3", "Zen 3, other layers"], gains["Zen 3", "Zen 4"]
    assert same["from_prior"] == 0 < 100 < same["from_nothing"]
    assert foreign["from_prior"] > foreign["from_nothing"] / 2
    assert all(0.95 < row["ends"] < 1.05 for row in gains.values())
    deep = transfer["by_target"].pop("768 x 3072")
    assert 0 < deep["from_prior"] < deep["from_nothing"]
    assert all(row["from_prior"] == 0 for row in transfer["by_target"].values())


def test_accumulators_decide_on_one_machine_and_not_on_the_other(transfer: dict[str, Any]) -> None:
    zen3, zen4 = transfer["knees"]["Zen 3"], transfer["knees"]["Zen 4"]
    assert zen3["4"] < 0.6 < 0.85 < zen3["12"]
    assert zen4["4"] > 0.95 and zen4["12"] > 0.9


# --- 24 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def units() -> dict[str, Any]:
    return probed("24_hand_written_units")[0]


def test_emulated_units_are_exact(units: dict[str, Any]) -> None:
    assert units["right"] == [True, True]
    assert units["sums"] == [sum(lane) for lane in units["products"]]


def test_sums_of_sixteen_bits_saturate_unless_weights_are_small(units: dict[str, Any]) -> None:
    assert 0.01 < units["wrong"]["8 bits"] < 0.2
    assert units["wrong"]["7 bits"] == units["wrong"]["6 bits"] == 0
    assert units["most"] == 2**15 - 1


def test_each_processor_has_its_units(units: dict[str, Any]) -> None:
    fitting = units["fitting"]
    assert [*fitting["haswell"]["int8"]] == ["maddwd"]
    assert [*fitting["znver4"]["int8"]] == ["vnni"]
    assert {*fitting["sapphirerapids"]["int8"]} == {"vnni", "amxint8"}


def test_inner_loops_are_made_of_the_instruction(units: dict[str, Any]) -> None:
    loops = units["loops"]
    assert loops["vnni"]["vpdpbusd"] > sum(loops["vnni"].values()) / 2
    assert loops["maddwd"]["vpaddd"] == loops["maddwd"]["vpmaddwd"]
    assert loops["amxint8"]["tdpbssd"] > 0
    assert units["calls"] == 2


def test_no_measured_gain_is_beyond_reason(units: dict[str, Any]) -> None:
    """From memory the bytes decide for one row; no unit exceeds its rate; some are slower."""
    one, many = ({unit: row[T] for unit, row in units["from_memory"].items()} for T in ("1", "128"))
    assert all(one[unit] < (4 if UNITS[unit].dtype == "int8" else 2.1) for unit in one)
    assert many["amxint8"] > many["vnni"] > 2.5 and max(many["maddwd"], many["bf16dot"]) < 1
    assert all(many[unit] < UNITS[unit].rate for unit in many)
    assert units["share"] < 1


def test_a_quarter_of_the_bytes_may_be_worth_more_than_four(units: dict[str, Any]) -> None:
    assert units["hot"]["vnni"]["1"] > 8 > 4.1 > units["hot"]["vnni"]["128"] > 3
    assert units["hot"]["amxint8"]["128"] > 10


def test_bounds_join_bytes_and_rates(units: dict[str, Any]) -> None:
    bounds, turns = units["bounds"], units["turns"]
    assert bounds["vnni"]["1"] == bounds["amxint8"]["1"] == pytest.approx(4)
    assert bounds["vnni"]["128"] == pytest.approx(4) and 4 < bounds["amxint8"]["128"] < 32
    assert turns["amxint8"] == pytest.approx(8 * turns["vnni"]) and turns["vnni"] == pytest.approx(
        turns["fma"]
    )


# --- 25 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def serving() -> dict[str, Any]:
    return probed("25_serving")[0]


def test_short_traffic_needs_more_micro_kernels(serving: dict[str, Any]) -> None:
    curves = serving["curves"]
    for size, slowdown in curves["bert"].items():
        assert slowdown >= curves["long"][size] >= 1
    for curve in curves.values():
        values = [*curve.values()]
        assert values == sorted(values, reverse=True)


def test_a_library_of_narrow_traffic_loses_under_all_others(serving: dict[str, Any]) -> None:
    for table in (serving["lost"], serving["eight"]):
        for under in ("bert", "serving"):
            assert table[under][under] <= min(row[under] for row in table.values()) + CHOICE
    eight = serving["eight"]
    for under in ("bert", "serving", "uniform"):
        best, *_, most = sorted(row[under] for row in eight.values())
        assert most == eight["long"][under] > 1.015 and eight["uniform"][under] < best + 0.005
    assert all(slowdown < 1.02 for name in ("bert", "serving") for slowdown in eight[name].values())
    assert all(serving["eight"]["uniform"][under] < 1.01 for under in serving["eight"]["uniform"])


def test_training_again_measures_nothing_and_follows(serving: dict[str, Any]) -> None:
    assert serving["records"] == 160
    drift = serving["drift"]
    for share, again in drift["trained again"].items():
        assert again <= drift["bert's"][share] + CHOICE
    assert drift["bert's"]["1.0"] < drift["trained again"]["1.0"] <= drift["serving's"]["1.0"] + CHOICE
    assert serving["fresh"][0] == [] and serving["fresh"][-1]


def test_the_lead_depends_on_the_traffic(serving: dict[str, Any]) -> None:
    for vendor in ("openblas", "mkl", "onednn-packed"):
        assert serving["traced"]["bert"][vendor] > serving["traced"]["long"][vendor] > 1
    assert all(row["oracle"] <= 1 for row in serving["traced"].values())
    assert serving["gained"] > 0 and serving["shown"] > 0

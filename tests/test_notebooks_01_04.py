"""Notebooks 01 to 04 run from top to bottom, and what they say holds."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_runs import probed

from dietlab.lab import lessons


def found(stem: str) -> dict[str, Any]:
    """What the names of a notebook are bound to after it ran, as JSON has them."""
    values, said = probed(stem)
    assert "recorded on:   AMD EPYC, 1 core" in said
    return values


@pytest.fixture(scope="module")
def padding() -> dict[str, Any]:
    return found("01_dynamic_shapes_and_padding")


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    return found("02_search_space")


@pytest.fixture(scope="module")
def measurement() -> dict[str, Any]:
    return found("03_measurement")


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return found("04_cost_model")


def numbered(line: dict[str, float]) -> dict[int, float]:
    """A line of the plot as it was before JSON made its keys text."""
    return {int(T): us for T, us in line.items()}


# --- 01 ---------------------------------------------------------------------------------------


def test_policies_by_hand_are_those_of_the_library(padding: dict[str, Any]) -> None:
    assert padding["mean"] == pytest.approx(19.6, abs=0.06)  # as data/traffic/README.md has it
    assert 0 < padding["sixteens"] < 0.1
    for name, share in padding["by_hand"].items():
        assert padding["policies"]["bert"][name] == pytest.approx(100 * share)
    assert padding["by_hand"]["to multiples of 128"] == pytest.approx(1 - padding["mean"] / 128)


def test_the_best_policy_depends_on_the_traffic(padding: dict[str, Any]) -> None:
    bert, serving = padding["policies"]["bert"], padding["policies"]["serving"]
    powers, wide = "to powers of two", "to multiples of 128"
    assert bert[powers] < bert[wide] - 10
    assert serving[wide] < bert[wide] - 10
    means = [padding["tiles"][height] for height in ("4", "8", "14", "32")]
    assert means == sorted(means) and 0 < means[0] < means[-1] < 50


def test_padding_to_the_longest_is_slow_and_tuning_each_length_long(padding: dict[str, Any]) -> None:
    assert numbered(padding["padded"]) == lessons.lines("01")["padded to 128"]
    assert padding["whole"] > 2 and 1 < padding["stepped"] < padding["whole"]
    assert len(padding["static"]) == 8 and set(padding["static"].values()) == set(padding["eight"].values())
    assert padding["hours"] * 3600 > 100 * padding["joint"]


# --- 02 ---------------------------------------------------------------------------------------


def test_one_micro_kernel_covers_every_shape(space: dict[str, Any]) -> None:
    assert set(space["errors"]) == {"5", "14", "43", "100"}
    assert max(space["errors"].values()) < 1e-3
    assert space["executed"]["even"] == space["executed"]["rest"] == 1 < space["executed"]["padded"]


def test_the_space_follows_the_hardware_and_not_the_dynamic_shape(space: dict[str, Any]) -> None:
    assert space["same"] is True
    assert space["fewer"] > 0
    # rows, vectors, unrolls, orders, ways to read
    assert space["size"] + space["rejected"] == 32 * 8 * 4 * 2 * 6
    assert 1088 == len(lessons.space()) < space["size"] < space["rejected"]
    assert min(space["heights"]) == 1 and max(space["heights"]) > 14
    assert space["fit"]["haswell-1core"] < 0.75 * space["fit"]["zen4-1core"]


def test_one_micro_kernel_beats_padding_to_the_longest(space: dict[str, Any]) -> None:
    assert numbered(space["line"]) == lessons.lines("02")["one micro-kernel, padded"]
    mean = space["mean"]
    assert mean["one micro-kernel, padded"] < 0.5 * mean["padded to 128"]
    assert space["worst"] < 16 and space["largest"] == lessons.largest_kernel()
    assert space["worth"]["local padding"] > 1.02 < space["worth"]["bound checks"]


# --- 03 ---------------------------------------------------------------------------------------


def test_records_are_quiet_and_some_are_not(measurement: dict[str, Any]) -> None:
    median, ninth, worst = measurement["quantiles"]
    assert 0 <= median < ninth < worst
    assert median < 3 and worst > 2 * median


def test_estimates_of_a_simulated_machine(measurement: dict[str, Any]) -> None:
    scatter = {name: found["std"] for name, found in measurement["table"].items()}
    assert scatter["least"] < scatter["median"] < scatter["mean"]
    assert measurement["luck"] > 2
    assert measurement["naive"] > 0.1 > abs(measurement["honest"])
    assert measurement["within"]["in turns"] > measurement["within"]["apart"] + 0.15
    assert measurement["width"] < 1


def test_the_cache_state_decides_at_few_rows(measurement: dict[str, Any]) -> None:
    assert set(measurement["wins"]) == {"hot", "rotating"}
    assert all(sum(lengths.values()) == 128 for lengths in measurement["wins"].values())
    for name, ratios in measurement["colder"].items():
        assert ratios["1"] > ratios["128"], name
        assert ratios["1"] > 1.2, name
    assert measurement["states"] == ["interleaved", "rotating"]
    hot = {s.contender: s.geomean_speedup for s in lessons.report().summary if s.cache == "hot"}
    assert measurement["leads"] == pytest.approx(hot)


def test_ratios_in_turns_outlive_a_slow_machine(measurement: dict[str, Any]) -> None:
    odd = measurement["odd"]
    for name in ("dietlab", "onednn-packed"):  # slow at once: the ratio stays
        assert odd["26"][name] > 1.1 * max(odd["25"][name], odd["27"][name])
    assert odd["27"]["speedup"] <= odd["26"]["speedup"] <= 1.01 * odd["25"]["speedup"]
    assert odd["84"]["dietlab"] > 1.2 * odd["85"]["dietlab"] and odd["84"]["speedup"] < 0.9


def test_the_protocol_moves_the_line_by_percents(measurement: dict[str, Any]) -> None:
    assert numbered(measurement["own"]) == lessons.lines("03")["the same, median of blocks"]
    assert all(0 <= percent < 15 for percent in measurement["apart"].values())


# --- 04 ---------------------------------------------------------------------------------------


def test_adaptation_by_hand_is_the_librarys(model: dict[str, Any]) -> None:
    assert model["agree"] is True
    assert (model["seen"], model["unseen"]) == (256, 832)
    assert model["once"] == model["best"]


def test_throughput_without_adaptation_is_nearly_constant(model: dict[str, Any]) -> None:
    assert len(model["flat"]) == 16
    assert max(model["flat"]) / min(model["flat"]) < 1.1


def test_a_model_by_hand_ranks_what_it_never_saw(model: dict[str, Any]) -> None:
    assert model["error"] < 5
    by_hand, library = (model["quality"][name] for name in ("by hand", "library"))
    assert by_hand["pairwise"] > 0.85 and by_hand["peak@5"] > 0.95
    assert abs(by_hand["pairwise"] - library["pairwise"]) < 0.03
    found = dict(model["by_library"])
    assert 16 * library["pairs"] == found.pop("pairs") > 1e6, "the mean of 16 lengths, and their sum"
    for name, value in found.items():
        assert library[name] == pytest.approx(value), name


def test_neither_half_of_the_model_is_enough(model: dict[str, Any]) -> None:
    accuracy = model["accuracy"]
    arithmetic, learned, both = (accuracy[name] for name in ("arithmetic only", "learned only", "by hand"))
    assert arithmetic["5"] > learned["5"] + 0.2
    assert learned["128"] > arithmetic["128"] + 0.05
    assert all(both[T] > max(arithmetic[T], learned[T]) for T in both)


def test_the_lab_gets_records_of_others_to_judge_by(model: dict[str, Any]) -> None:
    assert model["run"] == 512 + model["judges"]
    assert 60 <= model["judges"] <= 300 and model["judges"] % 3 == 0
    assert model["importances"]["rows"] > 0.5


def test_its_choice_comes_near_the_oracle(model: dict[str, Any]) -> None:
    lost = model["lost"]
    assert 0 < lost["chosen by your cost model"] < lost["one micro-kernel, padded"] < lost["padded to 128"]
    assert 0 < lost["chosen by a cost model"] < lost["one micro-kernel, padded"]
    assert sum(model["importances"].values()) == pytest.approx(1)
    assert set(numbered(model["line"])) == {shape["T"] for shape in lessons.shapes()}

"""What the notebooks on experiments show: values reported by the paper or others, and recorded here."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

import pytest
from notebook_runs import probed

from dietlab.base.shipped import data_path
from dietlab.lab.reproduce.findings import FINDERS


def by_length(values: dict[str, float]) -> dict[int, float]:
    """JSON has text for keys."""
    return {int(extent): value for extent, value in values.items()}


def claimed(name: str) -> list[tuple[str, float]]:
    """Our values of a claim with their machines, as ``docs/claims.md`` has them."""
    return [(finding.where, finding.value) for finding in FINDERS[name](data_path("results"))]


# --- 12 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert() -> dict[str, Any]:
    return probed("12_bert")[0]


def test_whole_models_gain_less_than_their_layers(bert: dict[str, Any]) -> None:
    assert sorted((batch, cores) for batch, cores, _ in bert["best"]) == [(1, 1), (1, 2), (16, 1), (16, 2)]
    assert all(1 < gain < 1.3 for *_, gain in bert["best"])


def test_the_paper_and_ours_share_lengths(bert: dict[str, Any]) -> None:
    assert len(bert["curves"]) == 3
    assert set(bert["lengths"]) <= {5, 24, 43, 62, 81, 100, 119, 128} and len(bert["lengths"]) >= 4


def test_nearly_all_operations_are_in_dense_layers(bert: dict[str, Any]) -> None:
    dense, every = bert["dense"]
    assert 0.95 < dense / every < 1
    assert all(0 < share <= 1 for share in bert["share"].values())


# --- 13 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense() -> dict[str, Any]:
    return probed("13_dense")[0]


def test_lengths_of_sixteen_sentences_are_compared_by_rows(dense: dict[str, Any]) -> None:
    assert dense["rows"] == [16 * T for T in (5, 24, 43, 62, 81, 100, 119, 128)]
    assert dense["waste"] == 128 / 80


def test_means_by_hand_are_those_of_the_claims(dense: dict[str, Any]) -> None:
    vendor = claimed("dense-vendor")
    for where, mean in dense["means"].items():
        assert any(name == where and value == pytest.approx(mean) for name, value in vendor)
    assert dense["means"] and len(dense["ansor"]) == len(claimed("dense-ansor"))
    assert {*dense["one"]} >= {"Zen 4, an earlier version"}


# --- 14 ------------------------------------------------------------------------------------------


def test_both_dimensions_of_the_scores_are_padded() -> None:
    found, _ = probed("14_batched_products")
    assert by_length(found["useful"]) == pytest.approx({16: 1.0, 17: (17 / 32) ** 2, 32: 1.0})
    assert all(geometric_mean(speedups) > 1 for speedups in found["over"].values())
    assert {where.rsplit(", ", 1)[1] for where in found["over"]} == {"NT", "NN"}
    assert found["regret"] < 0.5


# --- 15 ------------------------------------------------------------------------------------------


def test_only_measured_seconds_are_called_measured() -> None:
    found, _ = probed("15_tuning_time")
    assert [*found["ratios"].values()] == pytest.approx([ratio for _, ratio in claimed("tuning-eight")])
    where, first = next(iter(found["eight"].items()))
    assert len(first) == 8 and by_length(found["extrapolated"]) == pytest.approx(
        {n: sum(first) / 8 * n for n in (8, 16, 32, 64, 128)}
    )
    assert claimed("tuning-all")[0][1] == pytest.approx(found["extrapolated"]["128"] / found["joint"][where])
    assert found["layers"] == 3 and min(found["spent"]) > 0


# --- 16 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edges() -> dict[str, Any]:
    return probed("16_local_padding")[0]


def test_loop_partitioning_gains_nothing_where_no_tile_lies_inside(edges: dict[str, Any]) -> None:
    for gpu in ("RTX 3090", "RTX 2080 Ti"):
        assert edges["layer"][gpu]["loop partitioning"] > 10
        assert edges["product"][gpu]["loop partitioning"] == 1 < edges["product"][gpu]["local padding"]


def test_zeros_explain_what_local_padding_costs(edges: dict[str, Any]) -> None:
    assert by_length(edges["executed"]) == pytest.approx({120: 128 / 120, 128: 1.0, 960: 1024 / 960})
    assert edges["agree"] > 0.7
    padded, checked = (by_length(edges["times"][name]) for name in ("local padding", "bound checks"))
    assert all(checked[T] > padded[T] for T in padded)
    assert all(padded[T] < 1.1 for T in padded if T % edges["rows"] == 0)


def test_recorded_machines_have_the_same_treatments(edges: dict[str, Any]) -> None:
    """As many as there are records of; none is needed."""
    for ours in edges["ours"]:
        assert set(ours) == {"bound checks", "loop partitioning", "local padding", "composition"}
        assert ours["bound checks"] == 1 and min(ours["local padding"], ours["composition"]) > 0.9


# --- 17 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ablations() -> dict[str, Any]:
    return probed("17_ablations")[0]


def test_a_choice_without_adaptation_fits_no_length(ablations: dict[str, Any]) -> None:
    lost = ablations["models"]
    assert lost["no adaptation"] > lost["paper's, nothing learned"] > 1.25
    assert max(lost["whole model"], lost["paper's"]) < 1.1


def test_more_measurements_of_tuned_lengths_serve_no_others(ablations: dict[str, Any]) -> None:
    fewest, *_, most = by_length(ablations["split"]).values()
    gain = {kind: fewest[kind] / most[kind] for kind in fewest}
    assert gain["true"] > 1.03 > gain["false"] and most["true"] < most["false"]


def test_each_part_left_out_costs_time(ablations: dict[str, Any]) -> None:
    whole, *others = ablations["lost"].values()
    assert whole < min(others) and all(share > 0.99 for share in ablations["ideas"].values())
    trees = [mean for name, mean in ablations["dispatched"].items() if name.startswith("tree")]
    assert trees == sorted(trees, reverse=True)


# --- 18 ------------------------------------------------------------------------------------------


def test_a_library_for_every_length_has_no_reason_to_pad() -> None:
    found, _ = probed("18_served_models")
    assert found["models"] == ["decoder", "experts"]
    assert not {*map(tuple, found["bert"])} & {*map(tuple, found["layers"])}
    for name, waste in found["waste"].items():
        assert waste["none"] == 0 and all(0 <= share < 0.5 for share in waste.values())
        assert all(step > 0.97 for step in found["steps"][name].values())


# --- 19 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    return probed("19_gpu_records")[0]


def test_nobody_chooses_better_than_the_best_tile(records: dict[str, Any]) -> None:
    assert set(records["means"]) == {"nn", "nt", "tn"} and records["shapes"] > 700
    for means in records["means"].values():
        assert means["best"] >= means["portfolio"] >= means["tree"] > means["one"]


def test_more_tiles_lose_less(records: dict[str, Any]) -> None:
    sizes = by_length(records["sizes"])
    assert [sizes[n] for n in sorted(sizes)] == sorted(sizes.values(), reverse=True)
    assert sizes[8] < 1 < sizes[1] and max(records["portfolio"]) < 1
    assert records["lengths"] == sorted(records["lengths"])


def test_measurements_and_a_bound_rank_tiles(records: dict[str, Any]) -> None:
    models = records["models"]
    assert models["paper 0"] < models["bound 0"] < models["both 500"]
    assert models["learned 64"] < models["learned over bound 64"] < models["learned over bound 500"]
    assert 1 < records["gain"][0] < records["gain"][1] < 1.4

"""What the notebooks on search, dispatch, evaluation, one's own operator, the bench and every layer show."""

from __future__ import annotations

from itertools import pairwise
from statistics import geometric_mean
from typing import Any

import pytest
from notebook_runs import probed, ran

from dietlab.base.shipped import data_path
from dietlab.compare.results.summary import summarise
from dietlab.compare.results.table import ResultTable
from dietlab.lab import lessons
from dietlab.lab.strategies.fleet import AHEAD, WAITS
from dietlab.scheme import Scheme


@pytest.fixture(scope="module")
def search() -> dict[str, Any]:
    return probed("05_joint_search")[0]


@pytest.fixture(scope="module")
def dispatch() -> dict[str, Any]:
    return probed("06_dispatch")[0]


@pytest.fixture(scope="module")
def evaluation() -> dict[str, Any]:
    return probed("07_evaluation")[0]


@pytest.fixture(scope="module")
def own_operator() -> dict[str, Any]:
    return probed("08_your_own_operator")[0]


def by_length(values: dict[str, float]) -> dict[int, float]:
    """JSON has text for keys."""
    return {int(extent): value for extent, value in values.items()}


# --- 05 ------------------------------------------------------------------------------------------


def test_dividing_the_adaptation_out_flattens_the_saw_tooth(search: dict[str, Any]) -> None:
    raw, own = (list(search[name].values()) for name in ("raw", "own"))
    assert len(raw) == len(own) == 16
    assert max(own) / min(own) < 0.5 * max(raw) / min(raw)


def test_one_measurement_predicts_all_lengths(search: dict[str, Any]) -> None:
    error = by_length(search["error"])
    assert abs(error[search["home"]]) < 1e-9
    assert sum(map(abs, error.values())) / len(error) < 0.1


def test_loop_by_hand_measures_each_candidate_once(search: dict[str, Any]) -> None:
    kernels = [key for key, _ in search["mine"]]
    assert len(set(kernels)) == len(kernels) == 64
    assert {length for _, length in search["mine"]} <= {5, 24, 43, 62, 81, 100, 119, 128}


def test_joint_search_beats_a_search_for_each_length(search: dict[str, Any]) -> None:
    assert search["joint"][-1] < 1.1
    for joint, alone in list(zip(search["joint"], search["alone"], strict=True))[1:]:
        assert 1 <= joint < alone
    assert search["more"] is None or search["more"] > 64


def test_strategies_are_compared_on_equal_axes(search: dict[str, Any]) -> None:
    race = search["race"]
    assert {row["strategy"] for row in race} == {"draft", "marginal", "paper", "random"}
    assert {row["measurements"] for row in race} == {16, 32, 48, 64}
    first = {(row["seed"], row["strategy"]): row["slowdown"] for row in race if row["measurements"] == 16}
    assert len({first[0, name] for name in ("draft", "marginal", "paper", "random")}) == 4
    last = {(row["seed"], row["strategy"]): row["slowdown"] for row in race if row["measurements"] == 64}
    assert all(1 <= last[run] < first[run] for run in first)


def test_the_draft_is_ahead_on_every_seed(search: dict[str, Any]) -> None:
    """What the figure with bands and its table say."""
    contested = search["contested"]
    assert contested["draft"]["trials_high"] <= contested["random"]["trials_low"]
    assert contested["draft"]["trials"] <= min(row["trials"] for row in contested.values())
    assert all(ratio > 0.99 for ratio in search["parts"]) and max(search["parts"]) > 1.3
    assert search["faster"][WAITS] < 12 <= search["faster"][AHEAD] <= 16


def test_background_search_ends_and_the_panel_saw_it(search: dict[str, Any]) -> None:
    assert search["state"] == "finished" and search["trials"] >= 64
    assert search["seen"] >= 64


def test_line_of_the_search_is_the_lesson_s(search: dict[str, Any]) -> None:
    assert by_length(search["line"]) == pytest.approx(lessons.lines("05")["joint search"])


# --- 06 ------------------------------------------------------------------------------------------


def test_portfolio_by_hand_gains_with_every_member(dispatch: dict[str, Any]) -> None:
    means = list(by_length(dispatch["by_hand"]).values())
    assert len(set(dispatch["mine"])) == 8
    assert all(later < earlier for earlier, later in pairwise(means))
    assert 1 <= means[-1] < 1.02
    # Exchanges make theirs no worse than ours of equal size, but for micro-kernels that share code.
    size, slowdown = dispatch["curve"][-1]
    assert slowdown <= means[size - 1] + 0.002


def test_split_that_loses_least_is_not_the_one_right_most_often(dispatch: dict[str, Any]) -> None:
    rules = {int(at_most): rule for at_most, rule in dispatch["rules"].items()}
    least, often = rules[dispatch["least"]], rules[dispatch["often"]]
    assert len(rules) == 129
    assert dispatch["least"] != dispatch["often"]
    assert least["slowdown"] < often["slowdown"]
    assert least["right"] < often["right"]


def test_dispatcher_serves_every_length_from_the_portfolio(dispatch: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    exec(dispatch["source"], names)
    chosen = {names["choose"](T) for T in range(1, 129)}
    assert chosen | {dispatch["far"]} == set(dispatch["plans"])
    codes = {Scheme.from_key(key).kernel.key for key in chosen}
    assert codes <= set(dispatch["portfolio"])


def test_regret_is_small_on_held_out_lengths(dispatch: dict[str, Any]) -> None:
    regret = by_length(dispatch["regret"])
    held_out = [value for T, value in regret.items() if T not in dispatch["tuned"]]
    assert len(held_out) == 8
    assert min(regret.values()) >= 0
    assert sum(held_out) / len(held_out) < 10
    assert by_length(dispatch["line"]) == pytest.approx(lessons.lines("06")["dispatcher"])
    assert dispatch["shown"] > 0


# --- 07 ------------------------------------------------------------------------------------------


def test_strongest_rival_is_the_best_for_each_length(evaluation: dict[str, Any]) -> None:
    over = dict(evaluation["over"])
    best = over.pop("best prepacked, for each T")
    over.pop("best plain, for each T")
    assert best <= min(over.values())
    # Ratios of medians and medians of ratios agree within the noise.
    assert best == pytest.approx(evaluation["summary"]["best prepacked vendor"], rel=0.02)


def test_every_length_gets_a_verdict(evaluation: dict[str, Any]) -> None:
    for rival, counts in evaluation["verdicts"].items():
        assert sum(counts.values()) == 128
        assert counts["faster"] > counts["slower"], rival
    assert evaluation["verdicts"]["onednn-packed"]["undecided"] > 0


def test_intervals_and_turns_do_what_the_text_says(evaluation: dict[str, Any]) -> None:
    assert 0.85 < evaluation["coverage"] <= 1
    (low, high), (paired_low, paired_high) = evaluation["alone"], evaluation["paired"]
    assert low < 0.8 and high > 1.5
    assert 1.05 < paired_low < 1.1 < paired_high < 1.15


def test_worst_length_is_a_slow_moment(evaluation: dict[str, Any]) -> None:
    speedup, near = by_length(evaluation["speedup"]), by_length(evaluation["near"])
    worst = evaluation["worst"]
    assert speedup[worst] == min(speedup.values()) < 1
    assert near[worst] > 1.2 * max(near[worst - 1], near[worst + 1])


def test_paper_and_ours_agree_in_their_trend(evaluation: dict[str, Any]) -> None:
    means = evaluation["means"]
    assert means["DietCode, T4 (paper)"] < 1
    assert means["dietlab, Zen 4"] < 1
    paper, ours = by_length(evaluation["paper"]), by_length(evaluation["ours"])
    assert list(paper) == list(ours) == [5, 24, 43, 62, 81, 100, 119, 128]
    assert min(paper, key=paper.__getitem__) == min(ours, key=ours.__getitem__) == 43


def test_oracle_bounds_the_lines_before_it(evaluation: dict[str, Any]) -> None:
    oracle = by_length(evaluation["line"])
    assert oracle == pytest.approx(lessons.lines("07")["oracle"])
    before = lessons.lines("06")
    assert all(oracle[T] <= us + 1e-9 for line in before.values() for T, us in line.items())
    assert all(0 < share <= 105 for share in evaluation["shares"].values())


# --- 08 ------------------------------------------------------------------------------------------


def test_own_operator_is_a_contraction(own_operator: dict[str, Any]) -> None:
    assert own_operator["dims"] == "dense T=1..64 N=96 K=120"
    assert own_operator["difference"] < 1e-9
    assert own_operator["shape"] == [9, 96]


def test_own_operator_is_right_at_every_length(own_operator: dict[str, Any]) -> None:
    shares = by_length(own_operator["shares"])
    assert set(range(1, 66)) < set(shares)
    assert max(shares.values()) <= 1


def test_own_operator_went_through_every_stage(own_operator: dict[str, Any]) -> None:
    assert (own_operator["failures"], own_operator["trials"] >= 8) == (0, True)
    assert own_operator["reasons"] > 0
    assert set(own_operator["plans"].values()) <= set(own_operator["known"])
    names: dict[str, Any] = {}
    exec(own_operator["source"], names)
    assert names["choose"](43) == own_operator["plans"]["43"]


# --- 09 ------------------------------------------------------------------------------------------


def test_notebook_computes_the_summary_by_hand() -> None:
    found, _ = probed("09_bench")
    path = data_path(ran("09_bench").cells[1].source.split('"')[1])
    lines = [
        line
        for line in summarise(ResultTable.load(path))
        if line.criterion.measure == "prepacked"
        and line.criterion.of.lengths == (1, 128)
        and line.criterion.statistic == "geomean"
        and (line.threads, line.cache) == (found["threads"], found["cache"])
    ]
    assert [line.value for line in lines] == pytest.approx([found["by_hand"]]) and found["contenders"]


# --- 11 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every_layer() -> dict[str, Any]:
    return probed("11_every_layer")[0]


def test_tiles_follow_the_length_more_than_the_layer(every_layer: dict[str, Any]) -> None:
    shares = list(by_length(every_layer["tiles"]).values())
    assert sum(shares) / len(shares) > 0.5, "most layers have the same fastest tile at a length"


def test_one_library_costs_little_beside_four(every_layer: dict[str, Any]) -> None:
    assert len(every_layer["tuned"]) == 4 < len(every_layer["measured_on"])
    assert all(-1 < percent < 5 for percent in every_layer["price"].values())
    assert 0.85 < geometric_mean(every_layer["own"].values()) < 1.15


def test_one_layer_orders_the_schemes_of_another(every_layer: dict[str, Any]) -> None:
    assert every_layer["accuracy"] > 0.6


def test_the_tree_of_every_layer_is_that_of_its_source(every_layer: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    exec(every_layer["source"], names)
    assert names["choose"](43, 1000, 1000) == every_layer["plan"]
    assert 4 <= len(every_layer["kernels"]) <= 12


def test_layers_that_nobody_named_gain_too(every_layer: dict[str, Any]) -> None:
    vendors = every_layer["vendors"]
    assert (vendors["tuned for"]["size"], vendors["never seen"]["size"]) == (4, 12)
    assert min(found["mean"] for found in vendors.values()) > 1

"""The whole idea in one file: short, alone, right about its own processor, and explained by its notebook."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from math import ceil, log2
from time import process_time
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
from conftest import ROOT
from notebook_runs import probed

FILE = ROOT / "notebooks" / "mini_dietcode.py"
NOTEBOOK = ROOT / "notebooks" / "20_mini_dietcode.ipynb"
MOST_LINES = 160
"""What somebody reads in one sitting."""

MOST_SECONDS = 5.0
"""Of computing: more than ten times what it takes, so that a busy machine does not fail it."""

MOST_REGRET = 0.02
"""Mean regret with any of SEEDS: no four of the space's micro-kernels lose less than 0.6 % here."""

SEEDS = range(6)


def load() -> ModuleType:
    spec = spec_from_file_location("mini_dietcode", FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mini: Any = load()
SPACE = mini.build_space()
TRUTH = np.array([[mini.true_seconds(kernel, T) for T in mini.LENGTHS] for kernel in SPACE])


# --- the file -------------------------------------------------------------------------------------


def test_is_short_and_needs_numpy_only() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - {*sys.stdlib_module_names} == {"numpy"}


def test_every_function_and_constant_is_explained() -> None:
    text = FILE.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            assert re.match(r"[A-Z][a-z]+s ", ast.get_docstring(node) or ""), node.name
        elif isinstance(node, ast.Assign):
            assert "  # " in text.splitlines()[node.lineno - 1], ast.unparse(node)


def test_prints_the_same_table_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    began = process_time()
    mini.main()
    assert process_time() - began < MOST_SECONDS
    first = capsys.readouterr().out
    mini.main()
    assert capsys.readouterr().out == first
    header, *lines = first.splitlines()
    assert "T  micro-kernel  time (us)  over best possible" in header
    assert " ".join(line.split()[0] for line in lines[:10]) == "1 5 12 24 31 43 64 81 100 128"
    assert all(float(line.split()[3]) >= 1 for line in lines[:10])
    regret, speedup, measurements = lines[10:]
    assert float(regret.split()[2]) < 100 * MOST_REGRET
    assert float(re.findall(r"([\d.]+)x on", speedup)[0]) > 1.05
    assert measurements == "measurements: 12; pairs of a micro-kernel and a length: 3840"


# --- its parts ------------------------------------------------------------------------------------


def test_space_has_all_tiles_that_fit_the_registers() -> None:
    """A register for each vector of sums, for each vector of a row of weights, and for an input."""
    fit = {(r, v) for r in range(1, 100) for v in range(1, 100) if r * v + v + 1 <= 16}
    assert set(map(tuple, SPACE)) == fit and len(SPACE) == len(fit)
    assert str(mini.MicroKernel(6, 2)) == "6x16"


def test_times_have_teeth_by_rows_and_steps_by_waves() -> None:
    # 30 tiles a row: four waves of eight for the first, and not eight for two.
    kernel = mini.MicroKernel(8, 1)
    whole, one_more = mini.true_seconds(kernel, 8), mini.true_seconds(kernel, 9)
    assert 1.5 < one_more / whole < 2
    assert mini.true_seconds(kernel, 16) < one_more, "fewer rows are zeros"
    assert [mini.count_tiles(kernel, T) for T in (1, 8, 9)] == [30, 30, 60]


def test_noise_only_adds_and_follows_the_seed() -> None:
    kernel, again = mini.MicroKernel(8, 1), mini.make_runner(3)
    runner = mini.make_runner(3)
    times = [runner(kernel, 8) for _ in range(50)]
    assert times == [again(kernel, 8) for _ in range(50)]
    assert min(times) >= mini.true_seconds(kernel, 8) and len(set(times)) == 50
    assert mini.make_runner(4)(kernel, 8) != times[0]


@pytest.mark.parametrize("kernel", SPACE, ids=str)
def test_adaptation_is_the_useful_share(kernel: Any) -> None:
    shares = [mini.f_adapt(kernel, T) for T in mini.LENGTHS]
    assert min(shares) > 0 and max(shares) <= 1
    for T in (1, 14, 100):
        places = mini.CORES * ceil(mini.count_tiles(kernel, T) / mini.CORES)
        computed = places * kernel.rows * kernel.vectors * mini.LANES
        assert mini.f_adapt(kernel, T) == pytest.approx(T * mini.N / computed)


def test_where_the_cost_form_holds_one_measurement_predicts_every_length() -> None:
    def runner(kernel: Any, T: int) -> float:
        own = 1e9 * kernel.rows**0.8 * kernel.vectors**0.3
        return float(2.0 * T * mini.N * mini.K / (own * mini.CORES * mini.f_adapt(kernel, T)))

    known = mini.tune(runner, SPACE)
    wanted = np.array([[runner(kernel, T) for T in mini.LENGTHS] for kernel in SPACE])
    np.testing.assert_allclose(mini.predict(SPACE, known), wanted, rtol=1e-6)


def test_greedy_picks_are_best_one_by_one() -> None:
    first, second, third = mini.pick(TRUTH, 3)
    means = np.log(TRUTH).mean(axis=1)
    assert first == means.argmin()
    pairs = np.log(np.minimum(TRUTH, TRUTH[first])).mean(axis=1)
    assert pairs[second] <= pairs.min() + 1e-3 * np.ptp(means), "but for the ties"
    assert len({first, second, third}) == 3
    assert mini.pick(TRUTH, 30, TRUTH.min(axis=0))[0] == first, "where nothing helps, the best on average"


def test_tree_takes_the_fastest_with_few_comparisons() -> None:
    times = TRUTH[mini.pick(TRUTH, 4)]
    tree, fastest = mini.train_dispatcher(times), times.argmin(axis=0)
    assert [mini.dispatch(tree, T) for T in mini.LENGTHS] == fastest.tolist()
    leaves = 1 + np.count_nonzero(np.diff(fastest))
    assert depth(tree) == ceil(log2(leaves))
    assert mini.train_dispatcher(times[:1]) == 0 == mini.dispatch(0, 7)


def depth(tree: Any) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(depth, tree[1:]))


# --- what it is worth -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_few_measurements_come_near_the_best_choice(seed: int) -> None:
    asked: list[Any] = []
    runner = mini.make_runner(seed)

    def counted(kernel: Any, T: int) -> float:
        asked.append(kernel)
        return float(runner(kernel, T))

    known = mini.tune(counted, SPACE, seed)
    assert sorted(asked) == sorted(known) and len(known) == mini.BATCH * mini.ROUNDS < len(SPACE)
    assert len(asked) < TRUTH.size / 100
    portfolio = [[*known][i] for i in mini.pick(mini.predict([*known], known), mini.KEPT)]
    tree = mini.train_dispatcher(mini.predict(portfolio, known))
    ours = np.array([mini.true_seconds(portfolio[mini.dispatch(tree, T)], T) for T in mini.LENGTHS])
    assert 0 <= (ours / TRUTH.min(axis=0) - 1).mean() < MOST_REGRET
    assert np.log(ours).mean() < np.log(TRUTH).mean(axis=1).min() - 0.05, "any micro-kernel alone is slower"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1e-6])
def test_a_broken_runner_is_named_with_what_it_measured(seconds: float) -> None:
    with pytest.raises(ValueError, match=rf"positive, finite seconds; got {seconds} for \d+x\d+ at T = \d+"):
        mini.tune(lambda kernel, T: seconds, SPACE)


# --- the notebook ---------------------------------------------------------------------------------


def test_notebook_shows_every_part_from_the_file_and_repeats_none() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    shown = {name for call in re.findall(r"show\((.+)\)", code) for name in re.findall(r"mini\.(\w+)", call)}
    own = {name for name, part in vars(mini).items() if getattr(part, "__module__", "") == mini.__name__}
    parts = {name for name in own if inspect.isfunction(getattr(mini, name)) or name == "MicroKernel"}
    assert len(parts) > 12 and parts <= shown
    assert not {f"def {name}(" for name in parts} & {*re.findall(r"def \w+\(", code)}


def test_notebook_names_modules_that_there_are() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    modules = set(re.findall(r"`(dietlab\.[\w.]+)`", text))
    assert len(modules) > 10
    paths = {name: ROOT.joinpath(*name.split(".")) for name in modules}
    assert [name for name, p in paths.items() if not (p.is_dir() or p.with_suffix(".py").is_file())] == []


def test_notebook_says_what_it_shows() -> None:
    found, printed = probed("20_mini_dietcode")
    assert found["known"] == 12 and found["leaves"] == 31
    assert 1.5 < max(found["alone"]) < 1.7 and 1.08 < np.mean(found["alone"]) < 1.1
    assert np.argmax(found["ours"]) < 8 and np.mean(found["ours"]) < 1.01
    assert found["lost"] == sorted(found["lost"], reverse=True)
    assert found["lost"][2] > 2 > 1 > found["lost"][3]
    own = found["own"]
    assert max(own[-20:]) < 1.1 * min(own[-20:]) and min(own) < 0.85 * own[-1]
    errors = found["errors"]
    assert errors["measured"]["128"] < 0.03 < 0.1 < errors["guessed"]["128"] < 0.2
    tall, low = found["speeds"]["14x8"], found["speeds"]["8x8"]
    assert max(tall) > max(low) and low[63] > tall[63]
    assert "got nan for" in printed

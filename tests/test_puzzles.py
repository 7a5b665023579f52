"""Puzzles: solutions pass, and wrong answers are told apart with a message that helps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import nbformat
import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from dietlab import puzzles
from dietlab.puzzles import Puzzle
from dietlab.puzzles.puzzle import close, said, same_sequence
from dietlab.puzzles.split import TRAP, lost

Answer = Callable[..., Any]


def functions_of(notebook: str) -> dict[str, Answer]:
    """What a notebook of puzzles imports and defines."""
    cells = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    tree = ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))
    tree.body = [
        node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))
    ]
    names: dict[str, Any] = {}
    exec(compile(tree, notebook, "exec"), names)
    return names


SOLUTIONS, STUBS = functions_of("solutions"), functions_of("puzzles")
QUICK = [puzzle for puzzle in puzzles.PUZZLES if puzzle is not puzzles.LOCAL_PADDING]


def named(puzzle: Puzzle) -> str:
    return puzzle.name


# --- every puzzle --------------------------------------------------------------------------------


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_solution_passes(puzzle: Puzzle) -> None:
    verdict = puzzle.check(SOLUTIONS[puzzle.name])
    assert verdict, verdict
    assert verdict.solved and verdict.passed >= 4
    assert "solved" in repr(verdict) and puzzle.praise in verdict.text


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_stub_is_not_solved_yet(puzzle: Puzzle) -> None:
    verdict = puzzle.check(STUBS[puzzle.name])
    assert not verdict
    assert (verdict.passed, verdict.text) == (0, f"{puzzle.title}: not solved yet.")


@pytest.mark.parametrize("puzzle", QUICK, ids=named)
@given(seed=st.integers(0, 2**32))
def test_solution_passes_whatever_the_random_cases(puzzle: Puzzle, seed: int) -> None:
    assert puzzle.check(SOLUTIONS[puzzle.name], seed)


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_answer_that_raises_is_reported_as_a_sentence(puzzle: Puzzle) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    verdict = puzzle.check(breaks)
    assert not verdict.solved
    assert f"{puzzle.name}(" in verdict.text
    assert "it raises ZeroDivisionError: by nothing" in verdict.text


@pytest.mark.parametrize("puzzle", QUICK, ids=named)
def test_answer_of_the_wrong_kind_is_told_apart(puzzle: Puzzle) -> None:
    for value in (None, "much", [None], object()):
        verdict = puzzle.check(lambda *_, value=value: value)
        assert not verdict.solved
        assert "expected" in verdict.text and "got" in verdict.text


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_puzzle_shows_its_statement_and_a_picture(puzzle: Puzzle) -> None:
    shown = puzzle.show()
    assert puzzle.statement in shown.drawn.note
    assert f"{puzzle.name}(" in puzzle.statement
    assert len(shown.frame) and len(shown.figure.data)
    assert all(axis.title.text for axis in (shown.figure.layout.xaxis, shown.figure.layout.yaxis))
    assert "image/png" in shown._repr_mimebundle_()[0]


def test_cases_depend_on_the_seed_only() -> None:
    for puzzle in QUICK:
        first, again, other = (repr(list(puzzle.cases(Random(seed)))) for seed in (1, 1, 2))
        assert first == again != other


# --- wrong answers -------------------------------------------------------------------------------


def rounds_down(T: int, rows: int) -> float:
    return 1 - T / (max(1, T // rows) * rows) if T else 0.0


def of_useful(T: int, rows: int) -> float:
    return -T % rows / T if T else 0.0


def forgets_empty(tiles: int, cores: int) -> float:
    return 1 - tiles / (-(-tiles // cores) * cores)


def whole_then_rest(T: int, rows: int) -> list[int]:
    return [rows] * (T // rows) + ([T % rows] if T % rows else [])


def smallest_first(T: int, rows: int) -> list[int]:
    return sorted(SOLUTIONS["heights"](T, rows))


def proportional(T: int, rows: int, measured_T: int, us: float) -> float:
    return us * T / measured_T


def best_by_themselves(times: np.ndarray[Any, Any], count: int) -> list[int]:
    return [int(i) for i in (times / times.min(axis=0)).mean(axis=1).argsort(kind="stable")[:count]]


def without_ratios(times: np.ndarray[Any, Any], count: int) -> list[int]:
    """Greedy in microseconds, so that long calls decide."""
    chosen: list[int] = []
    for _ in range(count):
        left = [kernel for kernel in range(len(times)) if kernel not in chosen]
        chosen.append(min(left, key=lambda kernel: times[[*chosen, kernel]].min(axis=0).mean()))
    return chosen


def by_labels(losses: np.ndarray[Any, Any]) -> Any:
    """Right as often as possible."""
    return SOLUTIONS["split"]((losses > 0).astype(float))


def one_plan(losses: np.ndarray[Any, Any]) -> tuple[int, int, int]:
    best = int(losses.sum(axis=0).argmin())
    return 0, best, best


@pytest.mark.parametrize(
    ("puzzle", "wrong", "complaint"),
    [
        (puzzles.PADDING, rounds_down, r"waste\(T=15, rows=14\): expected 0.464286, got -0.0714286"),
        (puzzles.PADDING, of_useful, r"waste\(T=15, rows=14\): expected 0.464286, got 0.866667"),
        (puzzles.WAVES, forgets_empty, r"tiles=0, cores=4\): it raises ZeroDivisionError.*5 cases before"),
        (puzzles.HEIGHTS, whole_then_rest, r"T=31, rows=14\): expected \[11, 10, 10\], got \[14, 14, 3\]"),
        (puzzles.HEIGHTS, smallest_first, r"expected \[11, 10, 10\], got \[10, 10, 11\]"),
        (puzzles.PREDICTION, proportional, r"predict\(T=17, .*expected 750, got 531.25"),
        (puzzles.PORTFOLIO, best_by_themselves, r"portfolio\(times=\[\[10.0.*expected"),
        (puzzles.PORTFOLIO, without_ratios, r"expected \[.*\], got \["),
        (puzzles.SPLIT, by_labels, r"expected to lose .* us, as .* does, got .*, which loses"),
        (puzzles.SPLIT, one_plan, r"expected to lose"),
        (puzzles.SPLIT, lambda losses: (len(losses) + 1, 0, 1), r"expected \(at_most, low, high\) within"),
    ],
)
def test_wrong_answer_is_told_apart(puzzle: Puzzle, wrong: Answer, complaint: str) -> None:
    verdict = puzzle.check(wrong)
    assert not verdict.solved
    assert re.search(complaint, verdict.text, re.DOTALL), verdict.text


@pytest.mark.parametrize("puzzle", [puzzles.PADDING, puzzles.WAVES, puzzles.PREDICTION], ids=named)
@given(error=st.floats(1e-5, 1e3), sign=st.sampled_from([1, -1]))
def test_error_of_any_size_is_found(puzzle: Puzzle, error: float, sign: int) -> None:
    solution = SOLUTIONS[puzzle.name]
    verdict = puzzle.check(lambda *arguments: solution(*arguments) + sign * error)
    assert (verdict.solved, verdict.passed) == (False, 0)


def test_answer_may_change_its_arguments() -> None:
    def greedy(times: np.ndarray[Any, Any], count: int) -> Any:
        chosen = SOLUTIONS["portfolio"](times.copy(), count)
        times[:] = 0
        return chosen

    assert puzzles.PORTFOLIO.check(greedy)


@given(st.data())
def test_no_split_loses_less_than_the_solution(data: st.DataObject) -> None:
    lengths, plans = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    values = data.draw(st.lists(st.floats(0, 100), min_size=lengths * plans, max_size=lengths * plans))
    losses = np.array(values).reshape(lengths, plans)
    rule = (data.draw(st.integers(0, lengths)), *(data.draw(st.integers(0, plans - 1)) for _ in range(2)))
    assert lost(losses, SOLUTIONS["split"](losses)) <= lost(losses, rule) + 1e-9  # type: ignore[arg-type]


def test_trap_has_a_majority_that_loses_more() -> None:
    """Plan 0 wins on ten lengths of fourteen; the rule that is right most often still loses more."""
    assert (TRAP[:, 0] < TRAP[:, 1]).sum() == 10
    assert lost(TRAP, by_labels(TRAP)) > lost(TRAP, SOLUTIONS["split"](TRAP))


def test_values_are_compared_and_said_as_people_would() -> None:
    assert close(np.float32(0.5), 0.5) and close(1, 1.0)
    assert not close(0.5 + 1e-6, 0.5) and not close(np.array(0.5), 0.5) and not close(float("nan"), 0.5)
    assert same_sequence((2, np.int64(1)), [2, 1]) and same_sequence(np.array([2.0, 1.0]), [2, 1])
    assert not same_sequence([2, 1.5], [2, 1]) and not same_sequence(3, [3])
    assert said(1 / 3) == "0.333333" and said(np.zeros(2)) == "[0.0, 0.0]"
    assert said("x" * 500).endswith(" ...")


# --- local padding -------------------------------------------------------------------------------


def does_nothing(schedule: Any, rows: int) -> None:
    return None


def only_tiles(schedule: Any, rows: int) -> None:
    schedule.split(schedule.get_loops("y")[0], [None, rows])


def pads_for_all(schedule: Any, rows: int) -> None:
    schedule.pad_einsum("y", [rows, 1, 1])
    schedule.split(schedule.get_loops("y")[0], [None, rows])


def inlines_the_copy(schedule: Any, rows: int) -> None:
    pads_for_all(schedule, rows)
    schedule.compute_inline("x_pad")
    schedule.reverse_compute_at("y_pad", schedule.get_loops("y")[0])


def other_height(schedule: Any, rows: int) -> None:
    SOLUTIONS["pad_locally"](schedule, rows + 1)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (does_nothing, "the outermost loop makes 43 steps, expected 11 tiles of 4 rows"),
        (only_tiles, "the multiply-adds in block y still test bounds"),
        (inlines_the_copy, "the multiply-adds in block y still test bounds"),
        (pads_for_all, "block x_pad runs outside of the loop over tiles"),
        (other_height, "the outermost loop makes 9 steps, expected 11 tiles of 4 rows"),
    ],
)
def test_schedule_that_is_not_local_padding_is_told_apart(wrong: Answer, complaint: str) -> None:
    verdict = puzzles.LOCAL_PADDING.check(wrong)
    assert not verdict.solved
    assert complaint in verdict.text


def test_schedule_with_a_reduction_apart_is_local_padding_too() -> None:
    def apart(schedule: Any, rows: int) -> None:
        SOLUTIONS["pad_locally"](schedule, rows)
        schedule.decompose_reduction("y", schedule.get_loops("y")[-1])

    assert puzzles.LOCAL_PADDING.check(apart)


# --- package and notebooks -----------------------------------------------------------------------


def test_importing_the_puzzles_loads_nothing_heavy() -> None:
    script = (
        "import dietlab.puzzles, sys; assert not {'tvm','plotly','ipywidgets','pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_both_notebooks_have_the_same_puzzles_in_order() -> None:
    for name in ("puzzles", "solutions"):
        cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
        headings = [cell.source.splitlines()[0] for cell in cells if cell.source.startswith("## ")]
        titles = [f"## {number} {puzzle.title}" for number, puzzle in enumerate(puzzles.PUZZLES, 1)]
        assert headings == [*titles, "## Summary"]

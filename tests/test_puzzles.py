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
from hypothesis import given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError
from dietlab.lab import puzzles
from dietlab.lab.puzzles import Puzzle
from dietlab.lab.puzzles.answers import WrongAnswer, close, number, said, whole_numbers
from dietlab.lab.puzzles.pictures import EXPECTED, YOURS
from dietlab.lab.puzzles.trees import TRAP, loads, lost

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
@settings(max_examples=8)
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
@pytest.mark.parametrize("value", [None, "much", [None], float("nan"), {}, object(), np.zeros(3), len])
def test_answer_of_the_wrong_kind_is_told_apart(puzzle: Puzzle, value: object) -> None:
    verdict = puzzle.check(lambda *_: value)
    assert not verdict.solved
    assert "expected" in verdict.text and "it raises" not in verdict.text
    assert verdict.text.count("\n") == 0


def test_answer_that_is_no_function_is_told_apart() -> None:
    assert puzzles.PADDING.check(0.5).text == "Padding waste: not yet. waste is a function; got 0.5."  # type: ignore[arg-type]


def test_message_says_what_is_missing() -> None:
    assert "got None (is a return missing?)" in puzzles.PADDING.check(lambda T, rows: None).text
    assert "a function, len (is a call missing?)" in puzzles.HEIGHTS.check(lambda T, rows: len).text


EXAMPLE = re.compile(r"- \*\*Example\*\*: `(.*)`")
NOTEBOOK = r"\[notebook (\d\d)\]\((\2_\w+\.ipynb)\)"
ABOUT = re.compile(rf"\*About \d+ lines?, (\d+) minutes; belongs to {NOTEBOOK}\.\*")


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_task_stands_in_the_notebook_with_all_its_parts(puzzle: Puzzle) -> None:
    statement, points, about = puzzle.text.split("\n\n")
    assert f"`{puzzle.name}(" in statement
    assert re.match(r"- \*\*Gets\*\* .*\n- \*\*Returns\*\* ", points)
    found = ABOUT.fullmatch(about)
    assert found and puzzle.minutes == int(found[1]) > 0
    assert (ROOT / "notebooks" / found[3]).is_file()
    assert " ".join(re.sub(r"`|\*", "", statement).split())[:30] in puzzle.plain


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_example_of_a_puzzle_is_true(puzzle: Puzzle) -> None:
    examples = EXAMPLE.findall(puzzle.text)
    assert all(eval(each, {"np": np, puzzle.name: SOLUTIONS[puzzle.name]}) for each in examples)
    assert len(examples) == (puzzle is not puzzles.LOCAL_PADDING)


@pytest.mark.parametrize("puzzle", puzzles.PUZZLES, ids=named)
def test_puzzle_shows_its_text_and_a_picture(puzzle: Puzzle) -> None:
    shown = puzzle.show()
    assert shown.drawn.note == f"{puzzle.title}. {puzzle.plain}"
    assert not set(shown.frame["who"]) & {YOURS} and len(shown.figure.data)
    assert all(axis.title.text for axis in (shown.figure.layout.xaxis, shown.figure.layout.yaxis))
    assert "image/png" in shown._repr_mimebundle_()[0]


# --- hints, pictures and scores ------------------------------------------------------------------


def test_hints_come_in_steps_and_end() -> None:
    puzzle = puzzles.PACKING
    steps = [puzzle.hint() for _ in range(len(puzzle.hints) + 2)]
    assert [puzzle.hints[n] in step for n, step in enumerate(steps[:-2])] == [True] * len(puzzle.hints)
    assert "no more hints" in steps[-2] and steps[-1] == steps[-2]
    assert puzzle.hint(1) == steps[0] and repr(steps[0]) == steps[0]
    for wrong in (0, -1, "first"):
        with pytest.raises(DietlabError, match="hints are numbered"):
            puzzle.hint(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("puzzle", QUICK, ids=named)
def test_picture_has_the_answer_beside_what_is_expected(puzzle: Puzzle) -> None:
    verdict = puzzle.check(SOLUTIONS[puzzle.name])
    assert verdict.picture is not None
    frame = verdict.picture.frame(verdict.looks)
    sides = {who: frame[frame["who"] == who]["value"].to_numpy() for who in (EXPECTED, YOURS)}
    assert len(sides[YOURS]) == len(sides[EXPECTED]) > 0
    if puzzle not in (puzzles.BLOCKING, puzzles.TREE):  # which have several right answers
        assert sides[YOURS] == pytest.approx(sides[EXPECTED])
    data, _ = verdict._repr_mimebundle_()
    assert data["text/plain"] == verdict.text and data["image/png"]


@pytest.mark.parametrize("puzzle", QUICK, ids=named)
def test_picture_is_drawn_of_an_answer_that_raises_or_returns_nonsense(puzzle: Puzzle) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("nothing")

    for answer in (breaks, lambda *_: "much"):
        verdict = puzzle.check(answer)
        assert verdict.figure is not None and verdict.score is None
        assert "yours gives nothing to draw" in verdict.figure.layout.title.text


def test_picture_has_the_values_of_an_answer_that_raises_on_others() -> None:
    def fails_at_nine(T: int, rows: int) -> float:
        if T == 9:
            raise ValueError("nine")
        return 0.0

    verdict = puzzles.PADDING.check(fails_at_nine)
    assert verdict.picture is not None
    frame = verdict.picture.frame(verdict.looks)
    mine = frame[frame["who"] == YOURS]
    assert len(mine) == 39 and 9 not in set(mine["x"]) and not mine["value"].any()


def test_stub_is_drawn_without_an_answer() -> None:
    verdict = puzzles.HEIGHTS.check(STUBS["heights"])
    assert verdict.picture is not None
    assert set(verdict.picture.frame(verdict.looks)["who"]) == {EXPECTED}


def test_score_compares_the_answer_with_the_reference() -> None:
    def row_by_row(rows: int, cols: int, fits: int) -> list[tuple[int, int]]:
        return [(i, j) for i in range(rows) for j in range(cols)]

    verdict = puzzles.BLOCKING.check(row_by_row)
    assert verdict.score is not None and (verdict.score.yours, verdict.score.reach) == (42, 18)
    assert "Panels loaded: yours 42, to reach 18." in verdict.text and not verdict
    asks_twice = puzzles.EVOLUTION.check(lambda p, m, f, c: f(p[0]) and SOLUTIONS["evolve"](p, m, f, c))
    assert asks_twice and asks_twice.score is not None
    assert asks_twice.score.yours == asks_twice.score.reach + 16
    table = puzzles.score_table([puzzles.BLOCKING, puzzles.PADDING], [row_by_row, STUBS["waste"]])
    assert table["solved"].tolist() == ["", ""] and table["yours"].tolist() == ["42", ""]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(3, 9), st.randoms(use_true_random=False))
def test_loads_lie_between_one_of_each_panel_and_two_a_tile(
    rows: int, cols: int, fits: int, random: Random
) -> None:
    tiles = [(i, j) for i in range(rows) for j in range(cols)]
    random.shuffle(tiles)
    assert rows + cols <= loads(tiles, fits) <= 2 * len(tiles)
    assert loads(tiles, rows + cols) == rows + cols


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


def pointing(*given: int) -> int | None:
    found: int | None = SOLUTIONS["pointer"](*given)
    return found


def of_one_image(row: int, tap: int, H: int, W: int, C: int, kernel: int, stride: int, pad: int) -> Any:
    """Takes further images for further lines of the first."""
    OW = (W + 2 * pad - kernel) // stride + 1
    line = row // OW * stride + tap // kernel - pad
    column = row % OW * stride + tap % kernel - pad
    return (line * W + column) * C if line >= 0 and 0 <= column < W else None


def in_pixels(row: int, tap: int, H: int, W: int, C: int, *window: int) -> int | None:
    found = pointing(row, tap, H, W, C, *window)
    return None if found is None else found // C


@pytest.mark.parametrize(
    ("puzzle", "wrong", "complaint"),
    [
        (puzzles.PADDING, rounds_down, r"waste\(T=15, rows=14\): expected 0.464286, got -0.0714286"),
        (puzzles.PADDING, of_useful, r"waste\(T=15, rows=14\): expected 0.464286, got 0.866667"),
        (puzzles.WAVES, forgets_empty, r"tiles=0, cores=4\): it raises ZeroDivisionError.*that are right: 5"),
        (puzzles.HEIGHTS, whole_then_rest, r"T=31, rows=14\): expected heights that differ by at most one"),
        (puzzles.HEIGHTS, smallest_first, r"expected the tallest first, got \[10, 10, 11\]"),
        (puzzles.PREDICTION, proportional, r"predict\(T=17, .*expected 750, got 531.25"),
        (puzzles.PORTFOLIO, best_by_themselves, r"choice \d: expected a mean slowdown of .*, got .*, by \["),
        (puzzles.PORTFOLIO, without_ratios, r"expected a mean slowdown of"),
        (puzzles.SPLIT, by_labels, r"expected to lose .* us, got .*, which loses"),
        (puzzles.SPLIT, one_plan, r"expected to lose"),
        (puzzles.SPLIT, lambda losses: (len(losses) + 1, 0, 1), r"expected \(at_most, low, high\) within"),
        (puzzles.HEIGHTS, lambda T, rows: [1] * T, r"31 tiles, expected fewer: 3 are enough"),
        (puzzles.HEIGHTS, lambda T, rows: [T], r"expected heights from 1 to 14"),
        (puzzles.PACKING, lambda n, k, K, lanes: n * K + k, r"expected another place in this panel, got 12"),
        (puzzles.PACKING, lambda n, k, K, lanes: k * lanes + n % lanes, r"expected a place in panel 1, got"),
        (puzzles.REGISTERS, lambda registers: (registers, 1), r"takes .* registers, expected at most 3"),
        (puzzles.REGISTERS, lambda registers: ((registers - 2), 1), r"expected 1 multiply-adds a load"),
        (puzzles.BANK_CONFLICTS, lambda words: max(words) + 1, r"expected 1, got 32"),
        (puzzles.BANK_CONFLICTS, lambda words: 32 // len({w % 32 for w in words}), r"expected 1, got 32"),
        (puzzles.INTERVAL, lambda s, level: (min(s), max(s)), r"expected a narrower interval"),
        (puzzles.INTERVAL, lambda s, level: (sum(s), sum(s)), r"expected two of the samples"),
        (puzzles.INTERVAL, lambda s, level: (sorted(s)[len(s) // 2],) * 2, r"expected a wider|ends as far"),
        (puzzles.EVOLUTION, lambda p, m, f, c: sorted(p, key=f)[:c], r"expected the last one kept at .* us"),
        (puzzles.EVOLUTION, lambda p, m, f, c: [*p, *map(m, p)], r"expected at most 4 schedules; got 8"),
        (puzzles.EVOLUTION, lambda p, m, f, c: sorted([*p, *p], key=f)[:c], r"in the list twice"),
        (puzzles.POINTER, lambda *given: None, r"pointer\(row=0, tap=4, .*expected the address 0, got None"),
        (
            puzzles.POINTER,
            lambda *given: pointing(*given) or 0,
            r"tap=0, .*expected None, since the tap lies",
        ),
        (puzzles.POINTER, of_one_image, r"row=46, tap=8, .*expected None, .*, got 3456"),
        (puzzles.POINTER, in_pixels, r"row=1, tap=4, .*address 64, got 1, which is channel 1 of a pixel"),
        (puzzles.BLOCKING, lambda rows, cols, fits: [(0, 0)] * 36, r"35 are missing, 35 come again"),
        (puzzles.TREE, lambda losses, calls, depth: (0, 0, 0, 1), r"expected no more cuts .* than depth"),
        (puzzles.TREE, lambda losses, calls, depth: 1, r"expected to lose 1 us over all calls, got 3"),
    ],
)
def test_wrong_answer_is_told_apart(puzzle: Puzzle, wrong: Answer, complaint: str) -> None:
    verdict = puzzle.check(wrong)
    assert not verdict.solved
    assert re.search(complaint, verdict.text, re.DOTALL), verdict.text


@pytest.mark.parametrize("puzzle", [puzzles.PADDING, puzzles.WAVES, puzzles.PREDICTION], ids=named)
@settings(max_examples=20)
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
    assert close(number(np.float32(0.5)), 0.5) and close(1, 1.0) and not close(0.5 + 1e-6, 0.5)
    assert whole_numbers((2, np.int64(1))) == whole_numbers(np.array([2.0, 1.0])) == [2, 1]
    for wrong in ([2, 1.5], 3, "21", {2: 1}, [float("inf")], None):
        with pytest.raises(WrongAnswer, match="expected a list of whole numbers; got"):
            whole_numbers(wrong)
    for value in (float("nan"), "1", None, [1], np.array(0.5)):
        with pytest.raises(WrongAnswer, match="expected a number; got"):
            number(value)
    assert said(1 / 3) == "0.333333" and said(np.zeros(2)) == "[0, 0]"
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


def moves_the_wrong_block(schedule: Any, rows: int) -> None:
    pads_for_all(schedule, rows)
    schedule.compute_at("y_pad", schedule.get_loops("y")[0])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (moves_the_wrong_block, "it raises ScheduleError in compute_at: The block y_pad is an output block."),
        (lambda s, rows: s.get_loops("z"), "it raises ScheduleError in get_block: Cannot find a block with"),
        (lambda s, rows: s.pad_einsum("y", [rows]), "it raises ScheduleError in pad_einsum: The padding for"),
        (lambda s, rows: s.split("y", [None, rows]), "it raises TypeError: In "),
    ],
)
def test_wrong_call_of_tvm_gives_one_sentence(wrong: Answer, sentence: str) -> None:
    text = puzzles.LOCAL_PADDING.check(wrong).text
    assert sentence in text
    assert "\n" not in text and len(text) < 260


# --- package and notebooks -----------------------------------------------------------------------


def test_importing_the_puzzles_loads_nothing_heavy() -> None:
    heavy = {"tvm", "plotly", "ipywidgets", "pandas"}
    script = f"import dietlab.lab.puzzles, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_both_notebooks_have_the_same_puzzles_in_order() -> None:
    for name in ("puzzles", "solutions"):
        cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
        headings = [cell.source.splitlines()[0] for cell in cells if cell.source.startswith("## ")]
        titles = [f"## {number} {puzzle.title}" for number, puzzle in enumerate(puzzles.PUZZLES, 1)]
        assert headings == [*titles, "## Summary"]

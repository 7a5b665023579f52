"""Puzzle 14: local padding, as a schedule of TensorIR.

TVM is imported when an answer is checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Answer, Puzzle
from dietlab.lower.compiler import tvm_module

COLS, DEPTH = 24, 16
LENGTH, ROWS = 43, 8
"""The length and the tile height of the picture: no even height divides the length."""
CHECKS = ("where", "if_then_else", "Select")
"""The names of a bound check in a printed program."""
LARGEST_ERROR = 1e-4
"""The largest error that an output may have: sums of 16 products of standard normal float32 values have far
smaller errors."""


def dense_schedule() -> Any:
    """Returns a fresh ``tvm.s_tir.Schedule`` of ``y[m, 24] = x[m, 16] @ w[24, 16].T`` with a dynamic ``m``.

    ``print(dense_schedule().mod.script())`` shows it: one block, ``y``, below three loops.

    Raises:
        MissingDependencyError: without TVM.
    """
    from dietlab.lab.loops.programs import plain

    return plain(None, COLS, DEPTH)


def _run(answer: Answer, given: Given) -> Any:
    """Returns a fresh schedule after an answer changed it."""
    schedule = dense_schedule()
    answer(schedule, given["rows"])
    return schedule


def _reference(schedule: Any, rows: int) -> None:
    schedule.pad_einsum("y", [rows, 1, 1])
    tile, _ = schedule.split(schedule.get_loops("y")[0], [None, rows])
    schedule.compute_at("x_pad", tile)
    schedule.reverse_compute_at("y_pad", tile)


def _fault(given: Given, schedule: Any, expected: Any) -> str:
    rows = given["rows"]
    return _wrong_form(schedule, rows) or _wrong_result(schedule, rows)


def _wrong_form(schedule: Any, rows: int) -> str:
    """Returns in words what the program lacks to be local padding; empty if it lacks nothing."""
    blocks = list(_blocks(ast.parse(schedule.mod["main"].script()), (), 0))
    computing = [block for block in blocks if block.reduces]
    if not computing:
        return "expected a block that adds up products, found none"
    tiles, steps = -(-LENGTH // rows), _outermost_steps(schedule, computing[0].name)
    if steps != tiles:
        return f"for m={LENGTH} the outermost loop makes {steps} steps, expected {tiles} tiles of {rows} rows"
    checked = [block.name for block in computing if block.checks]
    if checked:
        return f"the multiply-adds in block {checked[0]} still test bounds, expected the copy to do that"
    outside = [block.name for block in blocks if block.loops[:1] != computing[0].loops[:1]]
    if outside:
        return f"block {outside[0]} runs outside of the loop over tiles, expected it inside: local"
    return ""


def _outermost_steps(schedule: Any, block: str, length: int = LENGTH) -> int:
    """Returns the number of steps of the outermost loop around a block for ``m = length``."""
    tvm = tvm_module()
    m = schedule.mod["main"].params[0].shape[0]
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(m, tvm.tirx.IntImm("int64", length))
    return int(analyzer.simplify(schedule.get(schedule.get_loops(block)[0]).extent))


def _wrong_result(schedule: Any, rows: int) -> str:
    """Returns the place where the compiled program differs from NumPy; empty if none."""
    tvm = tvm_module()
    run = tvm.compile(schedule.mod, target=tvm.target.Target({"kind": "llvm"}))["main"]
    for length in sorted({1, max(1, rows - 1), rows, rows + 1, LENGTH}):
        random = np.random.default_rng(length)
        x = random.standard_normal((length, DEPTH), np.float32)
        w = random.standard_normal((COLS, DEPTH), np.float32)
        y = tvm.runtime.tensor(np.full((length, COLS), np.nan, np.float32))
        run(tvm.runtime.tensor(x), tvm.runtime.tensor(w), y)
        error = float(np.abs(y.numpy() - x.astype(np.float64) @ w.T).max())
        if not error <= LARGEST_ERROR:
            return f"for m={length} the result is off by {error:.2g}, expected that of NumPy"
    return ""


@dataclass(frozen=True)
class _Block:
    """A block of a printed program: the loops around it, and how many bound checks it makes."""

    name: str
    reduces: bool
    checks: int
    loops: tuple[ast.For, ...]


def _blocks(node: ast.AST, loops: tuple[ast.For, ...], checks: int) -> Iterator[_Block]:
    """Yields the blocks of a printed program below ``loops`` and ``checks`` conditions."""
    if isinstance(node, ast.With) and (name := _block_name(node)) not in ("", "root"):
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        names = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute)]
        mine = sum(name in CHECKS for name in names)
        mine += sum(isinstance(n, (ast.If, ast.IfExp)) for n in ast.walk(node))
        yield _Block(name, any(map(_is_reduction, calls)), checks + mine, loops)
        return
    if isinstance(node, ast.For):
        loops = (*loops, node)
    if isinstance(node, ast.If):
        checks += 1
    for child in ast.iter_child_nodes(node):
        yield from _blocks(child, loops, checks)


def _block_name(node: ast.With) -> str:
    """Returns ``y`` for ``with T.sblock("y")``; empty for other statements."""
    call = node.items[0].context_expr
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
        return ""
    return str(ast.literal_eval(call.args[0])) if call.func.attr == "sblock" else ""


def _is_reduction(call: ast.Call) -> bool:
    """Returns whether a call declares a reduction axis: ``reduce(...)`` or ``remap("SSR", ...)``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    kinds = call.args[0] if call.func.attr == "remap" and call.args else None
    return call.func.attr == "reduce" or (isinstance(kinds, ast.Constant) and "R" in str(kinds.value))


def _points(given: Given, schedule: Any) -> list[Point]:
    """Returns the steps of the outermost loop around the multiply-adds by the number of rows."""
    blocks = _blocks(ast.parse(schedule.mod["main"].script()), (), 0)
    name = next(block.name for block in blocks if block.reduces)
    return [(length, "", _outermost_steps(schedule, name, length)) for length in range(1, LENGTH + 1)]


def _steps(given: Given, schedule: Any) -> int:
    """Returns the number of instructions of a schedule that pads locally; raises ``ValueError`` for any other
    schedule, which gets no score.
    """
    count = len(schedule.trace.insts)  # first: looking at its form gets loops, which is traced, too
    if wrong := _wrong_form(schedule, given["rows"]):
        raise ValueError(wrong)
    return count


LOCAL_PADDING = Puzzle(
    name="pad_locally",
    hints=(
        '`pad_einsum("y", [rows, 1, 1])` pads the three loops of `y` to multiples; print the result.',
        '`get_loops("y")` has the three loops, and `split(loop, [None, rows])` makes two of the first.',
        "The new blocks are `x_pad` and `y_pad`: the copy moves under the loop over tiles by `compute_at`, "
        "the write-back by `reverse_compute_at`.",
    ),
    reference=_reference,
    arguments="rows",
    tried=lambda random: [(rows,) for rows in (4, 8, 14, random.randint(2, 13))],
    fault=_fault,
    shown=[(ROWS,)],
    picture=Picture(
        f"Tiles of {ROWS} rows in the scheduled program",
        "m (rows)",
        "steps of the outermost loop (count)",
        _points,
    ),
    praise="The test went from every multiply-add to one copy a tile, as in the paper.",
    run=_run,
    counts=("schedule steps", _steps),
)

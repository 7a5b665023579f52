"""The decision tree in a library, and which heights of its plans are compiled: the same on every
processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.space import Leaf, MicroKernel, Tree, heights, intervals


def needed_heights(
    kernels: Sequence[MicroKernel],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns, for each plan, the heights of its tiles over all shapes of ``low`` rows or more that the
    tree sends to it, or over those that ``only`` names for it."""
    if only is not None:
        return [
            tuple(sorted({height for rows in called if rows for height in heights(kernel, rows, rows)}))
            for kernel, called in zip(kernels, only, strict=True)
        ]
    needed: list[set[int]] = [set(heights(kernel, low) if every_plan else ()) for kernel in kernels]
    for number, first, last in intervals(tree, low):
        needed[number].update(heights(kernels[number], first, last))
    return [tuple(sorted(rows)) for rows in needed]


def choice(tree: Tree, rows: Any) -> Any:
    """Returns a decision tree as nested conditional expressions.

    Draws::

        Split("T", 16, Leaf(2), Leaf(0))   ->   if T <= 16 then 2 else 0
    """
    if isinstance(tree, Leaf):
        return tirx.IntImm("int64", tree.kernel)
    return tirx.if_then_else(
        rows <= tirx.IntImm("int64", tree.at_most), choice(tree.low, rows), choice(tree.high, rows)
    )


def plan_function(name: str, size: str, tree: Tree) -> Any:
    """Returns ``name(size) -> int``: the number of the plan that the tree chooses."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"global_symbol": name})
        T.Return(choice(tree, T.arg(size, T.int64())))
    return builder.get()

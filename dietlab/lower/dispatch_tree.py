"""The decision tree in a library, and which heights of its schemes are compiled: the same on every
processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.plans import Leaf, Tree, heights, intervals
from dietlab.space import Scheme


def needed_heights(
    schemes: Sequence[Scheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns, for each scheme, the heights of its tiles over all shapes of ``low`` rows or more that the
    tree sends to it, or over those that ``only`` names for it."""
    if only is not None:
        return [
            tuple(sorted({height for rows in called if rows for height in heights(scheme, rows, rows)}))
            for scheme, called in zip(schemes, only, strict=True)
        ]
    needed: list[set[int]] = [set(heights(scheme, low) if every_plan else ()) for scheme in schemes]
    for number, first, last in intervals(tree, low):
        needed[number].update(heights(schemes[number], first, last))
    return [tuple(sorted(rows)) for rows in needed]


def choice(tree: Tree, rows: Any) -> Any:
    """Returns a decision tree as nested conditional expressions.

    Draws::

        Split("T", 16, Leaf(2), Leaf(0))   ->   if T <= 16 then 2 else 0
    """
    if isinstance(tree, Leaf):
        return tirx.IntImm("int64", tree.scheme)
    return tirx.if_then_else(
        rows <= tirx.IntImm("int64", tree.at_most), choice(tree.low, rows), choice(tree.high, rows)
    )


def plan_function(name: str, size: str, tree: Tree) -> Any:
    """Returns ``name(size) -> int``: the number of the scheme that the tree chooses."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"global_symbol": name})
        T.Return(choice(tree, T.arg(size, T.int64())))
    return builder.get()

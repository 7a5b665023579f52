"""The decision tree in a library, and the heights of its schemes to compile, for every processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Contraction
from dietlab.scheme import Leaf, Scheme, Tree, boxes, heights


def needed_heights(
    schemes: Sequence[Scheme],
    tree: Tree,
    rows: str,
    contraction: Contraction | None = None,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
    low: int = 1,
) -> list[tuple[int, ...]]:
    """Returns, for each scheme, the heights of its tiles. They cover all shapes of ``low`` rows or more that
    the tree sends to the scheme (``every_plan``: all shapes) or, if given, its row counts in ``only``.
    ``rows`` is the name of the rows' dimension in the tree; ``contraction`` is the product whose rows they
    are (None: one whose rows are a dimension)."""
    if only is not None:
        return [
            tuple(
                sorted({height for extent in called if extent for height in heights(scheme, extent, extent)})
            )
            for scheme, called in zip(schemes, only, strict=True)
        ]
    needed: list[set[int]] = [set(heights(scheme, low) if every_plan else ()) for scheme in schemes]
    for number, box in boxes(tree, {rows: (low, None)}):
        lines = schemes[number].kernel.lines
        least, most = box[rows] if contraction is None else contraction.range_of_rows(box, lines=lines)
        if most is None or least <= most:
            needed[number].update(heights(schemes[number], least, most))
    return [tuple(sorted(found)) for found in needed]


def choice(tree: Tree, sizes: Mapping[str, Any]) -> Any:
    """Returns a decision tree as nested conditional expressions.

    For example::

        Split("T", 16, Leaf(2), Leaf(0))   ->   if T <= 16 then 2 else 0
    """
    if isinstance(tree, Leaf):
        return tirx.IntImm("int64", tree.scheme)
    return tirx.if_then_else(
        sizes[tree.dim] <= tirx.IntImm("int64", tree.at_most),
        choice(tree.low, sizes),
        choice(tree.high, sizes),
    )


def plan_function(name: str, contraction: Contraction, tree: Tree) -> Any:
    """Returns ``name(*dims) -> int``: the number of the scheme that the tree chooses."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"global_symbol": name})
        T.Return(choice(tree, contraction.derived({dim: T.arg(dim, T.int64()) for dim in contraction.dims})))
    return builder.get()

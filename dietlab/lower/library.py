"""Portfolio + decision tree -> one module: an operator that serves every shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.geometry import Geometry
from dietlab.lower.micro_kernel import tile_function, tile_name
from dietlab.lower.region import Operands, edge_scratch, edge_variants, region
from dietlab.space import Leaf, MicroKernel, Tree

ARRAY_ALIGNMENT_BYTES = 4
"""What the caller's arrays are aligned to at least: any float32 array is accepted."""

PACKED_ALIGNMENT_BYTES = 64


def library_module(geometry: Geometry, kernels: Sequence[MicroKernel], tree: Tree) -> Any:
    """The module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``T`` is the first extent of ``x`` and ``y``):

    - ``run(x[T, K], packed, y[T, N])``: computes ``y``; nested ``if``s choose the micro-kernel.
    - ``run_plan(x, packed, y, plan)``: the same with the micro-kernel chosen by the caller.
    - ``plan(T) -> int``: the number of the micro-kernel that ``run`` chooses for ``T`` rows.
    - ``idle(T) -> 0``: does nothing; what a call costs, to be taken off when ``plan`` is timed.
    - ``pack(w[N, K], packed)`` or, with a bias, ``pack(w, bias[N], packed)``.
    """
    functions = {
        tile_name(kernel, checked=checked): tile_function(kernel, geometry, checked=checked)
        for kernel in kernels
        for checked in edge_variants(kernel)
    }
    tiles = {name: tvm.ir.GlobalVar(name) for name in functions}
    module = {tiles[name]: function for name, function in functions.items()}
    return tvm.IRModule(
        {
            **module,
            "run": _run(geometry, kernels, tiles, tree),
            "run_plan": _run(geometry, kernels, tiles, None),
            "plan": _plan("plan", geometry, tree),
            "idle": _plan("idle", geometry, Leaf(0)),
            "pack": _pack(geometry),
        }
    )


def choice(tree: Tree, rows: Any) -> Any:
    """A decision tree as nested conditional expressions.

    Draws::

        Split("T", 16, Leaf(2), Leaf(0))   ->   if T <= 16 then 2 else 0
    """
    if isinstance(tree, Leaf):
        return tirx.IntImm("int64", tree.kernel)
    return tirx.if_then_else(
        rows <= tirx.IntImm("int64", tree.at_most), choice(tree.low, rows), choice(tree.high, rows)
    )


def _run(geometry: Geometry, kernels: Sequence[MicroKernel], tiles: dict[str, Any], tree: Tree | None) -> Any:
    """The entry function; without a tree the plan is its fourth argument."""
    name = "run" if tree is not None else "run_plan"
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, "global_symbol": name})
        handles = [T.arg(argument, T.handle()) for argument in ("x", "packed", "y")]
        plan = T.arg("plan", T.int64()) if tree is None else None
        rows = tirx.Var(geometry.rows, "int64")
        x = _array("x", handles[0], (rows, geometry.depth))
        packed = _array("packed", handles[1], geometry.packed_shape, PACKED_ALIGNMENT_BYTES)
        y = _array("y", handles[2], (rows, geometry.cols))
        operands = Operands(x, packed, y, rows, edge_scratch(kernels, geometry))
        chosen = plan if tree is None else T.bind(choice(tree, rows))
        for number, kernel in enumerate(kernels):
            # An empty call returns at once: it would start threads that find nothing to do.
            with T.If(tirx.And(rows > 0, chosen == number)), T.Then():
                region(kernel, geometry, operands, tiles)
    return builder.get()


def _array(name: str, handle: Any, shape: tuple[Any, ...], alignment: int = ARRAY_ALIGNMENT_BYTES) -> Any:
    """A float32 array argument; the name appears in the library's error messages."""
    return IRBuilder.name(name, T.match_buffer(handle, shape, align=alignment))


def _plan(name: str, geometry: Geometry, tree: Tree) -> Any:
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"global_symbol": name})
        rows = T.arg(geometry.rows, T.int64())
        T.Return(choice(tree, rows))
    return builder.get()


def _pack(geometry: Geometry) -> Any:
    """Lays the constant operand out in panels; see :class:`Geometry`."""
    lanes, below = geometry.lanes, int(geometry.has_bias)
    zero = tirx.FloatImm("float32", 0)
    with IRBuilder() as builder, T.prim_func():
        T.func_name("pack")
        T.func_attr({"tirx.noalias": True, "global_symbol": "pack"})
        w_handle = T.arg("w", T.handle())
        bias_handle = T.arg("bias", T.handle()) if geometry.has_bias else None
        packed_handle = T.arg("packed", T.handle())
        w = _array("w", w_handle, (geometry.cols, geometry.depth))
        bias = _array("bias", bias_handle, (geometry.cols,)) if geometry.has_bias else None
        packed = _array("packed", packed_handle, geometry.packed_shape, PACKED_ALIGNMENT_BYTES)
        with T.serial(0, geometry.panels) as p:
            if bias is not None:
                with T.serial(0, lanes) as v:
                    column = p * lanes + v
                    inside = column < geometry.cols
                    T.buffer_store(packed, T.if_then_else(inside, bias[column], zero), [p, 0, v])
            # The lanes go innermost: whole vectors are written, and sixteen rows read side by side.
            with T.serial(0, geometry.depth) as k, T.serial(0, lanes) as v:
                column = p * lanes + v
                value = T.if_then_else(column < geometry.cols, w[column, k], zero)
                T.buffer_store(packed, value, [p, k + below, v])
    return builder.get()

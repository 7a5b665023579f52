"""Portfolio + decision tree -> one module: an operator that serves every shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cpu.dot_products import dot_products_function
from dietlab.lower.cpu.geometry import Geometry
from dietlab.lower.cpu.loop_nest import Operands
from dietlab.lower.cpu.micro_kernel import Fit, tile_function, tile_name
from dietlab.lower.cpu.panels import PANEL_FUNCTION, panel_function
from dietlab.lower.cpu.region import call, region, scratch_floats, tiles_of
from dietlab.lower.cpu.specialisation import Piece, pieces
from dietlab.lower.cpu.tir import int64, stack_buffer, switch
from dietlab.lower.dispatch_tree import choice, plan_function
from dietlab.plans import Leaf, Tree
from dietlab.space import CpuMicroKernel, CpuScheme

ARRAY_ALIGNMENT_BYTES = 4
"""The least alignment of the caller's arrays, in bytes: any float32 array is accepted."""

PACKED_ALIGNMENT_BYTES = 64


def library_module(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Returns the module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``T`` is the dynamic dimension; operands in the order of the workload's
    inputs, constant ones replaced by ``packed``):

    - ``run(x, w or packed, [bias], [residual], y)``: computes ``y``; nested ``if``s choose the plan.
    - ``run_plan(..., plan)``, with ``every_plan`` only: computes ``y`` by the plan that the caller chooses.
    - ``plan(T) -> int``: the number of the plan that ``run`` chooses.
    - ``idle(T) -> 0``: does nothing; what a call costs, to be taken off when ``plan`` is timed.
    - ``pack(w[N, K], packed)`` or, with a bias, ``pack(w, bias[N], packed)``, if weights are constant.

    Args:
        schemes: those that the tree names, by number.
        tree: chooses among them; only tiles that some shape needs are compiled.
        every_plan: whether any plan can be run on any shape.
        only: for each plan the row counts that it will be called with (default: any). For measuring only:
            results for others are undefined.
    """
    chosen = pieces(geometry, schemes, tree, only)
    any_plan = pieces(geometry, schemes, None, only) if every_plan else ()
    functions = {
        tile_name(tile, fit): _tile_function(tile, geometry, fit)
        for piece in (*chosen, *any_plan)
        for tile, fit in tiles_of(piece.scheme, piece.heights, piece.widths)
    }
    if geometry.weights != "direct":
        functions[PANEL_FUNCTION] = panel_function(geometry)
    names = {name: tvm.ir.GlobalVar(name) for name in functions}
    entries = {
        "run": _run(geometry, chosen, names, tree),
        "plan": plan_function("plan", geometry.size, tree),
        "idle": plan_function("idle", geometry.size, Leaf(0)),
    }
    if every_plan:
        entries["run_plan"] = _run(geometry, any_plan, names, None)
    if geometry.weights == "packed":
        entries["pack"] = _pack(geometry, names)
    return tvm.IRModule({**{names[name]: function for name, function in functions.items()}, **entries})


def _tile_function(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> Any:
    if kernel.along == "depth":
        return dot_products_function(kernel, geometry)
    return tile_function(kernel, geometry, fit)


def _run(geometry: Geometry, served: Sequence[Piece], names: dict[str, Any], tree: Tree | None) -> Any:
    """Returns the entry function; without a tree the plan is its last argument.

    Draws, where pieces for single lengths are among those ``served``::

        if T > 0:
          if T <= 32: nested ifs find T:     piece(T), in which T is a number
          else: nested ifs find the plan:    piece(plan)
    """
    name = "run" if tree is not None else "run_plan"
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, "global_symbol": name})
        size = tirx.Var(geometry.size, "int64")
        shapes = operand_shapes(geometry, size)
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        plan = T.arg("plan", T.int64()) if tree is None else None
        arrays = {operand: _array(operand, handles[operand], shapes[operand]) for operand in shapes}
        floats = scratch_floats([piece.scheme for piece in served], geometry) if geometry.cores == 1 else 0
        operands = Operands(
            arrays["x"],
            arrays.get("packed", arrays.get("w")),
            arrays["y"],
            arrays.get("residual"),
            arrays.get("bias"),
            size,
            stack_buffer(floats) if floats else None,
        )

        def serve(length: int | None) -> None:
            fitting = [piece for piece in served if piece.length == length]
            here = operands if length is None else replace(operands, size=int64(length))
            if length is not None and tree is not None:
                _cover(geometry, here, names, *fitting)
                return
            number = plan if tree is None else T.bind(choice(tree, size))
            for piece in fitting:
                with T.If(number == piece.number), T.Then():
                    _cover(geometry, here, names, piece)

        single = sorted({piece.length for piece in served if piece.length is not None})
        # An empty call returns at once: it would start threads that find nothing to do. The test stands
        # around everything because the compiler moves divisions by a number of tiles up to it.
        with T.If(size > 0), T.Then():
            if not single:
                serve(None)
            else:
                with T.If(size <= single[-1]):
                    with T.Then():
                        switch(size, single, serve)
                    with T.Else():
                        serve(None)
    return builder.get()


def _cover(geometry: Geometry, operands: Operands, names: dict[str, Any], piece: Piece) -> None:
    region(piece.scheme, geometry, operands, names, piece.heights, piece.widths)


def operand_shapes(geometry: Geometry, size: Any) -> dict[str, tuple[Any, ...]]:
    """Returns the arrays of a call, in order; packed weights hold the bias too."""
    x, *others = geometry.operands(size).items()
    if geometry.weights == "packed":
        others = [("packed", geometry.packed_shape), *((n, s) for n, s in others if n not in ("w", "bias"))]
    return dict([x, *others])


def _array(name: str, handle: Any, shape: tuple[Any, ...]) -> Any:
    """Returns a float32 array argument; the name appears in the library's error messages."""
    alignment = PACKED_ALIGNMENT_BYTES if name == "packed" else ARRAY_ALIGNMENT_BYTES
    return IRBuilder.name(name, T.match_buffer(handle, shape, align=alignment))


def _pack(geometry: Geometry, names: dict[str, Any]) -> Any:
    """Lays the constant operand out in panels; see :class:`Geometry`."""
    cols, depth, lanes = geometry.cols, geometry.depth, geometry.lanes
    assert isinstance(cols, int) and isinstance(depth, int)
    with IRBuilder() as builder, T.prim_func():
        T.func_name("pack")
        T.func_attr({"tirx.noalias": True, "global_symbol": "pack"})
        shapes = {"w": (cols, depth), "bias": (cols,), "packed": geometry.packed_shape}
        if not geometry.epilogue.bias:
            del shapes["bias"]
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        arrays = {operand: _array(operand, handles[operand], shape) for operand, shape in shapes.items()}
        with T.serial(int64(0), int64(geometry.panels)) as p:
            arguments = [
                arrays["w"].access_ptr("r", offset=p * (lanes * depth)),
                arrays["packed"].access_ptr("w", offset=p * (geometry.panel_rows * lanes)),
                cols - p * lanes,
            ]
            if "bias" in arrays:
                arguments.append(arrays["bias"].access_ptr("r", offset=p * lanes))
            call(names[PANEL_FUNCTION], arguments)
    return builder.get()

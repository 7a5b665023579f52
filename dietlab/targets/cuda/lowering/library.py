"""Portfolio + decision tree -> one module: an operator on a GPU that serves every shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import isqrt, prod
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Sizes
from dietlab.lower.dispatch_tree import choice, needed_heights, plan_function
from dietlab.problem import require_dtype
from dietlab.scheme import Leaf, Scheme, Tree, scheme_with
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockGeometry
from dietlab.targets.cuda.lowering.launch import Call, launch_plan
from dietlab.targets.cuda.lowering.tensor_maps import describes
from dietlab.targets.cuda.lowering.tir import bound, int64, when
from dietlab.targets.cuda.space import COPY_BYTES
from dietlab.targets.cuda.unit import GROUPED

NARROW = Scheme(CudaMicroKernel(32, 64, 32, 2, 2, unit="mma"))
"""The scheme that serves 16-bit operands at any address, correctly but slowly. A library's own micro-kernels
may not serve every address."""


MOST_BLOCKS = 2**31 - 1
"""The most blocks of a grid along its first axis (CUDA C++ Programming Guide, technical specifications). Rows
are counted in 32 bits, too."""

MOST_PIXELS = 2**31 - 1
"""The most pixels of a convolution's input, zeros around it excluded: a thread counts them in 32 bits."""


def library_module(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Returns the module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``T`` is the dynamic dimension, and for a convolution stands for the number of images
    and each dimension of an image; operands in the order of the workload's inputs):

    - ``run(x, w, [bias], [residual], y)``: launches one kernel on the caller's stream; nested ``if``s on
      the host choose it. An empty call launches nothing. A call with more rows than a grid has blocks for
      (:data:`MOST_BLOCKS`) fails.
    - ``run_plan(..., plan)``, with ``every_plan`` only: computes ``y`` by the plan that the caller chooses.
    - ``plan(T) -> int``: the index of the plan that ``run`` chooses.
    - ``idle(T) -> 0``: does nothing; its time is subtracted when ``plan`` is timed.

    Args:
        schemes: the schemes that the tree names, by index.
        tree: the tree that chooses among the schemes. Only heights that some shape needs are compiled.
        every_plan: whether any plan can be run on any shape.
        only: for each plan the row counts that it will be called with (default: any). For measuring only:
            results for others are undefined.
    """
    heights = needed_heights(schemes, tree, geometry.rows, geometry, every_plan=every_plan, only=only)
    entries = {
        "run": _run(geometry, schemes, heights, tree, only),
        "plan": plan_function("plan", geometry, tree),
        "idle": plan_function("idle", geometry, Leaf(0)),
    }
    if every_plan:
        entries["run_plan"] = _run(geometry, schemes, heights, None, only)
    return tvm.IRModule(entries)


def _run(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    heights: Sequence[tuple[int, ...]],
    tree: Tree | None,
    only: Sequence[Sequence[int]] | None,
) -> Any:
    """Returns the entry function; without a tree the plan is its last argument.

    For example, with an operand whose rows are of dynamic length::

        if T > 0:
          if arrays begin at multiples of 16 bytes:
            if T % 4 == 0:                     # rows do, too
              if plan(T) == 0: launch 0, with wide copies ...
              if plan(T) == 1: launch 1, with wide copies ...
            else:
              if plan(T) == 0: launch 0 ...
          else:
            launch the first plan with narrow copies: any alignment is right, if not fast
    """
    name = "run" if tree is not None else "run_plan"
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, "global_symbol": name})
        sizes: Sizes = {dim: tirx.Var(dim, "int64") for dim in geometry.dims}
        shapes = geometry.operands(sizes)
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        plan = T.arg("plan", T.int64()) if tree is None else None
        arrays = {n: _array(n, handles[n], shapes[n], geometry.dtype) for n in shapes}
        flat = Arrays(*(_flat(arrays.get(n), geometry) for n in ("x", "w", "y", "bias", "residual")))
        sizes = _with_rows(geometry, sizes)
        size, most = sizes[geometry.rows], _most_rows(geometry, schemes)
        number = plan if tree is None else bound("plan", choice(tree, sizes))
        with T.Assert(size <= int64(most), f"a GPU's grid covers {most} rows at most", "ValueError"):
            pass
        serve = partial(_by_plan, number=number, schemes=schemes, heights=heights)
        with when(size > int64(0)):
            call = Call(geometry, flat, size, sizes)
            _by_alignment(call, schemes[0], partial(_by_multiple, only=only, serve=serve))
    return builder.get()


def _with_rows(geometry: BlockGeometry, sizes: Sizes) -> Sizes:
    """Returns the extents of a call with the number of its rows. Emits the check that a program can count the
    pixels of a convolution's input."""
    if geometry.patches is None:
        return sizes
    pixels = prod((sizes[dim] for dim in geometry.patches.dims), start=int64(1))
    message = f"a GPU's program counts {MOST_PIXELS} pixels at most"
    with T.Assert(pixels <= int64(MOST_PIXELS), message, "ValueError"):
        pass
    return {**sizes, geometry.rows: bound("rows", geometry.derived(sizes)[geometry.rows])}


def _most_rows(geometry: BlockGeometry, schemes: Sequence[CudaScheme]) -> int:
    """Returns the most rows for which every plan has blocks, whatever heights it splits them into."""
    found = [MOST_BLOCKS]
    for scheme in {*schemes, *(_narrow(scheme) for scheme in schemes)}:
        kernel = scheme.kernel
        blocks = MOST_BLOCKS // kernel.splits
        if isinstance(geometry.cols, int):
            found.append((blocks // -(-geometry.cols // kernel.cols) - 1) * kernel.granule)
        else:  # as many columns as rows
            found.append(isqrt(blocks * kernel.granule * kernel.cols) - max(kernel.granule, kernel.cols))
    return min(found)


def _by_alignment(call: Call, first: CudaScheme, serve: Callable[[Call], None]) -> None:
    """Serves arrays that begin at multiples of the widest copy by ``serve``, and others by the first plan
    with copies of single elements. If no copy is wider than that, ``serve`` serves all."""
    geometry = call.geometry
    wide = max(geometry.widths) > 1 or _widened(geometry) is not None
    if not wide or require_dtype(geometry.dtype).extension:  # see _array
        serve(call)
        return
    with T.If(_aligned(call.arrays)):
        with T.Then():
            serve(call)
        with T.Else():  # the code of one height serves every shape by itself
            launch_plan(replace(call, geometry=replace(geometry, aligned=False)), _narrow(first), ())


def _narrow(scheme: CudaScheme) -> CudaScheme:
    """Returns the scheme for copies of single elements: this one, or :data:`NARROW` in place of groups of
    warps, whose sums leave no registers for such copies."""
    if scheme.kernel.unit in GROUPED:
        return NARROW
    return scheme_with(scheme, edge="padded") if scheme.composed else scheme


def _widened(geometry: BlockGeometry) -> BlockGeometry | None:
    """Returns the geometry for dynamic extents that are multiples of the widest copy; None if no copy becomes
    wider."""
    found = replace(geometry, multiple=geometry.vector)
    return found if found.widths != geometry.widths else None


def _by_multiple(call: Call, only: Sequence[Sequence[int]] | None, serve: Callable[[Call], None]) -> None:
    """Serves row counts that are multiples of the widest copy with that copy, and others without it. With
    ``only``, omits the code that none of the row counts in ``only`` needs.
    """
    geometry, wide = call.geometry, _widened(call.geometry)
    multiples = {count % geometry.vector == 0 for counts in only or () for count in counts}
    if wide is None or multiples == {False}:
        serve(call)
    elif multiples == {True}:
        serve(replace(call, geometry=wide))
    else:
        with T.If(tirx.truncmod(call.size, int64(wide.multiple)) == int64(0)):
            with T.Then():
                serve(replace(call, geometry=wide))
            with T.Else():
                serve(call)


def _by_plan(
    call: Call, number: Any, schemes: Sequence[CudaScheme], heights: Sequence[tuple[int, ...]]
) -> None:
    """Serves a call by the plan with that index."""
    for plan, (scheme, needed) in enumerate(zip(schemes, heights, strict=True)):
        if needed:
            with when(number == int64(plan)):
                if scheme.kernel.unit == "tma" and not describes(call.geometry, scheme.kernel):
                    launch_plan(call, NARROW, ())
                else:
                    launch_plan(call, scheme, needed)


def _array(name: str, handle: Any, shape: tuple[Any, ...], dtype: str) -> Any:
    """Returns an array argument; error messages of the library contain its name. Arrays of bfloat16 must
    begin at a multiple of the widest copy, since TVM cannot test their pointers."""
    precision = require_dtype(dtype)
    align = COPY_BYTES if precision.extension else precision.itemsize
    return IRBuilder.name(name, T.match_buffer(handle, shape, dtype, align=align))


def _flat(array: Any | None, geometry: BlockGeometry) -> Any | None:
    """Returns the memory as one row of elements."""
    if array is None:
        return None
    total: Any = int64(1)
    for extent in array.shape:
        total = total * int64(extent)
    return T.decl_buffer((total,), geometry.dtype, data=array.data, align=geometry.itemsize)


def _aligned(arrays: Arrays) -> Any:
    """Returns whether all arrays begin at a multiple of the widest copy."""
    given = (arrays.x, arrays.w, arrays.y, arrays.bias, arrays.residual)
    places = [T.reinterpret("uint64", T.address_of(flat[int64(0)])) for flat in given if flat is not None]
    low = tirx.bitwise_and(reduce(tirx.bitwise_or, places), tirx.const(COPY_BYTES - 1, "uint64"))
    return low == tirx.const(0, "uint64")

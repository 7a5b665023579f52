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

from dietlab.lower.contraction import Extent, Sizes
from dietlab.lower.dispatch_tree import choice, needed_heights, plan_function
from dietlab.problem import require_dtype
from dietlab.scheme import Leaf, Scheme, Tree
from dietlab.targets.cuda.kernel import CudaMicroKernel, CudaScheme
from dietlab.targets.cuda.lowering.geometry import Arrays, BlockGeometry
from dietlab.targets.cuda.lowering.launch import Call, launch_plan
from dietlab.targets.cuda.lowering.tensor_maps import describes
from dietlab.targets.cuda.lowering.tir import bound, ceil_div, int64, when
from dietlab.targets.cuda.needs import COPY_BYTES, LONGEST_LINE
from dietlab.targets.cuda.space import MOST_BATCHES

NARROW = {
    4: Scheme(CudaMicroKernel(32, 64, 16, 8, 16)),
    2: Scheme(CudaMicroKernel(32, 64, 32, 2, 2, unit="mma")),
}
"""The scheme by the bytes of an element that serves operands at any address, correctly but slowly. Its copies
have one element. A library's own micro-kernels may not serve every address: copies of 16 bits go through
registers."""

MOST_BLOCKS = 2**31 - 1
"""The most blocks of a grid along its first axis (CUDA C++ Programming Guide, technical specifications). Rows
are counted in 32 bits, too."""

ARGUMENT_VALUE = 15
"""TVM's number of the field of an argument that holds its value (``kTVMFFIAnyUnionValue``)."""

MOST_PIXELS = 2**31 - 1
"""The most pixels of a convolution's input, zeros around it excluded: a thread counts them in 32 bits."""


def library_module(
    geometry: BlockGeometry,
    schemes: Sequence[CudaScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Sizes]] | None = None,
) -> Any:
    """Returns the module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``dims`` are the extents of the dynamic dimensions in the workload's order; for a
    convolution, the number of images and each dimension of an image; operands in the order of the workload's
    inputs):

    - ``run(x, w, [bias], [residual], y)``: launches one kernel on the caller's stream; nested ``if``s on
      the host choose it. An empty call launches nothing. A call with more blocks than a grid
      (:data:`MOST_BLOCKS`), or with a dynamic line longer than :data:`LONGEST_LINE`, fails.
    - ``run_plan(..., plan)``, with ``every_plan`` only: computes ``y`` by the plan that the caller chooses.
    - ``plan(*dims) -> int``: the index of the plan that ``run`` chooses.
    - ``idle(*dims) -> 0``: does nothing; its time is subtracted when ``plan`` is timed.

    Args:
        schemes: the schemes that the tree names, by index.
        tree: the tree that chooses among the schemes. Only heights that some shape needs are compiled.
        every_plan: whether any plan can be run on any shape.
        only: for each plan the sizes that it will be called with (default: any). For measuring only: results
            for others are undefined.
    """
    rows = None if only is None else [sorted({sizes[geometry.rows] for sizes in called}) for called in only]
    heights = needed_heights(schemes, tree, geometry.rows, geometry, every_plan=every_plan, only=rows)
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
    only: Sequence[Sequence[Sizes]] | None,
) -> Any:
    """Returns the entry function; without a tree the plan is its last argument.

    For example, with float32 operands of dynamic depth ``K``, and of attention's context, whose depth is the
    number of rows ``T``::

        if T > 0:                                         if T > 0:
          if arrays begin at multiples of 16 bytes          if arrays begin at multiples of 16 bytes:
              and K % 4 == 0:                                 if T % 4 == 0:
            if plan(T, K) == 0: launch 0                        if plan(T) == 0: launch 0, with wide copies
            if plan(T, K) == 1: launch 1                        if plan(T) == 1: launch 1, with wide copies
          else:                                               else:
            launch NARROW:                                      if plan(T) == 0: launch 0 ...
            all is right, if not fast                           if plan(T) == 1: launch 1 ...
                                                            else:
                                                              launch NARROW

    The widths of a model are multiples of 16 bytes but for rare ones. Lengths of sequences are any number.
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
        number = plan if tree is None else bound("plan", choice(tree, sizes))
        _require_countable(geometry, schemes, sizes)
        serve = partial(_by_plan, number=number, schemes=schemes, heights=heights)
        with when(reduce(tirx.And, [size > int64(0) for size in _none_if_zero(geometry, sizes)])):
            call = Call(geometry, flat, sizes)
            _by_alignment(call, _aligned(flat), only, partial(_by_multiple, only=only, serve=serve))
    return builder.get()


def _none_if_zero(geometry: BlockGeometry, sizes: Sizes) -> list[Any]:
    """Returns the dynamic extents of the output: it has no elements if one of them is 0."""
    names = dict.fromkeys((geometry.rows, geometry.cols, geometry.batch))
    return [sizes[name] for name in names if isinstance(name, str)]


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


def _require_countable(geometry: BlockGeometry, schemes: Sequence[CudaScheme], sizes: Sizes) -> None:
    """Emits the checks that a grid has blocks for a call, and that a program can count a tile's elements."""
    rows, cols = sizes[geometry.rows], geometry.cols
    kernels = [scheme.kernel for scheme in (*schemes, _narrow(geometry))]

    def require(condition: Any, message: str) -> None:
        with T.Assert(condition, message, "ValueError"):
            pass

    if isinstance(cols, int) or cols == geometry.rows:
        most = min(_most_rows(cols, kernel) for kernel in kernels)
        require(rows <= int64(most), f"a GPU's grid covers {most} rows at most")
    else:
        granule, narrowest, sharing = (
            pick(getattr(kernel, name) for kernel in kernels)
            for pick, name in ((min, "granule"), (min, "cols"), (max, "sharing"))
        )
        tiles = (tirx.truncdiv(rows, int64(granule)) + 1) * (ceil_div(sizes[cols], narrowest) * sharing)
        require(tiles <= int64(MOST_BLOCKS), f"a GPU's grid has {MOST_BLOCKS} blocks at most")
    for name in dict.fromkeys((geometry.cols, geometry.depth)):
        if isinstance(name, str) and name != geometry.rows:
            require(sizes[name] <= int64(LONGEST_LINE), f"a line has {LONGEST_LINE} elements at most")
    if isinstance(geometry.batch, str):
        most = MOST_BATCHES
        require(sizes[geometry.batch] <= int64(most), f"a GPU's grid has {most} products at most")


def _most_rows(cols: Extent, kernel: CudaMicroKernel) -> int:
    """Returns the most rows for which a plan has blocks, whatever heights it splits them into."""
    blocks = MOST_BLOCKS // kernel.sharing
    if isinstance(cols, int):
        most = (blocks // -(-cols // kernel.cols) - 1) * kernel.granule
    else:  # as many columns as rows
        most = isqrt(blocks * kernel.granule * kernel.cols) - max(kernel.granule, kernel.cols)
    return min(most, MOST_BLOCKS)


def _by_alignment(
    call: Call, aligned: Any, only: Sequence[Sequence[Sizes]] | None, serve: Callable[[Call], None]
) -> None:
    """Serves arrays that begin at multiples of the widest copy, and whose lines do, by ``serve``, and others
    by :data:`NARROW`. Lines as long as there are rows are left to ``serve``. With ``only``, all arrays begin
    there."""
    geometry = call.geometry
    lines = frozenset(geometry.lines) - {geometry.rows}
    served = replace(call, geometry=replace(geometry, whole=lines))
    tests = [_is_multiple(call, name) for name in sorted(lines) if not _known_whole(geometry, name, only)]
    wide = max(served.geometry.x_width, served.geometry.w_width, served.geometry.y_width) > 1
    varies = {geometry.cols, *geometry.lines} & set(geometry.dims)
    if only is None and (wide or varies):
        tests.insert(0, aligned)
    if not tests:
        serve(served)
        return
    with T.If(reduce(tirx.And, tests)):
        with T.Then():
            serve(served)
        with T.Else():
            _serve_narrow(call)


def _serve_narrow(call: Call) -> None:
    # The code of one height serves every shape by itself.
    launch_plan(replace(call, geometry=replace(call.geometry, aligned=False)), _narrow(call.geometry), ())


def _narrow(geometry: BlockGeometry) -> CudaScheme:
    return NARROW[geometry.itemsize]


def _is_multiple(call: Call, name: str) -> Any:
    """Returns whether a dynamic extent is a multiple of the widest copy, and not 0 (no descriptor is)."""
    size = call.sizes[name]
    multiple = tirx.truncmod(size, int64(call.geometry.vector)) == int64(0)
    return multiple if name == call.geometry.rows else tirx.And(size > int64(0), multiple)


def _known_whole(geometry: BlockGeometry, name: str, only: Sequence[Sequence[Sizes]] | None) -> bool:
    """Returns whether an extent is a multiple of the widest copy in all calls that a library is made for."""
    return only is not None and all(sizes[name] % geometry.vector == 0 for called in only for sizes in called)


def _by_multiple(call: Call, only: Sequence[Sequence[Sizes]] | None, serve: Callable[[Call], None]) -> None:
    """Serves lines as long as there are rows with the widest copy if they are multiples of it, and without it
    otherwise. With ``only``, omits the code that none of its calls needs.
    """
    geometry, rows = call.geometry, call.geometry.rows
    if rows not in geometry.lines:
        serve(call)
        return
    wide = replace(call, geometry=replace(geometry, whole=geometry.whole | {rows}))
    multiples = {sizes[rows] % geometry.vector == 0 for called in only or () for sizes in called}
    if multiples == {True}:
        serve(wide)
    elif multiples == {False}:
        serve(call)
    else:
        with T.If(_is_multiple(call, rows)):
            with T.Then():
                serve(wide)
            with T.Else():
                serve(call)


def _by_plan(
    call: Call, number: Any, schemes: Sequence[CudaScheme], heights: Sequence[tuple[int, ...]]
) -> None:
    """Serves a call by the plan with that index."""
    for plan, (scheme, needed) in enumerate(zip(schemes, heights, strict=True)):
        if needed:
            with when(number == int64(plan)):
                if scheme.kernel.pieces.producers and not describes(call.geometry, scheme.kernel):
                    launch_plan(call, _narrow(call.geometry), ())
                else:
                    launch_plan(call, scheme, needed)


def _array(name: str, handle: Any, shape: tuple[Any, ...], dtype: str) -> Any:
    """Returns an array argument; error messages of the library contain its name."""
    align = require_dtype(dtype).itemsize
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
    """Returns whether all arrays begin at a multiple of the widest copy.

    The pass that replaces bfloat16 fails on a pointer that is cast to a number, so each pointer is stored in
    an argument of TVM's and read as a number.
    """
    given = (arrays.x, arrays.w, arrays.y, arrays.bias, arrays.residual)
    held = bound("pointers", T.tvm_stack_alloca("tvm_ffi_any", len(given)))
    places = []
    for number, flat in enumerate(given):
        if flat is not None:
            T.evaluate(tirx.tvm_struct_set(held, number, ARGUMENT_VALUE, flat.data))
            places.append(tirx.tvm_struct_get(held, number, ARGUMENT_VALUE, "int64"))
    return tirx.bitwise_and(reduce(tirx.bitwise_or, places), int64(COPY_BYTES - 1)) == int64(0)

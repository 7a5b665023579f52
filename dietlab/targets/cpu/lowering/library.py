"""Portfolio + decision tree -> one module: an operator that serves every shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Sizes
from dietlab.lower.dispatch_tree import choice, plan_function
from dietlab.problem import require_dtype
from dietlab.scheme import Leaf, Tree, restricted
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.lowering.channelwise import channel_function, channel_name
from dietlab.targets.cpu.lowering.dot_products import dot_products_function
from dietlab.targets.cpu.lowering.geometry import HEADER_FLOATS, Geometry
from dietlab.targets.cpu.lowering.line_tile import line_function
from dietlab.targets.cpu.lowering.loop_nest import Operands, Tiling, call, groups
from dietlab.targets.cpu.lowering.matrix_tile import matrix_tile_function, permitted
from dietlab.targets.cpu.lowering.micro_kernel import Fit, tile_function, tile_name
from dietlab.targets.cpu.lowering.panels import PANEL_FUNCTION, panel_function, word_panel_function
from dietlab.targets.cpu.lowering.patches import patches_function, patches_name
from dietlab.targets.cpu.lowering.region import region, tiles_of
from dietlab.targets.cpu.lowering.scratch import scratch_floats, stage_function, stage_name
from dietlab.targets.cpu.lowering.specialisation import Piece, pieces
from dietlab.targets.cpu.lowering.tir import either, function, int64, stack_buffer, stored_as, switch, when
from dietlab.targets.cpu.units import LINE_BYTES, UNITS, CpuUnit

FOREIGN_WEIGHTS = "packed weights are of another layer, library or version: pack them with this library"


def library_module(
    geometry: Geometry,
    schemes: Sequence[CpuScheme],
    tree: Tree,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Sizes]] | None = None,
) -> Any:
    """Returns the module of one operator; all its functions take and return what DLPack describes.

    Exported functions (``T, ...`` are the dynamic dimensions; operands in the order of the workload's
    inputs, constant ones replaced by ``packed``):

    - ``run(x, w or packed, [bias], [residual], y)``: computes ``y``; nested ``if``s choose the scheme.
    - ``run_plan(..., plan)``, with ``every_plan`` only: computes ``y`` by the scheme that the caller chooses.
    - ``plan(T, ...) -> int``: the index of the scheme that ``run`` chooses.
    - ``idle(T, ...) -> 0``: does nothing; its time is subtracted when ``plan`` is timed.

    :func:`packing_module`, which the library links too, packs constant weights.

    Args:
        schemes: the schemes that the tree names, by index.
        tree: the decision tree that chooses among them; only tiles that some shape needs are compiled.
        every_plan: whether any plan can be run on any shape.
        only: for each scheme the extents that it will be called with (default: any). For measuring only:
            results for others are undefined.
    """
    chosen = pieces(geometry, schemes, tree, only)
    any_plan = pieces(geometry, schemes, None, only) if every_plan else ()
    functions = {
        tile_name(tile, fit): function_of_tile(tile, geometry, fit)
        for piece in (*chosen, *any_plan)
        for tile, fit in tiles_of(piece.scheme, piece.heights, piece.widths)
    }
    if geometry.channelwise:
        pixels = {replace(piece.scheme.kernel, rows=1) for piece in (*chosen, *any_plan)}
        functions |= {
            channel_name(pixel, border=True): channel_function(pixel, geometry, border=True)
            for pixel in sorted(pixels)
        }
    if geometry.weights == "transposed":
        functions[PANEL_FUNCTION] = panel_function(geometry)
    copying = {p.scheme.kernel.unit for p in (*chosen, *any_plan) if not p.scheme.kernel.lines}
    for unit in sorted(copying):
        if geometry.gathers:
            functions[patches_name(unit)] = patches_function(unit, geometry)
        elif UNITS[unit].staged_words:
            functions[stage_name(unit)] = stage_function(unit, geometry)
    names = {name: tvm.ir.GlobalVar(name) for name in functions}
    entries = {
        "run": _run(geometry, chosen, names, tree),
        "plan": plan_function("plan", geometry, tree),
        "idle": plan_function("idle", geometry, Leaf(0)),
    }
    if every_plan:
        entries["run_plan"] = _run(geometry, any_plan, names, None)
    return tvm.IRModule({**{names[name]: function for name, function in functions.items()}, **entries})


def packing_module(geometry: Geometry) -> Any:
    """Returns the module that packs constant weights, the same for all schemes with one layout:

    - ``pack(w[N, K], [scale[N]], [bias[N]], packed)``.
    - ``packed_floats(N, K) -> int``: the number of elements of ``packed``, which are float32 whatever they
      hold.
    """
    panel = word_panel_function(geometry) if geometry.per_step > 1 else panel_function(geometry)
    name = tvm.ir.GlobalVar(PANEL_FUNCTION)
    entries = {"pack": _pack(geometry, name), "packed_floats": _packed_floats(geometry)}
    return tvm.IRModule({name: panel, **entries})


def function_of_tile(kernel: CpuMicroKernel, geometry: Geometry, fit: Fit) -> Any:
    """Returns the function of one tile, by the kind of its micro-kernel."""
    if geometry.channelwise:
        return channel_function(kernel, geometry)
    if kernel.lines:
        return line_function(kernel, geometry)
    if kernel.facts.matrix:
        return matrix_tile_function(kernel, geometry)
    if kernel.along == "depth":
        return dot_products_function(kernel, geometry)
    return tile_function(kernel, geometry, fit)


def _run(geometry: Geometry, served: Sequence[Piece], names: dict[str, Any], tree: Tree | None) -> Any:
    """Returns the entry function; without a tree its last argument is the plan.

    For example, where pieces for single lengths are among those ``served``::

        if T > 0:
          if T <= 32: nested ifs find T:     piece(T), in which T is a number
          else: nested ifs find the plan:    piece(plan)
    """
    with function("run" if tree is not None else "run_plan", exported=True) as builder:
        sizes = {dim: tirx.Var(dim, "int64") for dim in geometry.dims}
        shapes = operand_shapes(geometry, sizes)
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        plan = T.arg("plan", T.int64()) if tree is None else None
        arrays = _arrays(geometry, handles, shapes)
        derived = geometry.derived(sizes).items()
        sizes = {name: extent if name in sizes else T.bind(extent) for name, extent in derived}
        weights = arrays.get("packed", arrays.get("w"))
        residual, bias = arrays.get("residual"), arrays.get("bias")
        scratch = _scratch(geometry, served)
        operands = Operands(arrays["x"], weights, arrays["y"], residual, bias, sizes, scratch)

        def serve(piece: Piece, sizes: Sizes) -> None:
            here = replace(operands, sizes=sizes)
            region(Tiling(piece.scheme, geometry, here, names, piece.heights, piece.widths))

        units = {piece.scheme.kernel.unit for piece in served}
        with _guarded(geometry, operands, units):
            choose = partial(_by_plan, geometry, served, tree=tree, plan=plan, serve=serve)
            _by_length(geometry, served, sizes, choose)
    return builder.get()


def _scratch(geometry: Geometry, served: Sequence[Piece]) -> Any | None:
    """Returns one core's scratch for all pieces; None if regions allocate their own: one for each core, or
    one whose size depends on the call."""
    if geometry.cores > 1 or not isinstance(geometry.depth, int):
        return None
    floats = scratch_floats([piece.scheme for piece in served], geometry, geometry.depth)
    return stack_buffer(floats) if floats else None


@contextmanager
def _guarded(geometry: Geometry, operands: Operands, units: Iterable[CpuUnit]) -> Iterator[None]:
    """Emits what is inside behind three tests of a call: it has an output, the system permits its units, and
    its packed weights fit.

    An empty call returns at once: it would start threads that find nothing to do. That test stands around
    everything because the compiler moves divisions by a number of tiles up to it.
    """
    sizes = operands.sizes
    outer = (geometry.batch, geometry.rows, geometry.cols)
    positive = [sizes[dim] > 0 for dim in dict.fromkeys(outer) if isinstance(dim, str)]
    computes = positive[0] if len(positive) == 1 else tirx.all(*positive)
    with when(computes), permitted(geometry, units):
        if geometry.weights == "packed":
            _require_tag(geometry, operands.w, sizes)
        yield


def _require_tag(geometry: Geometry, packed: Any, sizes: Sizes) -> None:
    """Refuses weights that are not of this layer, layout and processor."""
    cols, depth = (geometry.value(extent, sizes) for extent in (geometry.cols, geometry.elements))
    words = [
        tirx.reinterpret("int32", packed[int64(number)]) == word
        for number, word in enumerate(geometry.tag(cols, depth))
    ]
    enough = int64(packed.shape[0]) >= int64(geometry.packed_floats(cols, depth))
    with T.Assert(tirx.all(enough, *words), FOREIGN_WEIGHTS, "ValueError"):
        pass


def _by_length(
    geometry: Geometry, served: Sequence[Piece], sizes: Sizes, choose: Callable[[int | None, Sizes], None]
) -> None:
    """Chooses by the rows of a call among the pieces for its length, or among those for all others."""
    rows = geometry.value(geometry.rows, sizes)
    lengths = sorted({piece.length for piece in served if piece.length is not None})

    def of(length: int | None) -> None:
        known = {} if length is None else {geometry.rows: int64(length)}
        choose(length, {**sizes, **known})

    if not lengths:
        of(None)
        return
    either(rows <= lengths[-1], lambda: switch(rows, lengths, of), lambda: of(None))


def _by_plan(
    geometry: Geometry,
    served: Sequence[Piece],
    length: int | None,
    sizes: Sizes,
    tree: Tree | None,
    plan: Any | None,
    serve: Callable[[Piece, Sizes], None],
) -> None:
    """Serves a call by a piece for its length: the tree's choice, or without a tree the plan's."""
    fitting = [piece for piece in served if piece.length == length]
    if tree is not None and length is not None:
        tree = restricted(tree, {geometry.rows: length})
        if isinstance(tree, Leaf):
            (piece,) = (piece for piece in fitting if piece.number == tree.scheme)
            serve(piece, sizes)
            return
    number = plan if tree is None else T.bind(choice(tree, sizes))
    for piece in fitting:
        with when(number == piece.number):
            serve(piece, sizes)


def operand_shapes(geometry: Geometry, sizes: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Returns the arrays of a call, in order; packed weights hold the bias too."""
    x, *others = geometry.operands(sizes).items()
    if geometry.weights == "packed":
        packed = ("packed", (tirx.Var("packed_size", "int64"),))
        others = [packed, *((n, s) for n, s in others if n not in ("w", "scale", "bias"))]
    return dict([x, *others])


def _arrays(geometry: Geometry, handles: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the array arguments, in the types in which they are read and written. The library's error
    messages name them."""
    types = {name: (geometry.type_of(name), _alignment(geometry, name)) for name in shapes}
    found = {
        name: IRBuilder.name(name, T.match_buffer(handles[name], shapes[name], dtype, align=align))
        for name, (dtype, align) in types.items()
    }
    views = {
        name: T.decl_buffer(shapes[name], stored_as(dtype), data=found[name].data, align=align)
        for name, (dtype, align) in types.items()
        if stored_as(dtype) != dtype
    }
    return {**found, **views}


def _alignment(geometry: Geometry, name: str) -> int:
    """Returns the least alignment of an array, in bytes: a cache line for packed weights, else its
    type's, since the caller made it."""
    return LINE_BYTES if name == "packed" else require_dtype(geometry.type_of(name)).itemsize


def _pack(geometry: Geometry, panel_function: Any) -> Any:
    """Lays the constant operand out in panels, after a tag; see :class:`Geometry`."""
    lanes = geometry.lanes
    with function("pack", exported=True) as builder:
        sizes = geometry.with_depth({dim: tirx.Var(dim, "int64") for dim in geometry.tile_dims})
        cols, depth = (geometry.value(extent, sizes) for extent in (geometry.cols, geometry.elements))
        needed = {"w": True, "scale": geometry.precision.scaled, "bias": geometry.epilogue.bias}
        known: dict[str, tuple[Any, ...]] = {"w": (cols, depth), "scale": (cols,), "bias": (cols,)}
        if geometry.patches is not None:
            windows = geometry.patches.windows
            channels = geometry.channels(sizes)
            known = {"w": (cols * geometry.groups, channels, *(w.kernel for w in windows))}
            known["scale"] = known["bias"] = (cols * geometry.groups,)
        shapes = {name: shape for name, shape in known.items() if needed[name]}
        shapes["packed"] = (geometry.packed_floats(cols, depth),)
        handles = {operand: T.arg(operand, T.handle()) for operand in shapes}
        arrays = _arrays(geometry, handles, shapes)
        for number, word in enumerate(geometry.tag(cols, depth)):
            T.buffer_store(arrays["packed"], tirx.reinterpret("float32", word), [int64(number)])
        panel = int64(geometry.panel_rows(geometry.value(geometry.depth, sizes)) * lanes)
        with groups(geometry) as group, T.serial(int64(0), int64(geometry.panels(cols))) as p:
            column, place = p * lanes, HEADER_FLOATS + p * panel
            if geometry.groups > 1:
                column, place = column + group * cols, place + group * geometry.group_floats(cols, depth)
            arguments = [
                arrays["w"].access_ptr("r", offset=column * depth),
                arrays["packed"].access_ptr("w", offset=place),
                cols - p * lanes,
            ]
            if not isinstance(depth, int):
                arguments.append(depth)
            for name in ("scale", "bias"):
                if name in arrays:
                    arguments.append(arrays[name].access_ptr("r", offset=column))
            call(panel_function, arguments)
    return builder.get()


def _packed_floats(geometry: Geometry) -> Any:
    """Returns ``packed_floats(N, K) -> int``: the number of elements of packed weights."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("packed_floats")
        T.func_attr({"global_symbol": "packed_floats"})
        windows = () if geometry.patches is None else geometry.patches.windows
        names = ("cols", "depth", *(f"kernel_{window.dim}" for window in windows))
        cols, *steps = (T.arg(name, T.int64()) for name in names)
        cols = cols if geometry.groups == 1 else tirx.truncdiv(cols, int64(geometry.groups))
        T.Return(int64(geometry.packed_floats(cols, prod(steps[1:], start=steps[0]))))
    return builder.get()

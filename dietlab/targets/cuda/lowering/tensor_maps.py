"""Descriptors of the operands, by which bulk copies (TMA) take tiles. The host makes them for each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import PointerType
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Sizes
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.lowering.geometry import STRIPS, AnyPanel, BlockGeometry, SwizzledPanel, panels
from dietlab.targets.cuda.lowering.tir import int64
from dietlab.targets.cuda.ring import whole_lines
from dietlab.targets.cuda.unit import PIECES

ENCODE = "runtime.cuTensorMapEncodeTiled"
"""The name in TVM of the driver's function ``cuTensorMapEncodeTiled``."""

PATTERN_LINES = 8
"""The number of lines of a swizzled pattern. The box of the last rows has the least multiple of it: a whole
box, filled with zeros beyond the end, took an H200 16.8 us for one row, and 12.3 us for 64. Many boxes of
eight lines are slower, too: 96 rows took 16.9 us, and 128 rows 13.7 us (``data/h200``, bfloat16,
``128x64x64.p1x1.s8.k2``)."""

WHOLE_LINES = 2
"""The value of ``CU_TENSOR_MAP_L2_PROMOTION_L2_128B``: L2 loads 128 bytes at a time, a line of a strip."""


@dataclass(frozen=True)
class Maps:
    """The descriptors of ``x`` and ``w``, variables of the host that a kernel takes by value. ``x_end``
    describes ``x`` with one box for the rows behind the last whole one."""

    x: Any
    x_end: Any
    w: Any


def describes(geometry: BlockGeometry, kernel: CudaMicroKernel) -> bool:
    """Returns whether both operands can be described, and all clusters that share rows are whole. If not,
    another plan replaces a plan with bulk copies. A space has no such schemes
    (:func:`dietlab.targets.cuda.ring.described`), but a portfolio may be built for operands that it was not
    tuned for."""
    if kernel.multicast > 1 and not geometry.fits("cols", kernel.cols * kernel.multicast):
        return False
    lines = (geometry.depth, geometry.cols if geometry.direct else geometry.depth)
    known = [geometry.vector if extent in geometry.whole else extent for extent in lines]
    return geometry.batch is None and not geometry.gathers and whole_lines(geometry.dtype, known)


def box_rows(kernel: CudaMicroKernel) -> int:
    """Returns the number of rows that one instruction multiplies: 64, or with exchanged operands all rows of
    the tile."""
    return kernel.rows if kernel.unit == "swapped" else PIECES[kernel.unit].rows


def box_lines(kernel: CudaMicroKernel, geometry: BlockGeometry) -> tuple[int, int]:
    """Returns the numbers of lines of ``x`` and of ``w`` in one copy. For ``x``: the rows of one instruction,
    divided by the blocks that share them, so that tiles of every height are whole boxes. For ``w``: a
    worker's columns (at most 256) or, in ``w[depth, cols]``, a stage's steps."""
    return box_rows(kernel) // kernel.multicast, kernel.step if geometry.direct else kernel.tile_cols


def whole_patterns(lines: Any, integer: Callable[[Any], Any]) -> Any:
    """Returns the number of lines, rounded up to whole patterns, in the type that ``integer`` makes."""
    pattern = integer(PATTERN_LINES)
    return tirx.truncdiv(lines + integer(PATTERN_LINES - 1), pattern) * pattern


def tensor_maps(
    kernels: Sequence[CudaMicroKernel], geometry: BlockGeometry, arrays: Any, sizes: Sizes
) -> list[Maps]:
    """Encodes the descriptors on the host, before the launch, for each height of its tiles: dynamic extents
    are known there only.

    For example, with ``x[T, K]`` and a strip of 64 elements::

        x_map = describe x: T lines of K elements, 2 K bytes apart;
                a box has 64 lines of 64 elements, swizzled by 128 bytes, zero outside of x

    ``w`` is encoded in each call, too: that takes less time than to find out whether the pointer changed.
    """
    kernel = kernels[0]
    size, cols, depth = (geometry.value(e, sizes) for e in (geometry.rows, geometry.cols, geometry.depth))
    x_panel, w_panel = panels(kernel, geometry)
    x_lines, w_lines = box_lines(kernel, geometry)
    behind = tirx.truncmod(int64(size), int64(box_rows(kernel)))
    end_lines = tirx.max(int64(PATTERN_LINES), whole_patterns(behind, int64))
    lines, length = (depth, cols) if geometry.direct else (cols, depth)
    found = Maps(
        _encoded("x", geometry, arrays.x, (size, depth), (x_lines, x_panel)),
        _encoded("x_end", geometry, arrays.x, (size, depth), (end_lines, x_panel)),
        _encoded("w", geometry, arrays.w, (lines, length), (w_lines, w_panel)),
    )
    boxes = {each.rows: box_lines(each, geometry)[0] for each in kernels}
    return [
        found
        if boxes[each.rows] == x_lines
        else replace(
            found, x=_encoded("x_low", geometry, arrays.x, (size, depth), (boxes[each.rows], x_panel))
        )
        for each in kernels
    ]


def _encoded(
    name: str, geometry: BlockGeometry, array: Any, extents: tuple[Any, Any], box: tuple[Any, AnyPanel]
) -> Any:
    """Returns the variable of one descriptor, after the call that fills it."""
    (lines, length), (box_height, panel) = extents, box
    assert isinstance(panel, SwizzledPanel)  # as panels() makes them for groups of warps
    described = tirx.Var(f"{name}_map", PointerType(tirx.TensorMapType()))
    T.Bind(T.tvm_stack_alloca("tensormap", 1), var=described)
    apart = int64(length) * int64(geometry.itemsize)
    swizzle = len(STRIPS) - STRIPS.index(panel.pitch)  # CUtensorMapSwizzle: 1, 2, 3 for 32, 64, 128 bytes
    dims = [int64(length), int64(lines), apart, panel.pitch, box_height, 1, 1]
    T.evaluate(
        T.call_packed(ENCODE, described, geometry.dtype, 2, array.data, *dims, 0, swizzle, WHOLE_LINES, 0)
    )
    return described

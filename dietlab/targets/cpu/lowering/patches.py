"""A convolution's input as rows of a product: what the kernel covers at each position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Patches
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.scratch import as_read
from dietlab.targets.cpu.lowering.tir import (
    constant,
    either,
    function,
    int64,
    masked_load,
    masked_store,
    stack_buffer,
    stored_as,
    when,
)
from dietlab.targets.cpu.units import UNITS, WORD_BYTES, CpuUnit, UnitFacts


def patches_name(unit: CpuUnit) -> str:
    return f"patches_{unit}"


def patches_function(unit: CpuUnit, geometry: Geometry) -> Any:
    """Returns ``patches(x, out, first, rows, N, H, W)``, which copies the rows ``first`` to ``first + rows``
    of the product to ``out[rows, depth]``. ``x`` begins at the first channel of a group.

    For example, for a kernel of three elements with padding 1, over a sequence of three elements::

        x          a b c
        out[0, :]  0 a b
        out[1, :]  a b c
        out[2, :]  b c 0

    This is the local padding (paper, section 3.2) of a convolution: tiles read ``out`` without a bound check.
    The elements of ``out`` have the type that the unit reads; zeros fill up the last step of a row.
    """
    patches, elements = geometry.patches, geometry.elements
    assert patches is not None and isinstance(elements, int)
    facts, stored = UNITS[unit], stored_as(geometry.precision.name)
    padded, staged = -(-elements // facts.per_step) * facts.per_step, facts.staged or stored
    with function(patches_name(unit)) as builder:
        pointers = [T.arg("x", T.handle(stored)), T.arg("out", T.handle(staged))]
        first, rows = (T.arg(name, T.int64()) for name in ("first", "rows"))
        sizes = {name: T.arg(name, T.int64()) for name in patches.dims}
        pixels = prod(sizes.values(), start=int(patches.channels) * patches.groups)
        x = T.decl_buffer((pixels,), stored, data=pointers[0], align=1 if facts.staged else 4)
        out = T.decl_buffer((rows * padded,), staged, data=pointers[1])
        counts = [T.bind(extent) for extent in patches.positions(sizes)]
        place = _place_of(first, counts)
        copy = _Copy(patches, facts, sizes, x, out, geometry.lanes * WORD_BYTES // np.dtype(staged).itemsize)
        with T.serial(int64(0), rows) as row:
            copy.row(place, row * padded)
            for element in range(elements, padded):
                T.buffer_store(out, tirx.const(0, staged), [row * padded + element])
            _to_next(place, counts, len(counts))
    return builder.get()


def _place_of(row: Any, counts: Sequence[Any]) -> Any:
    """Returns a buffer with a row's image, and its position along each dimension."""
    place = stack_buffer(len(counts) + 1, "int64")
    for at, extent in reversed(list(enumerate(counts, 1))):
        T.buffer_store(place, tirx.truncmod(row, extent), [at])
        row = T.bind(tirx.truncdiv(row, extent))
    T.buffer_store(place, row, [0])
    return place


def _to_next(place: Any, counts: Sequence[Any], at: int) -> None:
    """Emits the step to the next row: index ``at`` grows, and is carried to the one before at its end. A
    division for each row would take longer than its copy."""
    T.buffer_store(place, place[at] + int64(1), [at])
    if at:
        with when(place[at] == counts[at - 1]):
            T.buffer_store(place, int64(0), [at])
            _to_next(place, counts, at - 1)


class _Copy:
    """Emits the copy of rows."""

    def __init__(self, patches: Patches, facts: UnitFacts, sizes: Any, x: Any, out: Any, lanes: int) -> None:
        self._windows, self._groups = patches.windows, patches.groups
        self._channels = int(patches.channels)  # no range: space.layout_limits
        self._facts, self._sizes, self._x, self._out, self._lanes = facts, sizes, x, out, lanes

    def row(self, place: Any, to: Any) -> None:
        """Copies one row, run by run. A run has the kernel elements along the last dimension, which lie
        side by side in the image unless they are dilated, or a group has a part of their channels."""
        *outer, last = self._windows
        begins = [T.bind(place[at] * w.stride - w.before) for at, w in enumerate(self._windows, 1)]
        side = last.kernel if last.dilation == 1 == self._groups else 1
        runs = product(*(range(w.kernel) for w in outer), range(0, last.kernel, side))
        for number, (*lines, element) in enumerate(runs):
            line: Any = place[0]
            inside: list[Any] = []
            for window, begin, step in zip(outer, begins, lines, strict=False):
                at = T.bind(begin + step * window.dilation)
                inside += [at >= 0, at < self._sizes[window.dim]]
                line = line * self._sizes[window.dim] + at
            start = T.bind(begins[-1] + element * last.dilation)
            there = to + number * (side * self._channels)
            run = partial(self._run, start, T.bind(line), side, there)
            either(tirx.all(*inside), run, partial(self._zeros, there, side)) if inside else run()

    def _run(self, start: Any, line: Any, side: int, to: Any) -> None:
        """Copies the elements ``start`` to ``start + side`` of a line of an image, with zeros beyond it."""
        size = self._sizes[self._windows[-1].dim]
        pixel = T.bind(line * size + start)

        def one_by_one() -> None:
            with T.serial(int64(0), int64(side)) as at:
                here = tirx.all(start + at >= 0, start + at < size)
                begin = to + at * self._channels
                either(here, partial(self._pixels, pixel + at, begin, 1), partial(self._zeros, begin, 1))

        whole = tirx.all(start >= 0, start + side <= size)
        partly = one_by_one if side > 1 else partial(self._zeros, to, 1)
        either(whole, partial(self._pixels, pixel, to, side), partly)

    def _pixels(self, pixel: Any, to: Any, count: int) -> None:
        begin = T.bind(pixel * (self._channels * self._groups))

        def value(at: Any, inside: Any) -> Any:
            return self._staged(masked_load(self._x, begin + at, inside, self._lanes))

        self._chunks(to, count, value)

    def _zeros(self, to: Any, count: int) -> None:
        zero = self._staged(constant(0, self._lanes, str(self._x.dtype)))
        self._chunks(to, count, lambda at, inside: zero)

    def _staged(self, value: Any) -> Any:
        """Returns elements as the unit reads them. Zeros around the image are made unsigned too: the first
        sums are corrected for every weight."""
        return as_read(self._facts, value, self._lanes) if self._facts.staged else value

    def _chunks(self, to: Any, pixels: int, value: Callable[[Any, Any], Any]) -> None:
        """Stores vectors with the elements of ``pixels`` pixels. The stores are masked: others carry alias
        information that holds for one buffer's name only, while tiles read the copy by another."""
        lanes, elements = self._lanes, pixels * self._channels
        with T.serial(int64(0), int64(elements // lanes)) as chunk:
            at = chunk * lanes
            masked_store(self._out, to + at, value(at, int64(lanes)), int64(lanes), lanes)
        if elements % lanes:
            at, left = elements // lanes * lanes, int64(elements % lanes)
            masked_store(self._out, to + at, value(at, left), left, lanes)

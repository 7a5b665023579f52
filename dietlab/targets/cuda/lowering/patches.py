"""A convolution's operands as a product's: what the kernel covers of images, and the kernel's elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.contraction import Patches
from dietlab.problem.dims import Window
from dietlab.targets.cuda.lowering.geometry import ImageSizes
from dietlab.targets.cuda.lowering.sources import Source
from dietlab.targets.cuda.lowering.tir import bound, int32, int64
from dietlab.targets.cuda.needs import padded_windows


@dataclass(frozen=True)
class ImageRows:
    """The rows of a convolution's ``x``: what the kernel covers of an image at one position, with zeros
    beyond the image. Nothing is copied beforehand (implicit GEMM): each element's address is computed.

    For example, with a kernel of 3 x 3 and padding 1::

        once for each copy of a thread               in each step of the loop
        image, oh, ow = place of the row             kh, kw, channel = element of the reduction step
        top, left = oh - 1, ow - 1                   inside = top + kh < H and left + kw < W     # unsigned
        pixel = (image * H + top) * W + left         x[(pixel + kh * W + kw) * IC + channel] if inside else 0

    Args:
        first_row: the tile's first row.
        rows_left: the number of rows from the tile's first one to the output's end.
        depth: the number of steps of the reduction; None if it is a multiple of the tile's.
        places: the registers with the places of a thread's rows, ``1 + padded dimensions`` numbers for each
            copy: the first pixel that the kernel covers, and its index along each dimension that has
            padding. None before they exist.
        copy: the number of a copy.
    """

    buffer: Any
    patches: Patches
    image: ImageSizes
    first_row: Any
    rows_left: Any
    depth: Any | None
    places: Any | None = None
    copy: Any = 0

    @property
    def numbers(self) -> int:
        """The number of registers for the place of one copy's row."""
        return 1 + len(self._padded)

    def keep(self, copy: Any, row: Any) -> None:
        """Emits the place of a row of the tile, which copy number ``copy`` brings, and keeps it."""
        begins: list[Any] = []
        number = self.first_row + row
        for window, positions in reversed(self._pairs(self.image.positions)):
            at = tirx.truncmod(number, positions) * int32(window.stride) - int32(window.before)
            begins.insert(0, bound("begin", at))
            number = bound("number", tirx.truncdiv(number, positions))
        padded = [begin for window, begin in self._pairs(begins) if window in self._padded]
        for index, value in enumerate((self._pixel(number, begins), *padded)):
            T.buffer_store(self.places, value, [self._at(copy, index)])

    def of_copy(self, copy: Any) -> ImageRows:
        return replace(self, copy=copy)

    def address(self, row: Any, step: Any, first: Any) -> Any:
        elements, channel = element_of(self.patches, step + first)
        moved = [at * int32(window.dilation) for window, at in self._pairs(elements)]
        pixel = self._kept(0) + self._pixel(int32(0), moved)
        return int64(pixel) * int64(self.patches.channels) + int64(channel)

    def inside(self, row: Any, step: Any, first: Any) -> Any:
        step = step + first
        elements, _ = element_of(self.patches, step)
        tests = [row < self.rows_left] + ([] if self.depth is None else [step < self.depth])
        known = {window: self._kept(index) for index, window in enumerate(self._padded, 1)}
        for (window, size), at in zip(self._pairs(self.image.sizes), elements, strict=True):
            if window in known:
                index = known[window] + at * int32(window.dilation)
                tests.append(_unsigned(index) < _unsigned(size))  # below 0 is a large number, too
        return tirx.all(*tests)

    @property
    def _padded(self) -> tuple[Window, ...]:
        return padded_windows(self.patches.windows)

    def _pairs(self, values: Sequence[Any]) -> list[tuple[Window, Any]]:
        return list(zip(self.patches.windows, values, strict=True))

    def _pixel(self, image: Any, indices: Sequence[Any]) -> Any:
        """Returns the index of a pixel among those of all images."""
        for size, index in zip(self.image.sizes, indices, strict=True):
            image = image * size + index
        return image

    def _at(self, copy: Any, index: int) -> Any:
        return copy * int32(self.numbers) + int32(index)

    def _kept(self, index: int) -> Any:
        assert self.places is not None
        return self.places[self._at(self.copy, index)]


@dataclass(frozen=True)
class KernelSteps:
    """The weights of a convolution, ``w[OC, IC, KH, KW]``, in the order of the reduction's steps, in which
    the channel runs fastest. Channels lie ``KH * KW`` elements apart: each copy has one element.

    Args:
        weights: the same memory as ``w[OC, IC * KH * KW]``.
    """

    weights: Source
    patches: Patches

    @property
    def buffer(self) -> Any:
        return self.weights.buffer

    def address(self, row: Any, step: Any, first: Any) -> Any:
        element, channel = _split(self.patches, step + first)
        return self.weights.address(row, channel * int32(self.patches.elements) + element, int32(0))

    def inside(self, row: Any, step: Any, first: Any) -> Any | None:
        return self.weights.inside(row, step, first)

    def of_copy(self, copy: Any) -> KernelSteps:
        return self


def element_of(patches: Patches, step: Any) -> tuple[list[Any], Any]:
    """Returns the element of the kernel, by its index along each dimension, and the channel of a step of the
    reduction. The channel runs fastest, then the kernel's last dimension."""
    element, channel = _split(patches, step)
    indices: list[Any] = []
    for window in patches.windows[:0:-1]:
        indices.insert(0, tirx.truncmod(element, int32(window.kernel)))
        element = tirx.truncdiv(element, int32(window.kernel))
    return [element, *indices], channel


def _split(patches: Patches, step: Any) -> tuple[Any, Any]:
    """Returns the number of the kernel's element and the channel of a step of the reduction."""
    channels = int32(patches.channels)
    return tirx.truncdiv(step, channels), tirx.truncmod(step, channels)


def _unsigned(index: Any) -> Any:
    return tirx.Cast("uint32", index)

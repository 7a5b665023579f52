"""A convolution in ONNX: its node, its inputs, and arrays with the channels second.

ONNX's ``Conv`` and the runtimes that read it have the channels second. A caller of them has such images, so
inputs are rearranged before the timed call, and outputs after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dietlab.compare.vendor import Call, Operands
from dietlab.measure.timing.contender import Prepared
from dietlab.problem import FloatArray
from dietlab.problem.convolution import Convolution

Dims = tuple[int | str, ...]


def attributes(work: Convolution) -> dict[str, tuple[int, ...] | int]:
    """Returns the attributes of ONNX's ``Conv``; all pads before the image come first."""
    before, after = zip(*work.padding, strict=True)
    return {
        "kernel_shape": work.kernel,
        "strides": work.stride,
        "pads": before + after,
        "dilations": work.dilation,
        "group": work.groups,
    }


def dims_of(work: Convolution) -> tuple[dict[str, Dims], Dims]:
    """Returns two values: the dimensions of each input that is no constant, and those of the output, with
    the channels second. Dynamic dimensions have names, so that one model serves every size."""
    second: dict[str, Dims] = {}
    for name, sizes in work.signature.items():
        dims = [size if isinstance(size, int) else f"{name}_{size}" for size in sizes]
        second[name] = (dims[0], dims[-1], *dims[1:-1])
    output = second.pop("out")
    return {name: dims for name, dims in second.items() if name not in work.constants}, output


class ChannelsSecond:
    """An array ``[N, C, ..]`` that a runtime wrote. It has the methods by which an
    :class:`~dietlab.measure.timing.device.Output` takes a new tensor; only :meth:`contiguous`, which is not
    timed, rearranges it. Then the array is filled with NaN, so that a call that writes nothing is noticed."""

    def __init__(self, array: FloatArray) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._array.shape

    def data_ptr(self) -> int:
        """Returns the address of the array."""
        return int(self._array.ctypes.data)

    def element_size(self) -> int:
        """Returns the bytes of an element."""
        return self._array.itemsize

    def contiguous(self) -> ChannelsSecond:
        """Returns a copy with the channels last."""
        copy = np.ascontiguousarray(np.moveaxis(self._array, 1, -1))
        self._array.fill(np.nan)
        return ChannelsSecond(copy)


@dataclass
class Rearranging:
    """Operands and outputs of a contender with the channels second.

    Copies of a rotation share their inputs and their output, as they do with other contenders: an array that
    was bound last is not rearranged again.
    """

    _last: dict[str, tuple[Any, FloatArray]] = field(default_factory=dict)

    def bind(self, layer: Prepared, operands: Operands, out: FloatArray) -> Call:
        """Returns the call of a layer that takes and writes arrays with the channels second."""
        second = self._kept("out", out, unwritten)
        inputs = {name: self._kept(name, array, channels_second) for name, array in operands.items()}
        compute, found = layer.bind(inputs, second), ChannelsSecond(second)

        def call() -> ChannelsSecond:
            compute()
            return found

        return call

    def _kept(self, name: str, array: FloatArray, made: Callable[[FloatArray], FloatArray]) -> FloatArray:
        known = self._last.get(name)
        if known is None or known[0]() is not array:
            known = self._last[name] = weakref.ref(array), made(array)
        return known[1]


@dataclass(frozen=True)
class Rearranged:
    """A layer that takes images with the channels second, for callers whose channels are last."""

    layer: Prepared
    rearranging: Rearranging

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        return self.rearranging.bind(self.layer, operands, out)


def channels_second(array: FloatArray) -> FloatArray:
    """Returns a copy ``[N, C, ..]`` of an array ``[N, .., C]``."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def unwritten(out: FloatArray) -> FloatArray:
    """Returns an array of NaN with the channels second."""
    return np.full(np.moveaxis(out, -1, 1).shape, np.nan, out.dtype)

"""PyTorch's tensors, clock and graphs: a GPU as PyTorch shows it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from dietlab.measure.timing.contender import Call
from dietlab.measure.timing.device import GUARD_BYTES, GUARD_VALUE
from dietlab.measure.timing.disturbance import Probe
from dietlab.problem import FloatArray
from dietlab.targets.cuda.gpu import Gpu, Span, queue

Tensor = Any
"""A PyTorch tensor. PyTorch is optional, so annotations cannot name its class."""

Tensors = Mapping[str, Tensor]

FLOATS = ("float32", "float16", "bfloat16")
"""The types that contenders on a GPU multiply."""


@dataclass(frozen=True)
class GpuSetting:
    """The setting of contenders: PyTorch, the name of its device, and the :class:`Gpu` that times calls."""

    torch: Any
    device: str
    gpu: Gpu


def to_device(torch: Any, array: FloatArray, device: str) -> Tensor:
    """Returns a copy of an array on a device, in the same format. PyTorch does not know NumPy's bfloat16:
    halves are copied as bits."""
    if array.dtype.itemsize != 2:
        return torch.from_numpy(array).to(device, copy=True)
    bits = torch.from_numpy(array.view(np.int16)).to(device, copy=True)
    return bits.view(getattr(torch, array.dtype.name))


def to_host(torch: Any, tensor: Tensor, dtype: np.dtype[Any]) -> FloatArray:
    """Returns a tensor as an array of ``dtype``, which is the same format."""
    held = tensor.detach().cpu()
    bits = held.view(torch.int16) if dtype.itemsize == 2 else held
    array: FloatArray = bits.numpy().view(dtype)
    return array


class TorchOutput:
    """An output on PyTorch's device with guards around it."""

    def __init__(self, torch: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: str) -> None:
        self._torch, self._dtype = torch, dtype
        self._guard = GUARD_BYTES // dtype.itemsize
        size = math.prod(shape) + 2 * self._guard
        self.buffer = torch.empty(size, dtype=getattr(torch, dtype.name), device=device)
        self.array: Tensor = self.buffer[self._guard : -self._guard].view(shape)

    def poison(self) -> None:
        self.buffer.fill_(GUARD_VALUE)
        self.array.fill_(math.nan)

    def deliver(self, result: Any) -> None:
        if hasattr(result, "data_ptr") and result.data_ptr() != self.array.data_ptr():
            self.array.copy_(result.contiguous())

    def read(self) -> FloatArray:
        return to_host(self._torch, self.array, self._dtype)

    @property
    def intact(self) -> bool:
        value = self.buffer.new_full((), GUARD_VALUE)  # rounded as the guards are
        ends = (self.buffer[: self._guard], self.buffer[-self._guard :])
        return all(bool((end == value).all()) for end in ends)


class TorchArrays:
    """PyTorch's tensors on a device (``cuda``, or ``cpu`` in a test)."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device

    def put(self, array: FloatArray) -> Tensor:
        return to_device(self._torch, array, self._device)

    def output(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> TorchOutput:
        return TorchOutput(self._torch, shape, dtype, self._device)

    def recorded(self, calls: Iterable[Call]) -> Call | None:
        if self._device != "cuda":
            return None
        cuda = self._torch.cuda
        graph, stream = cuda.CUDAGraph(), cuda.current_stream()
        try:
            with self._recording(graph):
                queue(calls)
        except Exception:  # each library raises another error for what must not be recorded
            cuda.set_stream(stream)  # PyTorch leaves that of a failed recording in place
            cuda.synchronize()
            return None
        replay: Call = graph.replay
        return replay

    @contextmanager
    def _recording(self, graph: Any) -> Iterator[None]:
        """Records calls. It passes the stream to ``tvm_ffi``, which otherwise takes the stream from arguments
        as it converts them. Bound calls of TVM's libraries have no such conversion: their arguments were
        converted before.
        """
        tvm_ffi: Any = sys.modules.get("tvm_ffi")
        with self._torch.cuda.graph(graph):
            if tvm_ffi is None:
                yield
                return
            stream = self._torch.cuda.current_stream()
            with tvm_ffi.use_raw_stream(tvm_ffi.device(str(stream.device)), stream.cuda_stream):
                yield


class EventClock:
    """A GPU's own clock: events on PyTorch's current stream."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        queue(warm)
        self._first.record()
        started = perf_counter()
        queue(calls)
        host_seconds = perf_counter() - started
        self._last.record()
        self._last.synchronize()
        return Span(self._first.elapsed_time(self._last) * 1e-3, host_seconds)

    def wait(self) -> None:
        self._torch.cuda.synchronize()


def cycle_probe(torch: Any) -> tuple[Probe | None, str]:
    """Returns a probe that is read before and after each block: the seconds of one cycle of the
    multiprocessors' clock, from the driver. Without one, returns None and the reason."""
    try:
        megahertz = float(torch.cuda.clock_rate())
    except Exception as error:  # NVML's errors have no common base class
        return None, f"the GPU's clock cannot be read: {error}"
    if megahertz <= 0:
        return None, "the driver does not report the GPU's clock"
    return lambda: 1e-6 / float(torch.cuda.clock_rate()), ""

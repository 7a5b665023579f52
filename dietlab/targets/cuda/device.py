"""Measuring on a GPU: TVM's tensors, events on the driver's stream, and a simple machine in its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.base.errors import MeasureError
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import Array, Call
from dietlab.measure.timing.device import GUARD_BYTES
from dietlab.measure.timing.protocol import GPU_CACHE_STATES
from dietlab.problem import PRECISIONS, FloatArray, Shape, Workload
from dietlab.targets.cuda.driver import CudaClock, CudaDriver, GraphRecorder, require_gpu
from dietlab.targets.cuda.gpu import Gpu
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.nvidia_packages import load_cuda_runtime
from dietlab.targets.cuda.synthetic import synthetic_call

CACHE_STATES = GPU_CACHE_STATES
START_SECONDS = 120.0
"""The longest that a timing process may take to start, in seconds. Importing TVM and making the device's
context take a minute on a fresh host."""


def rotated(workload: Workload) -> tuple[str, ...]:
    """Returns an empty tuple: all operands rotate."""
    return ()


def options(hardware: Hardware, folder: Path | None) -> tuple[dict[str, Any], str]:
    """Returns the worker's options: the kind of processor and the size of L2."""
    return {"kind": hardware.kind, "l2_bytes": gpu_of(hardware).l2_bytes}, ""


def device(cores: int, options: Mapping[str, Any]) -> Gpu:
    """Returns the first GPU."""
    driver = CudaDriver()
    return Gpu(TvmArrays(driver), CudaClock(driver), int(options["l2_bytes"]))


def require_here(hardware: Hardware) -> None:
    """Checks for a GPU that runs what is compiled for this one."""
    require_gpu(hardware)


def seconds(hardware: Hardware, workload: Workload, scheme: CudaScheme, shape: Shape) -> float:
    """Returns the seconds of a call on the simulated GPU."""
    return synthetic_call(hardware, workload, scheme, shape)


class TvmArrays:
    """TVM's tensors on the first GPU.

    Args:
        driver: the driver, which records calls of libraries as CUDA graphs.
    """

    def __init__(self, driver: CudaDriver) -> None:
        load_cuda_runtime()  # without it, TVM silently leaves out its part for the driver
        import tvm

        self._tensor, self._device = tvm.runtime.tensor, tvm.cuda(0)
        self._device.sync()  # makes the context of streams and events
        self._driver = driver

    def put(self, array: FloatArray) -> Array:
        return self._tensor(array, self._device)

    def output(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> TvmOutput:
        return TvmOutput(self.put, shape, dtype)

    @cached_property
    def _recorder(self) -> GraphRecorder:
        import tvm_ffi

        device = tvm_ffi.device("cuda:0")
        return GraphRecorder(self._driver, lambda stream: tvm_ffi.use_raw_stream(device, stream))

    def recorded(self, calls: Iterable[Call]) -> Call | None:
        try:
            return self._recorder.recorded(calls)
        except MeasureError:  # an old driver, or a call that does more than launch
            return None


class TvmOutput:
    """An output on a GPU with a guard behind it only: TVM's programs refuse an array that begins inside
    another."""

    def __init__(
        self, put: Callable[[FloatArray], Array], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._shape, self._size = shape, math.prod(shape)
        guard = np.float32(PRECISIONS[dtype.name].guard)
        self._poison = np.full(self._size + GUARD_BYTES // dtype.itemsize, guard).astype(dtype)
        self._poison[: self._size] = np.nan
        self._buffer = put(self._poison)
        self.array = self._buffer._create_view(shape)

    def poison(self) -> None:
        self._buffer.copyfrom(self._poison)

    def deliver(self, result: object) -> None:
        return None

    def read(self) -> FloatArray:
        read: FloatArray = self._buffer.numpy()[: self._size].reshape(self._shape)
        return read

    @property
    def intact(self) -> bool:
        return bool((self._buffer.numpy()[self._size :] == self._poison[self._size :]).all())

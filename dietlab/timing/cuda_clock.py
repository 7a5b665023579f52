"""A GPU's own clock: events on its stream, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from time import perf_counter

from dietlab.errors import HardwareError, MeasureError
from dietlab.hardware import Hardware
from dietlab.hardware.detect_gpu import detect_gpu
from dietlab.timing.contender import Call
from dietlab.timing.cuda_driver import CudaDriver
from dietlab.timing.gpu import Span, queue


def require_gpu(wanted: Hardware) -> Hardware:
    """This machine's first GPU, which must run what is compiled for ``wanted``
    (:meth:`~dietlab.hardware.GpuLimits.runs`).

    Raises:
        MeasureError: without a driver or a GPU, or if the GPU is of another kind.
    """
    try:
        found = detect_gpu()
    except HardwareError as error:
        raise MeasureError(
            f"candidates for {wanted.name} are measured on a GPU",
            error.value,
            "Tune where there is one, or replay records.",
        ) from None
    if not found.gpu.runs(wanted.gpu.arch):
        raise MeasureError(
            f"the GPU runs code for {wanted.gpu.arch}",
            f"{found.name} with {found.gpu.arch}",
            "Tune or pack for this GPU, as Hardware.detect('cuda') describes it.",
        )
    return found


class CudaClock:
    """Times calls on the default stream by events (CUDA C Programming Guide, "Elapsed time").

    Raises:
        MeasureError: if the driver reports an error.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._first, self._last = (driver.made("cuEventCreate", 0) for _ in range(2))

    def span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        queue(warm)
        self._driver("cuEventRecord", self._first, None)
        started = perf_counter()
        queue(calls)
        host_seconds = perf_counter() - started
        self._driver("cuEventRecord", self._last, None)
        self._driver("cuEventSynchronize", self._last)
        milliseconds = ctypes.c_float()
        self._driver("cuEventElapsedTime", ctypes.byref(milliseconds), self._first, self._last)
        return Span(milliseconds.value * 1e-3, host_seconds)

    def wait(self) -> None:
        """Waits until all queued work is done; a kernel's fault is reported here.

        Raises:
            MeasureError: if a kernel faulted.
        """
        self._driver("cuCtxSynchronize")

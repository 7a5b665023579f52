"""A GPU's own clock: events on its stream, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from time import perf_counter

from dietlab.base.errors import HardwareError, MeasureError
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import Call
from dietlab.targets.cuda.driver import CudaDriver
from dietlab.targets.cuda.gpu import Span, queue
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.machine import detect_gpu


def require_gpu(wanted: Hardware) -> Hardware:
    """This machine's first GPU, which must run what is compiled for ``wanted``
    (:meth:`~dietlab.targets.cuda.limits.GpuLimits.runs`).

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
    if not gpu_of(found).runs(gpu_of(wanted).arch):
        raise MeasureError(
            f"the GPU runs code for {gpu_of(wanted).arch}",
            f"{found.name} with {gpu_of(found).arch}",
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

"""NVIDIA's driver, called through ctypes: a GPU's own clock, and CUDA graphs that it records from calls."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter

from dietlab.base.errors import HardwareError, MeasureError
from dietlab.machine import Hardware
from dietlab.measure.timing.contender import Call
from dietlab.targets.cuda.gpu import Span, queue
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.machine import LIBRARY, detect_gpu

RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``: other threads may allocate and load while calls are recorded."""


class CudaDriver:
    """The driver of this process.

    Raises:
        MeasureError: without one.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise MeasureError("a GPU's clock needs NVIDIA's driver", error, "Measure on a GPU.") from None
        if not hasattr(self._library, "cuEventCreate"):  # a library that stands in for it
            raise MeasureError(
                "a GPU's clock needs NVIDIA's driver", f"{LIBRARY} has no cuEventCreate", "Measure on a GPU."
            )

    def __call__(self, name: str, *arguments: object) -> None:
        """Calls a function of the driver.

        Raises:
            MeasureError: if it reports an error.
        """
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            words = text.value.decode() if text.value else f"error {code}"
            raise MeasureError(f"the driver's {name} must succeed", words)

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Returns the handle that a function of the driver makes."""
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Lets this thread load modules and allocate while a graph is captured (CUDA Driver API,
    ``cuThreadExchangeStreamCaptureMode``).

    Raises:
        MeasureError: without a driver, or if it reports an error.
    """
    driver, mode = CudaDriver(), ctypes.c_int(RELAXED)
    driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


class GraphRecorder:
    """Records calls as a CUDA graph (CUDA C Programming Guide, "CUDA Graphs").

    Args:
        redirected: a function that returns a context in which calls queue their work on the stream with a
            given handle.
    """

    def __init__(
        self, driver: CudaDriver, redirected: Callable[[int], AbstractContextManager[object]]
    ) -> None:
        self._driver, self._redirected = driver, redirected
        self._stream = driver.made("cuStreamCreate", 0)

    def recorded(self, calls: Iterable[Call]) -> Call:
        """Returns a call that replays the calls on the default stream. Recording does not run them.

        Raises:
            MeasureError: if the driver cannot record or replay them.
        """
        driver, graph = self._driver, ctypes.c_void_p()
        driver("cuStreamBeginCapture_v2", self._stream, RELAXED)
        try:
            with self._redirected(self._stream.value or 0):
                for call in calls:
                    call()
        finally:
            driver("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        try:
            replayed = driver.made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
        finally:
            driver("cuGraphDestroy", graph)

        def replay() -> None:
            driver("cuGraphLaunch", replayed, None)

        weakref.finalize(replay, driver, "cuGraphExecDestroy", replayed)
        return replay


def require_gpu(wanted: Hardware) -> Hardware:
    """Returns this machine's first GPU, which must run code for ``wanted``
    (:meth:`~dietlab.targets.cuda.limits.GpuLimits.runs`).

    Raises:
        MeasureError: without a driver or a GPU, or if the GPU is of another kind.
    """
    try:
        found = detect_gpu()
    except HardwareError as error:
        raise MeasureError(
            f"candidates for {wanted.name} can only be measured on a GPU",
            error.value,
            "Tune where there is one, or replay records.",
        ) from None
    if not gpu_of(found).runs(gpu_of(wanted).arch):
        raise MeasureError(
            f"the GPU must run code for {gpu_of(wanted).arch}",
            f"{found.name} with {gpu_of(found).arch}",
            "Tune or pack for this GPU: Hardware.detect('cuda'), or --target cuda.",
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
        """Waits until all queued work is done. A faulty kernel raises MeasureError here."""
        self._driver("cuCtxSynchronize")

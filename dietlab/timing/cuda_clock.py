"""A GPU's own clock: events on its stream, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from time import perf_counter

from dietlab.errors import HardwareError, MeasureError
from dietlab.hardware import Hardware
from dietlab.hardware.detect_gpu import LIBRARY, detect_gpu
from dietlab.timing.contender import Call
from dietlab.timing.gpu import Span, queue


def require_gpu(wanted: Hardware) -> Hardware:
    """This machine's first GPU, which must run what is compiled for ``wanted``.

    A cubin runs on GPUs of its major compute capability from its minor one on; one of an architecture with an
    ``a``, as ``sm_90a``, on that capability only (CUDA C Programming Guide, binary compatibility and
    architecture-specific features).

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
    (major, minor), (least_major, least_minor) = (gpu.gpu.capability for gpu in (found, wanted))
    exact = wanted.gpu.arch.endswith("a")
    if major != least_major or minor < least_minor or (exact and minor != least_minor):
        raise MeasureError(
            f"the GPU runs code for {wanted.gpu.arch}",
            f"{found.name} with {found.gpu.arch}",
            "Tune or pack for this GPU, as Hardware.detect('cuda') describes it.",
        )
    return found


class CudaClock:
    """Times calls on the default stream by events (CUDA C Programming Guide, "Elapsed time").

    Raises:
        MeasureError: without a driver, or if the driver reports an error.
    """

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise MeasureError("a GPU's clock needs NVIDIA's driver", error, "Measure on a GPU.") from None
        if not hasattr(self._driver, "cuEventCreate"):  # an empty library that stands in for it
            raise MeasureError(
                "a GPU's clock needs NVIDIA's driver", f"{LIBRARY} has no cuEventCreate", "Measure on a GPU."
            )
        self._first, self._last = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._first, self._last):
            self._call("cuEventCreate", ctypes.byref(event), 0)

    def span(self, warm: Iterable[Call], calls: Iterable[Call]) -> Span:
        queue(warm)
        self._call("cuEventRecord", self._first, None)
        started = perf_counter()
        queue(calls)
        host_seconds = perf_counter() - started
        self._call("cuEventRecord", self._last, None)
        self._call("cuEventSynchronize", self._last)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), self._first, self._last)
        return Span(milliseconds.value * 1e-3, host_seconds)

    def wait(self) -> None:
        """Waits until all queued work is done; a kernel's fault is reported here.

        Raises:
            MeasureError: if a kernel faulted.
        """
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            said = text.value.decode() if text.value else f"error {code}"
            raise MeasureError(f"the driver's {name} succeeds", said)

"""A GPU's own clock: events on its stream, through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import ceil

from dietlab.errors import HardwareError, MeasureError
from dietlab.hardware import Hardware
from dietlab.hardware.detect_gpu import LIBRARY, detect_gpu
from dietlab.timing.protocol import Timing

LONGEST_BLOCK = 512
"""The most calls of one block: a stream queues about a thousand before a launch waits."""


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
            "Tune for this GPU, as Hardware.detect('cuda') describes it.",
        )
    return found


class CudaClock:
    """Times calls on the default stream by events (CUDA C Programming Guide, "Elapsed time").

    Calls only queue their kernels, so a block of them runs back to back as long as the host queues faster
    than the GPU runs.

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

    def seconds(self, calls: Sequence[Callable[[], object]]) -> float:
        """Returns the seconds from the start of the first call's kernel to the end of the last one's."""
        self._call("cuEventRecord", self._first, None)
        for call in calls:
            call()
        self._call("cuEventRecord", self._last, None)
        self._call("cuEventSynchronize", self._last)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), self._first, self._last)
        return milliseconds.value * 1e-3

    def wait(self) -> None:
        """Waits until all queued work is done; a kernel's fault is reported here.

        Raises:
            MeasureError: if a kernel faulted.
        """
        self._call("cuCtxSynchronize")

    def blocks(self, calls: Sequence[Callable[[], object]], timing: Timing) -> list[float]:
        """Returns the mean seconds of one call in each block, after as many calls to warm up.

        Args:
            calls: the same call, once for each copy of the operands; blocks go round them.
        """
        turn = 0

        def next_calls(count: int) -> list[Callable[[], object]]:
            nonlocal turn
            chosen = [calls[(turn + i) % len(calls)] for i in range(count)]
            turn += count
            return chosen

        self.seconds(next_calls(2))
        estimate = self.seconds(next_calls(4)) / 4
        count = min(LONGEST_BLOCK, max(4, ceil(timing.block_seconds / max(estimate, 1e-9))))
        if timing.slow(estimate):
            return [estimate]
        self.seconds(next_calls(count))
        return [self.seconds(next_calls(count)) / count for _ in range(timing.blocks)]

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            said = text.value.decode() if text.value else f"error {code}"
            raise MeasureError(f"the driver's {name} succeeds", said)

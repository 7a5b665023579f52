"""The needs of a micro-kernel: registers of its threads, and shared memory of its block."""

from __future__ import annotations

from math import ceil

from dietlab.problem import (
    Role,
    Workload,
    axes_of,
    gathered,
    name_of_role,
    precision_of,
    static_extent,
)
from dietlab.problem.dims import Window
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.limits import GpuLimits
from dietlab.targets.cuda.ring import barrier_bytes, registers_of_roles
from dietlab.targets.cuda.unit import GROUPED

BOOKKEEPING = 32
"""The number of a thread's registers for addresses, predicates and counters. An estimate; each record has the
number that the compiler used."""

COPY_BYTES = 16
"""The most bytes that one instruction copies."""

LEAST_ASYNCHRONOUS_BYTES = 4
"""The fewest bytes that cp.async copies."""

LONGEST_LINE = 2**22
"""The most elements of a line of an operand whose length is dynamic: 256 lines of a tile and one more are
counted in 32 bits."""

ROW_PAD_BYTES = 16
"""The number of bytes behind each run of rows in shared memory, so that eight neighbouring runs lie in
different banks."""


def thread_registers(kernel: CudaMicroKernel) -> int:
    """Returns the least number of registers that one thread needs: for sums, for one step's operands (with
    ``wgmma`` only for two descriptors and their offsets; in float32 for four steps of all rows and of eight
    columns at a time), and for bookkeeping.
    """
    if kernel.unit in GROUPED:
        operands = 8
    elif kernel.unit == "mma":
        operands = (kernel.tile_rows // 16) * 4 + (kernel.tile_cols // 8) * 2
    else:
        operands = 4 * (kernel.tile_rows + min(kernel.tile_cols, 8))
    return kernel.accumulators + operands + BOOKKEEPING


def held_registers(kernel: CudaMicroKernel, workload: Workload, gpu: GpuLimits) -> int:
    """Returns the number of a thread's registers that hold its copies for the next step and, in a
    convolution, the places of its rows in the images.

    Copies by cp.async need none. Some GPUs lack cp.async, and it does not copy single elements of 16 bits.
    """
    itemsize, held = precision_of(workload).itemsize, 0
    for lines, extent in zip((kernel.rows, kernel.cols), copied_extents(workload), strict=True):
        width = copied_elements(extent, itemsize)
        if not gpu.asynchronous or width * itemsize < LEAST_ASYNCHRONOUS_BYTES:
            elements = ceil(lines * kernel.step / kernel.threads)
            held += elements if width == 1 else ceil(elements * itemsize / 4)
    if gathered(workload):
        width = copied_elements(copied_extents(workload)[0], itemsize)
        copies = ceil(kernel.rows * kernel.step / (width * kernel.threads))
        held += copies * (1 + len(padded_windows(windows_of(workload))))
    return held


def copied_extents(workload: Workload) -> tuple[int | None, int | None]:
    """Returns how many elements of ``x`` and of ``w`` lie side by side, of which copies take a part: a line
    or, in a convolution, a pixel's channels, and one element of ``w`` if the kernel has several. None for the
    dynamic number of rows. Other dynamic numbers count as multiples of the widest copy: a library serves
    calls in which they are none by another plan."""
    role: Role = "cols" if workload.weights == "direct" else "depth"
    x, w = _line(workload, "depth"), _line(workload, role)
    if not windows_of(workload):
        return x, w
    inner = axes_of(workload, "depth")[-1]
    channels = None if inner.dims else inner.low
    return channels, w if channels == w else 1


def _line(workload: Workload, role: Role) -> int | None:
    same = name_of_role(workload, role) == name_of_role(workload, "rows")
    return static_extent(workload, role) or (None if same else COPY_BYTES)


def windows_of(workload: Workload) -> tuple[Window, ...]:
    """Returns the windows that an operator moves over its input."""
    return tuple(axis.extent for axis in workload.axes if isinstance(axis.extent, Window))


def padded_windows(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Returns the windows along dimensions with padding, which may cover elements beyond an image."""
    return tuple(window for window in windows if window.before or window.after)


def launched_registers(kernel: CudaMicroKernel, gpu: GpuLimits) -> int:
    """Returns the estimated number of a thread's registers at the launch."""
    if kernel.pieces.producers:
        return registers_of_roles(kernel).launched
    return min(thread_registers(kernel), gpu.registers_per_thread)


def copied_elements(extent: object, itemsize: int) -> int:
    """Returns the number of elements in the widest copy (16, 8 or 4 bytes) that divides lines of this extent;
    1 if no copy does, or if the extent is dynamic (a name).
    """
    most = COPY_BYTES // itemsize
    if not isinstance(extent, int):
        return 1
    return next((width for width in (most, most // 2, most // 4) if extent % width == 0), 1)


def compiled_registers(kernel: CudaMicroKernel, gpu: GpuLimits) -> int:
    """Returns the estimated number of a thread's registers after compilation: no more than a thread can have,
    and no more than the requested resident blocks leave.
    """
    if kernel.pieces.producers:
        return launched_registers(kernel, gpu)
    room = gpu.registers_per_sm // (kernel.resident * kernel.threads)
    return max(1, min(thread_registers(kernel), gpu.registers_per_thread, room))


def shared_bytes(kernel: CudaMicroKernel, itemsize: int) -> int:
    """Returns the shared memory of one block in bytes: for its stages or for what threads exchange at the
    end, whichever is larger, plus its barriers.

    This memory suffices for both layouts of ``w``. Stages for ``wgmma`` are swizzled, not padded.

    Args:
        itemsize: the number of bytes of an element.
    """
    pad = 0 if kernel.unit in GROUPED else ROW_PAD_BYTES
    elements = (kernel.rows + kernel.cols) * kernel.step
    padded = kernel.rows // kernel.run_rows + max(kernel.cols // kernel.panel_run_cols, kernel.step)
    stage = elements * itemsize + padded * pad
    return max(kernel.stages * stage, exchanged_bytes(kernel)) + barrier_bytes(kernel)


def ordered_pitch(kernel: CudaMicroKernel) -> int:
    """Returns the number of float32 from a row of ordered sums in shared memory to the next: 16 bytes more
    than its columns, so that the 4 x 8 sums that a warp puts there at a time lie in different banks."""
    return kernel.cols + COPY_BYTES // 4


def exchanged_bytes(kernel: CudaMicroKernel) -> int:
    """Returns the bytes of shared memory for the larger of two uses: slices, or blocks of a cluster, exchange
    their sums; and 16-bit outputs are put in order before they are stored, those of exchanged operands as
    sums. None if blocks remain: the stages of their next tile are there."""
    if kernel.persistent:
        return 0
    if kernel.unit == "swapped":
        return 4 * kernel.rows * ordered_pitch(kernel)
    tile = 4 * kernel.rows * kernel.cols
    ordered = 2 * kernel.rows * (kernel.cols + COPY_BYTES // 2) if kernel.unit != "fma" else 0
    return max(tile * max(kernel.slices - 1, kernel.sharing > 1), ordered)

"""The sizes of a convolution's images at a call, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence

from dietlab.base.errors import DispatchError
from dietlab.problem import Workload
from dietlab.problem.dims import Window


def windows_of(workload: Workload) -> list[Window]:
    """Returns the windows of a convolution, in the order of the image's dimensions; none of a product."""
    return [size for size in workload.signature["out"] if isinstance(size, Window)]


def positions(windows: Sequence[Window], sizes: Sequence[int]) -> list[int]:
    """Returns the size of an output image.

    Raises:
        DispatchError: if a window does not fit into the padded image, as PyTorch does.
    """
    found = [window.positions(size) for window, size in zip(windows, sizes, strict=False)]
    for window, size, count in zip(windows, sizes, found, strict=False):
        if count < 1:
            raise DispatchError(
                f"{window.dim} of an image must be {window.least} or more, so that the kernel fits into it",
                f"{window.dim}={size}",
                f"{window.kernel} elements with dilation {window.dilation} meet {size} elements with "
                f"{window.before} zeros before and {window.after} after them.",
            )
    return found


def channels_first(workload: Workload, shape: Sequence[int]) -> str:
    """Returns a remedy if the input of this shape has its channels where PyTorch has them; else an empty
    text."""
    wanted = workload.signature["x"]
    if not windows_of(workload) or len(shape) != len(wanted) or shape[1] != wanted[-1]:
        return ""
    order = (0, *range(2, len(shape)), 1)
    return (
        f"The channels of x must come last: x.permute{order}.contiguous() of a tensor, which copies nothing "
        f"if the tensor is in channels_last memory, or np.ascontiguousarray(x.transpose{order}) of an array."
    )

"""Convolutions by PyTorch's eager operator, on any device.

PyTorch's tensors have the channels second; images in memory with the channels last are read as such tensors
without a copy (memory format ``channels_last``). A sequence is an image of one line, since PyTorch copies a
sequence whose channels come last before each call. PyTorch's operators pad both sides of a dimension by the
same number of zeros. If the numbers differ, the image is first copied to a larger one in the call, as PyTorch
itself does for ``padding="same"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dietlab.compare.vendor import GELU_FORM, Call
from dietlab.problem.convolution import Convolution

Tensors = Mapping[str, Any]
"""Operands as PyTorch's tensors, by name."""


@dataclass(frozen=True)
class Sliding:
    """The options of a convolution over images as PyTorch takes them, a number for each of H and W.

    Args:
        padding: the zeros on both sides.
        more: the zeros that one side has more: left, right, top and bottom.
    """

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    more: list[int]

    @classmethod
    def of(cls, work: Convolution) -> Sliding:
        """Returns the options of a convolution; a sequence has one line."""
        line = 2 - len(work.image)
        pads = [(0, 0)] * line + list(work.padding)
        both = [min(pair) for pair in pads]
        more = [side - common for pair, common in zip(pads, both, strict=True) for side in pair]
        ones = [1] * line
        return cls([*ones, *work.stride], both, [*ones, *work.dilation], work.groups, more[2:] + more[:2])

    @property
    def arguments(self) -> tuple[list[int], list[int], list[int], int]:
        """Padding, stride, dilation and groups, in the order of oneDNN's operators in PyTorch."""
        return self.padding, self.stride, self.dilation, self.groups

    def larger(self, size: list[int]) -> list[int]:
        """Returns the size ``[N, C, H, W]`` of an image with :attr:`more` zeros."""
        left, right, top, bottom = self.more
        return [*size[:2], size[2] + top + bottom, size[3] + left + right]


class Unarranged:
    """A result with the channels second, or in fewer dimensions. It has the methods by which an
    :class:`~dietlab.measure.timing.device.Output` takes a new tensor; only :meth:`contiguous`, which is not
    timed, arranges it.

    Args:
        found: the tensor that the library returned.
    """

    __slots__ = ("found", "shape")

    def __init__(self, found: Any, shape: tuple[int, ...]) -> None:
        self.found, self.shape = found, shape

    def data_ptr(self) -> int:
        """Returns the address of the result."""
        return int(self.found.data_ptr())

    def contiguous(self) -> Any:
        """Returns the result as a tensor of the output's shape."""
        return self.found.movedim(1, -1).reshape(self.shape).contiguous()


def images(given: Any) -> Any:
    """Returns a tensor ``[N, H, W, C]`` or ``[N, L, C]`` as images ``[N, C, H, W]`` in the same memory."""
    return (given if given.ndim == 4 else given.unsqueeze(1)).permute(0, 3, 1, 2)


def kernels(w: Any) -> Any:
    """Returns weights ``[OC, IC / groups, KH, KW]`` or ``[OC, IC / groups, KL]`` as those of images."""
    return w if w.ndim == 4 else w.unsqueeze(2)


def padded(
    torch: Any, x: Any, more: list[int], compute: Callable[[Any], Any], zero: int = 0
) -> Callable[[], Any]:
    """Returns a call that computes on ``x``, in which a copy with ``more`` zeros is made first if needed.

    Args:
        zero: the zero point of ``x``.
    """
    if not any(more):
        return partial(compute, x)
    pad = torch.constant_pad_nd
    return lambda: compute(pad(x, more, zero))


def finished(
    compute: Callable[[], Any], finish: Sequence[Callable[[Any], Any]], shape: tuple[int, ...]
) -> Call:
    """Returns a call that changes what ``compute`` returns in place, step by step."""

    def call() -> Unarranged:
        found = compute()
        for change in finish:
            change(found)
        return Unarranged(found, shape)

    return call


def channels_last(torch: Any, w: Any) -> Any:
    """Returns weights for :func:`eager`: ``model.to(memory_format=torch.channels_last)`` stores them in this
    way, once."""
    return kernels(w).contiguous(memory_format=torch.channels_last)


def eager(torch: Any, work: Convolution, given: Tensors, shape: tuple[int, ...]) -> Call:
    """Returns ``functional.conv2d`` on images with the channels last, and the epilogue."""
    options, activation, w, bias = Sliding.of(work), work.epilogue.activation, given["w"], given.get("bias")
    stride, both, dilation, groups = options.stride, options.padding, options.dilation, options.groups
    finish: list[Callable[[Any], Any]] = []
    if activation == "relu":
        finish.append(torch.relu_)
    elif activation != "none":
        finish.append(partial(torch._C._nn.gelu_, approximate=GELU_FORM[activation]))
    if work.epilogue.residual:
        residual = images(given["residual"])
        finish.insert(0 if work.epilogue.before else len(finish), lambda found: found.add_(residual))
    convolve = torch.conv2d
    compute = padded(
        torch,
        images(given["x"]),
        options.more,
        lambda x: convolve(x, w, bias, stride, both, dilation, groups),
    )

    return finished(compute, finish, shape)

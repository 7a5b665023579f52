"""Walks through a network and notes the convolutions that it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dietlab.problem.convolution import Conv1d, Conv2d, Convolution
from dietlab.problem.dims import Dim, Window

Size = tuple[int, ...]
"""The size of an image: height and width in pixels, or the length of a sequence."""


@dataclass(frozen=True, order=True)
class Kernel:
    """The fixed numbers of a convolution in a network: channels and kernel, but not the image's size."""

    IC: int
    OC: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @classmethod
    def of(cls, workload: Convolution) -> Kernel | None:
        """Returns the kernel of a convolution; None if it is not square or is dilated. Of a range of channels
        it has the largest number."""
        sides = list(zip(workload.kernel, workload.stride, workload.padding, workload.dilation, strict=True))
        kernel, stride, (before, after), dilation = sides[0]
        if before != after or dilation > 1 or any(side != sides[0] for side in sides):
            return None
        assert isinstance(workload, (Conv1d, Conv2d))
        inner, outer = (c.high if isinstance(c, Dim) else c for c in (workload.IC, workload.OC))
        return cls(inner, outer, kernel, stride, before, workload.groups)

    def workload(self, images: Dim | int, size: tuple[Dim | int, ...], dtype: str) -> Conv1d | Conv2d:
        """Returns the operator for numbers or ranges of images and of their sizes."""
        form = Conv1d if len(size) == 1 else Conv2d
        sides: dict[str, Any] = dict(zip(form.image, size, strict=True))
        return form(images, **sides, **asdict(self), dtype=dtype)


@dataclass(frozen=True)
class Image:
    """The output of one layer, which the next one reads: its size and its channels."""

    size: Size
    channels: int


@dataclass
class Walk:
    """Collects the convolutions that a network calls for one input.

    ``calls`` has the number of calls in one pass, by kernel and by the size of the image that it meets.
    """

    calls: dict[tuple[Kernel, Size], float] = field(default_factory=dict)

    def conv(
        self,
        image: Image,
        outer: int,
        kernel: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        calls: float = 1.0,
    ) -> Image:
        """Notes a convolution, and returns the image that it makes.

        Args:
            image: what it reads.
            outer: the number of output channels.
            padding: None keeps the size of an odd kernel without stride.
            calls: how often it is called for this image.
        """
        beside = (kernel - 1) // 2 if padding is None else padding
        called = Kernel(image.channels, outer, kernel, stride, beside, groups), image.size
        self.calls[called] = self.calls.get(called, 0.0) + calls
        return Image(moved(image.size, kernel, stride, beside), outer)


def moved(size: Size, kernel: int, stride: int, padding: int) -> Size:
    """Returns the number of a kernel's positions on each side of an image."""
    return tuple(Window("", side, kernel, stride, padding, padding).positions(side) for side in size)


@dataclass(frozen=True)
class Network:
    """A published network: its convolutions, and the inputs that it is used with.

    Args:
        paper: the paper that gives its layers.
        walk: calls the network's layers for an input of a size.
        sizes: usual sizes of an input, with weights; or the name of a traffic table.
        batches: usual numbers of images in a call.
        step: the number of input elements that stand for one unit of a traffic table.
    """

    paper: str
    walk: Callable[[Walk, Size], object]
    sizes: Mapping[Size, float] | str
    batches: tuple[int, ...] = (1,)
    step: int = 1

    def calls(self, size: Size) -> Mapping[tuple[Kernel, Size], float]:
        """Returns the calls in one pass over an input, by kernel and size of the image."""
        walk = Walk()
        self.walk(walk, size)
        return walk.calls

    @property
    def sides(self) -> int:
        """The number of numbers in a size: 2 for images, 1 for sequences."""
        return 1 if isinstance(self.sizes, str) else len(next(iter(self.sizes)))

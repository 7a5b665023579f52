"""Operators of PyTorch's convolutions."""

from __future__ import annotations

from typing import Any

import torch

from dietlab.problem import USUAL, Conv1d, Conv2d, Dim
from dietlab.problem.dims import holds

Extent = Dim | int
Operator = Conv1d | Conv2d


def operator_options(module: Any) -> dict[str, Any]:
    """Returns the arguments of a convolution's operator but for the sizes and the epilogue."""
    pads = (0,) * len(module.kernel_size) if isinstance(module.padding, str) else module.padding
    if module.padding == "same":
        reaches = zip(module.kernel_size, module.dilation, strict=True)
        padding = tuple(_same(dilation * (kernel - 1)) for kernel, dilation in reaches)
    else:
        padding = tuple((pad, pad) for pad in pads)
    return {
        "IC": module.in_channels,
        "OC": module.out_channels,
        "kernel": tuple(module.kernel_size),
        "stride": tuple(module.stride),
        "padding": padding,
        "dilation": tuple(module.dilation),
        "groups": module.groups,
    }


def operator_of(module: Any, sizes: tuple[Extent, ...], **channels: Extent) -> Operator:
    """Returns the operator of a convolution of PyTorch, for the extents of N, H and W (or L).

    Args:
        channels: ranges ``IC`` and ``OC`` (default: the module's channels).

    Raises:
        WorkloadError: if the smallest image gives no output.
    """
    kind = _kind(module)
    extents = dict(zip(("N", *kind.image), sizes, strict=True))
    return kind(**extents, **{**operator_options(module), **channels}, bias=True)


def is_of(work: object, module: Any) -> bool:
    """Returns whether an operator is that of a convolution of PyTorch, whatever its sizes and epilogue. Its
    channels may be ranges."""
    if type(work) is not _kind(module) or work.dtype != USUAL:
        return False
    options = operator_options(module)
    channels = {name: options.pop(name) for name in ("IC", "OC")}
    return all(holds(getattr(work, name), number) for name, number in channels.items()) and all(
        getattr(work, name) == value for name, value in options.items()
    )


def _kind(module: Any) -> type[Conv1d] | type[Conv2d]:
    return Conv2d if isinstance(module, torch.nn.Conv2d) else Conv1d


def _same(total: int) -> tuple[int, int]:
    """Returns the zeros before and after of PyTorch's padding ``"same"``."""
    return total // 2, total - total // 2


def extents_of(work: Operator) -> tuple[Extent, ...]:
    """Returns the extents of an operator's image: H and W, or L."""
    return tuple(getattr(work, name) for name in work.image)


def layer_text(module: Any) -> str:
    """Returns a convolution's channels and window as text."""
    return f"{module.in_channels} to {module.out_channels} channels with {_window_text(module)}"


def _window_text(module: Any) -> str:
    options = ("kernel_size", "stride", "padding", "dilation", "groups")
    return ", ".join(f"{name.removesuffix('_size')}={getattr(module, name)}" for name in options)

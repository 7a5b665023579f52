"""Convolutions of PyTorch models computed by tuned libraries, with batch norm and activation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dietlab.torch.activations import APPLY, class_of
from dietlab.torch.convolution_operator import extents_of
from dietlab.torch.layers import TunedLayer, is_nested, is_plain

_convolution = torch.ops.dietlab.convolution.default
_pack = torch.ops.dietlab.pack_convolution.default

OPTIONS = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "groups",
    "padding_mode",
)
"""The attributes of a convolution that a library is built for."""


class Convolution(TunedLayer):
    """A convolution computed by tuned libraries (:class:`~dietlab.torch.layers.TunedLayer`).

    The output is PyTorch's, ``[N, OC, OH, OW]``, in channels-last memory; so convolutions one after the other
    copy nothing. An input in other memory is copied once.

    Libraries add a bias; it is zero for a layer without one. A batch norm with fixed statistics is folded
    into the weights when they are packed. All parameters and buffers stay where they are.
    """

    norm: type[torch.nn.Module]
    """The class of batch norm that may follow."""

    options: tuple[Any, ...] = ()
    """The values of :data:`OPTIONS` that the libraries are built for; PyTorch computes others."""

    sizes: tuple[int, ...] = ()
    """The extents of N, H and W (or L) that the libraries are built for; 0 for any. PyTorch computes the
    others."""

    window: tuple[int, ...] = ()
    """Four numbers for each dimension of the image: stride, zeros before and after it, and dilation."""

    def adopt(self, libraries: Mapping[str, str], work: Any, biased: bool) -> None:
        """Takes the libraries of an operator, by activation."""
        super().adopt(libraries, work, biased)
        self.options = options_of(self)
        self.sizes = tuple(size if isinstance(size, int) else 0 for size in (work.N, *extents_of(work)))
        sides = zip(work.stride, work.padding, work.dilation, strict=True)
        self.window = tuple(
            number for stride, pads, dilation in sides for number in (stride, *pads, dilation)
        )

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[N, OC, OH, OW]`` for ``input [N, C, H, W]``, or ``[N, OC, OL]`` for ``[N, C, L]``."""
        return self.activated(input, "none")

    def activated(self, input: Tensor, activation: str, norm: Any = None) -> Tensor:
        """Returns the activation of the layer's output, after a norm that :meth:`folds` accepts."""
        given = self._constants(norm)
        library = self.libraries.get(activation)
        # PyTorch's norm takes the result of a single sequence for a batch.
        batched = norm is None or (isinstance(input, Tensor) and input.dim() == len(self.sizes) + 1)
        if given is None or library is None or not batched or not is_plain(input) or is_nested(input):
            y = self._original(input)
            return APPLY[activation](y if norm is None else norm(y))
        return _convolution(input, *given, self.window, self.groups, activation, library, self.sizes)

    def folds(self, norm: Any) -> bool:
        """Returns whether a module is a batch norm of this layer's channels, with fixed statistics."""
        if class_of(norm) is not self.norm or norm.training or norm.num_features != self.out_channels:
            return False
        statistics = norm._buffers.get("running_mean"), norm._buffers.get("running_var")
        own = norm._parameters
        both = (own.get("weight") is None) == (own.get("bias") is None)
        return both and all(map(is_plain, statistics)) and all(v is None or is_plain(v) for v in own.values())

    def _constants(self, norm: Any) -> tuple[list[Tensor], Tensor | None, float] | None:
        """Returns the weights with the norm's tensors behind them, the bias, and the norm's epsilon; None if
        no library can compute the layer."""
        own = self._parameters
        weight, bias = own.get("weight"), own.get("bias", self)
        if not is_plain(weight) or not (bias is None or is_plain(bias)) or options_of(self) != self.options:
            return None
        if norm is None:
            return [weight], bias, 0.0
        tensors = [weight, norm.running_mean, norm.running_var, norm.weight, norm.bias]
        return [tensor for tensor in tensors if tensor is not None], bias, norm.eps

    def extra_repr(self) -> str:
        """Returns the text that PyTorch prints: options and libraries."""
        return f"{super().extra_repr()}, libraries={[*self.libraries.values()]}"

    def panels(self, activation: str, norm: Any = None) -> Tensor:
        """Returns the weights packed for the library with this activation, packing them if necessary; an
        empty tensor if PyTorch computes the layer."""
        with torch.no_grad():
            given, library = self._constants(norm), self.libraries.get(activation)
            return torch.empty(0) if given is None or library is None else _pack(*given, library)


class Conv2d(Convolution, torch.nn.Conv2d):  # type: ignore[misc]
    """A :class:`torch.nn.Conv2d` computed by tuned libraries."""

    norm = torch.nn.BatchNorm2d

    def _original(self, input: Tensor) -> Tensor:
        return torch.nn.Conv2d.forward(self, input)


class Conv1d(Convolution, torch.nn.Conv1d):  # type: ignore[misc]
    """A :class:`torch.nn.Conv1d` computed by tuned libraries."""

    norm = torch.nn.BatchNorm1d

    def _original(self, input: Tensor) -> Tensor:
        return torch.nn.Conv1d.forward(self, input)


def options_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """Returns what a library for a convolution depends on, besides the weights."""
    own = module.__dict__
    return tuple(own[name] for name in OPTIONS)

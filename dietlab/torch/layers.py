"""Layers of PyTorch models that run through tuned libraries: whatever a library does not take goes through
PyTorch, as it did before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from dietlab.torch import operators  # noqa: F401, which registers torch.ops.dietlab

_linear = torch.ops.dietlab.linear.default
_drop_packed = torch.ops.dietlab.drop_packed.default

Itself = TypeVar("Itself", bound="TunedLayer")

APPLY: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
}
"""PyTorch's functions for the activations of :class:`~dietlab.problem.Dense`."""

TRACED = (FakeTensor, FunctionalTensor, torch.fx.Proxy)
"""What stands for a plain tensor while PyTorch traces a model."""


def is_plain(value: object) -> bool:
    """Returns whether a value is a tensor of PyTorch's own class, or stands for one while a model is traced.

    What another class of tensors computes (quantised, distributed, nested, masked ones) is its own affair.
    """
    kind = type(value)
    return kind is Tensor or kind is torch.nn.Parameter or isinstance(value, TRACED)


class TunedLayer(torch.nn.Module):  # type: ignore[misc]
    """A class that is mixed into that of a layer, so that tuned libraries compute it.

    The layer stays the same object, with the same parameters, hooks and state. Float32 tensors on the CPU go
    through a library. All else goes through PyTorch: other types and devices, autocast, subclasses of
    tensors, weights that are computed at each call (pruned or parametrized ones). Weights are packed at the
    first call, and again after they changed; :func:`dietlab.torch.pack` says which changes go unseen.
    """

    libraries: Mapping[str, str] = {}
    """The folders of its libraries, by the activation that they compute with it; ``none`` is there."""

    biased: bool = False
    """Whether the libraries add a bias: where the layer has one since, or has none any more, PyTorch
    computes it."""

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """Returns the activation of the layer's output, ``[..., N]`` of ``input [..., K]``."""
        given = self._given(activation)
        if given is not None and is_plain(input) and not is_nested(input):
            weight, bias, library = given
            return _linear(input, weight, bias, activation, library)
        if given is not None and is_jagged(input):
            return by_lengths(partial(self.activated, activation=activation), input)
        return APPLY[activation](self._original(input))

    def _given(self, activation: str) -> tuple[Tensor, Tensor | None, str] | None:
        """Returns the weights ``[N, K]``, the bias, and the library that takes them, if one does."""
        own = self._parameters  # self.weight costs a microsecond: it is looked for elsewhere first
        weight, bias = own.get("weight"), own.get("bias", self)
        library = self.libraries.get(activation)
        if library is None or not is_plain(weight) or not (is_plain(bias) if self.biased else bias is None):
            return None
        return self._by_rows(weight), bias, library

    def panels(self, activation: str) -> Tensor:
        """Returns the weights as the library with this activation takes them, packed now unless they were;
        none where PyTorch computes the layer."""
        with torch.no_grad():
            given = self._given(activation)
            return torch.empty(0) if given is None else torch.ops.dietlab.pack(*given)

    def _by_rows(self, weight: Tensor) -> Tensor:
        """Returns the weights as ``[N, K]``."""
        return weight

    def _original(self, input: Tensor) -> Tensor:
        """Returns what the layer computed before its class was changed."""
        raise NotImplementedError

    def train(self: Itself, mode: bool = True) -> Itself:
        """Sets the mode, as PyTorch does, and packs the weights anew at the next call."""
        drop_packed(self)
        super().train(mode)
        return self

    def _apply(self: Itself, fn: Any, recurse: bool = True) -> Itself:  # to(), float(), share_memory(), ...
        drop_packed(self)
        super()._apply(fn, recurse)
        return self

    def _load_from_state_dict(self, *arguments: Any) -> None:
        drop_packed(self)
        super()._load_from_state_dict(*arguments)


class Linear(TunedLayer, torch.nn.Linear):  # type: ignore[misc]
    """A :class:`torch.nn.Linear` that runs through tuned libraries (:class:`TunedLayer`)."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` of ``input [..., K]``."""
        return self.activated(input, "none")

    def _original(self, input: Tensor) -> Tensor:
        return torch.nn.Linear.forward(self, input)

    def extra_repr(self) -> str:
        """Returns what PyTorch prints of it: sizes, and the library."""
        return f"{super().extra_repr()}, library={self.libraries.get('none')!r}"


def drop_packed(layer: torch.nn.Module) -> None:
    """Forgets the packed weights of a layer: its next call packs them."""
    weight = layer._parameters.get("weight")
    if is_plain(weight) and not isinstance(weight, TRACED):
        _drop_packed(weight)


def is_nested(input: Tensor) -> bool:
    """Returns whether a tensor is a batch of lengths in one; what stands for a tensor in a trace is none."""
    return not isinstance(input, torch.fx.Proxy) and input.is_nested


def is_jagged(input: object) -> bool:
    """Returns whether a tensor is a batch of lengths without padding, whose last dimension is one number."""
    nested = isinstance(input, Tensor) and input.is_nested and input.layout is torch.jagged
    return bool(nested) and input._ragged_idx < input.dim() - 1  # type: ignore[attr-defined]


def by_lengths(function: Callable[[Tensor], Tensor], input: Any) -> Tensor:
    """Returns a jagged tensor of what a function makes of the rows, all sequences one behind the other."""
    return torch.nested.nested_tensor_from_jagged(
        function(input.values()), input.offsets(), input.lengths(), jagged_dim=input._ragged_idx
    )

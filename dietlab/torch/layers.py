"""Layers of PyTorch models computed by tuned libraries, and by PyTorch where a library cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from dietlab.torch import operators  # noqa: F401, which registers torch.ops.dietlab
from dietlab.torch.activations import APPLY
from dietlab.torch.gpu_library import OPENED
from dietlab.torch.gpu_linear import called_directly

_linear = torch.ops.dietlab.linear.default
_drop_packed = torch.ops.dietlab.drop_packed.default

Itself = TypeVar("Itself", bound="TunedLayer")

TRACED = (FakeTensor, FunctionalTensor, torch.fx.Proxy)
"""Classes that stand for a plain tensor while PyTorch traces a model."""


def is_plain(value: object) -> bool:
    """Returns whether a value is a tensor of PyTorch's own class, or stands for one while a model is traced.

    Other classes of tensors (quantised, distributed, masked) compute products by themselves.
    """
    kind = type(value)
    return kind is Tensor or kind is torch.nn.Parameter or isinstance(value, TRACED)


class TunedLayer(torch.nn.Module):  # type: ignore[misc]
    """A base that is added to a layer's class, so that tuned libraries compute the layer.

    The layer stays the same object, with the same parameters, hooks and state. A library computes float32
    tensors on the CPU or, if it is for a GPU, tensors of its type there. PyTorch computes all else: other
    types and devices, autocast, subclasses of tensors, weights that are computed at each call (pruned or
    parametrized). On the CPU, weights are packed at the first call, and again after a change;
    :func:`dietlab.torch.pack` describes the changes that are not detected. A GPU reads them as they lie.
    """

    libraries: Mapping[str, str] = {}
    """The folders of its libraries by the activation that they compute with the layer, ``none`` included."""

    biased: bool = False
    """Whether the libraries add a bias. If the layer's bias was added or removed since, PyTorch computes the
    layer."""

    def adopt(self, libraries: Mapping[str, str], work: object, biased: bool) -> None:
        """Takes the libraries of an operator, by activation; ``biased``: the layer has a bias."""
        self.libraries, self.biased = libraries, biased

    def folds(self, norm: Any) -> bool:
        """Returns whether :meth:`activated` can also compute a module that follows the layer: a batch
        norm."""
        return False

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """Returns the activation of the layer's output, ``[..., N]`` for ``input [..., K]``."""
        given = self._given(activation)
        if given is not None and not torch.compiler.is_compiling():
            weight, bias, folder = given
            library = OPENED.get(folder)  # of a GPU
            if library is not None and (y := called_directly(library, input, weight, bias)) is not None:
                return y
        if given is not None and is_plain(input) and not is_nested(input):
            weight, bias, folder = given
            return _linear(input, weight, bias, activation, folder)
        if given is not None and is_jagged(input):
            return by_lengths(partial(self.activated, activation=activation), input)
        return APPLY[activation](self._original(input))

    def _given(self, activation: str) -> tuple[Tensor, Tensor | None, str] | None:
        """Returns the weights ``[N, K]``, the bias and the library; None if no library can compute the
        layer."""
        own = self._parameters  # self.weight costs a microsecond: Python looks elsewhere first
        weight, bias = own.get("weight"), own.get("bias", self)
        library = self.libraries.get(activation)
        if library is None or not is_plain(weight) or not (is_plain(bias) if self.biased else bias is None):
            return None
        return self._by_rows(weight), bias, library

    def panels(self, activation: str) -> Tensor:
        """Returns the weights packed for the library with this activation, packing them if necessary; an
        empty tensor if PyTorch computes the layer."""
        with torch.no_grad():
            given = self._given(activation)
            return torch.empty(0) if given is None else torch.ops.dietlab.pack(*given)

    def _by_rows(self, weight: Tensor) -> Tensor:
        """Returns the weights as ``[N, K]``."""
        return weight

    def _original(self, input: Tensor) -> Tensor:
        """Returns the layer's output by its original class."""
        raise NotImplementedError

    def train(self: Itself, mode: bool = True) -> Itself:
        """Sets the mode as PyTorch does; the next call packs the weights again."""
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
    """A :class:`torch.nn.Linear` computed by tuned libraries (:class:`TunedLayer`)."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` for ``input [..., K]``."""
        return self.activated(input, "none")

    def _original(self, input: Tensor) -> Tensor:
        return torch.nn.Linear.forward(self, input)

    def extra_repr(self) -> str:
        """Returns the text that PyTorch prints: sizes and the library."""
        return f"{super().extra_repr()}, library={self.libraries.get('none')!r}"


def drop_packed(layer: torch.nn.Module) -> None:
    """Drops the packed weights of a layer; its next call packs them again."""
    weight = layer._parameters.get("weight")
    if is_plain(weight) and not isinstance(weight, TRACED):
        _drop_packed(weight)


def is_nested(input: Tensor) -> bool:
    """Returns whether a tensor is nested, a batch of sequences of several lengths; in a trace it never is."""
    return not isinstance(input, torch.fx.Proxy) and input.is_nested


def is_jagged(input: object) -> bool:
    """Returns whether a nested tensor is stored without padding (jagged) and has a fixed last dimension."""
    nested = isinstance(input, Tensor) and input.is_nested and input.layout is torch.jagged
    return bool(nested) and input._ragged_idx < input.dim() - 1  # type: ignore[attr-defined]


def by_lengths(function: Callable[[Tensor], Tensor], input: Any) -> Tensor:
    """Calls a function once, on the rows of all sequences of a jagged tensor, and returns its results as a
    jagged tensor."""
    return torch.nested.nested_tensor_from_jagged(
        function(input.values()), input.offsets(), input.lengths(), jagged_dim=input._ragged_idx
    )

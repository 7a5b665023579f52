"""Layers that keep only packed weights, not their original ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from dietlab.torch.chains import Chain
from dietlab.torch.layers import TunedLayer, by_lengths, drop_packed, is_jagged, is_nested

_packed_linear = torch.ops.dietlab.packed_linear.default
ORIGINALS = ("weight", "bias")


class PackedLayer(TunedLayer):
    """A layer for inference in float32 on the CPU, without its original weights.

    Only its libraries can compute it: other types, autocast and gradients are errors.
    """

    buffer_of: dict[str, str]
    """The name of the buffer with the packed weights, by activation; usually one buffer serves all."""

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """Returns the activation of the layer's output, ``[..., N]`` for ``input [..., K]``."""
        if is_nested(input):
            one = partial(self.activated, activation=activation)
            if is_jagged(input):
                return by_lengths(one, input)
            return torch.nested.as_nested_tensor([one(part) for part in input.unbind()])
        return _packed_linear(
            input, self.panels(activation), self.out_features, self.in_features, self.libraries[activation]
        )

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` for ``input [..., K]``."""
        return self.activated(input, "none")

    def panels(self, activation: str) -> Tensor:
        """Returns the weights packed for the library with this activation."""
        return self._buffers[self.buffer_of[activation]]

    def extra_repr(self) -> str:
        """Returns the text that PyTorch prints: sizes and the library."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"library={self.libraries['none']!r}"
        )

    def register_parameter(self, name: str, param: torch.nn.Parameter | None) -> None:
        """Refuses a weight or bias, which no call would read."""
        if name in ORIGINALS and param is not None:
            raise AttributeError(_lost(name))
        super().register_parameter(name, param)

    def __getattr__(self, name: str) -> Any:
        if name in ORIGINALS:
            raise AttributeError(_lost(name))
        return super().__getattr__(name)


def _lost(name: str) -> str:
    return (
        f"a layer whose original weights were dropped has no {name}: only its libraries read its packed "
        "weights. dietlab.torch.pack(model) keeps the original weights."
    )


def drop_originals(layer: TunedLayer) -> int:
    """Drops the original weights of a layer, and returns the bytes of the packed ones; if PyTorch computes
    the layer, returns 0 and changes nothing."""
    panels = {activation: layer.panels(activation) for activation in layer.libraries}
    if not all(array.numel() for array in panels.values()):
        return 0
    # Packing does not depend on the activation: usually one array serves all.
    kept, buffer_of = dict[str, Tensor](), dict[str, str]()
    for activation, array in panels.items():
        same = (name for name, other in kept.items() if torch.equal(other, array))
        buffer_of[activation] = next(same, f"packed_{activation}")
        kept.setdefault(buffer_of[activation], array)
    if not isinstance(layer, PackedLayer):
        drop_packed(layer)
        rows, cols = layer._by_rows(layer.weight).shape
        del layer._parameters["weight"], layer._parameters["bias"]
        layer.__class__ = PackedLayer
        layer.in_features, layer.out_features, layer.buffer_of = cols, rows, buffer_of
        for name, array in kept.items():
            layer.register_buffer(name, array)
    return sum(array.nbytes for array in kept.values())


def read_elsewhere(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str]]:
    """Yields each tuned layer whose parent reads its weights, and the name of the parent's class, such as
    PyTorch's ``TransformerEncoderLayer`` or T5's."""
    for parent in model.modules():
        kind = parent.dietlab_class if isinstance(parent, Chain) else type(parent)
        named = {name: child for name, child in parent._modules.items() if isinstance(child, TunedLayer)}
        for name in named.keys() & _names_read(kind):  # type: ignore[arg-type]  # a class is hashable
            yield named[name], kind.__name__


@cache
def _names_read(kind: type[torch.nn.Module]) -> frozenset[str]:
    """Returns the attributes whose weight or bias the source of a class reads."""
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        return frozenset()
    return frozenset(re.findall(r"\bself\.(\w+)\.(?:weight|bias)\b", text))

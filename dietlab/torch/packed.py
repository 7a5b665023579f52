"""Layers of which only the packed weights are left."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from dietlab.torch.layers import TunedLayer, by_lengths, drop_packed, is_jagged

_packed_linear = torch.ops.dietlab.packed_linear.default
PANELS = "packed_{}"
"""The name of the buffer that holds the weights as the library with this activation takes them."""


class PackedLayer(TunedLayer):
    """A layer for inference in float32 on the CPU, whose original weights were dropped.

    Nothing but its libraries can compute it: other types, autocast and gradients are errors.
    """

    def activated(self, input: Tensor, activation: str) -> Tensor:
        """Returns the activation of the layer's output, ``[..., N]`` of ``input [..., K]``."""
        if is_jagged(input):
            return by_lengths(partial(self.activated, activation=activation), input)
        return _packed_linear(
            input, self.panels(activation), self.out_features, self.in_features, self.libraries[activation]
        )

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` of ``input [..., K]``."""
        return self.activated(input, "none")

    def panels(self, activation: str) -> Tensor:
        """Returns the weights as the library with this activation takes them."""
        return self._buffers[PANELS.format(activation)]

    def extra_repr(self) -> str:
        """Returns what PyTorch prints of it: sizes, and the library."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"library={self.libraries['none']!r}"
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "bias"):
            raise AttributeError(
                f"a layer whose original weights were dropped has no {name}: only its libraries read them. "
                "dietlab.torch.pack(model) keeps them."
            )
        return super().__getattr__(name)


def drop_originals(layer: TunedLayer) -> int:
    """Leaves a layer its packed weights alone, and returns their bytes; 0, and nothing changes, where PyTorch
    computes it."""
    panels = {activation: layer.panels(activation) for activation in layer.libraries}
    if not all(array.numel() for array in panels.values()):
        return 0
    # An activation changes nothing in how weights are packed: one array serves all.
    kept = list[Tensor]()
    for activation, array in panels.items():
        if (same := next((other for other in kept if torch.equal(other, array)), None)) is None:
            kept.append(same := array)
        panels[activation] = same
    if not isinstance(layer, PackedLayer):
        drop_packed(layer)
        rows, cols = layer._by_rows(layer.weight).shape
        del layer._parameters["weight"], layer._parameters["bias"]
        layer.__class__ = PackedLayer
        layer.in_features, layer.out_features = cols, rows
        for activation, array in panels.items():
            layer.register_buffer(PANELS.format(activation), array)
    return sum(array.nbytes for array in kept)

"""A linear layer of PyTorch that runs through a tuned library."""

from __future__ import annotations

import torch
from torch import Tensor

from dietlab.torch import operators  # noqa: F401, which registers torch.ops.dietlab

_linear = torch.ops.dietlab.linear.default


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """A :class:`torch.nn.Linear` with the same parameters, computed by a tuned library.

    Float32 tensors on the CPU go through the library, copied only if they are not contiguous; all others go
    through PyTorch. Weights are packed at the first call, and again after they were changed in place.
    ``state_dict`` is the original's.

    Args:
        linear: whose parameters it shares.
        library: the folder of a library for such layers (:func:`dietlab.build`).
        activation: computed at once, of the library: ``none``, ``relu``, ``gelu_tanh`` or ``gelu_erf``.
    """

    def __init__(self, linear: torch.nn.Linear, library: str, activation: str = "none") -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.__dict__.update(linear.__dict__)  # parameters, hooks, mode
        self.library, self.activation = library, activation

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` of ``input [..., K]``."""
        own = self._parameters  # self.weight costs a microsecond: it is looked for elsewhere first
        return _linear(input, own["weight"], own["bias"], self.activation, self.library)

    def extra_repr(self) -> str:
        """Returns what PyTorch prints of it: sizes, activation and library."""
        return f"{super().extra_repr()}, activation={self.activation}, library={self.library!r}"

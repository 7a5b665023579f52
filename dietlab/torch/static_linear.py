"""A linear layer of PyTorch computed by programs tuned for one number of rows each, to compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from dietlab.torch.operators import register_static_linear

register_static_linear()
_static_linear = torch.ops.dietlab.static_linear.default


class StaticLinear(torch.nn.Linear):  # type: ignore[misc]
    """A :class:`torch.nn.Linear` with the same parameters, for inference, computed by static programs.

    Calls with a number of rows without a program fail. Weights are packed at the first call with each number
    of rows, and again after a change in place.

    Set a layer's class to this one to make it such a layer. ``folder`` has its programs
    (:func:`~dietlab.compare.ansor.contender.tune_static`), named by their number of rows (``T=24.so``), with
    a bias if the layer has one.
    """

    folder: str

    def forward(self, input: Tensor) -> Tensor:
        """Returns ``[..., N]`` for ``input [..., K]``."""
        own = self._parameters
        return _static_linear(input, own["weight"], own["bias"], self.folder)

"""The layer of GPT-2 and its relatives, with weights ``[K, N]``, computed by tuned libraries."""

from __future__ import annotations

from torch import Tensor
from transformers.pytorch_utils import Conv1D as Original

from dietlab.torch.layers import TunedLayer


class Conv1D(TunedLayer, Original):  # type: ignore[misc]
    """A ``Conv1D`` of ``transformers`` computed by tuned libraries (:class:`TunedLayer`)."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``[..., N]`` for ``x [..., K]``."""
        return self.activated(x, "none")

    def _by_rows(self, weight: Tensor) -> Tensor:
        return weight.t()

    def _original(self, input: Tensor) -> Tensor:
        return Original.forward(self, input)

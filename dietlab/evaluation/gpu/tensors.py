"""PyTorch's tensors: copies of NumPy's arrays, and an output that shows missing and stray writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietlab.workloads import FloatArray

Tensor = Any
"""A PyTorch tensor; PyTorch is optional, so that types here cannot name its own."""

Tensors = Mapping[str, Tensor]

GUARD_BYTES = 512
"""Bytes of a guard before and after an output: a multiple of any alignment that PyTorch's allocator gives."""

GUARD_VALUE = -54321.0
"""No result of standard normal operands comes near it, so that a write beyond the output shows."""


def to_device(torch: Any, array: FloatArray, device: str) -> Tensor:
    """Returns a copy of an array on a device, in the same format. PyTorch does not know NumPy's bfloat16, so
    that halves travel as their bits."""
    if array.dtype.itemsize != 2:
        return torch.from_numpy(array).to(device, copy=True)
    bits = torch.from_numpy(array.view(np.int16)).to(device, copy=True)
    return bits.view(getattr(torch, array.dtype.name))


def to_host(torch: Any, tensor: Tensor, dtype: np.dtype[Any]) -> FloatArray:
    """Returns a tensor as an array of ``dtype``, which is the same format."""
    held = tensor.detach().cpu()
    bits = held.view(torch.int16) if dtype.itemsize == 2 else held
    array: FloatArray = bits.numpy().view(dtype)
    return array


@dataclass(frozen=True)
class Output:
    """An output with guards around it."""

    buffer: Tensor
    shape: tuple[int, ...]

    @classmethod
    def make(cls, torch: Any, shape: tuple[int, ...], dtype: str, device: str) -> Output:
        kind = getattr(torch, dtype)
        guards = 2 * GUARD_BYTES // torch.empty((), dtype=kind).element_size()
        return cls(torch.empty(math.prod(shape) + guards, dtype=kind, device=device), shape)

    @property
    def tensor(self) -> Tensor:
        return self.buffer[self._guard : -self._guard].view(self.shape)

    def poison(self) -> None:
        """Writes not-a-number where results belong, and the guards' value around them."""
        self.buffer.fill_(GUARD_VALUE)
        self.tensor.fill_(math.nan)

    @property
    def intact(self) -> bool:
        """True if the guards still have the value of :meth:`poison`."""
        value = self.buffer.new_full((), GUARD_VALUE)  # rounded as the guards are
        ends = (self.buffer[: self._guard], self.buffer[-self._guard :])
        return all(bool((end == value).all()) for end in ends)

    @property
    def _guard(self) -> int:
        return int(GUARD_BYTES // self.buffer.element_size())

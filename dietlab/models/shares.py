"""The shares of a whole model's time: in contractions, in attention, in the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.models.runtimes import Run

CONTRACTIONS = (
    "dietlab::linear",
    "dietlab::batch_matmul",
    "aten::addmm",
    "aten::mm",
    "aten::bmm",
    "aten::linear",
    "mkl::_mkl_linear",
    "mkldnn::_linear_pointwise",
)
"""PyTorch's names of products of matrices; ours compute the activation with them."""

ATTENTION = ("aten::_scaled_dot_product_flash_attention_for_cpu",)
"""PyTorch's fused attention: both batched products and the softmax."""


def time_shares(run: Run, words: Any, calls: int = 10) -> Mapping[str, float]:
    """Returns the shares of a call's time, on the calling thread and without waiting: ``contractions``,
    ``attention`` (where it is one kernel) and ``rest``, which together are 1.

    Args:
        run: a model of PyTorch; it was called with such words before.
        words: ``[batch, T]``.
        calls: over which the profiler sums.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(calls):
            run(words)
    times = {event.key: event.self_cpu_time_total for event in profiled.key_averages()}
    total = sum(times.values())
    found = {
        name: sum(times.get(key, 0.0) for key in keys) / total
        for name, keys in (("contractions", CONTRACTIONS), ("attention", ATTENTION))
    }
    return {**found, "rest": 1 - sum(found.values())}

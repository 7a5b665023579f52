"""Attention of ``transformers`` models with its two batched products computed by tuned libraries."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.compare.study import Study
from dietlab.problem import BatchMatmul, Workload
from dietlab.problem.dims import holds
from dietlab.torch import operators  # noqa: F401, which registers torch.ops.dietlab
from dietlab.torch.layers import is_plain
from dietlab.torch.libraries import SERVED, Served, library_of, require_served, serve

NAME = "dietlab"
"""Name of this attention in a model's configuration."""

PYTORCHS = "sdpa"
"""Name of PyTorch's ``scaled_dot_product_attention`` in a model's configuration."""


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def replace_attention(
    model: torch.nn.Module, scores: Study | str | Path, context: Study | str | Path
) -> torch.nn.Module:
    """Lets a model of ``transformers`` compute both batched products of attention by tuned libraries, in
    place, and returns the model.

    PyTorch still computes what the libraries do not support: queries and keys of different lengths (as with a
    cache), head sizes that were not tuned for, other types, autocast, and position biases.

    Args:
        model: a model that computes attention by PyTorch's ``scaled_dot_product_attention``.
        scores, context: studies of ``batch-matmul-nt`` and ``batch-matmul-nn`` over the head size, or their
            folders.

    Raises:
        MissingDependencyError: without ``transformers``.
        StudyError: if a study is of another operator, head size or processor, if its fixed number of products
            is no multiple of the heads, or if the model has another attention, which may do more (caps,
            sinks) than these products and a softmax.
    """
    try:
        import transformers.masking_utils  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "transformers must be installed", error, "pip install transformers."
        ) from None
    if not hasattr(model, "set_attn_implementation"):
        raise StudyError("attention can only be replaced in models of transformers", type(model).__name__)
    if (now := model.config._attn_implementation) not in (PYTORCHS, NAME):
        raise StudyError(
            f"attention can only be replaced in a model that computes it by PyTorch's {PYTORCHS}",
            f"{type(model).__name__} with {now}",
            f"model.set_attn_implementation({PYTORCHS!r}) selects it, if the model supports it.",
        )
    heads, size = _heads_of(model)
    studies = [s if isinstance(s, Study) else Study.open(s) for s in (scores, context)]
    served = []
    for study, form in zip(studies, ("nt", "nn"), strict=True):
        work = require_served(study, BatchMatmul, "products of attention")
        if work.form != form or not holds(work.D, size):
            raise StudyError(f"the study must be of batch-matmul-{form} with D={size}, a head's size", work)
        require_products(work, heads)
        served.append((work, study))
    given = serve(_register, *((work, library_of(study)) for work, study in served))
    model.set_attn_implementation(NAME)
    modules = [module for module in model.modules() if hasattr(module, "is_causal")]
    for module in modules:
        setattr(module, SERVED, given)
    if not modules:
        warnings.warn(f"no attention of {type(model).__name__} was replaced: it has none", stacklevel=2)
    return model


def require_products(work: Workload, heads: int, batch: int | None = None) -> None:
    """Checks that a study serves a model's number of products, batch x heads. If the batch is unknown, a
    study with a fixed number B passes if B is a multiple of the heads.

    Raises:
        StudyError: if the study has another fixed number of products.
    """
    fixed = work.B if isinstance(work, BatchMatmul) and isinstance(work.B, int) else None
    if fixed is not None and (fixed % heads if batch is None else fixed != batch * heads):
        raise StudyError(
            f"the study's B must be a range that holds batch x heads, {heads} for each sentence",
            f"B={fixed}",
            f"Tune with a range: `dietlab tune {work.operator} --dim B=1:{heads * (batch or 16)} ...`.",
        )


def _heads_of(model: torch.nn.Module) -> tuple[int, int]:
    """Returns the number of a model's heads, and their size."""
    config = model.config.get_text_config()
    heads, wide = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
    size = getattr(config, "head_dim", None) or (wide // heads if heads else 0)
    if not heads or not size:
        raise StudyError(
            "a model's configuration must have num_attention_heads, and hidden_size or head_dim",
            type(config).__name__,
        )
    return int(heads), int(size)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Returns attention's output ``[batch, T, heads, D]`` and, if libraries computed it, the weights
    ``[batch, heads, T, T]``.

    The attention modules of ``transformers`` call it like ``sdpa_attention_forward``.

    Args:
        query, key, value: tensors ``[batch, heads, T, D]``; keys and values may have fewer heads.
        attention_mask: a mask, which is added to the scores or, if boolean, is True for the scores that
            count.
        scaling: the factor of the scores; default ``D ** -0.5``.
        dropout: the probability of dropping a weight; 0 for inference.
        is_causal: without a mask, whether a query ignores later keys (default: the module's).
        position_bias: a bias that PyTorch's attention adds to the scores.
        others: further arguments of PyTorch's attention.
    """
    served = getattr(module, SERVED, None)
    groups = query.shape[1] // key.shape[1]
    if served is None or position_bias is not None or not _fits(served, query, key, value, attention_mask):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **others,
        )
    (_, scores_by), (_, context_by) = served.products
    if groups > 1:
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.ops.dietlab.batch_matmul(query * scale, key, True, scores_by)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1:
        attention_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    sees = None
    if attention_mask is not None and attention_mask.dtype is torch.bool:
        # A query that sees no key, as with padding on the left, gets zeros in place of 0 / 0.
        sees = attention_mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~attention_mask & sees, -torch.inf)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.softmax(scores, -1)
    if sees is not None:
        weights = weights.masked_fill(~sees, 0.0)
    weights = torch.nn.functional.dropout(weights, dropout)
    context = torch.ops.dietlab.batch_matmul(weights, value, False, context_by)
    return context.transpose(1, 2).contiguous(), weights


def _fits(
    served: Served[BatchMatmul], query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> bool:
    """Returns whether the libraries support these queries ``[batch, heads, T, D]``, keys and values."""
    tensors = (query, key, value)
    if query.shape[-2] != key.shape[-2] or not all(map(is_plain, tensors)):
        return False
    if any(t.dtype is not torch.float32 or not t.is_cpu for t in tensors):
        return False
    if torch.is_autocast_enabled(query.device.type) or (mask is not None and not is_plain(mask)):
        return False
    products = query.shape[0] * query.shape[1]
    for (work, _), depth in zip(served.products, (query.shape[-1], value.shape[-1]), strict=True):
        if not holds(work.D, depth) or (isinstance(work.B, int) and products != work.B):
            return False
    return True

"""Attention of ``transformers`` models whose two batched products run through tuned libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dietlab.dims import holds
from dietlab.errors import MissingDependencyError, StudyError
from dietlab.study import Study
from dietlab.torch import operators  # noqa: F401, which registers torch.ops.dietlab
from dietlab.torch.libraries import library_of, require_served
from dietlab.workloads import BatchMatmul, Workload

NAME = "dietlab"
"""What a model's configuration calls this attention."""

LIBRARIES = "dietlab_libraries"
"""The attribute of an attention module that names the libraries of its two products."""


def replace_attention(
    model: torch.nn.Module, scores: Study | str | Path, context: Study | str | Path
) -> torch.nn.Module:
    """Lets a model of ``transformers`` compute both batched products of attention by tuned libraries.

    It changes the model in place, and returns it. Queries and keys of different lengths, as with a cache,
    go through PyTorch.

    Args:
        model: one whose attention can be chosen (``set_attn_implementation``).
        scores, context: studies of ``batch-matmul-nt`` and ``batch-matmul-nn`` over the heads' size, or
            their folders.

    Raises:
        MissingDependencyError: without ``transformers``.
        StudyError: if a study is of another operator, head size or processor, of a fixed number of products
            that is no multiple of the heads, or if the model's attention cannot be chosen.
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    except ImportError as error:
        raise MissingDependencyError(
            "transformers is installed", error, "pip install transformers."
        ) from None
    if not hasattr(model, "set_attn_implementation"):
        raise StudyError("attention can be replaced in models of transformers", type(model).__name__)
    studies = [s if isinstance(s, Study) else Study.open(s) for s in (scores, context)]
    for study, form in zip(studies, ("nt", "nn"), strict=True):
        work = require_served(study, BatchMatmul, "products of attention")
        if work.form != form or not holds(work.D, _head_size(model)):
            raise StudyError(
                f"the study is of batch-matmul-{form} with D={_head_size(model)}, the size of a head", work
            )
        require_products(work, model.config.num_attention_heads)
    libraries = tuple(library_of(study) for study in studies)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    for module in model.modules():
        if hasattr(module, "scaling") and hasattr(module, "is_causal"):
            setattr(module, LIBRARIES, libraries)
    return model


def require_products(work: Workload, heads: int, batch: int | None = None) -> None:
    """Checks that a study of batched products serves as many as a model has, batch x heads.

    Args:
        batch: sentences in a call (default: unknown, so that a fixed number may be of any batch).

    Raises:
        StudyError: if the study is of another, fixed number.
    """
    fixed = work.B if isinstance(work, BatchMatmul) and isinstance(work.B, int) else None
    if fixed is not None and (fixed % heads if batch is None else fixed != batch * heads):
        raise StudyError(
            f"the study's B is a range that holds batch x heads, {heads} for each sentence",
            f"B={fixed}",
            f"Tune with a range: `dietlab tune {work.operator} --dim B=1:{heads * (batch or 16)} ...`.",
        )


def _head_size(model: torch.nn.Module) -> int:
    config = model.config
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Returns attention's output ``[batch, T, heads, D]`` and its weights ``[batch, heads, T, T]``.

    The attention modules of ``transformers`` call it.

    Args:
        query, key, value: ``[batch, heads, T, D]``; there may be fewer heads of keys and values.
        attention_mask: is added to the scores; or, if boolean, says which count.
        scaling: of the scores; ``D ** -0.5`` by default.
        is_causal: whether a query sees no key behind it, where there is no mask (default: the module's).
    """
    scores_by, context_by = getattr(module, LIBRARIES)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.ops.dietlab.batch_matmul(query * scale, key, True, scores_by)
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1:
        every = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        attention_mask = every.tril(scores.shape[-1] - scores.shape[-2])
    if attention_mask is not None:
        if attention_mask.dtype is torch.bool:
            scores = scores.masked_fill(~attention_mask, -torch.inf)
        else:
            scores = scores + attention_mask
    weights = torch.nn.functional.dropout(torch.softmax(scores, -1), dropout, module.training)
    context = torch.ops.dietlab.batch_matmul(weights, value, False, context_by)
    return context.transpose(1, 2).contiguous(), weights

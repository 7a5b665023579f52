"""Mixtures of experts of ``transformers`` models with dense layers computed by tuned libraries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.compare.study import Study
from dietlab.problem import Dense
from dietlab.torch.layers import is_plain
from dietlab.torch.libraries import SERVED, library_of, require_served, serve, unserved

NAME = "dietlab"
"""Name of these experts in a model's configuration."""

WEIGHTS = ("gate_up_proj", "up_proj", "down_proj")
"""Parameters of a module of experts, ``[experts, N, K]``. A module has one of the first two."""


def _register() -> None:
    from transformers.integrations.moe import ExpertsInterface

    ExpertsInterface.register(NAME, experts)


def replace_experts(model: torch.nn.Module, study: Study | str | Path) -> torch.nn.Module:
    """Lets a model of ``transformers`` compute its experts' layers by a tuned library, in place, and returns
    the model.

    Each expert gets another number of tokens at each call; the library serves any number. PyTorch computes
    the experts if gradients are needed.

    Args:
        model: a model whose implementation of experts can be chosen (``set_experts_implementation``).
        study: a study of ``Dense`` over these layers' N and K, or its folder.

    Raises:
        MissingDependencyError: without ``transformers``.
        StudyError: if the study is of another operator or processor, or the model has no such experts.

    Warns:
        UserWarning: names each module of experts that the study does not serve; it stays PyTorch's.
    """
    try:
        import transformers.integrations.moe  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "transformers must be installed", error, "pip install transformers."
        ) from None
    if not hasattr(model, "set_experts_implementation") or not any(True for _ in experts_of(model)):
        raise StudyError("experts can only be replaced in models of transformers", type(model).__name__)
    opened = study if isinstance(study, Study) else Study.open(study)
    served = require_served(opened, Dense, "layers of experts")
    given = serve(_register, (served, library_of(opened, bias=False, activation="none")))
    for name, module in experts_of(model):
        reason = _unserved(module, opened)
        if reason:
            warnings.warn(f"{name} stays PyTorch's: {reason}", stacklevel=2)
        else:
            setattr(module, SERVED, given)
    model.set_experts_implementation(NAME)
    return model


def experts_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields every module of experts of ``transformers`` with its path."""
    for name, module in model.named_modules():
        if hasattr(module, "has_gate") and hasattr(module, "down_proj"):
            yield name, module


def layer_weights(module: torch.nn.Module) -> Iterator[Tensor]:
    """Yields the weights ``[experts, N, K]`` of a module of experts."""
    for name in WEIGHTS:
        weights = getattr(module, name, None)
        if isinstance(weights, Tensor):
            yield weights


def pack_experts(model: torch.nn.Module) -> int:
    """Packs the weights of a model's experts again, now, and returns the bytes of the packed weights."""
    taken = 0
    for _, module in experts_of(model):
        served = getattr(module, SERVED, None)
        if served is None:
            continue
        ((_, library),) = served.products
        for weights in filter(is_plain, layer_weights(module)):
            torch.ops.dietlab.drop_packed(weights)
            with torch.no_grad():
                packed = (torch.ops.dietlab.pack(w, None, library) for w in weights)
                taken += sum(panels.nbytes for panels in packed)
    return taken


def experts(module: torch.nn.Module, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """Returns the weighted sum of the chosen experts' outputs ``[tokens, hidden]``.

    Modules of experts of ``transformers`` call it. Tokens are sorted by expert, so that the rows of an expert
    are adjacent::

        chosen   e1 e0 | e0 e2 | e1 e2     the two experts of each of three tokens
        rows     t0 t1   t0 t2   t1 t2     tokens by expert
        ends        2       4       6      of the rows of e0, e1, e2

    Args:
        hidden: the experts' input, ``[tokens, hidden]``.
        chosen: the experts of each token, ``[tokens, k]``.
        shares: the weights of these experts in the sum, ``[tokens, k]``.
    """
    served = getattr(module, SERVED, None)
    tensors = (hidden, *layer_weights(module))
    trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    plain = all(map(is_plain, tensors))
    mixed = torch.is_autocast_enabled(hidden.device.type) or hidden.dtype is not torch.float32
    if served is None or trained or mixed or not plain or module._is_expert_parallel:
        from transformers.integrations.moe import grouped_mm_experts_forward

        return grouped_mm_experts_forward(module, hidden, chosen, shares)
    ((_, library),) = served.products
    first = module.gate_up_proj if module.has_gate else module.up_proj
    ordered, order = chosen.reshape(-1).sort()
    numbers = torch.arange(first.size(0), device=ordered.device, dtype=ordered.dtype)
    ends = torch.searchsorted(ordered, numbers, right=True)
    rows = hidden[order // chosen.size(-1)]
    between = torch.ops.dietlab.grouped_linear(rows, first, ends, library)
    between = module._apply_gate(between) if module.has_gate else module.act_fn(between)
    found = torch.ops.dietlab.grouped_linear(between, module.down_proj, ends, library)
    weighted = torch.empty_like(found)
    weighted[order] = found * shares.reshape(-1)[order].unsqueeze(-1)
    return weighted.view(*chosen.shape, -1).sum(1).to(hidden.dtype)


def _unserved(module: torch.nn.Module, study: Study) -> str:
    """Returns why a study does not serve a module of experts; empty if it does."""
    if (other := next((w for w in layer_weights(module) if not is_plain(w)), None)) is not None:
        return f"its weights are a {type(other).__name__}, which computes by itself"
    if module.has_bias or module.is_transposed or module.has_post_expert_norm:
        return "its layers have a bias, a norm behind them, or transposed weights"
    return next((reason for weights in layer_weights(module) if (reason := unserved(weights, study))), "")

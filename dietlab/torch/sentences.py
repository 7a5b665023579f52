"""Sentences of warnings: the layers of a model that no library computes, or not together with others."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

import torch

from dietlab.compare.study import Study
from dietlab.torch.choices import Choice
from dietlab.torch.found import ModelLayer
from dietlab.torch.fusions import norms_in

NAMED = 8
"""The largest number of layers that a warning names: there may be hundreds with similar names."""

Sought = Literal["linear layer", "convolution"]
"""A kind of layer that is looked for in a model."""

LINEAR: Sought = "linear layer"
CONVOLUTIONS: Sought = "convolution"


def warn_of(sentences: Iterable[str]) -> None:
    """Warns of each sentence, at the line that called the caller's caller."""
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)


def exceptions(
    model: torch.nn.Module, choices: Iterable[tuple[ModelLayer, Choice]], sought: Collection[Sought]
) -> Iterator[str]:
    """Yields a sentence for each reason why some layers of the sought kinds are not tuned, or not computed
    with others."""
    names: dict[str, list[str]] = {}
    for layer, choice in choices:
        names.setdefault("" if isinstance(choice, Study) else choice, []).append(layer.name)
    tuned = names.pop("", [])
    if not tuned:
        lacking = "" if names else f": it has no {' and no '.join(sought)}"
        yield f"no layer of {type(model).__name__} was replaced{lacking}"
    for reason, kept in names.items():
        yield f"{enumerated(kept)} {_stay(kept)} PyTorch's: {reason}"
    if CONVOLUTIONS in sought:
        trained = [name for name, training in norms_in(model) if training]
        if trained:
            yield (
                f"{enumerated(trained)} {_stay(trained)} apart from the convolution before: a batch norm in "
                "training mode changes with each batch. Both are computed together after model.eval()"
            )
    if LINEAR in sought:
        yield from _bypassed(model)


def _stay(names: list[str]) -> str:
    return "stays" if len(names) == 1 else "stay"


def enumerated(names: list[str]) -> str:
    """Returns at most :data:`NAMED` names for a sentence, and the number of the others."""
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{others}"


def _bypassed(model: torch.nn.Module) -> Iterator[str]:
    """Yields a sentence that names the encoder layers that PyTorch computes whole, from their weights;
    nothing if there are none."""
    if not torch.backends.mha.get_fastpath_enabled():
        return
    names = [
        name or "the model itself"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.TransformerEncoderLayer) and module.self_attn.batch_first
    ]
    if names:
        yield (
            f"{enumerated(names)}: in eval(), without gradients, PyTorch computes a whole "
            "TransformerEncoderLayer from its weights and calls none of its layers. "
            "torch.backends.mha.set_fastpath_enabled(False) lets tuned layers compute it"
        )

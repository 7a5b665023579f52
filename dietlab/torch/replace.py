"""Replaces the linear layers of a model by those of a study."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from dietlab.compare.study import Study
from dietlab.problem import Dense
from dietlab.torch.chains import Chain, make_chain
from dietlab.torch.found import ModelLayer, activations_behind, chains_in, layers_in
from dietlab.torch.layers import drop_packed
from dietlab.torch.libraries import library_of, require_served, unserved

NAMED = 8
"""The largest number of layers that a warning names: there may be hundreds with similar names."""


def replace_linears(model: torch.nn.Module, study: Study | str | Path) -> torch.nn.Module:
    """Lets a study's libraries compute every linear layer of a model that it serves, in place, and returns
    the model.

    Layers stay the same objects with the same parameters, hooks and state; only their class changes. A module
    that calls a layer and then ReLU or GELU changes its class too: both are then computed together. Nothing
    in the model is called. Layers that were replaced before get this study's libraries.

    Args:
        model: a model with layers of :class:`torch.nn.Linear` or ``Conv1D`` of ``transformers``, or one such
            layer.
        study: a tuned study of ``Dense``, or its folder. A library for every epilogue that the model needs is
            built once and kept there.

    Raises:
        StudyError: if the study is of another operator or processor, or was not tuned.
        BuildError: if a library does not compile; the model stays as it was.

    Warns:
        UserWarning: names the layers that stay PyTorch's, with the reason.
    """
    opened = study if isinstance(study, Study) else Study.open(study)
    served = require_served(opened, Dense, "linear layers")
    found = layers_in(model)
    reasons = {layer: layer.reason or unserved(layer.weights, served) for layer in found}
    chosen = {id(layer.module): layer for layer, reason in reasons.items() if not reason}
    chains = [
        (parent, names, behind)
        for parent, names, steps in chains_in(model)
        if (behind := [pair for pair in activations_behind(steps) if id(pair[0]) in chosen])
    ]
    needed = {key: {"none": ""} for key in chosen}
    for *_, behind in chains:
        for module, activation in behind:
            needed[id(module)][activation] = ""
    for key, layer in chosen.items():
        for activation in needed[key]:
            needed[key][activation] = library_of(opened, bias=layer.has_bias, activation=activation)
    for key, layer in chosen.items():
        drop_packed(layer.module)
        layer.module.__class__ = layer.kind
        layer.module.libraries, layer.module.biased = needed[key], layer.has_bias
    for parent, names, _ in chains:
        if not isinstance(parent, Chain):
            make_chain(parent, names)
    for sentence in _exceptions(model, reasons.items()):
        warnings.warn(sentence, stacklevel=2)
    return model


def _exceptions(model: torch.nn.Module, reasons: Iterable[tuple[ModelLayer, str]]) -> Iterator[str]:
    """Yields a sentence for each reason why some layers are not tuned."""
    names: dict[str, list[str]] = {}
    for layer, reason in reasons:
        names.setdefault(reason, []).append(layer.name)
    tuned = names.pop("", [])
    if not tuned:
        kind = type(model).__name__
        yield f"no layer of {kind} was replaced" + ("" if names else ": it has no linear layer")
    for reason, kept in names.items():
        stays = "stays" if len(kept) == 1 else "stay"
        yield f"{enumerated(kept)} {stays} PyTorch's: {reason}"
    yield from _bypassed(model)


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

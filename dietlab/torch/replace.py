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
"""Layers that a warning names at most: their names are alike, and there may be hundreds."""


def replace_linears(model: torch.nn.Module, study: Study | str | Path) -> torch.nn.Module:
    """Lets a study's libraries compute every linear layer of a model that it serves, in place, and returns
    the model.

    Layers stay the same objects with the same parameters, hooks and state; only their class changes. So does
    the class of a module that calls a layer and ReLU or GELU one behind the other, which are then computed at
    once. Nothing of the model is called. A model whose layers were replaced before takes this study's.

    Args:
        model: has layers of :class:`torch.nn.Linear` or ``Conv1D`` of ``transformers``; or is one.
        study: of ``Dense``, tuned; or its folder. Every epilogue that the model needs is built once and kept
            there.

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
    for sentence in _told(model, reasons.items()):
        warnings.warn(sentence, stacklevel=2)
    return model


def _told(model: torch.nn.Module, reasons: Iterable[tuple[ModelLayer, str]]) -> Iterator[str]:
    """Yields what somebody must know who thinks that all layers are tuned now."""
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
    """Returns a list of names for a sentence, cut where it is long."""
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{others}"


def _bypassed(model: torch.nn.Module) -> Iterator[str]:
    """Yields a sentence where PyTorch computes a whole encoder's layer from its weights."""
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
            "TransformerEncoderLayer from its weights and calls no layer of it. "
            "torch.backends.mha.set_fastpath_enabled(False) lets tuned layers compute it"
        )

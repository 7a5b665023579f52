"""Choices of the study that computes a layer of a model, or reasons why PyTorch keeps it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dietlab.compare.study import Study
from dietlab.torch.convolution_operator import is_of, layer_text
from dietlab.torch.found import ModelLayer, convolutions_in, layers_in
from dietlab.torch.libraries import unfit, unserved

Choice = Study | str
"""The study that computes a layer, or the reason why PyTorch keeps it."""


def linear_choices(model: torch.nn.Module, studies: Sequence[Study]) -> list[tuple[ModelLayer, Choice]]:
    """Returns the linear layers of a model with their choices, for studies of ``Dense``."""
    choices = list[tuple[ModelLayer, Choice]]()
    for layer in layers_in(model):
        reasons = [layer.reason or unserved(layer.weights, study) for study in studies]
        choices.append((layer, studies[reasons.index("")] if "" in reasons else reasons[0]))
    return choices


def convolution_choices(model: torch.nn.Module, studies: Sequence[Study]) -> list[tuple[ModelLayer, Choice]]:
    """Returns the convolutions of a model with their choices, for studies of convolutions."""
    choices = list[tuple[ModelLayer, Choice]]()
    for layer in convolutions_in(model):
        serving = (study for study in studies if is_of(study.workload, layer.module))
        none = f"no study is of {layer_text(layer.module)}"
        choices.append((layer, unfit_layer(layer) or next(serving, none)))
    return choices


def unfit_layer(layer: ModelLayer) -> str:
    """Returns why no library can compute a layer; empty if one may."""
    return layer.reason or ("" if layer.weights is None else unfit(layer.weights))

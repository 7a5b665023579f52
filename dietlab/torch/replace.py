"""Replaces the layers of a model by those of studies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dietlab.base.errors import StudyError
from dietlab.base.events import Observer, audience
from dietlab.compare.study import Study
from dietlab.problem import Conv1d, Conv2d, Dense
from dietlab.torch.chains import Chain, make_chain
from dietlab.torch.choices import Choice, convolution_choices, linear_choices
from dietlab.torch.convolution import Convolution
from dietlab.torch.found import ModelLayer, chains_in
from dietlab.torch.fusions import fusions_in
from dietlab.torch.gpu_linear import warm_up
from dietlab.torch.layers import drop_packed
from dietlab.torch.libraries import is_for_gpu, library_of, require_served
from dietlab.torch.sentences import CONVOLUTIONS, LINEAR, Sought, exceptions, warn_of


def replace_layers(model: torch.nn.Module, *studies: Study | str | Path) -> torch.nn.Module:
    """Lets the libraries of studies compute every layer of a model that one of them serves, in place, and
    returns the model.

    Layers stay the same objects with the same parameters, hooks and state; only their class changes. A module
    that calls a layer and then ReLU or GELU, or a convolution and then its batch norm, changes its class too:
    they are then computed together. Nothing in the model is called. Layers that were replaced before get
    these studies' libraries.

    Args:
        model: a model with layers of :class:`torch.nn.Linear`, ``Conv1D`` of ``transformers``,
            :class:`torch.nn.Conv1d` or :class:`torch.nn.Conv2d`, or one such layer.
        studies: tuned studies of ``Dense``, ``Conv1d`` and ``Conv2d``, or their folders. A study of ``Dense``
            serves all linear layers whose sizes are in its ranges. A study of a convolution serves those of
            its channels, kernel, stride, padding, dilation and groups. Of several that serve a layer, the
            first is taken. A library for every epilogue that the model needs is built once and kept in the
            study.

    Raises:
        StudyError: if there is no study, or one is of another operator or processor, or was not tuned.
        BuildError: if a library does not compile; the model stays as it was.

    Warns:
        UserWarning: names the layers that stay PyTorch's, with the reason; and batch norms in training mode,
            which are computed apart.
    """
    if not studies:
        raise StudyError(
            "replacing layers needs a study", "none", "dietlab.optimize(model) tunes what a model needs."
        )
    opened = [study if isinstance(study, Study) else Study.open(study) for study in studies]
    kinds = dict[Sought, list[Study]]({LINEAR: [], CONVOLUTIONS: []})
    for study in opened:
        if not isinstance(study.workload, (Dense, Conv1d, Conv2d)):
            raise StudyError("layers need studies of Dense, Conv1d or Conv2d", study.workload)
        operator: Any = type(study.workload)
        kind = LINEAR if operator is Dense else CONVOLUTIONS
        require_served(study, operator, f"{kind}s", on_gpu=operator is Dense)
        kinds[kind].append(study)
    choices = list[tuple[ModelLayer, Choice]]()
    if kinds[LINEAR]:
        choices += linear_choices(model, kinds[LINEAR])
    if kinds[CONVOLUTIONS]:
        choices += convolution_choices(model, kinds[CONVOLUTIONS])
    sought = [kind for kind, those in kinds.items() if those] or [*kinds]
    warn_of(replace_chosen(model, choices, sought))
    return model


def replace_linears(model: torch.nn.Module, study: Study | str | Path) -> torch.nn.Module:
    """Lets a study's libraries compute every linear layer of a model that it serves, in place, and returns
    the model: :func:`replace_layers` with one study of ``Dense``.

    Args:
        model: a model with layers of :class:`torch.nn.Linear` or ``Conv1D`` of ``transformers``, or one such
            layer.
        study: a tuned study of ``Dense``, or its folder.

    Raises:
        StudyError: if the study is of another operator or processor, or was not tuned.
        BuildError: if a library does not compile; the model stays as it was.

    Warns:
        UserWarning: names the layers that stay PyTorch's, with the reason.
    """
    opened = study if isinstance(study, Study) else Study.open(study)
    require_served(opened, Dense, "linear layers", on_gpu=True)
    warn_of(replace_chosen(model, linear_choices(model, [opened]), [LINEAR]))
    return model


def replace_chosen(
    model: torch.nn.Module,
    choices: Sequence[tuple[ModelLayer, Choice]],
    sought: Collection[Sought],
    observers: Iterable[Observer] = (),
) -> list[str]:
    """Replaces layers of a model, each by those of its study, and returns sentences on those that stay
    PyTorch's.

    Args:
        choices: layers of the model, each with its study or the reason why it stays PyTorch's.
        sought: the kinds of layers that were looked for.
        observers: the observers of building.
    """
    chosen = {id(layer.module): (layer, study) for layer, study in choices if isinstance(study, Study)}
    chains = [
        (parent, names, behind)
        for parent, names, steps in chains_in(model)
        if (behind := [pair for pair in fusions_in(steps) if id(pair[0]) in chosen])
    ]
    needed = _built(chosen, [pair for *_, behind in chains for pair in behind], observers)
    for key, (layer, study) in chosen.items():
        drop_packed(layer.module)
        layer.module.__class__ = layer.kind
        layer.module.adopt(needed[key], study.workload, layer.has_bias)
    for parent, names, _ in chains:
        if not isinstance(parent, Chain):
            make_chain(parent, names)
    return list(exceptions(model, choices, sought))


def _built(
    chosen: Mapping[int, tuple[ModelLayer, Study]],
    fusions: Sequence[tuple[torch.nn.Module, str]],
    observers: Iterable[Observer],
) -> dict[int, dict[str, str]]:
    """Returns the libraries of each layer by activation, and builds those that are not there.

    A linear layer also has one without activation, for calls in which something else follows. PyTorch
    computes a convolution in such calls: its libraries serve no other layers, and take seconds to build.
    """
    needed = dict[int, dict[str, str]]({key: {} for key in chosen})
    for module, activation in fusions:
        needed[id(module)][activation or "none"] = ""
    with audience(observers).stage("build", len(chosen), "layer") as progress:
        for key, (layer, study) in chosen.items():
            convolution = issubclass(layer.kind, Convolution)
            if not (convolution and needed[key]):
                needed[key] = {"none": "", **needed[key]}
            # A convolution's libraries always have a bias, in which a batch norm is folded.
            biased = layer.has_bias or convolution
            for activation in needed[key]:
                made = library_of(study, bias=biased, activation=activation, residual=False)
                needed[key][activation] = made
                if is_for_gpu(study) and layer.weights is not None:
                    warm_up(made, layer.weights, layer.module._parameters["bias"])
            progress.advance()
    return needed

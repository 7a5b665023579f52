"""Replaces the layers of a model by those of studies."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dietlab.base.errors import StudyError
from dietlab.base.events import Observer, audience
from dietlab.compare.study import Study
from dietlab.problem import Conv1d, Conv2d, Dense
from dietlab.torch.chains import Chain, make_chain
from dietlab.torch.convolution import Convolution, is_of
from dietlab.torch.found import ModelLayer, chains_in, convolutions_in, fusions_in, layers_in, norms_in
from dietlab.torch.layers import drop_packed
from dietlab.torch.libraries import library_of, require_served, unfit, unserved

NAMED = 8
"""The largest number of layers that a warning names: there may be hundreds with similar names."""

LINEAR, CONVOLUTIONS = "linear layer", "convolution"
"""What a model lacks in the warning that nothing was replaced."""

Choice = Study | str
"""The study that computes a layer, or the reason why PyTorch keeps it."""


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
        StudyError: if a study is of another operator or processor, or was not tuned.
        BuildError: if a library does not compile; the model stays as it was.

    Warns:
        UserWarning: names the layers that stay PyTorch's, with the reason; and batch norms in training mode,
            which are computed apart.
    """
    opened = [study if isinstance(study, Study) else Study.open(study) for study in studies]
    kinds = dict[str, list[Study]]({LINEAR: [], CONVOLUTIONS: []})
    for study in opened:
        if not isinstance(study.workload, (Dense, Conv1d, Conv2d)):
            raise StudyError("layers need studies of Dense, Conv1d or Conv2d", study.workload)
        operator: Any = type(study.workload)
        kind = LINEAR if operator is Dense else CONVOLUTIONS
        require_served(study, operator, f"{kind}s")
        kinds[kind].append(study)
    choices = list[tuple[ModelLayer, Choice]]()
    if kinds[LINEAR]:
        choices += linear_choices(model, kinds[LINEAR])
    if kinds[CONVOLUTIONS]:
        choices += _convolution_choices(model, kinds[CONVOLUTIONS])
    lacking = " and no ".join(kind for kind, those in kinds.items() if those)
    warn_of(replace_chosen(model, choices, lacking or f"{LINEAR} and no {CONVOLUTIONS}"))
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
    require_served(opened, Dense, "linear layers")
    warn_of(replace_chosen(model, linear_choices(model, [opened]), LINEAR))
    return model


def replace_chosen(
    model: torch.nn.Module,
    choices: Sequence[tuple[ModelLayer, Choice]],
    lacking: str,
    observers: Iterable[Observer] = (),
) -> list[str]:
    """Replaces layers of a model, each by those of its study, and returns sentences on those that stay
    PyTorch's.

    Args:
        choices: layers of the model, each with its study or the reason why it stays PyTorch's.
        lacking: what the model lacks if there are no layers.
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
    return list(_exceptions(model, choices, lacking))


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
            progress.advance()
    return needed


def warn_of(sentences: Iterable[str]) -> None:
    """Warns of each sentence, at the line that called the caller's caller."""
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)


def linear_choices(model: torch.nn.Module, studies: Sequence[Study]) -> list[tuple[ModelLayer, Choice]]:
    """Returns the linear layers of a model with their choices, for studies of ``Dense``."""
    choices = list[tuple[ModelLayer, Choice]]()
    for layer in layers_in(model):
        reasons = [layer.reason or unserved(layer.weights, study.workload) for study in studies]  # type: ignore[arg-type]
        choices.append((layer, studies[reasons.index("")] if "" in reasons else reasons[0]))
    return choices


def _convolution_choices(model: torch.nn.Module, studies: Sequence[Study]) -> list[tuple[ModelLayer, Choice]]:
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


def layer_text(module: Any) -> str:
    """Returns a convolution's channels and window as text."""
    return f"{module.in_channels} to {module.out_channels} channels with {_window_text(module)}"


def _window_text(module: Any) -> str:
    options = ("kernel_size", "stride", "padding", "dilation", "groups")
    return ", ".join(f"{name.removesuffix('_size')}={getattr(module, name)}" for name in options)


def _exceptions(
    model: torch.nn.Module, choices: Iterable[tuple[ModelLayer, Choice]], lacking: str
) -> Iterator[str]:
    """Yields a sentence for each reason why some layers are not tuned, or are not computed with others."""
    names: dict[str, list[str]] = {}
    for layer, choice in choices:
        names.setdefault("" if isinstance(choice, Study) else choice, []).append(layer.name)
    tuned = names.pop("", [])
    if not tuned:
        yield f"no layer of {type(model).__name__} was replaced" + ("" if names else f": it has no {lacking}")
    for reason, kept in names.items():
        yield f"{enumerated(kept)} {_stay(kept)} PyTorch's: {reason}"
    if CONVOLUTIONS in lacking:
        trained = [name for name, training in norms_in(model) if training]
        if trained:
            yield (
                f"{enumerated(trained)} {_stay(trained)} apart from the convolution before: a batch norm in "
                "training mode changes with each batch. Both are computed together after model.eval()"
            )
    if LINEAR in lacking:
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

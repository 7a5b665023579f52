"""Packs a model's weights on demand, and finds the libraries of models that were saved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from dietlab.base.errors import StudyError
from dietlab.torch.chains import Chain, pairs_of, steps_named
from dietlab.torch.experts import pack_experts
from dietlab.torch.layers import TunedLayer, drop_packed
from dietlab.torch.packed import drop_originals, read_elsewhere
from dietlab.torch.replace import enumerated


def pack(model: torch.nn.Module, *, originals: bool = True) -> int:
    """Packs the weights of a model's tuned layers now, anew, and returns the bytes that the packed ones take.

    A layer packs its weights at its first call, and again once PyTorch counted a change of them, the model
    was loaded, moved or switched by ``train()`` or ``eval()``, or 512 of its numbers show a change. A smaller
    change that PyTorch does not count goes unseen: through ``weight.data``, a NumPy array that shares the
    memory, or another process that shares it. Call this behind such a change: after a LoRA merge that touched
    few weights, an update of an average (EMA) or of a shared model (Hogwild).

    Call it before a fork, too: packed weights are shared then, as the originals are, and not packed by each
    process.

    Args:
        model: whose layers were replaced; others are left alone.
        originals: keep the weights that were packed. Without them a model takes about the memory that it took
            before its layers were replaced, and can do one thing: inference in float32 on the CPU. Its
            layers have no ``weight`` any more, and its ``state_dict`` holds the packed ones. This cannot be
            undone; load the model again. Weights that another module has as well, as an embedding that is
            tied to the last layer, stay there.

    Warns:
        UserWarning: without ``originals``, names the layers that keep theirs, with the reason.
    """
    layers = {id(layer): layer for layer in model.modules() if isinstance(layer, TunedLayer)}
    for layer in layers.values():
        drop_packed(layer)
    experts = pack_experts(model)
    if not originals:
        return experts + _without_originals(model, layers, experts)
    uses = dict.fromkeys(_uses(model, layers))
    return experts + sum(int(layers[key].panels(activation).nbytes) for key, activation in uses)


def _without_originals(model: torch.nn.Module, layers: dict[int, TunedLayer], experts: int) -> int:
    """Leaves layers their packed weights alone where that is all that is read, and returns the bytes of all
    packed ones."""
    names, kept = {id(module): name for name, module in model.named_modules()}, dict[str, list[str]]()
    readers = {id(layer): f"{kind} reads them" for layer, kind in read_elsewhere(model)}
    total = 0
    for key, layer in layers.items():
        taken = 0 if key in readers else drop_originals(layer)
        if not taken:
            reason = readers.get(key, "PyTorch computes them")
            kept.setdefault(reason, []).append(names[key] or "the model itself")
        total += taken or int(layer.panels("none").nbytes)
    if experts:
        kept["experts keep theirs"] = ["all experts"]
    for reason, them in kept.items():
        warnings.warn(f"{enumerated(them)} kept the original weights: {reason}", stacklevel=3)
    return total


def _uses(model: torch.nn.Module, layers: dict[int, TunedLayer]) -> Iterator[tuple[int, str]]:
    """Yields each layer and an activation that is computed with it; those of no chain have none."""
    within = set[int]()
    for parent in model.modules():
        if isinstance(parent, Chain):
            for step, activation in pairs_of(steps_named(parent, parent.dietlab_steps)):
                if id(step) in layers:
                    within.add(id(step))
                    yield id(step), activation or "none"
    yield from ((key, "none") for key in layers if key not in within)


def find_libraries(folder: str | Path) -> None:
    """Says where to look for libraries that are not where they were when their model was saved.

    A saved model names its libraries by the study's folder at that time; their own folders' names tell what
    they were built from, so that a study that was moved or copied still serves. Of several calls all count.
    Without Python, ``DIETLAB_LIBRARIES=FOLDER:FOLDER`` in the environment says the same.

    Args:
        folder: a study, or a folder of studies.

    Raises:
        StudyError: if there is no such folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise StudyError("libraries are looked for in the folder of a study, or of several", place)
    torch.ops.dietlab.find_libraries(str(place.resolve()))

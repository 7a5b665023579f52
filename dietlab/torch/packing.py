"""Packs a model's weights on demand, and finds the libraries of saved models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from dietlab.base.errors import StudyError
from dietlab.torch.chains import Chain, Step, parts_of, steps_named
from dietlab.torch.convolution import Convolution
from dietlab.torch.experts import pack_experts
from dietlab.torch.gpu_library import OPENED, forget_missing
from dietlab.torch.layers import TunedLayer, drop_packed
from dietlab.torch.packed import drop_originals, read_elsewhere
from dietlab.torch.places import search_in
from dietlab.torch.sentences import enumerated


def pack(model: torch.nn.Module, *, originals: bool = True) -> int:
    """Packs the weights of a model's tuned layers again, now, and returns the bytes of the packed weights.

    A layer packs its weights at its first call. It packs them again after a change that PyTorch counts, after
    loading or moving the model, after ``train()`` or ``eval()``, or if a sample of 512 of its numbers
    changed. Other changes are not detected if they are small: through ``weight.data``, a NumPy array on the
    same memory, or another process that shares it. Call this function after such a change: a LoRA merge that
    touched few weights, an update of an average (EMA) or of a shared model (Hogwild).

    Call it also before a fork: processes then share the packed weights, as they share the originals.

    Args:
        model: a model with tuned layers; its other layers are ignored.
        originals: whether to keep the original weights. Without them, a model takes about as much memory as
            before its layers were replaced, but is limited to inference in float32 on the CPU. Its layers
            have no ``weight`` any more, and its ``state_dict`` contains the packed weights. To undo this,
            load the model again. Weights that another module shares, such as an embedding tied to the last
            layer, stay there. Experts and convolutions keep theirs.

    Warns:
        UserWarning: without ``originals``, names the layers that keep their weights, with the reason.
    """
    layers = {id(layer): layer for layer in model.modules() if isinstance(layer, TunedLayer)}
    for layer in layers.values():
        drop_packed(layer)
    linear = {key: layer for key, layer in layers.items() if not isinstance(layer, Convolution)}
    uses = dict.fromkeys(_uses(model, layers))
    others = pack_experts(model)
    if not originals:
        windows = sum(_packed_bytes(layers[key], how, norm) for key, how, norm in uses if key not in linear)
        return others + windows + _without_originals(model, linear, others, windows)
    return others + sum(_packed_bytes(layers[key], how, norm) for key, how, norm in uses)


def _packed_bytes(layer: TunedLayer, activation: str, norm: Step | None) -> int:
    """Returns the bytes of a layer's packed weights, packing them if necessary."""
    given = (activation,) if norm is None else (activation, norm)
    return int(layer.panels(*given).nbytes)


def _without_originals(
    model: torch.nn.Module, layers: dict[int, TunedLayer], experts: int, convolutions: int
) -> int:
    """Drops the original weights of all linear layers that do not need them, and returns the bytes of their
    packed weights."""
    names, kept = {id(module): name for name, module in model.named_modules()}, dict[str, list[str]]()
    readers = {id(layer): f"{kind} reads them" for layer, kind in read_elsewhere(model)}
    total = 0
    for key, layer in layers.items():
        taken = 0 if key in readers else drop_originals(layer)
        if not taken:
            on_gpu = any(OPENED.get(folder) for folder in layer.libraries.values())
            computed = "a GPU reads them as they lie" if on_gpu else "PyTorch computes them"
            reason = readers.get(key, computed)
            kept.setdefault(reason, []).append(names[key] or "the model itself")
        total += taken or int(layer.panels("none").nbytes)
    if experts:
        kept["experts keep theirs"] = ["all experts"]
    if convolutions:
        kept["convolutions keep theirs"] = ["all convolutions"]
    for reason, them in kept.items():
        warnings.warn(f"{enumerated(them)} kept the original weights: {reason}", stacklevel=3)
    return total


def _uses(model: torch.nn.Module, layers: dict[int, TunedLayer]) -> Iterator[tuple[int, str, Step | None]]:
    """Yields each layer with an activation (``none`` for none) and a batch norm that are computed with it."""
    within = set[int]()
    for parent in model.modules():
        if isinstance(parent, Chain):
            for step, activation, norm in parts_of(steps_named(parent, parent.dietlab_steps)):
                if id(step) in layers:
                    within.add(id(step))
                    yield id(step), activation or "none", norm
    yield from ((key, "none", None) for key in layers if key not in within)


def find_libraries(folder: str | Path) -> None:
    """Adds a folder in which to look for the libraries of saved models.

    A saved model names its libraries by their study's folder when it was saved. If the study was moved or
    copied, they are found in the added folders, by the digest in their names. Without Python, set
    ``DIETLAB_LIBRARIES=FOLDER:FOLDER`` in the environment.

    Args:
        folder: a study, or a folder of studies.

    Raises:
        StudyError: if there is no such folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise StudyError("libraries must be in the folder of a study, or in a folder of studies", place)
    search_in(place.resolve())
    forget_missing()
    if hasattr(torch.ops.dietlab, "find_libraries"):  # the C++ operators look for their libraries themselves
        torch.ops.dietlab.find_libraries(str(place.resolve()))

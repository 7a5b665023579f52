"""Finds a model's layers that libraries can compute, and the reasons why PyTorch computes the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from dietlab.torch.activations import activation_of
from dietlab.torch.chains import Chain, Step, chain_steps, steps_named
from dietlab.torch.convolution import Conv1d, Conv2d
from dietlab.torch.layers import Linear, TunedLayer, is_plain
from dietlab.torch.packed import PackedLayer


@dataclass(frozen=True)
class ModelLayer:
    """A layer of a model that multiplies by weights.

    Args:
        name: its path in the model, ``"the model itself"`` for the root.
        module: the layer.
        kind: the class that computes it by libraries.
        weights: the weights ``[N, K]``, a view of the layer's parameter; of a convolution ``[OC, IC / groups,
            KH, KW]`` or ``[OC, IC / groups, KL]``.
        reason: the reason why PyTorch keeps the layer, whatever the study; empty if a library may compute it.
    """

    name: str
    module: torch.nn.Module
    kind: type[TunedLayer]
    weights: Tensor | None
    reason: str

    @property
    def has_bias(self) -> bool:
        """True if the layer adds a bias."""
        return self.module._parameters.get("bias") is not None


def layers_in(model: torch.nn.Module) -> list[ModelLayer]:
    """Returns every linear layer of a model once: PyTorch's ``Linear``, the ``Conv1D`` of ``transformers``,
    and classes derived from them. No layer is called or changed.
    """
    kinds = _kinds()
    found = list[ModelLayer]()
    for path, module in model.named_modules():
        base = next((base for base in kinds if isinstance(module, base)), None)
        if base is not None:
            kind = kinds[base]
            reason = _kept(module, base, kind)
            weights = None if reason else kind._by_rows(module, module._parameters["weight"].detach())
            found.append(ModelLayer(path or "the model itself", module, kind, weights, reason))
        elif isinstance(module, PackedLayer):
            reason = "its original weights were dropped: load the model again"
            found.append(ModelLayer(path or "the model itself", module, Linear, None, reason))
        elif isinstance(module, torch.nn.MultiheadAttention):
            reason = "PyTorch's attention computes its projections from the weights, without calling layers"
            found.append(ModelLayer(path or "the model itself", module, Linear, None, reason))
    return found


def convolutions_in(model: torch.nn.Module) -> list[ModelLayer]:
    """Returns every convolution of a model once, transposed and 3-D ones included. No layer is called or
    changed."""
    kinds: dict[Any, type[TunedLayer]] = {torch.nn.Conv1d: Conv1d, torch.nn.Conv2d: Conv2d}
    found = list[ModelLayer]()
    for path, module in model.named_modules():
        if isinstance(module, _ConvNd):
            base = next((base for base in kinds if isinstance(module, base)), None)
            reason = _kept(module, base, kinds[base]) if base else f"no library computes a {_name(module)}"
            if not reason and module.padding_mode != "zeros":
                reason = f"its padding_mode is {module.padding_mode!r}, and libraries pad with zeros"
            weights = None if reason else module._parameters["weight"].detach()
            kind = kinds[base] if base else Conv2d
            found.append(ModelLayer(path or "the model itself", module, kind, weights, reason))
    return found


def chains_in(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, tuple[str, ...], list[Step]]]:
    """Yields three values for every chain of a model: the module, the names of its steps (empty: all
    children), and the present steps."""
    for parent in model.modules():
        names = parent.dietlab_steps if isinstance(parent, Chain) else chain_steps(parent)
        if names is None:
            continue
        own = (name in parent._modules or activation_of(getattr(parent, name, None)) for name in names)
        if all(own):
            yield parent, names, steps_named(parent, names)


def _kinds() -> dict[type[torch.nn.Module], type[TunedLayer]]:
    """Returns the tuned class for each class of layers that libraries can compute."""
    kinds: dict[type[torch.nn.Module], type[TunedLayer]] = {torch.nn.Linear: Linear}
    # Any model of transformers has loaded this module; for other models nothing is imported.
    if (transformers := sys.modules.get("transformers.pytorch_utils")) and hasattr(transformers, "Conv1D"):
        from dietlab.torch.conv1d import Conv1D

        kinds[transformers.Conv1D] = Conv1D
    return kinds


def _name(module: torch.nn.Module) -> str:
    return type(module).__name__


def _kept(module: torch.nn.Module, base: type[torch.nn.Module], kind: type[TunedLayer]) -> str:
    """Returns why PyTorch must compute a layer, whatever its weights; empty if a library may compute it."""
    if type(module) not in (base, kind):
        return f"it is a {_name(module)}, another class, which may compute something else"
    if "forward" in vars(module):
        return "another forward was set on it (a hook of accelerate, or a patch)"
    if vars(module).get("_compiled_call_impl") is not None:
        return "it was compiled by its compile(): replace first, compile then"
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias", module)
    if weight is None or bias is module:
        return "its weight or bias is not its parameter (pruned or parametrized)"
    for tensor in (weight, bias):
        if tensor is not None and not is_plain(tensor):
            return f"its weights are a {type(tensor).__name__}, which computes by itself"
    return ""

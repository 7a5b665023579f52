"""Residuals in compiled models: ``relu(convolution(x) + r)`` becomes one call of a library.

PyTorch's compiler calls :class:`Residuals` with the graph of a model, when it knows every operator's shape
and before it writes code. Importing :mod:`dietlab.torch` registers it. In a model that is not compiled,
PyTorch adds residuals.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_custom_graph_passes, get_hash_for_files
from torch.fx import Graph, Node

from dietlab.base.errors import DietlabError
from dietlab.torch.libraries import built_beside
from dietlab.tuning import load

_convolution = torch.ops.dietlab.convolution.default
_add, _relu = torch.ops.aten.add.Tensor, torch.ops.aten.relu.default

ACTIVATION, LIBRARY = 6, 7
"""The places of both among the arguments of ``dietlab::convolution``."""


class Residuals(CustomGraphPass):  # type: ignore[misc]
    """Computes additions to a convolution, and the ReLU after them, by the convolution's library."""

    def __call__(self, graph: Graph) -> None:
        """Changes a graph in place."""
        for added in graph.find_nodes(op="call_function", target=_add):
            found = _terms(added)
            if found is not None:
                _fuse(graph, added, *found)

    def uuid(self) -> bytes:
        """Returns what names this pass in PyTorch's cache of compiled graphs."""
        return bytes(get_hash_for_files((__file__,)))


def _terms(added: Node) -> tuple[Node, Node] | None:
    """Returns the convolution of a sum and what is added to it; None if no library computes the sum."""
    if added.kwargs.get("alpha", 1) != 1:
        return None
    for layer, other in (added.args, added.args[::-1]):
        if _is_alone(layer) and _are_alike(layer, other):
            return layer, other
    return None


def _is_alone(node: Any) -> bool:
    """Returns whether a node is a convolution whose result only a sum reads."""
    if not isinstance(node, Node) or node.target is not _convolution or len(node.users) != 1:
        return False
    return node.args[ACTIVATION] == "none" and not node.kwargs and len(node.args) <= LIBRARY + 2


def _are_alike(layer: Node, other: Any) -> bool:
    """Returns whether both results have the same type, and for every input the same shape."""
    if not isinstance(other, Node):
        return False
    first, second = layer.meta.get("val"), other.meta.get("val")
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if (first.dtype, first.device, first.dim()) != (second.dtype, second.device, second.dim()):
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    sides = zip(first.shape, second.shape, strict=True)
    return all(statically_known_true(one == another) for one, another in sides)


def _fuse(graph: Graph, added: Node, layer: Node, residual: Node) -> None:
    """Lets a library compute a sum and the ReLU after it."""
    users = [*added.users]
    last = users[0] if len(users) == 1 and users[0].target is _relu else added
    activation = "none" if last is added else "relu"
    library = _library(str(layer.args[LIBRARY]), activation)
    if library is None:
        return
    given = [*layer.args]
    given[ACTIVATION], given[LIBRARY] = activation, library
    with graph.inserting_before(last):
        fused = graph.call_function(_convolution, (*given, residual))
    fused.meta = dict(last.meta)
    last.replace_all_uses_with(fused)
    for node in dict.fromkeys((last, added, layer)):
        graph.erase_node(node)


def _library(folder: str, activation: str) -> str | None:
    """Returns the folder of the library that also adds a residual, building it if it is not there; None if
    the library's own folder is elsewhere or cannot be written."""
    try:
        dispatcher = load(folder).dispatcher
        work = replace(dispatcher.workload, residual="before", activation=activation)  # type: ignore[type-var]
        return built_beside(replace(dispatcher, workload=work), Path(folder).parent.parent)
    except (DietlabError, OSError):
        return None


def register() -> None:
    """Adds :class:`Residuals` to the passes of PyTorch's compiler. Passes that others added stay."""
    others = get_custom_graph_passes(config.post_grad_custom_pre_pass)
    if not any(isinstance(one, Residuals) for one in others):
        config.post_grad_custom_pre_pass = (*others, Residuals())

"""Sizes of the linear layers of known models, of networks in PyTorch and of families of networks.

A linear layer of ``K`` input and ``N`` output features is a dense operator with a row per token. The sizes of
known models are from their papers; nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dietlab.base.errors import WorkloadError, closest
from dietlab.problem.dims import as_extent
from dietlab.problem.networks import NETWORKS


@dataclass(frozen=True)
class Layer:
    """The size of a linear layer, and how often it is called.

    Args:
        N: the number of output features, 1 or more.
        K: the number of input features, 1 or more.
        weight: the number of calls in a pass of the network, or a weight on any other positive scale.
        name: the layer's purpose, for texts only.

    Raises:
        WorkloadError: if a size is no int of 1 or more, or the weight is not positive and finite.
    """

    N: int
    K: int
    weight: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        for feature in (self.N, self.K):
            if not isinstance(feature, int) or isinstance(feature, bool) or feature < 1:
                raise WorkloadError(
                    "the features of a layer must be ints of 1 or more",
                    f"N={self.N!r}, K={self.K!r}",
                    "As in Layer(N=3072, K=768).",
                )
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise WorkloadError("a layer must have a positive, finite weight", self.weight)

    def __str__(self) -> str:
        return f"N={self.N} K={self.K}"


class HasModules(Protocol):
    """A network: a :class:`torch.nn.Module`, or another class with ``modules``."""

    def modules(self) -> Iterable[Any]: ...


Layers = str | Layer | HasModules | Iterable[Layer | tuple[int, int]]
"""Ways to give layers: a name of :data:`MODELS`, one or several sizes, or a network."""


@dataclass(frozen=True)
class Model:
    """The linear layers of a published network, one of each size, and the paper that gives their sizes."""

    paper: str
    layers: tuple[Layer, ...]


def block(width: int, inner: int, calls: float = 1.0) -> tuple[Layer, ...]:
    """Returns the four linear layers of a transformer block with ``width`` features, and ``inner`` features
    inside its feed-forward part (Vaswani et al. 2017, Attention Is All You Need). One layer computes queries,
    keys and values."""
    return (
        Layer(3 * width, width, calls, "queries, keys and values"),
        Layer(width, width, calls, "attention output"),
        Layer(inner, width, calls, "feed-forward, first"),
        Layer(width, inner, calls, "feed-forward, second"),
    )


_BERT = "Devlin et al. 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"

MODELS: dict[str, Model] = {
    "bert-base": Model(f"{_BERT}, section 3: 12 blocks, 768 features", block(768, 3072, 12)),
    "bert-large": Model(f"{_BERT}, section 3: 24 blocks, 1024 features", block(1024, 4096, 24)),
    "gpt2": Model(
        "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2: 12 blocks, 768 "
        "features, 50,257 tokens",
        (*block(768, 3072, 12), Layer(50257, 768, 1, "next token")),
    ),
    "vit-base": Model(
        "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words: Transformers for Image Recognition at "
        "Scale, table 1: 12 blocks, 768 features; patches of 16 x 16 x 3 values",
        (*block(768, 3072, 12), Layer(768, 16 * 16 * 3, 1, "patches")),
    ),
}
"""The linear layers that a network calls for every token (no poolers, no classifiers). A weight counts the
calls in one pass."""


def family(widths: Iterable[int], expansions: Iterable[float] = (4.0,)) -> tuple[Layer, ...]:
    """Returns the linear layers of all transformers in a supernet: every width with every expansion.

    A supernet is trained once and cut to many sizes (Cai et al. 2020, Once-for-All; for transformers Wang et
    al. 2020, HAT, and Chen et al. 2021, AutoFormer). A weight counts the transformers that have a size.

    Args:
        widths: the numbers of features of a block, each 1 or more.
        expansions: ratios, above 0, of the features inside the feed-forward part to the width; the product
            is rounded to the nearest integer, at least 1.

    Raises:
        WorkloadError: if widths or expansions are empty, or one is out of range.
    """
    features, ratios = [as_extent(width) for width in widths], list(expansions)
    if not features or not ratios:
        raise WorkloadError(
            "a family needs a width and an expansion",
            f"{len(features)} widths, {len(ratios)} expansions",
            "As in family([512, 768], [3.0, 4.0]).",
        )
    wrong = [ratio for ratio in ratios if not (ratio > 0 and math.isfinite(ratio))]
    if wrong:
        raise WorkloadError("an expansion must be positive and finite", wrong[0], "For example 4.0.")
    blocks = [block(width, max(1, round(ratio * width))) for width in features for ratio in ratios]
    return merged(layer for layers in blocks for layer in layers)


def linear_layers(network: HasModules) -> tuple[Layer, ...]:
    """Returns the sizes of all :class:`torch.nn.Linear` of a network, weighted by how often each occurs.

    PyTorch is not imported: any module with ``in_features`` and ``out_features`` counts. Products outside
    such modules, such as the first product of :class:`torch.nn.MultiheadAttention`, are not found.

    Raises:
        WorkloadError: if there is none.
    """
    found = [
        Layer(module.out_features, module.in_features)
        for module in network.modules()
        if isinstance(getattr(module, "in_features", None), int)
        and isinstance(getattr(module, "out_features", None), int)
    ]
    if not found:
        raise WorkloadError(
            "a network must have a linear layer",
            f"{type(network).__name__} without one",
            "Its sizes can be listed as (N, K): [(3072, 768), (768, 3072)].",
        )
    return merged(found)


def layers_of(layers: Layers) -> tuple[Layer, ...]:
    """Returns the given layers; those of equal size are merged to one.

    Raises:
        WorkloadError: for an unknown model, a network without linear layers, an empty list, or an element
            that is neither a :class:`Layer` nor a pair (N, K).
    """
    if isinstance(layers, str):
        return merged(model(layers).layers)
    if isinstance(layers, Layer):
        return (layers,)
    if callable(getattr(layers, "modules", None)):
        return linear_layers(layers)  # type: ignore[arg-type]  # it has modules
    if not isinstance(layers, Iterable):
        raise _no_layer(layers)
    found = merged(map(_layer, layers))
    if not found:
        raise _no_layer("none")
    return found


def model(name: str) -> Model:
    """Returns one of :data:`MODELS`."""
    if name not in MODELS:
        alone = f"Its layers are convolutions, each a separate operator: dl.convolutions({name!r})."
        remedy = alone if name in NETWORKS else closest(name, MODELS)
        raise WorkloadError(f"a model is one of {', '.join(MODELS)}", repr(name), remedy)
    return MODELS[name]


def merged(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Returns one layer of each size, in the order of first occurrence, with the sum of their weights."""
    found = dict[tuple[int, int], Layer]()
    for layer in layers:
        size = (layer.N, layer.K)
        same = found.get(size)
        found[size] = replace(same, weight=same.weight + layer.weight) if same else layer
    return tuple(found.values())


def _layer(value: Any) -> Layer:
    if isinstance(value, Layer):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _no_layer(repr(value))
    return Layer(as_extent(value[0]), as_extent(value[1]))


def _no_layer(value: object) -> WorkloadError:
    return WorkloadError(
        "layers are pairs (N, K), Layer values, a network or the name of a model, at least one",
        value,
        f"As in [(3072, 768), (768, 3072)], or one of {', '.join(MODELS)}.",
    )

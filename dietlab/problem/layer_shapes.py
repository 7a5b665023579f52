"""Shapes of a dense operator from the layers of a network and a distribution of lengths."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dietlab.base.errors import WorkloadError
from dietlab.problem.convolution import Conv1d, Conv2d
from dietlab.problem.dims import MOST_ELEMENTS, Dim, HasDims, Shape, holds, range_text
from dietlab.problem.layers import Layer, Layers, layers_of
from dietlab.problem.networks.met import Sizes, weighted_images
from dietlab.problem.traffic import aggregated, weights_of

NAMED = 4
"""The largest number of layers that a message lists."""


@dataclass(frozen=True)
class AnyLayer:
    """The part of a dense operator that a shape set needs; its three dimensions have any extent."""

    @property
    def dims(self) -> Mapping[str, Dim]:
        return dict.fromkeys(("T", "N", "K"), Dim(1, MOST_ELEMENTS))

    @property
    def signature(self) -> Mapping[str, tuple[int | str, ...]]:
        return {"x": ("T", "K"), "w": ("N", "K"), "out": ("T", "N")}


ANY_LAYER = AnyLayer()


def weighted_layers(
    layers: Layers, lengths: Sizes, workload: HasDims, n: int | None = None
) -> tuple[dict[Shape, float], str, float]:
    """Returns three values: the weight of each shape (on any positive scale), the source of the weights as
    text, and the share of the weights outside the workload's ranges (0 to below 1).

    Each layer inside the ranges makes a shape with each length. Neighbouring lengths are merged to at most
    ``n``. For a convolution, ``layers`` names a network, and ``lengths`` are the sizes of its inputs; with
    ranges of channels, the weights are those of all layers with its kernel.

    Raises:
        WorkloadError: if a layer or a length is invalid, or all lie outside the ranges.
    """
    if isinstance(workload, (Conv1d, Conv2d)):
        shapes, outside = weighted_images(layers, lengths, workload, n)
        return shapes, _source(layers, lengths, n), outside
    extents, every = _extents(workload), layers_of(layers)
    inside = [layer for layer in every if _holds(extents, layer)]
    if not inside:
        raise _no_layer(extents, every)
    given = weights_of([lengths] if isinstance(lengths, int) else lengths)
    counts = {t: weight for t, weight in given.items() if holds(extents["T"], t)}
    if not counts:
        raise _no_length(extents["T"], given)
    share = sum(layer.weight for layer in inside) / sum(layer.weight for layer in every)
    dropped = max(0.0, 1 - share * sum(counts.values()) / sum(given.values()))
    weights = dict[Shape, float]()
    for layer in inside:
        for t, weight in (counts if n is None else aggregated(counts, n)).items():
            bound = {"T": t, "N": layer.N, "K": layer.K}
            shape = Shape.of(**{name: bound[name] for name in workload.dims})
            weights[shape] = weights.get(shape, 0.0) + layer.weight * weight
    return weights, _source(layers, lengths, n), dropped


def layers_outside(layers: Layers, workload: HasDims) -> tuple[str, int, int]:
    """Returns three values: the (N, K) of the layers that lie outside the workload's ranges, at most
    :data:`NAMED` of them, as text; their number; and the number of all layers. A convolution is one layer,
    which lies inside.

    Raises:
        WorkloadError: if a layer is invalid.
    """
    if isinstance(workload, (Conv1d, Conv2d)):
        return "", 0, 1
    extents, every = _extents(workload), layers_of(layers)
    outside = [layer for layer in every if not _holds(extents, layer)]
    return _listed(outside), len(outside), len(every)


def _extents(workload: HasDims) -> dict[str, Dim | int]:
    """Returns the range or the extent of T, N and K."""
    found = {name: workload.dims.get(name, getattr(workload, name, None)) for name in ("T", "N", "K")}
    if None in found.values():
        raise WorkloadError(
            "layers need an operator with the dimensions T, N, K",
            workload,
            "For example Dense(T=Dim(1, 512), N=Dim(64, 4096), K=Dim(64, 4096)) (dense --dim T=1:512 "
            "--dim N=64:4096 --dim K=64:4096).",
        )
    return {name: extent for name, extent in found.items() if extent is not None}


def _holds(extents: Mapping[str, Dim | int], layer: Layer) -> bool:
    return holds(extents["N"], layer.N) and holds(extents["K"], layer.K)


def _no_layer(extents: Mapping[str, Dim | int], layers: Sequence[Layer]) -> WorkloadError:
    ends = (_span(d, [getattr(layer, d) for layer in layers]) for d in ("N", "K"))
    return WorkloadError(
        f"at least one layer must lie in the ranges N={extents['N']}, K={extents['K']}",
        f"(N, K) = {_listed(layers)}",
        f"All of them lie in {' and '.join(ends)}.",
    )


def _listed(layers: Sequence[Layer]) -> str:
    listed = [f"({layer.N}, {layer.K})" for layer in layers]
    more = f" and {len(listed) - NAMED:,} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def _no_length(extent: Dim | int, lengths: Collection[int]) -> WorkloadError:
    rule, found = f"at least one length must lie in the range T={extent}", f"{min(lengths)}..{max(lengths)}"
    return WorkloadError(rule, found, f"All of them lie in {_span('T', lengths)}.")


def _span(name: str, extents: Collection[int]) -> str:
    return range_text(name, min(extents), max(extents))


def _source(layers: Layers, lengths: Sizes, n: int | None) -> str:
    """Returns the names of model and traffic, as ``bert-base@serving:8``; empty if neither has one."""
    model = layers if isinstance(layers, str) else ""
    if callable(getattr(layers, "modules", None)):
        model = type(layers).__name__
    traffic = lengths if isinstance(lengths, str) else ""
    if not model and not traffic:
        return ""
    merged = f":{n}" if n is not None and traffic else ""
    return f"{model or 'layers'}@{traffic or 'lengths'}{merged}"

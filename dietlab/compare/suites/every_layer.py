"""The layers of a task whose one library serves all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dietlab.base.errors import DietlabError
from dietlab.problem.layers import Layer, layers_of

OWN = "own"
"""The contender that has a library for each layer. Such a library has one dynamic dimension, and is tuned for
its layer only."""


@dataclass(frozen=True)
class EveryLayer:
    """The layers of a task whose rows, columns and depth are dynamic.

    Args:
        tuned: the layers to tune for: a name of :data:`dietlab.problem.layers.MODELS`, or pairs (N, K).
        held_out: layers that tuning never sees, as pairs (N, K).
        lengths, held_out_lengths: the evaluated lengths of each tuned and each held-out layer, by effort.
        own: by effort, the numbers of tuned and of held-out layers that get an own library: the first layers
            of each. Tuning an own library takes as long as a study of one layer.

    Raises:
        DietlabError: if the efforts differ, a layer is tuned and held out, or own libraries outnumber layers.
    """

    tuned: str | tuple[tuple[int, int], ...]
    held_out: tuple[tuple[int, int], ...]
    lengths: Mapping[str, tuple[int, ...]]
    held_out_lengths: Mapping[str, tuple[int, ...]]
    own: Mapping[str, tuple[int, int]]

    def __post_init__(self) -> None:
        if not set(self.lengths) == set(self.held_out_lengths) == set(self.own):
            raise DietlabError("every effort must have lengths and a number of own libraries", list(self.own))
        known = {(layer.N, layer.K) for layer in self._tuned}
        both = known & set(self.held_out)
        if both or len(set(self.held_out)) < len(self.held_out):
            raise DietlabError("held-out layers must differ, also from tuned ones", both or self.held_out)
        most = (len(known), len(self.held_out))
        for effort, counts in self.own.items():
            if not all(0 <= count <= limit for count, limit in zip(counts, most, strict=True)):
                raise DietlabError(f"an effort can have at most {most} own libraries", counts, effort)

    def evaluated(self, effort: str) -> Iterator[tuple[Layer, int]]:
        """Yields every layer with every length of an effort."""
        for layers, lengths in ((self._tuned, self.lengths), (self._held_out, self.held_out_lengths)):
            for layer in layers:
                yield from ((layer, length) for length in lengths[effort])

    def owners(self, effort: str) -> tuple[Layer, ...]:
        """Returns the layers that get an own library."""
        tuned, held_out = self.own[effort]
        return (*self._tuned[:tuned], *self._held_out[:held_out])

    @property
    def _tuned(self) -> tuple[Layer, ...]:
        return layers_of(self.tuned)

    @property
    def _held_out(self) -> tuple[Layer, ...]:
        return tuple(Layer(cols, depth) for cols, depth in self.held_out)

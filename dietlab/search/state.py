"""What a search strategy is: it proposes the schemes of the next round from what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol

from dietlab.cost import Predicts, adaptation_cost, best_shape
from dietlab.measure import Record
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Scheme, Space


@dataclass(frozen=True)
class SearchState:
    """The knowledge that a strategy proposes from; ``predictor`` is None before the first fit."""

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    predictor: Predicts | None

    @cached_property
    def tried(self) -> frozenset[Scheme]:
        return frozenset(record.scheme for record in self.records)

    @cached_property
    def untried(self) -> tuple[Scheme, ...]:
        return tuple(scheme for scheme in self.space if scheme not in self.tried)

    @cached_property
    def best_seconds(self) -> dict[Shape, float]:
        """Predicted seconds of the best measured scheme on each shape."""
        tried = [r.scheme for r in self.records if r.ok]
        if self.predictor is None or not tried:
            return dict.fromkeys(self.shapes, float("inf"))
        table = self.predictor.seconds(tried, self.shapes.shapes).min(axis=0)
        return dict(zip(self.shapes, table.tolist(), strict=True))


class Strategy(Protocol):
    """A search strategy proposes up to ``count`` untried schemes; fewer when fewer are left."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]: ...


def target_shape(scheme: Scheme, space: Space, shapes: tuple[Shape, ...]) -> Shape:
    """Returns the shape ``S*`` on which a candidate is measured: the one with the least adaptation cost."""
    return best_shape(scheme, shapes, adaptation_cost(space.workload, space.hardware))

"""The interface of a search strategy, which proposes the schemes of the next round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol

import numpy as np

from dietlab.base.contracts import listed, name_of, require_methods, shown
from dietlab.base.errors import SpaceError
from dietlab.base.statistics import Values
from dietlab.cost import Predicts, adaptation_cost, best_shape
from dietlab.measure import CacheState, Record
from dietlab.problem import Shape, ShapeSet
from dietlab.scheme import Scheme, Space


@dataclass(frozen=True)
class SearchState:
    """The knowledge that a strategy proposes from.

    Args:
        space: the schemes to choose from.
        shapes: the weighted shapes to tune for.
        records: all measurements so far, failures included.
        predictor: the fitted predictor; None before the first fit.
        cache: the cache state in which candidates are timed.
        measuring: the schemes that are being measured and have no record yet.
    """

    space: Space
    shapes: ShapeSet
    records: tuple[Record, ...]
    predictor: Predicts | None
    cache: CacheState = "hot"
    measuring: tuple[Scheme, ...] = ()

    @cached_property
    def tried(self) -> frozenset[Scheme]:
        """The schemes that have a record, even of a failure, and the schemes that are being measured."""
        return frozenset(record.scheme for record in self.records).union(self.measuring)

    @cached_property
    def untried(self) -> tuple[Scheme, ...]:
        """All other schemes of the space, in its order."""
        return tuple(scheme for scheme in self.space if scheme not in self.tried)

    @cached_property
    def measured(self) -> tuple[Scheme, ...]:
        """The schemes of the space with a time, in the order in which they were tried."""
        found = dict.fromkeys(record.scheme for record in self.records if record.ok)
        return tuple(scheme for scheme in found if scheme in self.space)

    @cached_property
    def best_seconds(self) -> dict[Shape, float]:
        """The least predicted seconds on each shape among the schemes that were or are being measured. Before
        the first such scheme, the largest seconds among all schemes; infinite without a predictor."""
        tried = [*(r.scheme for r in self.records if r.ok), *self.measuring]
        if self.predictor is None:
            return dict.fromkeys(self.shapes, float("inf"))
        predicted = self.predictor.seconds(tried or self.untried, self.shapes.shapes)
        table = predicted.min(axis=0) if tried else predicted.max(axis=0)
        return dict(zip(self.shapes, table.tolist(), strict=True))

    def relative(self, schemes: Sequence[Scheme]) -> Values:
        """Returns the predicted throughput over the throughput of the best measured scheme, ``[schemes,
        shapes]``. The state must have a predictor."""
        assert self.predictor is not None
        best = np.array([self.best_seconds[shape] for shape in self.shapes])
        return np.asarray(best / self.predictor.seconds(schemes, self.shapes.shapes))

    def filled(self, picks: Iterable[Scheme], count: int, random: Random) -> list[Scheme]:
        """Returns the picks, filled up to ``count`` with other untried schemes at random."""
        found = list(picks)
        left = [scheme for scheme in self.untried if scheme not in set(found)]
        return found + random.sample(left, max(0, min(count - len(found), len(left))))


class Strategy(Protocol):
    """A search strategy proposes up to ``count`` untried schemes, or fewer if fewer are left."""

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        """Returns the schemes to measure next.

        Args:
            state: the space, the shapes and all records so far.
            count: the largest number of schemes.
            random: the only source of chance, so that equal seeds give equal searches.
        """


def proposed(strategy: Strategy, state: SearchState, count: int, random: Random) -> tuple[Scheme, ...]:
    """Returns the proposal of a strategy: at most ``count`` untried schemes of the space, each once."""
    require_methods("a strategy", strategy, ("propose",), SpaceError)
    name = name_of(strategy)
    what, remedy = f"what propose of {name} returns", "Return some of state.untried."
    found = listed(what, strategy.propose(state, count, random), SpaceError)
    for scheme in found:
        if not isinstance(scheme, Scheme):
            raise SpaceError(f"{what} must be a list of schemes", shown(scheme), remedy)
        if scheme not in state.space:
            raise SpaceError(f"{name} must propose schemes of the space", scheme.key, remedy)
        if scheme in state.tried:
            raise SpaceError(
                f"{name} must propose schemes that were not tried", scheme.key, "state.untried has them."
            )
    if len(set(found)) < len(found):
        twice = next(scheme.key for scheme in found if found.count(scheme) > 1)
        raise SpaceError(f"{name} must propose each scheme once", f"{twice} twice")
    if len(found) > count:
        raise SpaceError(f"{name} must propose at most {count} schemes", len(found))
    if not found and state.untried:
        raise SpaceError(
            f"{name} must propose a scheme as long as some are left",
            f"none, of {len(state.untried)}",
            "state.filled(picks, count, random) adds some at random.",
        )
    return found


def target_shape(scheme: Scheme, space: Space, shapes: tuple[Shape, ...]) -> Shape:
    """Returns ``S*``, the shape on which a candidate is measured: the shape with the least adaptation
    cost."""
    return best_shape(scheme, shapes, adaptation_cost(space.workload, space.hardware))

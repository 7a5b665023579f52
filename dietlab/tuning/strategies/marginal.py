"""Greedy search by marginal gain, with and without a preceding analytic draft."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from random import Random

import numpy as np
import numpy.typing as npt

from dietlab.base.statistics import Values
from dietlab.cost import Analytic, adaptation_cost
from dietlab.cost.measured import Measured
from dietlab.scheme import Scheme
from dietlab.tuning.state import SearchState

TIES = 1e-3
"""The weight of a scheme's mean time relative to its gain: if no scheme gains, the best on average is
picked."""


@dataclass(frozen=True)
class MarginalStrategy:
    """Greedy search by marginal gain: each pick helps the shapes that earlier picks left slow.

    Predicts every untried scheme on every shape. Picks schemes one by one: each pick lowers the weighted sum
    of log times most, given the best known time of each shape and the earlier picks. A share of the picks,
    ``near_share``, differs in one parameter from the fastest scheme so far on a measured shape, since the
    model predicts slow times for an access pattern without a fast measurement. Another share,
    ``random_share``, is random. (Replayed on all 2992 schemes of a layer with weights from memory on a Xeon,
    T = 1, 24 and 128, 16 seeds: 64 trials find 96 % of the best speeds in place of 94.5 %.)

    Predictions of similar schemes are similar, and the first predictions err together. So at most
    ``tile_share`` of the picks have the same tile, and at most ``width_share`` the same tile width, until no
    other schemes are left. (Replayed on all 1512 schemes of a dense layer from a uniform first round, 64
    trials end 0.7 % above the fastest on average with these limits, 1.7 % without.)

    The first round, before there is a predictor, tries every access pattern
    (:attr:`MicroKernel.access_pattern`) in each loop order equally often: a pattern that is left out may
    never be proposed later.
    """

    near_share: float = 0.3
    random_share: float = 0.1
    tile_share: float = 1 / 8
    width_share: float = 1 / 4

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if state.predictor is None or not state.untried:
            return _dealt(state.untried, count, random)
        return self.chosen(state, state.untried, count, random)

    def chosen(
        self, state: SearchState, schemes: Sequence[Scheme], count: int, random: Random
    ) -> list[Scheme]:
        """Returns the picks of a round. The state must have a predictor. Only times of ``schemes`` are
        predicted."""
        picks = self.guided(state, schemes, count)
        near = [scheme for scheme in _near(state, random) if scheme not in picks]
        return state.filled([*picks, *near[: round(count * self.near_share)]], count, random)

    def guided(self, state: SearchState, schemes: Sequence[Scheme], count: int) -> list[Scheme]:
        """Returns the picks among ``schemes`` that the predictor determines, without near and random ones."""
        assert state.predictor is not None
        logs = logarithms(state.predictor.seconds(schemes, state.shapes.shapes))
        known = logarithms(np.array([state.best_seconds[shape] for shape in state.shapes]))
        guided = min(count - round(count * (self.near_share + self.random_share)), len(schemes))
        limits = (
            (numbered([tile(scheme) for scheme in schemes]), guided * self.tile_share),
            (numbered([scheme.cols for scheme in schemes]), guided * self.width_share),
        )
        return [schemes[pick] for pick in greedy(logs, known, np.array(state.shapes.weights), guided, limits)]


@dataclass(frozen=True)
class DraftStrategy:
    """Draft-then-verify: an analytic draft picks many schemes, and the learned model picks few among these.

    The draft (:class:`~dietlab.cost.Analytic`) needs no measurement. In the first round, before there is a
    model, the draft picks ``first_share`` of the schemes, each with another tile, since the draft makes equal
    errors on equal tiles. The other schemes are dealt over the access patterns, as in
    :class:`MarginalStrategy`; on a GPU only schemes that the draft ranks first are dealt
    (:attr:`Formulas.DEALT`). Later, the learned model chooses by marginal gain among the schemes that the
    draft ranks first: the share :attr:`Formulas.DEALT` of the untried ones, or ``drafts`` per proposed
    scheme, whichever is more. So the model predicts few schemes of a large space.

    Args:
        drafts: the number of drafted schemes for each proposed one.
        first_share: the share of the first round that is drafted.
    """

    drafts: int = 64
    first_share: float = 0.5
    verify: MarginalStrategy = MarginalStrategy()

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        if not state.untried:
            return ()
        logs = logarithms(Analytic.of(state.space, state.cache).seconds(state.untried, state.shapes.shapes))
        if state.predictor is None:
            return self._first(state, logs, count, random)
        drafted = [state.untried[number] for number in _drafted(state, logs, self.drafts * count)]
        return self.verify.chosen(state, sorted(drafted), count, random)

    def _first(self, state: SearchState, logs: Values, count: int, random: Random) -> list[Scheme]:
        tiles = (numbered([tile(scheme) for scheme in state.untried]), 1.0)
        wanted = min(round(self.first_share * count), len(state.untried))
        picks = greedy(logs, logs.max(axis=0), np.array(state.shapes.weights), wanted, (tiles,))
        drafted = [state.untried[pick] for pick in picks]
        near = set(_drafted(state, logs, count)) - set(picks)
        left = [scheme for number, scheme in enumerate(state.untried) if number in near]
        return [*drafted, *_dealt(left, count - len(drafted), random)]


def _near(state: SearchState, random: Random) -> list[Scheme]:
    """Returns the untried schemes that differ in one parameter from the fastest scheme on a measured shape.
    The shapes take turns; each turn adds a random scheme of that shape."""
    if not state.measured:
        return []
    measured = Measured.of(state.space.workload, state.records)
    pairs = list(zip(measured.seconds.tolist(), measured.schemes, measured.shapes, strict=True))
    fastest = dict.fromkeys(
        min(p for p in pairs if p[2] == shape)[1] for shape in dict.fromkeys(measured.shapes)
    )
    untried = [(scheme, scheme.parameters) for scheme in random.sample(state.untried, len(state.untried))]
    ways = [
        [scheme for scheme, own in untried if sum(best.get(key) != own[key] for key in own) == 1]
        for best in (scheme.parameters for scheme in fastest)
    ]
    return list(dict.fromkeys(scheme for turn in zip_longest(*ways) for scheme in turn if scheme is not None))


def _drafted(state: SearchState, logs: Values, least: int) -> list[int]:
    """Returns the indices of the untried schemes that a search chooses from: the fastest schemes by the
    draft's log times ``logs``. Their number is at least ``least``, and their share at least
    :attr:`Formulas.DEALT`."""
    share = adaptation_cost(state.space.workload, state.space.hardware).formulas.DEALT
    behind: Values = (logs - logs.min(axis=0)).min(axis=1)  # the fastest of a shape, where it is least behind
    order = behind.argsort(kind="stable").tolist()
    return [*order[: max(least, ceil(share * len(state.untried)))]]


def greedy(
    logs: Values,
    known: Values,
    weights: Values,
    count: int,
    limits: Sequence[tuple[npt.NDArray[np.intp], float]],
) -> list[int]:
    """Returns the indices of ``count`` schemes. Each scheme lowers the weighted mean of ``logs`` most, given
    the earlier schemes.

    Args:
        logs: the logarithms of times, ``[schemes, shapes]``.
        known: the logarithms of the best known times, ``[shapes]``.
        count: the number of picks, at most the number of schemes.
        limits: for each limit, the group of each scheme, and the most picks of one group. A limit no longer
            holds once no other schemes are left.
    """
    means = TIES * (logs @ weights)
    chosen: list[int] = []
    for _ in range(count):
        scores = np.maximum(0.0, known - logs) @ weights - means
        scores[chosen] = -np.inf
        various = scores.copy()
        for groups, most in limits:
            various[np.bincount(groups[chosen], minlength=len(groups))[groups] >= most] = -np.inf
        pick = int(scores.argmax() if np.isneginf(various).all() else various.argmax())
        chosen.append(pick)
        known = np.minimum(known, logs[pick])
    return chosen


def tile(scheme: Scheme) -> Hashable:
    """Returns the sizes of the tile."""
    return tuple(scheme.kernel.tile.values())


def numbered(groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    """Numbers the distinct groups from 0. Returns the number of each element's group."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[group] for group in groups], np.intp)


def _dealt(schemes: Sequence[Scheme], count: int, random: Random) -> list[Scheme]:
    """Draws ``count`` schemes at random, one of each access pattern in turn."""
    ways: dict[Hashable, list[Scheme]] = {}
    for scheme in random.sample(schemes, len(schemes)):
        ways.setdefault((scheme.order, scheme.kernel.access_pattern), []).append(scheme)
    turns = zip_longest(*ways.values())
    return [scheme for turn in turns for scheme in turn if scheme is not None][:count]


def logarithms(predicted: Values) -> Values:
    """Returns the logarithms of times. For empty calls, whose time is 0, returns 0."""
    return np.asarray(np.log(np.where(predicted > 0, predicted, 1.0)))

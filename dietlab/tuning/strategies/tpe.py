"""Optuna's sampler as an independent reference: a tree-structured Parzen estimator over the knobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dietlab.base.errors import MissingDependencyError
from dietlab.scheme import Scheme
from dietlab.tuning.state import SearchState
from dietlab.tuning.strategies.knobs import Knobs, knobs_of, numbers_of


@dataclass(frozen=True)
class TpeStrategy:
    """The tree-structured Parzen estimator of Optuna, with its defaults except that knobs are sampled
    together.

    Each proposal has a target shape, drawn by the shapes' weights. A separate study of Optuna gets all
    measured schemes with their predicted throughput on that shape, and samples knobs. The untried scheme
    nearest to these knobs is proposed. The first round is random.
    """

    def propose(self, state: SearchState, count: int, random: Random) -> Sequence[Scheme]:
        """Returns the schemes to measure next."""
        optuna = _optuna()
        if state.predictor is None or not state.measured:
            return state.filled((), count, random)
        knobs, numbers = knobs_of(state.space), numbers_of(state.space)
        known = state.relative(state.measured)
        free = {numbers[scheme] for scheme in state.untried}
        shapes = random.choices(range(len(state.shapes)), state.shapes.weights, k=min(count, len(free)))
        picks: list[Scheme] = []
        for shape, wanted in sorted(Counter(shapes).items()):
            sampler = optuna.samplers.TPESampler(
                multivariate=True, constant_liar=True, seed=random.randrange(1 << 31)
            )
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for scheme, value in zip(state.measured, known[:, shape].tolist(), strict=True):
                codes = knobs.codes[numbers[scheme]]
                study.add_trial(_trial(optuna, knobs, codes, value))
            for _ in range(wanted):
                sampled = study.ask(_distributions(optuna, knobs)).params
                codes = tuple(sampled[name] for name in knobs.names)
                number = knobs.nearest(codes, sorted(free), lambda _: random.random())
                free.discard(number)
                picks.append(state.space.schemes[number])
        return picks


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingDependencyError(
            "the strategy tpe needs the extra optuna", error, "pip install 'dietlab[optuna]'."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distributions(optuna: Any, knobs: Knobs) -> dict[str, Any]:
    ranges = zip(knobs.names, knobs.values, strict=True)
    return {name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in ranges}


def _trial(optuna: Any, knobs: Knobs, codes: Sequence[int], value: float) -> Any:
    params = dict(zip(knobs.names, codes, strict=True))
    return optuna.trial.create_trial(params=params, distributions=_distributions(optuna, knobs), value=value)

"""The cost models by name, as ``tune(predictor=...)`` and ``--cost-model`` take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dietlab.cost.analytic import AnalyticPredictor
from dietlab.cost.blended import BlendedPredictor
from dietlab.cost.boosted import BoostedPredictor
from dietlab.cost.predictor import LearnedPredictor, PaperPredictor, Predictor
from dietlab.cost.prior import Prior
from dietlab.errors import ModelError, closest
from dietlab.measure import CacheState

COST_MODEL = "learned"
"""The default's name."""


@dataclass(frozen=True)
class Registered:
    """A cost model with a name.

    Args:
        told: what it is, in one line.
        make: returns its predictor, for a cache state and a seed.
    """

    told: str
    make: Callable[[CacheState, int], Predictor]


COST_MODELS: Mapping[str, Registered] = {
    "learned": Registered(
        "the default: the adaptation cost, corrected by what alike schemes took on alike shapes",
        lambda cache, seed: LearnedPredictor(cache=cache, seed=seed),
    ),
    "analytic": Registered(
        "the processor's bound and the adaptation cost; learns nothing",
        lambda cache, seed: AnalyticPredictor(cache),
    ),
    "paper": Registered(
        "DietCode's product: learned throughput x occupancy x padding",
        lambda cache, seed: PaperPredictor(cache, seed),
    ),
    "knobs": Registered(
        "boosted trees on what the search chooses, AutoTVM's first way",
        lambda cache, seed: BoostedPredictor("knobs", cache=cache, seed=seed),
    ),
    "loops": Registered(
        "boosted trees on the loops of the program: bytes, reuse, intensity",
        lambda cache, seed: BoostedPredictor("loops", cache=cache, seed=seed),
    ),
    "ranking": Registered(
        "boosted trees on the loops that learn the order of pairs only",
        lambda cache, seed: BoostedPredictor(
            "loops", over_adaptation=True, objective="rank:pairwise", cache=cache, seed=seed
        ),
    ),
    "ensemble": Registered(
        "eight fits of boosted trees, over the adaptation cost; where they differ is its doubt",
        lambda cache, seed: BoostedPredictor("loops", over_adaptation=True, fits=8, cache=cache, seed=seed),
    ),
    "blended": Registered(
        "halfway between learned and trees on loops, which err differently",
        BlendedPredictor,
    ),
}
"""In the order in which a help lists them."""


def predictor_named(name: str | Predictor, cache: CacheState = "hot", seed: int = 0) -> Predictor:
    """Returns the cost model of that name, or the predictor itself.

    Args:
        name: a key of :data:`COST_MODELS`, or a predictor, which is returned as it is.
        cache: where the measured calls find their operands.
        seed: of a model that draws at random.

    Raises:
        ModelError: for an unknown name.
    """
    if not isinstance(name, str):
        return name
    if name not in COST_MODELS:
        raise ModelError(
            f"a cost model is one of {', '.join(COST_MODELS)}", repr(name), closest(name, COST_MODELS)
        )
    return COST_MODELS[name].make(cache, seed)


def with_prior(predictor: Predictor, prior: Prior | None) -> Predictor:
    """Returns the predictor that starts from a prior, if there is one.

    Args:
        predictor: the cost model.
        prior: what records of other tasks taught (None: nothing, the predictor stays as it is).

    Raises:
        ModelError: if the predictor takes none.
    """
    if prior is None:
        return predictor
    if not isinstance(predictor, LearnedPredictor):
        raise ModelError(
            f"a prior is for the cost model {COST_MODEL}",
            type(predictor).__name__,
            "Tune with that, or without.",
        )
    return replace(predictor, prior=prior)

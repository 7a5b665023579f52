"""The cost models by name, as ``tune(predictor=...)`` and ``--cost-model`` take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import getdoc, signature
from typing import cast

from dietlab.base.contracts import require_methods, shown
from dietlab.base.errors import ModelError
from dietlab.base.registry import Registry
from dietlab.cost.boosted import BlendedPredictor, BoostedPredictor
from dietlab.cost.predictor import AnalyticPredictor, LearnedPredictor, PaperPredictor, Predictor
from dietlab.cost.prior import Prior
from dietlab.measure import CacheState

COST_MODEL = "learned"
"""The name of the default cost model."""


@dataclass(frozen=True)
class Registered:
    """A cost model with a name.

    Args:
        summary: the description of the cost model, in one line.
        make: a function that returns the predictor for a cache state and a seed.
    """

    summary: str
    make: Callable[[CacheState, int], Predictor]


def _cost_model(name: str, value: object) -> Registered:
    """Returns the registered cost model. If ``value`` is a class, each predictor is a new object of the
    class, made with ``cache`` and ``seed`` if the constructor has these parameters. Else ``value`` is the
    predictor."""
    if isinstance(value, Registered):
        return value
    if not callable(getattr(value, "fit", None)):
        raise ModelError(
            f"the cost model {name} must be a class or an object with fit, or a Registered", shown(value)
        )
    summary = (getdoc(value) or name).partition("\n")[0]
    if not isinstance(value, type):
        return Registered(summary, lambda cache, seed: cast(Predictor, value))
    named = set(signature(value).parameters) & {"cache", "seed"}

    def make(cache: CacheState, seed: int) -> Predictor:
        given = {"cache": cache, "seed": seed}
        return cast(Predictor, value(**{key: given[key] for key in sorted(named)}))

    return Registered(summary, make)


_OWN: dict[str, Registered] = {
    "learned": Registered(
        "the default: the adaptation cost, corrected by what similar schemes took on similar shapes",
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

COST_MODELS: Registry[Registered] = Registry(
    "a cost model", "dietlab.cost_models", _OWN, _cost_model, ModelError
)
"""The cost models by name, in the order in which a help lists them. ``COST_MODELS["nearest"] =
NearestPredictor`` enters a class, or an object, of your own."""


def predictor_named(name: str | Predictor, cache: CacheState = "hot", seed: int = 0) -> Predictor:
    """Returns the predictor of the cost model ``name``, or ``name`` itself if it is a predictor.

    Args:
        name: a key of :data:`COST_MODELS`, ``MODULE:NAME``, or a predictor, which is returned as it is.
        cache: the cache state in which measured calls find their operands.
        seed: the seed of a model that draws at random.

    Raises:
        ModelError: for an unknown name, or anything without ``fit``.
    """
    if not isinstance(name, str):
        require_methods("a cost model", name, ("fit",), ModelError)
        return name
    return _made(name, COST_MODELS.named(name), cache, seed)


def predictor_found(name: str, cache: CacheState = "hot", seed: int = 0) -> Predictor:
    """Returns the cost model that a file names. No module is imported to find the model.

    Args:
        name: a key of :data:`COST_MODELS`.
        cache, seed: as in :func:`predictor_named`.

    Raises:
        ModelError: for an unknown name.
    """
    return _made(name, COST_MODELS.found(name), cache, seed)


def _made(name: str, known: Registered, cache: CacheState, seed: int) -> Predictor:
    made = known.make(cache, seed)
    require_methods(f"the cost model {name}", made, ("fit",), ModelError)
    return made


def with_prior(predictor: Predictor, prior: Prior | None) -> Predictor:
    """Returns the predictor that starts from a prior, if there is one.

    Args:
        predictor: the cost model.
        prior: a model of the records of other tasks (None: the predictor stays as it is).

    Raises:
        ModelError: if the predictor takes no prior.
    """
    if prior is None:
        return predictor
    if not isinstance(predictor, LearnedPredictor):
        raise ModelError(
            f"a prior can only be used with the cost model {COST_MODEL}",
            type(predictor).__name__,
            f"Tune with {COST_MODEL}, or without a prior.",
        )
    return replace(predictor, prior=prior)

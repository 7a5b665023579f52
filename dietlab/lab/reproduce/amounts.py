"""The amount of measuring by effort: operators, lengths, trials and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dietlab.base.errors import require_names
from dietlab.compare.suites.every_layer import EveryLayer
from dietlab.compare.suites.lengths import LENGTHS, PAPER_LENGTHS, QUICK_LENGTHS
from dietlab.compare.suites.suite import Suite, Task, every_layer_task, suite_named
from dietlab.lab.models import DEFAULT_MODEL_CONTENDERS, Model, padded_lengths
from dietlab.lab.reproduce.paper import EDGES
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload

MODEL_LENGTHS = (
    1, 2, 3, 4, 5, 8, 10, 12, 14, 16, 17, 20, 24, 28, 31, 32, 36, 40, 43, 47, 48, 53, 56, 60, 61, 62, 64, 68,
    72, 81, 83, 88, 92, 96, 100, 107, 113, 119, 124, 128,
)  # fmt: skip
"""Tokens of one sentence with effort full: those of the recorded models."""

SENTENCES = Dim(1, 128)
"""Tokens of a sentence of the paper's model."""

STEPS, SHORT_STEPS = Dim(1, 2048), Dim(1, 512)
"""Tokens of a server's step: all of ``data/traffic``'s trace, and the short steps among
them, for an effort that is to be quick."""


@dataclass(frozen=True)
class EdgeCase:
    """An operator on which treatments of the edge are compared.

    Args:
        name: of the study in the table; a folder's name.
        task: the one whose study lends the scheme.
        workload: what the scheme computes.
        extent: rows that the scheme's tiles do not divide.
        lengths: rows that are measured, this one among them.
    """

    name: str
    task: Task
    workload: Workload
    extent: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """The calls of a model that are timed.

    Args:
        model: and its batch.
        timing: the effort of timing.
        lengths: in tokens.
        steps: the number of different lengths out of the trace of a server, instead of ``lengths``; timed are
            then also those to which servers pad them.
    """

    model: Model
    timing: str
    lengths: tuple[int, ...] = ()
    steps: int = 0

    @property
    def shapes(self) -> ShapeSet:
        """The lengths that count."""
        if self.steps:
            return ShapeSet.traffic(self.model, "serving", self.steps)
        return ShapeSet.extents(self.model, self.lengths)

    @property
    def also(self) -> tuple[Shape, ...]:
        """The lengths that are timed besides."""
        return padded_lengths(self.model, self.shapes) if self.steps else ()


@dataclass(frozen=True)
class Amounts:
    """The amount that an effort measures.

    Args:
        effort: the bench's: how long each is timed.
        suite: the paper's operators; the dense layer is the first.
        ansor_trials: of per-shape tuning, for each length.
        ablated: lengths of the ablation.
        edges: operators whose edges are treated in several ways.
        layers: the operator whose one library serves every dense layer of the model.
        sentences: the paper's model by batch.
        served: models that nobody tuned for, in a server.
        against: contenders of all models.
    """

    effort: str
    suite: Suite
    ansor_trials: int
    ablated: tuple[int, ...]
    edges: tuple[EdgeCase, ...]
    layers: Task
    sentences: tuple[Calls, ...]
    served: tuple[Calls, ...]
    against: tuple[str, ...] = DEFAULT_MODEL_CONTENDERS

    @property
    def dense(self) -> Task:
        """The paper's dense layer."""
        return self.suite.tasks[0]


def _edges(suite: Suite) -> tuple[EdgeCase, ...]:
    """Returns the paper's two operators. Half as many rows again and again make the edge a growing share."""
    dense, scores, _ = suite.tasks
    works = (replace(dense.workload, K=770), scores.workload)  # type: ignore[type-var]
    cases = zip(EDGES.items(), (dense, scores), works, strict=True)
    return tuple(
        EdgeCase(name, task, work, extent, tuple(extent >> halvings for halvings in range(7)))
        for (name, extent), task, work in cases
    )


def _real(effort: str, trials: int, sentences: tuple[Calls, ...], tokens: Dim, steps: int) -> Amounts:
    suite = suite_named("paper-cpu")
    layers = every_layer_task()
    served = tuple(Calls(Model(name, 1, tokens), "smoke", steps=steps) for name in ("decoder", "experts"))
    return Amounts(effort, suite, trials, QUICK_LENGTHS, _edges(suite), layers, sentences, served)


def _bert(batch: int, lengths: tuple[int, ...], timing: str) -> Calls:
    return Calls(Model("bert-base", batch, SENTENCES), timing, lengths)


def _tiny() -> Amounts:
    """Returns small operators that nobody learns from: does everything run?"""
    ends = ((1, 1.0), (16, 1.0))
    lengths = dict.fromkeys(LENGTHS, (1, 7, 15))
    dense = Task("dense-tiny", Dense(T=Dim(1, 16), N=64, K=32), ends, ("openblas", "largest-shape"), lengths)
    batched = tuple(
        Task(
            f"batch-matmul-{form}-tiny",
            BatchMatmul(T=Dim(1, 16), B=2, D=8, form=form),
            ends,
            ("openblas",),
            lengths,
        )
        for form in ("nt", "nn")
    )
    sizes = ((64, 64), (128, 64), (64, 128))
    none = dict.fromkeys(LENGTHS, (0, 0))
    layers = Task(
        "dense-tiny-layers",
        Dense(T=Dim(1, 16), N=Dim(16, 128), K=Dim(16, 128)),
        ends,
        (),
        layers=EveryLayer(sizes, (), lengths, lengths, none),
    )
    edge = EdgeCase("dense-tiny-edge", dense, Dense(T=Dim(1, 16), N=64, K=33), 15, (7, 15))
    sentences = (Calls(Model("bert-tiny", 1, SENTENCES), "smoke", (3,)),)
    served = (Calls(Model("decoder-tiny", 1, Dim(1, 16)), "smoke", steps=2),)
    suite = Suite("paper-tiny", (dense, *batched))
    return Amounts("smoke", suite, 4, (7,), (edge,), layers, sentences, served, ("torch",))


AMOUNTS: Mapping[str, Amounts] = {
    "smoke": _tiny(),
    "quick": _real(
        "quick", 32, (_bert(1, PAPER_LENGTHS, "quick"), _bert(16, (5, 43), "smoke")), SHORT_STEPS, 6
    ),
    "full": _real(
        "full",
        256,
        (_bert(1, MODEL_LENGTHS, "quick"), _bert(16, (5, 24, 43, 62, 81, 128), "smoke")),
        STEPS,
        10,
    ),
}
"""Amounts by effort. The estimates of all steps of ``quick`` fit 40 minutes on two cores; a call with 16
sentences, and a server's longest step, take seconds, so that the effort of their timing is small."""


def amounts_named(effort: str) -> Amounts:
    """Returns the amounts of an effort.

    Raises:
        DietlabError: if there is no such effort.
    """
    require_names("efforts of a reproduction", AMOUNTS, [effort])
    return AMOUNTS[effort]

"""The paper's claims and reported values, from ``data/paper``; and the operators, lengths, trials and models
that are measured with each effort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import require_names
from dietlab.base.shipped import data_path
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, untimed
from dietlab.compare.suites.every_layer import EveryLayer
from dietlab.compare.suites.lengths import LENGTHS, PAPER_LENGTHS, QUICK_LENGTHS
from dietlab.compare.suites.suite import Suite, every_layer_task, suite_named
from dietlab.compare.suites.task import Task
from dietlab.lab.models import DEFAULT_MODEL_CONTENDERS, Model, padded_lengths
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload

if TYPE_CHECKING:
    import pandas as pd

DENSE = "dense-k768-n2304"
"""The name of the dense layer of the paper's figure 10, with the same columns and depth."""

PAPER = "DietCode"
"""The name of the programs whose speedups the paper reports."""

DENSE_REPORTED, SENTENCES = "dense_16Tx768_2304", 16
"""The name of the same layer in the reported table, and its sentences in a batch."""

EDGES: Mapping[str, int] = {"dense-960x770x2304": 960, "bmm-nt-192x120x64x120": 120}
"""The operators on which the paper's authors compare treatments of the edge, and the rows that no tile of
theirs divides."""

TREATMENTS: Mapping[str, str] = {
    "predicated": "bound checks",
    "loop_partitioning": "loop partitioning",
    "local_padding": "local padding",
    "both": "both",
}
"""The treatments of the edge: from their names in the reported table to those of ``dietlab ablate``. The
paper's ``both`` is loop partitioning with local padding; on a CPU full tiles need no copy, so local padding
alone has the effect of both."""


@dataclass(frozen=True)
class Claim:
    """A line of ``data/paper/claims.csv``: the paper's value for an ``experiment``, in times (x)."""

    id: str
    experiment: str
    claim: str
    source: str
    reported: float


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """Returns the claims of a table (default: the table in ``data/paper``), in the table's order."""
    import pandas as pd

    table = pd.read_csv(path or data_path("paper/claims.csv"), keep_default_na=False)
    names = [field.name for field in fields(Claim)]
    return tuple(Claim(*row) for row in table[names].astype({"reported": float}).itertuples(index=False))


def reported_speedups(workload: str) -> pd.DataFrame:
    """Returns the reported speedup (x) of DietCode over each system, by length ``T``."""
    import pandas as pd

    table = pd.read_csv(data_path("paper/dietcode_latency.csv"))
    table = table[(table["workload"] == workload) & (table["T"] != "average")].astype({"T": int})
    times = table.pivot(index="T", columns="system", values="latency_relative_to_ansor")
    return times.div(times["dietcode"], axis=0).drop(columns="dietcode")


def reported_report() -> Report:
    """Returns the paper's dense layer on a T4 as a report of ratios without times, for
    :func:`dietlab.speedup_explorer`; a sentence of T tokens makes 16 T rows."""
    chip = replace(Hardware.preset("t4"), name="T4 (reported by the paper)").to_json()
    kinds = {"vendor": "plain", "ansor": "scheduler", "largest-shape": "scheduler"}
    table = reported_speedups(DENSE_REPORTED).rename(columns={"nimble": "largest-shape"})
    rows = []
    for tokens, speedups in table.to_dict("index").items():
        shape = Shape.of(T=SENTENCES * int(tokens))
        rows += [untimed(shape, PAPER), *(untimed(shape, name, speedups[name]) for name in kinds)]
    workload = Dense(T=Dim(rows[0].shape["T"], rows[-1].shape["T"]), N=2304, K=768)
    contenders = tuple(ContenderInfo(name, kind) for name, kind in kinds.items())
    return Report(workload.to_json(), chip, rows=tuple(rows), contenders=contenders, name=DENSE, maker=PAPER)


def reported_throughput(operator: str) -> pd.DataFrame:
    """Returns the reported throughput over the throughput with bound checks (x), with a row for each
    treatment and a column for each GPU.
    """
    import pandas as pd

    table = pd.read_csv(data_path("paper/dietcode_local_padding.csv"))
    names = table["workload"].str.replace(r"[ _]", "-", regex=True)
    found = table[names == operator].pivot(index="variant", columns="gpu", values="tflops")
    found = found / found.loc["predicated"]
    return found.reindex([name for name in TREATMENTS if name in found.index]).rename(index=TREATMENTS)


# --- amounts of measuring ---------------------------------------------------------------------


MODEL_LENGTHS = (
    1, 2, 3, 4, 5, 8, 10, 12, 14, 16, 17, 20, 24, 28, 31, 32, 36, 40, 43, 47, 48, 53, 56, 60, 61, 62, 64, 68,
    72, 81, 83, 88, 92, 96, 100, 107, 113, 119, 124, 128,
)  # fmt: skip
"""The numbers of tokens of one sentence with effort full: those of the recorded models."""

TOKENS = Dim(1, 128)
"""The range of the tokens of a sentence of the paper's model."""

STEPS, SHORT_STEPS = Dim(1, 2048), Dim(1, 512)
"""The ranges of the tokens of a server's step: all steps of the trace in ``data/traffic``, and only short
steps for quick efforts."""


@dataclass(frozen=True)
class EdgeCase:
    """An operator on which treatments of the edge are compared. The scheme comes from the study of ``task``;
    its tiles do not divide ``extent`` rows. ``lengths`` are the measured numbers of rows, including
    ``extent``."""

    name: str
    task: Task
    workload: Workload
    extent: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """The calls of a model that are timed: either at ``lengths`` in tokens, or at ``steps`` different lengths
    from a server's trace and the lengths to which servers pad these. ``timing`` is the effort.
    """

    model: Model
    timing: str
    lengths: tuple[int, ...] = ()
    steps: int = 0

    @property
    def shapes(self) -> ShapeSet:
        if self.steps:
            return ShapeSet.traffic(self.model, "serving", self.steps)
        return ShapeSet.extents(self.model, self.lengths)

    @property
    def also(self) -> tuple[Shape, ...]:
        """The lengths that are timed in addition."""
        return padded_lengths(self.model, self.shapes) if self.steps else ()


@dataclass(frozen=True)
class Amounts:
    """The operators, lengths, trials and models that an effort measures.

    Args:
        effort: the bench's effort, which sets the time for each contender.
        suite: the paper's operators; the dense layer is the first.
        ansor_trials: the number of trials of per-shape tuning for each length.
        ablated: the lengths of the ablation.
        layers: the operator whose one library serves every dense layer of the model.
        sentences: the calls of the paper's model, by batch.
        served: the calls of models in a server for which nothing was tuned.
        against: the contenders of all models.
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


def _edges(suite: Suite) -> tuple[EdgeCase, ...]:
    """Returns the cases of the paper's two operators. Their rows are halved repeatedly, so that the share of
    the edge grows.
    """
    dense, scores, _ = suite.tasks
    works = (replace(dense.workload, K=770), scores.workload)  # type: ignore[type-var]
    cases = zip(EDGES.items(), (dense, scores), works, strict=True)
    return tuple(
        EdgeCase(name, task, work, extent, tuple(extent >> halvings for halvings in range(7)))
        for (name, extent), task, work in cases
    )


def _real(
    effort: str, trials: int, one: tuple[int, ...], sixteen: tuple[int, ...], tokens: Dim, steps: int
) -> Amounts:
    """Returns the amounts for an effort with models of real size: lengths of one sentence and of sixteen, and
    steps of a server.
    """
    suite, layers = suite_named("paper-cpu"), every_layer_task()
    batches = ((1, one, "quick"), (16, sixteen, "smoke"))
    sentences = tuple(Calls(Model("bert-base", batch, TOKENS), timing, of) for batch, of, timing in batches)
    served = tuple(Calls(Model(name, 1, tokens), "smoke", steps=steps) for name in ("decoder", "experts"))
    return Amounts(effort, suite, trials, QUICK_LENGTHS, _edges(suite), layers, sentences, served)


def _tiny() -> Amounts:
    """Returns the amounts for effort ``smoke``, with small operators. Their times say nothing: they show only
    that everything runs.
    """
    ends = ((1, 1.0), (16, 1.0))
    lengths = dict.fromkeys(LENGTHS, (1, 7, 15))
    T = Dim(1, 16)
    dense = Task("dense-tiny", Dense(T, 64, 32), ends, ("openblas", "largest-shape"), lengths)
    products = {form: BatchMatmul(T=T, B=2, D=8, form=form) for form in ("nt", "nn")}
    batched = (
        Task(f"batch-matmul-{form}-tiny", product, ends, ("openblas",), lengths)
        for form, product in products.items()
    )
    sizes, none = ((64, 64), (128, 64), (64, 128)), dict.fromkeys(LENGTHS, (0, 0))
    every = EveryLayer(sizes, (), lengths, lengths, none)
    layers = Task("dense-tiny-layers", Dense(T, Dim(16, 128), Dim(16, 128)), ends, (), layers=every)
    edge = EdgeCase("dense-tiny-edge", dense, Dense(T, 64, 33), 15, (7, 15))
    sentences = (Calls(Model("bert-tiny", 1, TOKENS), "smoke", (3,)),)
    served = (Calls(Model("decoder-tiny", 1, T), "smoke", steps=2),)
    suite = Suite("paper-tiny", (dense, *batched))
    return Amounts("smoke", suite, 4, (7,), (edge,), layers, sentences, served, ("torch",))


AMOUNTS: Mapping[str, Amounts] = {
    "smoke": _tiny(),
    "quick": _real("quick", 32, PAPER_LENGTHS, (5, 43), SHORT_STEPS, 6),
    "full": _real("full", 256, MODEL_LENGTHS, (5, 24, 43, 62, 81, 128), STEPS, 10),
}
"""The amounts by effort. The estimates of all steps of ``quick`` fit 40 minutes on two cores; a call with 16
sentences or a server's longest step takes seconds, so that the effort of its timing is small."""


def amounts_named(effort: str) -> Amounts:
    """Returns the amounts of an effort."""
    require_names("efforts of a reproduction", AMOUNTS, [effort])
    return AMOUNTS[effort]

"""The paper's experiments as steps: what each shows, how long it takes, and the function that measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.results import ResultTable
from dietlab.lab.reproduce import experiments, figures
from dietlab.lab.reproduce.experiments import Settings

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Step:
    """One experiment of the paper.

    Args:
        name: short, unique; claims name their experiment by it.
        shows: what it shows of the paper, a sentence.
        seconds: about how long it takes, by effort, if the steps before it were done.
        run: measures in a folder, goes on where it was stopped, and returns the files of its records.
        table: the records that the page shows, out of the folder of records.
        beside: figures of reported values beside those of such a table, by heading.
        needs: modules that must be installed, and the extras that have them.
    """

    name: str
    shows: str
    seconds: Mapping[str, float]
    run: Callable[[Path, Settings], tuple[Path, ...]]
    table: Callable[[Path], ResultTable]
    beside: Callable[[ResultTable], Iterable[tuple[str, go.Figure]]] = figures.nothing
    needs: Mapping[str, str] | None = None

    def require(self) -> None:
        """Checks that what it needs is installed.

        Raises:
            MissingDependencyError: if something is not.
        """
        absent = {module: extra for module, extra in (self.needs or {}).items() if find_spec(module) is None}
        if absent:
            extras = ",".join(dict.fromkeys(absent.values()))
            raise MissingDependencyError(
                f"the step {self.name} has {' and '.join(self.needs or ())}",
                f"no {', '.join(absent)}",
                f"pip install 'dietlab[{extras}]'.",
            )


STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        Step(
            "dense",
            "Figure 10 and the tuning times: a dense layer 768 -> 2304 against vendors, one schedule for all "
            "lengths, and Ansor's method, which tunes each length.",
            {"smoke": 15, "quick": 480, "full": 2400},
            partial(experiments.bench, slice(1)),
            partial(experiments.operators, "dense"),
            figures.dense,
        ),
        Step(
            "batched",
            "Section 5.4: both batched products of attention, NT and NN, against vendors and one schedule.",
            {"smoke": 15, "quick": 360, "full": 600},
            partial(experiments.bench, slice(1, None)),
            partial(experiments.operators, "batch-matmul"),
        ),
        Step(
            "local-padding",
            "Local padding at the edge against bound checks and loop partitioning, on the operators of its "
            "authors' tests; ours composes exact tiles.",
            {"smoke": 5, "quick": 60, "full": 90},
            experiments.local_padding,
            partial(experiments.recorded, "local-padding"),
            figures.local_padding,
        ),
        Step(
            "ablations",
            "Each idea of a micro-kernel by itself: the dense layer's, without it.",
            {"smoke": 15, "quick": 180, "full": 360},
            experiments.ablations,
            partial(experiments.recorded, "ablation"),
        ),
        Step(
            "bert",
            "Figure 8: BERT-base from end to end, its dense layers from one library.",
            {"smoke": 45, "quick": 600, "full": 2100},
            partial(experiments.models, "sentences"),
            partial(experiments.recorded_models, ("bert",)),
            figures.bert,
            {"torch": "torch", "transformers": "models"},
        ),
        Step(
            "served",
            "Beyond the paper: a decoder and a mixture of experts that nobody tuned for, with the library of "
            "BERT, in a server that batches continuously; and the padding of other servers.",
            {"smoke": 45, "quick": 600, "full": 2200},
            partial(experiments.models, "served"),
            partial(experiments.recorded_models, ("decoder", "experts")),
            figures.served,
            {"torch": "torch", "transformers": "models"},
        ),
    )
}
"""Steps by name, in the order in which they run; one line more is one step more."""

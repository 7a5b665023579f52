"""Compares a cost model with NVIDIA's heuristics: the ranks of their choices among the space's micro-kernels.

Their configurations are looked up in a space of ours::

    for each shape:   128x64x32.s4  ->  the nearest of the micro-kernels of 128 rows and 64 columns
                                    ->  its rank among all, by predicted time

Neither side measures anything: where they disagree, a measurement decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.cost import Analytic, Predicts
from dietlab.lab.heuristics.nvidia import COUNT, Configuration, Heuristics, Reference
from dietlab.problem import Shape
from dietlab.scheme import Space
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Match:
    """A configuration and the scheme that is nearest to it; None where the space lacks its tile.

    Args:
        rank: of the scheme among all of the space by predicted time, 1 for the fastest.
        seconds: its predicted time.
    """

    configuration: Configuration
    scheme: CudaScheme | None = None
    rank: int | None = None
    seconds: float | None = None

    @property
    def exact(self) -> bool:
        """True if step, stages and splits are equal too."""
        names = ("step", "stages", "splits")
        return self.scheme is not None and all(
            getattr(self.scheme.kernel, name) == getattr(self.configuration, name) for name in names
        )


@dataclass(frozen=True)
class Comparison:
    """The choices of the heuristics and of a model of ours for one shape.

    Args:
        matches: the heuristics' configurations, best first.
        choice: the scheme that the model predicts to be fastest, and its ``seconds``.
        ranked: schemes of the space.
    """

    shape: Shape
    matches: tuple[Match, ...]
    choice: CudaScheme
    seconds: float
    ranked: int

    @property
    def in_space(self) -> int:
        """Configurations whose tile the space has."""
        return sum(match.scheme is not None for match in self.matches)

    @property
    def exact(self) -> int:
        """Configurations that the space has with the same step, stages and splits."""
        return sum(match.exact for match in self.matches)

    @property
    def best_rank(self) -> int | None:
        """The best rank of all configurations; None if the space lacks all their tiles."""
        return min((match.rank for match in self.matches if match.rank), default=None)

    @property
    def slowdown(self) -> float | None:
        """The predicted time of the heuristics' first choice over that of the model's own (1: as fast); None
        if the space lacks that tile."""
        first = self.matches[0].seconds
        return None if first is None else first / self.seconds

    def row(self) -> dict[str, Any]:
        """Returns the row of :func:`frame_heuristics`; None where there is no value."""
        first = self.matches[0]
        return {
            **self.shape.to_json(),
            "nvidia": first.configuration.key,
            "nvidia_seconds": first.configuration.seconds,
            "scheme": first.scheme.key if first.scheme else None,
            "scheme_seconds": first.seconds,
            "rank": first.rank,
            "ranked": self.ranked,
            "slowdown": self.slowdown,
            "choice": self.choice.key,
            "choice_seconds": self.seconds,
            "proposed": len(self.matches),
            "in_space": self.in_space,
            "exact": self.exact,
            "best_rank": self.best_rank,
        }


def compare_with_heuristics(
    space: Space,
    shapes: Iterable[Shape],
    model: Predicts | None = None,
    reference: Reference | None = None,
    count: int = COUNT,
) -> tuple[Comparison, ...]:
    """Ranks, for each shape, the schemes that NVIDIA's heuristics would choose by the model's
    predictions.

    Of all schemes with a configuration's tile those count whose splits are nearest, then those whose
    step is, then those whose stages are; of these the one that is predicted to be fastest, since a
    configuration says nothing of the rest, such as how many threads share a tile.

    Args:
        space: the schemes of a GPU.
        shapes: the shapes to compare on.
        model: what predicts times; if it is None, what is expected before anything is measured
            (:class:`~dietlab.cost.Analytic`).
        reference: what proposes configurations; :class:`Heuristics` for the space's GPU if it is None.
        count: configurations a shape.

    Raises:
        MissingDependencyError: if the heuristics are not installed.
        HardwareError: if the space is a CPU's, or of a GPU that they do not know.
    """
    gpu_of(space.hardware)
    reference = Heuristics(space.hardware) if reference is None else reference
    chosen, schemes = tuple(shapes), space.schemes
    table = (Analytic.of(space) if model is None else model).seconds(schemes, chosen)
    found = []
    for shape, seconds in zip(chosen, table.T, strict=True):
        wanted = reference.configurations(space.workload, shape, count)
        matches = tuple(_match(one, schemes, seconds) for one in wanted)
        best = int(seconds.argmin())
        found.append(Comparison(shape, matches, schemes[best], float(seconds[best]), len(schemes)))
    return tuple(found)


def _match(wanted: Configuration, schemes: Sequence[CudaScheme], seconds: Values) -> Match:
    same = [i for i, k in enumerate(schemes) if (k.rows, k.cols) == (wanted.rows, wanted.cols)]
    if not same:
        return Match(wanted)

    def distance(i: int) -> tuple[float, ...]:
        kernel = schemes[i].kernel
        splits, step = kernel.splits / wanted.splits, kernel.step / wanted.step
        stages = abs(kernel.stages - wanted.stages)
        return abs(log2(splits)), abs(log2(step)), stages, float(seconds[i])

    nearest = min(same, key=distance)
    rank = 1 + int((seconds < seconds[nearest]).sum())
    return Match(wanted, schemes[nearest], rank, float(seconds[nearest]))


def frame_heuristics(comparisons: Iterable[Comparison]) -> pd.DataFrame:
    """Returns one row a shape.

    ``nvidia`` is the heuristics' first choice and ``nvidia_seconds`` their estimate; ``scheme`` is ours
    of that tile, with its predicted seconds and its ``rank`` among ``ranked``; ``choice`` is what the model
    prefers, and ``slowdown`` the predicted time of the first choice over its own. Of the configurations
    ``proposed`` the space has the tiles of ``in_space``, and step, stages and splits too of ``exact``;
    ``best_rank`` is the best among them.

    Args:
        comparisons: what :func:`compare_with_heuristics` returned.
    """
    import pandas as pd

    table = pd.DataFrame([comparison.row() for comparison in comparisons])
    return table.astype({name: "Int64" for name in ("rank", "best_rank") if name in table})

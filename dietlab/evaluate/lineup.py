"""Who takes part in an evaluation, and everything that is built or tuned before the first shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dietlab.dispatch import Dispatcher, Operator, build
from dietlab.errors import DispatchError, MissingDependencyError
from dietlab.evaluate.ansor import AnsorResult, tune_static
from dietlab.evaluate.match import Entry
from dietlab.evaluate.report import OURS, Contender
from dietlab.evaluate.vendors import VENDORS
from dietlab.events import Audience
from dietlab.search import Effort, TuningRun
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Leaf, MicroKernel

BOUNDS = ("ansor", "largest-shape", "oracle")
CONTENDERS = (*VENDORS, *BOUNDS)
ORACLE_FINALISTS = 4
"""Micro-kernels timed for each shape; the fastest of them is the oracle."""


@dataclass(frozen=True)
class Lineup:
    """Contenders that were asked for; ``candidates`` are the oracle's micro-kernels by plan number."""

    dispatcher: Dispatcher
    tuned: TuningRun | None
    entries: tuple[Entry, ...]
    absent: tuple[Contender, ...] = ()
    candidates: tuple[MicroKernel, ...] = ()
    ansor: tuple[AnsorResult, ...] = ()
    notes: tuple[str, ...] = ()

    def oracle_plans(self, shape: Shape) -> list[int]:
        """The candidates that are probably fastest on a shape."""
        if self.tuned is None or not self.candidates:
            return []
        seconds = self.tuned.seconds_table(self.candidates, [shape])[:, 0]
        return [int(i) for i in seconds.argsort()[:ORACLE_FINALISTS]]


def assemble(
    op: Operator, against: Sequence[str], tuned: TuningRun | None, home: Path, shapes: ShapeSet,
    effort: Effort, listeners: Audience,
) -> Lineup:  # fmt: skip
    """Builds and tunes in ``home`` what the contenders need.

    Raises:
        DispatchError: for an unknown contender, or one that needs ``tuned`` without it.
    """
    unknown = [name for name in against if name not in CONTENDERS]
    if unknown:
        raise DispatchError(f"contenders are {', '.join(CONTENDERS)}", ", ".join(unknown))
    entries = [Entry(OURS, "library", "ours", {"library": str(op.path.parent)})]
    entries += [Entry(name, name) for name in against if name in VENDORS]
    lineup = Lineup(Dispatcher.from_json(op.manifest), tuned, tuple(entries))
    if "largest-shape" in against:
        lineup = with_largest_shape(lineup, home / "largest-shape")
    if "oracle" in against:
        lineup = with_oracle(lineup, home / "oracle")
    return with_ansor(lineup, home / "ansor", shapes, effort, listeners) if "ansor" in against else lineup


def with_largest_shape(lineup: Lineup, home: Path) -> Lineup:
    """One program for all shapes, the fastest for the largest (Nimble's way, MLSys 2021)."""
    dispatcher, tuned = lineup.dispatcher, _tuned(lineup)
    largest = Shape.of(**{name: dim.high for name, dim in dispatcher.workload.dims.items()})
    kernels = tuned.micro_kernels
    best = kernels[int(tuned.seconds_table(kernels, [largest])[:, 0].argmin())]
    library = build(replace(dispatcher, micro_kernels=(best,), tree=Leaf(0)), home)
    options = {"library": str(library.path.parent)}
    detail = f"{best.key}, the fastest for {largest}"
    entry = Entry("largest-shape", "library", "one schedule", options, detail)
    return replace(lineup, entries=(*lineup.entries, entry))


def with_oracle(lineup: Lineup, home: Path) -> Lineup:
    """One library of every micro-kernel that was measured; plans are chosen from outside."""
    tuned = _tuned(lineup)
    kernels = tuned.micro_kernels
    library = build(replace(lineup.dispatcher, micro_kernels=kernels, tree=Leaf(0)), home)
    note = (
        f"The oracle is the fastest of {ORACLE_FINALISTS} finalists for each shape, chosen from the "
        f"{len(kernels)} micro-kernels measured of {len(tuned.space)} in the space."
    )
    options = {"library": str(library.path.parent)}
    entry = Entry("oracle", "library", "bound", options, f"best of {len(kernels)} micro-kernels")
    return replace(lineup, entries=(*lineup.entries, entry), candidates=kernels, notes=(*lineup.notes, note))


def with_ansor(lineup: Lineup, home: Path, shapes: ShapeSet, effort: Effort, listeners: Audience) -> Lineup:
    """Per-shape tunings, those of the largest weight first, until the effort's seconds are spent."""
    workload, hardware = lineup.dispatcher.workload, lineup.dispatcher.hardware
    wanted = [shape for shape in shapes if shape not in shapes.held_out] or list(shapes)
    results: list[AnsorResult] = []
    left = effort.ansor_seconds
    try:
        for shape in sorted(wanted, key=lambda s: -shapes.weight(s)):
            if left is not None and left <= 0:
                break
            results.append(
                tune_static(
                    workload, hardware, shape, home, effort.ansor_trials, left, observers=listeners.observers
                )
            )
            left = None if left is None else left - results[-1].seconds
    except MissingDependencyError as error:
        return replace(lineup, absent=(*lineup.absent, Contender("ansor", "scheduler", absent=str(error))))
    trials = "-".join(
        str(n) for n in sorted({min(r.trials for r in results), max(r.trials for r in results)})
    )
    detail = (
        f"{trials} trials a shape, {len(results)} shapes tuned in {sum(r.seconds for r in results):.0f} s "
        "(about 1000 trials a shape are usual)"
    )
    entry = Entry("ansor", "ansor", "scheduler", {"library": str(home)}, detail)
    return replace(lineup, entries=(*lineup.entries, entry), ansor=tuple(results))


def _tuned(lineup: Lineup) -> TuningRun:
    if lineup.tuned is None:
        raise DispatchError(
            "oracle and largest-shape need the tuning run behind the operator", "tuned=None",
            "Pass tuned=run, or evaluate a study.",
        )  # fmt: skip
    return lineup.tuned

"""Stage 5: the operator against vendors, per-shape auto-scheduling, one schedule for all, and the oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from dietlab.cost import padding_waste
from dietlab.dispatch import Dispatcher, Operator, build, versions
from dietlab.errors import DispatchError, MissingDependencyError
from dietlab.evaluate.ansor import AnsorResult, tune_static
from dietlab.evaluate.match import Entry, Match, Turn
from dietlab.evaluate.overhead import overheads
from dietlab.evaluate.report import OURS, Contender, Report, Row
from dietlab.evaluate.statistics import median_interval, paired_ratio
from dietlab.evaluate.vendors import VENDORS
from dietlab.events import Audience, Observer, audience
from dietlab.search import Effort, TuningRun
from dietlab.search.effort import effort_named
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import Leaf, MicroKernel
from dietlab.workloads import extents

BOUNDS = ("ansor", "largest-shape", "oracle")
CONTENDERS = (*VENDORS, *BOUNDS)
ORACLE_FINALISTS = 4
"""Micro-kernels timed for each shape; the fastest of them is the oracle."""


def evaluate(
    op: Operator,
    shapes: ShapeSet,
    against: Sequence[str] = ("openblas", "mkl", "mkl-packed", "onednn-packed"),
    *,
    caches: Sequence[str] = ("hot",),
    effort: str | Effort = "quick",
    tuned: TuningRun | None = None,
    folder: str | Path | None = None,
    observers: Iterable[Observer] = (),
) -> Report:
    """Times ``op`` and its contenders in turns on every shape, after checking their results.

    Args:
        shapes: what to evaluate; ``held_out`` marks shapes that tuning did not see.
        against: names out of :data:`CONTENDERS`; what is not installed is reported as absent.
        caches: ``hot`` (the same weights again and again) and ``rotating`` (weights beyond the
            last-level cache, as in a model with many layers).
        tuned: the run behind the operator; ``oracle`` and ``largest-shape`` need it.
        folder: where per-shape tunings are kept between evaluations (default: nowhere).

    Raises:
        DispatchError: for an unknown contender, or one that needs ``tuned`` without it.
    """
    effort, listeners = effort_named(effort), audience(observers)
    unknown = [name for name in against if name not in CONTENDERS]
    if unknown:
        raise DispatchError(f"contenders are {', '.join(CONTENDERS)}", ", ".join(unknown))
    with ExitStack() as stack:
        home = Path(folder) if folder else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        field = _Field.of(op, against, tuned, home, shapes, effort, listeners)
        match = stack.enter_context(Match(field.workload, field.hardware, field.entries))
        rows: list[Row] = []
        with listeners.stage("evaluate", len(shapes) * len(caches), "shape") as progress:
            for cache in caches:
                for shape in shapes:
                    rows.extend(_play(match, field, shape, cache, effort, shape in shapes.held_out))
                    progress.advance(_standing(rows))
        return Report(
            workload=field.workload.to_json(), hardware=field.hardware.to_json(), versions=versions(),
            tuning=_tuning(tuned, field.ansor),
            library={
                "bytes": op.manifest["code_bytes"], "file_bytes": op.manifest["file_bytes"],
                "kernels": len(op.micro_kernels), "micro_kernels": list(op.micro_kernels),
            },
            rows=tuple(rows), contenders=(*match.contenders, *field.absent),
            overheads=overheads(op, [shape[name] for shape in shapes for name in field.workload.dims]), notes=field.notes,
        )  # fmt: skip


@dataclass(frozen=True)
class _Field:
    """Everything that stands before the first shape is played."""

    dispatcher: Dispatcher
    entries: tuple[Entry, ...]
    absent: tuple[Contender, ...]
    tuned: TuningRun | None
    candidates: tuple[MicroKernel, ...]
    ansor: tuple[AnsorResult, ...]
    notes: tuple[str, ...]

    @property
    def workload(self) -> Any:
        return self.dispatcher.workload

    @property
    def hardware(self) -> Any:
        return self.dispatcher.hardware

    @classmethod
    def of(
        cls, op: Operator, against: Sequence[str], tuned: TuningRun | None, home: Path, shapes: ShapeSet,
        effort: Effort, listeners: Audience,
    ) -> _Field:  # fmt: skip
        dispatcher = Dispatcher.from_json(op.manifest)
        ours = {"library": str(op.path.parent)}
        entries = [Entry(OURS, "library", "ours", ours)]
        entries += [Entry(name, name) for name in against if name in VENDORS]
        absent: tuple[Contender, ...] = ()
        notes: tuple[str, ...] = ()
        candidates: tuple[MicroKernel, ...] = ()
        results: tuple[AnsorResult, ...] = ()
        if {"oracle", "largest-shape"} & set(against) and tuned is None:
            raise DispatchError(
                "oracle and largest-shape need the tuning run behind the operator", "tuned=None",
                "Pass tuned=run, or evaluate a study.",
            )  # fmt: skip
        if tuned is not None and "largest-shape" in against:
            entries.append(_largest_shape(dispatcher, tuned, home))
        if tuned is not None and "oracle" in against:
            candidates = tuned.micro_kernels
            entries.append(_oracle(dispatcher, tuned, home))
            notes += (
                f"The oracle is the fastest of {ORACLE_FINALISTS} finalists for each shape, chosen from the "
                f"{len(candidates)} micro-kernels measured of {len(tuned.space)} in the space.",
            )
        if "ansor" in against:
            try:
                results = _tune_statics(dispatcher, shapes, home / "ansor", effort, listeners)
                entries.append(_ansor_entry(home / "ansor", results))
            except MissingDependencyError as error:
                absent = (Contender("ansor", "scheduler", absent=str(error)),)
        return cls(dispatcher, tuple(entries), absent, tuned, candidates, results, notes)

    def oracle_plans(self, shape: Shape) -> list[int]:
        """The candidates that are probably fastest on a shape."""
        if self.tuned is None or not self.candidates:
            return []
        seconds = self.tuned.seconds_table(self.candidates, [shape])[:, 0]
        return [int(i) for i in seconds.argsort()[:ORACLE_FINALISTS]]


def _largest_shape(dispatcher: Dispatcher, tuned: TuningRun, home: Path) -> Entry:
    """One program for all shapes, the fastest for the largest (Nimble's way, MLSys 2021)."""
    largest = Shape.of(**{name: dim.high for name, dim in dispatcher.workload.dims.items()})
    kernels = tuned.micro_kernels
    best = kernels[int(tuned.seconds_table(kernels, [largest])[:, 0].argmin())]
    library = build(replace(dispatcher, micro_kernels=(best,), tree=Leaf(0)), home / "largest-shape")
    options = {"library": str(library.path.parent)}
    return Entry("largest-shape", "library", "one schedule", options, f"{best.key}, best for {largest}")


def _oracle(dispatcher: Dispatcher, tuned: TuningRun, home: Path) -> Entry:
    kernels = tuned.micro_kernels
    library = build(replace(dispatcher, micro_kernels=kernels, tree=Leaf(0)), home / "oracle")
    return Entry(
        "oracle", "library", "bound", {"library": str(library.path.parent)},
        f"best of {len(kernels)} micro-kernels",
    )  # fmt: skip


def _tune_statics(
    dispatcher: Dispatcher, shapes: ShapeSet, folder: Path, effort: Effort, listeners: Audience
) -> tuple[AnsorResult, ...]:
    """Per-shape tunings, training shapes first, until the effort's seconds are spent."""
    wanted = [s for s in shapes if s not in shapes.held_out] or list(shapes)
    results: list[AnsorResult] = []
    spent = 0.0
    for shape in sorted(wanted, key=lambda s: -shapes.weight(s)):
        if effort.ansor_seconds is not None and spent >= effort.ansor_seconds:
            break
        left = None if effort.ansor_seconds is None else effort.ansor_seconds - spent
        result = tune_static(
            dispatcher.workload, dispatcher.hardware, shape, folder, effort.ansor_trials, left,
            observers=listeners.observers,
        )  # fmt: skip
        results.append(result)
        spent += result.seconds
    return tuple(results)


def _ansor_entry(folder: Path, results: Sequence[AnsorResult]) -> Entry:
    trials = sorted({result.trials for result in results})
    seconds = sum(result.seconds for result in results)
    detail = (
        f"{'-'.join(str(t) for t in {trials[0], trials[-1]})} trials a shape, {len(results)} shapes "
        f"tuned in {seconds:.0f} s (under-tuned: about 1000 trials a shape are usual)"
    )
    return Entry("ansor", "ansor", "scheduler", {"library": str(folder)}, detail)


def _play(match: Match, field: _Field, shape: Shape, cache: str, effort: Effort, held_out: bool) -> list[Row]:
    """One shape: every contender's row, ours with its regret."""
    plans = {"oracle": field.oracle_plans(shape)} if "oracle" in match.names else {}
    turns = match.play(shape, cache, effort.evaluation_blocks, effort.evaluation_block_seconds, plans)
    turns = _with_oracle(turns, field.candidates)
    ours = turns[OURS].samples
    rows = []
    for name, turn in turns.items():
        row = _row(field, shape, held_out, name, cache, turn)
        if ours and turn.samples and name != OURS:
            row = replace(row, speedup=paired_ratio(turn.samples, ours))
        rows.append(row)
    oracle = next((row for row in rows if row.contender == "oracle"), None)
    if oracle is not None and oracle.speedup:
        rows = [replace(r, regret=1 / oracle.speedup - 1) if r.contender == OURS else r for r in rows]
    return rows


def _with_oracle(turns: dict[str, Turn], candidates: Sequence[MicroKernel]) -> dict[str, Turn]:
    """Finalists ``oracle#i`` become one contender: the one with the least median."""
    finalists = {name: turn for name, turn in turns.items() if name.startswith("oracle#") and turn.samples}
    others = {name: turn for name, turn in turns.items() if not name.startswith("oracle#")}
    if not finalists:
        return others
    best = min(finalists, key=lambda name: median(finalists[name].samples))
    return {**others, "oracle": replace(finalists[best], reason=candidates[int(best.split("#")[1])].key)}


def _row(field: _Field, shape: Shape, held_out: bool, name: str, cache: str, turn: Turn) -> Row:
    workload, hardware = field.workload, field.hardware
    flops = workload.flops(shape)
    time = median_interval(turn.samples) if turn.samples else None
    seconds = time.median if time else float("nan")
    least = hardware.roofline_seconds(flops, workload.bytes(shape)) if cache == "rotating" else (
        None if hardware.total_gflops is None else flops / hardware.total_gflops / 1e9
    )  # fmt: skip
    kernel = field.dispatcher.kernel(shape) if name == OURS else None
    return Row(
        shape=shape, held_out=held_out, contender=name, cache=cache,
        seconds_median=seconds, seconds_low=time.low if time else seconds,
        seconds_high=time.high if time else seconds, gflops=flops / seconds / 1e9 if time else 0.0,
        correct=turn.correct,
        padding_waste=padding_waste(extents(workload, shape), kernel.tile) if kernel else None,
        roofline=least / seconds if least and time else None,
        plan=kernel.key if kernel else turn.reason or None,
    )  # fmt: skip


def _standing(rows: Sequence[Row]) -> str:
    """How ours stands so far: the geometric mean against the fastest of the others for each shape."""
    from statistics import geometric_mean

    best: dict[tuple[Shape, str], float] = {}
    for row in rows:
        if row.speedup and row.correct and row.contender not in ("oracle", "largest-shape"):
            key = (row.shape, row.cache)
            best[key] = min(best.get(key, float("inf")), row.speedup)
    return f"{geometric_mean(best.values()):.2f}x the best contender" if best else ""


def _tuning(tuned: TuningRun | None, ansor: Sequence[AnsorResult]) -> dict[str, Any]:
    """What tuning cost, ours and the per-shape way side by side."""
    section: dict[str, Any] = {}
    if tuned is not None:
        section = {
            "seconds": tuned.seconds.to_json(), "total_seconds": round(tuned.seconds.total, 2),
            "trials": tuned.trials, "failures": tuned.failures, "measurements": len(tuned.records),
        }  # fmt: skip
    if ansor:
        section["ansor_seconds"] = {str(r.shape): round(r.seconds, 2) for r in ansor}
        section["ansor_trials"] = {str(r.shape): r.trials for r in ansor}
        section["ansor_failures"] = sum(r.failures for r in ansor)
    return section

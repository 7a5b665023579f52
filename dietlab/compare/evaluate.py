"""Stage 5: the operator against vendors, per-shape auto-scheduling, one schedule for all, and the oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from dietlab.base.errors import DispatchError, require_names, require_type
from dietlab.base.events import Audience, Observer, audience
from dietlab.base.statistics import paired_ratio, regret
from dietlab.compare.ansor.contender import AnsorResult, cost_of
from dietlab.compare.lineup import Lineup, assemble, default_contenders, require_known
from dietlab.compare.overhead import overheads
from dietlab.compare.presence import require_all, require_present
from dietlab.compare.results.journal import Journal, Turn
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import AGAIN, OURS, ContenderInfo, Row, over_best
from dietlab.compare.session import Entrant, TimingSession, timed_row, with_speedup
from dietlab.compare.target import BOUNDS
from dietlab.compare.vendor import IN_FLOAT32
from dietlab.cost import padding_waste, too_few_pairs
from dietlab.machine.target import hardware_target
from dietlab.measure.timing.target import roofline_of, timing_target
from dietlab.measure.timing.turns import Player
from dietlab.problem import WORKING, Shape, ShapeSet, extents, workload_to_json
from dietlab.tuning import Effort, Operator, TuningRun, effort_named, versions


def evaluate(
    op: Operator,
    shapes: ShapeSet,
    against: Sequence[str] | None = None,
    *,
    skip_absent: bool | None = None,
    caches: Sequence[str] = ("rotating",),
    effort: str | Effort = "quick",
    tuned: TuningRun | None = None,
    folder: str | Path | None = None,
    observers: Iterable[Observer] = (),
    journal: Journal | None = None,
) -> Report:
    """Times ``op`` and its contenders in turns on every shape, after checking their results.

    Args:
        op: the operator under test, from :func:`~dietlab.build` or :func:`~dietlab.load`.
        shapes: the shapes to evaluate; ``held_out`` marks shapes that tuning did not see, and
            ``report.trace`` sums times by the weights.
        against: the names of contenders out of :func:`~dietlab.compare.lineup.contenders_for` (default: those
            of the operator and its target, :func:`~dietlab.compare.lineup.default_contenders`).
        skip_absent: whether contenders that are not installed are left out and reported as absent (default:
            only if ``against`` is not given).
        caches: the cache states: ``hot`` (the same weights again and again), ``interleaved`` (private caches
            are cold) and ``rotating`` (weights beyond the last-level cache, as in a model with many layers,
            and as in tuning).
        effort: a preset or its name; it determines how long each shape is timed.
        tuned: the tuning run that the operator was built from; ``oracle`` and ``largest-shape`` need it.
        folder: the folder that keeps per-shape tunings between evaluations (default: none).
        observers: receivers of each event as it happens.
        journal: the journal that stores the rows of each shape when they are measured; rows that it already
            has are not measured again (default: in memory).

    Raises:
        DispatchError: for an unknown contender or cache state, no cache state, a contender that needs
            ``tuned`` without it, or an ``op`` or ``shapes`` of another class.
        MissingDependencyError: if a contender that was named is absent; nothing was timed then.
    """
    require_type(
        "the first argument of evaluate", op, Operator, DispatchError, "dietlab.load(folder) gives one."
    )
    require_type("the second argument of evaluate", shapes, ShapeSet, DispatchError)
    target = op.dispatcher.hardware.kind
    names = default_contenders(target, op.workload) if against is None else against
    require_names("cache states", timing_target(target).CACHE_STATES, caches, DispatchError, at_least=1)
    effort, listeners, journal = effort_named(effort), audience(observers), journal or Journal(None, {})
    with contest(
        op,
        names,
        shapes,
        effort=effort,
        tuned=tuned,
        folder=folder,
        listeners=listeners,
        skip_absent=against is None if skip_absent is None else skip_absent,
    ) as opened:
        lineup, rows = opened.lineup, list[Row]()
        threads = lineup.dispatcher.hardware.cores
        turns = [Turn("", threads, cache, shape) for cache in caches for shape in shapes]
        with listeners.stage("evaluate", len(turns), "shape") as progress:
            for turn in turns:
                held_out = turn.shape in shapes.held_out
                rows += journal.measured(turn, partial(opened.rows, turn.shape, turn.cache, held_out))
                progress.advance(standing(rows))
        notes = (
            lineup.dispatcher.caution,
            *lineup.notes,
            opened.match.note,
            opened.match.short,
            *precision_notes(op.workload.dtype, target),
        )
        return replace(
            opened.report({**op.facts, **overheads(op, shapes)}),
            versions=versions(),
            rows=tuple(rows),
            notes=tuple(filter(None, notes)),
            shape_set=shapes,
        )


def precision_notes(dtype: str, target: str) -> tuple[str, ...]:
    """Returns the remark of a report on the precision of float32 on a CPU."""
    return (IN_FLOAT32,) if dtype == WORKING.name and hardware_target(target).LIMITS.on_host else ()


@dataclass(frozen=True)
class Contest:
    """Open contenders, which can be timed shape by shape; :func:`contest` makes it."""

    lineup: Lineup
    match: TimingSession
    effort: Effort

    @property
    def contenders(self) -> tuple[ContenderInfo, ...]:
        """All contenders; the absent ones with their reason."""
        return (*(c for c in self.match.contenders if c.name != AGAIN), *self.lineup.absent)

    def report(
        self, library: Mapping[str, Any], name: str = "", tuning: Mapping[str, Any] | None = None
    ) -> Report:
        """Returns the report of the contest without rows. ``tuning`` adds facts to the report's field of this
        name."""
        return Report(
            workload_to_json(self.lineup.dispatcher.workload),
            self.lineup.dispatcher.hardware.to_json(),
            tuning={**_tuning(self.lineup.tuned, self.lineup.ansor), **(tuning or {})},
            library=library,
            contenders=self.contenders,
            name=name,
        )

    def rows(self, shape: Shape, cache: str, held_out: bool) -> list[Row]:
        """Times one shape and returns every contender's row, ours with its regret and its noise."""
        plans = {"oracle": self.lineup.finalists[shape, cache]} if "oracle" in self.match.names else {}
        played = self.match.play(
            shape, cache, self.effort.evaluation_blocks, self.effort.evaluation_block_seconds, plans
        )
        oracle = played.pop("oracle", ())
        finalists = {one.plan: one for one in oracle if isinstance(one.plan, int) and one.samples}
        turns, again = _without_again({name: several[0] for name, several in played.items()})
        lost = None
        if finalists:
            plan = min(finalists, key=lambda plan: median(finalists[plan].samples))
            turns["oracle"] = replace(finalists[plan], reason=self.lineup.candidates[plan].key)
            if (chosen := self.lineup.chosen_plan(shape)) in finalists:
                lost = regret({plan: one.samples for plan, one in finalists.items()}, chosen)
        ours = turns[OURS].samples
        rows = []
        for name, turn in turns.items():
            row = _row(self.lineup, shape, held_out, name, cache, turn)
            row = with_speedup(row, turn, ours)
            if name == OURS:
                row = replace(row, regret=lost, again=again)
            elif name == "oracle" and lost is not None and row.speedup is not None:
                # Compares plans of one library in one process; ours is timed in another process.
                row = replace(row, speedup=1 / (1 + lost))
            rows.append(row)
        return rows


@contextmanager
def contest(
    op: Operator,
    against: Sequence[str],
    shapes: ShapeSet,
    *,
    effort: Effort,
    tuned: TuningRun | None = None,
    folder: str | Path | None = None,
    listeners: Audience | None = None,
    ansor_shapes: ShapeSet | None = None,
    more: Sequence[Entrant] = (),
    skip_absent: bool = True,
) -> Iterator[Contest]:
    """Builds, tunes and opens the contenders; closes them at the end.

    Other arguments are those of :func:`evaluate`.

    Args:
        shapes: all shapes that the oracle can be timed on.
        ansor_shapes: the shapes that ``ansor`` is tuned for (default: the members of ``shapes`` that the
            operator was tuned for).
        more: further contenders (:func:`~dietlab.compare.lineup.libraries_entrant`).
    """
    listeners = listeners or audience(())
    with ExitStack() as stack:
        home = Path(folder) if folder else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        require_known(op, against, tuned)
        if not skip_absent and {*against} & {*BOUNDS}:  # before minutes of building and tuning
            require_present([op.workload], op.dispatcher.hardware, against)
        lineup = assemble(op, against, tuned, home, shapes, effort, listeners, ansor_shapes)
        lineup = replace(lineup, entries=(*lineup.entries, *more))
        workload, hardware = lineup.dispatcher.workload, lineup.dispatcher.hardware
        with listeners.stage("open", len(lineup.entries), "contender") as progress:
            session = stack.enter_context(TimingSession(workload, hardware, lineup.entries))
            progress.advance(by=len(lineup.entries))
        opened = Contest(lineup, session, effort)
        if not skip_absent:
            require_all(opened.contenders)
        yield opened


def _without_again(turns: dict[str, Player]) -> tuple[dict[str, Player], float | None]:
    """Returns two values: the turns without our library's second process, and that process's time over the
    first one's. If only the second process has wrong results, its turn replaces the first's."""
    ours, again = turns[OURS], turns.get(AGAIN)
    others = {name: turn for name, turn in turns.items() if name != AGAIN}
    if again is None:
        return others, None
    if ours.correct and again.correct is False:
        return {**others, OURS: again}, None
    if not (ours.samples and again.samples):
        return others, None
    return others, paired_ratio(again.samples, ours.samples)


def _row(lineup: Lineup, shape: Shape, held_out: bool, name: str, cache: str, turn: Player) -> Row:
    workload, hardware = lineup.dispatcher.workload, lineup.dispatcher.hardware
    row = timed_row(shape, name, cache, turn, flops=workload.flops(shape), held_out=held_out)
    roofline = roofline_of(workload, shape, hardware)
    scheme = lineup.dispatcher.scheme(shape) if name == OURS else None
    return replace(
        row,
        padding_waste=padding_waste(extents(workload, shape), scheme.cover_tile) if scheme else None,
        roofline=roofline.least_seconds(cache) / row.seconds_median if roofline and turn.samples else None,
        plan=scheme.key if scheme and turn.correct else row.plan,
    )


def standing(rows: Sequence[Row], besides: Collection[str] = ("oracle", "largest-shape")) -> str:
    """Returns a text: our geometric-mean speedup so far over the fastest contender of each shape."""
    best = over_best(rows, besides)
    return f"{geometric_mean(best.values()):.2f}x the best contender" if best else ""


def _tuning(tuned: TuningRun | None, ansor: Sequence[AnsorResult]) -> dict[str, Any]:
    section: dict[str, Any] = {}
    if tuned is not None:
        quality = tuned.held_out_metrics
        section = {
            "seconds": tuned.seconds.to_json(),
            "total_seconds": round(tuned.seconds.total, 2),
            "trials": tuned.trials,
            "failures": tuned.failures,
            "measurements": len(tuned.measurements),
            "cost_model_on_held_out_pairs": {
                **{name: round(value, 3) for name, value in quality.items()},
                **too_few_pairs(quality),
            },
        }
    return {**section, **cost_of(ansor)} if ansor else section

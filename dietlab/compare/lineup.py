"""Assembles the contenders of an evaluation, and builds or tunes what they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from dietlab.base.errors import DispatchError, MissingDependencyError, require_names
from dietlab.base.events import Audience
from dietlab.base.registry import Registry
from dietlab.compare.ansor.contender import AnsorResult, detail_of, tune_static
from dietlab.compare.results.row import AGAIN, OURS, ContenderInfo
from dietlab.compare.session import Entrant
from dietlab.compare.target import BOUNDS, evaluation_target
from dietlab.compare.vendor import NoFormError, defaults_of
from dietlab.measure import CacheState
from dietlab.problem import USUAL, Shape, ShapeSet, Workload, largest_shape
from dietlab.scheme import Leaf, Scheme
from dietlab.tuning import Dispatcher, Effort, Operator, TuningRun, build, candidate_plans, distinct

ORACLE_FINALISTS = 4
"""The largest number of plans that the oracle times per shape, all with different tiles. The fastest one is
the oracle."""


def contenders_for(target: str, named: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the names of all contenders that can take part on a target.

    Args:
        target: a kind of processor.
        named: names that the user gave; ``MODULE:NAME`` is imported if the target accepts contenders of other
            packages.
    """
    vendors = evaluation_target(target).VENDORS
    if isinstance(vendors, Registry):
        vendors.take(named)
    return (*vendors, *BOUNDS)


def default_contenders(target: str, workload: Workload) -> tuple[str, ...]:
    """Returns the names of the contenders of an evaluation that names none: those of every operator, and
    those that a vendor's ``default`` has for this operator."""
    found = evaluation_target(target)
    vendors = found.VENDORS
    own: Mapping[str, Any] = vendors.own if isinstance(vendors, Registry) else {}
    further = [name for name, made in own.items() if workload.operator in defaults_of(made)]
    return (*found.DEFAULTS, *further)


def own_vendors(target: str, operator: str, dtype: str = USUAL) -> tuple[str, ...]:
    """Returns the names of dietlab's vendors that compute an operator, such as ``"dense"``, on a target."""
    vendors = evaluation_target(target).VENDORS
    own: Mapping[str, Any] = vendors.own if isinstance(vendors, Registry) else {}
    return tuple(
        name
        for name, made in own.items()
        if operator in made.computes and dtype in getattr(made, "dtypes", (USUAL,))
    )


@dataclass(frozen=True)
class Lineup:
    """The contenders of an evaluation.

    Args:
        candidates: the oracle's schemes, by index.
        finalists: the indices of the candidates that the oracle times, by shape and cache state.
    """

    dispatcher: Dispatcher
    tuned: TuningRun | None
    entries: tuple[Entrant, ...]
    absent: tuple[ContenderInfo, ...] = ()
    candidates: tuple[Scheme, ...] = ()
    finalists: Mapping[tuple[Shape, str], tuple[int, ...]] = field(default_factory=dict)
    ansor: tuple[AnsorResult, ...] = ()
    notes: tuple[str, ...] = ()

    def chosen_plan(self, shape: Shape) -> int:
        """Returns the index in ``candidates`` of the plan that our library chooses for a shape."""
        return self.candidates.index(self.dispatcher.scheme(shape))


def assemble(
    op: Operator,
    against: Sequence[str],
    tuned: TuningRun | None,
    home: Path,
    shapes: ShapeSet,
    effort: Effort,
    listeners: Audience,
    ansor_shapes: ShapeSet | None = None,
) -> Lineup:
    """Builds and tunes in ``home`` what the contenders need. :func:`require_known` must have checked their
    names."""
    entries = [_library_entrant(name, "ours", op) for name in (OURS, AGAIN)]
    entries += [Entrant(name, name) for name in against if name not in BOUNDS]
    lineup = Lineup(op.dispatcher, tuned, tuple(entries))
    built = sum(name in against for name in ("largest-shape", "oracle"))
    with listeners.stage("prepare", built, "contender") as progress:
        if "largest-shape" in against:
            lineup = with_largest_shape(lineup, home / "largest-shape")
            progress.advance()
        if "oracle" in against:
            lineup = with_oracle(lineup, home / "oracle", shapes)
            progress.advance()
    if "ansor" in against:
        lineup = with_ansor(lineup, home / "ansor", ansor_shapes or shapes, effort, listeners)
    return lineup


def require_known(op: Operator, against: Sequence[str], tuned: TuningRun | None) -> None:
    """Raises :class:`DispatchError` for an unknown contender, or one that needs ``tuned`` without it."""
    hardware = op.dispatcher.hardware
    require_names(
        f"contenders on {hardware.name}", contenders_for(hardware.kind, against), against, DispatchError
    )
    if tuned is None and {"oracle", "largest-shape"} & {*against}:
        raise DispatchError(
            "oracle and largest-shape need the tuning run behind the operator",
            "tuned=None",
            "Pass tuned=run, or evaluate a study.",
        )


def _library_entrant(name: str, kind: str, library: Operator, detail: str = "") -> Entrant:
    return Entrant(name, "library", kind, {"library": str(library.path.parent)}, detail)


def libraries_entrant(name: str, kind: str, operators: Sequence[Operator], detail: str) -> Entrant:
    """Returns a contender of several libraries of ours, each for the shapes of one operator. The contender is
    absent for other shapes."""
    folders = [str(operator.path.parent) for operator in operators]
    return Entrant(name, "libraries", kind, {"libraries": folders}, detail)


def with_largest_shape(lineup: Lineup, home: Path) -> Lineup:
    """Adds one program for all shapes, the fastest for the largest shape (as in Nimble, MLSys 2021)."""
    dispatcher, tuned = lineup.dispatcher, lineup.tuned
    assert tuned is not None
    largest = largest_shape(dispatcher.workload)
    schemes = tuned.schemes
    best = schemes[int(tuned.seconds_table(schemes, [largest])[:, 0].argmin())]
    library = build(replace(dispatcher, schemes=(best,), tree=Leaf(0)), home)
    detail = f"{best.key}, the fastest for {largest}"
    entry = _library_entrant("largest-shape", "one schedule", library, detail)
    return replace(lineup, entries=(*lineup.entries, entry))


def with_oracle(lineup: Lineup, home: Path, shapes: ShapeSet) -> Lineup:
    """Adds one library of all finalists and our plans; the caller chooses the plan for each shape.

    Each plan is compiled only for the numbers of rows that it is called with: a library of every plan for
    every length can take the compiler a quarter of an hour.
    """
    tuned, dispatcher = lineup.tuned, lineup.dispatcher
    assert tuned is not None
    known = candidate_plans(tuned, tuned.shapes.shapes)
    entrants = tuple(dict.fromkeys((*known, *dispatcher.schemes)))
    finalists = _finalists(dispatcher, tuned, entrants, shapes)
    calls: dict[int, set[Shape]] = {}
    for (shape, _), numbers in finalists.items():
        for number in numbers:
            calls.setdefault(number, set()).add(shape)
    place = {number: new for new, number in enumerate(calls)}
    plans = tuple(entrants[number] for number in calls)
    one_leaf = replace(dispatcher, schemes=plans, tree=Leaf(0))
    library = build(one_leaf, home, every_plan=True, only=[sorted(shapes) for shapes in calls.values()])
    note = (
        f"The oracle is the fastest of {ORACLE_FINALISTS} finalists for each shape, chosen from "
        f"{len(known)} plans of the {tuned.trials} schemes measured of {len(tuned.space)} in the space."
    )
    entry = _library_entrant("oracle", "bound", library, f"best of {len(known)} plans")
    return replace(
        lineup,
        entries=(*lineup.entries, entry),
        candidates=plans,
        finalists={call: tuple(place[number] for number in numbers) for call, numbers in finalists.items()},
        notes=(*lineup.notes, note),
    )


def _finalists(
    dispatcher: Dispatcher, tuned: TuningRun, plans: Sequence[Scheme], shapes: ShapeSet
) -> dict[tuple[Shape, str], list[int]]:
    """Returns, by shape and cache state, the indices of the plans that are predicted to be fastest, and the
    index of our library's plan."""
    numbers = {plan: number for number, plan in enumerate(plans)}
    tables = [tuned.seconds_table(plans, shapes.shapes, cached).argsort(axis=0) for cached in (False, True)]
    finalists: dict[tuple[Shape, str], list[int]] = {}
    for column, shape in enumerate(shapes.shapes):
        chosen = numbers[dispatcher.scheme(shape)]
        for cache in get_args(CacheState):
            order = tables[cache != "rotating"][:, column]
            found = distinct(plans, order, dispatcher.workload, shape, ORACLE_FINALISTS)
            finalists[shape, cache] = list(dict.fromkeys((*found, chosen)))
    return finalists


def with_ansor(lineup: Lineup, home: Path, shapes: ShapeSet, effort: Effort, listeners: Audience) -> Lineup:
    """Adds per-shape tunings of the evaluated shapes that the operator was tuned for (if there are none, of
    all evaluated shapes), until the effort's seconds are spent. Adds the reason if a package is missing or
    the workload has no sketch rules."""
    workload, hardware = lineup.dispatcher.workload, lineup.dispatcher.hardware
    tuned = lineup.tuned.shapes.train.shapes if lineup.tuned else shapes.shapes
    wanted = [shape for shape in shapes if shape in tuned] or list(shapes)
    results: list[AnsorResult] = []
    left, trials = effort.ansor_seconds, effort.ansor_trials
    try:
        with listeners.stage("ansor", len(wanted), "shape") as progress:
            for shape in spread(wanted):
                # A shape is begun only if one as long as the last would still fit: none is cut short.
                if left is not None and results and left < results[-1].seconds:
                    break
                found = tune_static(
                    workload, hardware, shape, home, trials, left, observers=listeners.observers
                )
                results.append(found)
                progress.advance()
                left = None if left is None else left - found.seconds
    except (MissingDependencyError, NoFormError) as error:
        return replace(
            lineup, absent=(*lineup.absent, ContenderInfo("ansor", "scheduler", absent=str(error)))
        )
    entry = Entrant("ansor", "ansor", "scheduler", {"library": str(home)}, detail_of(results))
    return replace(lineup, entries=(*lineup.entries, entry), ansor=tuple(results))


def spread(shapes: Sequence[Shape]) -> list[Shape]:
    """Returns the shapes in bit-reversed order, so that the first few already cover the whole range."""
    width = max(1, (len(shapes) - 1).bit_length())
    places = [int(f"{number:0{width}b}"[::-1], 2) for number in range(len(shapes))]
    return [shape for _, shape in sorted(zip(places, shapes, strict=True))]

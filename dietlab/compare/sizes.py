"""Costs of new sizes for a contender: the first call at each size, and the memory held after many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import median
from typing import Any

from dietlab.base.cards import Listing
from dietlab.base.errors import MeasureError, WorkloadError
from dietlab.base.events import Observer, audience
from dietlab.compare.lineup import default_contenders, require_known
from dietlab.compare.results.row import OURS
from dietlab.compare.study import EPILOGUES, LIBRARY, Study
from dietlab.compare.target import BOUNDS, evaluation_target
from dietlab.compare.vendor import contender_env
from dietlab.measure.timing.process import WorkerProcess
from dietlab.measure.timing.threads import host_threads
from dietlab.problem import Shape, Workload, workload_to_json
from dietlab.problem.dims import require_sizes
from dietlab.problem.shapes import drawn_shapes
from dietlab.tuning import Operator, load

SIZES = 1000
"""The number of sizes, unless a caller gives another: the caches of some libraries hold 1,024 shapes."""

SIZES_SECONDS = 3600.0
"""The longest that all calls of one contender may take, in seconds: 1,000 sizes of a large layer take
minutes, a hang must end."""

CAPTION = (
    "first call at a new size over the second, in times, and memory after all sizes less that before, in MB"
)
HEADER = ("contender", "sizes", "first over second", "most", "memory", "a quarter", "half", "3/4", "all")
MB = 1e6


@dataclass(frozen=True)
class SizeCosts:
    """A contender after calls at many sizes, in one process.

    Args:
        sizes: the number of different sizes.
        first: the median over sizes of the first call's time over the second's, with what is prepared for
            that size alone; 0 if no size was new.
        most: the greatest of these ratios.
        memory: the resident bytes of its process before, after calls at a few of the sizes.
        grown: the bytes by which it is larger after each quarter of the sizes.
        absent: the reason why it does not take part; empty if it does.
    """

    contender: str
    sizes: int = 0
    first: float = 0.0
    most: float = 0.0
    memory: int = 0
    grown: tuple[int, ...] = ()
    absent: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the costs as a JSON value."""
        return asdict(self)


def operator_of(study: Study) -> Operator:
    """Loads a study's library or, if none was built, the one with the shortest epilogue that the layers of a
    model have (:func:`dietlab.torch.optimize`).

    Raises:
        DispatchError: if there is none of the study's dispatcher.
    """
    folders = sorted((study.folder / EPILOGUES).glob(f"*/{LIBRARY}"))
    if (study.folder / LIBRARY).exists() or not folders:
        return study.operator()
    dispatcher, built = study.dispatcher(), [load(library.parent) for library in folders]
    fit = [op for op in built if replace(op.dispatcher, workload=study.workload) == dispatcher]
    return min(fit, key=lambda op: len(str(op.workload.epilogue)), default=None) or study.operator()


def size_costs(
    op: Operator,
    count: int = SIZES,
    against: Sequence[str] | None = None,
    *,
    seed: int = 0,
    observers: Iterable[Observer] = (),
) -> tuple[SizeCosts, ...]:
    """Calls ``op`` and its contenders twice at each of many sizes, each in a separate process.

    Results are not compared with the reference: :func:`~dietlab.evaluate` does so.

    Args:
        op: the operator, which runs on a CPU.
        count: the number of sizes; all sizes of the operator if it has fewer.
        against: the names of vendors (default: those of an evaluation).
        seed: the seed of the sizes.

    Raises:
        MeasureError: if the operator runs on a GPU, or a contender's process fails.
        DispatchError: for an unknown contender.
        WorkloadError: if no dimension is dynamic.
    """
    workload, hardware = op.workload, op.dispatcher.hardware
    if not hardware.limits.on_host:
        rule = "the memory of contenders can only be measured on a CPU"
        raise MeasureError(rule, hardware.name, "Give a library for a CPU.")
    names = default_contenders(hardware.kind, workload) if against is None else tuple(against)
    if bounds := [name for name in names if name in BOUNDS]:
        rule = "contenders at many sizes must be vendors"
        raise MeasureError(rule, ", ".join(bounds), "Leave them out.")
    require_known(op, names, None)
    shapes = different_shapes(workload, count, seed)
    ours: dict[str, Any] = {"contender": "library", "options": {"library": str(op.path.parent)}}
    opening: dict[str, Any] = {"workload": workload_to_json(workload), "threads": host_threads(hardware)}
    entries = {OURS: ours, **{name: {"contender": name} for name in names}}
    costs = []
    with audience(observers).stage("sizes", len(entries), "contender") as progress:
        for name, entry in entries.items():
            costs.append(_costs(name, {"op": "sizes", **opening, **entry}, shapes, hardware.kind))
            progress.advance(name)
    return tuple(costs)


def _costs(name: str, request: dict[str, Any], shapes: Sequence[Shape], target: str) -> SizeCosts:
    request["shapes"] = [shape.to_json() for shape in shapes]
    module = evaluation_target(target).WORKER.name
    with WorkerProcess(module, contender_env(request["threads"])) as worker:
        answer = worker.ask(request, SIZES_SECONDS)
    if "absent" in answer:
        return SizeCosts(name, absent=answer["absent"])
    ratios = [first / second for first, second in zip(answer["first"], answer["second"], strict=True)]
    memory, grown = answer["before"], tuple(answer["grown"])
    first, most = (median(ratios), max(ratios)) if ratios else (0.0, 0.0)
    return SizeCosts(name, len(shapes), first, most, memory, grown)


def different_shapes(workload: Workload, count: int, seed: int = 0) -> list[Shape]:
    """Returns different shapes of an operator in a random order; all of them if it has at most ``count``.

    Raises:
        WorkloadError: if no dimension is dynamic, or a shape has too many elements.
    """
    dims = dict(workload.dims)
    if not dims or count < 1:
        raise WorkloadError(
            "many sizes need a dynamic dimension and a count of 1 or more",
            f"{workload}, {count}",
            "Give a dimension a range.",
        )
    shapes = list(drawn_shapes(dims, count, Random(seed)))
    require_sizes(workload, shapes)
    return shapes


def size_listing(costs: Sequence[SizeCosts]) -> Listing:
    """Returns the contenders that took part as a table, one line each."""
    return Listing(HEADER, [cost for cost in costs if not cost.absent], _cells)


def _cells(cost: SizeCosts) -> tuple[str, ...]:
    return (
        cost.contender,
        f"{cost.sizes:,}",
        f"{cost.first:.2f}x" if cost.first else "-",
        f"{cost.most:.1f}x" if cost.most else "-",
        f"{cost.memory / MB:.0f}",
        *(f"{grown / MB:+.1f}" for grown in cost.grown),
    )

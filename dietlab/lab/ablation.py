"""Ablates one micro-kernel: times it without one of its ideas, or with an epilogue, against all ideas
together. Also times tiles of several heights with symbolic against constant extents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from dietlab.base.errors import BuildError, DietlabError, require_names
from dietlab.base.events import Observer, audience
from dietlab.base.files import locked
from dietlab.compare.evaluate import Contest
from dietlab.compare.lineup import Lineup, spread
from dietlab.compare.results import ContenderInfo
from dietlab.compare.results.journal import Journal, Turn
from dietlab.compare.results.row import OURS
from dietlab.compare.results.table import ResultTable
from dietlab.compare.session import Entrant, TimingSession
from dietlab.compare.study import Study
from dietlab.compare.suites.lengths import lengths_named
from dietlab.compare.suites.run import JOURNAL, ONE_AT_A_TIME, TABLE, play
from dietlab.machine import Hardware
from dietlab.measure import CACHE_STATES
from dietlab.problem import NO_EPILOGUE, Dense, Dim, Epilogue, Shape, Workload
from dietlab.scheme import Leaf, Scheme, scheme_with
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.tuning import Dispatcher, build, effort_named, versions

FOLDER = "ablation"
USUAL = 128
"""The longest length, in rows, that counts when the scheme to ablate is chosen: the one that serves most
lengths."""

EPILOGUES = (
    Epilogue(bias=True),
    Epilogue(bias=True, activation="relu"),
    Epilogue(bias=True, activation="gelu_tanh"),
    Epilogue(bias=True, activation="gelu_erf"),
    Epilogue(bias=True, residual=True),
)
"""The epilogues of a transformer's layers."""

SYMBOLIC = "symbolic extents"
"""The name, or the end of the name, of variants whose columns and depth only the call knows."""

HEIGHTS = (4, 8, 14)
"""The numbers of rows of the tiles that are timed with constant and with symbolic extents: from few rows,
whose addresses fit the 16 scalar registers of x86-64, to the most that 16 vector registers hold."""


@dataclass(frozen=True)
class Variant:
    """A scheme, its workload, whether constant weights are packed, and whether extents are symbolic."""

    name: str
    scheme: CpuScheme
    workload: Workload
    packs: bool = True
    symbolic: bool = False

    @property
    def built(self) -> Workload:
        """The workload that the variant is built for. Calls get the operands of ``workload``, so that caches
        hold the same data for all variants."""
        if not isinstance(self.workload, Dense):
            return self.workload
        layer = _symbolic(self.workload) if self.symbolic else self.workload
        return layer if self.packs else replace(layer, constant=False)


def variants(scheme: CpuScheme, workload: Workload) -> tuple[Variant, ...]:
    """Returns the composition of ``scheme`` with all its ideas, then one variant without each of the ideas
    that it has. A dense layer without an epilogue is followed by one variant with each of
    :data:`EPILOGUES`."""
    whole = scheme_with(scheme, edge="even")
    others = {
        "full tiles, then the rest": scheme_with(whole, edge="rest"),
        "local padding": scheme_with(whole, edge="padded"),
        "loop partitioning": scheme_with(whole, edge="partitioned"),
        "bound checks": scheme_with(whole, edge="checked"),
        "no prefetch": whole.changed(prefetch=0, ahead=False),
    }
    found = [Variant(OURS, whole, workload)]
    found += [Variant(name, other, workload) for name, other in others.items() if other != whole]
    if isinstance(workload, Dense) and workload.constant:
        # Only packed panels are prefetched, cut into K-blocks and passed over row by row.
        loose = whole.changed(ahead=False, block=0, order="ws")
        found.append(Variant("no packing", loose, workload, packs=False))
    if isinstance(workload, Dense) and workload.epilogue == NO_EPILOGUE:
        found += [Variant(str(one), whole, replace(workload, **vars(one))) for one in EPILOGUES]
    return tuple(found)


def heights(scheme: CpuScheme, workload: Workload, hardware: Hardware) -> tuple[Variant, ...]:
    """Returns ``scheme`` with symbolic extents, then for each of :data:`HEIGHTS` a tile with constant and
    with symbolic extents. A tile is as wide as ``scheme``'s or as the registers allow. Empty if the workload
    has no constant extents."""
    if not isinstance(workload, Dense) or not workload.constant or _symbolic(workload) == workload:
        return ()
    whole, cpu = scheme_with(scheme, edge="even"), cpu_of(hardware)
    found = [Variant(SYMBOLIC, whole, workload, symbolic=True)]
    for rows in HEIGHTS:
        tiles = (whole.changed(rows=rows, cols=cols) for cols in range(whole.cols, 0, -cpu.lanes))
        tile = next((t for t in tiles if t.kernel.registers(cpu.lanes) <= cpu.vector_registers), whole)
        if tile != whole:
            found.append(Variant(f"{rows} rows", tile, workload))
            found.append(Variant(f"{rows} rows, {SYMBOLIC}", tile, workload, symbolic=True))
    return tuple(found)


def _symbolic(layer: Dense) -> Dense:
    n, k = (Dim(1, extent) if isinstance(extent, int) else extent for extent in (layer.N, layer.K))
    return replace(layer, N=n, K=k)


def dominating(dispatcher: Dispatcher, usual: int = USUAL) -> Scheme:
    """Returns the scheme that serves most lengths up to ``usual``."""
    ((name, dim),) = dispatcher.workload.dims.items()
    served = [length for length in dim if length <= usual] or [dim.low]
    schemes = (dispatcher.scheme(Shape.of(**{name: length})) for length in served)
    return Counter(schemes).most_common(1)[0][0]


def chosen_variants(
    scheme: CpuScheme, workload: Workload, hardware: Hardware, only: Sequence[str] = ()
) -> list[Variant]:
    """Returns the variants that are built, the whole scheme first: all variants, or those that ``only``
    names.
    """
    every = [*variants(scheme, workload), *heights(scheme, workload, hardware)]
    require_names("variants of the scheme", [variant.name for variant in every], only)
    return [variant for variant in every if not only or variant.name in (OURS, *only)]


def run_ablation(
    study: str | Path,
    *,
    caches: Sequence[str] = ("hot", "rotating"),
    effort: str = "quick",
    scheme: str | None = None,
    observers: Iterable[Observer] = (),
    workload: Workload | None = None,
    lengths: Sequence[int] | None = None,
    only: Sequence[str] = (),
    out: str | Path | None = None,
) -> ResultTable:
    """Builds every variant of one scheme (default: the one that serves most lengths up to :data:`USUAL`) and
    times them in turns; goes on where it was stopped. Results go to ``out`` (default: ``ablation/`` in the
    study).

    In the table ``dietlab`` is the composition of ``scheme`` alone, without a decision tree; the contenders
    are the variants. A speedup is the worth of the idea on that length, or the cost of the epilogue or of the
    symbolic extents.
    """
    require_names("cache states", CACHE_STATES, caches, at_least=1)
    opened = Study.open(study)
    dispatcher = opened.operator().dispatcher
    chosen = Scheme.from_key(scheme) if scheme else dominating(dispatcher)
    if not isinstance(chosen.kernel, CpuMicroKernel):
        raise DietlabError("an ablation needs a CPU's scheme", chosen.key)
    workload, hardware = workload or opened.workload, opened.hardware
    folder = Path(out) if out else opened.folder / FOLDER
    name = folder.name if out else opened.folder.name
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    about = {
        "suite": f"ablation of {chosen.key}",
        "effort": effort,
        "versions": versions(),
        "started": started,
    }
    with locked(folder, ONE_AT_A_TIME):
        journal = Journal(folder / JOURNAL, about | ({"variants": [*only]} if only else {}))
        ((dim, extents),) = workload.dims.items()
        wanted = lengths_named(effort) if lengths is None else lengths
        shapes = spread([Shape.of(**{dim: length}) for length in wanted if length in extents])
        turns = [Turn(name, hardware.cores, cache, shape) for shape in shapes for cache in caches]
        left = [turn for turn in turns if turn not in journal.rows]
        seen = {record.shape for record in opened.run().records}
        try:
            done = len(journal.rows)
            with audience(observers).stage("bench", done + len(left), "shape", done) as progress:
                if left:
                    found = chosen_variants(chosen, workload, hardware, only)
                    with _contest(dispatcher, hardware, found, folder, effort) as contest:
                        report = replace(contest.report({}, name), workload=workload.to_json())
                        journal.add_study(report)
                        play(contest, left, seen, journal, progress)
        finally:
            journal.kept.table.save(folder / TABLE)
    return journal.kept.table


@contextmanager
def _contest(
    dispatcher: Dispatcher, hardware: Hardware, found: Sequence[Variant], folder: Path, effort: str
) -> Iterator[Contest]:
    """Builds and opens the variants; what cannot be built is absent, with the reason."""
    entries, absent, whole = list[Entrant](), list[ContenderInfo](), found[0]
    single = replace(dispatcher, schemes=(whole.scheme,), tree=Leaf(0))
    for number, variant in enumerate(found):
        home = folder / f"variant-{number}"
        kind = "ours" if variant is whole else "variant"
        try:
            build(replace(single, workload=variant.built, schemes=(variant.scheme,)), home)
        except BuildError as error:
            if variant is whole:
                raise
            absent.append(ContenderInfo(variant.name, kind, absent=str(error)))
            continue
        options = {"library": str(home / "library")}
        entries.append(Entrant(variant.name, "library", kind, options, variant.scheme.key, variant.workload))
    with TimingSession(whole.workload, hardware, entries) as match:
        contest = Contest(Lineup(single, None, tuple(entries), tuple(absent)), match, effort_named(effort))
        if OURS not in match.names:
            raise DietlabError("the library of the composition must open", contest.contenders[0].absent)
        yield contest

"""The result of an evaluation: a frozen value that reads and writes ``report.json``."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.cards import Card, Carded, Fold, Listing, Quantity, counted
from dietlab.errors import RecordError, WorkloadError
from dietlab.files import write_json
from dietlab.hardware import above_roofline
from dietlab.results.one_layer import report_of_layer
from dietlab.results.parts import (
    Part,
    Place,
    judged,
    layer_place,
    length_place,
    part_cells,
    part_header,
    parts,
)
from dietlab.results.policies import Padding, padding_over
from dietlab.results.speedups import SUMMARY_HEADER, Summary, quality, summarise, summary_cells
from dietlab.results.trace import TraceTime, trace_time
from dietlab.shapes import Shape, ShapeSet
from dietlab.space import with_parameters
from dietlab.workloads import length_dim, workload_from_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 2
# Version 1 had no weights: its shapes count alike.
READABLE_VERSIONS = (1, 2)
OURS = "dietlab"


@dataclass(frozen=True)
class Row:
    """One shape, contender and cache state.

    ``seconds_*`` are the median of the block means and its 95 % bootstrap interval; ``speedup`` is
    this contender's median over ours in the same blocks (above 1: ours is faster); ``regret`` is
    what our choice of a plan loses (:func:`~dietlab.results.statistics.regret`) and stands in our rows
    only; ``correct`` is None if there was no result, since the contender crashed, hung or refused (``plan``
    says why); ``roofline`` is the least time that flops and traffic allow over the median; ``retaken`` counts
    blocks that were timed again because the processor was slow.
    """

    shape: Shape
    held_out: bool
    contender: str
    cache: str
    seconds_median: float
    seconds_low: float
    seconds_high: float
    gflops: float
    correct: bool | None
    speedup: float | None = None
    padding_waste: float | None = None
    regret: float | None = None
    roofline: float | None = None
    plan: str | None = None
    retaken: int = 0

    def to_json(self) -> dict[str, Any]:
        value = {**asdict(self), "shape": self.shape.to_json()}
        # A result that does not count has no time; JSON has no NaN.
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in value.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Row:
        times = {k: math.nan if value[k] is None else value[k] for k in value if k.startswith("seconds_")}
        return cls(**{**value, **times, "shape": Shape.from_json(value["shape"])})


@dataclass(frozen=True)
class ContenderInfo:
    """A contender's name, kind and version; if it is ``absent``, the reason."""

    name: str
    kind: str
    version: str = ""
    absent: str = ""
    detail: str = ""


@dataclass(frozen=True, repr=False)
class Report(Carded):
    """Everything an evaluation found out; :meth:`save` writes it, :meth:`load` reads it.

    ``shape_set`` has the weights of the shapes, and where they come from; without it they count alike.
    """

    workload: Mapping[str, Any]
    hardware: Mapping[str, Any]
    versions: Mapping[str, str]
    tuning: Mapping[str, Any]
    library: Mapping[str, Any]
    rows: tuple[Row, ...]
    contenders: tuple[ContenderInfo, ...] = ()
    overheads: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())
    shape_set: ShapeSet | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and one on our shares of the roofline above 1 if there are any."""
        shares = [row.roofline for row in self.rows if row.contender == OURS and row.correct]
        return (*self.notes, *above_roofline(shares))

    @property
    def caches(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.cache for row in self.rows))

    @property
    def summary(self) -> tuple[Summary, ...]:
        """One row a contender and cache state, with the combined ``best-prepacked`` and ``plain``."""
        return tuple(
            summarise(name, cache, rows) for cache in self.caches for name, rows in self.groups(cache).items()
        )

    @property
    def dims(self) -> tuple[str, ...]:
        """The dynamic dimensions of its shapes, in alphabetical order."""
        return tuple(self.rows[0].shape.to_json()) if self.rows else ()

    @property
    def length(self) -> str:
        """The dimension that is the length (:func:`~dietlab.workloads.length_dim`); of an operator that this
        version does not know the last one, and ``""`` if no dimension is dynamic."""
        try:
            return length_dim(workload_from_json(self.workload))
        except WorkloadError:
            return self.dims[-1] if self.dims else ""

    @property
    def layers(self) -> tuple[Shape, ...]:
        """The layers of its shapes, ascending: the extents of all dimensions but the length."""
        return tuple(sorted({row.shape.without(self.length) for row in self.rows}))

    @property
    def by_layer(self) -> tuple[Part, ...]:
        """:attr:`summary` for each layer; nothing if there are not several dynamic dimensions."""
        return self._parts(layer_place(self.length))

    @property
    def by_length(self) -> tuple[Part, ...]:
        """:attr:`summary` for each length, or from one power of two to the next if there are many; nothing
        if there are not several dynamic dimensions."""
        lengths = {row.shape[self.length] for row in self.rows} if len(self.dims) > 1 else set()
        return self._parts(length_place(self.length, lengths))

    def _parts(self, place: Callable[[Shape], Place]) -> tuple[Part, ...]:
        caches = self.caches if len(self.dims) > 1 else ()
        found = ((cache, *group) for cache in caches for group in self.groups(cache).items())
        return tuple(part for cache, name, rows in found for part in parts(name, cache, rows, place))

    def of_layer(self, layer: Mapping[str, int]) -> Report:
        """Returns the report of one layer: the length is its only dynamic dimension.

        Args:
            layer: the extent of every dynamic dimension but the length, as in ``{"N": 2304, "K": 768}``.

        Raises:
            WorkloadError: if a dimension is missing or unknown, the operator is, or no shape has the layer.
        """
        return report_of_layer(self, layer)

    @property
    def quality(self) -> dict[str, dict[str, float]]:
        """The quality of our choices by cache state: regret against the oracle (mean, mean over held-out
        shapes, worst) and the median share of the roofline; unknown figures are left out."""
        ours = [row for row in self.rows if row.contender == OURS and row.correct]
        return {cache: quality([row for row in ours if row.cache == cache]) for cache in self.caches}

    @property
    def weights(self) -> dict[Shape, float]:
        """The share of each shape in the trace; shares sum to 1."""
        if self.shape_set is not None:
            return dict(zip(self.shape_set.shapes, self.shape_set.weights, strict=True))
        shapes = dict.fromkeys(row.shape for row in self.rows)
        return dict.fromkeys(shapes, 1 / len(shapes)) if shapes else {}

    @property
    def trace(self) -> tuple[TraceTime, ...]:
        """The time of a mean call of the trace for each cache state and contender, ours first."""
        weights, found = self.weights, []
        for cache in self.caches:
            ours = [r for r in self.rows if r.cache == cache and r.contender == OURS]
            for name, rows in {OURS: ours, **self.groups(cache)}.items():
                found.append(trace_time(name, cache, rows, weights, ours))
        return tuple(line for line in found if line is not None)

    @property
    def padding(self) -> tuple[Padding, ...]:
        """The multiply-adds executed over the trace by our plans and by usual padding policies; nothing
        for an operator that this version does not know."""
        waste = {r.shape: r.padding_waste for r in self.rows if r.padding_waste is not None}
        try:
            workload = workload_from_json(self.workload)
        except WorkloadError:
            return ()
        return padding_over(workload, self.weights, waste)

    def groups(self, cache: str) -> dict[str, list[Row]]:
        """Returns rows by contender; a group of vendors is represented by the fastest for each shape."""
        rows = [r for r in self.rows if r.cache == cache and r.speedup is not None and r.correct]
        kinds = {c.name: c.kind for c in self.contenders}
        groups: dict[str, list[Row]] = {}
        for row in rows:
            if row.contender != OURS:
                groups.setdefault(row.contender, []).append(row)
        for kind in ("prepacked", "plain"):
            best = fastest([r for r in rows if kinds.get(r.contender) == kind])
            if best:
                groups[f"best {kind} vendor"] = best
        return groups

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with one row a shape, contender and cache state: see :class:`Row`.

        Each dynamic dimension has a column. In place of the plan there are its ``scheme`` with the
        parameters, and the ``reason`` where there was no result, which is not ``correct``.
        """
        import pandas as pd

        names = [field.name for field in fields(Row)]
        records = [
            {**asdict(r), **r.shape.to_json(), "shape": str(r.shape), "correct": bool(r.correct)}
            for r in self.rows
        ]
        frame = pd.DataFrame(records, columns=None if records else names)
        return with_reasons(frame, [self.hardware.get("kind", "cpu")])

    def summary_frame(self) -> pd.DataFrame:
        """Returns a table with one row a contender and cache state: see :class:`Summary`."""
        import pandas as pd

        names = [field.name for field in fields(Summary)]
        rows = [{**asdict(s), "worst_shape": str(Shape.from_json(s.worst_shape))} for s in self.summary]
        return pd.DataFrame(rows, columns=names)

    @property
    def card(self) -> Card:
        rivals = [c for c in self.contenders if not c.absent and c.name != OURS]
        facts = [counted(len({row.shape for row in self.rows}), "shape"), counted(len(rivals), "contender")]
        best = [line for line in self.summary if line.contender.startswith("best")]
        for line in (best or self.summary)[:1]:
            over = f"over {line.contender} ({line.cache} cache)"
            facts.append(Quantity(f"{line.geomean_speedup:.2f}x", over))
            facts.append(Quantity(f"{line.worst_speedup:.2f}x", "at worst"))
        sections = (
            Fold("Speedup of dietlab", self._speedups, unfolded=True),
            *([Fold("Speedup by layer", self._layers)] if len(self.dims) > 1 else []),
            Fold("Quality of dispatch", self._qualities),
            Fold("Contenders", self._who),
            Fold("Notes", lambda: Listing(("note",), self.remarks, lambda note: (note,))),
        )
        return Card("Report", f"{self.title} on {self.processor}", tuple(facts), sections)

    @property
    def title(self) -> str:
        """The operator with its dimensions, as in ``dense T=1..128 N=2304 K=768``."""
        try:
            return str(workload_from_json(self.workload))
        except WorkloadError:
            return str(self.workload.get("operator", "an unknown operator"))

    @property
    def processor(self) -> str:
        """The name of the processor."""
        return str(self.hardware.get("name", "an unknown processor"))

    def _speedups(self) -> Listing:
        return Listing(SUMMARY_HEADER, self.summary, summary_cells)

    def _layers(self) -> Listing:
        return Listing(part_header("layer"), judged(self.by_layer), part_cells)

    def _qualities(self) -> Listing:
        items = [(cache, *item) for cache, found in self.quality.items() for item in found.items()]
        header = ("cache", "figure", "value")
        return Listing(header, items, lambda item: (item[0], item[1].replace("_", " "), item[2]))

    def _who(self) -> Listing:
        header = ("name", "kind", "version")
        return Listing(header, self.contenders, lambda c: (c.name, c.kind, c.absent or c.version))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": dict(self.workload),
            "hardware": dict(self.hardware),
            "versions": dict(self.versions),
            "tuning": dict(self.tuning),
            "library": dict(self.library),
            "overheads": dict(self.overheads),
            "contenders": [asdict(c) for c in self.contenders],
            "rows": [row.to_json() for row in self.rows],
            "summary": [asdict(s) for s in self.summary],
            "quality": self.quality,
            "shapes": _shapes_to_json(self.shape_set),
            "trace": [asdict(t) for t in self.trace],
            "padding": [{**asdict(p), "waste": p.waste} for p in self.padding],
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Writes ``report.json``.

        Raises:
            RecordError: if no row has a right result; what stands in the file stays.
        """
        if not any(row.correct for row in self.rows):
            reasons = dict.fromkeys(row.plan for row in self.rows if row.plan)
            raise RecordError(
                "a report that is saved has a right result",
                f"{len(self.rows)} rows without one{': ' if reasons else ''}{'; '.join(reasons)}",
                f"{path} is as it was." if Path(path).exists() else "",
            )
        write_json(Path(path), self.to_json())

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Report:
        schema = value.get("schema_version") if isinstance(value, dict) else None
        if schema not in READABLE_VERSIONS:
            remedy = "Evaluate again with this version."
            known = " or ".join(map(str, READABLE_VERSIONS))
            raise RecordError(f"a report has schema {known}", repr(schema), remedy)
        return cls(
            workload=value["workload"],
            hardware=value["hardware"],
            versions=value["versions"],
            tuning=value["tuning"],
            library=value["library"],
            rows=tuple(Row.from_json(row) for row in value["rows"]),
            contenders=tuple(ContenderInfo(**c) for c in value["contenders"]),
            overheads=value["overheads"],
            notes=tuple(value["notes"]),
            shape_set=_shapes_from_json(value.get("shapes")),
        )

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Returns the report in a file, compressed if its name ends in ``.gz``.

        Raises:
            RecordError: if it is missing or damaged.
        """
        try:
            data = Path(path).read_bytes()
            return cls.from_json(json.loads(gzip.decompress(data) if Path(path).suffix == ".gz" else data))
        except (OSError, ValueError) as error:
            raise RecordError("a report is readable JSON", f"{path}: {error}") from None


def with_reasons(frame: pd.DataFrame, kinds: Iterable[str]) -> pd.DataFrame:
    """Returns a table of rows in which the ``plan``, a key or the reason why there is no result, became a
    ``scheme`` with its parameters, and a ``reason``."""
    found = with_parameters(frame, kinds)
    return found.assign(reason=frame["plan"].where(found["scheme"].isna()))


def _shapes_to_json(shapes: ShapeSet | None) -> dict[str, Any] | None:
    if shapes is None:
        return None
    return {"source": shapes.source, "dropped": shapes.dropped, "weights": shapes.to_json()}


def _shapes_from_json(value: Mapping[str, Any] | None) -> ShapeSet | None:
    if value is None:
        return None
    shapes = ShapeSet.from_json(value["weights"])
    return replace(shapes, source=value["source"], dropped=value["dropped"])


def fastest(rows: Sequence[Row]) -> list[Row]:
    """Returns, for each shape, the row with the least median time."""
    best: dict[Shape, Row] = {}
    for row in rows:
        if row.shape not in best or row.seconds_median < best[row.shape].seconds_median:
            best[row.shape] = row
    return list(best.values())

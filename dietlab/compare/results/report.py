"""The result of one study, a frozen value, and its file ``report.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.cards import Card, Carded, Fold, Listing, counted
from dietlab.base.errors import RecordError, WorkloadError
from dietlab.base.files import read_json, reading, write_json
from dietlab.compare.results import speedups
from dietlab.compare.results.first_calls import FirstCalls, first_calls, first_listing
from dietlab.compare.results.parts import Part, layer_place, length_place, part_listing, parts
from dietlab.compare.results.policies import Padding, padding_over
from dietlab.compare.results.row import OURS, ContenderInfo, Row, contender_listing, lacking, rows_frame
from dietlab.compare.results.speedups import Summary
from dietlab.compare.results.trace import TraceTime, trace_times
from dietlab.compare.results.trust import Trust, noise_of
from dietlab.machine import Hardware, above_roofline
from dietlab.machine.limits import Limits
from dietlab.machine.target import hardware_target
from dietlab.problem import (
    Shape,
    ShapeSet,
    Workload,
    at_layer,
    length_dim,
    shapes_of_layer,
    workload_from_json,
)

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 3
READABLE_VERSIONS = (1, 2, 3)
"""Schemas that can be read. Schema 1 had no weights: its shapes count equally. In schemas 1 and 2
``overheads`` was not part of ``library``."""


@dataclass(frozen=True, repr=False)
class Report(Carded):
    """All results of one operator on one processor; :meth:`save` writes them, :meth:`load` reads them.

    Args:
        workload, hardware: the operator and the processor as JSON, because this version may not know them.
        versions: the versions of packages.
        tuning: seconds, trials and the cost model's metrics.
        library: bytes of code, micro-kernels, and the cost of a call outside the micro-kernels.
        rows: one row for each shape, contender and cache state.
        contenders: all contenders, also absent ones.
        notes: remarks for the reader.
        shape_set: the weights of the shapes, and where they come from; without it all shapes count equally.
        name: the study's name in a table of several.
        failure: the reason why rows are missing.
        maker: the contender that is evaluated: a speedup is another contender's time over the maker's.
    """

    workload: Mapping[str, Any]
    hardware: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    tuning: Mapping[str, Any] = field(default_factory=dict)
    library: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    contenders: tuple[ContenderInfo, ...] = ()
    notes: tuple[str, ...] = ()
    shape_set: ShapeSet | None = None
    name: str = ""
    failure: str = ""
    maker: str = OURS

    @property
    def operator(self) -> Workload:
        """The operator (:class:`WorkloadError` if this version does not know it)."""
        return workload_from_json(self.workload)

    @property
    def _known(self) -> Workload | None:
        with suppress(WorkloadError):
            return self.operator
        return None

    @property
    def processor(self) -> Hardware:
        """The processor (:class:`HardwareError` if a field is missing)."""
        return Hardware.from_json(self.hardware)

    @property
    def threads(self) -> int:
        """The cores of a CPU that a call uses; 1 on a GPU, which is used as a whole."""
        return int(self.hardware.get("cores", 1)) if self.limits.on_host else 1

    @property
    def used(self) -> str:
        """The cores or the GPU that a call uses: ``"one core"``, ``"2 cores"``, ``"one GPU"``."""
        return self.limits.used(self.threads)

    @property
    def limits(self) -> type[Limits]:
        """The class of the processor's limits."""
        return hardware_target(self.hardware.get("kind", "cpu")).LIMITS

    @property
    def folder(self) -> str:
        """The study's folder inside a bench's."""
        return study_folder(self.name, self.threads)

    @property
    def ours(self) -> tuple[Row, ...]:
        """The rows of the maker."""
        return tuple(row for row in self.rows if row.contender == self.maker)

    @property
    def complete(self) -> bool:
        """True if the operator was tuned, built and measured without failure."""
        return bool(self.tuning and self.library) and not self.failure

    def kind(self, contender: str) -> str:
        """Returns a contender's kind, such as ``"plain"``; an empty text if it is unknown."""
        return next((c.kind for c in self.contenders if c.name == contender), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and a note on shares of the roofline above 1, if the maker has any."""
        return (*self.notes, *above_roofline(row.roofline for row in self.ours if row.correct))

    @property
    def trust(self) -> Trust | None:
        """The noise of the report's figures; None if no library was timed twice."""
        return Trust.of(self.ours)

    @property
    def first_calls(self) -> tuple[FirstCalls, ...]:
        """The time of the first call at a shape over that of later calls, by cache state and contender."""
        return first_calls(self.rows)

    @property
    def caches(self) -> tuple[str, ...]:
        """The cache states, in the order of their rows."""
        return tuple(dict.fromkeys(row.cache for row in self.rows))

    @property
    def summary(self) -> tuple[Summary, ...]:
        """Speedups by contender and cache state, also over the best prepacked and the best plain vendor."""
        return tuple(Summary.of(name, cache, rows) for cache, name, rows in self._compared())

    @property
    def dims(self) -> tuple[str, ...]:
        """The dynamic dimensions of its shapes, in alphabetical order."""
        return tuple(self.rows[0].shape.to_json()) if self.rows else ()

    @property
    def length(self) -> str:
        """The dimension that is the length (:func:`~dietlab.problem.length_dim`); the last one of an operator
        that this version does not know; ``""`` if no dimension is dynamic."""
        with suppress(WorkloadError):
            return length_dim(self.operator)
        return self.dims[-1] if self.dims else ""

    @property
    def layers(self) -> tuple[Shape, ...]:
        """The layers of its shapes, ascending: the extents of all dimensions but the length."""
        return tuple(sorted({row.shape.without(self.length) for row in self.rows}))

    @property
    def by_layer(self) -> tuple[Part, ...]:
        """:attr:`summary` for each layer, if several dimensions are dynamic."""
        return parts(self._compared(), layer_place(self.length)) if len(self.dims) > 1 else ()

    @property
    def by_length(self) -> tuple[Part, ...]:
        """:attr:`summary` for each length, or from one power of two to the next if there are many; only if
        several dimensions are dynamic."""
        if len(self.dims) < 2:
            return ()
        lengths = {row.shape[self.length] for row in self.rows}
        return parts(self._compared(), length_place(self.length, lengths))

    def of_layer(self, layer: Mapping[str, int]) -> Report:
        """Returns the report of one layer, whose only dynamic dimension is the length.

        Args:
            layer: the extent of every dynamic dimension but the length, as in ``{"N": 2304, "K": 768}``.

        Raises:
            WorkloadError: if a dimension is missing or unknown, the operator is unknown, or no shape has this
                layer.
        """
        bound, length, wanted = at_layer(self.operator, layer), self.length, Shape.of(**layer)
        measured = shapes_of_layer(self.shape_set or ShapeSet.of(self.weights), layer, length)
        rows = tuple(
            replace(row, shape=Shape.of(**{length: row.shape[length]}))
            for row in self.rows
            if row.shape.without(length) == wanted
        )
        shapes = measured if self.shape_set else None
        return replace(self, workload=bound.to_json(), rows=rows, shape_set=shapes)

    @property
    def quality(self) -> dict[str, dict[str, float]]:
        """The quality of our plans by cache state, in percent: regret (mean, mean over held-out shapes,
        worst) and the median share of the roofline. Unknown figures are left out."""
        ours = [row for row in self.ours if row.correct]
        return {cache: speedups.quality([row for row in ours if row.cache == cache]) for cache in self.caches}

    @property
    def weights(self) -> dict[Shape, float]:
        """The weight of each shape; weights sum to 1."""
        if self.shape_set is not None:
            return dict(zip(self.shape_set.shapes, self.shape_set.weights, strict=True))
        shapes = dict.fromkeys(row.shape for row in self.rows)
        return dict.fromkeys(shapes, 1 / len(shapes)) if shapes else {}

    @property
    def trace(self) -> tuple[TraceTime, ...]:
        """The weighted mean time of a call, for each cache state and contender, the maker first."""
        return tuple(
            line
            for cache in self.caches
            for line in trace_times(cache, self.maker, self.ours, self.groups(cache), self.weights)
        )

    @property
    def padding(self) -> tuple[Padding, ...]:
        """Executed multiply-adds of our plans and of common padding policies, as weighted means; empty for an
        operator that this version does not know."""
        waste = {r.shape: r.padding_waste for r in self.rows if r.padding_waste is not None}
        return padding_over(self._known, self.weights, waste) if self._known else ()

    def groups(self, cache: str) -> dict[str, list[Row]]:
        """Returns rows by contender; a group of vendors has, for each shape, the row of its fastest
        vendor."""
        return speedups.groups((row for row in self.rows if row.cache == cache), self.contenders, self.maker)

    def _compared(self) -> Iterator[tuple[str, str, list[Row]]]:
        """Yields the :meth:`groups` of all cache states."""
        return ((cache, *group) for cache in self.caches for group in self.groups(cache).items())

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with a row for each shape, contender and cache state: see :class:`Row`.

        Each dynamic dimension has a column. The columns ``scheme``, its parameters, and ``reason`` replace
        the plan; a row with a reason has no result and is not ``correct``. Shares of a model's time are in
        :func:`~dietlab.view.frame_time_shares`.
        """
        return rows_frame(self.rows, self.hardware.get("kind", "cpu"))

    def summary_frame(self) -> pd.DataFrame:
        """Returns a table with a row for each contender and cache state: see :class:`Summary`."""
        return speedups.summaries_frame(self.summary)

    @property
    def card(self) -> Card:
        """Its card in a notebook: the speedup over the best vendor, and all tables to unfold."""
        rivals = [c for c in self.contenders if not c.absent and c.name != self.maker]
        shapes = counted(len({row.shape for row in self.rows}), "shape")
        facts = (
            shapes,
            counted(len(rivals), "contender"),
            *speedups.headline(self.summary),
            *noise_of(self.trust),
        )
        sections = (
            Fold(f"Speedup of {self.maker}", lambda: speedups.summary_listing(self.summary), unfolded=True),
            Fold("Speedup by layer", lambda: part_listing("layer", self.by_layer)),
            Fold("First calls", lambda: first_listing(self.first_calls)),
            Fold("Quality of dispatch", lambda: speedups.quality_listing(self.quality)),
            Fold("Contenders", lambda: contender_listing(self.contenders)),
            Fold("Notes", lambda: Listing(("note",), self.remarks, lambda note: (note,))),
        )
        return Card("Report", f"{self.title} on {self.processor_name}", facts, sections)

    @property
    def title(self) -> str:
        """The operator with its dimensions, as in ``dense T=1..128 N=2304 K=768``."""
        return str(self._known or self.workload.get("operator", "an unknown operator"))

    @property
    def processor_name(self) -> str:
        """The processor's name."""
        return str(self.hardware.get("name", "an unknown processor"))

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a JSON value."""
        shapes = self.shape_set
        return {
            "schema_version": SCHEMA_VERSION,
            **self.facts,
            "rows": [row.to_json() for row in self.rows],
            "summary": [asdict(s) for s in self.summary],
            "quality": self.quality,
            "shapes": shapes
            and {"source": shapes.source, "dropped": shapes.dropped, "weights": shapes.to_json()},
            "trace": [asdict(t) for t in self.trace],
            "padding": [{**asdict(p), "waste": p.waste} for p in self.padding],
            "notes": list(self.notes),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """All fields but rows, notes and weights, as JSON."""
        return {
            "name": self.name,
            "workload": dict(self.workload),
            "hardware": dict(self.hardware),
            "versions": dict(self.versions),
            "tuning": dict(self.tuning),
            "library": dict(self.library),
            "contenders": [asdict(c) for c in self.contenders],
            "failure": self.failure,
            "maker": self.maker,
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any], rows: Iterable[Row] = ()) -> Report:
        """Returns the report of :attr:`facts` with other ``rows``."""
        return cls(
            workload=facts["workload"],
            hardware=facts["hardware"],
            versions=facts.get("versions", {}),
            tuning=facts["tuning"],
            library={**facts["library"], **facts.get("overheads", {})},
            rows=tuple(rows),
            contenders=tuple(ContenderInfo(**c) for c in facts["contenders"]),
            name=facts.get("name", ""),
            failure=facts.get("failure", ""),
            maker=facts.get("maker", OURS),
        )

    def save(self, path: str | Path) -> None:
        """Writes ``report.json``, compressed if the name ends in ``.gz``.

        Raises:
            RecordError: if no row has a right result, or the file's report has more results (:meth:`lacks`).
                The file is not changed then.
        """
        if not any(row.correct for row in self.rows):
            reasons = dict.fromkeys(row.plan for row in self.rows if row.plan)
            raise RecordError(
                "every row of a saved report must have a correct result",
                f"{len(self.rows)} rows without one{': ' if reasons else ''}{'; '.join(reasons)}",
                "Nothing was written.",
            )
        if more := self.lacks(path):
            raise RecordError("a report must not replace one with more results", more, "Name another file.")
        write_json(Path(path), self.to_json(), error=RecordError)

    def lacks(self, path: str | Path) -> str:
        """Returns a sentence on the right results that only the report in a file has.

        The sentence is empty if the file's report has no further result, lacks a result of this report, is of
        another library, or cannot be read. It is also empty if this report has no result.
        """
        try:
            known = Report.load(path) if Path(path).exists() else replace(self, rows=())
        except RecordError:
            return ""
        mine, theirs = ((r.workload, r.hardware, r.library.get("micro_kernels")) for r in (self, known))
        return lacking(self.rows, known.rows) if mine == theirs else ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Report:
        """Returns the report of a JSON value made by :meth:`to_json` (:class:`RecordError` for another
        schema)."""
        schema = value.get("schema_version") if isinstance(value, dict) else None
        if schema not in READABLE_VERSIONS:
            remedy = "Evaluate again with this version."
            known = " or ".join(map(str, READABLE_VERSIONS))
            raise RecordError(f"a report must have schema {known}", repr(schema), remedy)
        report = replace(cls.of_facts(value, map(Row.from_json, value["rows"])), notes=tuple(value["notes"]))
        if (shapes := value.get("shapes")) is None:
            return report
        weights = ShapeSet.from_json(shapes["weights"])
        weights = replace(weights, source=shapes["source"], dropped=shapes["dropped"])
        return replace(report, shape_set=weights)

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Returns the report in a file, which is compressed if its name ends in ``.gz``.

        Raises:
            RecordError: if it is missing or damaged.
        """
        with reading(RecordError, "a report must be readable JSON", path, "`dietlab evaluate` makes one."):
            return cls.from_json(read_json(path))


def study_folder(name: str, threads: int) -> str:
    """Returns the name of a study's folder, such as ``dense-k768-n2304-2t``."""
    return f"{name}-{threads}t"

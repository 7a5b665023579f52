"""Measurements that others published, as records of ours: values that check themselves."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from dietlab.base.errors import RecordError
from dietlab.base.files import parse_json, read_text, reading, write_whole
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.problem.dims import Shape

SCHEMA_VERSION = 1
CUBLAS = "cublas"  # the vendor's library among the choices
Layout = Literal["nn", "nt", "tn", "tt"]
"""The storage of both operands, x ``[T, K]`` and w ``[K, N]``: by rows (``n``) or by columns (``t``). ``nt``
is a linear layer's forward pass, ``nn`` its gradient by the input, ``tn`` its gradient by the weights."""


@dataclass(frozen=True, order=True)
class Operator:
    """A product with three dynamic extents. Its operands are of ``dtype`` (``tf32``: float32 on tensor
    cores).
    """

    dtype: str
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype} {self.layout}"


@dataclass(frozen=True)
class PublishedRecord:
    """One program on one shape, as others timed it.

    Args:
        collection: the collection that the shape belongs to, such as layers of vision models.
        tile: the program; None is the vendor's library.
        seconds: the time of one call: the median of ``repeats`` different times.
        spread: the greatest of these times over the least, minus 1.
    """

    operator: Operator
    shape: Shape
    collection: str
    tile: TritonTile | None
    seconds: float
    repeats: int = 1
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and isfinite(self.seconds)) or self.repeats < 1 or self.spread < 0:
            rule = "a published record must have a positive, finite time and repeats"
            raise RecordError(
                rule, f"{self.seconds} s, {self.repeats} repeats", "Set it aside with its reason."
            )

    def to_json(self) -> dict[str, Any]:
        choice = CUBLAS if self.tile is None else self.tile.key
        value = {**asdict(self.operator), "shape": self.shape.to_json(), "collection": self.collection}
        return value | {"choice": choice} | {n: getattr(self, n) for n in ("seconds", "repeats", "spread")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishedRecord:
        choice = str(value["choice"])
        parsed = TritonTile.parse(choice)
        if parsed is None and choice != CUBLAS:
            raise RecordError(f"a choice is a tile's key or {CUBLAS}", choice, "Fetch the records again.")
        operator, shape = Operator(str(value["dtype"]), value["layout"]), Shape.from_json(value["shape"])
        tile, seconds = parsed[0] if parsed else None, float(value["seconds"])
        repeats, spread = int(value["repeats"]), float(value["spread"])
        return cls(operator, shape, str(value["collection"]), tile, seconds, repeats, spread)


@dataclass(frozen=True)
class Origin:
    """The origin of published records: repository, commit (empty if unknown), licence, files and their
    SHA-256."""

    repository: str
    commit: str
    licence: str
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Published:
    """The records of one GPU, a preset. ``set_aside`` counts rows that are no result by reason, the most
    frequent reason first.
    """

    gpu: str
    origin: Origin
    records: tuple[PublishedRecord, ...]
    set_aside: tuple[tuple[str, int], ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(sorted({record.operator for record in self.records}))

    @property
    def shapes(self) -> int:
        """The number of different shapes, over all operators and collections."""
        return len({(r.operator, r.collection, r.shape) for r in self.records})

    def save(self, path: Path) -> None:
        """Writes ``.jsonl.gz``: a header, and a line for each record. Equal records give equal bytes."""
        header = {"schema_version": SCHEMA_VERSION, "gpu": self.gpu, "origin": asdict(self.origin)}
        header["set_aside"] = dict(self.set_aside)
        lines = (json.dumps(v) for v in (header, *(record.to_json() for record in self.records)))
        write_whole(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))

    @classmethod
    def load(cls, path: Path) -> Published:
        """Reads the records that :meth:`save` wrote, all or none: a part would be judged as the whole."""
        rule = f"published records are a .jsonl.gz file of schema {SCHEMA_VERSION}"
        with reading(RecordError, rule, path, "Fetch them: dietlab fetch-records autoheuristic."):
            header, *lines = map(parse_json, read_text(path).splitlines())
            if header["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema {header['schema_version']}")
            origin = Origin(**{**header["origin"], "files": tuple(map(tuple, header["origin"]["files"]))})
            records = tuple(map(PublishedRecord.from_json, lines))
            return cls(header["gpu"], origin, records, tuple(header["set_aside"].items()))

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
from dietlab.base.files import read_text, reading, write_whole
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.problem.dims import Shape

SCHEMA_VERSION = 1

CUBLAS = "cublas"
"""The name of the vendor's library among the choices."""

Layout = Literal["nn", "nt", "tn", "tt"]
"""The storage of both operands, x ``[T, K]`` and w ``[K, N]``: by rows (``n``) or by columns (``t``). ``nt``
is a linear layer's forward pass, ``nn`` its gradient by the input, ``tn`` its gradient by the weights."""


@dataclass(frozen=True, order=True)
class Operator:
    """A product whose three extents are dynamic: what one library serves.

    Args:
        dtype: of operands and output: ``float16``, ``bfloat16``, ``float32``, or ``tf32`` (float32 operands
            on tensor cores).
        layout: see :data:`Layout`.
    """

    dtype: str
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype} {self.layout}"


@dataclass(frozen=True)
class PublishedRecord:
    """One program on one shape, as others timed it.

    Args:
        operator, shape: of what; the shape's dimensions are T (rows, M in the source), N and K.
        collection: the shapes that it belongs to, such as layers of vision models.
        tile: the program; None is the vendor's library.
        seconds: of one call, the median of ``repeats`` different times.
        spread: the greatest of them over the least, minus 1.

    Raises:
        RecordError: if the time is not positive and finite, or there are no repeats.
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
            raise RecordError(
                "a published record has a positive, finite time and repeats",
                f"{self.seconds} s, {self.repeats} repeats",
                "Set it aside with its reason.",
            )

    @property
    def choice(self) -> str:
        """The tile's key, or :data:`CUBLAS`."""
        return CUBLAS if self.tile is None else self.tile.key

    def to_json(self) -> dict[str, Any]:
        names = ("collection", "choice", "seconds", "repeats", "spread")
        shape = {"shape": self.shape.to_json()}
        return {**asdict(self.operator), **shape, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishedRecord:
        choice = str(value["choice"])
        parsed = TritonTile.parse(choice)
        if parsed is None and choice != CUBLAS:
            raise RecordError(f"a choice is a tile's key or {CUBLAS}", choice, "Fetch the records again.")
        return cls(
            Operator(str(value["dtype"]), value["layout"]),
            Shape.from_json(value["shape"]),
            str(value["collection"]),
            parsed[0] if parsed else None,
            float(value["seconds"]),
            int(value["repeats"]),
            float(value["spread"]),
        )


@dataclass(frozen=True)
class Origin:
    """The origin of published records.

    Args:
        repository: its address.
        commit: of the files; empty if they are of no known one.
        licence: of the files, as their repository states it.
        files: names and SHA-256 of the files that were read.
    """

    repository: str
    commit: str
    licence: str
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Published:
    """Records of one GPU, and the rows that are no result.

    Args:
        gpu: a preset of :class:`~dietlab.machine.Hardware`.
        set_aside: ``(reason, rows)``, the most frequent reason first.
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
        """Writes ``.jsonl.gz``: a header, and a line a record; the same bytes for the same records."""
        header = {
            "schema_version": SCHEMA_VERSION,
            "gpu": self.gpu,
            "origin": asdict(self.origin),
            "set_aside": dict(self.set_aside),
        }
        lines = (json.dumps(v) for v in (header, *(record.to_json() for record in self.records)))
        write_whole(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))

    @classmethod
    def load(cls, path: Path) -> Published:
        """Reads what :meth:`save` wrote; reading runs no code.

        Raises:
            RecordError: if the file is missing, damaged, cut off or of another schema: what was judged on
            a part would be taken for all that was published.
        """
        with reading(
            RecordError,
            f"published records are a .jsonl.gz file of schema {SCHEMA_VERSION}",
            path,
            "Fetch them: dietlab fetch-records autoheuristic.",
        ):
            header, *lines = map(json.loads, read_text(path).splitlines())
            if header["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema {header['schema_version']}")
            origin = Origin(**{**header["origin"], "files": tuple(map(tuple, header["origin"]["files"]))})
            records = tuple(map(PublishedRecord.from_json, lines))
            return cls(header["gpu"], origin, records, tuple(header["set_aside"].items()))

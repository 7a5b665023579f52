"""Libraries of candidates that are built on one machine and measured on another, without a compiler.

A folder has the compressed libraries and ``libraries.jsonl``: a header with operator and processor, then a
line for each scheme with its library's digest, or the reason why it has none. Reading it runs no code.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.base.events import Stage
from dietlab.base.files import append_line, cut_truncated, parse_json, read_lines, reading, write_whole
from dietlab.machine import Hardware
from dietlab.measure.builders import Builders, Built
from dietlab.measure.record import Status, Trial
from dietlab.problem import Shape, Workload, workload_from_json, workload_to_json
from dietlab.scheme import Scheme

LISTING = "libraries.jsonl"
PACKED = ".xz"
"""The suffix of compressed libraries. Compression makes a library eight times smaller."""
SCHEMA_VERSION = 1
TOGETHER = 16
"""The number of libraries that are built between two writes of the listing: enough to keep all cores busy."""
BUILD_SECONDS = 300.0
"""The longest time to build one library, in seconds."""


@dataclass(frozen=True)
class Entry:
    """A line of the listing.

    Args:
        shapes: the shapes that the library can be called with.
        file: the library's name in the folder, without the suffix :data:`PACKED`; empty if there is none.
        digest: SHA-256 of the library.
        seconds: the library's share of the wall-clock time of building.
        answer: the builder's answer, with the bytes and the hash of the code, and its resources.
        failure: the status and the reason if the scheme is not measured.
    """

    scheme: Scheme
    shapes: tuple[Shape, ...]
    file: str
    digest: str
    seconds: float
    answer: Mapping[str, Any]
    failure: tuple[Status, str] | None = None

    @classmethod
    def packed(cls, built: Built, shapes: tuple[Shape, ...]) -> Entry:
        """Replaces a library by a compressed file and returns its entry."""
        file = digest = ""
        if built.failure is None:
            file, data = built.path.name, built.path.read_bytes()
            digest = sha256(data).hexdigest()
            write_whole(built.path.with_name(file + PACKED), lzma.compress(data))
        built.path.unlink(missing_ok=True)
        return cls(built.scheme, shapes, file, digest, round(built.seconds, 6), built.answer, built.failure)

    def to_json(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme.key,
            "shapes": [shape.to_json() for shape in self.shapes],
            "file": self.file,
            "digest": self.digest,
            "seconds": self.seconds,
            "answer": dict(self.answer),
            "failure": self.failure,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        """Returns the entry of a JSON object made by ``to_json``.

        Raises:
            ValueError: if the object's file is in another folder.
        """
        file, failure = str(value["file"]), value["failure"]
        if Path(file).name != file:
            raise ValueError(f"{file!r} is no name of a file in the folder")
        return cls(
            Scheme.from_key(value["scheme"]),
            tuple(map(Shape.from_json, value["shapes"])),
            file,
            str(value["digest"]),
            float(value["seconds"]),
            dict(value["answer"]),
            (failure[0], str(failure[1])) if failure else None,
        )


@dataclass(frozen=True)
class ReadyLibraries:
    """The libraries of a folder, an entry for each scheme, for
    :class:`~dietlab.measure.local.LocalRunner`."""

    folder: Path
    workload: Workload
    hardware: Hardware
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        """Size of the compressed libraries."""
        return sum(path.stat().st_size for path in self.folder.glob(f"*{PACKED}"))

    @classmethod
    def open(cls, folder: Path) -> ReadyLibraries:
        """Reads a folder; a truncated last line is ignored with a warning.

        Raises:
            MeasureError: if there is no listing, or it is damaged.
        """
        rule = f"a folder of ready libraries must have a whole {LISTING} of schema {SCHEMA_VERSION}"
        with reading(MeasureError, rule, folder / LISTING, "`dietlab kit pack` makes one; bring it whole."):
            header, *lines = map(parse_json, read_lines(folder / LISTING))
            if header["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema {header['schema_version']}")
            return cls(
                folder,
                workload_from_json(header["workload"]),
                Hardware.from_json(header["hardware"]),
                tuple(map(Entry.from_json, lines)),
            )

    def built(self, workload: Workload, trials: Sequence[Trial]) -> list[Built]:
        """Returns the library of each trial. A missing or damaged file becomes a failure with a reason.

        Raises:
            MeasureError: if the libraries are for another operator, or a trial's scheme or shapes are
                missing.
        """
        if workload != self.workload:
            raise MeasureError(f"the libraries in {self.folder} must be of the operator to measure", workload)
        entries = {entry.scheme: entry for entry in self.entries}
        return [self._built(entries.get(trial.scheme), trial) for trial in trials]

    def _built(self, entry: Entry | None, trial: Trial) -> Built:
        if entry is None or not set(trial.shapes) <= set(entry.shapes):
            raise MeasureError(
                f"the libraries in {self.folder} must include the scheme and the shapes",
                f"{trial.scheme} on {', '.join(map(str, trial.shapes))}",
                "Measure only schemes and shapes of its listing.",
            )
        path = self.folder / entry.file
        failure = entry.failure or self._damage(path, entry.digest)
        # The library was built for all its shapes together.
        seconds = entry.seconds * len(trial.shapes) / len(entry.shapes)
        return Built(entry.scheme, path, dict(entry.answer), failure, seconds)

    def _damage(self, path: Path, digest: str) -> tuple[Status, str] | None:
        """Unpacks a library beside its compressed file. Returns a failure if the file is damaged, else
        None."""
        try:
            data = lzma.decompress(path.with_name(path.name + PACKED).read_bytes())
        except (OSError, lzma.LZMAError) as error:
            return "refused", f"{path.name} cannot be read: {error}; bring the folder again"
        if (found := sha256(data).hexdigest()) != digest:
            reason = f"its SHA-256 begins with {found[:12]}, not {digest[:12]}"
            return "refused", f"{path.name} is not the file that was packed: {reason}; bring the folder again"
        if not path.exists():
            write_whole(path, data)
        return None


def pack_libraries(
    folder: Path,
    workload: Workload,
    hardware: Hardware,
    trials: Sequence[Trial],
    progress: Stage,
    workers: int | None = None,
) -> ReadyLibraries:
    """Builds the libraries of trials into a folder, except the libraries that the folder already lists.
    ``progress`` advances by one for each trial.

    Raises:
        MeasureError: if the folder has libraries of another operator or processor.
        BuildError, MissingDependencyError: if libraries cannot be compiled or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listing = folder / LISTING
    if not listing.exists() or not cut_truncated(listing):
        header = {"workload": workload_to_json(workload), "hardware": hardware.to_json()}
        append_line(listing, {"schema_version": SCHEMA_VERSION, **header}, "ready libraries")
    ready = ReadyLibraries.open(folder)
    if (ready.workload, ready.hardware) != (workload, hardware):
        raise MeasureError(
            f"the libraries in {folder} must be of {workload} for {hardware.name}",
            f"those of {ready.workload} for {ready.hardware.name}",
            "Pack into another folder.",
        )
    known = {entry.scheme for entry in ready.entries}
    left = [trial for trial in trials if trial.scheme not in known]
    progress.advance("", by=len(trials) - len(left))
    with Builders(hardware, folder, workers, BUILD_SECONDS) as builders:
        for some in _batches(left):
            for trial, built in zip(some, builders.built(workload, some), strict=True):
                append_line(listing, Entry.packed(built, trial.shapes).to_json(), "ready libraries")
                progress.advance(built.scheme.key)
    return ReadyLibraries.open(folder)


def _batches(trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
    return (trials[start : start + TOGETHER] for start in range(0, len(trials), TOGETHER))

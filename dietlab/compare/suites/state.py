"""Keeps what a bench measured in one small archive, always whole, from which another machine goes on."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from time import monotonic

from dietlab.base.errors import StudyError
from dietlab.base.events import Event, StageAdvanced, StageFinished
from dietlab.base.files import LOCK, UNFINISHED, replacing, writing
from dietlab.compare.suites.run import JOURNAL

SECONDS_BETWEEN = 5.0
"""The longest that the archive may lag behind the latest record of a search, in seconds. Writing it takes
some 50 ms, 1 % of this."""

LEFT_OUT = (".so", ".html", ".lock", UNFINISHED)
"""Endings of files that stay out of the archive: compiled libraries and pages, which are large and can be
made again; locks of this machine's processes; and files that are being written."""

TURNS = ("bench", "measure")
"""Stages that advance after each turn, or after each round of a kit (:mod:`dietlab.compare.suites.kit`)."""


class StateArchive:
    """An observer of a bench that keeps an archive (``.tar.gz``) of the bench's folder.

    The archive is written after every turn and every stage, and every :data:`SECONDS_BETWEEN` seconds of a
    search. A kill at any moment leaves either the earlier or the later archive, whole.
    """

    def __init__(self, folder: Path, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._folder, self._path, self._clock = folder, path, clock
        self._written = clock()

    def on_event(self, event: Event) -> None:
        turn_is_over = isinstance(event, StageAdvanced) and event.stage in TURNS
        if turn_is_over or isinstance(event, StageFinished) or self._age > SECONDS_BETWEEN:
            self.write()

    def write(self) -> None:
        """Replaces the archive, or raises :class:`StudyError`."""
        with writing("the state of a bench", self._path, StudyError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as new, tarfile.open(new, "w:gz", compresslevel=6) as archive:
                for name, data in _kept(self._folder):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    archive.addfile(entry, BytesIO(data))
        self._written = self._clock()

    @property
    def _age(self) -> float:
        return self._clock() - self._written


def _kept(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields names and contents of the files to archive. Other processes may remove a file meanwhile."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in LEFT_OUT and path.name != LOCK and path.is_file():
            with suppress(FileNotFoundError):
                yield path.relative_to(folder).as_posix(), path.read_bytes()


def restore(path: Path, folder: Path, begun: str | None = JOURNAL) -> bool:
    """Unpacks an archive into a folder, unless the bench was begun there or there is no archive.

    Args:
        begun: a pattern of files that show that the bench was begun (None: files there are replaced).

    Returns:
        whether it was unpacked.

    Raises:
        StudyError: if the file is no such archive.
    """
    if not path.is_file() or (begun and any(folder.glob(begun))):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(path, "r:gz") as archive:
            # Early releases of Python 3.10 know no filters.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        rule = "the state of a bench must be a file that --state wrote"
        raise StudyError(rule, f"{path}: {error}", "Leave it out to begin anew.") from error
    return True

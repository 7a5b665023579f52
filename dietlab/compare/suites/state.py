"""Keeps what a bench measured as one small archive that is always whole: another machine goes on from it."""

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
"""The archive is at most this much older than the records of a search, in seconds, as long as records come.
Writing it takes some 50 ms, 1 % of this."""

LEFT_OUT = (".so", ".html", ".lock", UNFINISHED)
"""Endings of files that no archive holds: compiled libraries and pages, which are large and made again, locks
of this machine's processes, and files that are being written."""


TURNS = ("bench", "measure")
"""The stages that advance when a turn is over, or what stands for one (:mod:`dietlab.compare.suites.kit`)."""


class StateArchive:
    """Keeps an archive of a bench's folder as the bench goes: one of its observers.

    It is written anew after every turn and every stage, and during a search whenever
    :data:`SECONDS_BETWEEN` are over. A kill at any moment leaves the archive before or the one after, whole.

    Args:
        folder: of the bench.
        path: the archive, a ``.tar.gz``.
        clock: a reading in seconds.
    """

    def __init__(self, folder: Path, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._folder, self._path, self._clock = folder, path, clock
        self._written = clock()

    def on_event(self, event: Event) -> None:
        turn_is_over = isinstance(event, StageAdvanced) and event.stage in TURNS
        if turn_is_over or isinstance(event, StageFinished) or self._age > SECONDS_BETWEEN:
            self.write()

    def write(self) -> None:
        """Replaces the archive.

        Raises:
            StudyError: if it cannot be written.
        """
        with writing("the state of a bench", self._path, StudyError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with (
                replacing(self._path) as unfinished,
                tarfile.open(unfinished, "w:gz", compresslevel=6) as archive,
            ):
                for name, data in _kept(self._folder):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    archive.addfile(entry, BytesIO(data))
        self._written = self._clock()

    @property
    def _age(self) -> float:
        return self._clock() - self._written


def _kept(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the files that go into the archive; other processes may write them."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in LEFT_OUT and path.name != LOCK and path.is_file():
            with suppress(FileNotFoundError):
                yield path.relative_to(folder).as_posix(), path.read_bytes()


def restore(path: Path, folder: Path, begun: str | None = JOURNAL) -> bool:
    """Unpacks an archive into the folder of a bench that was not begun there.

    Args:
        begun: a pattern of the files by which a folder in which it was begun is known (None: what stands
            there is replaced).

    Returns:
        whether it was unpacked: not if there is no archive, or the bench was begun in the folder.

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
        raise StudyError(
            "the state of a bench is what --state wrote", f"{path}: {error}", "Leave it out to begin anew."
        ) from error
    return True

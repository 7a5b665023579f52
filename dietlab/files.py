"""Files that are whole or as they were, whenever the process dies or the disk fills; and locked folders."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from filelock import FileLock, Timeout

from dietlab.errors import RecordError, StudyError

UNFINISHED = ".new"
"""The ending of a file that is being written, and of what a kill leaves of it."""

LOCK = "lock"
"""The name of the file that keeps a second process out of a folder."""

GO_ON = "Free some space and run the same command again: it goes on from here."


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to, and puts that file in the place of ``path`` at the end.

    Readers see the old file or the new one. The name has the numbers of process and thread in it, so that
    several may write the same file: the last one counts.

    Raises:
        OSError: if it cannot be written; ``path`` stays as it was.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}{UNFINISHED}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, data: str | bytes) -> None:
    """Replaces a file by ``data``, whole or not at all; text as UTF-8.

    Raises:
        OSError: if it cannot be written; ``path`` stays as it was.
    """
    with replacing(path) as unfinished:
        unfinished.write_bytes(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Replaces a file by JSON, as :func:`write_whole` does; compressed if its name ends in ``.gz``."""
    text = json.dumps(value, indent=indent) + "\n"
    write_whole(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text)


def append_line(path: Path, value: Mapping[str, Any], what: str) -> None:
    """Appends one line of JSON by one ``write`` and forces it to disk: a kill leaves at most one truncated
    last line, which :func:`cut_truncated` removes.

    Args:
        what: the name of the lines in errors, as in ``"records"``.

    Raises:
        RecordError: if it cannot be written whole; the lines before it stay.
    """
    try:
        _append(path, (json.dumps(value, separators=(",", ":")) + "\n").encode())
    except OSError as error:
        if path.exists():
            cut_truncated(path)
        raise RecordError(f"{what} can be written", f"{path}: {error}", GO_ON) from error


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut_truncated(path: Path) -> bool:
    """Cuts off a truncated last line; returns False if no whole line is left."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return whole > 0


@contextmanager
def locked(folder: Path, rule: str) -> Iterator[None]:
    """Keeps a second process out of a folder, which is made if it is missing; the lock goes with the process,
    however it ends.

    Args:
        rule: the invariant in errors, as in ``"one bench at a time works in a folder"``.

    Raises:
        StudyError: if another process holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise StudyError(rule, folder, "Wait for the other, or use another folder (--out).") from None
    except OSError as error:
        raise StudyError("the folder can be made", f"{folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


def make_folder(path: Path) -> None:
    """Makes the folder of a new study.

    Raises:
        StudyError: if something is in it, or it cannot be made.
    """
    # A kill between mkdir and the manifest's last step leaves nothing but the unfinished manifest.
    if path.exists() and (not path.is_dir() or any(p.suffix != UNFINISHED for p in path.iterdir())):
        raise StudyError("a new study gets an empty or new folder", path, "Choose another --out.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError("the study folder can be made", f"{path}: {error}") from error

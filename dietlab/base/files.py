"""Files that are whole or as they were, whenever the process dies or the disk fills; what can be read of
those that are not; and locked folders."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from filelock import FileLock, Timeout

from dietlab.base.errors import DietlabError, DietlabWarning, RecordError, StudyError

UNFINISHED = ".new"
"""The ending of a file that is being written, and of what a kill leaves of it."""

LOCK = "lock"
"""The name of the file that keeps a second process out of a folder."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
"""The system's numbers of why a file cannot be written: no space is left, or it is not allowed."""

FREE = "Free some space and run the same command again: it goes on from here."

PATIENCE_SECONDS = 600.0
"""Seconds until another process's turn in a folder is taken for one that hangs: the longest build of a
library takes some minutes."""


def remedy_of(error: OSError | str) -> str:
    """Returns what helps against an error of writing, by the system's reason.

    Args:
        error: the system's, or what another program, such as a linker, said of it.
    """
    if _says(error, FULL):
        return FREE
    if _says(error, FORBIDDEN):
        return "Make the folder writable for this user, or use another one: nothing can be written there."
    if _says(error, (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST)):
        return "Give a path whose folder is there, and that is no folder itself."
    return "The system says why; run the same command again once that is mended."


@contextmanager
def writing(what: str, path: Path, error: type[DietlabError]) -> Iterator[None]:
    """Turns the system's error of writing inside into one that says what helps against it.

    Args:
        what: what is written, as in ``"the table"``.

    Raises:
        DietlabError: ``error``, if it cannot be written.
    """
    try:
        yield
    except OSError as reason:
        raise error(f"{what} can be written", f"{path}: {reason}", remedy_of(reason)) from reason


def write_failure(text: str) -> bool:
    """Returns whether another program's message says that a file could not be written."""
    return _says(text, (*FULL, *FORBIDDEN))


def _says(error: OSError | str, numbers: tuple[int, ...]) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in numbers
    return any(os.strerror(number) in str(error) for number in numbers)


GZIP = b"\x1f\x8b"
"""The first bytes of a file that gzip compressed, whatever its name is."""

FOREIGN = {
    b"version https://git-lfs.github.com/spec/": "a pointer of Git LFS in place of the file: `git lfs pull` "
    "brings it",
    b"\xff\xfe": "text in UTF-16: save it as UTF-8",
    b"\xfe\xff": "text in UTF-16: save it as UTF-8",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"BZh": "compressed by bzip2: unpack it",
    b"\xfd7zXZ": "compressed by xz: unpack it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it",
}
"""The first bytes of files that are often met in place of text, and what is said of them."""

CHUNK_BYTES = 1 << 20
"""Bytes that are unpacked at a time: what a cut file still holds is kept in such pieces."""


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


def write_whole(path: Path, data: str | bytes, error: type[DietlabError] = DietlabError) -> None:
    """Replaces a file by ``data``, whole or not at all; text as UTF-8.

    Raises:
        DietlabError: ``error``, if it cannot be written; ``path`` stays as it was.
    """
    with writing(path.name, path, error), replacing(path) as unfinished:
        unfinished.write_bytes(data.encode() if isinstance(data, str) else data)


def write_json(
    path: Path, value: Any, indent: int | None = 1, error: type[DietlabError] = DietlabError
) -> None:
    """Replaces a file by JSON, whole or not at all; compressed if its name ends in ``.gz``.

    Raises:
        DietlabError: ``error``, if it cannot be written; ``path`` stays as it was.
    """
    text = json.dumps(value, indent=indent) + "\n"
    write_whole(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text, error)


def append_line(path: Path, value: Mapping[str, Any], what: str) -> None:
    """Appends one line of JSON by one ``write`` and forces it to disk: a kill leaves at most one truncated
    last line, which :func:`cut_truncated` removes.

    Args:
        what: the name of the lines in errors, as in ``"records"``.

    Raises:
        RecordError: if it cannot be written whole; the lines before it stay.
    """
    with writing(what, path, RecordError):
        try:
            _append(path, (json.dumps(value, separators=(",", ":")) + "\n").encode())
        except OSError:
            if path.exists():
                cut_truncated(path)
            raise


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut_truncated(path: Path) -> bool:
    """Cuts off a truncated last line, so that lines can be appended; one that only lacks its end gets it.

    Returns:
        False if no whole line is left.

    Raises:
        RecordError: if the file is no plain text; it stays as it is.
    """
    data = path.read_bytes()
    if data.startswith(GZIP) or _foreign(data):
        told = _foreign(data) or "compressed by gzip: unpack it"
        raise RecordError("lines are appended to a file of plain text", f"{path}: {told}")
    whole = data.rfind(b"\n") + 1
    if _is_whole(data[whole:].decode(errors="replace")):
        with path.open("ab") as file:
            file.write(b"\n")
        return True
    if whole < len(data):
        os.truncate(path, whole)
    return whole > 0


def read_text(path: str | Path) -> str:
    """Returns the text of a file: UTF-8 with or without a byte-order mark, plain or compressed by gzip, which
    its first bytes tell.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is empty, was cut off, is damaged, or is something else, with what it is.
    """
    text, cut = _read(Path(path))
    if cut or not text:
        raise ValueError(cut or "it is empty")
    return text


def read_json(path: str | Path) -> Any:
    """Returns the value in a file of JSON, which is read as :func:`read_text` does.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is no whole JSON, with what it is.
    """
    return json.loads(read_text(path))


def read_lines(path: str | Path) -> tuple[str, ...]:
    """Returns the lines of a file with a value of JSON in each: an object or a list.

    Of a file that a kill or a full disk cut off, the whole lines are returned, and a
    :class:`~dietlab.base.errors.DietlabWarning` tells the cut. A last line that only lacks its end is whole.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is damaged, or empty, cut within its first line, or something else, with what it is.
    """
    text, cut = _read(Path(path))
    *lines, last = text.split("\n")
    if _is_whole(last):
        lines.append(last)
    elif last.strip() and not cut:
        cut = f"its last line is cut off: {last!r:.60}"
    if not lines or lines == [""]:
        raise ValueError(cut or "it is empty")
    if cut:
        warnings.warn(f"{path}: {cut}; the lines before that are used", DietlabWarning, stacklevel=3)
    return tuple(line.removesuffix("\r") for line in lines)


@contextmanager
def reading(error: type[DietlabError], invariant: str, path: str | Path, remedy: str = "") -> Iterator[None]:
    """Tells whatever goes wrong while the values of a file are read in one sentence that names the file: it
    is missing, damaged, cut off, of another kind, lacks a field or has one of another type.

    Args:
        error: the class to raise.
        invariant: what must hold of the file.
        remedy: what the user can do about it.

    Raises:
        DietlabError: ``error``; another one that comes from within passes.
    """
    try:
        yield
    except DietlabError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as wrong:
        told = f"no {wrong}" if isinstance(wrong, KeyError) else str(wrong)
        raise error(invariant, f"{path}: {told:.300}", remedy) from None


def _is_whole(line: str) -> bool:
    """Returns whether a line is an object or a list of JSON: no beginning of one is."""
    try:
        return isinstance(json.loads(line), dict | list)
    except ValueError:
        return False


def _foreign(data: bytes) -> str:
    return next((told for first, told in FOREIGN.items() if data.startswith(first)), "")


def _read(path: Path) -> tuple[str, str]:
    """Returns the text of a file as far as it goes, and what is wrong with its end."""
    data, cut = path.read_bytes(), ""
    if data.startswith(GZIP):
        data, cut = _unpacked(data)
    if told := _foreign(data):
        raise ValueError(told)
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    text = decoder.decode(data)
    if decoder.getstate()[0] and not cut:
        cut = "it ends within a character"
    return text, cut


def _unpacked(data: bytes) -> tuple[bytes, str]:
    parts = list[bytes]()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while part := file.read1(CHUNK_BYTES):
                parts.append(part)
        except EOFError:
            kept = b"".join(parts)
            whole = kept.count(b"\n")
            return kept, f"the compressed file is cut off, after {whole} lines"
        except zlib.error as error:
            raise ValueError(f"its compressed data are damaged: {error}") from None
    return b"".join(parts), ""


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
        raise StudyError("the folder can be made", f"{folder}: {error}", remedy_of(error)) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def turn(lock: Path, rule: str) -> Iterator[bool]:
    """Waits until no other thread or process holds a lock, and holds it; it goes with the process, however it
    ends.

    Args:
        lock: the file that is locked; its folder is made if it is missing.
        rule: the invariant in errors.

    Yields:
        whether another held it before.

    Raises:
        OSError: if the file cannot be made.
        StudyError: if another holds it for longer than :data:`PATIENCE_SECONDS`.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    held, waited = FileLock(lock), False
    try:
        try:
            held.acquire(timeout=0)
        except Timeout:
            waited = True
            held.acquire(timeout=PATIENCE_SECONDS)
    except Timeout:
        raise StudyError(
            rule, f"{lock}, which another process has held for {PATIENCE_SECONDS:.0f} s", "End the other."
        ) from None
    try:
        yield waited
    finally:
        held.release()


def waited_for(lock: Path) -> bool:
    """Returns whether another held a lock and has let it go now; False where there is none, or it cannot be
    told."""
    if not lock.exists():
        return False
    try:
        with turn(lock, "a lock is let go") as waited:
            return waited
    except (OSError, StudyError):
        return False


def make_folder(path: Path) -> None:
    """Makes the folder of a new study.

    Raises:
        StudyError: if something is in it, or it cannot be made.
    """
    # A kill between mkdir and the manifest's last step leaves the lock and the unfinished manifest alone.
    if path.exists() and (
        not path.is_dir() or any(p.suffix != UNFINISHED and p.name != LOCK for p in path.iterdir())
    ):
        raise StudyError("a new study gets an empty or new folder", path, "Choose another --out.")
    with writing("the study folder", path, StudyError):
        path.mkdir(parents=True, exist_ok=True)

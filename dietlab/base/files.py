"""Writes files whole or not at all, even if the process dies or the disk fills; reads the intact part of
damaged files; locks folders."""

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
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import get_ident
from typing import Any

from filelock import FileLock, Timeout

from dietlab.base.errors import DietlabError, DietlabWarning, RecordError, StudyError

UNFINISHED = ".new"
"""Suffix of a file that is being written; a killed process can leave one."""

LOCK = "lock"
"""Name of the file that keeps a second process out of a folder."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a write that finds no space left."""

FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Error numbers of a write that is not permitted."""

FREE = "Free some space and run the same command again: it goes on from here."

PATIENCE_SECONDS = 600.0
"""The longest wait for a lock, in seconds: a process that holds a lock for longer is taken to hang. The
longest build of a library takes some minutes."""


def remedy_of(error: OSError | str) -> str:
    """Returns the remedy for a failed write, given the system's error or the message of a program such as a
    linker."""
    if _says(error, FULL):
        return FREE
    if _says(error, FORBIDDEN):
        return "Make the folder writable for this user, or use another one: nothing can be written there."
    if _says(error, (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST)):
        return "Choose another path, in a folder that exists and can be written to."
    return "The system says why; run the same command again once that is mended."


@contextmanager
def writing(what: str, path: Path, error: type[DietlabError]) -> Iterator[None]:
    """Replaces a system error inside the block by an error with a remedy. The block writes ``what``, as in
    ``"the table"``.

    Raises:
        DietlabError: ``error``, if it cannot be written.
    """
    try:
        yield
    except OSError as reason:
        raise error(f"{what} must be writable", f"{path}: {reason}", remedy_of(reason)) from reason


def refusal_of(folder: Path) -> str:
    """Returns why no file can be written in a folder; empty if one can be."""
    try:
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def write_failure(text: str) -> bool:
    """Returns whether another program's message says that a file could not be written."""
    return _says(text, (*FULL, *FORBIDDEN))


def _says(error: OSError | str, numbers: tuple[int, ...]) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in numbers
    return any(os.strerror(number) in str(error) for number in numbers)


GZIP = b"\x1f\x8b"
"""First bytes of a gzip file."""

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
"""First bytes of the files that users often pass in place of text, and the text of the error for each."""

CHUNK_BYTES = 1 << 20
"""The number of bytes that are unpacked at a time. If a file is truncated, the chunks before its end are
kept."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to, and moves that file to ``path`` at the end.

    Readers see the old file or the new one. The temporary name contains the numbers of process and thread, so
    that several threads may write the same file: the last one wins.

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
    """Appends one line of JSON to a file by one ``write``, and forces the line to disk. ``what`` names the
    file's contents, as in ``"records"``. A killed process leaves at most one truncated last line, which
    :func:`cut_truncated` removes.

    Raises:
        RecordError: if the line cannot be written whole; the lines before it stay.
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
    """Removes a truncated last line, so that lines can be appended; a whole last line gets a missing newline.

    Returns:
        False if no whole line is left.

    Raises:
        RecordError: if the file is no plain text; it stays as it is.
    """
    data = path.read_bytes()
    if data.startswith(GZIP) or _foreign(data):
        kind = _foreign(data) or "compressed by gzip: unpack it"
        raise RecordError("lines can only be appended to a file of plain text", f"{path}: {kind}")
    whole = data.rfind(b"\n") + 1
    if _is_whole(data[whole:].decode(errors="replace")):
        with path.open("ab") as file:
            file.write(b"\n")
        return True
    if whole < len(data):
        os.truncate(path, whole)
    return whole > 0


def read_text(path: str | Path) -> str:
    """Returns the text of a file: UTF-8 with or without a byte-order mark, plain or gzip (whatever its name).

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is empty, cut off, damaged or of another kind; the message says which.
    """
    text, cut = _read(Path(path))
    if cut or not text:
        raise ValueError(cut or "it is empty")
    return text


def read_json(path: str | Path) -> Any:
    """Returns the value of a JSON file, plain or gzip.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: as :func:`read_text`, or if it is no JSON.
    """
    return parse_json(read_text(path))


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text; raises ValueError if it is no JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {reason_of(error)}") from None


def read_lines(path: str | Path) -> tuple[str, ...]:
    """Returns the lines of a file that has a JSON object or list in each line.

    If the file was cut off, by a kill or a full disk, its whole lines are returned with a
    :class:`~dietlab.base.errors.DietlabWarning`. The last line may lack its newline.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it is empty, cut off within its first line, damaged or of another kind.
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
    """Replaces errors of reading a file inside the block by an error that names the file. The file may be
    missing, damaged, cut off or of another kind, or it may lack a field or have a field of another type.

    Raises:
        DietlabError: ``error``; a DietlabError from inside keeps its class and its text, and gets the file's
            name and the remedy if it does not name the file.
    """
    try:
        yield
    except DietlabError as wrong:
        if str(path) in str(wrong):
            raise
        raise wrong.found_in(path, remedy) from None
    except READING_ERRORS as wrong:
        raise error(invariant, f"{path}: {reason_of(wrong):.300}", remedy) from None


READING_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The errors that Python raises for a file that is missing, damaged or of another kind."""


def reason_of(wrong: Exception) -> str:
    """Returns one of :data:`READING_ERRORS` in words. Python's own text about a wrong type names parts of the
    program and not of the file."""
    if isinstance(wrong, KeyError):
        return f"no {wrong}"
    if isinstance(wrong, TypeError | AttributeError | IndexError):
        return "a field of another type"
    return "nested too deeply" if isinstance(wrong, RecursionError) else str(wrong)


def _is_whole(line: str) -> bool:
    """Returns whether a line is a JSON object or list; a truncated one never is."""
    try:
        return isinstance(parse_json(line), dict | list)
    except ValueError:
        return False


def _foreign(data: bytes) -> str:
    return next((kind for first, kind in FOREIGN.items() if data.startswith(first)), "")


def _read(path: Path) -> tuple[str, str]:
    """Returns the readable text of a file, and the fault at its end (empty if there is none)."""
    data, cut = path.read_bytes(), ""
    if data.startswith(GZIP):
        data, cut = _unpacked(data)
    if kind := _foreign(data):
        raise ValueError(kind)
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
    """Makes a folder if it is missing, and locks it against other processes inside the block; errors name the
    ``rule``. The system frees the lock when the process ends, however it ends.

    Raises:
        StudyError: if another process holds the lock, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise StudyError(rule, folder, "Wait for the other, or use another folder (--out).") from None
    except OSError as error:
        raise StudyError("the folder must be creatable", f"{folder}: {error}", remedy_of(error)) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def turn(lock: Path, rule: str) -> Iterator[bool]:
    """Waits for a lock, which is a file, and holds it inside the block. The file's folder is made if it is
    missing. The system frees the lock when the process ends, however it ends.

    Yields:
        whether another thread or process held the lock before.

    Raises:
        OSError: if the file cannot be made.
        StudyError: if another thread or process holds the lock for longer than :data:`PATIENCE_SECONDS`.
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


def await_turn(lock: Path) -> None:
    """Waits until no thread or process holds a lock. Returns at once if the file cannot be locked."""
    if lock.exists():
        with suppress(OSError, StudyError), turn(lock, "a lock is freed"):
            pass


def make_folder(path: Path) -> None:
    """Makes the folder of a new study.

    Raises:
        StudyError: if it is not empty, or cannot be made.
    """
    # A process killed before it has written the manifest leaves the lock and the unfinished manifest.
    if path.exists() and (
        not path.is_dir() or any(p.suffix != UNFINISHED and p.name != LOCK for p in path.iterdir())
    ):
        raise StudyError("a new study needs an empty or new folder", path, "Choose another --out.")
    with writing("the study folder", path, StudyError):
        path.mkdir(parents=True, exist_ok=True)

"""The store of compiled programs: no library or cubin is compiled twice, in whatever study or process.

An entry is a file: a line of JSON, then bytes. Damaged entries are ignored. Several processes may read and
write at once. The store is bounded (:data:`MOST_BYTES`): the least recently used entries are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dietlab.base.errors import BuildError, DietlabError
from dietlab.base.files import READING_ERRORS, parse_json, refusal_of, remedy_of, write_whole

FOLDER = Path("~/.cache/dietlab/compiled")
"""Folder of the store that all studies of a user share."""

MOST_BYTES = 1 << 30
"""The largest size of all entries together, in bytes: some 30,000 libraries of one scheme, or 50 tunings."""

LEFT = 3 / 4
"""The share of :data:`MOST_BYTES` that remains after old entries are removed; below 1, so that removals are
rare."""

LOOK_EVERY = 512
"""The number of entries that a process writes between checks of the size: a check reads the folder, which
takes some 50 ms for 30,000 entries."""

SUFFIX = ".kept"
"""Suffix of an entry's file."""

SOURCES = ("base", "lower", "machine", "problem", "scheme")
"""Packages whose code a compiled program depends on, besides its target's."""


@dataclass(frozen=True)
class Store:
    """Entries by key in a folder, which is made with the first entry (``~`` is the home folder)."""

    folder: Path = FOLDER

    def load(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Returns the JSON object and the bytes of a key; None if it has no entry, or a damaged one."""
        entry = self._entry(key)
        if entry is None:
            return None
        try:
            line, _, data = entry.read_bytes().partition(b"\n")
            head = parse_json(line)
            if head.pop("sha256") != _digest(head, data):
                return None
            os.utime(entry)  # the oldest entry is the least recently used one
        except READING_ERRORS:
            return None
        return head, data

    def keep(self, key: str, head: Mapping[str, Any], data: bytes) -> None:
        """Stores bytes and a JSON object under a key. If that fails (a full disk, a folder of another user),
        nothing is raised: the program is compiled again."""
        if entry := self._entry(key):
            line = json.dumps({"sha256": _digest(head, data), **head}).encode()
            with suppress(OSError, DietlabError):
                entry.parent.mkdir(parents=True, exist_ok=True)
                write_whole(entry, line + b"\n" + data)
                _bound(entry.parent)

    def write(
        self, path: Path, key: str | None, make: Callable[[], Mapping[str, Any] | None]
    ) -> Mapping[str, Any]:
        """Writes a library to ``path``, from the store or made now, and returns its JSON object.

        Args:
            key: the key of the library (None: it is neither loaded nor kept).
            make: writes the library to ``path``, and returns its JSON object (None: an empty one).

        Raises:
            BuildError: if the library cannot be written.
        """
        if key and (kept := self.load(key)):
            head, data = kept
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            except OSError as error:
                raise unwritten(path, error) from error
            return head
        head = dict(make() or {})
        if key:
            self.keep(key, head, path.read_bytes())
        return head

    def size(self) -> tuple[int, int]:
        """Returns the number of entries, and their size in bytes."""
        sizes = [size for _, size, _ in _entries(self.folder)]
        return len(sizes), sum(sizes)

    def refusal(self) -> str:
        """Returns why no entry can be kept; empty if one can be. Makes the folder."""
        try:
            folder = self.folder.expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            return refusal_of(folder)
        except (OSError, RuntimeError) as error:
            return str(error)

    def clear(self) -> None:
        """Removes all entries."""
        _remove(_entries(self.folder), 0)

    def _entry(self, key: str) -> Path | None:
        """Returns the file of a key; None if there is no home folder."""
        with suppress(RuntimeError):
            return self.folder.expanduser() / f"{hashlib.sha256(key.encode()).hexdigest()}{SUFFIX}"
        return None


STORE = Store()
"""The store that all stages use."""

_kept = 0


def _bound(folder: Path) -> None:
    """Removes the oldest entries if all together exceed :data:`MOST_BYTES`; checks this at a process's first
    entry and every :data:`LOOK_EVERY` entries."""
    global _kept
    _kept += 1
    if (_kept - 1) % LOOK_EVERY == 0:
        entries = _entries(folder)
        if sum(size for _, size, _ in entries) > MOST_BYTES:
            _remove(entries, int(LEFT * MOST_BYTES))


def _entries(folder: Path) -> list[tuple[float, int, str]]:
    """Returns time of last use, bytes and path of each entry, the oldest first."""
    found = []
    with suppress(OSError, RuntimeError), os.scandir(folder.expanduser()) as files:
        for file in files:
            if file.name.endswith(SUFFIX):
                with suppress(OSError):  # another process may have removed it
                    found.append((file.stat().st_mtime, file.stat().st_size, file.path))
    return sorted(found)


def _remove(entries: list[tuple[float, int, str]], most: int) -> None:
    """Removes the oldest entries until at most ``most`` bytes remain."""
    left = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if left <= most:
            return
        with suppress(OSError):
            os.unlink(path)
        left -= size


def _digest(head: Mapping[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + b"\0" + data).hexdigest()


def unwritten(path: Path, error: OSError | str) -> BuildError:
    """Returns the error of a library that cannot be written."""
    return BuildError("the library must be writable", f"{path}: {error}", remedy_of(error))


def versions() -> str:
    """Returns the versions of TVM's packages."""
    return " ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi"))


@lru_cache
def fingerprint(kind: str) -> str | None:
    """Returns a digest of the code and the package versions on which a target's programs depend; None for a
    target that is not dietlab's own, whose code is unknown."""
    package = Path(__file__).resolve().parent.parent
    folders = [package / name for name in SOURCES]
    if not (own := package / "targets" / kind).is_dir():
        return None
    files = sorted(path for folder in (*folders, own) for path in folder.rglob("*.py"))
    digest = hashlib.sha256(versions().encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()

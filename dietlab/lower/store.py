"""The store of what was compiled: a library or a cubin that some process compiled for some study is not
compiled again.

An entry is a file: one line of JSON, then bytes. A damaged one counts as none. Several processes may read and
write at once. The store is bounded (:data:`MOST_BYTES`): what was used longest ago goes first.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole

FOLDER = Path("~/.cache/dietlab/compiled")
"""The store of all studies of a user."""

MOST_BYTES = 1 << 30
"""Bytes of all entries, after which the oldest go: some 30,000 libraries of one scheme, or 50 tunings."""

LEFT = 3 / 4
"""The share of :data:`MOST_BYTES` that stays when entries go, so that this is not at once done again."""

LOOK_EVERY = 512
"""Entries that a process keeps between two looks at the size: a look reads the folder, some 50 ms at
30,000."""

SUFFIX = ".kept"

SOURCES = ("base", "lower", "machine", "problem", "scheme")
"""The rooms that a program is made in, beside its target's."""


@dataclass(frozen=True)
class Store:
    """Entries by key in a folder, which is made when something is kept (``~`` is the home folder)."""

    folder: Path = FOLDER

    def load(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Returns what is kept under a key; None if nothing is, or it is damaged."""
        entry = self._entry(key)
        if entry is None:
            return None
        try:
            line, _, data = entry.read_bytes().partition(b"\n")
            head = json.loads(line)
            if head.pop("sha256") != _digest(head, data):
                return None
            os.utime(entry)  # so that the oldest is what was used longest ago
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        return head, data

    def keep(self, key: str, head: Mapping[str, Any], data: bytes) -> None:
        """Keeps bytes and a JSON object under a key. A store that cannot be written (a full disk, another's
        folder) costs time only."""
        if entry := self._entry(key):
            line = json.dumps({"sha256": _digest(head, data), **head}).encode()
            with suppress(OSError, DietlabError):
                entry.parent.mkdir(parents=True, exist_ok=True)
                write_whole(entry, line + b"\n" + data)
                _bound(entry.parent)

    def size(self) -> tuple[int, int]:
        """Returns the number of entries and their bytes."""
        sizes = [size for _, size, _ in _entries(self.folder)]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Removes all entries."""
        _remove(_entries(self.folder), 0)

    def _entry(self, key: str) -> Path | None:
        """Returns the file of a key; None where there is no home folder to keep it in."""
        with suppress(RuntimeError):
            return self.folder.expanduser() / f"{hashlib.sha256(key.encode()).hexdigest()}{SUFFIX}"
        return None


STORE = Store()
"""The store that all stages use."""

_kept = 0


def _bound(folder: Path) -> None:
    """Removes the oldest entries if there are too many; looks at a process's first and every
    :data:`LOOK_EVERY`-th entry."""
    global _kept
    _kept += 1
    if (_kept - 1) % LOOK_EVERY == 0:
        entries = _entries(folder)
        if sum(size for _, size, _ in entries) > MOST_BYTES:
            _remove(entries, int(LEFT * MOST_BYTES))


def _entries(folder: Path) -> list[tuple[float, int, str]]:
    """Returns when each entry was used last, its bytes and its path, the oldest first."""
    found = []
    with suppress(OSError, RuntimeError), os.scandir(folder.expanduser()) as files:
        for file in files:
            if file.name.endswith(SUFFIX):
                with suppress(OSError):  # another process removes entries, too
                    found.append((file.stat().st_mtime, file.stat().st_size, file.path))
    return sorted(found)


def _remove(entries: list[tuple[float, int, str]], most: int) -> None:
    """Removes the oldest entries until the others are no larger than ``most`` bytes together."""
    left = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if left <= most:
            return
        with suppress(OSError):
            os.unlink(path)
        left -= size


def _digest(head: Mapping[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + b"\0" + data).hexdigest()


def versions() -> str:
    """Returns the versions of the packages that compile."""
    return " ".join(f"{name} {version(name)}" for name in ("apache-tvm", "apache-tvm-ffi"))


@lru_cache
def fingerprint(kind: str) -> str | None:
    """Returns a digest of all code that a program of one of dietlab's targets is made by, and of the versions
    that compile it; None for a target of others, whose code may change unseen."""
    package = Path(__file__).resolve().parent.parent
    folders = [package / name for name in SOURCES]
    if not (own := package / "targets" / kind).is_dir():
        return None
    files = sorted(path for folder in (*folders, own) for path in folder.rglob("*.py"))
    digest = hashlib.sha256(versions().encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()

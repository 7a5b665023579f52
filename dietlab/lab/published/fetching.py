"""Brings published records to this machine: over https, checked by SHA-256, or from a file that is there."""

from __future__ import annotations

from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from dietlab.base.errors import RecordError
from dietlab.base.files import write_whole
from dietlab.lab.published.autoheuristic import ARCHIVES, COMMIT, RAW, REPOSITORY, read_autoheuristic
from dietlab.lab.published.records import Published

SECONDS = 60
"""Seconds without an answer after which a download is given up."""

MOST_BYTES = 64 << 20
"""The most bytes of a download: the archives have 1.7 and 4.1 MB."""


def fetch_autoheuristic(gpu: str, source: str, folder: Path) -> Published:
    """Returns the records of one GPU, and writes them to a folder as ``GPU.jsonl.gz``.

    Args:
        source: an archive, a text file or a folder on this machine; the https address of an archive or, of a
            folder with them, one that ends with a slash; empty for the repository's.

    Raises:
        RecordError: if it cannot be downloaded, or read.
    """
    place = Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    if not source or "://" in source:
        name, digest = ARCHIVES[gpu]
        address = source or f"{RAW}/{COMMIT}/"
        place = folder / name
        write_whole(place, download(address + name if address.endswith("/") else address, digest))
    published = read_autoheuristic(place, gpu)
    published.save(folder / f"{gpu}.jsonl.gz")
    return published


def download(address: str, digest: str) -> bytes:
    """Returns what an address gives.

    Args:
        digest: its SHA-256, in hexadecimal.

    Raises:
        RecordError: if the address is not https, nothing comes, or something else.
    """
    by_hand = f"Download it by hand from {REPOSITORY} and read it with --from FILE."
    if not address.startswith("https://"):
        raise RecordError("records are downloaded over https", address, by_hand)
    try:
        with urlopen(address, timeout=SECONDS) as answer:
            content: bytes = answer.read(MOST_BYTES)
    except (OSError, HTTPException, ValueError) as error:
        raise RecordError(f"{address} can be reached", error, by_hand) from None
    found = sha256(content).hexdigest()
    if found != digest:
        raise RecordError(f"{address} has the SHA-256 {digest}", found, by_hand)
    return content

"""Reads the data behind PyTorch's AutoHeuristic: some thirty Triton tiles and cuBLAS on thousands of shapes.

The repository states no licence, so its rows are no part of dietlab: ``dietlab fetch-records autoheuristic``
brings them to the machine that it runs on, over https and checked by SHA-256. A file has a line of JSON on
the GPU, a header, and a row for each measurement: M, K, N, types, strides, choice and milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from http.client import HTTPException
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen
from zipfile import BadZipFile, ZipFile

import numpy as np

from dietlab.base.errors import RecordError, require_names
from dietlab.base.files import parse_json, write_whole
from dietlab.lab.published.records import Operator, Origin, Published, PublishedRecord
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.machine import Hardware
from dietlab.problem.dims import Shape
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

REPOSITORY = "https://github.com/AlnisM/autoheuristic-datasets"
COMMIT = "3ed2bc4775bb1440d0622df93387824e10130248"
"""The commit of the files in :data:`ARCHIVES`, of 2024-08-13."""
RAW = "https://raw.githubusercontent.com/AlnisM/autoheuristic-datasets"
"""The address of the repository's files, by commit."""

LICENCE = "none stated"

MOST_BYTES, MOST_DOWNLOADED = 1 << 30, 64 << 20
"""The most bytes of an archive's texts (the A100's texts have 0.2 GB), and of an archive (the two archives
have 1.7 and 4.1 MB)."""

SECONDS = 60
"""The seconds without an answer after which a download is given up."""

TRUNCATED = "It is truncated: download it again."

ARCHIVES: Mapping[str, tuple[str, str]] = {
    "h100": ("h100_mm.zip", "47736c7cb760008497c4e205db839716177210b6cacc876945784f5f53d87eb7"),
    "a100": ("a100_mm.zip", "08752487152cf5517b97386015210c2285119b4b3c7f74eae66753e5b7831cfe"),
}
"""The file of each GPU, and its SHA-256."""

COLLECTIONS = {"hf_train": "hugging face", "timm_train": "timm", "": "random"}
"""The shapes by the middle of a file's name: layers of language and of vision models while they are trained,
and extents at random."""

VENDOR = "extern_mm"
"""The name of the choice that is ``torch.mm``, which calls cuBLAS."""

COLUMNS = (
    "m", "k", "n", "mat1_dtype", "mat2_dtype", "mat1_stride_0", "mat1_stride_1", "mat2_stride_0",
    "mat2_stride_1", "using_tf32", "choice", "feedback",
)  # fmt: skip
"""The columns that are read; ``feedback`` has milliseconds."""

DTYPES = {"torch.float16": "float16", "torch.bfloat16": "bfloat16", "torch.float32": "float32"}

KEYS = ["dtype", "layout", "T", "N", "K", "choice"]


def fetch_autoheuristic(gpu: str, source: str, folder: Path) -> Published:
    """Returns the records of one GPU, and writes them to a folder as ``GPU.jsonl.gz``. ``source`` is an
    archive, a text file or a folder on this machine; or the https address of an archive or, with a slash at
    its end, of a folder of archives. If it is empty, the repository is the source."""
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
    """Returns the bytes at an address; their SHA-256 must be ``digest``."""
    by_hand = f"Download it by hand from {REPOSITORY} and read it with --from FILE."
    if not address.startswith("https://"):
        raise RecordError("records are downloaded over https", address, by_hand)
    try:
        with urlopen(address, timeout=SECONDS) as answer:
            content: bytes = answer.read(MOST_DOWNLOADED)
    except (OSError, HTTPException, ValueError) as error:
        raise RecordError(f"{address} must be reachable", error, by_hand) from None
    found = sha256(content).hexdigest()
    if found != digest:
        raise RecordError(f"{address} must have the SHA-256 {digest}", found, by_hand)
    return content


def read_autoheuristic(place: str | Path, gpu: str) -> Published:
    """Reads the records of one GPU from downloaded files; counts rows that are no result by reason."""
    require_names("GPUs of these records", ARCHIVES, [gpu], RecordError)
    aside, records = Counter[str](), list[PublishedRecord]()
    files = [(file, file.read_bytes()) for file in _files(Path(place), gpu)]
    for name, content in _texts(files):
        frame, reasons = _cleaned(_table(name, content, gpu))
        aside.update(reasons)
        collection = name.partition("_")[2].removesuffix("mm.txt").rstrip("_")
        records += _records(frame, COLLECTIONS.get(collection, collection))
    if not records:
        rule = f"a file of records of an {gpu.upper()} must have rows with times"
        raise RecordError(rule, str(place), "Download it again.")
    digests = tuple((file.name, sha256(content).hexdigest()) for file, content in files)
    known = {digest for _, digest in digests} <= {digest for _, digest in ARCHIVES.values()}
    origin = Origin(REPOSITORY, COMMIT if known else "", LICENCE, digests)
    return Published(gpu, origin, tuple(records), tuple((+aside).most_common()))


def _files(place: Path, gpu: str) -> list[Path]:
    files = [place]
    if place.is_dir():
        archive = next(iter(sorted(place.rglob(ARCHIVES[gpu][0]))), None)
        files = [archive] if archive else sorted(place.rglob(f"{gpu}_*mm.txt"))
    if not files or not files[0].is_file():
        wanted = f"a downloaded copy must have {ARCHIVES[gpu][0]} or {gpu}_*mm.txt"
        raise RecordError(wanted, str(place), f"Download it from {REPOSITORY}.")
    return files


def _texts(files: Iterable[tuple[Path, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yields names and contents of texts, also those inside of archives."""
    for file, content in files:
        if file.suffix != ".zip":
            yield file.name, content
            continue
        try:
            with ZipFile(BytesIO(content)) as archived:
                names = [name for name in archived.namelist() if name.endswith("mm.txt")]
                if sum(archived.getinfo(name).file_size for name in names) > MOST_BYTES:
                    raise RecordError(f"an archive of records must have at most {MOST_BYTES:,} bytes", file)
                yield from [(Path(name).name, archived.read(name)) for name in names]
        except (BadZipFile, EOFError) as error:
            rule = "an archive of records must be a whole zip file"
            raise RecordError(rule, f"{file}: {error}", TRUNCATED) from None


def _table(name: str, content: bytes, gpu: str) -> pd.DataFrame:
    """Returns the rows of a text as strings, if the text is of the GPU."""
    import pandas as pd

    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError("a file of records must be UTF-8 text", f"{name}: {error}") from None
    if not text.endswith("\n"):
        last = text.rpartition("\n")[2]
        raise RecordError("the last row of records must end its line", f"{name}: {last!r}", TRUNCATED)
    head, _, body = text.partition("\n")
    _require_gpu(name, head, gpu)
    try:
        frame = pd.read_csv(StringIO(body), dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        rule = "rows of a file of records must have the columns of its header"
        raise RecordError(rule, f"{name}: {error}") from None
    if missing := [column for column in COLUMNS if column not in frame]:
        rule = f"a file of records must have the columns {', '.join(COLUMNS)}"
        raise RecordError(rule, f"{name}: no {missing[0]}")
    return frame[list(COLUMNS)]


def _require_gpu(name: str, head: str, gpu: str) -> None:
    """Checks that the file's name and its first line are of the GPU."""
    try:
        about: Mapping[str, Any] = parse_json(head)
        found = ".".join(str(part) for part in about["device_capa"]), int(about["shared_memory"])
    except (ValueError, KeyError, TypeError):
        rule = "the first line of a file of records must be JSON with device_capa and shared_memory"
        raise RecordError(rule, name) from None
    limits = gpu_of(Hardware.preset(gpu))
    if found != (limits.compute_capability, limits.smem_per_block_bytes):
        rule = f"records of an {gpu.upper()} must be of compute capability {limits.compute_capability} and "
        rule += f"{limits.smem_per_block_bytes} bytes of shared memory"
        raise RecordError(rule, f"{name}: {found[0]}, {found[1]}", "Name the GPU that they are of.")
    if not name.startswith(f"{gpu}_"):
        raise RecordError(f"record files of an {gpu.upper()} must be named {gpu}_...", name, "Name its GPU.")


def _cleaned(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Returns two values: the rows that are results, typed, and the number of other rows by reason."""
    import pandas as pd

    numbers = frame[[*COLUMNS[:3], *COLUMNS[5:9]]].apply(pd.to_numeric, errors="coerce")
    ms = pd.to_numeric(frame["feedback"], errors="coerce")
    tiles = {choice: TritonTile.of_choice(choice) for choice in frame["choice"].unique()}
    known = frame["choice"].map({choice: tiles[choice] is not None or choice == VENDOR for choice in tiles})
    steps = numbers.filter(like="_stride_") == 1
    orders = [
        np.select([steps[f"{x}_stride_1"], steps[f"{x}_stride_0"]], ["n", "t"], "") for x in ("mat1", "mat2")
    ]  # as in Layout; nothing for other strides
    layouts = pd.Series(np.char.add(*orders), index=numbers.index)
    dtypes = frame["mat1_dtype"].map(DTYPES).where(frame["using_tf32"] != "True", "tf32")
    mixed = dtypes.isna() | (frame["mat1_dtype"] != frame["mat2_dtype"])
    whole = numbers[["m", "k", "n"]].ge(1).all(axis=1) & numbers.mod(1).eq(0).all(axis=1)
    reasons = {
        "no time": ms.isna(),
        "an infinite time: it did not run": np.isinf(ms),
        "a time that is not positive": ms <= 0,
        "an unknown choice": ~known.astype(bool),
        "extents that are no whole positive numbers": ~whole,
        "operands of an unknown type, or of two": mixed,
        "an operand stored neither by rows nor by columns": layouts.str.len() != 2,
    }
    left, aside = pd.Series(True, index=frame.index), {}
    for reason, wrong in reasons.items():
        aside[reason] = int((left & wrong).sum())
        left &= ~wrong
    typed = numbers.rename(columns={"m": "T", "n": "N", "k": "K"})[["T", "N", "K"]]
    choices = frame["choice"]
    result = typed.assign(dtype=dtypes, layout=layouts, choice=choices, seconds=1e-3 * ms)[left]
    return result.astype(dict.fromkeys("TNK", int)), aside


def _records(frame: pd.DataFrame, collection: str) -> Iterator[PublishedRecord]:
    """Yields one record for each pair of program and shape. An equal time counts as a copy, not as a second
    measurement."""
    distinct = frame.drop_duplicates()
    found = distinct.groupby(KEYS, sort=True)["seconds"].agg(["median", "min", "max", "size"])
    for (dtype, layout, T, N, K, choice), median, least, most, count in found.itertuples(name=None):
        tile = None if choice == VENDOR else TritonTile.of_choice(choice)
        what = Operator(dtype, layout), Shape.of(T=int(T), N=int(N), K=int(K)), collection, tile
        yield PublishedRecord(*what, float(median), int(count), float(most / least - 1))

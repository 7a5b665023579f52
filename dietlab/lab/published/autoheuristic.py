"""Reads the data behind PyTorch's AutoHeuristic: some thirty Triton tiles and cuBLAS on thousands of shapes.

The repository states no licence, so its rows are no part of dietlab: ``dietlab fetch-records autoheuristic``
brings them to the machine that it runs on. A file has a line of JSON that tells of the GPU, a header, and a
row a measurement: M, K, N, types, strides, choice and milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from dietlab.base.errors import RecordError, require_names
from dietlab.lab.published.records import Operator, Origin, Published, PublishedRecord, counted_reasons
from dietlab.lab.published.triton_tile import TritonTile
from dietlab.machine import Hardware
from dietlab.problem.dims import Shape
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

REPOSITORY = "https://github.com/AlnisM/autoheuristic-datasets"
COMMIT = "3ed2bc4775bb1440d0622df93387824e10130248"
"""The commit whose files :data:`ARCHIVES` are, of 2024-08-13."""
RAW = "https://raw.githubusercontent.com/AlnisM/autoheuristic-datasets"
"""The address of its files, by commit."""

LICENCE = "none stated"

MOST_BYTES = 1 << 30
"""The most bytes of an archive's texts: those of the A100 have 0.2 GB."""

ARCHIVES: Mapping[str, tuple[str, str]] = {
    "h100": ("h100_mm.zip", "47736c7cb760008497c4e205db839716177210b6cacc876945784f5f53d87eb7"),
    "a100": ("a100_mm.zip", "08752487152cf5517b97386015210c2285119b4b3c7f74eae66753e5b7831cfe"),
}
"""The file of each GPU, and its SHA-256."""

COLLECTIONS = {"hf_train": "hugging face", "timm_train": "timm", "": "random"}
"""The shapes by the middle of a file's name: layers of language and of vision models while they are trained,
and extents at random."""

VENDOR = "extern_mm"
"""The choice that is ``torch.mm``, which calls cuBLAS."""

COLUMNS = (
    "m", "k", "n", "mat1_dtype", "mat2_dtype", "mat1_stride_0", "mat1_stride_1", "mat2_stride_0",
    "mat2_stride_1", "using_tf32", "choice", "feedback",
)  # fmt: skip
"""The columns that are read; ``feedback`` is milliseconds."""

MILLI = 1e-3
"""Seconds in a millisecond."""

DTYPES = {"torch.float16": "float16", "torch.bfloat16": "bfloat16", "torch.float32": "float32"}

KEYS = ["dtype", "layout", "T", "N", "K", "choice"]


def read_autoheuristic(place: str | Path, gpu: str) -> Published:
    """Reads the records of one GPU from a folder, an archive or a text file that was downloaded.

    Rows without a positive, finite time, with an unknown tile or operands that are no plain matrices are set
    aside with their reason.

    Raises:
        RecordError: if there is no such file, it is of another GPU, truncated or of another form, or no row
            is left.
    """
    require_names("GPUs of these records", ARCHIVES, [gpu], RecordError)
    found, counts, records = list[tuple[str, str]](), [], list[PublishedRecord]()
    for name, content in _texts(Path(place), gpu, found):
        text = _decoded(name, content)
        _require_gpu(name, text, gpu)
        frame, aside = _cleaned(_table(name, text))
        counts.append(aside)
        records += _records(frame, _collection(name))
    if not records:
        raise RecordError(
            f"a file of records of an {gpu.upper()} has rows with times", str(place), "Download it again."
        )
    known = {digest for _, digest in found} <= {digest for _, digest in ARCHIVES.values()}
    origin = Origin(REPOSITORY, COMMIT if known else "", LICENCE, tuple(found))
    return Published(gpu, origin, tuple(records), counted_reasons(counts))


def _texts(place: Path, gpu: str, found: list[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
    """Yields names and contents of the GPU's text files, and notes in ``found`` which files were read."""
    files = [place]
    if place.is_dir():
        archive = next(iter(sorted(place.rglob(ARCHIVES[gpu][0]))), None)
        files = [archive] if archive else sorted(place.rglob(f"{gpu}_*mm.txt"))
    if not files or not files[0].is_file():
        raise RecordError(
            f"a downloaded copy has {ARCHIVES[gpu][0]} or {gpu}_*mm.txt",
            str(place),
            f"Download it from {REPOSITORY}.",
        )
    for file in files:
        content = file.read_bytes()
        found.append((file.name, sha256(content).hexdigest()))
        if file.suffix != ".zip":
            yield file.name, content
            continue
        try:
            with ZipFile(BytesIO(content)) as archived:
                names = [name for name in archived.namelist() if name.endswith("mm.txt")]
                if sum(archived.getinfo(name).file_size for name in names) > MOST_BYTES:
                    raise RecordError(f"an archive of records has up to {MOST_BYTES:,} bytes", file)
                yield from [(Path(name).name, archived.read(name)) for name in names]
        except (BadZipFile, EOFError) as error:
            remedy = "It is truncated: download it again."
            raise RecordError(
                "an archive of records is a whole zip file", f"{file}: {error}", remedy
            ) from None


def _decoded(name: str, content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError("a file of records is UTF-8 text", f"{name}: {error}") from None
    if not text.endswith("\n"):
        last = text.rpartition("\n")[2]
        remedy = "It is truncated: download it again."
        raise RecordError("the last row of a file of records ends its line", f"{name}: {last!r}", remedy)
    return text


def _require_gpu(name: str, text: str, gpu: str) -> None:
    """Checks that the file's name and its first line are of the GPU."""
    try:
        told: Mapping[str, Any] = json.loads(text.partition("\n")[0])
        capability = ".".join(str(part) for part in told["device_capa"])
        shared = int(told["shared_memory"])
    except (ValueError, KeyError, TypeError):
        raise RecordError(
            "the first line of a file of records is JSON with device_capa and shared_memory", name
        ) from None
    limits = gpu_of(Hardware.preset(gpu))
    if (capability, shared) != (limits.compute_capability, limits.smem_per_block_bytes):
        raise RecordError(
            f"the records of an {gpu.upper()} are of compute capability {limits.compute_capability} and "
            f"{limits.smem_per_block_bytes} bytes of shared memory",
            f"{name}: {capability}, {shared}",
            "Name the GPU that they are of.",
        )
    if not name.startswith(f"{gpu}_"):
        raise RecordError(f"files of records of an {gpu.upper()} are named {gpu}_...", name, "Name its GPU.")


def _collection(name: str) -> str:
    middle = name.partition("_")[2].removesuffix("mm.txt").rstrip("_")
    return COLLECTIONS.get(middle, middle)


def _table(name: str, text: str) -> pd.DataFrame:
    import pandas as pd

    body = text.partition("\n")[2]
    try:
        frame = pd.read_csv(StringIO(body), dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise RecordError(
            "rows of a file of records have the columns of its header", f"{name}: {error}"
        ) from None
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise RecordError(
            f"a file of records has the columns {', '.join(COLUMNS)}", f"{name}: no {missing[0]}"
        )
    return frame[list(COLUMNS)]


def _cleaned(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Returns the rows that are results, typed, and how many others there are of each reason."""
    import pandas as pd

    numbers = frame[[*COLUMNS[:3], *COLUMNS[5:9]]].apply(pd.to_numeric, errors="coerce")
    ms = pd.to_numeric(frame["feedback"], errors="coerce")
    tiles = {choice: TritonTile.of_choice(choice) for choice in frame["choice"].unique()}
    known = frame["choice"].map({choice: tiles[choice] is not None or choice == VENDOR for choice in tiles})
    layouts = _order(numbers, "mat1") + _order(numbers, "mat2")
    dtypes = frame["mat1_dtype"].map(DTYPES).where(frame["using_tf32"] != "True", "tf32")
    whole = numbers[["m", "k", "n"]].ge(1).all(axis=1) & numbers.mod(1).eq(0).all(axis=1)
    reasons = {
        "no time": ms.isna(),
        "an infinite time: it did not run": np.isinf(ms),
        "a time that is not positive": ms <= 0,
        "an unknown choice": ~known.astype(bool),
        "extents that are no whole positive numbers": ~whole,
        "operands of an unknown type, or of two": dtypes.isna()
        | (frame["mat1_dtype"] != frame["mat2_dtype"]),
        "an operand stored neither by rows nor by columns": layouts.str.len() != 2,
    }
    left, aside = pd.Series(True, index=frame.index), {}
    for reason, wrong in reasons.items():
        aside[reason] = int((left & wrong).sum())
        left &= ~wrong
    typed = numbers.rename(columns={"m": "T", "n": "N", "k": "K"})[["T", "N", "K"]]
    choices = frame["choice"]
    result = typed.assign(dtype=dtypes, layout=layouts, choice=choices, seconds=MILLI * ms)[left]
    return result.astype(dict.fromkeys("TNK", int)), aside


def _order(numbers: pd.DataFrame, operand: str) -> pd.Series:
    """Returns a letter of :data:`~dietlab.lab.published.records.Layout`; nothing for other strides."""
    import pandas as pd

    outer, inner = numbers[f"{operand}_stride_0"], numbers[f"{operand}_stride_1"]
    return pd.Series(np.select([inner == 1, outer == 1], ["n", "t"], ""), index=numbers.index)


def _records(frame: pd.DataFrame, collection: str) -> Iterator[PublishedRecord]:
    """Yields one record of each program and shape. A time that stands there twice to the last digit was
    written down again, not measured again."""
    distinct = frame.drop_duplicates()
    found = distinct.groupby(KEYS, sort=True)["seconds"].agg(["median", "min", "max", "size"])
    for (dtype, layout, T, N, K, choice), median, least, most, count in found.itertuples(name=None):
        tile = None if choice == VENDOR else TritonTile.of_choice(choice)
        shape = Shape.of(T=int(T), N=int(N), K=int(K))
        yield PublishedRecord(
            Operator(dtype, layout),
            shape,
            collection,
            tile,
            float(median),
            int(count),
            float(most / least - 1),
        )

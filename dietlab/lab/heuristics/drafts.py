"""Drafts judged without a GPU: the ranks that each gives to the tiles of NVIDIA's heuristics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.cost import Adaptation, Analytic
from dietlab.lab.heuristics.agreement import compare_with_heuristics
from dietlab.lab.heuristics.nvidia import COUNT, Heuristics, Reference
from dietlab.problem import Shape
from dietlab.scheme import Space
from dietlab.targets.cuda.limits import gpu_of

if TYPE_CHECKING:
    import pandas as pd

DRAFTS: Mapping[str, Adaptation] = {"waves": "paper", "bound": "streamed"}
"""The drafts by name: the paper's padding and waves of blocks at the peak, and the bound from throughputs."""

ROUNDED = 5
"""Digits of a share: a space of 12,500 schemes has ranks that far apart."""


def frame_drafts(
    space: Space, shapes: Iterable[Shape], reference: Reference | None = None, count: int = COUNT
) -> pd.DataFrame:
    """Returns one row for each draft and shape.

    ``share`` is the rank of the heuristics' first choice over the schemes of the space, and ``best_share``
    that of the best rank among its first ``count``; missing where the space lacks the tiles.

    Raises:
        MissingDependencyError: if the heuristics are not installed.
        HardwareError: if the space is a CPU's, or of a GPU that they do not know.
    """
    import pandas as pd

    _ = gpu_of(space.hardware)
    reference = Heuristics(space.hardware) if reference is None else reference
    chosen, rows = tuple(shapes), []
    for draft, kind in DRAFTS.items():
        for one in compare_with_heuristics(space, chosen, Analytic.of(space, kind=kind), reference, count):
            row = one.row()
            kept = {name: row[name] for name in ("nvidia", "scheme", "rank", "best_rank", "ranked", "choice")}
            shares = {
                name: round(rank / one.ranked, ROUNDED) if rank else None
                for name, rank in (("share", row["rank"]), ("best_share", one.best_rank))
            }
            rows.append({"draft": draft, **one.shape.to_json(), **kept, **shares})
    table = pd.DataFrame(rows).astype({"rank": "Int64", "best_rank": "Int64"})
    table.insert(0, "hardware", space.hardware.name)
    table.insert(1, "workload", str(space.workload))
    return table


def medians(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Returns the median of ``share`` and of ``best_share`` for each draft, over the shapes whose tiles the
    space has."""
    columns = ["share", "best_share"]
    found = table.groupby("draft", sort=False)[columns].median()
    return {str(draft): dict(zip(columns, row, strict=True)) for draft, *row in found.itertuples()}


def add_rows(path: Path, table: pd.DataFrame) -> None:
    """Adds the rows to a CSV file, which is made if it is missing.

    Raises:
        DietlabError: if the file has other columns.
    """
    text = table.to_csv(index=False, lineterminator="\n")
    head, _, rows = text.partition("\n")
    known = path.read_text(encoding="utf-8") if path.exists() else f"{head}\n"
    if known.partition("\n")[0] != head:
        raise DietlabError("rows are added to a table with their columns", path, "Name another file.")
    write_whole(path, known + rows)

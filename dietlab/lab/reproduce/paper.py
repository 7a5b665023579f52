"""The paper's side: what it claims and what it reported, as ``data/paper`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.shipped import data_path
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, untimed
from dietlab.machine import Hardware
from dietlab.problem import Dense
from dietlab.problem.dims import Dim, Shape

if TYPE_CHECKING:
    import pandas as pd

DENSE = "dense-k768-n2304"
"""The dense layer of the paper's figure 10, with as many columns and as deep."""

PAPER = "DietCode"
"""The name of the paper's programs: whose speedups it reports."""

DENSE_REPORTED, SENTENCES = "dense_16Tx768_2304", 16
"""The name of the same layer in the reported table, and its sentences in a batch."""

EDGES: Mapping[str, int] = {"dense-960x770x2304": 960, "bmm-nt-192x120x64x120": 120}
"""The operators on which the paper's authors compare treatments of the edge, and the rows that no tile of
theirs divides."""

TREATMENTS: Mapping[str, str] = {
    "predicated": "bound checks",
    "loop_partitioning": "loop partitioning",
    "local_padding": "local padding",
    "both": "both",
}
"""Treatments of the edge by their names in the reported table, as ``dietlab ablate`` calls them. On a CPU
full tiles need no copy, so that local padding is both at once here."""


@dataclass(frozen=True)
class Claim:
    """A line of ``data/paper/claims.csv``: what the paper says of an ``experiment``, in times (x)."""

    id: str
    experiment: str
    claim: str
    source: str
    reported: float


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """Returns the claims of a table (default: that in ``data/paper``), in its order."""
    import pandas as pd

    table = pd.read_csv(path or data_path("paper/claims.csv"), keep_default_na=False)
    names = [field.name for field in fields(Claim)]
    return tuple(Claim(*row) for row in table[names].astype({"reported": float}).itertuples(index=False))


def reported_speedups(workload: str) -> pd.DataFrame:
    """Returns what the paper's latencies say: the speedup (x) of DietCode over each system, by length ``T``.

    Args:
        workload: as in ``data/paper/dietcode_latency.csv``.
    """
    import pandas as pd

    table = pd.read_csv(data_path("paper/dietcode_latency.csv"))
    table = table[(table["workload"] == workload) & (table["T"] != "average")].astype({"T": int})
    times = table.pivot(index="T", columns="system", values="latency_relative_to_ansor")
    return times.div(times["dietcode"], axis=0).drop(columns="dietcode")


def reported_report() -> Report:
    """Returns the paper's dense layer on a T4 as a report of ratios without times, for
    :func:`dietlab.speedup_explorer`; a sentence of T tokens makes 16 T rows."""
    chip = replace(Hardware.preset("t4"), name="T4 (reported by the paper)").to_json()
    kinds = {"vendor": "plain", "ansor": "scheduler", "largest-shape": "scheduler"}
    table = reported_speedups(DENSE_REPORTED).rename(columns={"nimble": "largest-shape"})
    rows = []
    for tokens, speedups in table.to_dict("index").items():
        shape = Shape.of(T=SENTENCES * int(tokens))
        rows += [untimed(shape, PAPER), *(untimed(shape, name, speedups[name]) for name in kinds)]
    workload = Dense(T=Dim(rows[0].shape["T"], rows[-1].shape["T"]), N=2304, K=768)
    contenders = tuple(ContenderInfo(name, kind) for name, kind in kinds.items())
    return Report(workload.to_json(), chip, rows=tuple(rows), contenders=contenders, name=DENSE, maker=PAPER)


def reported_throughput(operator: str) -> pd.DataFrame:
    """Returns the reported throughput with each treatment of the edge over that with bound checks (x): a row
    for each of :data:`TREATMENTS`, a column for each GPU.

    Args:
        operator: one of :data:`EDGES`.
    """
    import pandas as pd

    table = pd.read_csv(data_path("paper/dietcode_local_padding.csv"))
    names = table["workload"].str.replace(r"[ _]", "-", regex=True)
    found = table[names == operator].pivot(index="variant", columns="gpu", values="tflops")
    found = found / found.loc["predicated"]
    return found.reindex([name for name in TREATMENTS if name in found.index]).rename(index=TREATMENTS)

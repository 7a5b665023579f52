"""Derived tables of published records, which ``data/published`` has and the explorer of speedups opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import RecordError
from dietlab.base.shipped import data_path
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, untimed
from dietlab.lab.published.choosing import Times, dense_of, judge_choice, judge_models
from dietlab.lab.published.records import Operator, Published
from dietlab.machine import Hardware
from dietlab.problem.dims import Shape

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, "pd.DataFrame"]

LAYERS = ("hugging face", "timm")
"""The collections whose layers have several lengths; the third has extents drawn at random."""

CHOICES = ("best", "portfolio", "tree", "one")
"""The columns of speedups: see :func:`~dietlab.lab.published.choosing.judge_choice`."""

MAKER = "Triton (tree)"
"""The name that reports give the programs whose speedups they have: Triton's programs, chosen by a tree."""

GPUS = {"h100": "H100", "a100": "A100"}
"""The GPUs with tables in ``data/published``, and their short names."""

RIVALS = {
    "torch.matmul": "torch",
    "cuBLAS-max": "cuBLAS",
    "cuBLASLt-heuristic-max": "cuBLASLt heuristic",
    "cuBLASLt-auto-tuning-max": "cuBLASLt autotuned",
}
"""The columns that are read, and their names here. A value is the rival's time over the time of CUDA-L2's
program for the shape. Columns with ``max`` take the faster layout of the weights."""


def derive_tables(
    published: Published, seeds: Sequence[int], tell: Callable[[str], object] = lambda text: None
) -> Tables:
    """Returns four tables of one GPU's 16-bit layers: ``speedups`` by shape (with the first seed only), and
    with every seed ``regret``, ``sizes`` of portfolios, and ``models``.
    """
    import pandas as pd

    found: dict[str, list[pd.DataFrame]] = {}
    for operator in _layers(published):
        times = Times.of(published, operator, LAYERS)
        for seed in seeds:
            place = {"dtype": operator.dtype, "layout": operator.layout, "seed": seed}
            speedups, sizes = judge_choice(times, seed)
            regret, models = pd.DataFrame([summary(speedups)]), judge_models(times, seed)
            parts = {"speedups": speedups, "regret": regret, "sizes": sizes, "models": models}
            for name, part in parts.items():
                if name != "speedups" or seed == seeds[0]:
                    found.setdefault(name, []).append(part.assign(**place)[[*place, *part.columns]])
            tell(f"{published.gpu} {operator}, seed {seed}: regret {summary(speedups)['regret']:.2f} %")
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def _layers(published: Published) -> list[Operator]:
    shown = {record.operator for record in published.records if record.collection in LAYERS}
    found = sorted(o for o in shown if o.dtype == "float16" and o.layout != "tt")
    if not found:
        raise RecordError(f"records must have float16 layers of {' or '.join(LAYERS)}", published.gpu)
    return found


def summary(speedups: pd.DataFrame) -> dict[str, float]:
    """Returns a row of ``GPU-regret.csv``, as the README of ``data/published`` describes it."""
    lost = {name: 100 * (speedups["best"] / speedups[name] - 1) for name in CHOICES}
    tree = lost["tree"]
    means = {f"{name} over cuBLAS": float(np.exp(np.log(speedups[name]).mean())) for name in CHOICES}
    return {
        "shapes": len(speedups),
        "regret": tree.mean(),
        "median": tree.median(),
        "ninth": tree.quantile(0.9),
        "worst": tree.max(),
        "whole": tree[~speedups["cut"]].mean(),
        **{name: lost[name].mean() for name in ("portfolio", "one")},
        **means,
    }


def write_tables(folder: Path, prefix: str, tables: Tables) -> None:
    """Writes each table as ``PREFIX-NAME.csv``, to four places."""
    for name, table in tables.items():
        table.to_csv(folder / f"{prefix}-{name}.csv", index=False, float_format="%.4f")


def read_table(name: str) -> pd.DataFrame:
    """Returns a table of ``data/published`` by its name, such as ``h100-regret`` or ``cuda_l2``."""
    import pandas as pd

    return pd.read_csv(data_path(f"published/{name}.csv"))


def recorded_reports(gpu: str = "h100") -> tuple[Report, ...]:
    """Returns reports of the choices that a tree over published records makes on held-out shapes, one report
    for each layout of the operands, for :func:`dietlab.speedup_explorer`. They have speedups but no times,
    which dietlab may not publish. ``oracle`` is the best tile; ``one tile`` is the tile that would serve all
    shapes alone."""
    chip = replace(Hardware.preset(gpu), name=f"{GPUS[gpu]} (recorded by others, Triton tiles)").to_json()
    table = read_table(f"{gpu}-speedups")
    return tuple(
        _report(f"dense-{layout}-{dtype}", dtype, chip, part)
        for (dtype, layout), part in table.groupby(["dtype", "layout"])
    )


def _report(name: str, dtype: str, chip: Mapping[str, Any], part: pd.DataFrame) -> Report:
    shapes = [Shape.of(**one) for one in part[["T", "N", "K"]].to_dict("records")]
    rows = []
    for shape, one in zip(shapes, part.to_dict("records"), strict=True):
        ours = untimed(shape, MAKER, held_out=True)
        rows.append(replace(ours, plan=one["tile"], regret=100 * (one["best"] / one["tree"] - 1)))
        others = {"cublas": 1.0, "oracle": one["best"], "one tile": one["one"]}
        rows += [untimed(shape, w, one["tree"] / x, held_out=True) for w, x in others.items()]
    vendor = ContenderInfo("cublas", "plain", detail="torch.mm")
    contenders = vendor, ContenderInfo("oracle", "oracle"), ContenderInfo("one tile", "scheduler")
    notes = ("Triton's tiles on an NVIDIA GPU, timed by others; dietlab chose among them.",)
    about = partial(Report, contenders=contenders, notes=notes, name=name, maker=MAKER)
    return about(dense_of(shapes, dtype).to_json(), chip, rows=tuple(rows))


def reduce_cuda_l2(folder: Path) -> pd.DataFrame:
    """Returns the curves of ``cuda_l2.csv``, geometric means by M, from the tables in CUDA-L2's folder
    ``eval_results``."""
    import pandas as pd

    files = sorted(folder.glob("cuda_l2_*_speedup_*.csv"))
    if not files:
        raise RecordError("tables must be named cuda_l2_*_speedup_*.csv", folder, "Name its eval_results.")
    found = []
    for file in files:
        gpu, types, _, mode = file.stem.removeprefix("cuda_l2_").split("_")
        table = pd.read_csv(file)
        missing = {"mnk", *RIVALS} - set(table)
        if missing:
            raise RecordError(f"a table of CUDA-L2 must have the columns mnk, {', '.join(RIVALS)}", file)
        ratios = table[list(RIVALS)].rename(columns=RIVALS)
        if not (np.isfinite(ratios) & (ratios > 0)).all(axis=None):
            raise RecordError("ratios must be positive and finite", file)
        M = table["mnk"].str.partition("_")[0].astype(int).rename("M")
        means = np.exp(np.log(ratios).groupby(M).mean()).assign(shapes=M.value_counts())
        sums = {"F16": "float16", "F32": "float32"}[types[:3]]
        found.append(means.reset_index().assign(gpu=gpu, sums=sums, mode=mode))
    whole = pd.concat(found)[["gpu", "sums", "mode", "M", "shapes", *RIVALS.values()]]
    return whole.sort_values(["gpu", "sums", "mode", "M"], ignore_index=True)

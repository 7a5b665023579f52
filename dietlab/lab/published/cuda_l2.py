"""Reduces CUDA-L2's tables to curves by M: how far cuBLAS and its heuristics stay behind what is chosen for
each shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dietlab.base.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd

RIVALS = {
    "torch.matmul": "torch",
    "cuBLAS-max": "cuBLAS",
    "cuBLASLt-heuristic-max": "cuBLASLt heuristic",
    "cuBLASLt-auto-tuning-max": "cuBLASLt autotuned",
}
"""The columns that are read, and what they are called here. Those of ``max`` are over the faster layout of
the weights; a value is the rival's time over that of CUDA-L2's program for the shape."""


def reduce_cuda_l2(folder: Path) -> pd.DataFrame:
    """Returns, by ``gpu``, ``sums`` (type of the sums), ``mode`` (calls one after the other, or with pauses
    as in a server) and M, the geometric means of the ratios over all N and K.

    Args:
        folder: ``eval_results`` of the repository.

    Raises:
        RecordError: if there are no tables, one has other columns, or a ratio is not positive and finite.
    """
    import pandas as pd

    files = sorted(folder.glob("cuda_l2_*_speedup_*.csv"))
    if not files:
        raise RecordError("CUDA-L2's tables are cuda_l2_*_speedup_*.csv", folder, "Name its eval_results.")
    found = []
    for file in files:
        gpu, types, _, mode = file.stem.removeprefix("cuda_l2_").split("_")
        table = pd.read_csv(file)
        missing = {"mnk", *RIVALS} - set(table)
        if missing:
            raise RecordError(f"a table of CUDA-L2 has the columns mnk, {', '.join(RIVALS)}", file)
        ratios = table[list(RIVALS)].rename(columns=RIVALS)
        if not (np.isfinite(ratios) & (ratios > 0)).all(axis=None):
            raise RecordError("ratios are positive and finite", file)
        M = table["mnk"].str.partition("_")[0].astype(int).rename("M")
        means = np.exp(np.log(ratios).groupby(M).mean()).assign(shapes=M.value_counts())
        sums = {"F16": "float16", "F32": "float32"}[types[:3]]
        found.append(means.reset_index().assign(gpu=gpu, sums=sums, mode=mode))
    whole = pd.concat(found)[["gpu", "sums", "mode", "M", "shapes", *RIVALS.values()]]
    return whole.sort_values(["gpu", "sums", "mode", "M"], ignore_index=True)

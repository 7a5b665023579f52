"""Micro-kernels in tables: the parameters of a key as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dietlab.space.cpu_kernel import CpuMicroKernel
from dietlab.space.cuda_kernel import CudaMicroKernel
from dietlab.space.micro_kernel import MicroKernel

if TYPE_CHECKING:
    import pandas as pd

KINDS: Mapping[str, type[CpuMicroKernel] | type[CudaMicroKernel]] = {
    "cpu": CpuMicroKernel,
    "cuda": CudaMicroKernel,
}
"""The class of micro-kernels by the kind of processor."""

REMEMBERED = 4096
"""Keys whose parameters are kept: far more than a study measures, so that a figure drawn anew parses none."""


def with_parameters(
    frame: pd.DataFrame, kinds: Iterable[str] | None = None, column: str = "plan"
) -> pd.DataFrame:
    """Returns a table with micro-kernels in place of a ``column`` of keys: ``micro_kernel`` is the key, and
    each parameter has a column. They are missing where a text is no key.

    Args:
        kinds: of processors (``"cpu"``, ``"cuda"``), whose parameters become columns whatever the rows are
            (default: those of the rows).
    """
    import pandas as pd

    told = [_columns(key) for key in frame[column]]
    known = told if kinds is None else [dict.fromkeys(f.name for f in fields(KINDS[kind])) for kind in kinds]
    names = dict.fromkeys(name for columns in ({"micro_kernel": ""}, *known) for name in columns)
    found = pd.DataFrame(told, frame.index, list(names))
    numbers = found.convert_dtypes(convert_string=False, convert_floating=False)
    place = frame.columns.get_loc(column)
    return pd.concat([frame.iloc[:, :place], numbers, frame.iloc[:, place + 1 :]], axis=1)


@lru_cache(REMEMBERED)
def _columns(key: Any) -> dict[str, int | str]:
    kernel: MicroKernel | None = None
    if isinstance(key, str):
        kernel = next((found for kind in KINDS.values() if (found := kind.parse(key))), None)
    return kernel.columns if kernel else {}

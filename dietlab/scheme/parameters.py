"""Schemes in tables: the parameters of a key as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dietlab.scheme.micro_kernel import MicroKernel
from dietlab.scheme.scheme import parsed
from dietlab.scheme.target import space_target

if TYPE_CHECKING:
    import pandas as pd

REMEMBERED = 4096
"""The largest number of keys whose parameters are cached: far more than a study measures."""


def with_parameters(
    frame: pd.DataFrame, kinds: Iterable[str] | None = None, column: str = "plan"
) -> pd.DataFrame:
    """Returns a table with the column of keys replaced by ``scheme`` (the key) and a column for each
    parameter. Values are missing where a text is no key.

    Args:
        frame: a table, which is not changed.
        kinds: the names of targets whose parameters become columns, even if no row has them (default: the
            targets of the rows).
        column: the name of the table's column of keys.
    """
    import pandas as pd

    rows = [_columns(key) for key in frame[column]]
    known = rows if kinds is None else [dict.fromkeys(_names(space_target(kind).KERNEL)) for kind in kinds]
    names = dict.fromkeys(name for columns in ({"scheme": ""}, *known) for name in columns)
    found = pd.DataFrame(rows, frame.index, list(names))
    typed = {name: values.convert_dtypes() for name, values in found.items()}
    numbers = found.assign(**{name: values for name, values in typed.items() if values.dtype.kind in "iub"})
    place = frame.columns.get_loc(column)
    return pd.concat([frame.iloc[:, :place], numbers, frame.iloc[:, place + 1 :]], axis=1)


def _names(kind: type[MicroKernel]) -> list[str]:
    """Returns the names of the parameters of a scheme with this kind of micro-kernel."""
    order = ["order"] if kind.ordered else []
    return [*(field.name for field in fields(kind)), "edge", *order]  # type: ignore[arg-type]


@lru_cache(REMEMBERED)
def _columns(key: Any) -> dict[str, int | str]:
    scheme = parsed(key) if isinstance(key, str) else None
    return scheme.columns if scheme else {}

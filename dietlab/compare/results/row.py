"""One row of a result: a contender on a shape, and who the contenders are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from dietlab.base.cards import Listing
from dietlab.problem import Shape
from dietlab.scheme import with_parameters

if TYPE_CHECKING:
    import pandas as pd

LENGTH = "T"
"""The dimension that is called a *length*; the others of a shape make its layer."""

OURS = "dietlab"
"""The contender that is ours."""

AGAIN = "dietlab again"
"""Ours in a second process, which tells what measuring one thing twice does; it has no rows."""

ANSOR = "ansor"
"""The contender of programs that were tuned for each shape alone."""


@dataclass(frozen=True)
class TimeShares:
    """The parts of a model's call, as shares of its time: ``contractions`` (products with weights),
    ``attention`` (its fused kernel, or its products), and the ``rest``."""

    contractions: float
    attention: float

    @property
    def rest(self) -> float:
        return 1 - self.contractions - self.attention


@dataclass(frozen=True)
class Row:
    """One shape, contender and cache state.

    ``seconds_*`` are the median of the block means and its 95 % bootstrap interval; ``speedup`` is
    this contender's median over ours in the same blocks (above 1: ours is faster); ``regret`` is
    what our choice of a plan loses (:func:`~dietlab.base.statistics.regret`) and stands in our rows only; so
    does ``again``, what the same library in a second process took over ours in the same blocks. The oracle's
    ``speedup`` is that of the same choice, 1 / (1 + regret). ``correct`` is None if there was no result, as
    the contender crashed, hung or refused (``plan`` says why); ``roofline`` is the least time that flops and
    traffic allow over the median; ``retaken`` counts blocks that were timed again because the processor was
    slow; ``shares`` are those of a model's time, where they were asked for; ``first_seconds`` are those of
    the first call at this shape on the wall clock, with what was prepared for it alone, and None where they
    were not measured alone (:meth:`~dietlab.measure.timing.bench.Bench.check`).

    Args:
        shape: the extents of the calls.
        held_out: whether tuning did not see this shape.
        contender: its name.
        cache: where operands are between calls.
        seconds_median: of one call.
        seconds_low: lower end of the interval.
        seconds_high: upper end of the interval.
        gflops: useful GFLOP/s at the median.
        padding_waste: the share of multiply-adds that no output needs, 0 to 1; None where it is unknown.
    """

    shape: Shape
    held_out: bool
    contender: str
    cache: str
    seconds_median: float
    seconds_low: float
    seconds_high: float
    gflops: float
    correct: bool | None
    speedup: float | None = None
    padding_waste: float | None = None
    regret: float | None = None
    roofline: float | None = None
    plan: str | None = None
    retaken: int = 0
    shares: TimeShares | None = None
    again: float | None = None
    first_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the row as a JSON value."""
        value = {**asdict(self), "shape": self.shape.to_json()}
        # A result that does not count has no time; JSON has no NaN.
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in value.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Row:
        """Returns the inverse of :meth:`to_json`."""
        times = {k: math.nan if value[k] is None else value[k] for k in value if k.startswith("seconds_")}
        shares = TimeShares(**value["shares"]) if value.get("shares") else None
        return cls(**{**value, **times, "shape": Shape.from_json(value["shape"]), "shares": shares})


def untimed(shape: Shape, contender: str, speedup: float | None = None, *, held_out: bool = False) -> Row:
    """Returns a row of which others told the ratio of two times, and neither of them."""
    return Row(shape, held_out, contender, "reported", math.nan, math.nan, math.nan, math.nan, True, speedup)


@dataclass(frozen=True)
class ContenderInfo:
    """A contender's name, kind and version; if it is ``absent``, the reason.

    Args:
        name: as in the rows.
        kind: ``prepacked``, ``plain`` or another kind of contender.
        version: of its library.
        detail: what else identifies it, such as which scheme it is.
    """

    name: str
    kind: str
    version: str = ""
    absent: str = ""
    detail: str = ""


def contender_listing(contenders: Sequence[ContenderInfo]) -> Listing:
    """Returns who took part as a table, and why the others did not."""
    header = ("name", "kind", "version")
    return Listing(header, contenders, lambda c: (c.name, c.kind, c.absent or c.version))


def lacking(mine: Iterable[Row], theirs: Iterable[Row]) -> str:
    """Returns in words what others hold besides all right results of mine; nothing if they hold no more or
    lack one of them, or I have none."""
    held, known = (
        {(row.contender, row.cache, row.shape) for row in rows if row.correct} for rows in (mine, theirs)
    )
    if not held or not held < known:
        return ""
    names = dict.fromkeys(name for name, *_ in sorted(known - held))
    return f"it has {len(known)} results, of which this one has {len(held)}: not all of {', '.join(names)}"


def over_best(rows: Iterable[Row], besides: Collection[str] = ()) -> dict[tuple[Shape, str], float]:
    """Returns our speedup over the fastest other contender, for each shape and cache state; wrong results
    and the contenders ``besides`` do not count."""
    best: dict[tuple[Shape, str], float] = {}
    for row in rows:
        if row.correct and row.speedup and row.contender not in (OURS, *besides):
            key = row.shape, row.cache
            best[key] = min(best.get(key, math.inf), row.speedup)
    return best


def fastest(rows: Sequence[Row]) -> list[Row]:
    """Returns, for each shape, the row with the least median time."""
    best: dict[Shape, Row] = {}
    for row in rows:
        if row.shape not in best or row.seconds_median < best[row.shape].seconds_median:
            best[row.shape] = row
    return list(best.values())


def uncounted(rows: Iterable[Row], *, wrong: bool) -> dict[tuple[str, str], list[Row]]:
    """Returns the rows that count nowhere by contender and cache state: those of wrong results, or those
    without a result."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not row.correct and (row.correct is None) != wrong:
            found.setdefault((row.contender, row.cache), []).append(row)
    return found


def with_reasons(frame: pd.DataFrame, kinds: Iterable[str]) -> pd.DataFrame:
    """Returns a table of rows in which the ``plan``, a key or the reason why there is no result, became a
    ``scheme`` with its parameters, and a ``reason``."""
    found = with_parameters(frame, kinds)
    return found.assign(reason=frame["plan"].where(found["scheme"].isna()))


def rows_frame(rows: Sequence[Row], kind: str) -> pd.DataFrame:
    """Returns the rows of one study, on a processor of this kind, as a table: see :class:`Row`."""
    import pandas as pd

    names = [field.name for field in fields(Row)]
    records = [
        {**asdict(r), **r.shape.to_json(), "shape": str(r.shape), "correct": bool(r.correct)} for r in rows
    ]
    frame = pd.DataFrame(records, columns=None if records else names).drop(columns="shares")
    return with_reasons(frame, [kind])

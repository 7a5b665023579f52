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
"""The dimension that is called *length*; the other dimensions of a shape are its layer."""


def length_of(shape: Shape) -> int:
    """Returns the extent of T; 0 for a shape without it, such as an image, a layer or a whole study."""
    return shape.to_json().get(LENGTH, 0)


OURS = "dietlab"
"""The contender that is our library."""

AGAIN = "dietlab again"
"""Our library in a second process, which has no rows: the difference of both times is noise."""

ANSOR = "ansor"
"""The contender whose programs are tuned for single shapes."""


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time of a model's call: ``contractions`` (products with weights), ``attention`` (its
    fused kernel, or its products), and the ``rest``."""

    contractions: float
    attention: float

    @property
    def rest(self) -> float:
        return 1 - self.contractions - self.attention


@dataclass(frozen=True)
class Row:
    """The result of one contender on one shape in one cache state.

    Args:
        shape: the extents of the calls.
        held_out: whether tuning did not see this shape.
        contender: its name.
        cache: the cache state: where operands are between calls.
        seconds_median: the seconds of one call, as the median of the means of blocks.
        seconds_low, seconds_high: the ends of the median's 95 % bootstrap interval.
        gflops: useful GFLOP/s at the median.
        correct: whether the result is right; None if there is no result because the contender crashed, hung
            or refused (see ``plan``).
        speedup: the contender's median over ours in the same blocks (above 1: ours is faster). The oracle's
            speedup is 1 / (1 + regret).
        padding_waste: the share of the multiply-adds that no output needs, 0 to 1; None if it is unknown.
        regret: the loss by our choice of a plan (:func:`~dietlab.base.statistics.regret`), in our rows only.
        roofline: the least time that flops and traffic allow, over the median.
        plan: our plan's key, or the reason why there is no result.
        retaken: the number of blocks that were timed again because the processor was slow.
        shares: the shares of a model's time, if measured.
        again: the time of the same library in a second process over ours in the same blocks, in our rows
            only.
        first_seconds: the wall-clock seconds of the first call at this shape, including what the call
            prepares for this shape alone; None if they were not measured
            (:meth:`~dietlab.measure.timing.bench.Bench.check`).
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
        """Returns the row as a JSON value; NaN becomes None."""
        value = {**asdict(self), "shape": self.shape.to_json()}
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in value.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Row:
        """Returns the row of a JSON value made by :meth:`to_json`."""
        times = {k: math.nan if value[k] is None else value[k] for k in value if k.startswith("seconds_")}
        shares = TimeShares(**value["shares"]) if value.get("shares") else None
        return cls(**{**value, **times, "shape": Shape.from_json(value["shape"]), "shares": shares})


def untimed(shape: Shape, contender: str, speedup: float | None = None, *, held_out: bool = False) -> Row:
    """Returns a row for a speedup that was published without the two times."""
    return Row(shape, held_out, contender, "reported", math.nan, math.nan, math.nan, math.nan, True, speedup)


@dataclass(frozen=True)
class ContenderInfo:
    """A contender.

    Args:
        name: its name, as in the rows.
        kind: ``prepacked``, ``plain`` or another kind of contender.
        version: the version of its library.
        absent: the reason why it does not take part; empty if it does.
        detail: further text that identifies it, such as its scheme.
    """

    name: str
    kind: str
    version: str = ""
    absent: str = ""
    detail: str = ""


def contender_listing(contenders: Sequence[ContenderInfo]) -> Listing:
    """Returns the contenders as a table, with their version or the reason of their absence."""
    header = ("name", "kind", "version")
    return Listing(header, contenders, lambda c: (c.name, c.kind, c.absent or c.version))


def lacking(mine: Iterable[Row], theirs: Iterable[Row]) -> str:
    """Returns a sentence on the right results that only ``theirs`` has. It is empty unless ``mine`` has a
    right result, and ``theirs`` has all right results of ``mine`` and more."""
    held, known = (
        {(row.contender, row.cache, row.shape) for row in rows if row.correct} for rows in (mine, theirs)
    )
    if not held or not held < known:
        return ""
    names = dict.fromkeys(name for name, *_ in sorted(known - held))
    return f"it has {len(known)} results, of which this one has {len(held)}: not all of {', '.join(names)}"


def over_best(rows: Iterable[Row], besides: Collection[str] = ()) -> dict[tuple[Shape, str], float]:
    """Returns, for each shape and cache state, our speedup over the fastest other contender. Wrong results
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
    """Returns the rows with a wrong result (``wrong``) or without a result, by contender and cache state."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not row.correct and (row.correct is None) != wrong:
            found.setdefault((row.contender, row.cache), []).append(row)
    return found


def with_reasons(frame: pd.DataFrame, kinds: Iterable[str]) -> pd.DataFrame:
    """Returns a table of rows whose column ``plan`` is split into ``scheme``, the scheme's parameters, and
    ``reason``."""
    found = with_parameters(frame, kinds)
    return found.assign(reason=frame["plan"].where(found["scheme"].isna()))


def rows_frame(rows: Sequence[Row], kind: str) -> pd.DataFrame:
    """Returns the rows of a study on this kind of processor as a table: see :class:`Row`."""
    import pandas as pd

    names = [field.name for field in fields(Row)]
    records = [
        {**asdict(r), **r.shape.to_json(), "shape": str(r.shape), "correct": bool(r.correct)} for r in rows
    ]
    frame = pd.DataFrame(records, columns=None if records else names).drop(columns="shares")
    return with_reasons(frame, [kind])

"""Values of the bench's summary as text, and tables with a column for each place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dietlab.compare.results import Criterion, Line
from dietlab.problem import Shape
from dietlab.view.pages.bench_text import markdown

MISSED = "**missed**"
DIGITS = {"x": 2, "%": 1, "s": 0, "us": 2, "ns": 0, "KiB": 0, "GB": 2, "": 0}
"""Decimals of a value by its unit: what changes beyond them is noise."""
COLDEST_FIRST = ("rotating", "interleaved", "hot", "")


class Place(NamedTuple):
    """Number of threads, the words for what they are, and cache state: one column of a table; no state for
    facts of a whole study."""

    threads: int
    used: str
    cache: str

    @classmethod
    def of(cls, line: Line) -> Place:
        return cls(line.threads, line.used, line.cache)

    @property
    def words(self) -> str:
        """``"one core, rotating"``."""
        return ", ".join(filter(None, (self.used, self.cache)))


def in_order(places: Iterable[Place]) -> list[Place]:
    """Returns places by threads, those with the coldest operands first."""
    return sorted(places, key=lambda place: (place.threads, COLDEST_FIRST.index(place.cache)))


def pivot(
    lines: Sequence[Line],
    name: Callable[[Line], str],
    text: Callable[[Line], str],
    with_target: bool = False,
) -> str:
    """Returns a table with a row for each name, a column for each place, and the target, if one is judged."""
    places = in_order({Place.of(line) for line in lines})
    rows: dict[str, dict[Place, str]] = {}
    targets: dict[str, str] = {}
    for line in lines:
        rows.setdefault(name(line), {})[Place.of(line)] = text(line)
        if line.verdict:
            targets[name(line)] = target_of(line.criterion)
    head = ["", *(["target"] if with_target else []), *(place.words for place in places)]
    return markdown(
        head,
        [
            [row, *([targets.get(row, "")] if with_target else []), *(cells.get(p, "") for p in places)]
            for row, cells in rows.items()
        ],
    )


def value_text(line: Line) -> str:
    """Returns ``"1.10x (1.09 to 1.12)"``, with the place of an extreme, and whether the target was missed."""
    said = value_of(line)
    if line.low is not None and line.high is not None:
        said += f" ({bare(line.low, line.criterion.unit)} to {bare(line.high, line.criterion.unit)})"
    elif line.criterion.statistic in ("worst", "most") and line.worst.shape.bindings:
        said += f" ({line.worst.workload}, {shape_text(line.worst.shape)})"
    return f"{said} {MISSED}" if line.met is False else said


def shape_text(shape: Shape) -> str:
    """Returns ``"T = 7"``, or ``"K = 768, N = 2304, T = 7"``."""
    return ", ".join(f"{name} = {extent}" for name, extent in shape.bindings)


def value_of(line: Line) -> str:
    """Returns a line's value with its unit, with one more digit where rounding would hide a miss."""
    unit, digits = line.criterion.unit, DIGITS[line.criterion.unit]
    hidden = line.met is False and line.criterion.met(round(line.value, digits))
    return number(line.value, unit, digits + hidden)


def number(value: float, unit: str, digits: int | None = None) -> str:
    """Returns ``"1.07x"``, ``"2.4 %"``, ``"735 s"``: a value with its unit."""
    said = bare(value, unit, digits)
    return f"{said}x" if unit == "x" else f"{said} {unit}".strip()


def bare(value: float, unit: str, digits: int | None = None) -> str:
    """Returns a value as :func:`number` does, without the unit."""
    places = DIGITS[unit] if digits is None else digits
    return f"{round(value, places) + 0.0:.{places}f}"  # no "-0.0"


def target_of(criterion: Criterion) -> str:
    """Returns ``">= 1.10x"``."""
    if criterion.target is None:
        return ""
    sign, bound = criterion.target.bound
    return f"{sign} {number(bound, criterion.unit)}"


def misses(lines: Sequence[Line]) -> str:
    """Returns how many targets were reached, and each that was missed with its value."""
    missed = [line for line in lines if line.met is False]
    judged = sum(line.met is not None for line in lines)
    if not judged:
        return "No target applies."
    head = f"{judged} targets apply here: {judged - len(missed)} reached, {len(missed)} missed."
    return "\n".join([head, "", *map(_miss, missed)]).strip()


def _miss(line: Line) -> str:
    """One missed target with the value beside it."""
    unit = line.criterion.unit
    said = f"- {line.criterion.what}, {Place.of(line).words}: {value_of(line)}"
    said += f", target {target_of(line.criterion)}"
    if line.ceiling is not None:
        said += f", at the roofline {number(line.ceiling, unit)}"
    worst = "" if line.criterion.statistic == "worst" else f" {number(line.worst.value, unit)}"
    where = f" at {shape_text(line.worst.shape)}" if line.worst.shape.bindings else ""
    return f"{said}; worst{worst}: `{line.worst.workload}`{where}"

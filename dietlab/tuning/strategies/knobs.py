"""The knobs of a space: its parameters as small numbers, and the schemes that differ in one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from dietlab.scheme import Scheme, Space

Codes = tuple[int, ...]
"""For each knob, the index of its value among all values of the knob in the space."""


@dataclass(frozen=True)
class Knobs:
    """The parameters in which the schemes of a space differ.

    Args:
        values: all values of each knob, ascending.
        codes: the codes of each scheme, in the order of the space.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    codes: tuple[Codes, ...]

    @cached_property
    def number(self) -> dict[Codes, int]:
        """The index of each scheme in the space, by the scheme's codes."""
        return {codes: number for number, codes in enumerate(self.codes)}

    @cached_property
    def _lines(self) -> tuple[dict[Codes, list[int]], ...]:
        """For each knob, the schemes with the same codes of all other knobs."""
        lines: tuple[dict[Codes, list[int]], ...] = tuple({} for _ in self.names)
        for number, codes in enumerate(self.codes):
            for knob, line in enumerate(lines):
                line.setdefault((*codes[:knob], *codes[knob + 1 :]), []).append(number)
        return lines

    def along(self, number: int, knob: int) -> list[int]:
        """Returns the schemes that differ from a scheme in this knob only."""
        codes = self.codes[number]
        line = self._lines[knob][(*codes[:knob], *codes[knob + 1 :])]
        return [other for other in line if other != number]

    @cached_property
    def _neighbours(self) -> dict[int, list[int]]:
        return {}

    def neighbours(self, number: int) -> list[int]:
        """Returns the schemes that differ from a scheme in a single knob."""
        if number not in self._neighbours:
            found = [other for knob in range(len(self.names)) for other in self.along(number, knob)]
            self._neighbours[number] = found
        return self._neighbours[number]

    def nearest(self, codes: Sequence[int], among: Sequence[int], key: Callable[[int], float]) -> int:
        """Returns the scheme in ``among`` whose codes differ least from ``codes``, in shares of each knob's
        range. Among ties, returns the scheme with the least ``key``."""
        spans = [max(1, len(values) - 1) for values in self.values]

        def distance(number: int) -> float:
            pairs = zip(self.codes[number], codes, spans, strict=True)
            return sum(abs(own - wanted) / span for own, wanted, span in pairs)

        return min(among, key=lambda number: (distance(number), key(number)))


@lru_cache(maxsize=4)  # each round of a tuning needs those of its space
def knobs_of(space: Space) -> Knobs:
    """Returns the knobs of a space: the parameters with several values."""
    rows = [scheme.parameters for scheme in space]
    found = {name: tuple(sorted({row[name] for row in rows})) for name in rows[0]}
    names = tuple(name for name, values in found.items() if len(values) > 1)
    places = {name: {value: code for code, value in enumerate(found[name])} for name in names}
    codes = tuple(tuple(places[name][row[name]] for name in names) for row in rows)
    return Knobs(names, tuple(found[name] for name in names), codes)


def numbers_of(space: Space) -> dict[Scheme, int]:
    """Returns the index of each scheme in the space."""
    return {scheme: number for number, scheme in enumerate(space)}

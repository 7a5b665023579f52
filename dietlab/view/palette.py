"""One colour for each contender in every figure, told apart by colour-blind readers too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from dietlab.evaluation.report import OURS

# Okabe and Ito's eight colours less black and yellow, which vanish on dark and on light pages.
PALETTE = {
    OURS: "#D55E00",
    "mkl": "#0072B2",
    "openblas": "#009E73",
    "onednn": "#56B4E9",
    "torch": "#CC79A7",
    "ansor": "#E69F00",
}
# Readable on white and on black alike: text, reference lines, and what is no contender.
GREY = "#808080"
FAMILIES_IN_GREY = ("best", "oracle")
DASHES = ("solid", "dash", "dot", "dashdot")


class Style(NamedTuple):
    colour: str
    dash: str


def styles(contenders: Iterable[str]) -> dict[str, Style]:
    """Returns a colour for each family (``mkl`` and ``mkl-packed`` are one) and a dash for each member.

    A family outside ``PALETTE`` gets a colour by its name, so it keeps it from figure to figure,
    unless another family of this figure has it.
    """
    names = list(dict.fromkeys(contenders))
    chosen = {f: PALETTE[f] for f in map(_family, names) if f in PALETTE}
    chosen |= dict.fromkeys(FAMILIES_IN_GREY, GREY)
    for family in sorted(set(map(_family, names)) - set(chosen)):
        chosen[family] = _free_colour(family, taken=set(chosen.values()))
    members: dict[str, int] = {}
    result = {}
    for name in names:
        colour = chosen[_family(name)]
        rank = members[colour] = members.get(colour, -1) + 1
        result[name] = Style(colour, DASHES[rank % len(DASHES)])
    return result


def _family(contender: str) -> str:
    return contender.lower().replace("_", "-").replace(" ", "-").partition("-")[0]


def _free_colour(family: str, taken: set[str]) -> str:
    colours = [colour for name, colour in PALETTE.items() if name != OURS]
    start = crc32(family.encode()) % len(colours)
    in_turn = colours[start:] + colours[:start]
    return next((colour for colour in in_turn if colour not in taken), in_turn[0])

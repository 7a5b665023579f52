"""Colours and symbols of plans: up to 16 plans of a dispatcher have a colour each."""

from __future__ import annotations

from dietlab.view.theme import ACCENTS, DASHES, SYMBOLS, Style

PLAN_COLOURS = (
    *ACCENTS,
    "#5A0FFF",
    "#963C3C",
    "#7887F0",
    "#A5874B",
    "#694BFF",
    "#0F5AB4",
    "#D23C2D",
    "#E1005A",
)
"""The accents of :data:`dietlab.view.theme.PALETTE` and eight more.

Each has a contrast of at least 3 to white and 2.6 to #111111. Each of the eight is, in CIELAB, the colour
farthest from all before it. The distance is the least of three: with full colour vision, and, both divided by
0.7, without red cones and without green cones (Machado, Oliveira and Fernandes 2009). The nearest accents are
15 apart; the last colour is 18 from its nearest.
"""

BAR_WIDTH = 16
"""The height of the strip of plans, in pixels: enough for a legible number."""

LIGHTEST_UNDER_WHITE = 0.18
"""The greatest relative luminance of a colour under white text: black text has the same contrast there."""


def plan_style(number: int) -> Style:
    """Returns the look of a plan, by its index. Each round through the colours has another dash and
    symbol."""
    turn, place = divmod(number, len(PLAN_COLOURS))
    return Style(PLAN_COLOURS[place], DASHES[turn % len(DASHES)], SYMBOLS[turn % len(SYMBOLS)], BAR_WIDTH)


def text_on(colour: str) -> str:
    """Returns ``"white"`` or ``"black"``, whichever reads better on a colour written ``#rrggbb``."""
    return "white" if luminance(colour) <= LIGHTEST_UNDER_WHITE else "black"


def luminance(colour: str) -> float:
    """Returns the relative luminance (0 to 1) of a colour written ``#rrggbb``, as WCAG 2.2 defines it."""

    def linear(part: str) -> float:
        share = int(part, 16) / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(colour[at : at + 2]) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

"""The look of all figures: colours by role, and a line style for each contender.

Every colour has a contrast of at least 3 to white, and nearly as much to a dark page's #111111; neighbouring
colours differ for colour-blind readers, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from dietlab.compare.results.row import OURS

PALETTE = {
    "ours": "#D55E00",
    "best_vendor": "#0072B2",
    "oracle": "#009E73",
    "selected": "#AA2288",
    "muted": "#767676",
    "needed": "#0072B2",
    "needed_too": "#5599CC",
    "wasted": "#B87100",
    "good": "#009E73",
    "bad": "#D55E00",
    "accent1": "#0072B2",
    "accent2": "#B87100",
    "accent3": "#009E73",
    "accent4": "#AA2288",
    "accent5": "#5599CC",
    "accent6": "#DD66AA",
    "accent7": "#556600",
    "accent8": "#6655DD",
}
"""Colours by role. ``ours``, ``best_vendor``, ``oracle`` and ``selected`` (the ring around the chosen shape)
are the strong colours; ``muted`` is for rivals, reference lines and text; ``needed``, ``needed_too`` and
``wasted`` fill areas of work; accents are for lines without a role, and neighbouring accents differ most."""

ACCENTS = tuple(colour for role, colour in PALETTE.items() if role.startswith("accent"))
TEXT = PALETTE["muted"]
"""The colour of text in figures: its contrast is 4.5 to white and 4.2 to a dark page."""

GRID = "rgba(128,128,128,0.25)"
CLEAR = "rgba(0,0,0,0)"
"""The background of a figure, so that it reads on light and on dark pages."""

SCALE = [[0, PALETTE["needed"]], [1, PALETTE["wasted"]]]
"""The colour scale of points, from few to many: both ends read on light and on dark pages."""

BALANCE = [[0, PALETTE["wasted"]], [0.5, PALETTE["muted"]], [1, PALETTE["needed"]]]
"""The colour scale of ratios, from slower through equally fast to faster."""

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down")
PLACES = len(DASHES) * len(SYMBOLS)
"""The number of pairs of a dash and a symbol. The numbers of dashes and symbols are coprime, so that counting
through both meets every pair."""

OPEN = "-open"
"""The suffix of plotly's names of unfilled symbols: they mark shapes held out from tuning."""

TIE = {"color": PALETTE["muted"], "width": 1, "dash": "dash"}
"""The style of the line that marks a limit or equal times."""

RIVALS = (
    "mkl",
    "mkl-packed",
    "openblas",
    "torch",
    "onednn-packed",
    "onnxruntime",
    "zendnn",
    "zendnn-packed",
    "ansor",
    "largest-shape",
    "cublas",
    "cublaslt",
    "cublaslt-tuned",
    "torch-compile",
    "triton",
    "torch-compile-frozen",
    "torch-aot-frozen",
    "onednn-any-size",
    "im2col",
    "openvino",
    "xnnpack",
    "torch-aot",
    "zentorch",
    "cudnn",
    "cudnn-tuned",
)
"""The contenders in grey, of operators and of whole models. Their order gives each the same dash and symbol
in every figure."""


class Style(NamedTuple):
    """A line: its colour, dash, symbol and width in pixels."""

    colour: str
    dash: str
    symbol: str
    width: float

    @property
    def line(self) -> dict[str, Any]:
        """Returns plotly's ``line`` of a trace."""
        return {"color": self.colour, "dash": self.dash, "width": self.width}


HEADLINES = {
    OURS: Style(PALETTE["ours"], "solid", "circle", 3),
    "best prepacked vendor": Style(PALETTE["best_vendor"], "solid", "circle", 3),
    "best plain vendor": Style(PALETTE["best_vendor"], "dash", "square", 2),
    "oracle": Style(PALETTE["oracle"], "solid", "diamond", 2),
}
"""The styles of the lines that a figure is about: strong colours, drawn above the rivals."""


def styles(contenders: Iterable[str]) -> dict[str, Style]:
    """Returns a style for each contender: :data:`HEADLINES` in strong colours, rivals in grey. No two rivals
    of a figure have the same dash and symbol; known rivals keep theirs from figure to figure."""
    names = list(dict.fromkeys(contenders))
    found = {name: HEADLINES[name] for name in names if name in HEADLINES}
    taken: set[int] = set()
    for _, place, name in sorted(_place(name) for name in names if name not in found):
        free = _free(place, taken)
        taken.add(free)
        found[name] = muted(free)
    return {name: found[name] for name in names}


def muted(number: int) -> Style:
    """Returns a grey style; there are :data:`PLACES` of them, which differ by dash and symbol."""
    return Style(PALETTE["muted"], DASHES[number % len(DASHES)], SYMBOLS[number % len(SYMBOLS)], 1.25)


def accented(number: int) -> Style:
    """Returns a style for a line without a role: first the eight colours, then the same colours with other
    dashes."""
    dash = DASHES[number // len(ACCENTS) % len(DASHES)]
    return Style(ACCENTS[number % len(ACCENTS)], dash, SYMBOLS[number % len(SYMBOLS)], 2)


def legend_rank(name: str) -> int:
    """Returns plotly's ``legendrank``: headlines are first, in their own order."""
    return 1 + list(HEADLINES).index(name) if name in HEADLINES else 1000


def ring(size: int) -> dict[str, Any]:
    """Returns plotly's ``marker`` of a ring around what was chosen, ``size`` pixels wide."""
    return {"symbol": f"circle{OPEN}", "size": size, "color": PALETTE["selected"], "line": {"width": 3}}


def marks(symbol: str, held_out: Iterable[object]) -> list[str]:
    """Returns the symbol for each shape: filled if tuning measured it, open if it was held out."""
    return [f"{symbol}{OPEN}" if one else symbol for one in held_out]


def _place(name: str) -> tuple[bool, int, str]:
    """Returns three values: whether a rival is unknown, the index of its style, and its name. An unknown
    rival's index is a hash of its name, beyond the indices of known rivals."""
    if name in RIVALS:
        return False, RIVALS.index(name), name
    return True, len(RIVALS) + crc32(name.encode()) % (PLACES - len(RIVALS)), name


def _free(place: int, taken: set[int]) -> int:
    while place % PLACES in taken and len(taken) < PLACES:
        place += 1
    return place % PLACES

"""The README's picture: the best prepacked vendor's time over dietlab's, against T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from results_index import Machine

from dietlab.compare.results import Criterion
from dietlab.compare.results.samples import blocks, samples
from dietlab.compare.results.summary import STATISTICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CRITERION = Criterion("prepacked", "geomean", "over the best prepacked vendor")
THREADS, CACHE = 1, "rotating"
"""One core, weights from memory: a model of many layers on one core."""
INCHES = (8.0, 4.4)
DOTS_PER_INCH = 200
"""Twice what the README shows, for screens of high density."""
TICKS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0)
COLOURS = 64
"""Colours of a picture's file: two lines, a band, text and their soft edges need no more."""
DIGITS = 6
"""Significant digits of a ratio in the fingerprint: less than a pixel, and far above what rounding moves."""
ROOM = 1.06
"""Free space above and below the band, as a factor."""


@dataclass(frozen=True)
class Curve:
    """The picture's data: at each T the mean over layers, and the least and the greatest of them.

    Args:
        machine: where it was measured.
        layers: number of layers that each point is made of.
        lengths: T in ascending order.
        mean, least, greatest: the vendor's time over dietlab's (x), one for each length.
    """

    machine: str
    layers: int
    lengths: tuple[int, ...]
    mean: tuple[float, ...]
    least: tuple[float, ...]
    greatest: tuple[float, ...]

    @property
    def fingerprint(self) -> str:
        """Of all that is drawn; pictures carry it, so that one of older data is recognised. Means are taken
        with :data:`DIGITS`, since logarithms of different processors differ in the last bits."""
        ratios = [f"{x:.{DIGITS}g}" for x in (*self.mean, *self.least, *self.greatest)]
        return fingerprint_of(self.machine, self.layers, self.lengths, ratios)


def fingerprint_of(*drawn: object) -> str:
    """Returns a few characters that tell what is drawn from anything else."""
    return sha256(repr(drawn).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Theme:
    """Colours of a picture and the name of its file."""

    file: str
    paper: str
    ink: str
    grid: str
    line: str


LIGHT = Theme("speedup.png", paper="#ffffff", ink="#1f2328", grid="#d8dee4", line="#0072b2")
DARK = Theme("speedup-dark.png", paper="#0d1117", ink="#e6edf3", grid="#30363d", line="#56b4e9")


def curve_of(machine: Machine) -> Curve:
    """Returns what the picture shows of a machine's bench."""
    found: dict[int, list[float]] = {}
    for block in blocks(machine.bench):
        if (block.report.threads, block.cache) == (THREADS, CACHE):
            for sample in samples(CRITERION, block):
                found.setdefault(sample.length, []).append(sample.value)
    lengths = tuple(sorted(found))
    values = [np.array(found[length]) for length in lengths]
    return Curve(
        machine=machine.processor,
        layers=max(map(len, values)),
        lengths=lengths,
        mean=tuple(STATISTICS["geomean"](ratios) for ratios in values),
        least=tuple(float(ratios.min()) for ratios in values),
        greatest=tuple(float(ratios.max()) for ratios in values),
    )


def is_drawn(fingerprint: str, path: Path) -> bool:
    """Whether ``path`` is a picture of the data with this fingerprint."""
    from PIL import Image

    if not path.is_file():
        return False
    with Image.open(path) as image:
        return image.info.get("Fingerprint") == fingerprint


def draw(curve: Curve, theme: Theme, path: Path) -> None:
    """Draws the curve as a PNG at ``path``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, facecolor=theme.paper)
    axes = figure.add_axes((0.085, 0.15, 0.89, 0.66), facecolor=theme.paper)
    axes.fill_between(curve.lengths, curve.least, curve.greatest, color=theme.line, alpha=0.25, linewidth=0)
    axes.plot(curve.lengths, curve.mean, color=theme.line, linewidth=3, marker="o", markersize=4)
    set_axes(axes, theme, curve.lengths, (*curve.least, *curve.greatest))
    _label(axes, curve, theme)
    _headings(figure, curve, theme)
    save(figure, curve.fingerprint, path)


def set_axes(axes: Axes, theme: Theme, lengths: Sequence[int], ratios: Sequence[float]) -> None:
    """Gives axes of speedup against T the range of the lengths and ratios, and a line where nobody is
    faster."""
    axes.axhline(1, color=theme.ink, linewidth=2)
    bottom, top = min(*ratios, 1) / ROOM, max(*ratios, 1) * ROOM
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(min(lengths) / 1.12, max(lengths) * 1.12)
    axes.set_ylim(bottom, top)
    doublings = [1 << n for n in range(max(lengths).bit_length())]
    axes.set_xticks(doublings, [str(length) for length in doublings])
    heights = [tick for tick in TICKS if bottom <= tick <= top]
    axes.set_yticks(heights, [f"{tick:g}x" for tick in heights])
    axes.minorticks_off()
    axes.tick_params(colors=theme.ink, labelsize=13, length=0)
    axes.grid(color=theme.grid, linewidth=1)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("T (rows of the input)", color=theme.ink, fontsize=14)


def save(figure: Figure, fingerprint: str, path: Path) -> None:
    """Writes the figure with few colours, for a small file, and with its data's fingerprint."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    drawn, about = BytesIO(), PngInfo()
    figure.savefig(drawn, dpi=DOTS_PER_INCH)
    about.add_text("Fingerprint", fingerprint)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            path, optimize=True, pnginfo=about
        )


def _label(axes: Axes, curve: Curve, theme: Theme) -> None:
    """Names the two lines where there is room: below the tie line, and above the curve's fall."""
    axes.annotate(
        "dietlab",
        (1, 1),
        (4, -19),
        textcoords="offset points",
        color=theme.ink,
        fontsize=14,
        fontweight="bold",
    )
    paper = {"facecolor": theme.paper, "edgecolor": "none", "pad": 2}
    words: dict[str, Any] = {"xycoords": "axes fraction", "ha": "right", "color": theme.line, "bbox": paper}
    axes.annotate("best vendor library", (0.985, 0.9), fontsize=14, fontweight="bold", **words)
    axes.annotate(f"line: mean of {curve.layers} layers", (0.985, 0.81), fontsize=13, **words)
    axes.annotate("band: least to greatest", (0.985, 0.725), fontsize=13, **words)


def _headings(figure: Figure, curve: Curve, theme: Theme) -> None:
    title = "Time of the best vendor library over dietlab's"
    figure.text(0.015, 0.925, title, color=theme.ink, fontsize=18, fontweight="bold")
    said = f"BERT-base's dense layers in float32, one core of {curve.machine}"
    figure.text(0.015, 0.85, said, color=theme.ink, fontsize=13)

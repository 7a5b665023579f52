"""The picture of the page of GPUs: NVIDIA's time over dietlab's against T, a line for each layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpu_text import layer_of
from results_index import Machine
from speedup_picture import DARK, DIGITS, INCHES, LIGHT, Theme, fingerprint_of, save, set_axes

from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.samples import blocks

CACHE, RIVALS = "rotating", ("cublas", "cublaslt")
"""Operands from memory; the faster of these at each length: they take weights as they are, as dietlab
does."""
THEMES = (replace(LIGHT, file="gpu-speedup.png"), replace(DARK, file="gpu-speedup-dark.png"))
OTHERS = ("#d55e00", "#e69f00", "#009e73", "#cc79a7", "#999999")
"""The colours of the lines behind the first, in the palette for the colour-blind that the first is of."""

Lines = dict[str, dict[int, float]]
"""Ratios by layer and length."""


def lines_of(machine: Machine) -> Lines:
    """Returns the faster rival's time over dietlab's, for each layer of a machine's bench."""
    found: Lines = {}
    for block in blocks(machine.bench):
        if block.cache != CACHE:
            continue
        work = block.report.operator
        line = found.setdefault(layer_of(work), {})
        for shape, rows in sorted(block.rows.items()):
            line[shape[LENGTH]] = min(rows[name].speedup for name in RIVALS if name in rows)
    return found


def fingerprint(lines: Lines) -> str:
    """Returns what tells a picture of these lines from others."""
    return fingerprint_of(*((name, t, f"{x:.{DIGITS}g}") for name in lines for t, x in lines[name].items()))


def draw(machine: Machine, theme: Theme, path: Path) -> None:
    """Draws a machine's lines as a PNG at ``path``."""
    from matplotlib.figure import Figure

    lines = lines_of(machine)
    figure = Figure(figsize=INCHES, facecolor=theme.paper)
    axes = figure.add_axes((0.085, 0.15, 0.89, 0.66), facecolor=theme.paper)
    colours = (theme.line, *OTHERS)[: len(lines)]
    for (name, line), colour in zip(lines.items(), colours, strict=True):
        axes.plot([*line], [*line.values()], color=colour, linewidth=2, marker="o", markersize=4, label=name)
    every = [(t, x) for line in lines.values() for t, x in line.items()]
    set_axes(axes, theme, [t for t, _ in every], [x for _, x in every])
    legend = axes.legend(loc="upper right", fontsize=10, frameon=False)
    for text in legend.get_texts():
        text.set_color(theme.ink)
    title = "Time of cuBLAS or cuBLASLt, the faster, over dietlab's"
    figure.text(0.015, 0.925, title, color=theme.ink, fontsize=18, fontweight="bold")
    said = f"{machine.name}, operands from memory; above 1, dietlab is faster"
    figure.text(0.015, 0.85, said, color=theme.ink, fontsize=13)
    save(figure, fingerprint(lines), path)

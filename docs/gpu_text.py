"""What the README's first lines and the page of GPUs say of measurements on GPUs, from ``data/results``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

import numpy as np
from readme_table import MISS
from results_index import Machine
from results_page import on_gpu
from results_text import number, target_of, value_of

from dietlab.results import Line, summarise
from dietlab.results.samples import Block, blocks
from dietlab.results.summary import STATISTICS
from dietlab.results.table import LENGTH
from dietlab.view.pages.bench_text import markdown

START, END = "<!-- gpu:start -->", "<!-- gpu:end -->"
WIDTH = 120
"""Characters of a line of the pages."""

CACHE, SHORT = "rotating", 512
"""Operands from memory; the longest of the lengths that have a line of their own, beside all."""

RIVALS = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt", "cublaslt-tuned": "its fastest algorithm for each T"}
"""The contenders of the page's table, and their words."""

HEADLINES = {
    "cublas": "the paper's dense layer in float32 runs at {} cuBLAS's speed{}",
    "cublaslt": "a layer in bfloat16 at {} cuBLASLt's{}",
}
"""The lines of the summary that the README's sentence tells, by their measure: geometric means."""


def gpu_sentence(machines: Sequence[Machine]) -> str:
    """Returns where dietlab was measured; of each GPU its two speedups, with the goals that they miss."""
    found = [machine for machine in machines if on_gpu(machine.bench)]
    said = "; ".join(f"GPU [{machine.name}](docs/gpu.md), where {_headlines(machine)}" for machine in found)
    return fill(f"It is measured on x86-64 CPUs{f' and on the {said}' if found else ''}.", WIDTH)


def _headlines(machine: Machine) -> str:
    lines = [line for line in summarise(machine.bench) if line.criterion.statistic == "geomean"]
    told = {line.criterion.measure: line for line in lines if line.cache == CACHE}
    known = {words: told[name] for name, words in HEADLINES.items() if name in told}
    return " and ".join(words.format(value_of(line), missed_goal(line)) for words, line in known.items())


def missed_goal(line: Line) -> str:
    """Returns ``" (goal >= 1.15x ✗)"``; nothing for a goal that is reached, or none."""
    return f" (goal {target_of(line.criterion)}{MISS})" if line.met is False else ""


def gpu_table(machine: Machine) -> str:
    """Returns the page's table of a GPU: geometric means over each rival, and the least of all ratios."""
    header = ("", "T", *(f"over {words}" for words in RIVALS.values()), "least of these")
    return markdown(header, [row for block in blocks(machine.bench) for row in _rows(block)])


def _rows(block: Block) -> Iterator[tuple[str, ...]]:
    if block.cache != CACHE:
        return
    work, lengths = block.report.operator, sorted(shape[LENGTH] for shape in block.rows)
    for first, most in ((True, SHORT), (False, lengths[-1])):
        shown = [length for length in lengths if length <= most]
        ratios = {
            name: {
                shape[LENGTH]: rows[name].speedup or 0.0
                for shape, rows in block.rows.items()
                if name in rows and shape[LENGTH] in shown
            }
            for name in RIVALS
        }
        least = min((x, length) for found in ratios.values() for length, x in found.items())
        yield (
            f"{work.dtype}, N = {work.N}, K = {work.K}" if first else "",
            f"{shown[0]} to {shown[-1]}, {len(shown)} lengths",
            *(number(_mean([*found.values()]), "x", 3) for found in ratios.values()),
            f"{number(least[0], 'x', 3)} at T = {least[1]}",
        )


def _mean(ratios: Sequence[float]) -> float:
    return STATISTICS["geomean"](np.array(ratios))

"""What the README's first lines and the page of GPUs say of measurements on GPUs, from ``data/results``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from readme_table import MISS
from results_index import Machine
from results_page import on_gpu
from results_text import number, target_of, value_of

from dietlab.compare.results import Line, by_workload
from dietlab.compare.results.criteria import GPU_CRITERIA
from dietlab.compare.results.row import LENGTH
from dietlab.compare.results.samples import Block, blocks
from dietlab.compare.results.summary import STATISTICS
from dietlab.measure import read_records
from dietlab.problem import BatchMatmul, Conv1d, Conv2d
from dietlab.scheme import Scheme
from dietlab.targets.cuda.kernel import CudaMicroKernel
from dietlab.targets.cuda.unit import PIECES
from dietlab.view.pages.bench_text import markdown

START, END = "<!-- gpu:start -->", "<!-- gpu:end -->"
DIMS_START, DIMS_END = "<!-- gpu:dims:start -->", "<!-- gpu:dims:end -->"
EXPECTED_START, EXPECTED_END = "<!-- gpu:expected:start -->", "<!-- gpu:expected:end -->"
WIDTH = 120
"""Characters of a line of the pages."""

CACHE, SHORT = "rotating", 512
"""Operands from memory; the longest of the lengths that have a line of their own, beside all."""

RIVALS = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt", "cublaslt-tuned": "its fastest algorithm for each T"}
"""The contenders of the page's table, and their words."""

HEADLINES = {
    "the paper's dense layer": ("float32 over cuBLAS", "dense"),
    "its batched products": ("float32 over cuBLAS", "batch"),
    "bfloat16 layers": ("halves over cuBLASLt's heuristic", "dense"),
}
"""What the README's sentence tells: the line of the criteria, and how the operators' names begin; geometric
means of each by itself."""


def gpu_sentence(machines: Sequence[Machine]) -> str:
    """Returns where dietlab was measured; of each GPU its speedups, with the goals that they miss."""
    found = [machine for machine in machines if on_gpu(machine.bench)]
    said = "; ".join(f"GPU [{machine.name}](docs/gpu.md): {_headlines(machine)}" for machine in found)
    return fill(f"It is measured on x86-64 CPUs{f' and on the {said}' if found else ''}.", WIDTH)


def _headlines(machine: Machine) -> str:
    lines = [line for line in by_workload(machine.bench, GPU_CRITERIA) if line.cache == CACHE]
    told = []
    for words, (what, beginning) in HEADLINES.items():
        chosen = [x for x in lines if x.criterion.what == what and x.workloads[0].startswith(beginning)]
        if chosen:
            told.append(f"{words} at {_values(chosen)} {RIVALS[chosen[0].criterion.measure]}'s speed")
    return ", ".join(told)


def _values(lines: Sequence[Line]) -> str:
    """Returns the least and the greatest value, with the goal if one misses it."""
    ordered = sorted(lines, key=lambda line: line.value)
    ends = dict.fromkeys(value_of(line) for line in (ordered[0], ordered[-1]))
    return " to ".join(ends) + missed_goal(ordered[0])


def missed_goal(line: Line) -> str:
    """Returns ``" (goal >= 1.15x ✗)"``; nothing for a goal that is reached, or none."""
    return f" (goal {target_of(line.criterion)}{MISS})" if line.met is False else ""


def layer_of(operator: Any) -> str:
    """Returns how the page and its picture call an operator."""
    if isinstance(operator, BatchMatmul):
        return f"{operator.dtype}, batched {operator.form.upper()}, B = {operator.B}, D = {operator.D}"
    return f"{operator.dtype}, N = {operator.N}, K = {operator.K}"


def page_blocks(data: Path, machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yields the generated blocks of the page of GPUs, each with its two marks."""
    yield gpu_table(machine), START, END
    yield expected_table(data), EXPECTED_START, EXPECTED_END
    yield dimensions_table(data / "cuda" / "machine-code.csv"), DIMS_START, DIMS_END


def gpu_table(machine: Machine) -> str:
    """Returns the page's table of a GPU: geometric means over each rival, and the least of all ratios."""
    header = ("", "T", *(f"over {words}" for words in RIVALS.values()), "least of these")
    return markdown(header, [row for block in blocks(machine.bench) for row in _rows(block)])


def _rows(block: Block) -> Iterator[tuple[str, ...]]:
    if block.cache != CACHE:
        return
    work, lengths = block.report.operator, sorted(shape[LENGTH] for shape in block.rows)
    for part, most in enumerate(dict.fromkeys((min(SHORT, lengths[-1]), lengths[-1]))):
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
            layer_of(work) if part == 0 else "",
            f"{shown[0]} to {shown[-1]}, {len(shown)} lengths",
            *(number(_mean([*found.values()]), "x", 3) for found in ratios.values()),
            f"{number(least[0], 'x', 3)} at T = {least[1]}",
        )


SHARED = {
    "slices": "slices of a block",
    "splits": "a shared reduction",
    "multicast": "shared rows",
    "ending": "a shared last wave",
    "persistent": "blocks that remain",
}
"""What blocks or warps share, by the field of a micro-kernel."""

WHOLE = {
    "layers": "several dynamic dimensions",
    "images": "convolutions",
    "model": "a model in PyTorch (bert.jsonl)",
}
"""Kinds of operators and models."""


def expected_table(data: Path) -> str:
    """Returns what the bound expects of each operator of the visits, its share of the roofline and its units,
    and what has no time in the records."""
    table = pd.read_csv(data / "cuda" / "expected.csv")
    table["share"] = 100 * table["roofline_us"] / table["expected_us"]
    table["unit"] = [kernel_of(keys.split()[0]).unit for keys in table["first"]]
    rows = []
    for (suite, task), found in table.groupby(["suite", "task"], sort=False):
        least = found.loc[found["share"].idxmin()]
        rows.append(
            (
                str(suite),
                str(task),
                str(len(found)),
                f"{_mean(found['share']):.0f} %",
                f"{least['share']:.0f} % ({least['shape']}: {least['expected_us']:.1f} us)",
                ", ".join(found["unit"].unique()),
            )
        )
    header = ("suite", "operator", "shapes", "of the roofline, mean", "least", "units of the first choices")
    day, gpu = table["date"].iloc[0], table["hardware"].iloc[0]
    return f"{gpu}, {day}. {_untimed(data)}\n\n{markdown(header, rows)}"


def _untimed(data: Path) -> str:
    """Returns in words what no file of a GPU's measurements has: units, what blocks share, kinds of operators
    and models."""
    files = [read_records(path) for path in sorted((data / "h200").glob("*/records.jsonl.gz"))]
    timed = {record.scheme.kernel for file in files for record in file.records if record.ok}
    known = {kernel.unit for kernel in timed}
    known |= {
        name for name in SHARED for kernel in timed if getattr(kernel, name) != getattr(CudaMicroKernel, name)
    }
    known |= {"layers"} if any(len(file.workload.dims) > 1 for file in files) else set()
    known |= {"images"} if any(isinstance(file.workload, (Conv1d, Conv2d)) for file in files) else set()
    known |= {"model"} if (data / "h200" / "bert.jsonl").is_file() else set()
    words = {**{name: f"unit `{pieces.letter}`" for name, pieces in PIECES.items()}, **SHARED, **WHOLE}
    lacking = [words[name] for name in words if name not in known]
    return f"Without a time: {', '.join(lacking)}." if lacking else "All of it has times."


def dimensions_table(path: Path) -> str:
    """Returns how many instructions the main loops of micro-kernels have with constant and dynamic sizes."""
    table = pd.read_csv(path)
    versions = [table[table["version"] == name].set_index("scheme") for name in ("constant", "dynamic")]
    constant, dynamic = (found["loop_instructions"] for found in versions)
    registers = versions[1]["registers"]
    header = ("micro-kernel", "constant", "dynamic", "more", "registers of a thread, dynamic")
    rows = [
        (f"`{key}`", str(n), str(dynamic[key]), f"{100 * (dynamic[key] / n - 1):.1f} %", str(registers[key]))
        for key, n in constant.items()
    ]
    return markdown(header, rows)


def kernel_of(key: str) -> CudaMicroKernel:
    kernel = Scheme.from_key(key).kernel
    assert isinstance(kernel, CudaMicroKernel)
    return kernel


def _mean(ratios: Sequence[float]) -> float:
    return STATISTICS["geomean"](np.array(ratios))

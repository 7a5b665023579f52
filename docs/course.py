"""The order of the notebooks, and what follows from it: lines of links, the table of docs/workbench.md, and
two notebooks without code: ``index``, the same table, and ``words``, that of docs/words.md. JupyterLab opens
what lies beside a notebook and nothing else, and ``dietlab lab`` copies only that.

    python docs/course.py

A notebook's line of links is the last paragraph of its first cell: the papers it is about, the notebooks
before and after it, and the names of dietlab that it calls. Where pyproject.toml names the repository's
address, badges open the notebook elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import dietlab

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
TABLE = ROOT / "docs" / "workbench.md"
WORDS = ROOT / "docs" / "words.md"

COURSE = {
    "Begin": ("21_from_loops_to_micro_kernel", "00_quickstart", "20_mini_dietcode"),
    "The stages": (
        "01_dynamic_shapes_and_padding",
        "02_search_space",
        "03_measurement",
        "04_cost_model",
        "22_ansor_and_dietcode",
        "05_joint_search",
        "06_dispatch",
        "07_evaluation",
    ),
    "Your own work": (
        "08_your_own_operator",
        "11_every_layer",
        "28_convolution",
        "23_transfer",
        "24_hand_written_units",
        "25_serving",
        "09_bench",
        "26_roofline",
    ),
    "GPUs": ("10_cuda", "27_gpu_waves", "19_gpu_records"),
    "The paper's experiments": (
        "13_dense",
        "14_batched_products",
        "12_bert",
        "15_tuning_time",
        "16_local_padding",
        "17_ablations",
        "18_served_models",
    ),
    "Puzzles": ("puzzles", "solutions"),
}
"""Notebooks by part, in the order in which they build on each other."""

PAPERS = {
    "DietCode": "https://proceedings.mlsys.org/paper_files/paper/2022/hash/"
    "f89b79c9a28d4cae22ef9e557d9fa191-Abstract.html",
    "Ansor": "https://arxiv.org/abs/2006.06762",
    "AutoTVM": "https://arxiv.org/abs/1805.08166",
    "TensorIR": "https://arxiv.org/abs/2207.04296",
    "roofline": "https://doi.org/10.1145/1498765.1498785",
    "indirect convolution": "https://arxiv.org/abs/1907.02129",
}

ABOUT = {
    "04_cost_model": ("AutoTVM",),
    "15_tuning_time": ("Ansor",),
    "21_from_loops_to_micro_kernel": ("TensorIR",),
    "22_ansor_and_dietcode": ("Ansor",),
    "23_transfer": ("AutoTVM",),
    "24_hand_written_units": ("TensorIR",),
    "26_roofline": ("roofline",),
    "28_convolution": ("indirect convolution",),
}
"""Papers that a notebook is about besides DietCode's."""

MARK = "**Links**: "
EVERYWHERE = ("show", "data_path")
NAMED = 8
"""Names of dietlab in a line of links at most: a line of text."""

BEGIN, END = "<!-- Written by docs/course.py -->", "<!-- End -->"


def order() -> list[str]:
    """Returns the names of all notebooks, without their ending, in the course's order."""
    return [stem for part in COURSE.values() for stem in part if (NOTEBOOKS / f"{stem}.ipynb").is_file()]


def loaded(stem: str) -> dict[str, Any]:
    """Returns the content of a notebook's file."""
    value: dict[str, Any] = json.loads((NOTEBOOKS / f"{stem}.ipynb").read_text(encoding="utf-8"))
    return value


def texts(notebook: dict[str, Any], kind: str) -> list[str]:
    """Returns the texts of a notebook's cells of a kind, ``"markdown"`` or ``"code"``."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def label(stem: str) -> str:
    """Returns what a notebook is called in a link, as in ``"06 dispatch"``."""
    return stem.replace("_", " ")


def calls(notebook: dict[str, Any]) -> list[str]:
    """Returns the public names that a notebook's code takes from ``dl``, in the order of their first use."""
    found = re.findall(r"\bdl\.(\w+)", "\n".join(texts(notebook, "code")))
    known = {name for name in dietlab.__all__ if not name.startswith("_")} - {*EVERYWHERE}
    return [name for name in dict.fromkeys(found) if name in known]


def links(stem: str, address: str | None = None) -> str:
    """Returns a notebook's line of links, in Markdown.

    Args:
        stem: the notebook's file name without its ending.
        address: where the repository is on GitHub; None for nowhere.
    """
    around = {b: (a, c) for (a, b), (_, c) in pairwise(pairwise([None, *order(), None]))}
    parts = [f"[{paper}]({PAPERS[paper]})" for paper in ("DietCode", *ABOUT.get(stem, ()))]
    for word, other in zip(("before", "next"), around[stem], strict=True):
        parts += [f"{word}: [{label(other)}]({other}.ipynb)"] if other else []
    parts.append("[all notebooks](index.ipynb), [words](words.ipynb)")
    names = ", ".join(f"`dl.{name}`" for name in calls(loaded(stem))[:NAMED])
    parts += [f"calls {names}"] if names else []
    return MARK + "; ".join([*parts, *badges(stem, address)]) + "."


def badges(stem: str, address: str | None) -> list[str]:
    """Returns links that open a notebook in Colab and in Binder; none without a repository on GitHub."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address or "")
    if not found:
        return []
    colab = f"https://colab.research.google.com/github/{found[1]}/blob/main/notebooks/{stem}.ipynb"
    binder = f"https://mybinder.org/v2/gh/{found[1]}/main?labpath=notebooks/{stem}.ipynb"
    return [f"open in [Colab]({colab}) or [Binder]({binder})"]


def repository() -> str | None:
    """Returns the repository's address, as pyproject.toml has it under ``[project.urls]``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def with_links(notebook: dict[str, Any], line: str) -> dict[str, Any]:
    """Returns a notebook whose first cell ends with a line of links; it takes the place of an earlier one."""
    first, *rest = notebook["cells"]
    paragraphs = [p for p in "".join(first["source"]).split("\n\n") if not p.startswith(MARK)]
    text = "\n\n".join([*paragraphs, line])
    return {**notebook, "cells": [{**first, "source": text.splitlines(keepends=True)}, *rest]}


def table(folder: str) -> str:
    """Returns the table of all notebooks, with their questions and the seconds that each took to run.

    Args:
        folder: the path to the notebooks from the page that has the table; it ends in a slash, or is empty.
    """
    lines = list[str]()
    for part, stems in COURSE.items():
        lines += [f"| **{part}** | | |"]
        for stem in stems:
            if stem in order():
                notebook = loaded(stem)
                title = re.findall(r"^# (.+)$", "\n".join(texts(notebook, "markdown")), re.MULTILINE)[0]
                seconds = notebook["metadata"].get("dietlab", {}).get("seconds", "")
                lines.append(f"| [{label(stem)}]({folder}{stem}.ipynb) | {title} | {seconds} |")
    return "\n".join(["| notebook | question | runs in (s) |", "|---|---|---:|", *lines])


def with_table(text: str) -> str:
    """Returns docs/workbench.md with the table between its two marks.

    Raises:
        ValueError: if a mark is missing.
    """
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"docs/workbench.md marks where the table of notebooks is: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{table('../notebooks/')}\n\n{END}{after}"


def signposts() -> dict[str, str]:
    """Returns the text of each notebook that only leads to others, by its name without an ending."""
    intro = (
        "# Notebooks\n\nIn the order in which they build on each other. [Words](words.ipynb) are explained "
        "in one place. `dl` is `import dietlab as dl`."
    )
    title, line, words, *_ = WORDS.read_text(encoding="utf-8").split("\n\n")
    return {
        "index": f"{intro}\n\n{table('')}",
        "words": f"{title}\n\n{line} [All notebooks](index.ipynb).\n\n{words}",
    }


def signpost(text: str) -> dict[str, Any]:
    """Returns a notebook of one text; like all, it carries what its outputs are of: here no code."""
    cell = {"cell_type": "markdown", "id": "text", "metadata": {}, "source": text.splitlines(keepends=True)}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"outputs_of": hashlib.sha256(b"").hexdigest()[:16]}
    metadata = {"kernelspec": kernel, "dietlab": about}
    return {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def written() -> dict[Path, str]:
    """Returns what each file should contain, by its path."""
    address = repository()
    notebooks = {stem: with_links(loaded(stem), links(stem, address)) for stem in order()}
    notebooks |= {stem: signpost(text) for stem, text in signposts().items()}
    found = {
        NOTEBOOKS / f"{stem}.ipynb": json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        for stem, notebook in notebooks.items()
    }
    return found | {TABLE: with_table(TABLE.read_text(encoding="utf-8"))}


def main() -> None:
    """Writes the lines of links, the table and the notebooks without code."""
    for path, text in written().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

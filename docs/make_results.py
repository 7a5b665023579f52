"""Writes ``docs/results.md``, ``docs/claims.md``, ``docs/search.md``, the tables of ``docs/pytorch.md``,
``docs/gpu.md`` and of the README, its sentence on GPUs, and pictures, from ``data``.

    python docs/make_results.py

Run it after a table joins ``data/results`` (``data/results/README.md`` says how). Pictures are drawn anew
only where their data changed, so that another version of matplotlib changes no file.
"""

from __future__ import annotations

from pathlib import Path

import gpu_picture
import gpu_text
from claims_page import claims_page
from model_table import END, START, model_table
from readme_table import readme_table, with_block
from results_index import read_index
from results_page import on_gpu, results_page
from search_page import search_page
from speedup_picture import DARK, LIGHT, curve_of, draw, is_drawn

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Writes every file whose text or data changed."""
    machines = read_index(ROOT / "data" / "results")
    (ROOT / "docs" / "results.md").write_text(results_page(machines), encoding="utf-8")
    (ROOT / "docs" / "claims.md").write_text(claims_page(ROOT / "data"), encoding="utf-8")
    page = search_page(ROOT / "docs", ROOT / "data")
    (ROOT / "docs" / "search.md").write_text(page, encoding="utf-8")
    pytorch = ROOT / "docs" / "pytorch.md"
    table = model_table(ROOT / "data" / "results")
    pytorch.write_text(with_block(pytorch.read_text(encoding="utf-8"), table, START, END), encoding="utf-8")
    readme = ROOT / "README.md"
    text = with_block(readme.read_text(encoding="utf-8"), readme_table(machines))
    text = with_block(text, gpu_text.gpu_sentence(machines), gpu_text.START, gpu_text.END)
    readme.write_text(text, encoding="utf-8")
    curve = curve_of(machines[0])
    for theme in (LIGHT, DARK):
        path = ROOT / "docs" / theme.file
        if not is_drawn(curve.fingerprint, path):
            draw(curve, theme, path)
    for machine in filter(lambda machine: on_gpu(machine.bench), machines):
        page = ROOT / "docs" / "gpu.md"
        text = page.read_text(encoding="utf-8")
        for block in gpu_text.page_blocks(ROOT / "data", machine):
            text = with_block(text, *block)
        page.write_text(text, encoding="utf-8")
        for theme in gpu_picture.THEMES:
            path = ROOT / "docs" / theme.file
            if not is_drawn(gpu_picture.fingerprint(gpu_picture.lines_of(machine)), path):
                gpu_picture.draw(machine, theme, path)


if __name__ == "__main__":
    main()

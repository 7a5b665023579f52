"""The text of ``docs/claims.md``: every claim of the paper with its value and ours, from recorded data."""

from __future__ import annotations

from pathlib import Path

from dietlab.lab.reproduce.findings import claims_table
from dietlab.lab.reproduce.paper import read_claims
from dietlab.view.pages.bench_text import markdown

INTRO = """# The paper's claims, and ours

Each line has what the DietCode paper and its authors' code report, on NVIDIA GPUs in float32 (a T4 with 16
sentences in a batch where no other is named), and what was measured here, on the processors that the column
*on* names. All values are times (x): above 1, what was tuned for all shapes at once, or padded locally, is
faster, or cheaper to tune. Means are geometric. *Method* says what differs from the paper's experiment
besides the processor, and which length gains least.

`python docs/make_results.py` writes this page from `data/paper` and `data/results`; [`dietlab
reproduce`](reproduce.md) makes such records, and this table, on your machine. Public material has no figures
of the paper's batched products by length, nor of its ablations.
"""


def claims_page(data: Path) -> str:
    """Returns the page as Markdown.

    Args:
        data: the folder ``data``.

    Raises:
        KeyError: if nobody says how a claim's value is found here.
    """
    table = claims_table(read_claims(data / "paper" / "claims.csv"), data / "results")
    return f"{INTRO}\n{markdown(*table)}\n"

"""The table of claims: what the paper reported, and beside it what was found in a folder of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dietlab.lab.reproduce.findings import FINDERS, Finding
from dietlab.lab.reproduce.paper import Claim
from dietlab.view.pages.bench_text import Table

HEADER = ("claim", "reported", "ours", "on", "method", "reached")


def claims_table(claims: Iterable[Claim], results: Path) -> Table:
    """Returns header and rows: every claim, with a row for each machine that measured it.

    Args:
        results: a folder of records, named as in ``data/results``.

    Raises:
        KeyError: if nobody says how a claim's value is found here.
    """
    return HEADER, [row for claim in claims for row in _rows(claim, [*FINDERS[claim.id](results)])]


def _rows(claim: Claim, findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    for number, found in enumerate(findings or [Finding("-", float("nan"), "not measured")]):
        first = number == 0
        yield (
            f"{claim.claim} ({claim.source})" if first else "",
            f"{claim.reported:g}x" if first else "",
            f"{found.value:.3f}x" if findings else "-",
            found.where,
            found.method,
            "" if not findings else "yes" if found.value >= claim.reported else "no",
        )

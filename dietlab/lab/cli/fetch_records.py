"""``dietlab fetch-records``: measurements that others published, read into records of ours."""

from __future__ import annotations

from pathlib import Path

import click

from dietlab.cli.options import json_option, show
from dietlab.lab.published.autoheuristic import ARCHIVES, LICENCE, REPOSITORY, fetch_autoheuristic
from dietlab.lab.published.records import Published

DEFAULT = "runs/autoheuristic"
"""The folder that is written to."""


@click.command("fetch-records")
@click.argument("name", type=click.Choice(["autoheuristic"]))
@click.option(
    "--from",
    "source",
    default="",
    metavar="FILE|URL",
    help="An archive, a text file or a folder that is here; the https address of an archive or, with a slash "
    "at its end, of their folder (default: the repository's).",
)
@click.option("--out", default=DEFAULT, show_default=True, type=click.Path(file_okay=False), help="A folder.")
@click.option("--gpu", "gpus", multiple=True, type=click.Choice(list(ARCHIVES)), help="Repeatable.")
@json_option
def fetch_records_command(name: str, source: str, out: str, gpus: tuple[str, ...], as_json: bool) -> None:
    """Fetch measurements on GPUs that others published.

    autoheuristic: some thirty Triton tiles and cuBLAS on thousands of shapes, the data behind PyTorch's
    AutoHeuristic. Its repository states no licence: the rows stay on this machine. Writes GPU.jsonl.gz; rows
    that are no result are counted with their reason.

    \b
    dietlab fetch-records autoheuristic
    dietlab fetch-records autoheuristic --from downloads/h100_mm.zip
    """
    named = [gpu for gpu in ARCHIVES if Path(source).name.startswith(gpu)]
    found = [fetch_autoheuristic(gpu, source, Path(out)) for gpu in gpus or named or ARCHIVES]
    show([_facts(one) for one in found], as_json, "\n".join(_text(one, out) for one in found))


def _facts(found: Published) -> dict[str, object]:
    return {
        "gpu": found.gpu,
        "records": len(found),
        "shapes": found.shapes,
        "operators": [str(operator) for operator in found.operators],
        "set_aside": dict(found.set_aside),
    }


def _text(found: Published, out: str) -> str:
    known = f"commit {found.origin.commit[:12]}" if found.origin.commit else "files of an unknown commit"
    aside = [f"  set aside: {count} rows, {reason}" for reason, count in found.set_aside]
    head = f"{Path(out) / found.gpu}.jsonl.gz: {len(found)} records of {found.shapes} shapes"
    return "\n".join([head, f"  from {REPOSITORY}, {known}; licence: {LICENCE}", *aside])

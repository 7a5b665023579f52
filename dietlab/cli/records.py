"""``dietlab records``: summarises, checks, merges and filters files of measurements, or writes tables."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from dietlab.base.cards import cell_text
from dietlab.base.errors import RecordError
from dietlab.base.files import reading
from dietlab.cli.commands import HelpfulGroup
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.recorded import recorded_file
from dietlab.measure import read_records, write_compressed
from dietlab.measure.metaschedule import TUNED, WORKLOADS, frame_metaschedule
from dietlab.measure.record import Status
from dietlab.measure.record_files import check_records, filter_records, merge_records, write_table
from dietlab.measure.store import RecordFile
from dietlab.view.pages.bench_text import markdown

FILES = click.argument("files", nargs=-1, required=True)

SECTIONS = 2
"""The number of sections of a file's card that the summary prints, from the first on: the fastest of each
shape, and failures."""


@click.group("records", cls=HelpfulGroup)
def records_group() -> None:
    """Summarise, check, merge and filter files of measurements.

    FILE is records.jsonl of a study, compressed or not (.jsonl.gz), the study's folder, or the name of a file
    that comes with dietlab: quickstart. If a file was cut off, its complete records count.

    \b
    dietlab records summary runs/x/records.jsonl
    dietlab records check runs/*/records.jsonl
    dietlab records filter quickstart --shape T=5 --status ok --out t5.jsonl.gz
    dietlab records table runs/x/records.jsonl --out records.parquet
    """


@records_group.command()
@FILES
def summary(files: tuple[str, ...]) -> None:
    """Summarise files: operator, processor, failures, and the fastest scheme of each shape."""
    for name in files:
        card = _read(name).card
        click.echo(f"{name}: {card.name}; {card.summary}")
        for section in card.sections[:SECTIONS]:
            listing = section.table()
            rows = [[cell_text(cell) for cell in listing.cells(item)] for item in listing.items]
            if rows:
                click.echo(f"\n{section.title}\n{markdown(listing.header, rows)}")


@records_group.command()
@FILES
@click.pass_context
def check(context: click.Context, files: tuple[str, ...]) -> None:
    """Look for doubtful records; the exit status is 1 if there are any.

    Doubtful are times beyond the processor's peak, blocks that differ by half, results without a time, equal
    records, and a file in which more than a quarter of the measurements failed.
    """
    found = 0
    for name in files:
        file = _read(name)
        with reading(RecordError, "records must be fit to be checked", name):
            doubts = check_records(file)
        found += len(doubts)
        click.echo(f"{name}: {len(file.records)} records, {len(doubts)} doubts")
        for doubt in doubts:
            click.echo(f"  {f'record {doubt.record}' if doubt.record else 'all'}: {doubt.reason}")
    context.exit(1 if found else 0)


@records_group.command()
@FILES
@click.option("--out", required=True, type=OUT_FILE, help="The file, .jsonl.gz.")
def merge(files: tuple[str, ...], out: str) -> None:
    """Join files of one operator and processor, in the order of their measurement."""
    _write(merge_records([_read(name) for name in files]), out)


@records_group.command("filter")
@click.argument("file")
@click.option("--status", "statuses", multiple=True, type=click.Choice(get_args(Status)), help="Repeatable.")
@click.option("--shape", "shapes", multiple=True, help="As in T=5 or T=5,N=768; repeatable.")
@click.option("--scheme", default="*", show_default=True, help="A pattern of keys, as in 14x32*.")
@click.option("--stage", "stages", multiple=True, help="Of tuning: search, decide; repeatable.")
@click.option("--out", required=True, type=OUT_FILE, help="The file, .jsonl.gz.")
def filter_command(
    file: str,
    statuses: tuple[str, ...],
    shapes: tuple[str, ...],
    scheme: str,
    stages: tuple[str, ...],
    out: str,
) -> None:
    """Keep the records that meet all conditions."""
    wanted = [_extents(text) for text in shapes]
    _write(filter_records(_read(file), statuses=statuses, shapes=wanted, schemes=scheme, stages=stages), out)


@records_group.command()
@click.argument("source")
@click.option("--out", required=True, type=OUT_FILE, help="A name with .parquet or .csv.")
def table(source: str, out: str) -> None:
    """Write records as a table, one row each, for pandas, DuckDB and others.

    SOURCE is a file of records, or a folder with a database of TVM's MetaSchedule.
    """
    folder = Path(source)
    database = any((folder / name).is_file() for name in (WORKLOADS, TUNED))
    frame = frame_metaschedule(folder) if database else _read(source).to_frame()
    write_table(frame, out)
    click.echo(f"{len(frame)} rows, {len(frame.columns)} columns: {out}")


def _read(name: str) -> RecordFile:
    return read_records(recorded_file(name))


def _write(file: RecordFile, out: str) -> None:
    if not out.endswith(".jsonl.gz"):
        raise RecordError("the file of merged or filtered records must be a .jsonl.gz", out)
    write_compressed(out, file.header, file.records)
    click.echo(f"{len(file.records)} records: {out}")


def _extents(text: str) -> dict[str, int]:
    try:
        return {name.strip(): int(extent) for name, extent in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise RecordError("a shape reads like T=5 or T=5,N=768", repr(text)) from None

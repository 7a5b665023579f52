"""``dietlab kit``: builds libraries here, measures them on a machine with a GPU, builds operators here."""

from __future__ import annotations

from pathlib import Path

import click

from dietlab.base.cards import bytes_text
from dietlab.base.errors import StudyError
from dietlab.cli.bench import LEFT_OVER, kept_state, seconds_option, state_option
from dietlab.cli.commands import HelpfulGroup
from dietlab.cli.options import hardware_option, processor
from dietlab.cli.telling import BUILDING, Telling, quiet_option
from dietlab.compare.study_manifest import RECORDS
from dietlab.compare.suites.deadline import Deadline
from dietlab.compare.suites.kit import build_measured, measure, pack
from dietlab.compare.suites.state import restore
from dietlab.compare.suites.suite import SUITES, suite_named
from dietlab.tuning import EFFORTS

MEASURED = f"*/{RECORDS}"
"""Files that show that a kit was measured in a folder."""


@click.group("kit", cls=HelpfulGroup)
def kit_group() -> None:
    """Bench on a machine without a compiler, in two visits.

    The first visit measures libraries that were built here. The second visit measures the operators that were
    chosen by the first visit's records. The other machine needs TVM's runtime only.

    \b
    dietlab kit pack --suite first-gpu --hardware h200 --out .gpukit    here
    dietlab kit measure .gpukit --out runs/gpu --state gpu.tar.gz       there
    dietlab kit build gpu.tar.gz --out .gpulib                          here
    dietlab bench --suite first-gpu --out .gpulib                       there
    """


@kit_group.command("pack")
@click.option("--suite", default="first-gpu", show_default=True, type=click.Choice(list(SUITES)))
@click.option("--only", default="", metavar="PATTERN", help="Tasks whose name holds this.")
@hardware_option
@click.option(
    "--candidates", default=64, show_default=True, type=click.IntRange(1), help="Libraries of each task."
)
@click.option("--scheme", "schemes", multiple=True, metavar="KEY", help="Also this one; may be repeated.")
@click.option("--effort", default="quick", show_default=True, type=click.Choice(list(EFFORTS)))
@click.option("--out", default=".gpukit", show_default=True, type=click.Path(file_okay=False))
@quiet_option
def pack_command(
    suite: str,
    only: str,
    hardware: str | None,
    candidates: int,
    schemes: tuple[str, ...],
    effort: str,
    out: str,
    quiet: bool,
) -> None:
    """Build the first round of each task's search into a folder.

    It needs the compiler and no GPU. An interrupted command goes on in the same folder.
    """
    chosen, target = suite_named(suite).only(only), processor(hardware, None)
    if target.kind != chosen.target:
        remedy = "Name a processor of that kind, as in --hardware h200, or another --suite."
        raise StudyError(f"the suite {suite} needs a processor of kind {chosen.target}", target.name, remedy)
    with Telling("kit", ("pack",), quiet) as telling:
        found = pack(
            chosen,
            target,
            Path(out),
            candidates=candidates,
            schemes=schemes,
            effort=effort,
            observers=telling.observers,
        )
    for name, ready in found.items():
        refused = sum(entry.failure is not None for entry in ready.entries)
        built = f"{len(ready.entries) - refused} libraries for {target.name}, {bytes_text(ready.bytes)}"
        click.echo(f"{name}: {built}; {refused} refused")


@kit_group.command("measure")
@click.argument("kit", type=click.Path(exists=True, file_okay=False))
@click.option("--out", default="runs/kit", show_default=True, type=click.Path(file_okay=False))
@seconds_option
@state_option
@quiet_option
def measure_command(kit: str, out: str, seconds: float | None, state: str | None, quiet: bool) -> None:
    """Check and time a kit's libraries on this machine.

    It needs no compiler. --out gets a study of each task; a killed run goes on with the same command.
    """
    folder, deadline = Path(out), Deadline(seconds)
    archives = kept_state(folder, state, MEASURED)
    with Telling("kit", ("measure",), quiet) as telling:
        left = measure(Path(kit), folder, observers=[*telling.observers, *archives], deadline=deadline)
    for archive in archives:
        archive.write()
    if left:
        click.echo(f"The time is up; {left} measurements are left. The same command goes on.")
        raise SystemExit(LEFT_OVER)


@kit_group.command("build")
@click.argument("state", type=click.Path(exists=True))
@click.option(
    "--out",
    default=".gpulib",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Folder for the studies, each with its library.",
)
@quiet_option
def build_command(state: str, out: str, quiet: bool) -> None:
    """Choose and build each operator from the measurements.

    STATE is the file of `dietlab kit measure --state`. It replaces the files of an earlier STATE in --out.
    The command needs the compiler and no GPU.
    """
    folder = Path(out)
    if not restore(Path(state), folder, None):
        raise StudyError("a kit's state must be a file", state, "`dietlab kit measure --state` writes it.")
    with Telling("kit", BUILDING, quiet) as telling:
        found = build_measured(folder, telling.observers)
    for name, built in found.items():
        click.echo(f"{name}: {built}")

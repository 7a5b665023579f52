"""``dietlab reproduce``: the paper's experiments on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from dietlab.base.errors import MissingDependencyError, require_names
from dietlab.cli.bench import LEFT_OVER
from dietlab.cli.names import words
from dietlab.cli.options import page_or_reason, shown
from dietlab.cli.telling import Telling, quiet_option
from dietlab.compare.suites.deadline import Deadline
from dietlab.lab.reproduce.paper import AMOUNTS
from dietlab.lab.reproduce.run import (
    Reproduction,
    begun,
    claims_text,
    reproduce,
    step_table,
    write_claims,
    write_reproduction,
)
from dietlab.lab.reproduce.steps import STEPS, Step
from dietlab.view.pages.bench_text import markdown
from dietlab.view.progress import duration

HELP = """Measure the paper's experiments here, and set its claims beside.

Each step is one experiment; together they make all records, all figures and one page. An
interrupted run, even a killed one, goes on at the next shape with the same command; --only may
differ from call to call.

\b
Steps, and about how long they take with effort quick and full:
{steps}
Efforts:
  smoke   tiny operators that nobody learns from: does everything run?
  quick   the paper's eight lengths, per-shape tuning with few trials: some 40 minutes
  full    256 trials for each length, longer timing, 40 lengths of BERT: what is recorded

\b
In --out:
  reproduce.html  the claims with the paper's values and ours, figures, tables; needs no network
  claims.md       the claims as a table
  figures/        the page's figures as pictures
  results/        the records, named as in data/results
  bench/, ...     studies and libraries; `dietlab report` and the others work in them

\b
dietlab reproduce
dietlab reproduce --only dense,local-padding
dietlab reproduce --effort full --threads 2 --out runs/full-2
dietlab reproduce --summary
"""

LINES = (
    f"{step.name} ({step.seconds['quick'] / 60:.0f} and {step.seconds['full'] / 60:.0f} min): {step.shows}"
    for step in STEPS.values()
)


@click.command(
    "reproduce",
    help=HELP.format(steps="\n".join(click.wrap_text(line, 96, "  ", "    ") for line in LINES)),
)
@shown("--effort", type=click.Choice(list(AMOUNTS)), default="quick", help="How much to measure.")
@shown("--out", default="runs/reproduce", type=click.Path(file_okay=False))
@shown("--threads", type=click.IntRange(1), default=1, help="Cores that operators use.")
@click.option("--only", default="", metavar="STEP[,STEP]", help=f"Out of {', '.join(STEPS)} (default: all).")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Stop before this many seconds are over; if something is left, the exit status is {LEFT_OVER}.",
)
@click.option("--summary", is_flag=True, help="Measure nothing: show what --out has so far.")
@quiet_option
def reproduce_command(
    effort: str, out: str, threads: int, only: str, seconds: float | None, summary: bool, quiet: bool
) -> None:
    """Runs the steps and shows the claims."""
    names, deadline = words(only), Deadline(seconds)
    require_names("steps of a reproduction", STEPS, names)
    work = Reproduction.open(out) if summary else _run(begun(out, effort, threads), names, deadline, quiet)
    write_claims(work)
    click.echo(f"{claims_text(work)}\n\n{markdown(*step_table(work))}\n")
    click.echo(page_or_reason(partial(write_reproduction, work)))
    states = {work.outcomes[name].state for name in names or STEPS if name in work.outcomes}
    if "stopped" in states and not summary:
        click.echo("The time is up. The same command goes on.")
        raise SystemExit(LEFT_OVER)
    if "failed" in states:
        raise SystemExit(1)


def _run(work: Reproduction, names: Sequence[str], deadline: Deadline, quiet: bool) -> Reproduction:
    """Announces the steps and how long they take, then runs them."""
    left = work.left(names)
    present = {step.name: step.seconds[work.effort] for step in left if not _reason(step)}
    with Telling("reproduce", present, quiet) as telling:
        for step in left:
            about = _reason(step) or f"about {duration(step.seconds[work.effort])}"
            telling.say(f"{step.name}: {about}")
        telling.say(f"{len(present)} steps, about {duration(sum(present.values()))} in all\n")
        return reproduce(work, names, observers=telling.observers, deadline=deadline)


def _reason(step: Step) -> str:
    """Returns why a step is absent on this machine; empty if it is not."""
    try:
        step.require()
    except MissingDependencyError as error:
        return f"absent, since {error}"
    return ""

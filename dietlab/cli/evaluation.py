"""``dietlab evaluate`` and ``dietlab report``: compare a library with others, and write its page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from dietlab.cli.names import import_here, words
from dietlab.cli.options import page_or_reason, parse_shapes, shapes_option
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.telling import Telling, evaluating, quiet_option
from dietlab.compare.lineup import contenders_for
from dietlab.compare.results import Report
from dietlab.compare.study import REPORT, Study
from dietlab.compare.target import evaluation_target
from dietlab.measure import CACHE_STATES
from dietlab.tuning import EFFORTS, effort_named
from dietlab.view.pages.report import render_text, write_html


@click.command("evaluate")
@click.argument("study", type=click.Path(exists=True))
@shapes_option("every")
@click.option(
    "--against",
    help=f"Contenders, of a CPU out of {', '.join(contenders_for('cpu'))}, or MODULE:NAME of your own; "
    f"each must be installed (default: those that are, of {', '.join(evaluation_target('cpu').DEFAULTS)}).",
)
@click.option(
    "--cache",
    "caches",
    default="rotating",
    show_default=True,
    help=f"One or more of {', '.join(CACHE_STATES)}.",
)
@click.option("--effort", type=click.Choice(list(EFFORTS)), help="How long to time (default: the study's).")
@click.option("--ansor-trials", type=click.IntRange(1), help="Trials a shape (default: the effort's).")
@click.option(
    "--ansor-seconds", type=click.FloatRange(0), help="Begin no further shape after this; 0 means all shapes."
)
@click.option("--json", "json_path", type=OUT_FILE, help="Also write the report here.")
@quiet_option
def evaluate_command(
    study: str,
    shapes: str,
    against: str | None,
    caches: str,
    effort: str | None,
    ansor_trials: int | None,
    ansor_seconds: float | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Time the library in turns with vendors and other tuners.

    AGAINST also takes per-shape tuning (ansor), one schedule for all shapes (largest-shape), and the best
    plan of the space for each shape (oracle).
    """
    opened = Study.open(study)
    chosen = effort_named(effort or opened.effort)
    if ansor_trials is not None:
        chosen = replace(chosen, ansor_trials=ansor_trials)
    if ansor_seconds is not None:
        chosen = replace(chosen, ansor_seconds=ansor_seconds or None)
    names = None if against is None else words(against)
    import_here(names or ())
    # Several dimensions have too many shapes: take those that it was tuned for.
    own = shapes == "every" and len(opened.workload.dims) > 1
    wanted = opened.shapes if own else parse_shapes(shapes, opened.workload, beyond=True)
    with Telling("evaluate", evaluating(names or ()), quiet) as telling:
        report = opened.evaluate(wanted, names, words(caches), chosen, telling.observers)
    click.echo(render_text(report))
    click.echo(save_report(report, opened.folder, json_path))
    telling.suggest(study)


def save_report(report: Report, folder: Path, json_path: str | None = None) -> str:
    """Writes the report and its page, unless the study's report holds more of the same library. Returns the
    page's path, or a sentence on why there is none.

    Raises:
        RecordError: if the report has no right result, or ``json_path`` holds more; no file is changed then.
    """
    kept = folder / REPORT
    more = report.lacks(kept)
    if not more:
        report.save(kept)
    if json_path and Path(json_path).resolve() != kept.resolve():
        report.save(json_path)
    if more:
        return f"{kept} stays: {more}. `--json FILE` writes this report to another file."
    return page_or_reason(partial(write_html, report, folder / "report.html"))


@click.command("report")
@click.argument("study", type=click.Path(exists=True))
@click.option("--html", type=OUT_FILE, help="Write the page here (default: in the study).")
def report_command(study: str, html: str | None) -> None:
    """Print the last evaluation's table and write its page."""
    opened = Study.open(study)
    report = opened.report()
    click.echo(render_text(report))
    page = partial(write_html, report, html or opened.folder / "report.html")
    click.echo(page() if html else page_or_reason(page))

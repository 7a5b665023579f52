"""A reproduction as one self-contained HTML page, as text, and its figures as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.files import write_whole
from dietlab.lab.reproduce.findings import claims_table
from dietlab.lab.reproduce.paper import read_claims
from dietlab.lab.reproduce.run import Outcome, Reproduction
from dietlab.lab.reproduce.steps import STEPS, Step
from dietlab.view.figures.results import plot_speedup
from dietlab.view.pages.bench_text import Table, contender_table, markdown, notes_of, study_table, who_table
from dietlab.view.pages.page import figure_markup, render_page
from dietlab.view.progress import duration

if TYPE_CHECKING:
    import plotly.graph_objects as go

PAGE, TEXT, FIGURES = "reproduce.html", "claims.md", "figures"
"""The files of a reproduction for readers."""

NOT_RUN = Outcome("not run")
STEP_HEADER = ("step", "state", "took", "estimate", "reason")


def render_reproduction(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> str:
    """Returns the page: the table of claims, what became of each step, and for each its claims, figures and
    tables."""
    return render_page(
        "reproduce.html.j2",
        f"The paper's experiments on {work.hardware.name}",
        lines=_about(work),
        claims=claims_table(read_claims(), work.results),
        steps=step_table(work, steps),
        sections=[_section(work, step) for step in steps.values()],
    )


def write_reproduction(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> Path:
    """Writes the page, and each of its figures as a picture; returns the page's path."""
    from dietlab.view.static.picture import picture

    target, home = work.folder / PAGE, work.folder / FIGURES
    write_whole(target, render_reproduction(work, steps))
    home.mkdir(exist_ok=True)
    for step in steps.values():
        for number, (_, figure) in enumerate(_figures(work, step)):
            write_whole(home / f"{step.name}-{number}.png", picture(figure))
    return target


def write_claims(work: Reproduction) -> Path:
    """Writes the table of claims as Markdown; returns its path."""
    target, table = work.folder / TEXT, claims_table(read_claims(), work.results)
    write_whole(target, "\n\n".join([*_about(work), markdown(*table)]) + "\n")
    return target


def claims_text(work: Reproduction) -> str:
    """Returns the table of claims for a terminal, without the methods."""
    header, rows = claims_table(read_claims(), work.results)
    shown = [
        [cell for name, cell in zip(header, row, strict=True) if name != "method"] for row in (header, *rows)
    ]
    return markdown(shown[0], shown[1:])


def step_table(work: Reproduction, steps: Mapping[str, Step] = STEPS) -> Table:
    """Returns each step with its state, the time that it took, its estimate, and why it is not done."""
    rows = []
    for name, step in steps.items():
        outcome = work.outcomes.get(name, NOT_RUN)
        took = duration(outcome.seconds) if name in work.outcomes else "-"
        rows.append((name, outcome.state, took, duration(step.seconds[work.effort]), outcome.reason))
    return STEP_HEADER, rows


def _about(work: Reproduction) -> list[str]:
    known = ", ".join(f"{name} {version}" for name, version in work.versions.items())
    used = work.hardware.limits.used(work.hardware.cores)
    return [f"{work.hardware.name}, {used}; effort {work.effort}; begun {work.started}; {known}"]


def _section(work: Reproduction, step: Step) -> dict[str, Any]:
    """Returns the part of the page on one step; ``reason`` says why it is not done."""
    table, outcome = step.table(work.results), work.outcomes.get(step.name, NOT_RUN)
    claims = [claim for claim in read_claims() if claim.experiment == step.name]
    tables = {
        "speedups": contender_table(table),
        "tuning": study_table(table),
        "contenders": who_table(table),
    }
    return {
        "name": step.name,
        "shows": step.shows,
        "reason": "" if outcome.state == "done" else ": ".join(filter(None, (outcome.state, outcome.reason))),
        "claims": claims_table(claims, work.results),
        "figures": [
            # Numbered: a name out of the records has no place in a script.
            (heading, figure_markup(figure, f"{step.name}-{number}"))
            for number, (heading, figure) in enumerate(_figures(work, step))
        ],
        "tables": [(heading, content) for heading, content in tables.items() if content[1]],
        "notes": notes_of(table),
    }


def _figures(work: Reproduction, step: Step) -> Iterator[tuple[str, go.Figure]]:
    """Yields figures with reported values first, then our speedups over every contender."""
    table = step.table(work.results)
    yield from step.beside(table)
    for report in table.reports:
        for cache in report.caches:
            where = f", {cache}" if len(report.caches) > 1 else ""
            heading = f"{report.name}: speedup over each contender{where}"
            figure = plot_speedup(table.report(report.name, report.threads), cache)
            figure.update_layout(title_text=heading)
            yield heading, figure

"""The README's table of results: four lines, a column for each machine and number of cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results_index import Machine
from results_text import target_of, value_of

from dietlab.base.errors import RecordError
from dietlab.compare.results import Criterion, Line, summarise
from dietlab.compare.results.criteria import CRITERIA, LONG, SHORTEST
from dietlab.view.pages.bench_text import markdown

START, END = "<!-- results:start -->", "<!-- results:end -->"
SUITE = "bert-cpu"
CACHES = ("rotating", "interleaved")
"""Cache states in a cell's order: weights from memory, then from the last-level cache."""
MISS = " ✗"
NOT_MEASURED = "-"


@dataclass(frozen=True)
class Question:
    """One line of the table: its name, and the lines of the summary of which the worst counts."""

    name: str
    criteria: tuple[Criterion, ...]


def _chosen(measure: str, statistic: str, *lengths: tuple[int, int]) -> tuple[Criterion, ...]:
    return tuple(
        c
        for c in CRITERIA
        if (c.measure, c.statistic) == (measure, statistic) and (not lengths or c.of.lengths in lengths)
    )


QUESTIONS = (
    Question("short calls, T <= 32", _chosen("prepacked", "geomean", SHORTEST)),
    Question("long calls, T = 129 to 2048", _chosen("prepacked", "geomean", LONG)),
    Question("the worst length of all", _chosen("prepacked", "worst")),
    Question("tuning of all six operators", _chosen("tuning", "total")),
)


def readme_table(machines: Sequence[Machine]) -> str:
    """Returns the table as Markdown, and below it each machine with the day of its measurement; of machines
    whose bench is the suite :data:`SUITE`."""
    machines = [machine for machine in machines if machine.bench.suite == SUITE]
    columns = [(machine, threads) for machine in machines for threads in machine.bench.threads]
    header = ["", "goal", *(f"{machine.name}, {_used(machine, threads)}" for machine, threads in columns)]
    rows = [
        [question.name, target_of(question.criteria[0]), *(_cell(question, *column) for column in columns)]
        for question in QUESTIONS
    ]
    measured = (f"{m.name}: {m.processor}, {m.results[0].measured.partition(',')[0]}" for m in machines)
    return f"{markdown(header, rows)}\n\n{'; '.join(measured)}."


def _used(machine: Machine, threads: int) -> str:
    return next(report.used for report in machine.bench.reports if report.threads == threads)


def _cell(question: Question, machine: Machine, threads: int) -> str:
    """``"1.37x / 1.10x ✗"``: from memory, from the last-level cache; a cross marks a value below its goal."""
    lines = [line for line in summarise(machine.bench, question.criteria) if line.threads == threads]
    return " / ".join(_values(lines)) or NOT_MEASURED


def _values(lines: Sequence[Line]) -> Iterator[str]:
    for cache in ("", *CACHES):
        found = [line for line in lines if line.cache == cache]
        if found:
            worst = min(found, key=lambda line: line.value)
            yield value_of(worst) + (MISS if worst.met is False else "")


def with_block(text: str, block: str, start: str = START, end: str = END) -> str:
    """Returns ``text`` with ``block`` between the two markers.

    Raises:
        RecordError: if the text has not each marker once, in order.
    """
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed) or start in after or end in after:
        raise RecordError("the page has a place for its table", f"{start} ... {end}", "Put both lines in.")
    return f"{before}{start}\n{block}\n{end}{after}"

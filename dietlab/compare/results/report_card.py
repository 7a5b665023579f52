"""A report's card in a notebook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dietlab.base.cards import Card, Fold, Listing, Quantity, counted
from dietlab.compare.results.first_calls import FIRST_HEADER, first_cells
from dietlab.compare.results.parts import judged, part_cells, part_header
from dietlab.compare.results.speedups import SUMMARY_HEADER, summary_cells

if TYPE_CHECKING:
    from dietlab.compare.results.report import Report


def report_card(report: Report) -> Card:
    """Returns the speedup over the best vendor, and as folds all tables."""
    rivals = [c for c in report.contenders if not c.absent and c.name != report.maker]
    facts = [counted(len({row.shape for row in report.rows}), "shape"), counted(len(rivals), "contender")]
    best = [line for line in report.summary if line.contender.startswith("best")]
    for line in (best or report.summary)[:1]:
        over = f"over {line.contender} ({line.cache} cache)"
        facts.append(Quantity(f"{line.geomean_speedup:.2f}x", over))
        facts.append(Quantity(f"{line.worst_speedup:.2f}x", "at worst"))
    if report.trust and report.trust.pairs > 1:
        facts.append(Quantity(f"{100 * report.trust.noise:.0f} %", "on one shape is noise"))
    sections = (
        Fold(f"Speedup of {report.maker}", partial(_speedups, report), unfolded=True),
        *([Fold("Speedup by layer", partial(_layers, report))] if len(report.dims) > 1 else []),
        *([Fold("First calls", partial(_first, report))] if report.first_calls else []),
        Fold("Quality of dispatch", partial(_qualities, report)),
        Fold("Contenders", partial(_who, report)),
        Fold("Notes", lambda: Listing(("note",), report.remarks, lambda note: (note,))),
    )
    return Card("Report", f"{report.title} on {report.processor_name}", tuple(facts), sections)


def _speedups(report: Report) -> Listing:
    return Listing(SUMMARY_HEADER, report.summary, summary_cells)


def _layers(report: Report) -> Listing:
    return Listing(part_header("layer"), judged(report.by_layer), part_cells)


def _first(report: Report) -> Listing:
    return Listing(FIRST_HEADER, report.first_calls, first_cells)


def _qualities(report: Report) -> Listing:
    items = [(cache, *item) for cache, found in report.quality.items() for item in found.items()]
    header = ("cache", "figure", "value")
    return Listing(header, items, lambda item: (item[0], item[1].replace("_", " "), item[2]))


def _who(report: Report) -> Listing:
    header = ("name", "kind", "version")
    return Listing(header, report.contenders, lambda c: (c.name, c.kind, c.absent or c.version))

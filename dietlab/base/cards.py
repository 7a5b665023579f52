"""Short texts and foldable cards: what a prompt and a notebook show of a value such as a space or a run.

A value supplies a :class:`Card` with its facts and sections; a section is computed only when it is shown.
Text and HTML show the same facts. The HTML has no script, inherits the colours of the page around it, and
is readable on pages that remove its style sheet.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

Cell = str | int | float | None

WHOLE = 20
"""The largest number of rows of a table that a card shows whole. All figures of a processor fit."""

ROWS = 8
"""The number of rows that a card shows of a table longer than :data:`WHOLE`."""

LONGEST = 140
"""The largest number of characters of a name or a cell. A compiler's message then leaves room for other
columns."""

STYLE = """
.dietlab-card{max-width:900px;margin:4px 0;border:1px solid var(--jp-border-color2,rgba(128,128,128,.4));\
border-radius:4px;font-size:13px;line-height:1.5;color:var(--jp-content-font-color1,inherit)}
.dietlab-card .head,.dietlab-card details>*{padding:4px 10px}
.dietlab-card .head{background:var(--jp-layout-color2,rgba(128,128,128,.12))}
.dietlab-card .facts{display:flex;flex-wrap:wrap;gap:4px 28px;margin:0;padding:6px 10px}
.dietlab-card .facts div{display:flex;flex-direction:column-reverse}
.dietlab-card .facts dt{font-weight:normal;font-size:11px;color:var(--jp-ui-font-color2,inherit)}
.dietlab-card .facts dd{margin:0;font-size:16px;font-variant-numeric:tabular-nums}
.dietlab-card details{border-top:1px solid var(--jp-border-color2,rgba(128,128,128,.4))}
.dietlab-card summary{cursor:pointer;display:list-item}
.dietlab-card .scroll{overflow-x:auto;padding-left:24px}
.dietlab-card table{border-collapse:collapse;margin:0;font-size:12px;color:inherit}
.dietlab-card th,.dietlab-card td{padding:1px 14px 1px 0;text-align:left!important;\
vertical-align:top;max-width:none;white-space:normal;background:none;border:0}
.dietlab-card th{font-weight:600}
.dietlab-card .n{text-align:right!important;white-space:nowrap;font-variant-numeric:tabular-nums}
.dietlab-card tbody tr{background:none!important}
""".strip()


class Quantity(NamedTuple):
    """A number with its unit, as text, and its label: ``Quantity("1,088", "micro-kernels")``."""

    value: str
    label: str

    def __str__(self) -> str:
        return f"{self.value} {self.label}"


@dataclass(frozen=True)
class Listing:
    """A table of a card: a header and a row per item. ``cells`` is called only for items that are shown."""

    header: tuple[str, ...]
    items: Sequence[Any]
    cells: Callable[[Any], Sequence[Cell]] = tuple

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of all items, as texts."""
        return [tuple(map(cell_text, self.cells(item))) for item in self.items]


@dataclass(frozen=True)
class Fold:
    """A foldable section of a card; ``table`` makes its content."""

    title: str
    table: Callable[[], Listing]
    unfolded: bool = False


@dataclass(frozen=True)
class Card:
    """A summary of a value: a head line with facts, and sections with small tables.

    Args:
        type: the name of the value's class.
        name: the value in words, such as its operator and processor.
        facts: the few numbers that matter.
        sections: the foldable sections, the most useful first; empty ones are left out.
    """

    type: str
    name: str
    facts: tuple[Quantity, ...]
    sections: tuple[Fold, ...] = ()

    @property
    def text(self) -> str:
        """One line, as in ``<Space dense T=1..128 N=2304 K=768 on AMD EPYC: 1,088 micro-kernels>``."""
        return f"<{self.type} {shortened(self.name, LONGEST)}: {self.summary}>"

    @property
    def summary(self) -> str:
        """The facts as a phrase: ``1,088 micro-kernels, 8,608 candidates rejected``."""
        return ", ".join(map(str, self.facts))

    @property
    def html(self) -> str:
        """The head with the facts, and a foldable table for each section."""
        facts = (
            f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for value, label in self.facts
        )
        name = escape(shortened(self.name, LONGEST))
        return (
            f'<div class="dietlab-card"><style>{STYLE}</style>'
            f'<div class="head"><b>{escape(self.type)}</b> {name}</div>'
            f'<dl class="facts">{"".join(facts)}</dl>{"".join(map(_section, self.sections))}</div>'
        )


class Carded(ABC):
    """Base of values that are shown as a card."""

    @property
    @abstractmethod
    def card(self) -> Card:
        """The card that a prompt and a notebook show."""

    def __repr__(self) -> str:
        return self.card.text

    def _repr_html_(self) -> str:
        return self.card.html


def seconds_text(seconds: float | None) -> str:
    """Formats a time with three digits and a fitting unit: ``83.1 us``, ``12.0 s``, ``18 min``."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds >= 600:
        return f"{seconds / 60:,.0f} min"
    scale, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    amount = seconds * scale
    return f"{amount:.{0 if amount >= 100 else 1 if amount >= 10 else 2}f} {unit}"


def share_text(share: float | None) -> str:
    """Formats a share (0 to 1) in percent: ``12.5 %``."""
    return "" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def bytes_text(count: float) -> str:
    """Formats a size in bytes, KiB or MiB: ``32 KiB``."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.0f} bytes"


def counted(count: int, noun: str) -> Quantity:
    """Formats a count with its noun: ``1 shape``, ``1,088 micro-kernels``, ``4 libraries``."""
    several = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return Quantity(f"{count:,}", noun if count == 1 else several)


def shortened(text: str, length: int) -> str:
    """Shortens a text to at most ``length`` characters: the end of a longer one becomes ``...``."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _section(section: Fold) -> str:
    table = section.table()
    count = len(table.items)
    shown = count if count <= WHOLE else ROWS
    rows = [table.cells(item) for item in table.items[:shown]]
    if not rows:
        return ""
    head = "".join(
        _cell(name, "th", numeric=any(isinstance(cell, int | float) for cell in column))
        for name, column in zip(table.header, zip(*rows, strict=True), strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if count > shown:
        body += f'<tr><td colspan="{len(table.header)}">... {count - shown:,} more</td></tr>'
    return (
        f"<details{' open' if section.unfolded else ''}><summary>{escape(section.title)}</summary>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        "</details>"
    )


def _cell(value: Cell, tag: str = "td", numeric: bool = False) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    look = ' class="n"' if number or numeric else ""
    return f"<{tag}{look}>{escape(shortened(cell_text(value), LONGEST))}</{tag}>"


def cell_text(value: Cell) -> str:
    """Formats a cell of a card: integers with commas, other numbers with four digits, None as an empty
    text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value

"""Numbers as cards that wrap, and controls in labelled groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from dietlab.view.lab import lab_imports

with lab_imports("explorers"):
    import ipywidgets

CARDS = "display:flex;flex-wrap:wrap;gap:8px;padding:4px 0;line-height:1.35"
"""The style of a row of cards, which wraps in a narrow cell. The style is in the HTML itself: a busy page may
get its style sheet late."""

CARD = (
    "flex:1 1 auto;min-width:7em;max-width:100%;box-sizing:border-box;padding:5px 12px 6px;border-radius:6px;"
    "border:1px solid var(--jp-border-color2,#bbb);background:var(--jp-layout-color1,transparent);"
    "overflow-wrap:anywhere"
)
LABEL = "font-size:11px;color:var(--jp-ui-font-color1,inherit);opacity:0.8"
VALUE = "font-size:18px;font-weight:600;font-variant-numeric:tabular-nums"
SENTENCE = "font-size:13px;font-weight:600;line-height:1.9"
DETAIL = "font-size:12px;font-weight:400"

LONG = 16
"""The least number of characters of a value that is set smaller: a sentence is no headline."""

COLUMN, GAP = 280, 12
"""The least width of a control and the space between two, in pixels: a label, a track and a readout fit."""

STACKED = 3
"""The most controls in one column of a group; more controls get a second column."""


def cards_html(numbers: Mapping[str, str]) -> str:
    """Returns a card for each number: its name small, its value large, and what follows the value (a unit or
    a remark in brackets) smaller beside it.

    Args:
        numbers: the values with their units, by name, as in ``{"waste": "3.1 %"}``; plain text.
    """
    cells = (
        f"<div style='{CARD}'><div style='{LABEL}'>{escape(name)}</div>{_value_html(value)}</div>"
        for name, value in numbers.items()
    )
    return f"<div class='dietlab-cards' style='{CARDS}'>{''.join(cells)}</div>"


def _value_html(value: str) -> str:
    """Returns the value in large type; in a long value that begins with a number, the words are small."""
    if len(value) < LONG:
        return f"<div style='{VALUE}'><b>{escape(value)}</b></div>"
    number, _, words = value.partition(" ")
    if not number[:1].isdigit() or not words:
        return f"<div style='{SENTENCE}'><b>{escape(value)}</b></div>"
    small = f"<span style='{DETAIL}'>{escape(words)}</span>"
    return f"<div style='{VALUE}'><b>{escape(number)}</b> {small}</div>"


def grouped(
    controls: Mapping[str, Any],
    groups: Mapping[str, Sequence[str]] | None,
    per_row: int,
    wide: Collection[str] = (),
) -> list[Any]:
    """Returns the widgets that hold the controls: labelled groups side by side, which wrap where there is
    little room. Without groups, returns rows of at most ``per_row`` controls.

    Args:
        groups: the names of controls by the label of their group; other controls are below the groups.
        per_row: the most controls side by side outside of groups.
        wide: the names of controls with long texts; a group with such a control has a row to itself.
    """
    named = {label: [name for name in names if name in controls] for label, names in (groups or {}).items()}
    named = {label: names for label, names in named.items() if names}
    inside = {name for names in named.values() for name in names}
    rest = [name for name in controls if name not in inside]
    rows = []
    if named:
        boxes = [_group(label, [controls[name] for name in names]) for label, names in named.items()]
        for box, names in zip(boxes, named.values(), strict=True):
            for name in set(names) & {*wide}:
                box.layout.flex, controls[name].layout.max_width = "1 1 100%", "none"
        rows.append(_dressed(ipywidgets.Box(boxes, layout=ipywidgets.Layout(flex_flow="row wrap")), "groups"))
    if rest:
        rows.append(_grid([controls[name] for name in rest], per_row))
    return rows


def _group(label: str, controls: Sequence[Any]) -> Any:
    columns = -(-len(controls) // STACKED)
    layout = ipywidgets.Layout(flex=f"{columns} 1 {columns * COLUMN}px", min_width="0", margin="0 8px 0 0")
    title = _dressed(ipywidgets.HTML(f"<b>{escape(label)}</b>"), "group-label")
    return _dressed(ipywidgets.VBox([title, _grid(controls, columns)], layout=layout), "group")


def _grid(controls: Sequence[Any], columns: int) -> Any:
    """Returns controls in at most ``columns`` columns, with labels of equal width, so that their tracks
    align."""
    words = max((len(getattr(control, "description", "")) for control in controls), default=0)
    for control in controls:
        if hasattr(control.style, "description_width"):
            control.style.description_width = f"{words}ch"
        control.layout.width, control.layout.max_width = "auto", f"{2 * COLUMN}px"
    most = f"calc({100 / columns:.2f}% - {GAP}px)"
    template = f"repeat(auto-fill, minmax(max({COLUMN}px, {most}), 1fr))"
    layout = ipywidgets.Layout(grid_template_columns=template, grid_gap=f"0 {GAP}px")
    return _dressed(ipywidgets.GridBox(list(controls), layout=layout), "controls")


def _dressed(widget: Any, name: str) -> Any:
    widget.add_class(f"dietlab-{name}")
    return widget

"""The funnel of limits: the micro-kernels that fit a processor, why others do not, and the effect of another
processor."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import SpaceError
from dietlab.machine import Hardware
from dietlab.machine.target import Knob, hardware_target
from dietlab.problem import Workload
from dietlab.scheme import Cover, Scheme, Space, build_space, edges_of
from dietlab.view.figures.base import hovering, new_figure
from dietlab.view.theme import PALETTE
from dietlab.view.widgets.arguments import hardware_of, workload_of
from dietlab.view.widgets.controls import Control, OneOf

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.compare.study import Study
    from dietlab.view.widgets.explorer import Explorer

LEFT, REJECTED = PALETTE["needed"], PALETTE["wasted"]
LABEL_CHARACTERS = 44
REMEMBERED = 64
"""The most spaces that an explorer keeps: a slider that goes back needs no new space."""

PLANS = "Whether plans may cover a shape with tiles of several heights, or pad it as the paper's do"
COVERS: tuple[tuple[str, Cover], ...] = (("composed", "composed"), ("padded (paper)", "paper"))


def figure_of(hardware: Hardware, knob: Knob) -> int:
    """Returns the figure of a processor that a knob varies."""
    return int(getattr(hardware if knob.field == "cores" else hardware.limits, knob.field))


def knob_words(knob: Knob, value: int) -> str:
    """Returns a value of a knob in words."""
    return amount(value, "bytes") if knob.field.endswith("_bytes") else f"{value:,}"


def amount(value: float, unit: str) -> str:
    """Returns a number with its unit; bytes in KiB or MiB (1024 and 1024 * 1024 bytes) from 1024 on."""
    if unit != "bytes" or value < 1 << 10:
        return f"{value:,.0f} {unit}"
    return f"{value / (1 << 10):g} KiB" if value < 1 << 20 else f"{value / (1 << 20):g} MiB"


def frame_funnel(space: Space) -> pd.DataFrame:
    """Returns one row for each limit, in the order of checking: the number of candidates that it rejects, the
    number that are left, the bound with its unit, and the candidate that misses the bound by least.

    The first row has all candidates; the last one's ``left`` is the size of the space. Limits that reject
    nothing are left out.

    Args:
        space: the space as :func:`dietlab.build_space` returns it, with the candidates that its limits
            rejected.
    """
    import pandas as pd

    left = len(space) + sum(rejection.count for rejection in space.rejected)
    rows: list[tuple[Any, ...]] = [("all candidates", left, 0, None, "", "", None)]
    for r in space.rejected:
        left -= r.count
        value = float(r.nearest_value)
        rows.append((r.reason, left, r.count, float(r.most), r.unit, r.nearest_miss.key, value))
    return pd.DataFrame(
        rows, columns=["limit", "left", "rejected", "most", "unit", "nearest_miss", "nearest_value"]
    )


def plot_funnel(space: Space, template: str | None = None) -> go.Figure:
    """Draws a bar for each limit: the candidates that are left after it, the candidates that it rejects, and
    beside them the nearest miss.

    Args:
        space: as in :func:`frame_funnel`.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).
    """
    frame = frame_funnel(space)
    total = int(frame["left"].iloc[0])
    title = f"{len(space):,} of {total:,} candidates fit {space.hardware.name}"
    figure = new_figure(frame, title, template)
    rows = list(frame.itertuples())
    labels = [_label(row) for row in rows]
    figure.add_bar(
        x=frame["left"],
        y=labels,
        orientation="h",
        name="left",
        marker={"color": LEFT},
        **hovering(frame, partial(_left_hover, total)),
    )
    figure.add_bar(
        x=frame["rejected"],
        y=labels,
        orientation="h",
        name="rejected by this limit",
        marker={"color": REJECTED},
        **hovering(frame, _rejected_hover),
    )
    figure.add_scatter(
        x=frame["left"] + frame["rejected"],
        y=labels,
        mode="text",
        textposition="middle right",
        text=[_beside(row) for row in rows],
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.update_layout(
        barmode="stack",
        height=130 + 56 * len(rows),
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin_t=80,
    )
    # Room for the words beside the bars.
    figure.update_xaxes(title_text="candidates (count)", range=[0, 1.75 * total])
    down = {"autorange": "reversed", "automargin": True, "showgrid": False}
    figure.update_yaxes(title_text="limit, with its bound", **down)
    return figure


def _label(row: Any) -> str:
    bound = f" (at most {amount(row.most, row.unit)})" if row.unit else ""
    return "<br>".join(escape(line) for line in wrap(row.limit + bound, LABEL_CHARACTERS))


def _beside(row: Any) -> str:
    if not row.unit:
        return f" {row.left:,}"
    value = escape(amount(row.nearest_value, row.unit))
    counts = f" {row.left:,} left, {row.rejected:,} rejected"
    return f"{counts}<br> nearest miss: {value}<br> ({escape(row.nearest_miss)})"


def _left_hover(total: int, row: Any) -> str:
    behind = f"<br>behind the limit: {escape(row.limit)}" if row.unit else ""
    return f"<b>{row.left:,} of {total:,} candidates are left</b>{behind}"


def _rejected_hover(row: Any) -> str:
    if not row.unit:
        return ""
    return (
        f"<b>{row.rejected:,} candidates are rejected here</b><br>{escape(row.limit)}"
        f"<br>at most {escape(amount(row.most, row.unit))}; nearest miss {escape(row.nearest_miss)}"
        f" with {escape(amount(row.nearest_value, row.unit))}"
    )


# --- the explorer -----------------------------------------------------------------------------


def space_explorer(workload: Workload | Study, hardware: Hardware | Study | str) -> Explorer:
    """Shows the schemes that fit, and why others do not. The limits of the processor are sliders: what if it
    had twice the cache?

    Sliders follow the kind of the processor (:data:`KNOBS`). ``explorer.frame`` is
    :func:`frame_funnel` of what is shown. Where nothing fits, a sentence says so.

    Args:
        workload: the operator whose micro-kernels are counted, or a study of it.
        hardware: the real processor, the name of a preset, or a study on the processor. The sliders start
            with its limits.

    Raises:
        WorkloadError: if ``workload`` is neither an operator nor a study.
        HardwareError: if ``hardware`` is no processor, or no preset has the name.
    """
    return _explorer(workload_of(workload), hardware_of(hardware))


def _explorer(workload: Workload, hardware: Hardware) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    @lru_cache(maxsize=REMEMBERED)
    def built(chip: Hardware, cover: Cover) -> Space:
        return build_space(workload, chip, edges_of(cover, workload, chip))

    def really(cover: Cover) -> frozenset[Scheme]:
        try:
            return frozenset(built(hardware, cover))
        except SpaceError:
            return frozenset()

    def draw(cover: Cover, **turned: int) -> Drawn:
        chip = _turned(hardware, turned)
        space, real = built(chip, cover), really(cover)
        frame = frame_funnel(space)
        largest = max(space.micro_kernels, key=lambda kernel: kernel.rows * kernel.cols)
        numbers = {
            "schemes that fit": f"{len(space):,}",
            "of candidates": f"{frame['left'].iloc[0]:,}",
            "on the real processor": f"{len(real):,}",
            "largest tile": f"{largest.rows} x {largest.cols} outputs",
        }
        return Drawn(plot_funnel(space), frame, numbers, _what_if(hardware, chip, space, real))

    controls = _controls(hardware)
    groups = {"Hardware": [name for name in controls if name != "cover"], "Plans": ["cover"]}
    return Explorer(draw, controls, groups=groups, opener="dl.space_explorer(workload, hardware)")


def _turned(hardware: Hardware, values: dict[str, Any]) -> Hardware:
    """Returns the processor with the sliders' values; if these are the real ones, the processor itself."""
    limits = {name: value for name, value in values.items() if name != "cores"}
    chip = replace(hardware, cores=values["cores"], limits=replace(hardware.limits, **limits))
    return chip if chip == hardware else replace(chip, name=f"{hardware.name}, changed")


def _what_if(hardware: Hardware, chip: Hardware, space: Space, real: frozenset[Scheme]) -> str:
    """Returns a sentence on how the changed limits change the space."""
    figures = [(k, figure_of(chip, k), figure_of(hardware, k)) for k in hardware_target(hardware.kind).KNOBS]
    changes = ", ".join(
        f"{knob.label} {knob_words(knob, new)} instead of {knob_words(knob, old)}"
        for knob, new, old in figures
        if new != old
    )
    if not changes:
        return "These are the real limits. What would another processor change?"
    gained, lost = len(set(space) - real), len(real - set(space))
    if not gained and not lost:
        return f"With {changes}: exactly the same schemes fit."
    return f"With {changes}: {gained:,} more schemes fit, {lost:,} fit no longer."


def _controls(hardware: Hardware) -> dict[str, Control]:
    knobs = hardware_target(hardware.kind).KNOBS
    sliders = {knob.field: _slider(knob, figure_of(hardware, knob)) for knob in knobs}
    return {**sliders, "cover": OneOf("composed", COVERS, label="plans", tooltip=PLANS)}


def _slider(knob: Knob, real: int) -> OneOf:
    options = [(knob_words(knob, value), value) for value in knob.values(real)]
    unit = "" if knob.field.endswith("_bytes") else " (a count)"
    words = f"What if {knob.label} were another{unit}? The real value: {knob_words(knob, real)}"
    return OneOf(real, options, slider=True, label=knob.label, tooltip=words)

"""The sources of a speedup explorer: tables, the settings in them, and several settings in one figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.study import Study
from dietlab.view.figures.base import hovering
from dietlab.view.figures.shape_map import frame_map
from dietlab.view.figures.speedup import frame_against
from dietlab.view.theme import accented, marks
from dietlab.view.widgets.arguments import Source, read_source
from dietlab.view.widgets.controls import Control, SomeOf

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Setting:
    """The origin of a report: the processor's name, the workload's name, the number of threads, and in words
    what a call uses (cores, or one GPU)."""

    hardware: str
    workload: str
    threads: int
    used: str

    def __str__(self) -> str:
        return f"{self.hardware}, {self.workload}, {self.used}"


@dataclass(frozen=True)
class Chosen:
    """The values of the dropdowns, and the options of each dropdown at these values.

    ``whole`` is the report of the setting; ``report`` is its part for the chosen layer. If one dimension is
    dynamic, both are the same and ``layer`` is empty."""

    setting: Setting
    whole: Report
    report: Report
    layer: Mapping[str, int]
    show: str
    cache: str
    contender: str
    shape: str
    frame: pd.DataFrame
    options: Mapping[str, Sequence[Any]]

    @property
    def row(self) -> Any:
        """The chosen shape's row of ``frame``; None if there is none."""
        return next((row for row in self.frame.itertuples() if row.shape == self.shape), None)

    @property
    def map(self) -> pd.DataFrame:
        """The speedups over the contender by length and layer."""
        return frame_map(self.whole, contender=self.contender, cache=self.cache)


def loaded_tables(table: Source | Sequence[Source]) -> tuple[list[ResultTable | Report], list[str]]:
    """Returns two values: the sources, read from paths if necessary, and a sentence on each source that
    cannot be read. If the only source cannot be read, this is an error."""
    if isinstance(table, (ResultTable, Report, Study, str, Path)) or not isinstance(table, Iterable):
        return [read_source(table)], []
    loaded: list[ResultTable | Report] = []
    left_out: list[str] = []
    for source in table:
        try:
            loaded.append(read_source(source))
        except DietlabError as error:
            left_out.append(f"Left out: {error}")
    return loaded, left_out


def settings_beside(reports: Mapping[Setting, Report]) -> dict[str, Control]:
    """Returns the control for settings drawn in addition to the chosen one; empty if there is only one
    setting."""
    if len(reports) < 2:
        return {}
    options = [(str(setting), setting) for setting in reports]
    words = "Other settings whose speedups are drawn over these (Ctrl and a click choose several)"
    return {"beside": SomeOf((), options, label="beside", tooltip=words)}


def overlay(
    figure: go.Figure, choice: Chosen, reports: Mapping[Setting, Report], beside: Sequence[Setting]
) -> list[str]:
    """Draws the speedups of other settings over those of the chosen setting. Returns a sentence on each
    setting without speedups."""
    said = []
    for number, setting in enumerate(s for s in beside if s != choice.setting):
        name, report = str(setting), reports[setting]
        if report.dims != choice.report.dims or len(report.dims) > 1:
            said.append(f"{name}: its shapes are along other dimensions.")
            continue
        frame = frame_against(report, choice.contender, choice.cache)
        if frame.empty:
            said.append(f"{name}: {report.maker} was not compared with {choice.contender} there.")
            continue
        style = accented(number)
        figure.add_scatter(
            x=frame[report.dims[0]],
            y=frame["speedup"],
            mode="lines+markers",
            name=escape(f"{report.maker}: {name}"),
            line=style.line,
            marker={"symbol": marks(style.symbol, frame["held_out"]), "size": 7, "color": style.colour},
            **hovering(frame, partial(_hover, report.maker, name)),
            showlegend=True,
        )
        figure.update_layout(showlegend=True)
    return said


def _hover(maker: str, setting: str, row: Any) -> str:
    return f"<b>{escape(maker)}: {row.speedup:.2f} times</b><br>{escape(row.shape)}, {escape(setting)}"

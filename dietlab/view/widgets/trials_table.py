"""A table of a run's trials that sorts, filters and pages; a click on a row chooses its scheme."""

from __future__ import annotations

from html import escape
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, RecordError
from dietlab.view.lab import lab_imports
from dietlab.view.widgets.arguments import RunSource, choice_of, run_of
from dietlab.view.widgets.choice import Choice
from dietlab.view.widgets.table_filter import rows_that_fit

with lab_imports("tables of trials"):
    import anywidget
    import ipywidgets
    import traitlets

if TYPE_CHECKING:
    import pandas as pd

PAGE_ROWS = 15
"""The number of rows of a page: with the controls they fit a screen of 768 pixels."""
HIDDEN = ("compile_seconds", "verify_seconds", "measure_seconds", "at", "asked_by", "cached_seconds")
"""The columns that conditions may name but that the table does not show: it would be wider than a page."""
EXAMPLE = "8x32, or rows >= 8 and T == 64"
AS_TAKEN = "record"
ALWAYS = (AS_TAKEN, "scheme", "status", "seconds", "gflops")
"""The columns that are always shown. Another column with the same value in all trials goes into a
sentence."""
UNITS = {"seconds": ("us", 1e6), "gflops": ("GFLOP/s", 1.0), "spread": ("%", 100.0)}
"""The displayed unit of a column, and the factor from the table's unit to it."""


class TableModel(ipywidgets.Widget):  # type: ignore[misc]  # ipywidgets has no types
    """The state that a table and its view exchange: ``shown`` (columns, rows, the place of the chosen row,
    the column that sorts the rows) and ``asked`` (a click on a header or on a row)."""

    shown = traitlets.Dict().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)


class TableView(anywidget.AnyWidget):
    """The view of one page of rows in the browser."""

    _esm = Path(__file__).parent / "trials_table.js"
    _css = Path(__file__).parent / "widgets.css"
    model = traitlets.Instance(TableModel).tag(sync=True, **ipywidgets.widget_serialization)


class TrialsTable(ipywidgets.VBox):  # type: ignore[misc]
    """A table of trials with its controls; :func:`trials_table` makes one.

    Args:
        title: a text above the table that says what was tuned.

    Attributes:
        controls: ``filter``, ``sort``, ``descending`` and ``page``: set ``table.controls["page"].value``.
        frame: all rows that fit the filter, sorted.
        choice: the scheme that is chosen.
    """

    def __init__(self, frame: pd.DataFrame, title: str, choice: Choice) -> None:
        self._whole, self._title, self.choice = frame, title, choice
        self.frame = frame
        self._same = _same(frame)
        style = {"description_width": "initial"}
        self.controls = {
            "filter": ipywidgets.Text(description="filter", placeholder=EXAMPLE, style=style),
            "sort": ipywidgets.Dropdown(options=[*frame], value=AS_TAKEN, description="sort", style=style),
            "descending": ipywidgets.Checkbox(description="descending", indent=False),
            "page": ipywidgets.BoundedIntText(1, 1, 1, description="page", style=style),
        }
        self._words = ipywidgets.HTML()
        self.model = TableModel()
        for name in ("filter", "sort", "descending"):
            self.controls[name].observe(self._rearranged, "value")
        self.controls["page"].observe(self._show, "value")
        self.model.observe(self._asked, "asked")
        choice.observe(self._chosen, "key")
        row = ipywidgets.HBox([*self.controls.values()], layout=ipywidgets.Layout(flex_flow="row wrap"))
        super().__init__([row, self._words, TableView(model=self.model)])
        self.add_class("dietlab")
        self._rearranged(None)

    @property
    def note(self) -> str:
        """The sentence above the table: how many rows fit, or what is wrong with the filter (HTML)."""
        return str(self._words.value)

    def _rearranged(self, _: Any) -> None:
        """Filters and sorts anew. A condition that cannot be read leaves the rows as they were."""
        values = {name: control.value for name, control in self.controls.items()}
        problem = ""
        try:
            fitting = self._whole[rows_that_fit(self._whole, values["filter"])]
        except DietlabError as error:
            fitting, problem = self.frame, str(error)
        self.frame = fitting.sort_values(
            values["sort"], ascending=not values["descending"], kind="stable", na_position="last"
        )
        pages = max(1, ceil(len(self.frame) / PAGE_ROWS))
        self.controls["page"].max = pages
        found = f"{len(self.frame):,} of {len(self._whole):,} trials on {pages:,} page{'s' * (pages > 1)}"
        same = "".join(f", {_head(name)} {_cell(name, value)}" for name, value in self._same.items())
        words = f"<b>{escape(self._title)}</b>: {found}."
        words += escape(f" In all of them: {same[2:]}.") if same else ""
        self._words.value = f"{words} <span>{escape(problem)}</span>" if problem else words
        if self.controls["page"].value != 1:
            self.controls["page"].value = 1  # shows it, too
        else:
            self._show(None)

    def _show(self, _: Any) -> None:
        first = (self.controls["page"].value - 1) * PAGE_ROWS
        hidden = [*HIDDEN, *self._same]
        shown = self.frame.iloc[first : first + PAGE_ROWS].drop(columns=hidden, errors="ignore")
        self.model.shown = {
            "columns": [[name, _head(name)] for name in shown],
            "rows": [
                [_cell(name, value) for name, value in zip(shown, row, strict=True)]
                for row in shown.itertuples(index=False)
            ],
            "schemes": shown["scheme"].astype(str).tolist(),
            "chosen": self.choice.key,
            "sort": self.controls["sort"].value,
            "descending": self.controls["descending"].value,
        }

    def _asked(self, change: Any) -> None:
        """Sorts by a clicked header (a second click reverses the order), or chooses the scheme of a clicked
        row."""
        asked, sort = change["new"], self.controls["sort"]
        if asked.get("sort") in self._whole:
            again = asked["sort"] == sort.value
            self.controls["descending"].value = again and not self.controls["descending"].value
            sort.value = asked["sort"]
        if asked.get("scheme") in set(self._whole["scheme"]):
            self.choice.choose(asked["scheme"])

    def _chosen(self, _: Any) -> None:
        """Turns to the first page with the scheme that was chosen, unless this one has it."""
        if self.choice.key not in self.model.shown.get("schemes", ()):
            places = self.frame["scheme"].eq(self.choice.key).to_numpy().nonzero()[0]
            if len(places):
                self.controls["page"].value = 1 + int(places[0]) // PAGE_ROWS
        self._show(None)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        data = super()._repr_mimebundle_(**options)
        page = self.frame.head(PAGE_ROWS).drop(columns=list(HIDDEN), errors="ignore")
        return {**data, "text/html": page.to_html(index=False), "text/plain": page.to_string()}, {}


def trials_table(run: RunSource, choice: Choice | None = None) -> TrialsTable:
    """Shows every trial of a run in a table: click on a header to sort, on a row to choose its scheme.

    The filter is a part of a key (``8x32``) or a condition on columns (``rows >= 8 and T == 64``, ``status !=
    "ok"``, ``gflops > 100 or order == "is"``). ``table.frame`` has the fitting rows of
    :meth:`dietlab.TuningRun.to_frame`, sorted.

    Args:
        run: a tuning run with a record, or a study that has one.
        choice: a choice shared with other widgets, which then show the scheme of the chosen row.

    Raises:
        RecordError: if ``run`` is neither a tuning run nor a study, or has no record.
    """
    known, linked = run_of(run), choice_of(choice)
    if not known.records:
        raise RecordError("a table of trials needs records", "none", "Tune with more trials.")
    return TrialsTable(known.to_frame(), str(known.space.workload), linked or Choice())


def _same(frame: pd.DataFrame) -> dict[str, Any]:
    """Returns, for each column with the same value in all trials, this value; empty for a single trial."""
    if len(frame) < 2:
        return {}
    names = [name for name in frame if name not in (*ALWAYS, *HIDDEN)]
    return {name: frame[name].iloc[0] for name in names if frame[name].astype(str).nunique() == 1}


def _head(name: str) -> str:
    return f"{name.replace('_', ' ')} ({UNITS[name][0]})" if name in UNITS else name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    """Returns a value as the table shows it; nothing where it is missing."""
    if value is None or value != value or str(value) in ("<NA>", "NaT"):
        return ""
    if name in UNITS:
        return f"{UNITS[name][1] * value:,.1f}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)

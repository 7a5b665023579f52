"""Parts of the tuning panel: figures, bars, buttons, its place in the notebook, and its pace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any
from uuid import uuid4

from dietlab.base.background import BackgroundRun
from dietlab.view.figures.tuning import frame_phases
from dietlab.view.progress import StageClock, describe
from dietlab.view.widgets import panel_plots
from dietlab.view.widgets.cards import cards_html
from dietlab.view.widgets.export import FileButtons
from dietlab.view.widgets.live import LiveFigure
from dietlab.view.widgets.panel_state import TuningState

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

Clock = Callable[[], float]

COLUMNS = "repeat(auto-fit, minmax(max(340px, 40%), 1fr))"
"""Two figures side by side where there is room, so that four fill two rows."""
LOW = "outcomes"
"""The figure that is so low that it stands below the others, over the whole width."""


class DrawingPace:
    """Says when something may be done again: at most every ``interval`` seconds, and so rarely that it
    takes at most ``share`` of the time, however slow it is.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, interval: float, share: float, clock: Clock) -> None:
        self._interval, self._share, self._clock = interval, share, clock
        self._next = -float("inf")

    @property
    def due(self) -> bool:
        return self._clock() >= self._next

    def take(self, work: Callable[[], None]) -> None:
        """Does the work now."""
        started = self._clock()
        work()
        ended = self._clock()
        self._next = max(started + self._interval, ended + (ended - started) / self._share)


class Place:
    """A place in a notebook's outputs: what it shows has a name, so that the static picture beside the live
    view can be renewed.

    Args:
        bundle: makes what is shown: data and metadata by MIME type.
    """

    def __init__(self, bundle: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self._bundle, self._name = bundle, uuid4().hex
        self.taken = False

    def show(self) -> None:
        """Displays it below the running cell; does nothing outside IPython."""
        self.taken = True
        self._display(update=False)

    def renew(self) -> None:
        """Replaces what was shown, wherever that is."""
        if self.taken:
            self._display(update=True)

    def _display(self, update: bool) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.display import display

        if InteractiveShell.initialized():
            data, metadata = self._bundle()
            display(data, metadata=metadata, raw=True, display_id=self._name, update=update)


@dataclass(frozen=True)
class _View:
    """A figure, and the part of the state that it is drawn from."""

    of: Callable[[TuningState], object]
    draw: Callable[[TuningState], panel_plots.Drawing]


VIEWS: Mapping[str, _View] = {
    "progress": _View(lambda state: state.curve, panel_plots.draw_progress),
    "best": _View(lambda state: state.shapes, panel_plots.draw_best),
    "quality": _View(lambda state: state.fits, panel_plots.draw_quality),
    "seconds": _View(lambda state: state.seconds, panel_plots.draw_seconds),
    "outcomes": _View(lambda state: state.outcomes, panel_plots.draw_outcomes),
}


PLOTS: Mapping[str, tuple[Callable[[TuningState], Any], Callable[[TuningState], Any]]] = {
    "progress": (panel_plots.plot_progress, panel_plots.frame_progress),
    "best": (panel_plots.plot_best, panel_plots.frame_best),
    "quality": (panel_plots.plot_quality, panel_plots.frame_quality),
    "seconds": (panel_plots.plot_seconds, lambda state: frame_phases(state.seconds)),
    "outcomes": (panel_plots.plot_outcomes, panel_plots.frame_outcomes),
}
"""How a figure of the panel, and its table, are made to be saved."""

CHOICES = (
    ("progress", "progress"),
    ("best of each shape", "best"),
    ("cost model", "quality"),
    ("time", "seconds"),
    ("outcomes", "outcomes"),
)
"""What people call the figures, with the names of the figures."""


class Figures:
    """The live figures, side by side; only what has changed is drawn again."""

    def __init__(self, state: TuningState) -> None:
        import plotly.graph_objects as go

        self._drawn = {name: view.of(state) for name, view in VIEWS.items()}
        self.live = {name: LiveFigure(go.Figure(view.draw(state))) for name, view in VIEWS.items()}
        for live in self.live.values():
            live.layout.min_width = "0"  # a grid's column may be narrower than what is in it
        grid = ipywidgets.GridBox(
            [live for name, live in self.live.items() if name != LOW],
            layout=ipywidgets.Layout(grid_template_columns=COLUMNS),
        )
        self.box = ipywidgets.VBox([grid, self.live[LOW]])
        self.chooser = ipywidgets.Dropdown(
            options=CHOICES,
            description="save",
            tooltip="The figure that the buttons beside it save",
            layout=ipywidgets.Layout(width="auto"),
            style={"description_width": "initial"},
        )

    def files(self, source: Any) -> FileButtons:
        """Returns the buttons that save the chosen figure of ``source``."""
        live = self.live["progress"]
        return FileButtons(source, live, lambda: f"tuning-{self.chooser.value}", before=(self.chooser,))

    def show(self, state: TuningState) -> None:
        from plotly.io import to_json

        for name, view in VIEWS.items():
            part = view.of(state)
            if part is not self._drawn[name]:
                self.live[name].figure_json = to_json(view.draw(state), validate=False)
                self._drawn[name] = part


class StageBars:
    """A bar for each stage, with the time left."""

    def __init__(self) -> None:
        self.box = ipywidgets.VBox()
        self._rows: dict[str, Any] = {}

    def show(self, stages: Mapping[str, StageClock], running: Iterable[str], now: float) -> None:
        shown = {name: self._rows.get(name) or _row() for name in stages}
        for name, clock in stages.items():
            bar, label = shown[name].children
            bar.max, bar.value = max(1, clock.total), clock.done
            bar.bar_style = "" if name in running else "success"
            # What a stage noted is overtaken when the next one has begun: the best so far, for one.
            overtaken = name not in running and name != list(stages)[-1]
            label.value = escape((replace(clock, note="") if overtaken else clock).line(now))
        if list(shown) != list(self._rows):
            self._rows = shown
            self.box.children = tuple(shown.values())


def _row() -> Any:
    label = ipywidgets.HTML(layout=ipywidgets.Layout(min_width="0", flex="1 1 300px"))
    return ipywidgets.HBox([ipywidgets.IntProgress(), label], layout=ipywidgets.Layout(flex_flow="row wrap"))


class Buttons:
    """Start, pause, resume, stop: those that make sense now can be pressed."""

    def __init__(self, start: Callable[[], None], run: Callable[[], BackgroundRun[Any] | None]) -> None:
        self._run = run
        said = {
            "start": "Begins to tune in the background, or goes on from what was measured",
            "pause": "Ends the measurement that is under way and waits",
            "resume": "Goes on after a pause",
            "stop": "Ends the measurement that is under way and the run; what was measured is kept",
        }
        self.start = _button("Start", said["start"], start)
        self.pause = _button("Pause", said["pause"], lambda: self._tell(BackgroundRun.pause))
        self.resume = _button("Resume", said["resume"], lambda: self._tell(BackgroundRun.resume))
        self.stop = _button("Stop", said["stop"], lambda: self._tell(BackgroundRun.stop))
        self.box = ipywidgets.HBox([self.start, self.pause, self.resume, self.stop])

    def show(self, can_start: bool) -> None:
        run = self._run()
        state = run.state if run else ""
        stopping = run is not None and run.stopping
        self.start.disabled = state in ("running", "paused")
        self.pause.disabled = state != "running" or stopping
        self.resume.disabled = state != "paused"
        self.stop.disabled = state not in ("running", "paused") or stopping
        self.start.layout.display = None if can_start else "none"
        self.box.layout.display = None if can_start or run else "none"

    def _tell(self, what: Callable[[BackgroundRun[Any]], None]) -> None:
        run = self._run()
        if run is not None:
            what(run)


def _button(name: str, tooltip: str, act: Callable[[], None]) -> Any:
    layout = ipywidgets.Layout(width="auto")
    button = ipywidgets.Button(description=name, tooltip=tooltip, layout=layout)
    button.on_click(lambda _: act())
    return button


class Recent:
    """The last events, folded up until somebody wants to read them."""

    def __init__(self) -> None:
        self._table = ipywidgets.HTML()
        self.box = ipywidgets.Accordion([self._table], titles=("Last events",))

    def show(self, state: TuningState) -> None:
        rows = "".join(f"<tr><td>{escape(describe(event))}</td></tr>" for event in state.recent)
        self._table.value = f"<table>{rows}</table>"


def headline(title: str, state: TuningState) -> str:
    """Returns the title, and as cards the best throughput, trials and failures, and the trials of each server
    if there are some, as HTML."""
    name = f"<div><b>{escape(title)}</b></div>" if title else ""
    numbers = {
        "best so far": f"{state.best_gflops:.1f} GFLOP/s",
        "measured": f"{state.trials} trials",
        "of them failed": f"{state.failures} trials",
    }
    servers = {f"on {device}": f"{count} trials" for device, count in sorted(state.devices.items())}
    return name + cards_html({**numbers, **servers})


def sentence(run: BackgroundRun[Any] | None, state: TuningState, can_start: bool) -> str:
    """Tells how far a run is."""
    said = [_of_run(run, can_start)] if run else []
    if state.trials and not state.best_gflops:
        said.append("Every trial failed so far; the reasons are in the figure of outcomes.")
    return " ".join(said)


def _of_run(run: BackgroundRun[Any], can_start: bool) -> str:
    kept = "What was measured is kept" + (": Start goes on from there." if can_start else ".")
    if run.stopping:
        return "Stopping: the measurement that is under way ends first."
    if run.pausing:
        return "Pausing: the measurement that is under way ends first."
    if run.state == "paused":
        return "Paused before the next record: Resume goes on."
    if run.state == "stopped":
        return f"Stopped. {kept}"
    if run.state == "failed":
        return f"The run failed: {type(run.error).__name__}: {run.error}"
    return "Running in the background." if run.state == "running" else "Finished."

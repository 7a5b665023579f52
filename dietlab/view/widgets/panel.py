"""A live panel for notebooks: an observer that is also a widget.

Importing this module imports ipywidgets; ``import dietlab`` does not import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from logging import getLogger
from pathlib import Path
from threading import Event as Flag
from threading import RLock, Thread, current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dietlab.base.background import BackgroundRun, Work, run_in_background
from dietlab.base.errors import DietlabError
from dietlab.base.events import Event, StageFinished
from dietlab.view.widgets.arguments import panel_arguments
from dietlab.view.widgets.export import FileButtons, button
from dietlab.view.widgets.live import LiveFigure, with_picture
from dietlab.view.widgets.panel_follow import StudyTail
from dietlab.view.widgets.panel_parts import bars, headline, recent, sentence
from dietlab.view.widgets.panel_plots import VIEWS
from dietlab.view.widgets.panel_state import TuningState

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.compare.study import Study

MIN_SECONDS = 0.25
"""The least time between two updates by default, in seconds."""
SHARE = 0.012
"""The largest share of the run's time that drawing may take: with the cost of the events, the panel stays
below 2 %."""

POLL_SECONDS = 0.5
EMPTY = "A tuning panel: run the notebook in JupyterLab to see it."

COLUMNS = "repeat(auto-fit, minmax(max(340px, 40%), 1fr))"
"""The CSS columns of the panel: two figures side by side where there is room, so that four fill two rows."""
LOW = "outcomes"
"""The name of the figure below the others, over the whole width."""

BUTTONS = {
    "Start": "Begins to tune in the background, or goes on from what was measured",
    "Pause": "Ends the measurement that is under way and waits",
    "Resume": "Goes on after a pause",
    "Stop": "Ends the measurement that is under way and the run; what was measured is kept",
}
PRESSABLE = {"running": ("Pause", "Stop"), "paused": ("Resume", "Stop")}
"""The enabled buttons, by the state of a run; in any other state, and without a run, Start is enabled."""


class TuningPanel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Shows a tuning run, and drives it if it runs in the background. The panel has the throughput over time
    and of each shape, the outcomes of the trials, the cost model's quality, the time of each phase, and the
    time left.

    As an observer of a run in the same cell it displays itself at the first event, unless a cell already
    did. The panel is drawn only between two records, so that it disturbs no measurement. Closing it, or an
    error in drawing, does not affect the run::

        dl.tune(space, shapes, runner, observers=[dl.TuningPanel()])          # in this cell
        panel = dl.TuningPanel(start=lambda observers: study.tune(runner, observers))  # press Start
        run = dl.run_in_background(work, [panel])                             # or start it yourself
        dl.TuningPanel.follow("runs/dense")                                   # another process tunes

    Args:
        interval: the least time between two updates, in seconds. Where drawing is slow the time is longer:
            drawing takes at most 2 % of the run's time.
        clock: a monotonic clock, in seconds; tests give another one.
        title: a heading, for several panels side by side.
        start: the work that the start button begins (see :func:`dietlab.run_in_background`).

    Attributes:
        state: what is known of the run; ``frame_x(state)`` gives the table behind a figure.
        updates: the number of times that the panel was drawn.
        shown: the control that chooses the figure to save.

    Raises:
        DietlabError: if an argument is of another kind, such as a study in place of the interval.
    """

    _closed = False

    def __init__(
        self,
        interval: float = MIN_SECONDS,
        clock: Callable[[], float] = monotonic,
        *,
        title: str = "",
        start: Work[Any] | None = None,
    ) -> None:
        panel_arguments(interval, clock, title, start)
        import plotly.graph_objects as go

        self._lock, self._clock, self._title, self._work = RLock(), clock, title, start
        self._interval, self._due = interval, -float("inf")
        self._latest = self._skipped = 0.0
        self._unfollow, self._progress, self._awaits_cell = Flag(), "", False
        self._run: BackgroundRun[Any] | None = None
        self._place, self._placed = uuid4().hex, False
        self.state, self.updates = TuningState(), 0
        self._drawn = {name: getattr(self.state, view.part) for name, view in VIEWS.items()}
        self._live = {name: LiveFigure(go.Figure(view.draw(self.state))) for name, view in VIEWS.items()}
        for live in self._live.values():
            live.layout.min_width = "0"  # a grid's column may be narrower than what is in it
        grid = ipywidgets.GridBox(
            [live for name, live in self._live.items() if name != LOW],
            layout=ipywidgets.Layout(grid_template_columns=COLUMNS),
        )
        self.shown = ipywidgets.Dropdown(
            options=[(view.words, name) for name, view in VIEWS.items()],
            description="save",
            tooltip="The figure that the buttons beside it save",
            layout=ipywidgets.Layout(width="auto"),
            style={"description_width": "initial"},
        )
        self.files = FileButtons(
            self, self._live["progress"], lambda: f"tuning-{self.shown.value}", before=(self.shown,)
        )
        self._buttons = {name: button(name, tip, partial(self._press, name)) for name, tip in BUTTONS.items()}
        self._driving = ipywidgets.HBox([*self._buttons.values()])
        self._headline, self._sentence, self._bars, self._recent = (ipywidgets.HTML() for _ in range(4))
        folded = ipywidgets.Accordion([self._recent], titles=("Last events",))
        text = [self._headline, self._driving, self._sentence, self._bars]
        layout = ipywidgets.Layout(flex="1 1 0%", min_width="0")
        super().__init__([*text, grid, self._live[LOW], self.files, folded], layout=layout)
        self.add_class("dietlab")
        self._show()

    @classmethod
    def follow(
        cls, folder: str | Path | Study, seconds: float = POLL_SECONDS, *, title: str | None = None
    ) -> TuningPanel:
        """Returns a panel of a study on disk, which another process may be tuning.

        The panel reads new records of the study in ``folder`` every ``seconds``, until it is closed.

        Raises:
            StudyError: if there is no study in the folder.
        """
        tail = StudyTail(folder)
        panel = cls(title=str(tail.study.workload) if title is None else title)
        panel._look(tail)
        Thread(target=panel._follow, args=(tail, seconds), name="dietlab-follow", daemon=True).start()
        return panel

    @property
    def figure(self) -> go.Figure:
        """The figure that is chosen below the panel, of the newest state; see :func:`dietlab.save`."""
        return VIEWS[self.shown.value].plot(self.state)

    @property
    def frame(self) -> pd.DataFrame:
        """The table behind :attr:`figure`."""
        return VIEWS[self.shown.value].frame(self.state)

    # --- what happens -------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Takes what a stage reports and shows it."""
        with self._lock:
            self._latest = self._now()
            self.state = self.state.after(event, self._latest)
            self._appear()
            ended = isinstance(event, StageFinished) and not self.state.running
            # The end of a cell or of a background run draws the final state outside of the run's time.
            drawn_later = self._awaits_cell or (self._run is not None and self._run.active)
            self._refresh(at_once=ended and not drawn_later)

    def attach(self, run: BackgroundRun[Any]) -> None:
        """Shows and drives a run; :func:`dietlab.run_in_background` calls it."""
        with self._lock:
            if run is self._run:
                return
            # Time between two runs counts for neither.
            self._skipped = self._clock() - self._latest
            self._run = run
        run.on_change(lambda: self._changed(run))
        self._changed(run)

    @property
    def run(self) -> BackgroundRun[Any] | None:
        """The run that the buttons drive; assign one to drive it."""
        return self._run

    @run.setter
    def run(self, run: BackgroundRun[Any]) -> None:
        self.attach(run)

    def start(self) -> None:
        """Begins the work in the background, as the button does; nothing happens while it runs.

        Raises:
            DietlabError: if the panel was given no work.
        """
        if self._work is None:
            raise DietlabError(
                "a panel can only start work that it was given", None, "Write TuningPanel(start=...)."
            )
        with self._lock:
            if self._run is None or not self._run.active:
                run_in_background(self._work, [self])

    def close(self) -> None:
        """Ends the display; a run goes on."""
        self._closed = True
        if hasattr(self, "_unfollow"):
            self._unfollow.set()
        super().close()

    def _changed(self, run: BackgroundRun[Any]) -> None:
        with self._lock:
            if run is self._run:
                self._refresh(at_once=True)
                if not run.active:
                    self._safely(self._renew)

    def _press(self, name: str) -> None:
        if name == "Start":
            self.start()
        elif self._run is not None:
            getattr(self._run, name.lower())()

    def _now(self) -> float:
        """Returns the seconds of a clock that stops during pauses and between runs."""
        return self._clock() - self._skipped - (self._run.paused_seconds if self._run else 0.0)

    # --- a study on disk ----------------------------------------------------------------------

    def _follow(self, tail: StudyTail, seconds: float) -> None:
        while not self._unfollow.wait(seconds) and self._look(tail):
            pass

    def _look(self, tail: StudyTail) -> bool:
        """Reads and shows new records. Returns False if the study can no longer be read."""
        events: list[Event] = []
        readable, finished = True, False
        try:
            events, progress, finished = tail.news(), tail.sentence(), tail.finished
        except (DietlabError, OSError, ValueError) as error:
            readable, progress = False, f"This study cannot be followed: {error}"
        with self._lock:
            for event in events:
                self._latest = self._now()
                self.state = self.state.after(event, self._latest)
            news, self._progress = progress != self._progress, progress
            self._refresh(at_once=news)
            if news and (finished or not readable):
                self._safely(self._renew)
        return readable

    # --- the display --------------------------------------------------------------------------

    def _refresh(self, at_once: bool = False) -> None:
        """Shows the state, unless the last update was less than the interval ago or drawing would take more
        than :data:`SHARE` of the time."""
        started = self._clock()
        if started >= self._due or at_once:
            self._safely(self._show)
            ended = self._clock()
            self._due = max(started + self._interval, ended + (ended - started) / SHARE)

    def _safely(self, show: Callable[[], None]) -> None:
        """Calls ``show``. An error in it ends the display, not the run."""
        if self._closed:
            return
        try:
            show()
        except Exception as error:
            self._closed = True
            getLogger("dietlab").warning("the tuning panel cannot be drawn any more: %r", error)

    def _show(self) -> None:
        """Shows the state; redraws only figures whose part of the state has changed."""
        from plotly.io import to_json

        run, can_start = self._run, self._work is not None
        self._headline.value = headline(self._title, self.state)
        self._sentence.value = sentence(run, self.state, can_start, self._progress)
        self._bars.value = bars(self.state, self._now())
        self._recent.value = recent(self.state)
        pressable = PRESSABLE.get(run.state, ("Start",)) if run else ("Start",)
        for name, shown in self._buttons.items():
            shown.disabled = name not in pressable or (run is not None and run.stopping)
        self._buttons["Start"].layout.display = None if can_start else "none"
        self._driving.layout.display = None if can_start or run else "none"
        self.updates += 1
        for name, view in VIEWS.items():
            part = getattr(self.state, view.part)
            if part is not self._drawn[name]:
                self._live[name].figure_json = to_json(view.draw(self.state), validate=False)
                self._drawn[name] = part

    # --- its place in a notebook ----------------------------------------------------------------

    def _appear(self) -> None:
        """Displays the panel in the running cell, unless a cell did; a run in the background has no cell. The
        static picture is renewed after the cell, which costs the run no time."""
        if current_thread() is not main_thread():
            return
        from IPython import get_ipython

        if not self._placed:
            self._safely(self._ipython_display_)
        shell = get_ipython()
        if shell is not None and not self._awaits_cell:
            self._awaits_cell = True
            shell.events.register("post_run_cell", self._cell_ended)

    def _cell_ended(self, _: object = None) -> None:
        from IPython import get_ipython

        get_ipython().events.unregister("post_run_cell", self._cell_ended)
        with self._lock:
            self._awaits_cell = False
            self._refresh(at_once=True)
            self._safely(self._renew)

    def _renew(self) -> None:
        """Replaces the static picture, wherever the panel is displayed."""
        if self._placed:
            self._display(update=True)

    def _display(self, update: bool) -> None:
        """Displays the panel below the running cell, or updates it in place; does nothing outside IPython."""
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.display import display

        if InteractiveShell.initialized():
            data, metadata = self._bundle()
            display(data, metadata=metadata, raw=True, display_id=self._place, update=update)

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the live view, and a picture of the run beside it if there is something to see."""
        live = super()._repr_mimebundle_()
        if self.state.trials:
            data, metadata = with_picture(live, VIEWS["progress"].plot(self.state))
            return data, metadata
        return {**live, "text/plain": EMPTY}, {}

    def _ipython_display_(self) -> None:
        self._placed = True
        self._display(update=False)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self._placed = True
        return self._bundle()

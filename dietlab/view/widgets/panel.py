"""A live panel for notebooks: an observer that is also a widget.

Importing this module imports ipywidgets; ``import dietlab`` does not import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from logging import getLogger
from pathlib import Path
from threading import Event as Flag
from threading import RLock, Thread, current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from dietlab.base.background import BackgroundRun, Work, run_in_background
from dietlab.base.errors import DietlabError
from dietlab.base.events import Event, StageFinished
from dietlab.view.widgets.arguments import panel_arguments
from dietlab.view.widgets.live import with_picture
from dietlab.view.widgets.panel_follow import StudyTail
from dietlab.view.widgets.panel_parts import (
    PLOTS,
    Buttons,
    DrawingPace,
    Figures,
    Place,
    Recent,
    StageBars,
    headline,
    sentence,
)
from dietlab.view.widgets.panel_plots import plot_progress
from dietlab.view.widgets.panel_state import TuningState

import ipywidgets  # isort: skip  # live.py says what to install if it is missing

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from dietlab.compare.study import Study

MIN_SECONDS = 0.25
TEXT_SHARE, FIGURE_SHARE = 0.004, 0.008
"""Of the run's time: with what every event costs, the panel stays below 2 %."""

POLL_SECONDS = 0.5
EMPTY = "A tuning panel: run the notebook in JupyterLab to see it."


class TuningPanel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Shows a tuning run: throughput over time and of each shape, what became of the trials, the cost
    model's quality, where the time goes, time left; and drives it if it runs in the background.

    As an observer of a run in the same cell it displays itself at the first event, unless a cell already
    did. It is drawn between two records at most, so that it disturbs no measurement, and closing it or
    an error in drawing leaves the run alone::

        dl.tune(space, shapes, runner, observers=[dl.TuningPanel()])          # in this cell
        panel = dl.TuningPanel(start=lambda observers: study.tune(runner, observers))  # press Start
        run = dl.run_in_background(work, [panel])                             # or start it yourself
        dl.TuningPanel.follow("runs/dense")                                   # another process tunes

    Args:
        interval: least time between two updates, in seconds; it is longer where drawing is slow, which
            takes at most 2 % of the time.
        clock: a monotonic clock, in seconds (another one for tests).
        title: to tell panels apart that stand side by side.
        start: work (see :func:`dietlab.run_in_background`) that the start button begins.

    Attributes:
        state: what is known of the run; ``frame_x`` of it are the tables behind the figures.
        updates: how often figures were drawn.
        shown: the control that chooses which of the figures is saved.

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
        self._lock, self._clock, self._title, self._work = RLock(), clock, title, start
        self._text_pace = DrawingPace(interval, TEXT_SHARE, clock)
        self._figure_pace = DrawingPace(interval, FIGURE_SHARE, clock)
        self._latest = self._skipped = 0.0
        self._unfollow, self._told, self._awaits_cell = Flag(), "", False
        self._run: BackgroundRun[Any] | None = None
        self.state, self.updates = TuningState(), 0
        self._place = Place(self._bundle)
        self._headline, self._sentence, self._recent = ipywidgets.HTML(), ipywidgets.HTML(), Recent()
        self._buttons = Buttons(self.start, lambda: self._run)
        self._bars, self._figures = StageBars(), Figures(self.state)
        parts = [self._headline, self._buttons.box, self._sentence, self._bars.box, self._figures.box]
        self.shown, self.files = self._figures.chooser, self._figures.files(self)
        layout = ipywidgets.Layout(flex="1 1 0%", min_width="0")
        super().__init__([*parts, self.files, self._recent.box], layout=layout)
        self.add_class("dietlab")
        self._show_text()

    @classmethod
    def follow(
        cls, folder: str | Path | Study, seconds: float = POLL_SECONDS, *, title: str | None = None
    ) -> TuningPanel:
        """Returns a panel of a study on disk, which another process may be tuning; ``folder`` is its own.

        It looks every ``seconds`` for what was appended to the records, until the panel is closed.

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
        figure, _ = PLOTS[self.shown.value]
        return figure(self.state)

    @property
    def frame(self) -> pd.DataFrame:
        """The table behind :attr:`figure`."""
        _, frame = PLOTS[self.shown.value]
        return frame(self.state)

    # --- what happens -------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Takes what a stage tells and shows it."""
        with self._lock:
            self._latest = self._now()
            self.state = self.state.after(event, self._latest)
            self._appear()
            ended = isinstance(event, StageFinished) and not self.state.running
            self._refresh(at_once=ended and not self._hears_of_the_end)

    def attach(self, run: BackgroundRun[Any]) -> None:
        """Shows and drives a run; :func:`dietlab.run_in_background` calls it."""
        with self._lock:
            if run is self._run:
                return
            # What passed between two runs is nobody's time.
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
                "a panel that starts work was given some", None, "Write TuningPanel(start=...)."
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
                    self._safely(self._place.renew)

    @property
    def _hears_of_the_end(self) -> bool:
        """Returns whether the final state will be drawn outside of the run's time."""
        return self._awaits_cell or (self._run is not None and self._run.active)

    def _now(self) -> float:
        """Returns the clock, stopped during pauses and between runs."""
        return self._clock() - self._skipped - (self._run.paused_seconds if self._run else 0.0)

    # --- a study on disk ----------------------------------------------------------------------

    def _follow(self, tail: StudyTail, seconds: float) -> None:
        while not self._unfollow.wait(seconds) and self._look(tail):
            pass

    def _look(self, tail: StudyTail) -> bool:
        """Takes in what is new; False if nothing more can be read."""
        events: list[Event] = []
        readable, finished = True, False
        try:
            events, told, finished = tail.news(), tail.sentence(), tail.finished
        except (DietlabError, OSError, ValueError) as error:
            readable, told = False, f"This study cannot be followed: {error}"
        with self._lock:
            for event in events:
                self._latest = self._now()
                self.state = self.state.after(event, self._latest)
            news, self._told = told != self._told, told
            self._refresh(at_once=news)
            if news and (finished or not readable):
                self._safely(self._place.renew)
        return readable

    # --- the display --------------------------------------------------------------------------

    def _refresh(self, at_once: bool = False) -> None:
        if at_once or self._text_pace.due:
            self._text_pace.take(lambda: self._safely(self._show_text))
        if at_once or self._figure_pace.due:
            self._figure_pace.take(lambda: self._safely(self._show_figures))

    def _safely(self, show: Callable[[], None]) -> None:
        """Draws and keeps errors of drawing from the run, which is worth more than its picture."""
        if self._closed:
            return
        try:
            show()
        except Exception as error:
            self._closed = True
            getLogger("dietlab").warning("the tuning panel cannot be drawn any more: %r", error)

    def _show_text(self) -> None:
        said = " ".join(filter(None, (sentence(self._run, self.state, self._work is not None), self._told)))
        self._headline.value = headline(self._title, self.state)
        self._sentence.value = f"<div>{escape(said)}</div>" if said else ""
        self._buttons.show(can_start=self._work is not None)
        self._bars.show(self.state.stages, self.state.running, self._now())
        self._recent.show(self.state)

    def _show_figures(self) -> None:
        self.updates += 1
        self._figures.show(self.state)

    def _appear(self) -> None:
        """Displays itself in the cell that runs; in the background there is none."""
        if current_thread() is not main_thread():
            return
        if not self._place.taken:
            self._safely(self._place.show)
        if not self._awaits_cell:
            self._await_cell()

    def _await_cell(self) -> None:
        """Renews the static picture when the cell has ended, not in the run's time."""
        from IPython import get_ipython

        shell = get_ipython()
        if shell is not None:
            self._awaits_cell = True
            shell.events.register("post_run_cell", self._cell_ended)

    def _cell_ended(self, _: object = None) -> None:
        from IPython import get_ipython

        get_ipython().events.unregister("post_run_cell", self._cell_ended)
        with self._lock:
            self._awaits_cell = False
            self._refresh(at_once=True)
            self._safely(self._place.renew)

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the live view, and a picture of the run beside it if there is something to see."""
        live = super()._repr_mimebundle_()
        if self.state.trials:
            data, metadata = with_picture(live, plot_progress(self.state))
            return data, metadata
        return {**live, "text/plain": EMPTY}, {}

    def _ipython_display_(self) -> None:
        self._place.show()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self._place.taken = True
        return self._bundle()

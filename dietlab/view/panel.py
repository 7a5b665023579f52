"""A live panel for notebooks: an observer that is also a widget.

Importing this module imports ipywidgets; ``import dietlab`` does not import this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from html import escape
from time import monotonic
from typing import Any

from dietlab.errors import MissingDependencyError
from dietlab.events import Event, RoundFinished, StageAdvanced, StageFinished, StageStarted, TrialMeasured
from dietlab.view.progress import StageClock, describe

try:
    import ipywidgets
except ImportError as error:
    raise MissingDependencyError(
        "the panel needs ipywidgets", error, "pip install ipywidgets, or observe with ProgressBar()."
    ) from error

MIN_SECONDS = 0.25
EVENTS_SHOWN = 8


class TuningPanel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """Shows a running tune: bars for the stages, the best so far, failures, the last events.

    It displays itself at the first event unless a cell already did. The browser gets at most one
    update every ``interval`` seconds, and one more when the last stage ends: the final state.

    Args:
        interval: least time between two updates, in seconds.
        clock: a monotonic clock, in seconds (another one for tests).
    """

    def __init__(self, interval: float = MIN_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._headline, self._table = ipywidgets.HTML(), ipywidgets.HTML()
        self._stages_box = ipywidgets.VBox()
        super().__init__([self._headline, self._stages_box, self._table])
        self._interval, self._clock = interval, clock
        self._last_update = -float("inf")
        self._displayed = False
        self._clocks: dict[str, StageClock] = {}
        self._running: set[str] = set()
        self._bars: dict[str, Any] = {}
        self._recent: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self.trials = self.failures = self.updates = 0
        self.best_gflops = 0.0

    def on_event(self, event: Event) -> None:
        if not self._displayed:
            self._displayed = True
            _show(self)
        self._take(event)
        now = self._clock()
        last = isinstance(event, StageFinished) and not self._running
        if last or now - self._last_update >= self._interval:
            self._last_update = now
            self._update(now)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self._displayed = True
        return super()._repr_mimebundle_(**options)

    def _take(self, event: Event) -> None:
        """Keeps the state up to date; nothing here reaches the browser."""
        if not isinstance(event, StageAdvanced):
            self._recent.appendleft(describe(event))
        match event:
            case StageStarted(stage=stage):
                self._clocks[stage] = StageClock.of(event, self._clock())
                self._running.add(stage)
            case StageAdvanced(stage=stage) if stage in self._clocks:
                self._clocks[stage] = self._clocks[stage].advanced(event)
            case StageFinished(stage=stage):
                self._running.discard(stage)
            case TrialMeasured():
                self.trials = event.trials
                self.failures += event.gflops <= 0
                self.best_gflops = max(self.best_gflops, event.gflops)
            case RoundFinished():
                self.trials = max(self.trials, event.trials)
                self.failures = max(self.failures, event.failures)
                self.best_gflops = max(self.best_gflops, event.best_gflops)

    def _update(self, now: float) -> None:
        self.updates += 1
        self._headline.value = (
            f"best <b>{self.best_gflops:.1f} GFLOP/s</b>, {self.trials} trials, {self.failures} failed"
        )
        for clock in self._clocks.values():
            self._draw(clock, now)
        if len(self._stages_box.children) != len(self._bars):
            self._stages_box.children = tuple(self._bars.values())
        rows = "".join(f"<tr><td>{escape(line)}</td></tr>" for line in self._recent)
        self._table.value = f"<table>{rows}</table>"

    def _draw(self, clock: StageClock, now: float) -> None:
        row = self._bars.get(clock.stage)
        if row is None:
            row = ipywidgets.HBox([ipywidgets.IntProgress(), ipywidgets.Label()])
            self._bars[clock.stage] = row
        bar, label = row.children
        bar.max, bar.value = max(1, clock.total), clock.done
        bar.bar_style = "" if clock.stage in self._running else "success"
        label.value = clock.line(now)


def _show(panel: TuningPanel) -> None:
    """Displays the panel below the running cell; does nothing outside IPython."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import display

    if InteractiveShell.initialized():
        display(panel)

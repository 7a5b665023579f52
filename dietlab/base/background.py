"""Work in a background thread: a notebook stays responsive, and can pause, resume and stop it.

Work is any function of observers, such as ``lambda observers: study.tune(runner, observers)``. It pauses or
ends when it sends an event. Events are sent between two records, so all measurements are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic
from traceback import clear_frames
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from dietlab.base.errors import DietlabError
from dietlab.base.events import Event, Observer, StageFinished

Result = TypeVar("Result")
Work = Callable[[Sequence[Observer]], Result]
RunState = Literal["running", "paused", "stopped", "finished", "failed"]


class RunStopped(DietlabError, RuntimeError):
    """Ends work that its user stopped; nothing went wrong."""


class Brake:
    """An observer that pauses or ends the work that sends it events.

    It is the last observer, so that the others have seen each event before the pause.

    Args:
        clock: a monotonic clock, in seconds (another one for tests).
        on_wait: a function that the work's thread calls when the work begins to wait.

    Attributes:
        waited_for: whether the work now waits for ``release``.
    """

    def __init__(
        self, clock: Callable[[], float] = monotonic, on_wait: Callable[[], None] = lambda: None
    ) -> None:
        self._clock, self._on_wait, self._lock = clock, on_wait, Lock()
        self._free, self._stop = Flag(), Flag()
        self._free.set()
        self._since: float | None = None
        self._spent = 0.0
        self.waited_for = False

    def on_event(self, event: Event) -> None:
        # A stage sends its end even while an error passes through it, and another error would hide that.
        if isinstance(event, StageFinished):
            return
        if self.holds:
            self.waited_for = True
            self._on_wait()
            self._free.wait()
            self.waited_for = False
        if self._stop.is_set():
            raise RunStopped(
                "the work runs until its user stops it",
                None,
                "All measurements are kept: start the work again to continue.",
            )

    def hold(self) -> None:
        with self._lock:
            if self._free.is_set() and not self._stop.is_set():
                self._since = self._clock()
                self._free.clear()

    def release(self) -> None:
        with self._lock:
            if self._since is not None:
                self._spent += self._clock() - self._since
                self._since = None
            self._free.set()

    def stop(self) -> None:
        self._stop.set()
        self.release()

    @property
    def holds(self) -> bool:
        return not self._free.is_set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def paused_seconds(self) -> float:
        """The total time of its pauses, in seconds."""
        with self._lock:
            return self._spent + (0.0 if self._since is None else self._clock() - self._since)


class BackgroundRun(Generic[Result]):
    """Work in a separate thread; made by :func:`run_in_background`.

    Attributes:
        result: what the work returned; None until it has finished.
        error: the error of work that failed; else None.

    Args:
        work: a function of the observers.
        observers: the observers that get each event of the work, in its thread.
    """

    def __init__(self, work: Work[Result], observers: Sequence[Observer]) -> None:
        self._brake = Brake(on_wait=self._notify)
        self._ended = Flag()
        self._outcome: RunState = "running"
        self._listeners: list[Callable[[], None]] = []
        self._work, self._observers = work, (*observers, self._brake)
        self.result: Result | None = None
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        reason = f": {type(self.error).__name__}: {self.error}" if self.error else ""
        return f"<{type(self).__name__} {self.state}{reason}>"

    @property
    def state(self) -> RunState:
        """``running``, ``paused``, ``stopped``, ``finished`` or ``failed``."""
        return "paused" if self.active and self._brake.holds else self._outcome

    @property
    def active(self) -> bool:
        """True while it is running or paused."""
        return self._outcome == "running"

    @property
    def pausing(self) -> bool:
        """True from the request to pause until the next event."""
        return self.state == "paused" and not self._brake.waited_for

    @property
    def stopping(self) -> bool:
        """True from the request to stop until the next event."""
        return self.active and self._brake.stopping

    @property
    def paused_seconds(self) -> float:
        """The total time that it was paused, in seconds."""
        return self._brake.paused_seconds

    def pause(self) -> None:
        """Pauses before the next record; the current measurement ends first."""
        self._change(self._brake.hold)

    def resume(self) -> None:
        """Continues the work after :meth:`pause`."""
        self._change(self._brake.release)

    def stop(self) -> None:
        """Ends the work before the next record, also while it is paused."""
        self._change(self._brake.stop)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the work has ended, or for ``timeout`` seconds; returns whether it has ended.

        Interrupting the wait leaves the work alone.
        """
        return self._ended.wait(timeout)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls ``listener`` after each change of the state, in the thread that changed it."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Starts the work; :func:`run_in_background` does so."""
        # A daemon: a notebook's kernel does not wait at its end for a run that may take hours.
        Thread(target=self._run, name="dietlab-background", daemon=True).start()

    def _change(self, act: Callable[[], None]) -> None:
        if self.active:
            act()
            self._notify()

    def _run(self) -> None:
        outcome: RunState
        try:
            self.result = self._work(self._observers)
            outcome = "finished"
        except RunStopped as stopped:
            _let_go(stopped)
            outcome = "stopped"
        except BaseException as error:
            _let_go(error)
            self.error, outcome = error, "failed"
        self._outcome = outcome
        try:
            self._notify()
        finally:
            self._ended.set()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


@runtime_checkable
class Viewer(Observer, Protocol):
    """An observer that gets the run itself, to show and to control it."""

    def attach(self, run: BackgroundRun[Result]) -> None: ...


def run_in_background(work: Work[Result], observers: Iterable[Observer] = ()) -> BackgroundRun[Result]:
    """Starts ``work(observers)`` in a thread and returns at once.

    ``run = dl.run_in_background(lambda observers: study.tune(runner, observers), [panel])``. The
    function gets these observers and one more, which pauses and stops the work; it must hand all of them to
    the stage that it runs. A script must end with ``run.wait()``, since the thread ends with its process.
    Measured records are kept in any case.

    Args:
        work: a function of the observers; its result becomes the run's.
        observers: the observers that get each event of the work, in its thread.

    Raises:
        DietlabError: if ``work`` is no function.
    """
    require_work(work)
    watching = tuple(observers)
    run = BackgroundRun(work, watching)
    for observer in watching:
        if isinstance(observer, Viewer):
            observer.attach(run)
    run.start()
    return run


def require_work(work: object) -> None:
    """Checks that work is a function."""
    if not callable(work):
        raise DietlabError(
            "work must be a function of observers",
            type(work).__name__,
            "Write lambda observers: dl.tune(space, shapes, runner, observers=observers).",
        )


def _let_go(error: BaseException) -> None:
    """Frees the local variables of an error's frames, which would keep a runner's worker processes alive."""
    seen: BaseException | None = error
    while seen is not None:
        clear_frames(seen.__traceback__)
        seen = seen.__context__

"""A study on disk as a stream of events, while another process tunes it.

Only what was appended since the last look is read. A half-written last line waits for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import time

from dietlab.base.errors import StudyError
from dietlab.base.events import (
    Event,
    ModelFitted,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
)
from dietlab.compare.study import FACTS, MODEL, Study, read_facts
from dietlab.compare.study_manifest import RECORDS
from dietlab.measure import Record
from dietlab.measure.record import DECIDE, SEARCH
from dietlab.measure.store import header_of, record_of
from dietlab.tuning import effort_named
from dietlab.view.progress import duration
from dietlab.view.widgets.arguments import study_of

SILENT_SECONDS = 60.0
"""The time without a record, in seconds, after which the panel says that the run may be paused or
interrupted."""


@dataclass
class _Stage:
    """A stage of tuning, as its records show it: ``done`` of ``total``, with a note of the best so far."""

    name: str
    unit: str
    total: int
    done: int = 0
    note: str = ""
    reported: tuple[int, str] | None = None
    ended: bool = False

    def news(self, begun: bool, ended: bool, seconds: float) -> Iterator[Event]:
        """Yields the changes since the last call. Units done before the first call do not count as speed. A
        stage may end early: a space may have fewer schemes, or fewer measurements may decide."""
        now = (self.total if ended else min(self.done, self.total), self.note)
        if begun and self.reported is None:
            self.reported = (min(self.done, self.total), "")
            yield StageStarted(self.name, self.total, self.unit, self.reported[0])
        if begun and now != self.reported:
            self.reported = now
            yield StageAdvanced(self.name, *now)
        if ended and not self.ended:
            self.ended = True
            yield StageFinished(self.name, seconds)


class StudyTail:
    """Reads a study's records as they come.

    Args:
        folder: the folder of a study, or the study itself; its records may not exist yet.
    """

    def __init__(self, folder: str | Path | Study) -> None:
        study = study_of(folder)
        if study is None:
            raise StudyError("a panel can only follow a study or its folder", type(folder).__name__)
        self.study, self._path = study, study.folder / RECORDS
        self._rewind()

    def _rewind(self) -> None:
        effort = effort_named(self.study.effort)
        self._search = _Stage(SEARCH, "scheme", effort.trials)
        self._decide = _Stage(DECIDE, "measurement", effort.decisions)
        self._offset = self._lines = self._failures = self._facts_written = 0
        self._schemes: set[str] = set()
        self._measured: set[Record] = set()
        self._best, self._spent = 0.0, PhaseSeconds()

    def news(self) -> list[Event]:
        """Returns the events since the last call; the first call returns all events."""
        size = _stat(self._path)[0]
        if size < self._offset:  # the study was made anew
            self._rewind()
        events = [event for line in self._appended(size) for event in self._taken(line)]
        finished, search, decide = self.finished, self._search, self._decide
        deciding = finished or decide.done > 0
        events += search.news(True, deciding or search.done >= search.total, self._spent.total)
        events += decide.news(deciding, finished, 0.0)
        return [*events, *(self._facts() if finished else [])]

    @property
    def finished(self) -> bool:
        """Returns whether the model was written after the last record: a run writes it as its last step."""
        return 0 < _stat(self._path)[1] <= _stat(self.study.folder / MODEL)[1]

    def sentence(self) -> str:
        """Says how far the run is."""
        if not self._measured:
            return "Nothing was measured yet: the study is empty."
        if self.finished:
            return "The run has finished."
        silent = time() - _stat(self._path)[1] / 1e9
        if silent < SILENT_SECONDS:
            return "Another process is tuning this study."
        return f"No record for {duration(silent)}: the run is paused, busy, or was interrupted."

    def _appended(self, size: int) -> Iterator[str]:
        """Yields the complete lines of a file from the offset on."""
        if size <= self._offset:
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._lines += 1
            yield line.decode()
        self._offset += len(whole)

    def _taken(self, line: str) -> Iterator[Event]:
        """Yields the trial in a line, if there is one. The header has none, nor has a record that was already
        read for another round."""
        if self._lines == 1:
            header_of(self._path, line)
            return
        asked = record_of(self._path, self._lines, line)
        record = replace(asked, asked_by=None)
        if record in self._measured:
            return
        self._measured.add(record)
        self._failures += not record.ok
        gflops = record.gflops(self.study.workload)
        self._best = max(self._best, gflops)
        self._spent = self._spent.plus(**vars(record.phases))
        searched = asked.asked_by is None or asked.asked_by.stage == SEARCH
        if searched:
            self._schemes.add(record.scheme.key)
            self._search.done = len(self._schemes)
        else:
            self._decide.done += 1
        # Each stage reports the best of all so far.
        (self._search if searched else self._decide).note = f"best {self._best:.1f} GFLOP/s"
        yield TrialMeasured(
            record.scheme.key,
            str(record.shape),
            gflops,
            record.status,
            len(self._measured),
            record.reason,
            record.phases,
            record.device,
        )

    def _facts(self) -> Iterator[Event]:
        """Yields the facts that a run writes at its end: time spent on the model, and the model's quality."""
        facts = self.study.folder / FACTS
        if _stat(facts)[1] <= self._facts_written:
            return
        self._facts_written = _stat(facts)[1]
        value = read_facts(self.study.folder)
        number = len(self._measured)
        if value["held_out_metrics"]:
            yield ModelFitted(1, number, value["held_out_metrics"])
        yield RoundFinished(1, number, self._failures, self._best, PhaseSeconds.from_json(value["seconds"]))


def _stat(path: Path) -> tuple[int, int]:
    """Returns the size of a file in bytes, and the time when it was written in nanoseconds since 1970; zeros
    if there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns

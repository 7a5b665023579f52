"""A study on disk as a stream of events, while another process tunes it.

Only what was appended since the last look is read. A half-written last line waits for its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

from dietlab.base.errors import RecordError, StudyError
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
from dietlab.base.files import read_json, reading
from dietlab.compare.study import FACTS, MODEL, RECORDS, Study
from dietlab.measure import Record
from dietlab.measure.record import DECIDE, SEARCH
from dietlab.measure.store import SCHEMA_VERSION
from dietlab.tuning import effort_named
from dietlab.view.progress import duration
from dietlab.view.widgets.arguments import study_of

SILENT_SECONDS = 60.0
"""After so long without a record somebody may wonder."""


class StudyTail:
    """Reads a study's records as they come.

    Args:
        folder: of the study, or the study itself; its records may not exist yet.

    Raises:
        StudyError: if there is no study in the folder, or it is neither.
    """

    def __init__(self, folder: str | Path | Study) -> None:
        study = study_of(folder)
        if study is None:
            raise StudyError("a study is followed, or its folder", type(folder).__name__)
        self.study = study
        effort = effort_named(self.study.effort)
        self._goal, self._decisions = effort.trials, effort.decisions
        self._rewind()

    def _rewind(self) -> None:
        self._offset = self._records = self._failures = 0
        self._kernels: set[str] = set()
        self._measured: set[Record] = set()
        self._best, self._spent = 0.0, PhaseSeconds()
        self._started = self._searched = self._deciding = self._ended = False
        self._decided = self._told = 0

    def news(self) -> list[Event]:
        """Returns the events since the last call; all of them the first time.

        Raises:
            RecordError: if a whole line is no record.
        """
        size = _size(self._path)
        if size < self._offset:  # the study was made anew
            self._rewind()
        events: list[Event] = []
        for number, line in enumerate(self._lines(size)):
            if self._offset == 0 and number == 0:
                _check_header(self._path, line)
            else:
                events += self._events_of(line)
        return [*self._opening(), *events, *self._ending()]

    @property
    def finished(self) -> bool:
        """Returns whether the model was written after the last record, which is a run's last step."""
        return 0 < _written(self._path) <= _written(self.study.folder / MODEL)

    def sentence(self) -> str:
        """Tells how far the run is."""
        if not self._records:
            return "Nothing was measured yet: the study is empty."
        if self.finished:
            return "The run has finished."
        silent = time() - _written(self._path) / 1e9
        if silent < SILENT_SECONDS:
            return "Another process is tuning this study."
        return f"No record for {duration(silent)}: the run is paused, busy, or was interrupted."

    @property
    def _path(self) -> Path:
        return self.study.folder / RECORDS

    def _lines(self, size: int) -> Iterator[bytes]:
        """Returns whole lines from the offset on."""
        if size <= self._offset:
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        yield from whole.splitlines()
        self._offset += len(whole)

    def _opening(self) -> list[Event]:
        """Returns the work that was already done at the first look: it says nothing about the speed now."""
        if self._started:
            return []
        self._started = True
        search = StageStarted(SEARCH, self._goal, "scheme", min(self._goal, len(self._kernels)))
        return [search, *([self._decide_started(self._decided)] if self._deciding else [])]

    def _decide_started(self, done: int) -> StageStarted:
        return StageStarted(DECIDE, self._decisions, "measurement", done)

    def _events_of(self, line: bytes) -> list[Event]:
        asked = Record.from_json(_parsed(self._path, line))
        record = replace(asked, asked_by=None)
        if record in self._measured:  # a replay's, for another round
            return []
        self._measured.add(record)
        self._records += 1
        self._failures += not record.ok
        gflops, phases = record.gflops(self.study.workload), record.phases
        self._best = max(self._best, gflops)
        self._spent = self._spent.plus(compile=phases.compile, verify=phases.verify, measure=phases.measure)
        measured = TrialMeasured(
            record.scheme.key,
            str(record.shape),
            gflops,
            record.status,
            self._records,
            record.reason,
            phases,
            record.device,
        )
        return [measured, *self._advanced(asked)]

    def _advanced(self, record: Record) -> list[Event]:
        """Returns what a record is to the stage that asked for it; each tells the best of all so far."""
        note = f"best {self._best:.1f} GFLOP/s"
        if record.asked_by is None or record.asked_by.stage == SEARCH:
            if len(self._kernels) < self._goal:
                self._kernels.add(record.scheme.key)
            return [StageAdvanced(SEARCH, len(self._kernels), note)]
        # Before the first look is over its opening tells of the stage.
        begun = [] if self._deciding or not self._started else [self._decide_started(0)]
        self._deciding, self._decided = True, min(self._decisions, self._decided + 1)
        return [*begun, StageAdvanced(DECIDE, self._decided, note)]

    def _ending(self) -> list[Event]:
        """Returns the events that only the end of a run leaves: the ends of its stages, time spent on the
        model, and its quality."""
        events: list[Event] = []
        if not self._searched and (self.finished or self._deciding or len(self._kernels) >= self._goal):
            self._searched = True
            events.append(StageFinished(SEARCH, self._spent.total))
        if self.finished and not self._ended:
            self._ended = True
            events += [] if self._deciding else [self._decide_started(0)]
            # A space has fewer schemes, or fewer measurements decide: a stage may end early.
            events += [StageAdvanced(SEARCH, self._goal), StageAdvanced(DECIDE, self._decisions)]
            events.append(StageFinished(DECIDE, 0.0))
        facts = self.study.folder / FACTS
        if self.finished and _written(facts) > self._told:
            self._told = _written(facts)
            with reading(RecordError, "what tuning left is readable", facts):
                value = read_json(facts)
            if value["held_out_metrics"]:
                events.append(ModelFitted(1, self._records, value["held_out_metrics"]))
            seconds = PhaseSeconds(**value["seconds"])
            events.append(RoundFinished(1, self._records, self._failures, self._best, seconds))
        return events


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _written(path: Path) -> int:
    """Returns when a file was written, in nanoseconds since 1970; 0 if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _parsed(path: Path, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RecordError(
            "every line of a records file is a JSON object", f"{path.name}: {line!r:.80}", "Remove the line."
        )
    return value


def _check_header(path: Path, line: bytes) -> None:
    schema = _parsed(path, line).get("schema_version")
    if schema != SCHEMA_VERSION:
        raise RecordError(f"a records file begins with a header of schema {SCHEMA_VERSION}", repr(schema))

"""Rounds of measurement: runs the trials of a stage that have no record yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dietlab.events import Audience, TrialMeasured
from dietlab.measure import Record, RecordStore, Round, Runner, Trial
from dietlab.search.tuning_run import TuningRun
from dietlab.space import Scheme, Space


def measure_missing(
    asked_by: Round,
    run: TuningRun,
    trials: Sequence[Trial],
    runner: Runner,
    listeners: Audience,
    store: RecordStore,
) -> tuple[Record, ...]:
    """Measures the ``trials`` that the store has no record of, except those that failed before, and returns
    all records of these trials in round ``asked_by``."""
    left = missing(trials, (r for r in store.records if r.asked_by == asked_by or not r.ok))
    with listeners.stage(asked_by.stage, sum(len(trial.shapes) for trial in left), "measurement") as progress:
        measure_all(run.space, left, runner, store, listeners, progress.advance, asked_by)
    wanted = {(trial.scheme, shape) for trial in trials for shape in trial.shapes}
    return tuple(
        record
        for record in store.records
        if record.asked_by == asked_by and (record.scheme, record.shape) in wanted
    )


def missing(trials: Iterable[Trial], records: Iterable[Record]) -> list[Trial]:
    """Returns the trials without a record, each with its missing shapes only."""
    done = {(record.scheme, record.shape) for record in records}
    return [
        Trial(trial.scheme, left)
        for trial in trials
        if (left := tuple(shape for shape in trial.shapes if (trial.scheme, shape) not in done))
    ]


def measure_all(
    space: Space,
    trials: Sequence[Trial],
    runner: Runner,
    store: RecordStore,
    listeners: Audience,
    advance: Callable[[str, int], None],
    asked_by: Round,
    *,
    counted: Collection[Scheme] | None = None,
) -> None:
    """Runs the trials; every record is on disk before it is announced.

    Progress counts records or, if ``counted`` is given, those schemes, each once all its shapes are
    measured.
    """
    if not trials:
        return
    left = {trial.scheme: len(trial.shapes) for trial in trials}
    best = max((record.gflops(space.workload) for record in store.records), default=0.0)
    with _closed_on_error(runner):
        for measurement in runner.measure(space.workload, trials):
            record = replace(measurement, asked_by=asked_by)
            store.append(record)
            gflops = record.gflops(space.workload)
            best = max(best, gflops)
            listeners.send(_announcement(record, gflops, len(store.records)))
            left[record.scheme] -= 1
            complete = counted is None or (record.scheme in counted and not left[record.scheme])
            advance(f"best {best:.1f} GFLOP/s", int(complete))


def _announcement(record: Record, gflops: float, trials: int) -> TrialMeasured:
    scheme, shape = record.scheme.key, str(record.shape)
    return TrialMeasured(scheme, shape, gflops, record.status, trials, record.reason, record.phases)


@contextmanager
def _closed_on_error(runner: Runner) -> Iterator[None]:
    """Closes the runner on an error or a stop, so that no worker process stays; it can be used again."""
    try:
        yield
    except BaseException:
        close = getattr(runner, "close", None)
        if close is not None:
            close()
        raise

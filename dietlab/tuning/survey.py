"""Surveys a space: measures every scheme on every shape, for replay and for the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dietlab.base.events import Observer, audience
from dietlab.lower.decisions import DEFAULTS
from dietlab.lower.target import recorded_lowering
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Measures, Record, RecordStore, Trial
from dietlab.problem import Shape, Workload, workload_to_json
from dietlab.scheme import Space
from dietlab.tuning.build import versions
from dietlab.tuning.rounds import Answering, missing

BATCH = 32
"""The number of schemes that are built together before timing: enough to keep all cores compiling."""


def survey(
    space: Space,
    shapes: Sequence[Shape],
    runner: Measures,
    store: RecordStore | None = None,
    observers: Iterable[Observer] = (),
) -> tuple[Record, ...]:
    """Measures the whole space and returns its records. Pairs with a record in ``store`` are not measured
    again.

    Args:
        space: the schemes to measure.
        shapes: the shapes to measure each of them on.
        runner: the runner that measures trials.
        store: the store, which receives each record at once (None: a store in memory).
        observers: the observers, which get each event as it happens.
    """
    store = RecordStore() if store is None else store
    left = missing((Trial(scheme, tuple(shapes)) for scheme in space), store.records)
    listeners = audience(observers)
    with listeners.stage("survey", sum(len(trial.shapes) for trial in left), "measurement") as progress:
        best = 0.0
        for start in range(0, len(left), BATCH):
            for record in Answering(runner).measure(space.workload, left[start : start + BATCH]):
                store.append(record)
                best = max(best, record.gflops(space.workload))
                progress.advance(f"best {best:.1f} GFLOP/s")
    return tuple(store.records)


def records_header(workload: Workload, hardware: Hardware, cache: CacheState) -> dict[str, Any]:
    """Returns the first line of a file of records: workload, hardware, versions, cache state and lowering."""
    return {
        "workload": workload_to_json(workload),
        "hardware": hardware.to_json(),
        "versions": versions(),
        "cache": cache,
        "lowering": recorded_lowering(DEFAULTS, hardware),
    }

"""Writes ``fleet.json``: what the rounds of one long tuning take of the tuner itself, and what they ask for.

    python data/search/make_fleet.py

The tuning is of ``Dense(T=1..128, N=2304, K=768)`` on the synthetic machine, which answers at once; its
seconds of fitting and searching are this machine's. Nothing else should run. It takes about a minute.
"""

from __future__ import annotations

import json
from pathlib import Path

import dietlab as dl
from dietlab.bench.fleet import Costs, Priced, RoundClock, rounds_of, save_rounds
from dietlab.measure import SyntheticRunner

HERE = Path(__file__).resolve().parent
BENCH, STUDY = "results/zen4-bench.json", "dense-k768-n2304"
"""A recorded tuning of the same layer, which says what a measurement costs."""


def costs() -> Costs:
    """Returns the mean seconds of that tuning."""
    studies = json.loads(dl.data_path(BENCH).read_text(encoding="utf-8"))["studies"]
    facts = next(study["tuning"] for study in studies if study["name"] == STUDY)
    seconds, measured = facts["seconds"], facts["measurements"]
    return Costs(
        seconds["compile"] / facts["trials"], seconds["verify"] / measured, seconds["measure"] / measured
    )


def main() -> None:
    hardware = dl.Hardware.preset("cascadelake-1core")
    dense = dl.Dense(T=dl.Dim(1, 128), N=2304, K=768)
    runner, clock = Priced(SyntheticRunner(hardware), costs()), RoundClock()
    space, shapes = dl.build_space(dense, hardware), dl.ShapeSet.uniform(dense)
    run = dl.tune(space, shapes, runner, "full", observers=[clock])
    save_rounds(rounds_of(run.records, clock), HERE / "fleet.json")


if __name__ == "__main__":
    main()

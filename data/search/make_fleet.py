"""Writes ``fleet.json``: what the rounds of long tunings take of the tuner itself, and what they ask for.

    python data/search/make_fleet.py

The tunings are of ``Dense(T=1..128, N=2304, K=768)`` on the synthetic machine, which answers at once: with
each of :data:`SEEDS`, with rounds that wait for each other and with rounds ahead. Their seconds of fitting
and searching are those of this machine's processor, of one thread (``OPENBLAS_NUM_THREADS=1``). It takes
about ten minutes.
"""

from __future__ import annotations

import json
from math import exp, log
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean

import dietlab as dl
from dietlab.base.files import write_json
from dietlab.cost import LearnedPredictor
from dietlab.lab.strategies.fleet import AHEAD, WAITS, Costs, Priced, RoundWork, tunings_to_json, worked
from dietlab.measure import SyntheticRunner
from dietlab.tuning import Tuner, effort_named, length_grid
from dietlab.tuning.strategies.registry import strategy_named

HERE = Path(__file__).resolve().parent
SEEDS, EFFORTS = range(5), ("full", "quick")
PROCESSES = 2
HARDWARE = dl.Hardware.preset("cascadelake-1core")
DENSE = dl.Dense(T=dl.Dim(1, 128), N=2304, K=768)
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


def tuned(effort: str, seed: int, ahead: bool) -> tuple[tuple[RoundWork, ...], float]:
    """Returns the work of one tuning, and how good the library is that follows: the geometric mean over the
    lengths of the time of the fastest scheme of the space over that of the library's."""
    runner, preset = SyntheticRunner(HARDWARE), effort_named(effort)
    space, shapes = dl.build_space(DENSE, HARDWARE), dl.ShapeSet.uniform(DENSE)
    predictor = LearnedPredictor(cache=preset.timing.cache, seed=seed)
    tuner = Tuner(space, shapes, preset, strategy_named("draft"), predictor, seed=seed)
    tuner, rounds = worked(tuner, Priced(runner, costs()), ahead=ahead)
    library = dl.train_dispatcher(dl.choose_portfolio(tuner.known, max_kernels=tuner.max_kernels))
    lost = []
    for shape in length_grid(DENSE, shapes):
        best = min(runner.seconds(DENSE, scheme, shape) for scheme in space)
        lost.append(log(runner.seconds(DENSE, library.scheme(shape), shape) / best))
    return rounds, exp(-fmean(lost))


def main() -> None:
    ways = {WAITS: False, AHEAD: True}
    turns = [(effort, seed, way) for effort in EFFORTS for seed in SEEDS for way in ways.values()]
    with Pool(PROCESSES) as pool:
        found = dict(zip(turns, pool.starmap(tuned, turns, chunksize=1), strict=True))
    longest = {way: [found[EFFORTS[0], seed, ways[way]][0] for seed in SEEDS] for way in ways}
    quality = {
        effort: {way: [round(found[effort, seed, ways[way]][1], 5) for seed in SEEDS] for way in ways}
        for effort in EFFORTS
    }
    write_json(HERE / "fleet.json", {"tunings": tunings_to_json(longest), "quality": quality}, indent=None)


if __name__ == "__main__":
    main()

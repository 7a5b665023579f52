"""Writes ``transfer.json``: tunings of a layer, replayed from nothing and from other records: of the same
layer on another machine, and of other layers on this one.

    python data/search/make_transfer.py

The surveys that come with dietlab hold ``Dense(T=1..128, N=2304, K=768)`` from two machines: the whole of
``quickstart`` (Zen 4, weights in cache) and a part of ``cost/dense`` (Zen 3, weights from memory), which has
four layers. It takes about ten minutes.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from multiprocessing import Pool
from pathlib import Path

import dietlab as dl
from dietlab.base.files import write_json
from dietlab.cost import Prior, Survey
from dietlab.lab.strategies.transfer import gains, transfer_curves
from dietlab.measure import read_records

HERE = Path(__file__).resolve().parent
SEEDS, SHARED = range(5), (2304, 768)
LAYERS = ((768, 768), (768, 3072), SHARED, (3072, 768))
PROCESSES = 2
MACHINES = {"Zen 3": "cost/dense", "Zen 4": "quickstart"}


OTHERS = "Zen 3, other layers"


def saved(source: str, target: str, layer: tuple[int, int], seed: int) -> dict[str, object]:
    """Returns what some records save a tuning of a layer."""
    asked = read_records(dl.data_path(f"{MACHINES[target]}/records.jsonl.gz"))
    survey = Survey.of(asked, MACHINES[target])
    shapes = sorted({record.shape for record in survey.truth if survey.layer_of(record.shape) == layer})
    if source == OTHERS:
        others = [record for record in asked.records if survey.layer_of(record.shape) != layer]
        known = replace(asked, records=tuple(others))
    else:
        known = read_records(dl.data_path(f"{MACHINES[source]}/records.jsonl.gz"))
    (gain,) = gains(transfer_curves(survey, shapes, Prior.fit([known]), [seed]))
    return {"source": source, "target": target, "layer": layer, **asdict(gain)}


def main() -> None:
    turns = [
        *((OTHERS, "Zen 3", layer) for layer in LAYERS),
        ("Zen 3", "Zen 4", SHARED),
        ("Zen 4", "Zen 3", SHARED),
    ]
    with Pool(PROCESSES) as pool:
        found = pool.starmap(saved, [(*turn, seed) for turn in turns for seed in SEEDS], chunksize=1)
    write_json(HERE / "transfer.json", {"gains": found}, indent=None)


if __name__ == "__main__":
    main()

"""Writes ``transfer.json``: tunings of one layer, replayed from nothing and from another machine's records.

    python data/search/make_transfer.py

The surveys that come with dietlab hold ``Dense(T=1..128, N=2304, K=768)`` from two machines: the whole of
``quickstart`` (Zen 4, weights in cache) and a part of ``cost/dense`` (Zen 3, weights from memory). It takes
about five minutes.
"""

from __future__ import annotations

from dataclasses import asdict
from multiprocessing import Pool
from pathlib import Path

import dietlab as dl
from dietlab.cost import Prior, Survey
from dietlab.files import write_json
from dietlab.measure import read_records
from dietlab.search.transfer import gains, transfer_curves

HERE = Path(__file__).resolve().parent
SEEDS, LAYER = range(5), (2304, 768)
PROCESSES = 2
MACHINES = {"Zen 3": "cost/dense", "Zen 4": "quickstart"}


def saved(source: str, target: str, seed: int) -> dict[str, object]:
    """Returns what the records of one machine save a tuning on the other."""
    known, asked = (
        read_records(dl.data_path(f"{MACHINES[name]}/records.jsonl.gz")) for name in (source, target)
    )
    survey = Survey.of(asked, MACHINES[target])
    shapes = sorted({record.shape for record in survey.truth if survey.layer_of(record.shape) == LAYER})
    (gain,) = gains(transfer_curves(survey, shapes, Prior.fit([known]), [seed]))
    return {"source": source, "target": target, **asdict(gain)}


def main() -> None:
    turns = [(one, other, seed) for one in MACHINES for other in MACHINES if one != other for seed in SEEDS]
    with Pool(PROCESSES) as pool:
        write_json(HERE / "transfer.json", {"gains": pool.starmap(saved, turns, chunksize=1)}, indent=None)


if __name__ == "__main__":
    main()

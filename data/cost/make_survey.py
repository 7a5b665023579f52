"""Measures the surveys of this folder: random schemes of a space, each on every shape, twice.

    python data/cost/make_survey.py dense 0 survey/dense.jsonl
    python data/cost/make_survey.py dense 1 survey/dense.jsonl --pack data/cost/dense.jsonl.gz

One call is one pass: its candidates take turns, on up to 16 shapes at a time, so that their ratios are free
of what the machine does between passes; what two passes differ by is the noise. A part of a pass can be asked
for.
Every candidate takes all turns, however slow it is, and its time is the median of its blocks.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

from dietlab.machine import Hardware
from dietlab.measure import (
    LocalRunner,
    Record,
    RecordStore,
    Round,
    Timing,
    Trial,
    contest,
    read_records,
    write_compressed,
)
from dietlab.problem import BatchMatmul, Dense, Shape, Workload
from dietlab.problem.dims import Dim
from dietlab.scheme import build_space, edges_of
from dietlab.targets.cpu.machine import measured
from dietlab.tuning.rounds import without
from dietlab.tuning.survey import records_header

SCHEMES = 80
"""How many are drawn from each space: with 32 shapes, a pass takes some minutes."""

LENGTHS = (1, 5, 13, 24, 43, 67, 100, 128)
LAYERS = ((768, 768), (2304, 768), (3072, 768), (768, 3072))
"""Features and depth of BERT-base's dense layers."""

HEADS, HEAD_SIZE = 48, 64
"""Products of one batched call, of 4 sentences in BERT-base, and the size of a head."""

TIMING = Timing(blocks=12, block_seconds=0.002, cache="rotating")


def workload(name: str) -> Workload:
    if name == "dense":
        return Dense(T=Dim(1, 2048), N=Dim(64, 4096), K=Dim(64, 4096))
    return BatchMatmul(T=Dim(1, 128), B=HEADS, D=HEAD_SIZE, form="nt" if name == "batch-nt" else "nn")


def shapes(name: str) -> list[Shape]:
    if name == "dense":
        return [Shape.of(T=length, N=cols, K=depth) for cols, depth in LAYERS for length in LENGTHS]
    return [Shape.of(T=length) for length in LENGTHS]


def of_blocks(record: Record) -> Record:
    """Returns a record with the median of the blocks for the least; from cache there is the least only."""
    middle = record.seconds and record.seconds * (1 + record.spread)
    return replace(record, seconds=middle, cached_seconds=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=("dense", "batch-nt", "batch-nn"))
    parser.add_argument("number", type=int, help="of the pass")
    parser.add_argument("records", type=Path, help="the .jsonl file; goes on in it")
    parser.add_argument("--part", default="0:32", help="of the shapes, FIRST:LAST")
    parser.add_argument("--pack", type=Path, help="also write it compressed")
    asked = parser.parse_args()
    work = workload(asked.name)
    if asked.records.exists():
        hardware = read_records(asked.records).hardware
    else:
        hardware = measured(Hardware.detect(measure=False).with_cores(1))
    header = records_header(work, hardware, TIMING.cache)
    store = RecordStore(asked.records, header)
    space = build_space(work, hardware, edges_of("composed", work, hardware))
    drawn = Random(26).sample(space.schemes, min(SCHEMES, len(space)))
    first, last = map(int, asked.part.split(":"))
    known = Round("survey", asked.number)
    done = {(r.scheme, r.shape) for r in store.records if r.asked_by == known}
    wanted = tuple(shapes(asked.name)[first:last])
    assert contest.BEHIND
    contest.BEHIND = inf
    with LocalRunner(hardware, TIMING) as runner:
        for record in runner.measure(work, without((Trial(s, wanted) for s in drawn), done)):
            store.append(of_blocks(replace(record, asked_by=known)))
    failed = [record for record in store.records if not record.ok]
    print(f"{len(store.records)} records, {len(failed)} failures")
    if asked.pack:
        write_compressed(asked.pack, header, store.records)


if __name__ == "__main__":
    main()

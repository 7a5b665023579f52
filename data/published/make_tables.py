"""Makes the tables of this folder from measurements that others published.

    dietlab fetch-records autoheuristic
    python data/published/make_tables.py runs/autoheuristic/h100.jsonl.gz
    python data/published/make_tables.py CUDA-L2/eval_results

The first source is fetched, the second is a clone of its repository.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dietlab.lab.published.records import Published
from dietlab.lab.published.tables import derive_tables, reduce_cuda_l2, write_tables

SEEDS = 2
"""Draws of what is held out: each holds out every shape once, so that more change little."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "source", type=Path, help="fetched records of a GPU, or the folder of CUDA-L2's tables"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    if asked.source.is_dir():
        table = reduce_cuda_l2(asked.source)
        table.to_csv(asked.out / "cuda_l2.csv", index=False, float_format="%.4f")
        return
    published = Published.load(asked.source)
    write_tables(asked.out, published.gpu, derive_tables(published, range(asked.seeds), print))


if __name__ == "__main__":
    main()

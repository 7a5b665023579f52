"""Measures one dense layer with every unit that this processor has, in one cache state, and writes a table.

    python data/units/make_units.py hot hot.csv
    python data/units/make_units.py rotating rotating.csv
    python data/units/make_units.py --pack units.csv hot.csv rotating.csv

A draft chooses some schemes for each unit; all are timed on each length, and the fastest is kept.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

import dietlab as dl
from dietlab.targets.cpu.units import UNITS, units_of

LENGTHS = (1, 4, 16, 32, 64, 128)
TRIALS = 6
"""Schemes of each unit: the draft's best are within some percent of the best of a search."""

EFFORT = replace(dl.EFFORTS["smoke"], name="units", trials=TRIALS, batch=TRIALS, decisions=0)
WITHOUT_VNNI = "skylake-avx512"
"""The processor whose fastest int8 unit is ``maddwd``: a library packs weights for the fastest one."""


def described(hardware: dl.Hardware, unit: str) -> dl.Hardware:
    """Returns the processor, for ``maddwd`` as one without anything faster."""
    if unit != "maddwd":
        return hardware
    return replace(hardware, limits=replace(hardware.limits, llvm_cpu=WITHOUT_VNNI))


def measured(unit: str, hardware: dl.Hardware, cache: str) -> list[dict[str, object]]:
    """Returns the fastest scheme of one unit on each length, with its seconds a call."""
    layer = dl.Dense(T=dl.Dim(1, 128), N=2304, K=768, dtype=UNITS[unit].dtype)
    whole = dl.build_space(layer, hardware)
    space = whole.restricted_to(scheme for scheme in whole if scheme.kernel.unit == unit)
    shapes = dl.ShapeSet.extents(layer, LENGTHS)
    timing = dl.Timing(blocks=9, block_seconds=0.002, cache=cache)
    with dl.LocalRunner(hardware, timing) as runner:
        run = dl.tune(space, shapes, runner, replace(EFFORT, timing=timing))
        tried = {record.scheme for record in run.records if record.ok}
        records = dl.survey(space.restricted_to(tried), shapes.shapes, runner)
    rows = []
    for shape in shapes:
        timed = [record for record in records if record.shape == shape and record.seconds]
        best = min(timed, key=lambda record: record.seconds or 0.0)
        found = {"unit": unit, "dtype": layer.dtype, "cache": cache, "T": shape["T"]}
        told = {"seconds": best.seconds, "spread": best.spread, "gops": best.gflops(layer)}
        rows.append({**found, "scheme": best.scheme.key, **told})
        print(rows[-1], flush=True)
    return rows


def main(cache: str, path: str) -> None:
    hardware = dl.Hardware.detect().with_cores(1)
    print(hardware.to_json(), flush=True)
    llvm = hardware.limits.llvm_cpu
    units = [unit for dtype in ("float32", "int8", "bfloat16") for unit in units_of(llvm, dtype)]
    rows = [row for unit in units for row in measured(unit, described(hardware, unit), cache)]
    pd.DataFrame(rows).to_csv(Path(path), index=False, float_format="%.6g")


if __name__ == "__main__":
    if sys.argv[1] == "--pack":
        parts = [pd.read_csv(part) for part in sys.argv[3:]]
        pd.concat(parts).to_csv(sys.argv[2], index=False, float_format="%.6g")
    else:
        main(*sys.argv[1:])

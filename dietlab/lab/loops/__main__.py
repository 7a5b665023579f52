"""Records the first lesson's steps on this machine: ``python -m dietlab.lab.loops FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from dietlab.lab.loops.climb import Climb
from dietlab.lab.loops.programs import Layer
from dietlab.lab.loops.steps import OTHER_TILES, STEPS
from dietlab.lab.loops.timing import measure
from dietlab.tuning import versions

LENGTHS = (128, 121, 5)
"""The three lengths: many rows, a number of rows that no tile divides, and few rows."""


def main(path: str) -> None:
    """Measures the steps and the other tiles on three lengths, and writes the file."""
    layers = [Layer(T=T) for T in LENGTHS]
    found = measure([*STEPS, *OTHER_TILES], layers, tell=lambda text: print(text, flush=True))
    about = {**found.about, "command": "python -m dietlab.lab.loops FILE", "versions": dict(versions())}
    Climb(found.hardware, found.rows, about).save(Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])

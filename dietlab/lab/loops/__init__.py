"""From three loops to a micro-kernel: the first lesson's schedules, the worth of each, and their figure.

A step is a few schedule primitives of TensorIR. Each program that they make is built, checked against NumPy
and timed; ``data/loops`` has such times.
"""

from dietlab.lab.loops.climb import (
    DIETLAB,
    Climb,
    Timed,
    bounds,
    frame_climb,
    plot_climb,
    recorded,
    step_named,
    told,
)
from dietlab.lab.loops.programs import (
    BERT,
    Layer,
    Program,
    build,
    check,
    decisions,
    inputs,
    instructions,
    nest,
    scheduled,
    sketches,
)
from dietlab.lab.loops.steps import GOAL, OTHER_TILES, STEPS, Step, Tile
from dietlab.lab.loops.timing import measure

__all__ = [
    "BERT",
    "DIETLAB",
    "GOAL",
    "OTHER_TILES",
    "STEPS",
    "Climb",
    "Layer",
    "Program",
    "Step",
    "Tile",
    "Timed",
    "bounds",
    "build",
    "check",
    "decisions",
    "frame_climb",
    "inputs",
    "instructions",
    "measure",
    "nest",
    "plot_climb",
    "recorded",
    "scheduled",
    "sketches",
    "step_named",
    "told",
]

"""Effort presets: the one place that holds counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.errors import DietlabError
from dietlab.measure import Timing


@dataclass(frozen=True)
class Effort:
    """How much to try, measure and compare.

    Args:
        trials: distinct micro-kernels measured.
        batch: micro-kernels of one round of the search.
        confirm_kernels, confirm_shapes: the best micro-kernels are measured on more shapes, so that
            the dispatcher knows how their throughput changes with the shape.
        verify_shapes: shapes on which the plans that are probably fastest are measured.
        timing: how a candidate is timed.
        evaluation_blocks, evaluation_block_seconds: how contenders are timed.
        ansor_trials, ansor_seconds: the per-shape baseline: trials a shape, and the time after
            which no further shape is begun (None: all shapes).
    """

    name: str
    trials: int
    batch: int
    confirm_kernels: int
    confirm_shapes: int
    verify_shapes: int
    timing: Timing
    evaluation_blocks: int
    evaluation_block_seconds: float
    ansor_trials: int
    ansor_seconds: float | None


LONG_CALL = 0.015
"""Seconds of a call from which on one block says enough: it is longer than most disturbances."""

EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("smoke", 8, 8, 3, 6, 4, Timing(3, 0.001, LONG_CALL, "rotating"), 3, 0.002, 4, 60.0),
        Effort("quick", 64, 16, 12, 16, 64, Timing(5, 0.002, LONG_CALL, "rotating"), 7, 0.004, 32, 90.0),
        Effort("full", 512, 64, 32, 48, 160, Timing(9, 0.005, LONG_CALL, "rotating"), 15, 0.006, 256, None),
    )
}


def effort_named(effort: str | Effort) -> Effort:
    """A preset by name, or the effort itself."""
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise DietlabError(f"an effort is one of {', '.join(EFFORTS)}", repr(effort))
    return EFFORTS[effort]

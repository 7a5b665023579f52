"""Effort presets: the one place that holds counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.errors import DietlabError
from dietlab.measure import Timing


@dataclass(frozen=True, kw_only=True)
class Effort:
    """A preset of counts and seconds: how much to try, measure and compare.

    Args:
        trials: distinct schemes measured.
        batch: schemes of one round of the search.
        confirm_kernels, confirm_shapes: the best schemes are measured on more shapes, so that
            the dispatcher knows how their throughput changes with the shape.
        verify_shapes: shapes on which the plans that are probably fastest are measured.
        verify_rounds: rounds of verifying. The first round's records change which plans are probably
            fastest; the next takes shapes between those of the first, and again those where another plan
            is now expected to win.
        finalists, short_finalists: the most plans measured for each shape of a round of verifying, and for
            one of few rows (:data:`~dietlab.search.verify.FEW_ROWS`).
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
    verify_rounds: int
    finalists: int
    short_finalists: int
    timing: Timing
    evaluation_blocks: int
    evaluation_block_seconds: float
    ansor_trials: int
    ansor_seconds: float | None


LONG_CALL = 0.015
"""Calls of at least this many seconds are timed by one block: they outlast most disturbances."""

EFFORTS = {
    effort.name: effort
    for effort in (
        Effort(
            name="smoke",
            trials=8,
            batch=8,
            confirm_kernels=3,
            confirm_shapes=4,
            verify_shapes=4,
            verify_rounds=1,
            finalists=2,
            short_finalists=2,
            timing=Timing(blocks=3, block_seconds=0.001, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=3,
            evaluation_block_seconds=0.002,
            ansor_trials=4,
            ansor_seconds=60.0,
        ),
        Effort(
            name="quick",
            trials=64,
            batch=16,
            confirm_kernels=12,
            confirm_shapes=16,
            verify_shapes=64,
            verify_rounds=2,
            finalists=3,
            short_finalists=8,
            timing=Timing(blocks=5, block_seconds=0.002, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=7,
            evaluation_block_seconds=0.004,
            ansor_trials=32,
            ansor_seconds=90.0,
        ),
        Effort(
            name="full",
            trials=512,
            batch=64,
            confirm_kernels=32,
            confirm_shapes=48,
            verify_shapes=160,
            verify_rounds=2,
            finalists=3,
            short_finalists=8,
            timing=Timing(blocks=9, block_seconds=0.005, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=15,
            evaluation_block_seconds=0.006,
            ansor_trials=256,
            ansor_seconds=None,
        ),
    )
}


def effort_named(effort: str | Effort) -> Effort:
    """Returns the preset of that name, or the effort itself.

    Raises:
        DietlabError: for an unknown name.
    """
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise DietlabError(f"an effort is one of {', '.join(EFFORTS)}", repr(effort))
    return EFFORTS[effort]

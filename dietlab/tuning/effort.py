"""Effort presets: the one place that holds counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from dietlab.base.errors import DietlabError
from dietlab.measure import Timing


@dataclass(frozen=True, kw_only=True)
class Effort:
    """A preset of counts and seconds: how much to try, measure and compare.

    Args:
        name: the name of the preset.
        trials: the number of distinct schemes that the search measures.
        batch: the number of schemes in one round of the search.
        decisions: the largest number of measurements for deciding, each of a pair of a scheme and a shape.
        decision_batch: the number of measurements in one round of deciding.
        decided_loss: the largest share of the time that undecided pairs may still cost when deciding ends
            (:attr:`~dietlab.tuning.decide.Decision.expected_loss`).
        timing: the protocol by which candidates are timed.
        evaluation_blocks, evaluation_block_seconds: the number and the length of the blocks by which
            contenders are timed.
        ansor_trials, ansor_seconds: for the per-shape baseline, the number of trials for each shape, and the
            time after which no further shape is begun (None: all shapes are tuned).
    """

    name: str
    trials: int
    batch: int
    decisions: int
    decision_batch: int
    decided_loss: float
    timing: Timing
    evaluation_blocks: int
    evaluation_block_seconds: float
    ansor_trials: int
    ansor_seconds: float | None


LONG_CALL = 0.015
"""The shortest call that is timed by a single block, in seconds: such calls outlast most disturbances."""

EFFORTS = {
    effort.name: effort
    for effort in (
        Effort(
            name="smoke",
            trials=8,
            batch=8,
            decisions=24,
            decision_batch=12,
            decided_loss=0.03,
            timing=Timing(blocks=3, block_seconds=0.001, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=3,
            evaluation_block_seconds=0.002,
            ansor_trials=4,
            ansor_seconds=60.0,
        ),
        # A first library and its report within five minutes on a shared machine.
        Effort(
            name="brief",
            trials=32,
            batch=16,
            decisions=160,
            decision_batch=40,
            decided_loss=0.02,
            timing=Timing(blocks=5, block_seconds=0.002, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=5,
            evaluation_block_seconds=0.003,
            ansor_trials=16,
            ansor_seconds=20.0,
        ),
        Effort(
            name="quick",
            trials=64,
            batch=16,
            decisions=800,
            decision_batch=80,
            decided_loss=0.01,
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
            decisions=2400,
            decision_batch=160,
            decided_loss=0.005,
            timing=Timing(blocks=9, block_seconds=0.005, stop_beyond=LONG_CALL, cache="rotating"),
            evaluation_blocks=15,
            evaluation_block_seconds=0.006,
            ansor_trials=256,
            ansor_seconds=None,
        ),
    )
}
"""The presets of effort by name."""


def effort_named(effort: str | Effort) -> Effort:
    """Returns the preset with the name ``effort``, or ``effort`` itself if it is a preset.

    Raises:
        DietlabError: for an unknown name.
    """
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise DietlabError(f"an effort is one of {', '.join(EFFORTS)}", repr(effort))
    return EFFORTS[effort]

"""The targets: one folder for each kind of processor, found by its name (:mod:`dietlab.hardware.target`).

Each module is the part of one stage and satisfies the stage's protocol. No stage imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dietlab.cost.target import CostTarget
    from dietlab.evaluation.target import EvaluationTarget
    from dietlab.hardware.target import HardwareTarget
    from dietlab.lower.target import LowerTarget
    from dietlab.space.target import SpaceTarget
    from dietlab.timing.target import TimingTarget

    class Parts(NamedTuple):
        """All parts of a target, in the order of the stages."""

        hardware: HardwareTarget
        space: SpaceTarget
        lower: LowerTarget
        timing: TimingTarget
        cost: CostTarget
        evaluation: EvaluationTarget

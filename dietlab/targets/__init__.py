"""The targets: one folder for each kind of processor, found by its name (:mod:`dietlab.machine.target`).

Each module is the part of one stage and satisfies the stage's protocol. No stage imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dietlab.compare.target import EvaluationTarget
    from dietlab.cost.target import CostTarget
    from dietlab.lower.target import LowerTarget
    from dietlab.machine.target import HardwareTarget
    from dietlab.measure.timing.target import TimingTarget
    from dietlab.scheme.target import SpaceTarget

    class Parts(NamedTuple):
        """All parts of a target, in the order of the stages."""

        machine: HardwareTarget
        space: SpaceTarget
        lowering: LowerTarget
        device: TimingTarget
        cost: CostTarget
        contenders: EvaluationTarget

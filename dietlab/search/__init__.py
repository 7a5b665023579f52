"""The joint search over space, measurement and cost model, all shapes at once."""

from dietlab.measure.record import DECIDE, SEARCH
from dietlab.search.decide import Decision
from dietlab.search.effort import EFFORTS, Effort, effort_named
from dietlab.search.phases import PhaseTimer, with_records
from dietlab.search.state import SearchState, Strategy
from dietlab.search.strategies import STRATEGIES
from dietlab.search.survey import survey
from dietlab.search.tune import tune
from dietlab.search.tuner import Proposal, Tuner
from dietlab.search.tuning_run import TuningRun

__all__ = [
    "DECIDE",
    "EFFORTS",
    "SEARCH",
    "STRATEGIES",
    "Decision",
    "Effort",
    "PhaseTimer",
    "Proposal",
    "SearchState",
    "Strategy",
    "Tuner",
    "TuningRun",
    "effort_named",
    "survey",
    "tune",
    "with_records",
]

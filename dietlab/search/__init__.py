"""The joint search over space, measurement and cost model, all shapes at once."""

from dietlab.search.effort import EFFORTS, Effort, effort_named
from dietlab.search.strategies import STRATEGIES, SearchState, Strategy
from dietlab.search.survey import survey
from dietlab.search.tune import TuningRun, best_together, tune

__all__ = [
    "EFFORTS", "STRATEGIES", "Effort", "SearchState", "Strategy", "TuningRun", "best_together",
    "effort_named", "survey", "tune",
]  # fmt: skip

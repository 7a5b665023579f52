"""The joint search over space, measurement and cost model, all shapes at once."""

from dietlab.search.candidates import best_together, candidate_plans, distinct
from dietlab.search.effort import EFFORTS, Effort, effort_named
from dietlab.search.length_grid import DENSE_SHAPES, length_grid
from dietlab.search.phases import PhaseTimer, with_records
from dietlab.search.rounds import measure_missing
from dietlab.search.strategies import STRATEGIES, SearchState, Strategy
from dietlab.search.survey import survey
from dietlab.search.tune import SEARCH, tune
from dietlab.search.tuning_run import TuningRun
from dietlab.search.verify import VERIFY, is_short, measured_together

__all__ = [
    "DENSE_SHAPES",
    "EFFORTS",
    "SEARCH",
    "STRATEGIES",
    "VERIFY",
    "Effort",
    "PhaseTimer",
    "SearchState",
    "Strategy",
    "TuningRun",
    "best_together",
    "candidate_plans",
    "distinct",
    "effort_named",
    "is_short",
    "length_grid",
    "measure_missing",
    "measured_together",
    "survey",
    "tune",
    "with_records",
]

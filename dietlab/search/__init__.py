"""The joint search over space, measurement and cost model, all shapes at once."""

from dietlab.search.candidates import best_together, candidate_plans, distinct
from dietlab.search.clock import Clock, with_records
from dietlab.search.dense import DENSE_SHAPES, dense_shapes
from dietlab.search.effort import EFFORTS, Effort, effort_named
from dietlab.search.rounds import measured
from dietlab.search.run import TuningRun
from dietlab.search.strategies import STRATEGIES, SearchState, Strategy
from dietlab.search.survey import survey
from dietlab.search.tune import tune
from dietlab.search.verify import VERIFY, is_short, met

__all__ = [
    "DENSE_SHAPES",
    "EFFORTS",
    "STRATEGIES",
    "VERIFY",
    "Clock",
    "Effort",
    "SearchState",
    "Strategy",
    "TuningRun",
    "best_together",
    "candidate_plans",
    "dense_shapes",
    "distinct",
    "effort_named",
    "is_short",
    "measured",
    "met",
    "survey",
    "tune",
    "with_records",
]

"""The bench: a whole table of workloads, contenders, cache states and threads, with targets."""

from dietlab.bench.criteria import CRITERIA, Criterion
from dietlab.bench.run import run_bench
from dietlab.bench.suite import SUITES, Suite, Task, suite_named
from dietlab.bench.summary import Line, by_workload, summarise
from dietlab.bench.table import BenchTable, Entry, StudyFacts

__all__ = [
    "CRITERIA",
    "SUITES",
    "BenchTable",
    "Criterion",
    "Entry",
    "Line",
    "StudyFacts",
    "Suite",
    "Task",
    "by_workload",
    "run_bench",
    "suite_named",
    "summarise",
]

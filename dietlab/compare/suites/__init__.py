"""The bench: a whole table of workloads, contenders, cache states and threads."""

from dietlab.compare.suites.run import run_bench
from dietlab.compare.suites.suite import SUITES, Suite, suite_named
from dietlab.compare.suites.task import Task

__all__ = [
    "SUITES",
    "Suite",
    "Task",
    "run_bench",
    "suite_named",
]

"""Results of measuring: rows, tables and reports of them, and what they amount to."""

from dietlab.results.criteria import CRITERIA, Criterion
from dietlab.results.parts import Part
from dietlab.results.report import ContenderInfo, Report, Row
from dietlab.results.speedups import Summary
from dietlab.results.summary import Line, by_workload, summarise
from dietlab.results.table import BenchTable, Entry, StudyFacts

__all__ = [
    "CRITERIA",
    "BenchTable",
    "ContenderInfo",
    "Criterion",
    "Entry",
    "Line",
    "Part",
    "Report",
    "Row",
    "StudyFacts",
    "Summary",
    "by_workload",
    "summarise",
]

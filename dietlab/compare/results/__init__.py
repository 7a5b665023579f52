"""Results of measuring: rows, tables and reports of them, and what they amount to."""

from dietlab.compare.results.criteria import CRITERIA, Criterion
from dietlab.compare.results.parts import Part
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo, Row
from dietlab.compare.results.speedups import Summary
from dietlab.compare.results.summary import Line, by_workload, summarise
from dietlab.compare.results.table import Entry, ResultTable

__all__ = [
    "CRITERIA",
    "ContenderInfo",
    "Criterion",
    "Entry",
    "Line",
    "Part",
    "Report",
    "ResultTable",
    "Row",
    "Summary",
    "by_workload",
    "summarise",
]

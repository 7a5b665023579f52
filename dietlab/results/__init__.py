"""Results of measuring: rows, tables and reports of them, and what they amount to."""

from dietlab.results.criteria import CRITERIA, Criterion
from dietlab.results.parts import Part
from dietlab.results.report import Report
from dietlab.results.row import ContenderInfo, Row
from dietlab.results.speedups import Summary
from dietlab.results.summary import Line, by_workload, summarise
from dietlab.results.table import Entry, ResultTable

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

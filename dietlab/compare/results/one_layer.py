"""The report of one layer, out of a report of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dietlab.problem import Shape, ShapeSet, at_layer, shapes_of_layer, workload_from_json

if TYPE_CHECKING:
    from dietlab.compare.results.report import Report


def report_of_layer(report: Report, layer: Mapping[str, int]) -> Report:
    """Returns :meth:`Report.of_layer <dietlab.compare.results.report.Report.of_layer>`."""
    bound = at_layer(workload_from_json(report.workload), layer)
    length, wanted = report.length, Shape.of(**layer)
    measured = shapes_of_layer(report.shape_set or ShapeSet.of(report.weights), layer, length)
    rows = tuple(
        replace(row, shape=Shape.of(**{length: row.shape[length]}))
        for row in report.rows
        if row.shape.without(length) == wanted
    )
    shapes = measured if report.shape_set else None
    return replace(report, workload=bound.to_json(), rows=rows, shape_set=shapes)

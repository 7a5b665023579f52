"""The report of one layer, out of a report of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dietlab.errors import RecordError
from dietlab.shapes import Shape, ShapeSet
from dietlab.workloads import at_layer, workload_from_json

if TYPE_CHECKING:
    from dietlab.evaluation.report import Report

NAMED = 4
"""The most layers that a message lists."""


def report_of_layer(report: Report, layer: Mapping[str, int]) -> Report:
    """Returns :meth:`Report.of_layer <dietlab.evaluation.report.Report.of_layer>`."""
    bound = at_layer(workload_from_json(report.workload), layer)
    wanted, length = Shape.of(**layer), report.length
    found = {row.shape: Shape.of(**{length: row.shape[length]}) for row in report.rows}
    here = {shape: short for shape, short in found.items() if shape.without(length) == wanted}
    if not here:
        some = "; ".join(map(str, report.layers[:NAMED]))
        raise RecordError("the report has this layer", wanted, f"Of its {len(report.layers)}: {some}.")
    rows = tuple(replace(row, shape=here[row.shape]) for row in report.rows if row.shape in here)
    shapes = _chosen(report.shape_set, here) if report.shape_set else None
    return replace(report, workload=bound.to_json(), rows=rows, shape_set=shapes)


def _chosen(shapes: ShapeSet, names: Mapping[Shape, Shape]) -> ShapeSet:
    """Returns the shapes of a set that ``names`` has, under these names and with their weights."""
    weighted = {
        names[shape]: weight
        for shape, weight in zip(shapes.shapes, shapes.weights, strict=True)
        if shape in names
    }
    held_out = (names[shape] for shape in shapes.held_out if shape in names)
    return replace(ShapeSet.of(weighted, held_out), source=shapes.source)

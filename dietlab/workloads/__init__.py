"""Operators, one file each, described as contractions."""

from __future__ import annotations

from dietlab.workloads.agreement import require_inputs, require_reference, require_workload
from dietlab.workloads.batch_matmul import BatchMatmul
from dietlab.workloads.contraction import (
    Axis,
    Inputs,
    IntArray,
    Role,
    Weights,
    Workload,
    axis_of,
    batch_of,
    batched,
    dtypes_of,
    extents,
    extents_of,
    largest,
    largest_shape,
    smallest,
    smallest_shape,
    static_extent,
)
from dietlab.workloads.dense import Dense
from dietlab.workloads.dimensions import bound
from dietlab.workloads.epilogue import ACTIVATIONS, NO_EPILOGUE, Activation, Epilogue
from dietlab.workloads.int8 import require_scales
from dietlab.workloads.layer import at_layer, length_dim, shapes_of_layer
from dietlab.workloads.operators import (
    OPERATORS,
    OperatorKind,
    make_workload,
    require_entered,
    without_class,
    workload_from_json,
    workload_to_json,
)
from dietlab.workloads.precision import PRECISIONS, FloatArray, Precision, require_dtype
from dietlab.workloads.tolerance import tolerance

__all__ = [
    "ACTIVATIONS",
    "NO_EPILOGUE",
    "OPERATORS",
    "PRECISIONS",
    "Activation",
    "Axis",
    "BatchMatmul",
    "Dense",
    "Epilogue",
    "FloatArray",
    "Inputs",
    "IntArray",
    "OperatorKind",
    "Precision",
    "Role",
    "Weights",
    "Workload",
    "at_layer",
    "axis_of",
    "batch_of",
    "batched",
    "bound",
    "dtypes_of",
    "extents",
    "extents_of",
    "largest",
    "largest_shape",
    "length_dim",
    "make_workload",
    "require_dtype",
    "require_entered",
    "require_inputs",
    "require_reference",
    "require_scales",
    "require_workload",
    "shapes_of_layer",
    "smallest",
    "smallest_shape",
    "static_extent",
    "tolerance",
    "without_class",
    "workload_from_json",
    "workload_to_json",
]

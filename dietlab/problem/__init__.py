"""Operators as contractions, one in each file, and their shapes, taken from layers and traffic."""

from dietlab.problem.agreement import require_inputs, require_reference, require_workload
from dietlab.problem.batch_matmul import BatchMatmul
from dietlab.problem.contraction import (
    Axis,
    Inputs,
    IntArray,
    Role,
    Weights,
    Workload,
    axes_of,
    batch_of,
    batched,
    channelwise,
    dtypes_of,
    extent_at,
    extents,
    extents_of,
    gathered,
    largest,
    largest_shape,
    name_of_role,
    precision_of,
    smallest,
    smallest_shape,
    split_extents,
    static_extent,
)
from dietlab.problem.convolution import Conv1d, Conv2d
from dietlab.problem.dense import Dense
from dietlab.problem.dims import Dim, Shape, bound
from dietlab.problem.epilogue import ACTIVATIONS, NO_EPILOGUE, Activation, Epilogue
from dietlab.problem.layer import at_layer, length_dim, shapes_of_layer
from dietlab.problem.network_layers import NetworkLayer, convolutions
from dietlab.problem.operators import (
    OPERATORS,
    OperatorKind,
    make_workload,
    require_entered,
    without_class,
    workload_from_json,
    workload_to_json,
)
from dietlab.problem.precision import PRECISIONS, USUAL, WORKING, FloatArray, Precision, require_dtype
from dietlab.problem.scales import require_scales
from dietlab.problem.shapes import ShapeSet
from dietlab.problem.tolerance import tolerance

__all__ = [
    "ACTIVATIONS",
    "NO_EPILOGUE",
    "OPERATORS",
    "PRECISIONS",
    "USUAL",
    "WORKING",
    "Activation",
    "Axis",
    "BatchMatmul",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Dim",
    "Epilogue",
    "FloatArray",
    "Inputs",
    "IntArray",
    "NetworkLayer",
    "OperatorKind",
    "Precision",
    "Role",
    "Shape",
    "ShapeSet",
    "Weights",
    "Workload",
    "at_layer",
    "axes_of",
    "batch_of",
    "batched",
    "bound",
    "channelwise",
    "convolutions",
    "dtypes_of",
    "extent_at",
    "extents",
    "extents_of",
    "gathered",
    "largest",
    "largest_shape",
    "length_dim",
    "make_workload",
    "name_of_role",
    "precision_of",
    "require_dtype",
    "require_entered",
    "require_inputs",
    "require_reference",
    "require_scales",
    "require_workload",
    "shapes_of_layer",
    "smallest",
    "smallest_shape",
    "split_extents",
    "static_extent",
    "tolerance",
    "without_class",
    "workload_from_json",
    "workload_to_json",
]

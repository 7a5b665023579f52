"""Features of pairs of a scheme and a shape: the knobs of the scheme, or the loops of the program.

``knobs`` are the parameters in the scheme's key, and the extents. ``loops`` describe each loop of the lowered
nest, the outermost loop first, by its length, by the bytes of each operand that its body touches (over the
size of each cache), by the bytes that are touched before an operand is read again, and by the multiply-adds
per byte (curve and itervar features: Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018, section
3.1 and appendix A.2; Zheng et al., Ansor, OSDI 2020, appendix B). The loops of weight-stationary (``ws``) and
input-stationary programs (``is``)::

    ws    batch, passes over the depth, columns of tiles, row tiles, steps, rows and vectors of a tile
    is    batch, passes over the depth, row tiles, columns of tiles, steps, rows and vectors of a tile

Sizes and distances are logarithms of base 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dietlab.cost.bundle import Calls, Formulas
from dietlab.problem import IntArray, Shape
from dietlab.problem.contraction import Weights
from dietlab.scheme import Scheme, covers_lines, tiles_of

Seen = Literal["knobs", "loops"]
"""The set of features of a pair that a model uses."""

Table = npt.NDArray[np.float32]
Named = Mapping[str, npt.NDArray[Any]]

FLOAT_BYTES = 4
WEIGHTS: tuple[Weights, ...] = get_args(Weights)


def pair_features(
    seen: Seen, formulas: Formulas, schemes: Sequence[Scheme], shapes: Sequence[Shape]
) -> Table:
    """Returns the features of single pairs, ``[pairs, features]``."""
    return _stacked(seen, formulas, schemes, shapes, lambda column: column)


def table_features(
    seen: Seen, formulas: Formulas, schemes: Sequence[Scheme], shapes: Sequence[Shape]
) -> Table:
    """Returns the features of every scheme on every shape, ``[schemes * shapes, features]``."""
    return _stacked(seen, formulas, schemes, shapes, lambda column: column[:, None])


def _stacked(
    seen: Seen,
    formulas: Formulas,
    schemes: Sequence[Scheme],
    shapes: Sequence[Shape],
    placed: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
) -> Table:
    calls = Calls.of(formulas.workload, shapes)
    extents = {f"extent of {role}": _log(extent) for role, extent in calls.extents.items()}
    rows = np.array(formulas.knobs(schemes), np.float64)
    columns: list[npt.NDArray[np.float64]] = [placed(rows[:, number]) for number in range(rows.shape[1])]
    columns += extents.values()
    if seen == "loops":
        sizes = {name: placed(column) for name, column in _sizes(schemes, formulas).items()}
        columns += _loops(sizes, calls, formulas).values()
    full = np.broadcast_arrays(*columns)
    return np.stack([column.ravel().astype(np.float32) for column in full], axis=1)


def _sizes(schemes: Sequence[Scheme], formulas: Formulas) -> dict[str, IntArray]:
    """Returns the sizes that determine the loops, each ``[schemes]``."""
    kernels = [scheme.kernel for scheme in schemes]
    block, vectors = zip(*map(formulas.loops, kernels), strict=True)
    named: dict[str, Sequence[int]] = {
        "rows": [scheme.rows for scheme in schemes],
        "cols": [scheme.cols for scheme in schemes],
        "block": block,
        "vectors": vectors,
        "granule": [kernel.granule for kernel in kernels],
        "even": [scheme.edge == "even" for scheme in schemes],
        "stays": [scheme.order == "ws" for scheme in schemes],
        "composed": [scheme.composed for scheme in schemes],
        "unroll": [getattr(kernel, "unroll", 1) for kernel in kernels],
        "narrows": [kernel.composes_columns for kernel in kernels],
        "lines": [covers_lines(scheme, formulas.workload) for scheme in schemes],
    }
    return {name: np.array(values, np.int64) for name, values in named.items()}


def _loops(sizes: Mapping[str, IntArray], calls: Calls, formulas: Formulas) -> Named:
    """Returns the features of the loops, each ``[schemes, shapes]`` or ``[pairs]``."""
    rows, cols, depth = calls["rows"], calls["cols"], calls["depth"]
    tallest, lower, tiles = _tiles(sizes, np.where(sizes["lines"] > 0, calls.line, rows))
    tiles = tiles * np.where(sizes["lines"] > 0, calls.lines, 1)
    steps = np.where(sizes["block"] > 0, np.minimum(sizes["block"], depth), depth)
    passes, across = -(-depth // steps), -(-cols // sizes["cols"])
    width = np.where(sizes["narrows"] > 0, np.minimum(sizes["cols"], cols), sizes["cols"])
    height = rows / np.maximum(1, tiles)
    stays = sizes["stays"] > 0
    # Operands that the body of a loop reads and writes, in elements: x, w and y.
    tile = height * steps, width * steps, height * width
    inner = (
        np.where(stays, rows * steps, height * steps),
        np.where(stays, width * steps, cols * steps),
        np.where(stays, rows * width, height * cols),
    )
    a_pass = rows * steps, cols * steps, rows * cols
    product = rows * depth, cols * depth, rows * cols
    found: dict[str, Any] = {
        "row tiles": _log(tiles),
        "columns of tiles": _log(across),
        "passes": _log(passes),
        "steps": _log(steps),
        "iterations of steps": _log(steps / sizes["unroll"]),
        "height of the tallest": tallest,
        "height of the lowest": lower,
        "height on average": height,
        "accumulators on average": height * sizes["vectors"],
        "accumulators of the lowest": lower * sizes["vectors"],
        "filled of the last column": cols / (across * width),
        "filled rows": rows / np.maximum(1, tiles * tallest),
        "tiles": _log(tiles * across * calls["batch"]),
        "weights": np.float64(WEIGHTS.index(formulas.workload.weights)),
    }
    for loop, bodies in (("tile", tile), ("inner", inner), ("pass", a_pass), ("product", product)):
        touched = sum(bodies) * FLOAT_BYTES
        for level, size in formulas.levels.items():
            found[f"bytes of a {loop} of {level}"] = _log(touched / size)
        for operand, body in zip("xwy", bodies, strict=True):
            found[f"bytes of {operand} in a {loop}"] = _log(body * FLOAT_BYTES)
    for loop, bodies, work in (
        ("tile", tile, height * width * steps),
        ("inner", inner, np.where(stays, rows * width, height * cols) * steps),
        ("product", product, rows * cols * depth),
    ):
        found[f"multiply-adds a byte in a {loop}"] = _log(work / (sum(bodies) * FLOAT_BYTES))
    found["bytes until the weights again"] = _log(FLOAT_BYTES * np.where(stays, sum(tile), sum(inner)))
    found["bytes until the input again"] = _log(FLOAT_BYTES * np.where(stays, sum(inner), sum(tile)))
    found["bytes until the output again"] = _log(FLOAT_BYTES * np.where(passes > 1, sum(a_pass), 0.0))
    found["multiply-adds"] = _log(1.0 * rows * cols * depth * calls["batch"])
    return found


def _tiles(sizes: Mapping[str, IntArray], rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Returns three values: the height of the tallest tile, the height of the lowest tile, and the number of
    row tiles."""
    found = []
    for edge in ("even", "rest", "padded"):
        (tall, many), *rest = tiles_of(edge, sizes["granule"], sizes["rows"], rows)
        low, few = rest[0] if rest else (tall, 0 * many)
        first, last = np.where(many > 0, tall, low), np.where(few > 0, low, tall)
        found.append((first, last, many + few))
    even, left, padded = found
    composed = [np.where(sizes["even"] > 0, one, other) for one, other in zip(even, left, strict=True)]
    chosen = [
        np.where(sizes["composed"] > 0, one, other) for one, other in zip(composed, padded, strict=True)
    ]
    return chosen[0], chosen[1], chosen[2]


def _log(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns logarithms of base 2; values below 0.001 count as 0.001."""
    return np.asarray(np.log2(np.maximum(np.asarray(values, np.float64), 1e-3)))

"""OpenBLAS, through the NumPy that ships it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.vendor import Call, Kind, Operands, sequence, without_gelu
from dietlab.measure.timing.contender import Prepared, WithConstants
from dietlab.problem import FloatArray, Shape, Workload


def numpy_tail(workload: Workload, operands: Operands, out: FloatArray, *, bias: bool) -> list[Call]:
    """Returns the epilogue as passes over ``out``: bias (if ``bias``), activation, residual."""
    epilogue, steps = workload.epilogue, list[Call]()
    if epilogue.bias and bias:
        steps.append(partial(np.add, out, operands["bias"], out))
    if epilogue.activation == "relu":
        steps.append(partial(np.maximum, out, np.float32(0), out))
    if epilogue.residual:
        steps.append(partial(np.add, out, operands["residual"], out))
    return steps


class OpenBlas:
    """OpenBLAS as NumPy ships it; only :func:`~dietlab.compare.vendor.contender_env` sets its threads."""

    name = "openblas"
    computes = ("dense", "batch-matmul", "matmul")

    def __init__(self, threads: int = 1) -> None:
        self._blas = numpy_blas()
        if "openblas" not in self._blas.get("name", "").lower():
            raise MissingDependencyError(
                "NumPy must multiply with OpenBLAS",
                self._blas.get("name") or "no BLAS",
                "Install NumPy from PyPI (pip install numpy), or leave this contender out.",
            )

    def version(self) -> str:
        return f"OpenBLAS {self._blas.get('version', '')} in NumPy {np.__version__}"

    def kind(self, workload: Workload) -> Kind:
        without_gelu(workload, "NumPy")
        return "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Operands, out: FloatArray) -> Call:
        """Returns ``numpy.matmul`` into ``out``, for one product or a batch of them."""
        w = operands["w"]
        right = w if workload.weights == "direct" else w.swapaxes(-1, -2)
        multiply = partial(np.matmul, operands["x"], right, out)
        return sequence([multiply, *numpy_tail(workload, operands, out, bias=True)])


def numpy_blas() -> Mapping[str, str]:
    """Returns the BLAS that NumPy was built with (``name``, ``version``)."""
    config: Any = np.show_config(mode="dicts")
    found: Mapping[str, str] = config.get("Build Dependencies", {}).get("blas", {})
    return found

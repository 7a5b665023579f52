"""AMD's ZenDNN, through the PyTorch extension ``zentorch``."""

from __future__ import annotations

import importlib
from functools import partial
from importlib.metadata import version
from typing import Any

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.vendor import Call, Kind, Operands, require_constant_weights
from dietlab.measure.timing.contender import Prepared, WithConstants
from dietlab.problem import FloatArray, Shape, Workload
from dietlab.targets.cpu.contenders.pytorch import open_torch, tensors
from dietlab.targets.cpu.machine import processor_vendor

AMD = "AuthenticAMD"
"""The maker of the processors that ZenDNN is made for, as ``/proc/cpuinfo`` names it."""


class ZenDnn:
    """ZenDNN with its operands as they are, in batched products too; only for AMD's processors.

    By default it packs given weights in place, which spoils them for all other users:
    :func:`~dietlab.compare.vendor.contender_env` forbids that.
    """

    name, package = "zendnn", "zentorch"
    where = "on AMD's processors"
    computes: tuple[str, ...] = ("dense", "batch-matmul")

    def __init__(self, threads: int = 1) -> None:
        maker = processor_vendor()
        if maker != AMD:
            raise MissingDependencyError(
                "ZenDNN needs one of AMD's processors, for which it is made",
                maker or "a processor that names no maker",
                "Compare with mkl-packed, onednn-packed or onnxruntime.",
            )
        self._torch = open_torch(threads)
        try:
            self._zentorch: Any = importlib.import_module("zentorch")
        except (ImportError, OSError) as error:
            raise MissingDependencyError(
                "zentorch must be installed, for the installed version of PyTorch",
                error,
                "pip install 'dietlab[zendnn]', or leave this contender out.",
            ) from None

    def version(self) -> str:
        libraries = self._zentorch.__config__.split("ZENDNNL v")
        found = libraries[1].split()[0] if len(libraries) > 1 else ""
        return f"ZenDNN {found} in zentorch {version('zentorch')}"

    def kind(self, workload: Workload) -> Kind:
        return "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload, False), constants)

    def _bound(self, workload: Workload, packed: bool, operands: Operands, out: FloatArray) -> Call:
        """Returns a call that writes to ``out``: of ``zentorch_bmm`` for a batch of products, of
        ``zentorch_linear_unary`` for a layer, and of ``zentorch_linear_unary_binary`` for a layer with a
        residual. The last two compute the layer's epilogue, too."""
        ops, y, given = self._torch.ops.zentorch, self._torch.from_numpy(out), tensors(self._torch, operands)
        x, w, bias, residual = (given.get(name) for name in ("x", "w", "bias", "residual"))
        if out.ndim == 3:
            right = w if workload.weights == "direct" else given["w"].transpose(1, 2)
            return partial(ops.zentorch_bmm.out, x, right, out=y)
        activation, shared = workload.epilogue.activation, {"is_weight_prepacked": packed, "out": y}
        if residual is None:
            return partial(ops.zentorch_linear_unary.out, x, w, bias, post_op=activation, **shared)
        fused = {"post_op_1": activation, "post_op_2": "add"}
        return partial(ops.zentorch_linear_unary_binary.out, x, w, residual, bias, **fused, **shared)


class ZenDnnPacked(ZenDnn):
    """ZenDNN with weights packed once, for all row counts."""

    name = "zendnn-packed"
    computes = ("dense",)
    any_shape = True

    def kind(self, workload: Workload) -> Kind:
        return require_constant_weights(workload)

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        given = tensors(self._torch, constants)
        given["w"] = self._torch.ops.zentorch.zentorch_weight_prepack_for_linear(given["w"])
        return WithConstants(partial(self._bound, workload, True), given)

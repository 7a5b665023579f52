"""AMD's ZenDNN, through the PyTorch extension ``zentorch``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.vendor import Call, Kind, Operands, PreparedLayer, require_constant_weights
from dietlab.problem import FloatArray, Shape, Workload
from dietlab.targets.cpu.contenders.pytorch import open_torch, tensors
from dietlab.targets.cpu.machine import processor_vendor

AMD = "AuthenticAMD"
"""The maker in ``/proc/cpuinfo`` of the processors that ZenDNN is made for."""


@dataclass(frozen=True)
class ZenDnnLinear:
    """A linear layer whose activation and residual are fused.

    ``zentorch_linear_unary`` computes without a residual, ``zentorch_linear_unary_binary`` with one. Both
    write a given tensor.
    """

    torch: Any
    workload: Workload
    constants: Mapping[str, Any]
    packed: bool

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        given = {**self.constants, **tensors(self.torch, operands)}
        x, w, bias, residual = (given.get(name) for name in ("x", "w", "bias", "residual"))
        ops, activation = self.torch.ops.zentorch, self.workload.epilogue.activation
        shared = {"is_weight_prepacked": self.packed, "out": self.torch.from_numpy(out)}
        if residual is None:
            return partial(ops.zentorch_linear_unary.out, x, w, bias, post_op=activation, **shared)
        fused = {"post_op_1": activation, "post_op_2": "add"}
        return partial(ops.zentorch_linear_unary_binary.out, x, w, residual, bias, **fused, **shared)


@dataclass(frozen=True)
class ZenDnnProducts:
    """A batch of products by ``zentorch_bmm``."""

    torch: Any
    workload: Workload
    constants: Mapping[str, Any]

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        given = {**self.constants, **tensors(self.torch, operands)}
        w = given["w"]
        right = w if self.workload.weights == "direct" else w.transpose(1, 2)
        multiply = self.torch.ops.zentorch.zentorch_bmm.out
        return partial(multiply, given["x"], right, out=self.torch.from_numpy(out))


class ZenDnn:
    """ZenDNN with its operands as they are, in batched products too.

    Left to itself it packs the weights that it is given in place, which spoils them for everybody else:
    :func:`~dietlab.compare.vendor.contender_env` forbids it.

    Raises:
        MissingDependencyError: if the processor is not AMD's, or ``zentorch`` is absent or made for
            another version of PyTorch.
    """

    name = "zendnn"

    def __init__(self, threads: int = 1) -> None:
        maker = processor_vendor()
        if maker != AMD:
            raise MissingDependencyError(
                "ZenDNN is compared on the processors that it is made for, those of AMD",
                maker or "a processor that names no maker",
                "Compare with mkl-packed, onednn-packed or onnxruntime.",
            )
        self._torch = open_torch(threads)
        try:
            self._zentorch: Any = importlib.import_module("zentorch")
        except (ImportError, OSError) as error:
            raise MissingDependencyError(
                "zentorch is installed, for this version of PyTorch",
                error,
                "pip install 'dietlab[zendnn]', or leave this contender out.",
            ) from None

    def version(self) -> str:
        libraries = self._zentorch.__config__.split("ZENDNNL v")
        found = libraries[1].split()[0] if len(libraries) > 1 else ""
        return f"ZenDNN {found} in zentorch {version('zentorch')}"

    def kind(self, workload: Workload) -> Kind:
        return "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> PreparedLayer:
        given = tensors(self._torch, constants)
        if workload.operator == "dense":
            return ZenDnnLinear(self._torch, workload, given, packed=False)
        return ZenDnnProducts(self._torch, workload, given)


class ZenDnnPacked(ZenDnn):
    """ZenDNN with weights packed once, for all row counts.

    Raises:
        MissingDependencyError: as :class:`ZenDnn`.
    """

    name = "zendnn-packed"
    any_shape = True

    def kind(self, workload: Workload) -> Kind:
        return require_constant_weights(workload)

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> PreparedLayer:
        given = tensors(self._torch, constants)
        given["w"] = self._torch.ops.zentorch.zentorch_weight_prepack_for_linear(given["w"])
        return ZenDnnLinear(self._torch, workload, given, packed=True)

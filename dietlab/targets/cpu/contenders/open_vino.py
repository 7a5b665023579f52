"""OpenVINO on the model of one operator that ONNX Runtime reads."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from dietlab.compare.vendor import CONVOLUTIONS, Call, Kind, Operands, absent
from dietlab.measure.timing.contender import Prepared
from dietlab.problem import FloatArray, Shape, Workload
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders.onnx_convolution import Rearranged, Rearranging
from dietlab.targets.cpu.contenders.onnx_runtime import operator_model

SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": 1,
    "ENABLE_CPU_PINNING": False,
}
"""Settings of a compiled model. By default OpenVINO computes float32 in bfloat16 on a processor with AMX, and
binds its threads."""


@dataclass(frozen=True)
class OpenVinoLayer:
    """A compiled model; its inputs and output are the arrays themselves, so that nothing is copied."""

    library: Any
    compiled: Any

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        request: Any = self.compiled.create_infer_request()
        arrays = {**operands, "y": out}
        for name, array in arrays.items():
            request.set_tensor(name, self.library.Tensor(array, shared_memory=True))
        inherited: Any = type(request).__base__  # its method saves some microseconds of Python
        call = partial(inherited.infer, request, {}, share_outputs=True, decode_strings=False)
        call.alive = arrays  # type: ignore[attr-defined]  # tensors hold bare addresses
        return call


class OpenVino:
    """OpenVINO, which packs constant weights; calls run in the caller's thread."""

    name, package = "openvino", "openvino"
    computes = adds_before = ("dense", "batch-matmul", "matmul", *CONVOLUTIONS)
    any_shape = True
    packs_in_call = True

    def __init__(self, threads: int = 1) -> None:
        # Else it would report each conversion to its makers.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        try:
            self.library: Any = importlib.import_module("openvino")
        except ImportError as error:
            raise absent("openvino", error) from None
        self._threads, self._core, self._rearranging = threads, self.library.Core(), Rearranging()

    def version(self) -> str:
        return f"OpenVINO {version('openvino')}"

    def kind(self, workload: Workload) -> Kind:
        return "prepacked" if "w" in workload.constants else "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        model = self._core.read_model(operator_model(workload, constants, shape))
        layer = OpenVinoLayer(self.library, self.compiled(model))
        return Rearranged(layer, self._rearranging) if isinstance(workload, Convolution) else layer

    def compiled(self, model: Any) -> Any:
        """Returns a model compiled for the CPU, in float32 and for this contender's threads."""
        return self._core.compile_model(model, "CPU", {**SETTINGS, "INFERENCE_NUM_THREADS": self._threads})

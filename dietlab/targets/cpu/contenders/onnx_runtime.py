"""ONNX Runtime on a model of one operator and its epilogue."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dietlab.base.errors import MeasureError
from dietlab.compare.vendor import GELU_FORM, Call, Kind, NoFormError, Operands, absent
from dietlab.measure.timing.contender import Prepared
from dietlab.problem import FloatArray, Shape, Workload, dtypes_of, extents
from dietlab.targets.cpu.contenders.onnx_model import OnnxNode, model
from dietlab.targets.cpu.contenders.pytorch import ZERO_POINT

ERRORS_ONLY = 3
"""ONNX Runtime's level of a log with errors only."""

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class OnnxLayer:
    """A session; inputs and output are bound to the arrays themselves, so that nothing is copied."""

    session: Any

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        binding = self.session.io_binding()
        if operands["x"].dtype == np.int8:  # made unsigned before the timed call, as if by a layer before
            operands = {**operands, "x": operands["x"].view(np.uint8) ^ np.uint8(ZERO_POINT)}
        for name, array in operands.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, out.shape, out.ctypes.data)
        call = partial(self.session.run_with_iobinding, binding)
        # The binding holds only addresses: the arrays must live as long as the call.
        call.alive = (out, dict(operands))  # type: ignore[attr-defined]
        return call


class OnnxRuntime:
    """ONNX Runtime, which packs constant weights when a session is made.

    With several threads all sessions share one pool: a session's own threads would spin while the next
    session of a rotation computes. The shared pool's threads spin for about a millisecond after a call and
    then sleep: they are awake in a block of calls, and disturb no other contender.
    """

    name, package = "onnxruntime", "onnxruntime"
    computes = ("dense", "batch-matmul", "matmul")
    dtypes = ("float32", "int8")
    any_shape = True
    _pool_threads: ClassVar[int | None] = None

    def __init__(self, threads: int = 1) -> None:
        try:
            self._runtime: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise absent("onnxruntime", error) from None
        self._threads = threads
        if threads > 1:
            self._share_pool()

    def _share_pool(self) -> None:
        """Makes the pool of this process, which can be done once."""
        if OnnxRuntime._pool_threads is None:
            self._runtime.set_global_thread_pool_sizes(self._threads, 1)
            OnnxRuntime._pool_threads = self._threads
        elif OnnxRuntime._pool_threads != self._threads:
            raise MeasureError(
                f"ONNX Runtime has {OnnxRuntime._pool_threads} threads in this process",
                self._threads,
                "Start another process for another number.",
            )

    def version(self) -> str:
        return f"ONNX Runtime {self._runtime.__version__}"

    def kind(self, workload: Workload) -> Kind:
        if dtypes_of(workload)["out"] == "int8":
            raise NoFormError(
                "this contender's output of int8 operands is float32", workload, "Compare with onednn-packed."
            )
        return "prepacked" if "w" in workload.constants else "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        options = self._runtime.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
        options.inter_op_num_threads = 1
        if self._threads > 1:
            options.use_per_session_threads = False
        else:
            options.intra_op_num_threads = 1
        model, providers = operator_model(workload, constants, shape), ["CPUExecutionProvider"]
        return OnnxLayer(self._runtime.InferenceSession(model, options, providers=providers))


def operator_model(workload: Workload, constants: Operands, shape: Shape) -> bytes:
    """Returns the workload as an ONNX model with inputs ``x``, ... and output ``y``: for one shape, or for
    any number of rows if weights are constant."""
    nodes, epilogue = [_product(workload)], workload.epilogue
    if epilogue.activation == "relu":
        nodes.append(OnnxNode("Relu", ("",), ""))
    elif epilogue.activation != "none":
        nodes.append(OnnxNode("Gelu", ("",), "", {"approximate": GELU_FORM[epilogue.activation]}))
    if epilogue.residual:
        nodes.append(OnnxNode("Add", ("", "residual"), ""))
    sizes = _shapes(workload, shape)
    inputs: dict[str, Dims] = {name: dims for name, dims in sizes.items() if name not in constants}
    output: Dims = workload.output_shape(shape)
    if "w" in constants:
        inputs, output = {name: ("rows", *dims[1:]) for name, dims in inputs.items()}, ("rows", *output[1:])
    unsigned = []
    if workload.dtype == "int8":
        unsigned, constants = ["x"], _int8_constants(constants)
    return model(_chained(nodes), constants, inputs, {"y": output}, unsigned)


def _int8_constants(constants: Operands) -> dict[str, FloatArray]:
    """Returns the constants of ``MatMulIntegerToFloat``: weights ``[depth, cols]`` and the scales and zero
    points of both operands, whose inputs are unsigned."""
    zeros = {"x_zero": np.array(ZERO_POINT, np.uint8), "w_zero": np.zeros(len(constants["scale"]), np.int8)}
    return {**constants, "w": constants["w"].T, "x_scale": np.array(1.0, np.float32), **zeros}


def _shapes(workload: Workload, shape: Shape) -> dict[str, tuple[int, ...]]:
    """Returns the dimensions of every operand."""
    size, out = extents(workload, shape), workload.output_shape(shape)
    w = (size["depth"], size["cols"]) if workload.weights == "direct" else (size["cols"], size["depth"])
    found = {"x": (*out[:-1], size["depth"]), "w": (*out[:-2], *w)}
    if workload.epilogue.bias:
        found["bias"] = out[-1:]
    if workload.epilogue.residual:
        found["residual"] = out
    return found


def _product(workload: Workload) -> OnnxNode:
    """Returns the multiplication, of int8 operands with their scales. ``Gemm`` takes a transposed ``w`` and a
    bias. A batch needs ``MatMul``, or with a transposed ``w`` ONNX Runtime's own ``FusedMatMul``."""
    if workload.dtype == "int8":
        bias = ("bias",) if workload.epilogue.bias else ()
        inputs = ("x", "w", "x_scale", "scale", "x_zero", "w_zero", *bias)
        return OnnxNode("MatMulIntegerToFloat", inputs, "", {}, "com.microsoft")
    if workload.weights != "direct" and len(workload.signature["x"]) == 2:
        inputs = ("x", "w", "bias") if workload.epilogue.bias else ("x", "w")
        return OnnxNode("Gemm", inputs, "", {"transB": 1})
    if workload.weights == "direct":
        return OnnxNode("MatMul", ("x", "w"), "")
    return OnnxNode("FusedMatMul", ("x", "w"), "", {"transB": 1}, "com.microsoft")


def _chained(nodes: list[OnnxNode]) -> list[OnnxNode]:
    """Returns the nodes with names: each reads the output of the one before, the last writes ``y``."""
    chain, before = list[OnnxNode](), ""
    for number, node in enumerate(nodes):
        output = "y" if number == len(nodes) - 1 else f"step{number}"
        inputs = tuple(name or before for name in node.inputs)
        chain.append(OnnxNode(node.operator, inputs, output, node.attributes, node.domain))
        before = output
    return chain

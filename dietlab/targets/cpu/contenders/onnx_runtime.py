"""ONNX Runtime on a model of one operator and its epilogue, written without the ``onnx`` package.

ONNX files are protocol buffers. A message is a sequence of fields; a field is a key, ``number * 8 + wire
type``, and a value: a variable-length integer (wire type 0) or counted bytes (wire type 2). The field numbers
below are those of ``onnx.proto3`` (ONNX, IR version 9).
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import MeasureError
from dietlab.compare.vendor import CONVOLUTIONS, GELU_FORM, Call, Kind, NoFormError, Operands, absent
from dietlab.measure.timing.contender import Prepared
from dietlab.problem import FloatArray, Shape, Workload, dtypes_of, extents
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders.onnx_convolution import (
    Rearranged,
    Rearranging,
    attributes,
    dims_of,
)
from dietlab.targets.cpu.contenders.pytorch_int8 import ZERO_POINT

ERRORS_ONLY = 3
"""ONNX Runtime's log level for errors only."""

IR_VERSION = 9
OPSET = 20
"""Version of ONNX's operators: the first that has Gelu."""
TYPES = {"float32": 1, "uint8": 2, "int8": 3}
"""The numbers of types in ``TensorProto.DataType``, by NumPy's names."""
INT_ATTRIBUTE, STRING_ATTRIBUTE, INTS_ATTRIBUTE = 2, 3, 7
"""The numbers of an integer, a text and several integers in ``AttributeProto.AttributeType``."""

Value = int | str | bytes


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
    computes = adds_before = ("dense", "batch-matmul", "matmul", *CONVOLUTIONS)
    dtypes = ("float32", "int8")
    any_shape = True
    _pool_threads: ClassVar[int | None] = None

    def __init__(self, threads: int = 1) -> None:
        try:
            self._runtime: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise absent("onnxruntime", error) from None
        self._threads, self._rearranging = threads, Rearranging()
        if threads > 1:
            self._share_pool()

    def _share_pool(self) -> None:
        """Makes the pool of threads of this process. A process can do so once."""
        if OnnxRuntime._pool_threads is None:
            self._runtime.set_global_thread_pool_sizes(self._threads, 1)
            OnnxRuntime._pool_threads = self._threads
        elif OnnxRuntime._pool_threads != self._threads:
            raise MeasureError(
                f"all sessions of ONNX Runtime in a process must have {OnnxRuntime._pool_threads} threads",
                self._threads,
                "Start another process for another number.",
            )

    def version(self) -> str:
        return f"ONNX Runtime {self._runtime.__version__}"

    def kind(self, workload: Workload) -> Kind:
        if isinstance(workload, Convolution) and workload.dtype == "int8":
            rule = "ONNX Runtime's convolution must be in float32: its QLinearConv rounds outputs and biases"
            raise NoFormError(rule, workload, "Compare with onednn-packed.")
        if dtypes_of(workload)["out"] == "int8":
            rule = "ONNX Runtime's output of int8 operands must be float32"
            raise NoFormError(rule, workload, "Compare with onednn-packed.")
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
        layer = OnnxLayer(self._runtime.InferenceSession(model, options, providers=providers))
        return Rearranged(layer, self._rearranging) if isinstance(workload, Convolution) else layer


def operator_model(workload: Workload, constants: Operands, shape: Shape) -> bytes:
    """Returns the workload as an ONNX model with inputs ``x``, ... and output ``y``: for one shape, or for
    any number of rows or size of images if weights are constant. Images have the channels second."""
    first = _convolution(workload) if isinstance(workload, Convolution) else _product(workload)
    epilogue, activation, added = workload.epilogue, list[OnnxNode](), list[OnnxNode]()
    if epilogue.activation == "relu":
        activation.append(OnnxNode("Relu", ("",), ""))
    elif epilogue.activation != "none":
        activation.append(OnnxNode("Gelu", ("",), "", {"approximate": GELU_FORM[epilogue.activation]}))
    if epilogue.residual:
        added.append(OnnxNode("Add", ("", "residual"), ""))
    nodes = epilogue.finish([first], lambda before: before + activation, lambda before: before + added)
    if isinstance(workload, Convolution):
        inputs, output = dims_of(workload)
        return model(_chained(nodes), constants, inputs, {"y": output})
    sizes = _shapes(workload, shape)
    inputs = {name: dims for name, dims in sizes.items() if name not in constants}
    output = workload.output_shape(shape)
    if "w" in constants:
        inputs, output = {name: ("rows", *dims[1:]) for name, dims in inputs.items()}, ("rows", *output[1:])
    unsigned = []
    if workload.dtype == "int8":
        unsigned, constants = ["x"], _int8_constants(constants)
    return model(_chained(nodes), constants, inputs, {"y": output}, unsigned)


def _int8_constants(constants: Operands) -> dict[str, FloatArray]:
    """Returns the constants of ``MatMulIntegerToFloat``: weights ``[depth, cols]`` and the scales and zero
    points of both operands. Its inputs are unsigned."""
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
    """Returns the node of the multiplication; for int8 operands it includes their scales. ``Gemm`` takes a
    transposed ``w`` and a bias. A batch needs ``MatMul``, or with a transposed ``w`` ONNX Runtime's own
    ``FusedMatMul``."""
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


def _convolution(workload: Convolution) -> OnnxNode:
    inputs = ("x", "w", "bias") if workload.bias else ("x", "w")
    return OnnxNode("Conv", inputs, "", attributes(workload))


def _chained(nodes: list[OnnxNode]) -> list[OnnxNode]:
    """Returns the nodes with names: each reads the output of the one before, the last writes ``y``."""
    chain, before = list[OnnxNode](), ""
    for number, node in enumerate(nodes):
        output = "y" if number == len(nodes) - 1 else f"step{number}"
        inputs = tuple(name or before for name in node.inputs)
        chain.append(OnnxNode(node.operator, inputs, output, node.attributes, node.domain))
        before = output
    return chain


@dataclass(frozen=True)
class OnnxNode:
    """One operator with the names of its inputs and its output."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, int | str | tuple[int, ...]] = field(default_factory=dict)
    domain: str = ""


def model(
    nodes: Sequence[OnnxNode],
    constants: Mapping[str, npt.NDArray[Any]],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    unsigned: Collection[str] = (),
) -> bytes:
    """Returns a model in opset 20 of ONNX and opset 1 of ``com.microsoft``.

    Args:
        inputs, outputs: float32 values with their dimensions; a string names a dynamic dimension.
        unsigned: the names of inputs that are uint8 instead.
    """
    graph = message(
        *((1, _node(node)) for node in nodes),
        (2, "dietlab"),
        *((5, _tensor(name, array)) for name, array in constants.items()),
        *(
            (11, _value(name, dims, "uint8" if name in unsigned else "float32"))
            for name, dims in inputs.items()
        ),
        *((12, _value(name, dims)) for name, dims in outputs.items()),
    )
    opsets = [message((1, ""), (2, OPSET)), message((1, "com.microsoft"), (2, 1))]
    return message((1, IR_VERSION), (7, graph), *((8, opset) for opset in opsets))


def message(*fields: tuple[int, Value]) -> bytes:
    """Returns the encoded fields, each a number and a value."""
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Returns seven bits a byte, the lowest first; the eighth is set if more follow."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def _node(node: OnnxNode) -> bytes:
    return message(
        *((1, name) for name in node.inputs),
        (2, node.output),
        (4, node.operator),
        *((5, _attribute(name, value)) for name, value in node.attributes.items()),
        (7, node.domain),
    )


def _attribute(name: str, value: int | str | tuple[int, ...]) -> bytes:
    if isinstance(value, tuple):
        return message((1, name), *((8, number) for number in value), (20, INTS_ATTRIBUTE))
    if isinstance(value, int):
        return message((1, name), (3, value), (20, INT_ATTRIBUTE))
    return message((1, name), (4, value), (20, STRING_ATTRIBUTE))


def _tensor(name: str, array: npt.NDArray[Any]) -> bytes:
    dims = ((1, extent) for extent in array.shape)
    little = np.asarray(array, array.dtype.newbyteorder("<"))
    return message(*dims, (2, TYPES[array.dtype.name]), (8, name), (9, little.tobytes()))


def _value(name: str, dims: Sequence[int | str], dtype: str = "float32") -> bytes:
    # TensorShapeProto.Dimension has dim_value = 1 and dim_param = 2.
    shape = message(*((1, message((1 if isinstance(d, int) else 2, d))) for d in dims))
    tensor_type = message((1, TYPES[dtype]), (2, shape))
    return message((1, name), (2, message((1, tensor_type))))

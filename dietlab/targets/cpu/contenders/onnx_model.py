"""Small ONNX models as bytes, without the ``onnx`` package.

ONNX files are protocol buffers. A message is a row of fields; a field is a key, ``number * 8 + wire
type``, and a value: a variable-length integer (wire type 0) or counted bytes (wire type 2). The
field numbers below are those of ``onnx.proto3`` (ONNX, IR version 9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

IR_VERSION = 9
OPSET = 20
"""Version of ONNX's operators: the first that has Gelu."""
TYPES = {"float32": 1, "uint8": 2, "int8": 3}
"""``TensorProto.DataType``."""
INT_ATTRIBUTE, STRING_ATTRIBUTE = 2, 3
"""``AttributeProto.AttributeType``."""

Value = int | str | bytes


@dataclass(frozen=True)
class OnnxNode:
    """One operator with the names of its inputs and its output."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, int | str] = field(default_factory=dict)
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
        inputs, outputs: float32 values with their dimensions; a string names a dynamic one.
        unsigned: names of inputs that are uint8 instead.
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


def _attribute(name: str, value: int | str) -> bytes:
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

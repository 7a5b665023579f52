"""XNNPACK, by Google's LiteRT, on a model of one convolution and its epilogue.

Models are files of TensorFlow Lite, written with the classes of their schema that LiteRT's wheel brings.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import MeasureError
from dietlab.compare.vendor import CONVOLUTIONS, Call, Kind, Operands, absent
from dietlab.lower.runtime import ALIGNMENT_BYTES
from dietlab.measure.timing.contender import Prepared
from dietlab.problem import FloatArray, Shape, Workload
from dietlab.problem.convolution import Convolution

SCHEMA_VERSION, FILE_IDENTIFIER = 3, b"TFL3"
"""The version of TensorFlow Lite's files, and the bytes that name it in each file."""

ANY = (-1, -1, -1)
"""The number of images, their lines and columns in the signature of a tensor: any."""


@dataclass
class LiteModel:
    """A model that is being written: its tensors, of which :attr:`constants` have values, and its operators
    in the order of their calls.

    Args:
        schema: the classes of the schema, and ``builder``, which writes them.
    """

    schema: Any
    builder: Any
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def tensor(self, name: str, dims: tuple[int, ...], values: npt.NDArray[Any] | None = None) -> int:
        """Adds a tensor, and returns its number. Its type is that of its values, or float32."""
        made, buffer = self.schema, 0  # the first buffer is empty, that of tensors without values
        if values is not None:
            self.constants.append(made.BufferT(data=np.ascontiguousarray(values).reshape(-1).view(np.uint8)))
            buffer = len(self.constants)
        dtype = "FLOAT32" if values is None else values.dtype.name.upper()
        self.tensors.append(
            made.TensorT(
                name=name,
                shape=[max(1, size) for size in dims],
                shapeSignature=list(dims) if min(dims) < 0 else None,
                hasRank=True,
                type=getattr(made.TensorType, dtype),
                buffer=buffer,
            )
        )
        return len(self.tensors) - 1

    def constant(self, name: str, values: npt.NDArray[Any]) -> int:
        """Adds a tensor with values, and returns its number."""
        return self.tensor(name, values.shape, values)

    def operator(self, name: str, inputs: list[int], channels: int, options: Any = None) -> int:
        """Adds an operator on images, and returns the number of its output, images with some channels.

        Args:
            name: its name in ``BuiltinOperator``.
            options: an object of its class of options (None: it has none).
        """
        made, output = self.schema, self.tensor(name, (*ANY, channels))
        code = getattr(made.BuiltinOperator, name)
        self.codes.append(made.OperatorCodeT(deprecatedBuiltinCode=min(code, 127), builtinCode=code))
        added = made.OperatorT(opcodeIndex=len(self.codes) - 1, inputs=inputs, outputs=[output])
        if options is not None:
            added.builtinOptions = options
            added.builtinOptionsType = getattr(made.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.operators.append(added)
        return output

    def written(self, inputs: list[int], output: int) -> bytes:
        """Returns the file."""
        made = self.schema
        graph = made.SubGraphT(self.tensors, inputs, [output], self.operators, "main")
        buffers = [made.BufferT(), *self.constants]
        model = made.ModelT(SCHEMA_VERSION, self.codes, [graph], "dietlab", buffers)
        builder = self.builder(0)
        builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
        return bytes(builder.Output())


def convolution_model(model: LiteModel, work: Convolution, constants: Operands) -> bytes:
    """Returns a convolution of images of any size as a file. A sequence is an image of one line.

    The schema's convolutions know two paddings only: none, and as much as keeps the size. Here an operator
    ``PAD`` comes before a convolution without padding. XNNPACK fuses the two, so that no image is copied.
    """
    w = constants["w"]
    schema, channels, inner = model.schema, len(w), w.shape[1] * work.groups
    inputs = [model.tensor("x", (*ANY, inner))]
    found, line = inputs[0], 2 - len(work.image)
    if any(map(any, work.padding)):
        pads = np.array([(0, 0)] * (1 + line) + [*work.padding, (0, 0)], np.int32)
        found = model.operator("PAD", [found, model.constant("pads", pads)], inner, schema.PadOptionsT())
    name, options, weights = _convolution(schema, work, w)
    bias = constants["bias"] if work.bias else np.zeros(channels, np.float32)  # XNNPACK needs one
    operands = [found, model.constant("w", weights), model.constant("bias", bias)]
    found = model.operator(name, operands, channels, options)
    if work.residual:
        inputs.append(model.tensor("residual", (*ANY, channels)))

    def add(found: Any) -> Any:
        if not work.residual:
            return found
        options = schema.AddOptionsT(fusedActivationFunction=_fused(schema, work, work.epilogue.before))
        return model.operator("ADD", [found, inputs[1]], channels, options)

    def activate(found: Any) -> Any:
        if not work.activation.startswith("gelu"):
            return found
        form = schema.GeluOptionsT(approximate=work.activation == "gelu_tanh")
        return model.operator("GELU", [found], channels, form)

    return model.written(inputs, work.epilogue.finish(found, activate, add))


def _fused(schema: Any, work: Convolution, last: bool) -> Any:
    """Returns ReLU for the operator behind which it comes, else nothing."""
    return schema.ActivationFunctionType.RELU if last and work.activation == "relu" else 0


def _convolution(schema: Any, work: Convolution, w: FloatArray) -> tuple[str, Any, FloatArray]:
    """Returns three values: the operator's name, its options, and its weights in the schema's order, which
    is ``[OC, KH, KW, IC / groups]``, or ``[1, KH, KW, OC]`` if the convolution is depthwise."""
    line = (1,) * (2 - len(work.image))
    strides, dilations = (*line, *work.stride), (*line, *work.dilation)
    options = {
        "padding": schema.Padding.VALID,
        **dict(zip(("strideH", "strideW"), strides, strict=True)),
        **dict(zip(("dilationHFactor", "dilationWFactor"), dilations, strict=True)),
        "fusedActivationFunction": _fused(schema, work, not work.epilogue.before),
    }
    weights = w.reshape(*w.shape[:2], *line, *w.shape[2:])
    if work.depthwise:
        depthwise = schema.DepthwiseConv2DOptionsT(depthMultiplier=1, **options)
        return "DEPTHWISE_CONV_2D", depthwise, weights.transpose(1, 2, 3, 0)
    return "CONV_2D", schema.Conv2DOptionsT(**options), weights.transpose(0, 2, 3, 1)


@dataclass
class Buffers:
    """LiteRT's memory for images. A model takes images only from memory that LiteRT allocated: memory of
    others has no dimensions (``findings/litert_host_memory_is_flat.sh``).

    Copies of a rotation share their inputs, as they do with other contenders: an array that was bound last
    is not copied again.

    Args:
        any_images: a compiled model whose input takes images of any size.
    """

    any_images: Any
    _last: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def of(self, name: str, array: FloatArray) -> Any:
        """Returns memory with a copy of an array ``[N, H, W, C]`` or ``[N, L, C]``."""
        known = self._last.get(name)
        if known is None or known[0]() is not array:
            images = array if array.ndim == 4 else array[:, None]
            self.any_images.resize_input_tensor(0, images.shape)
            (buffer,) = self.any_images.create_input_buffers(0)
            buffer.write(images)
            known = self._last[name] = weakref.ref(array), buffer
        return known[1]


@dataclass(frozen=True)
class XnnpackLayer:
    """A compiled model for every size. A call at another size than the last resizes it.

    Args:
        model: the file; LiteRT may read it later.
    """

    compiled: Any
    model: bytes
    signature: str
    buffers: Buffers
    wrapped: Any

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        if out.ctypes.data % ALIGNMENT_BYTES:  # else LiteRT would write to a copy
            rule = f"an output of LiteRT must begin at a multiple of {ALIGNMENT_BYTES} bytes"
            raise MeasureError(rule, out.ctypes.data % ALIGNMENT_BYTES, "Take one of aligned_empty.")
        inputs = [self.buffers.of(name, operands[name]) for name in ("x", "residual") if name in operands]
        call = partial(self.compiled.run_by_index, 0, inputs, [self.wrapped(out)])
        call.alive = self, out  # type: ignore[attr-defined]  # buffers hold bare addresses
        call.ready = partial(self._resized, operands)  # type: ignore[attr-defined]
        return call

    def _resized(self, operands: Operands) -> None:
        """Resizes the model, as a call at another size would."""
        for number, name in enumerate(name for name in ("x", "residual") if name in operands):
            sizes = operands[name].shape
            self.compiled.resize_input_tensor(number, (sizes[0], *(1,) * (4 - len(sizes)), *sizes[1:]))
        self.compiled.get_output_tensor_details(self.signature)  # allocates for the new size


class Xnnpack:
    """XNNPACK, which packs constant weights when a model is compiled; inputs are copied to LiteRT's memory
    before the timed call."""

    name, package = "xnnpack", "ai-edge-litert"
    default = computes = adds_before = CONVOLUTIONS
    any_shape = True

    def __init__(self, threads: int = 1) -> None:
        try:
            self._runtime: Any = importlib.import_module("ai_edge_litert.compiled_model")
            self._schema: Any = importlib.import_module("ai_edge_litert.schema_py_generated")
            self._builder: Any = importlib.import_module("flatbuffers").Builder
        except (ImportError, OSError) as error:
            raise absent("ai-edge-litert", error) from None
        self._threads = threads
        # A folder without plug-ins. By default LiteRT loads one that compiles for OpenVINO, if it finds it.
        nothing = str(Path(str(self._runtime.__file__)).parent / "tools")
        self._environment = self._runtime.Environment.create(
            compiler_plugin_path=nothing, dispatch_library_path=nothing
        )
        model = self._new_model()
        images = model.tensor("x", (*ANY, -1))
        self._buffers = Buffers(self._compiled(model.written([images], model.operator("RELU", [images], -1))))

    def version(self) -> str:
        return f"XNNPACK in LiteRT {version('ai-edge-litert')}"

    def kind(self, workload: Workload) -> Kind:
        return "prepacked"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        model = convolution_model(self._new_model(), cast("Convolution", workload), constants)
        compiled = self._compiled(model)
        if not compiled.is_fully_accelerated():
            rule = "XNNPACK must compute each operator of a model, else LiteRT's reference kernels would"
            raise MeasureError(rule, workload, "Leave xnnpack out.")
        (signature,) = cast("Mapping[str, Any]", compiled.get_signature_list())
        wrapped = self._runtime.TensorBuffer.create_from_host_memory
        return XnnpackLayer(compiled, model, signature, self._buffers, wrapped)

    def _new_model(self) -> LiteModel:
        return LiteModel(self._schema, self._builder)

    def _compiled(self, model: bytes) -> Any:
        """Returns a model compiled for the CPU and for this contender's threads."""
        runtime = self._runtime
        cpu = runtime.CpuOptions(num_threads=self._threads, kernel_mode=runtime.CpuKernelMode.XNNPACK)
        options = runtime.Options(runtime.HardwareAccelerator.CPU, cpu)
        return runtime.CompiledModel.from_buffer(model, environment=self._environment, options=options)

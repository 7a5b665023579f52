"""PyTorch's eager operators, and oneDNN as PyTorch ships it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from dietlab.base.errors import MeasureError
from dietlab.compare.torch_convolution import channels_last, eager
from dietlab.compare.vendor import (
    CONVOLUTIONS,
    GELU_FORM,
    Call,
    Kind,
    NoFormError,
    Operands,
    absent,
    import_torch,
    require_constant_weights,
    sequence,
)
from dietlab.measure.timing.contender import Prepared, WithConstants
from dietlab.problem import FloatArray, Shape, Workload, dtypes_of, precision_of
from dietlab.problem.convolution import Convolution
from dietlab.problem.dimensions import operand_sizes
from dietlab.targets.cpu.contenders.pytorch_convolution import middle, pointwise, reordered, require_size
from dietlab.targets.cpu.contenders.pytorch_int8 import ZERO_POINT, pointwise_int8, reordered_int8


def in_float32(torch: Any) -> None:
    """Makes PyTorch compute float32 products and convolutions in float32 in this process.

    On a processor with instructions for bfloat16, layers compute in it if a startup file calls
    ``set_float32_matmul_precision("medium")`` or sets oneDNN's own precision.
    """
    torch.set_float32_matmul_precision("highest")
    for name in ("matmul", "conv"):
        setting = getattr(torch.backends.mkldnn, name, None)  # since PyTorch 2.9
        if setting is not None:
            setting.fp32_precision = "ieee"


def open_torch(threads: int) -> Any:
    """Returns PyTorch, set to compute with ``threads`` threads, float32 in float32, and without gradients."""
    torch = import_torch()
    in_float32(torch)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def tensors(torch: Any, arrays: Operands) -> dict[str, Any]:
    """Returns the arrays as tensors in the same memory, and tensors as they are."""
    return {
        name: tensor(torch, array) if isinstance(array, np.ndarray) else array
        for name, array in arrays.items()
    }


def tensor(torch: Any, array: FloatArray) -> Any:
    """Returns an array as a tensor in the same memory. NumPy itself has no bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


class Torch:
    """PyTorch's eager linear layer, batched product and convolution. Weights of a convolution are stored
    with the channels last once, as ``model.to(memory_format=torch.channels_last)`` does."""

    name, package = "torch", "torch"
    default = CONVOLUTIONS  # its products are MKL's
    computes = ("dense", "batch-matmul", *CONVOLUTIONS)
    adds_before = CONVOLUTIONS
    dtypes = ("float32", "bfloat16")

    def __init__(self, threads: int = 1) -> None:
        self._torch = open_torch(threads)

    def version(self) -> str:
        return f"PyTorch {self._torch.__version__}"

    def kind(self, workload: Workload) -> Kind:
        epilogue = workload.epilogue
        if workload.dtype != "float32" and (epilogue.activation != "none" or epilogue.residual):
            rule = "the product must have no epilogue, since PyTorch rounds before each of its steps"
            raise NoFormError(rule, workload, "Compare without one.")
        return "plain"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        if isinstance(workload, Convolution):
            given = tensors(self._torch, constants)
            given["w"] = channels_last(self._torch, given["w"])
            return WithConstants(partial(self._convolving, workload), given)
        return WithConstants(partial(self._bound, workload), constants)

    def _convolving(self, workload: Convolution, operands: Operands, out: FloatArray) -> Call:
        return eager(self._torch, workload, tensors(self._torch, operands), out.shape)

    def _bound(self, workload: Workload, operands: Operands, out: FloatArray) -> Call:
        """Returns ``functional.linear``, or ``bmm``, in the form that writes a given tensor, and the
        epilogue."""
        torch, y, given = self._torch, tensor(self._torch, out), tensors(self._torch, operands)
        x, w, epilogue = given["x"], given["w"], workload.epilogue
        if x.ndim == 3:
            right = w if workload.weights == "direct" else w.transpose(1, 2)
            return partial(torch.bmm, x, right, out=y)
        # This is functional.linear, with the argument "out" that its documentation leaves out.
        steps: list[Call] = [partial(torch._C._nn.linear, x, w, given.get("bias"), out=y)]
        if epilogue.activation == "relu":
            steps.append(y.relu_)
        elif epilogue.activation != "none":
            gelu, form = torch._C._nn.gelu, GELU_FORM[epilogue.activation]
            steps.append(partial(gelu, y, approximate=form, out=y))
        if epilogue.residual:
            steps.append(partial(y.add_, given["residual"]))
        return sequence(steps)


@dataclass(frozen=True)
class OneDnnLayer:
    """``mkldnn::_linear_pointwise``, which fuses an activation or a residual (not both), and returns a new
    tensor: see :class:`~dietlab.measure.timing.device.Output`. Weights are packed for ``rows``."""

    torch: Any
    workload: Workload
    packed: Any
    bias: Any
    rows: int

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        require_rows(self.rows, out)
        given, linear = tensors(self.torch, operands), self.torch.ops.mkldnn._linear_pointwise
        x, residual = given["x"], given.get("residual")
        activation = self.workload.epilogue.activation
        if activation == "none" and residual is not None:
            return partial(linear.binary, x, residual, self.packed, self.bias, "add")
        attribute, form = ("gelu", GELU_FORM[activation]) if activation in GELU_FORM else (activation, "")
        fused = partial(linear.default, x, self.packed, self.bias, attribute, [], form)
        return fused if residual is None else _then_add(fused, residual)


def require_rows(rows: int, out: FloatArray, library: str = "oneDNN") -> None:
    """Raises :class:`MeasureError` unless a call has the rows for which weights were packed: oneDNN does not
    pack for one row, and packs differently for few and for many rows."""
    if len(out) != rows:
        raise MeasureError(
            f"{library}'s packed weights can only serve calls of {rows} rows, for which they were packed",
            len(out),
            "Call prepare() with the shape of x.",
        )


def _then_add(compute: Callable[[], Any], residual: Any) -> Call:
    return lambda: compute().add_(residual)


@dataclass(frozen=True)
class OneDnnInt8Layer:
    """``onednn::qlinear_pointwise``, which fuses scales, bias and activation, and returns a new tensor.

    Its inputs are unsigned, with the zero point 128, unless the processor has AMX: signed ones took 2 to 5
    times as long on a Zen 3, and 1 to 14 % less on a Xeon whose tiles multiply signed bytes. They are made
    unsigned outside of the timed call: in a model the previous layer would write unsigned outputs.
    """

    torch: Any
    workload: Workload
    packed: Any
    constants: dict[str, Any]
    signed: bool
    rows: int

    def bind(self, operands: Operands, out: FloatArray) -> Call:
        require_rows(self.rows, out)
        torch, given = self.torch, {**self.constants, **tensors(self.torch, operands)}
        x, zero = (given["x"], 0) if self.signed else (given["x"].view(torch.uint8) ^ ZERO_POINT, ZERO_POINT)
        activation, scale, residual = self.workload.epilogue.activation, given["scale"], given.get("residual")
        attribute, form = ("gelu", GELU_FORM[activation]) if activation in GELU_FORM else (activation, "")
        weights = (self.packed, scale, torch.zeros(len(scale), dtype=torch.int64), given.get("bias"))
        output: tuple[Any, ...] = (1.0, 0, getattr(torch, str(out.dtype)), attribute, [], form)
        linear = torch.ops.onednn.qlinear_pointwise.default
        fused = partial(linear, x, 1.0, zero, *weights, *output)
        return fused if residual is None else _then_add(fused, residual)


class OneDnnPacked:
    """oneDNN as PyTorch ships it, with weights reordered for the row count or the size of the images."""

    name, package = "onednn-packed", "torch"
    computes: tuple[str, ...] = ("dense", *CONVOLUTIONS)
    adds_before: tuple[str, ...] = CONVOLUTIONS
    dtypes: tuple[str, ...] = ("float32", "int8", "bfloat16")

    def __init__(self, threads: int = 1) -> None:
        self._torch = open_torch(threads)
        if not self._torch.backends.mkldnn.is_available():
            raise absent("torch with oneDNN", f"PyTorch {self._torch.__version__} without it")

    def version(self) -> str:
        lines = self._torch.__config__.show().splitlines()
        found = [line.split("MKL-DNN v")[1].split()[0] for line in lines if "MKL-DNN v" in line]
        return f"oneDNN {found[0] if found else ''} in PyTorch {self._torch.__version__}"

    def kind(self, workload: Workload) -> Kind:
        if dtypes_of(workload)["out"] == "int8" and workload.epilogue.residual:
            rule = "the product must have no residual, which oneDNN adds before it rounds to int8"
            raise NoFormError(rule, workload, "Compare without a residual.")
        if workload.dtype == "bfloat16":
            if not self._torch.ops.mkldnn._is_mkldnn_bf16_supported():
                raise NoFormError("oneDNN needs AVX-512 for bfloat16", workload, "Compare float32.")
            if workload.epilogue.residual and workload.epilogue.activation != "none":
                rule = "the product must have no residual, which PyTorch adds after oneDNN rounds"
                raise NoFormError(rule, workload, "Compare without a residual.")
        return require_constant_weights(workload)

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        given = tensors(self._torch, constants)
        if isinstance(workload, Convolution):
            size = operand_sizes(workload, shape)["x"]
            return self._convolution(workload, given, shape, partial(require_size, size))
        rows = workload.output_shape(shape)[0]
        if workload.dtype == "int8":
            w = given.pop("w")
            packed = self._torch.ops.onednn.qlinear_prepack(w, [rows, w.shape[1]])
            signed = self._torch.cpu._is_amx_tile_supported()
            return OneDnnInt8Layer(self._torch, workload, packed, given, signed, rows)
        packed = self._torch.ops.mkldnn._reorder_linear_weight(given["w"], rows)
        return OneDnnLayer(self._torch, workload, packed, given.get("bias"), rows)

    def _convolution(
        self, work: Convolution, given: dict[str, Any], shape: Shape, require: Callable[..., object]
    ) -> Prepared:
        """Returns a convolution with weights reordered for a shape; ``require`` checks the size of ``x``."""
        scaled = precision_of(work).scaled
        compute = pointwise_int8 if scaled else pointwise

        def bound(operands: Operands, out: FloatArray) -> Call:
            require(operands["x"].shape)
            return compute(self._torch, work, tensors(self._torch, operands), out.shape)

        if scaled:
            packed = reordered_int8(self._torch, work, given, shape)
        else:
            packed = reordered(self._torch, work, given["w"], shape)
        return WithConstants(bound, {**given, "w": packed})


class OneDnnAnySize(OneDnnPacked):
    """oneDNN with weights that are reordered once, for the middle of the range of sizes, and serve all sizes:
    what a program with varying sizes can have."""

    name, default = "onednn-any-size", CONVOLUTIONS
    computes = CONVOLUTIONS
    dtypes = ("float32", "bfloat16")
    any_shape = True

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        work, given = cast("Convolution", workload), tensors(self._torch, constants)
        return self._convolution(work, given, middle(work, shape), lambda size: None)

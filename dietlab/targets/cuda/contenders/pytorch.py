"""PyTorch on a device: its eager operators, and one program that Inductor makes for all lengths."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.torch_convolution import channels_last, eager
from dietlab.compare.vendor import CONVOLUTIONS, GELU_FORM, absent, import_torch, sequence
from dietlab.measure.timing.contender import Call, NoFormError, Prepared, WithConstants
from dietlab.problem import Shape, Workload, largest_shape
from dietlab.problem.dimensions import operand_sizes
from dietlab.targets.cuda.contenders.tensors import FLOATS, GpuSetting, Tensor, Tensors

MODE = "max-autotune-no-cudagraphs"
"""The mode of Inductor in which it tries its own templates and the vendor's library. It records no CUDA
graphs, since the clock decides whether calls are recorded."""


def open_torch(device: str) -> Any:
    """Returns PyTorch with exact products: float32 is not rounded to TF32, and partial sums of halves stay
    float32.

    Raises:
        MissingDependencyError: if it is absent, or sees no GPU although the device is one.
    """
    torch = import_torch()
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingDependencyError(
            "PyTorch must see a GPU",
            f"PyTorch {torch.__version__}, which sees none",
            "Install a build of PyTorch for CUDA on a machine with a GPU and its driver.",
        )
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return torch


def version_of(torch: Any) -> str:
    """Returns ``"PyTorch 2.9.0, CUDA 13.0"``."""
    cuda = f", CUDA {torch.version.cuda}" if torch.version.cuda else ""
    return f"PyTorch {torch.__version__}{cuda}"


class Eager:
    """PyTorch's eager products. On a GPU, PyTorch takes them from the library that ``name`` says."""

    name: str
    package = "torch"
    dtypes = FLOATS
    computes = ("dense", "batch-matmul", "matmul")

    def __init__(self, setting: GpuSetting) -> None:
        self._torch = setting.torch
        if setting.device == "cuda":
            self._torch.backends.cuda.preferred_blas_library(self.name)

    def version(self) -> str:
        return version_of(self._torch)

    def kind(self, workload: Workload) -> str:
        """Returns ``"plain"``.

        Raises:
            NoFormError: for 16-bit types, if the epilogue takes a separate pass: each pass rounds.
        """
        epilogue = workload.epilogue
        added_last = epilogue.residual and (epilogue.bias or epilogue.activation != "none")
        if workload.dtype != "float32" and (epilogue.activation in GELU_FORM or added_last):
            rule = "the epilogue must need no further operator, since each of PyTorch's operators rounds"
            raise NoFormError(rule, workload, "Compare with torch-compile.")
        return "plain"

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        return sequence([self._product(workload, operands, out), *self._tail(workload, operands, out)])

    def _product(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        """Returns a call that computes the product and adds the bias or residual that it can add at once."""
        x, w = operands["x"], operands["w"]
        right = w if workload.weights == "direct" else w.transpose(-1, -2)
        if x.ndim == 3:
            return partial(self._torch.bmm, x, right, out=out)
        addend = operands.get(_addend(workload))
        if addend is None:
            return partial(self._torch.mm, x, right, out=out)
        return partial(self._torch.addmm, addend, x, right, out=out)

    def _tail(self, workload: Workload, operands: Tensors, out: Tensor) -> Sequence[Call]:
        epilogue, steps = workload.epilogue, list[Call]()
        if epilogue.activation == "relu":
            steps.append(out.relu_)
        elif epilogue.activation in GELU_FORM:
            gelu = self._torch._C._nn.gelu
            steps.append(partial(gelu, out, approximate=GELU_FORM[epilogue.activation], out=out))
        if epilogue.residual and _addend(workload) != "residual":
            steps.append(partial(out.add_, operands["residual"]))
        return steps


class EagerCublas(Eager):
    name = "cublas"


class EagerCublasLt(Eager):
    name = "cublaslt"


class Cudnn:
    """PyTorch's convolutions, which are cuDNN's on a GPU, with the first choice of its heuristic. Weights are
    stored with the channels last once, as ``model.to(memory_format=torch.channels_last)`` does."""

    name, package = "cudnn", "torch"
    dtypes = FLOATS
    computes = default = adds_before = CONVOLUTIONS
    searches: ClassVar[bool] = False

    def __init__(self, setting: GpuSetting) -> None:
        self._torch = setting.torch
        self._torch.backends.cudnn.benchmark = self.searches

    def version(self) -> str:
        return f"{version_of(self._torch)}, cuDNN {self._torch.backends.cudnn.version()}"

    def kind(self, workload: Workload) -> str:
        """Returns ``"plain"``, or ``"tuned"`` if cuDNN's algorithms are tried.

        Raises:
            NoFormError: for 16-bit types with an epilogue, whose passes round.
        """
        epilogue = workload.epilogue
        if workload.dtype != "float32" and (epilogue.activation != "none" or epilogue.residual):
            rule = "the convolution must have no epilogue, since each of PyTorch's operators rounds"
            raise NoFormError(rule, workload, "Compare without one.")
        return "tuned" if self.searches else "plain"

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> Prepared:
        given = {**constants, "w": channels_last(self._torch, constants["w"])}
        return WithConstants(partial(self._bound, workload), given)

    def _bound(self, workload: Any, operands: Tensors, out: Tensor) -> Call:
        return eager(self._torch, workload, operands, tuple(out.shape))


class CudnnTuned(Cudnn):
    """A contender that sets ``torch.backends.cudnn.benchmark``: PyTorch times cuDNN's algorithms at the first
    call of each size, before calls are timed."""

    name = "cudnn-tuned"
    searches = True


def _addend(workload: Workload) -> str:
    """Returns the name of the operand that the product's sums can start from; empty if there is none."""
    epilogue = workload.epilogue
    if epilogue.bias:
        return "bias"
    return "residual" if epilogue.residual and epilogue.activation == "none" else ""


class Compiled:
    """``torch.compile`` with dynamic lengths. It compiles once, with the largest length as the example, and
    again for a length of 1.

    Raises:
        MissingDependencyError: if Inductor's compiler for GPUs, Triton, is absent.
    """

    name, package = "torch-compile", "triton"
    dtypes = FLOATS
    computes = ("dense", "batch-matmul")

    def __init__(self, setting: GpuSetting) -> None:
        if setting.device == "cuda" and importlib.util.find_spec("triton") is None:
            raise absent("triton", "not installed, and PyTorch compiles for a GPU with it")
        self._torch = setting.torch
        self._layer: Callable[..., Tensor] | None = None

    def version(self) -> str:
        return f"{version_of(self._torch)}, {MODE}"

    def kind(self, workload: Workload) -> str:
        return "compiled"

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        """Returns a call that returns a new tensor: a compiled function does not write to a given output."""
        self._mark(workload, operands)
        if self._layer is None:
            layer = _layer(self._torch, workload)
            self._layer = self._torch.compile(layer, dynamic=True, mode=MODE)
            example = _example(workload, operands)
            self._mark(workload, example)
            self._layer(**example)
        return partial(self._layer, **operands)

    def _mark(self, workload: Workload, operands: Tensors) -> None:
        """Marks the extents that never change: ``dynamic`` alone makes all of them dynamic."""
        for name, tensor in operands.items():
            extents = workload.signature[name]
            fixed = [axis for axis, extent in enumerate(extents) if isinstance(extent, int)]
            self._torch._dynamo.mark_static(tensor, fixed)


def _layer(torch: Any, workload: Workload) -> Callable[..., Tensor]:
    """Returns the workload as one would write it in PyTorch."""
    epilogue = workload.epilogue

    def layer(x: Tensor, w: Tensor, bias: Tensor = None, residual: Tensor = None) -> Tensor:
        if x.ndim == 3:
            return torch.bmm(x, w if workload.weights == "direct" else w.transpose(-1, -2))
        y = torch.nn.functional.linear(x, w, bias)
        if epilogue.activation == "relu":
            y = torch.relu(y)
        elif epilogue.activation in GELU_FORM:
            y = torch.nn.functional.gelu(y, approximate=GELU_FORM[epilogue.activation])
        return y if residual is None else y + residual

    return layer


def _example(workload: Workload, operands: Tensors) -> Tensors:
    """Returns operands of the largest shape, all zeros."""
    sizes = operand_sizes(workload, largest_shape(workload))
    return {name: tensor.new_zeros(sizes[name]) for name, tensor in operands.items()}

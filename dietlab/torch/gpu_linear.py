"""Linear layers on a GPU: tuned libraries read PyTorch's tensors where they lie.

Nothing is packed, copied or waited for. ``tvm_ffi`` passes the addresses of tensors and sets PyTorch's
current stream of the first tensor's device for the call; the output comes from PyTorch's allocator. A library
is called in one of two ways: by :func:`called_directly`, or by the operator ``dietlab::linear``, whose kernel
for CUDA is :func:`linear_on_gpu`.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from dietlab.base.errors import DispatchError
from dietlab.machine import Hardware
from dietlab.torch.activations import APPLY
from dietlab.torch.gpu_library import DeviceLibrary, gpu_library, lacking_on

ALIGNMENT_BYTES = 16
"""The bytes that the addresses of tensors must be multiples of: the widest copy of a thread. A library serves
other addresses slowly; PyTorch's allocator aligns more."""

TF32 = (
    "PyTorch may compute float32 products in TF32, faster and with fewer bits; "
    "torch.backends.cuda.matmul.fp32_precision = 'ieee' lets libraries compute them in float32"
)
"""The reason why PyTorch computes float32 layers."""


def called_directly(library: DeviceLibrary, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Returns a layer's output ``[..., N]`` for ``x [..., K]`` if the library can be called without PyTorch's
    dispatcher, which takes longer than all else here; else None.

    It can if nothing is traced, transformed, watched by a mode, captured or cast by autocast, no gradient is
    needed, and ``x`` lies on the current device, where the library was called before.
    """
    # Every line here adds to each call, of some microseconds.
    if (
        type(x) is not Tensor
        or x.layout is not torch.strided
        or x.is_nested
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cuda")
        or (
            torch.is_grad_enabled()
            and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
        )
    ):
        return None
    index, places = x.get_device(), x.data_ptr() | weight.data_ptr()
    if bias is not None:
        places |= bias.data_ptr()
    if (
        places % ALIGNMENT_BYTES
        or not library.devices.get(index)
        or not x.is_contiguous()
        or not x.numel()
        or x.is_neg()  # tvm_ffi passes the memory, without the sign
        or weight.is_neg()
        or (bias is not None and bias.is_neg())
        or (library.dtype is torch.float32 and rounds_to_tf32())
        or index != _current_device()
        or _is_capturing()
    ):
        return None
    try:
        return _called(library, x, weight, bias)
    except DispatchError:
        raise
    except (TypeError, ValueError, IndexError):  # another type, shape or device: the library has not begun
        return None


def product(library: DeviceLibrary, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Returns a layer's output ``[..., N]`` for ``x [..., K]``; None if the library does not serve these
    tensors. They are no stand-ins of a trace.

    TVM makes a call's device the current one of the thread, and leaves it so. At the first call on a device
    it loads the library's module, which is an error while a graph is captured, unless this thread relaxes its
    rule for the time (CUDA Driver API, ``cuThreadExchangeStreamCaptureMode``).

    Raises:
        DispatchError: if the library refuses them all the same, or the GPU reports an error.
    """
    index, x = x.get_device(), x.contiguous()
    if not (_fits(library, x, weight, bias, index) and library.runs_on(index)):
        return None
    from dietlab.targets.cuda.driver import relaxed_capture

    with torch.cuda.device(index), relaxed_capture() if _is_capturing() else nullcontext():
        try:
            return _called(library, x, weight, bias)
        except (TypeError, ValueError) as error:
            given = {"x": x, "w": weight, **({} if bias is None else {"bias": bias})}
            raise library.operator.explained(given, None, error) from None


def _called(library: DeviceLibrary, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns the output of a library on the current device for ``x``, which is contiguous.

    Raises:
        DispatchError: if the GPU reports an error.
        TypeError, ValueError: if the library refuses the tensors.
    """
    shape, cols = x.shape, weight.shape[0]
    # PyTorch parses numbers faster than a tuple of them, and resizes faster than it makes a view.
    rows = x if len(shape) == 2 else x.view(-1, shape[-1])
    y = x.new_empty(rows.shape[0], cols)
    try:
        if bias is None:
            library.run(rows, weight, y)
        else:
            library.run(rows, weight, bias, y)
    except RuntimeError as error:
        raise _of_gpu(library, x, error) from None
    return y if rows is x else y.resize_(*shape[:-1], cols)


def _of_gpu(library: DeviceLibrary, x: Tensor, error: RuntimeError) -> DispatchError:
    """Returns the error of a call that the GPU refused."""
    said = next((line for line in str(error).splitlines() if "rror" in line), str(error))
    return DispatchError(
        f"{x.device} must load and run the kernels of {library.operator.path}",
        said,
        "Free memory if there is none; an error of an earlier kernel of this process shows here, too.",
    )


def _fits(library: DeviceLibrary, x: Tensor, weight: Tensor, bias: Tensor | None, index: int) -> bool:
    """Returns whether a library serves tensors on the device ``index``, of which ``x`` is contiguous."""
    dtype, places = library.dtype, x.data_ptr() | weight.data_ptr()
    if bias is not None:
        if bias.dtype is not dtype or bias.get_device() != index:
            return False
        if not bias.is_contiguous() or bias.is_neg():
            return False
        places |= bias.data_ptr()
    return (
        x.dtype is dtype
        and weight.dtype is dtype
        and weight.get_device() == index
        and weight.is_contiguous()
        and weight.dim() == 2
        and x.dim() > 0
        and x.shape[-1] == weight.shape[1]
        and x.numel() > 0
        and not places % ALIGNMENT_BYTES
        and not (x.is_neg() or weight.is_neg())  # tvm_ffi passes the memory, without the sign
        and not (dtype is torch.float32 and _rounds_now())
    )


def rounds_to_tf32() -> bool:
    """Returns whether PyTorch may round the operands of float32 products to TF32 on a GPU.

    ``fp32_precision`` has the last word, however it was set: ``set_float32_matmul_precision`` and
    ``allow_tf32`` write it, too, while reading ``allow_tf32`` fails after ``fp32_precision`` was set
    (PyTorch 2.13).
    """
    precision = torch._C._get_fp32_precision_getter("cuda", "matmul")
    return bool(precision == "tf32")


def _rounds_now() -> bool:
    """Returns whether TF32 is allowed.

    Warns:
        UserWarning: the first time.
    """
    if not rounds_to_tf32():
        return False
    _warn_of_tf32()
    return True


@cache
def _warn_of_tf32() -> None:
    warnings.warn(f"tuned layers are PyTorch's for now: {TF32}", stacklevel=2)


def _current_device() -> int:
    return int(torch.cuda.current_device())


def _is_capturing() -> bool:
    return bool(torch.cuda.is_current_stream_capturing())


def reference(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Returns the layer's output as PyTorch computes it."""
    return APPLY[activation](torch.nn.functional.linear(x, weight, bias))


def linear_on_gpu(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, folder: str) -> Tensor:
    """Computes ``dietlab::linear`` on a GPU, by a library if one serves these tensors."""
    library = gpu_library(folder)
    y = None if library is None else product(library, x, weight, bias)
    return reference(x, weight, bias, activation) if y is None else y


def unfit_for_gpu(weights: Tensor, dtype: str, hardware: Hardware) -> str:
    """Returns why libraries for a GPU cannot compute a layer with these weights ``[N, K]``; empty if they
    may."""
    from dietlab.targets.cuda.limits import gpu_of

    if weights.dtype is not getattr(torch, dtype) or not weights.is_cuda:
        return f"its weights are {weights.dtype} on {weights.device.type}, not {dtype} on a GPU"
    if weights.layout is not torch.strided:
        return f"its weights are stored as {weights.layout}"
    if not weights.is_contiguous() or weights.is_neg():
        return "its weights do not lie as [N, K], one row after the other, and a GPU reads them as they lie"
    if not _is_fake(weights) and weights.data_ptr() % ALIGNMENT_BYTES:
        return f"the address of its weights is no multiple of {ALIGNMENT_BYTES} bytes"
    if weights.dtype is torch.float32 and rounds_to_tf32():
        return TF32
    return lacking_on(weights.device.index or 0, gpu_of(hardware).arch)


def _is_fake(tensor: Tensor) -> bool:
    """Returns whether a tensor has no memory: it stands for another while a model is traced."""
    return isinstance(tensor, FakeTensor)


def warm_up(folder: str, weight: Tensor, bias: Tensor | None) -> None:
    """Multiplies one row of zeros, the first time on a device: TVM loads a library's kernels at the first
    call, which is better done before a graph is captured or a call is timed.

    Raises:
        DispatchError: if the GPU cannot load or run them.
    """
    library = gpu_library(folder)
    if library is None or _is_fake(weight) or weight.get_device() in library.devices:
        return
    with torch.no_grad():
        product(library, weight.new_zeros((1, weight.shape[1])), weight, bias)

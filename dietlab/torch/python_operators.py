"""The operators defined from Python, where no C++ compiler is installed: a GPU's libraries need none.

Only ``dietlab::linear`` and ``dietlab::drop_packed`` compute. The others, which need libraries for a CPU, are
there by name, and say what is missing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dietlab.base.errors import DietlabError
from dietlab.torch.gpu_linear import reference

SCHEMAS = {
    "linear": "(Tensor x, Tensor weight, Tensor? bias, str activation, str library) -> Tensor",
    "grouped_linear": "(Tensor x, Tensor weights, Tensor ends, str library) -> Tensor",
    "batch_matmul": "(Tensor x, Tensor w, bool transposed, str library) -> Tensor",
    "packed_linear": "(Tensor x, Tensor panels, int n, int k, str library) -> Tensor",
    "convolution": "(Tensor x, Tensor[] weights, Tensor? bias, float epsilon, int[] window, int groups, "
    "str activation, str library, int[] sizes, Tensor? residual=None) -> Tensor",
    "pack_convolution": "(Tensor[] weights, Tensor? bias, float epsilon, str library) -> Tensor",
    "pack": "(Tensor weight, Tensor? bias, str library) -> Tensor",
    "drop_packed": "(Tensor weight) -> ()",
}
"""The operators that take tensors, as ``operators.cpp`` defines them."""

TAGS = (torch.Tag.needs_contiguous_strides, torch.Tag.pt2_compliant_tag)

THROUGH_PYTORCH = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "FuncTorchBatched")
"""Dispatch keys under which PyTorch chooses types, or its own products."""


def define_operators(missing: DietlabError) -> torch.library.Library:
    """Defines the operators; the library that is returned must live as long as they are used.

    Args:
        missing: the error of those that need the compiler.
    """
    library = torch.library.Library("dietlab", "DEF")
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=TAGS if name == "linear" else ())
    for key in ("CompositeExplicitAutograd", *THROUGH_PYTORCH):
        library.impl("linear", _reference, key)
    library.impl("linear", _empty, "Meta")
    library.impl("linear", _with_gradient, "Autograd")
    library.impl("drop_packed", lambda weight: None, "CompositeImplicitAutograd")
    library.impl("pack", lambda weight, bias, folder: torch.empty(0), "CompositeImplicitAutograd")
    for name in SCHEMAS.keys() - {"linear", "drop_packed", "pack"}:
        library.impl(name, partial(_refuse, missing), "CompositeImplicitAutograd")
    return library


def _refuse(missing: DietlabError, *_: Any, **__: Any) -> Tensor:
    raise missing


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, folder: str) -> Tensor:
    return reference(x, weight, bias, activation)


def _empty(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, folder: str) -> Tensor:
    """Returns what comes out, for any length, without computing it."""
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _with_gradient(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, folder: str) -> Tensor:
    tensors = [tensor for tensor in (x, weight, bias) if tensor is not None]
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
        return reference(x, weight, bias, activation)  # derivatives that Gradient does not have
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return Gradient.apply(x, weight, bias, activation, folder)
    return _below(x, weight, bias, activation, folder)


def _below(*arguments: Any) -> Tensor:
    """Calls the operator's kernel below autograd."""
    with torch._C._AutoDispatchBelowAutograd():
        found: Tensor = torch.ops.dietlab.linear.default(*arguments)
    return found


class Gradient(torch.autograd.Function):  # type: ignore[misc]
    """A layer by a library, whose gradients are PyTorch's: they are other products than the tuned one."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Any, activation: str, folder: str) -> Tensor:
        context.save_for_backward(x, weight, bias)
        context.activation = activation
        return _below(x, weight, bias, activation, folder)

    @staticmethod
    def backward(context: Any, passed: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = context.saved_tensors
        if context.activation == "relu":
            before = torch.nn.functional.linear(x, weight, bias)
            passed = torch.ops.aten.threshold_backward(passed, before, 0)
        elif context.activation != "none":
            before = torch.nn.functional.linear(x, weight, bias)
            approximate = "tanh" if context.activation == "gelu_tanh" else "none"
            passed = torch.ops.aten.gelu_backward(passed, before, approximate=approximate)
        rows, needed = passed.reshape(-1, passed.shape[-1]), context.needs_input_grad
        return (
            torch.matmul(passed, weight) if needed[0] else None,
            rows.t().matmul(x.reshape(-1, x.shape[-1])) if needed[1] else None,
            rows.sum(0) if bias is not None and needed[2] else None,
            None,
            None,
        )

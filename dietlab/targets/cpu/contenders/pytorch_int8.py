"""Convolutions of int8 by oneDNN as PyTorch ships it, with weights that are packed once.

Inputs are unsigned, with the zero point 128: PyTorch's operator takes no others. They are made unsigned
outside of the timed call: in a model the previous layer would write unsigned outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dietlab.compare.torch_convolution import Sliding, Tensors, finished, images, kernels, padded
from dietlab.compare.vendor import GELU_FORM, Call
from dietlab.problem import Shape, dtypes_of
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders.pytorch_convolution import seen_size

ZERO_POINT = 128
"""Zero point of inputs that are made unsigned by flipping the highest bit."""


def reordered_int8(torch: Any, work: Convolution, given: Tensors, shape: Shape) -> Any:
    """Returns int8 weights in the layout that oneDNN chooses for unsigned images of a shape, with the sums by
    which it corrects for the zero point."""
    options = Sliding.of(work)
    return torch.ops.onednn.qconv_prepack(
        kernels(given["w"]),
        given["scale"],
        1.0,
        ZERO_POINT,
        options.stride,
        options.padding,
        options.dilation,
        options.groups,
        seen_size(work, shape),
    )


def pointwise_int8(torch: Any, work: Convolution, given: Tensors, shape: tuple[int, ...]) -> Call:
    """Returns ``onednn::qconv2d_pointwise``, which fuses scales, bias and ReLU, on weights of
    :func:`reordered_int8`. A GELU, which it lacks, and a residual follow it."""
    options, scale, activation = Sliding.of(work), given["scale"], work.epilogue.activation
    fused, finish = activation, list[Callable[[Any], Any]]()
    if activation in GELU_FORM:
        fused = "none"
        finish.append(partial(torch._C._nn.gelu_, approximate=GELU_FORM[activation]))
    elif work.epilogue.before:
        fused = "none"
        finish.append(torch.relu_)
    if work.epilogue.residual:
        residual = images(given["residual"])
        finish.insert(0 if work.epilogue.before else len(finish), lambda found: found.add_(residual))
    weights = (given["w"], scale, torch.zeros(len(scale), dtype=torch.int64), given.get("bias"))
    sliding = (options.stride, options.padding, options.dilation, options.groups)
    output: tuple[Any, ...] = (1.0, 0, getattr(torch, dtypes_of(work)["out"]), fused, [], "")
    convolve = torch.ops.onednn.qconv2d_pointwise.default
    compute = padded(
        torch,
        images(given["x"].view(torch.uint8) ^ ZERO_POINT),
        options.more,
        lambda x: convolve(x, 1.0, ZERO_POINT, *weights, *sliding, *output),
        ZERO_POINT,
    )

    return finished(compute, finish, shape)

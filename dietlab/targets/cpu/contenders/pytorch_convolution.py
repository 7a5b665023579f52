"""Convolutions by oneDNN in PyTorch, with weights that are packed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.compare.torch_convolution import Sliding, Tensors, Unarranged, finished, images, kernels, padded
from dietlab.compare.vendor import GELU_FORM, Call
from dietlab.problem import Shape
from dietlab.problem.convolution import Convolution
from dietlab.problem.dimensions import operand_sizes


def reordered(torch: Any, work: Convolution, w: Any, shape: Shape) -> Any:
    """Returns weights in the layout that oneDNN chooses for images of a shape."""
    arguments, seen = Sliding.of(work).arguments, seen_size(work, shape)
    return torch.ops.mkldnn._reorder_convolution_weight(kernels(w), *arguments, seen)


def seen_size(work: Convolution, shape: Shape) -> list[int]:
    """Returns the size ``[N, C, H, W]`` of the images that oneDNN is called with for a shape."""
    size, line = operand_sizes(work, shape)["x"], [1] * (2 - len(work.image))
    return Sliding.of(work).larger([size[0], size[-1], *line, *size[1:-1]])


def pointwise(torch: Any, work: Convolution, given: Tensors, shape: tuple[int, ...]) -> Call:
    """Returns ``mkldnn::_convolution_pointwise`` on weights of :func:`reordered`. It fuses an activation or a
    residual, and ReLU after a residual."""
    options, operator = Sliding.of(work), torch.ops.mkldnn._convolution_pointwise
    common, activation = (given["w"], given.get("bias"), *options.arguments), work.epilogue.activation
    residual = images(given["residual"]) if work.epilogue.residual else None
    if residual is not None and activation in (("none", "relu") if work.epilogue.before else ("none",)):
        binary: Any = operator.binary
        after = None if activation == "none" else activation
        added: tuple[Any, ...] = (*common, "add", None, after, [], None)
        compute = padded(torch, images(given["x"]), options.more, lambda x: binary(x, residual, *added))
        return lambda: Unarranged(compute(), shape)
    unary: Any = operator.default
    name, form = ("gelu", GELU_FORM[activation]) if activation in GELU_FORM else (activation, "")
    finish: list[Callable[[Any], Any]] = []
    if residual is not None:
        finish.append(lambda found: found.add_(residual))
    if work.epilogue.before:
        finish.append(partial(torch._C._nn.gelu_, approximate=form))
        name, form = "none", ""
    fused: tuple[Any, ...] = (*common, name, [], form)
    compute = padded(torch, images(given["x"]), options.more, lambda x: unary(x, *fused))
    return finished(compute, finish, shape)


def require_size(size: tuple[int, ...], found: tuple[int, ...]) -> None:
    """Raises :class:`MeasureError` unless a call has the images for which weights were packed. Other images
    might have them reordered in each call."""
    if found != size:
        raise MeasureError(
            f"oneDNN's packed weights can only serve images {list(size)}, for which they were packed",
            list(found),
            "Call prepare() with the shape of x, or compare with onednn-any-size.",
        )


def middle(work: Convolution, shape: Shape) -> Shape:
    """Returns the shape with images in the middle of the ranges of their number and size, and the channels of
    ``shape``."""
    channels = ("IC", "OC")
    return Shape.of(
        **{n: shape[n] if n in channels else (dim.low + dim.high) // 2 for n, dim in work.dims.items()}
    )

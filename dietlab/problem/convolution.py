"""Convolutions over images and sequences, channels last, with weights in PyTorch's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import WorkloadError
from dietlab.problem.bases import Layer
from dietlab.problem.contraction import Axis, Inputs, Weights, precision_of
from dietlab.problem.dimensions import named, require_extents
from dietlab.problem.dims import Dim, Size, Window
from dietlab.problem.epilogue import Activation, Residual
from dietlab.problem.precision import USUAL, FloatArray

Sides = Any
"""An option of a kernel: a number, or one for each dimension of the image (for padding, perhaps a pair)."""


@dataclass(frozen=True, kw_only=True)
class Convolution(Layer):
    """The options of :class:`Conv1d` and :class:`Conv2d`, and what follows from them.

    As a contraction, its rows are the output's pixels (``N``, ``OH`` and ``OW``), its columns are the output
    channels, and its depth are the elements under the kernel (``KH``, ``KW`` and ``IC / groups``).
    """

    kernel: Sides = 3
    stride: Sides = 1
    padding: Sides = 0
    dilation: Sides = 1
    groups: int = 1
    bias: bool = False
    activation: Activation = "none"
    residual: Residual = False
    dtype: str = USUAL
    out_dtype: str | None = None

    image: ClassVar[tuple[str, ...]] = ()
    operator: ClassVar[str] = ""
    weights: ClassVar[Weights] = "packed"

    def __post_init__(self) -> None:
        for option, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            object.__setattr__(self, option, self._sides(option, least))
        self._require_types()
        given = cast(Any, self)
        if type(self.groups) is not int or self.groups < 1:
            raise WorkloadError("groups must be a number of 1 or more", f"groups={self.groups!r}")
        for name in ("IC", "OC"):
            if isinstance(found := getattr(self, name), Dim) and self.groups > 1:
                rule = "the channels of a convolution with groups must be numbers"
                value = f"{name}={found} with groups={self.groups}"
                raise WorkloadError(rule, value, "A range of channels needs groups=1.")
        for window in self.windows:
            size = window.size.low if isinstance(window.size, Dim) else window.size
            if type(size) is int and size >= 1 > window.positions(size):
                raise WorkloadError(
                    "the kernel must fit into the padded image",
                    f"{window.dim}={size} with padding {window.before} and {window.after}, and a kernel of "
                    f"{window.kernel} elements with dilation {window.dilation}",
                    f"{window.dim} is at least {window.least}.",
                )
        require_extents(self, self.DIMENSIONS)
        if self.groups > 1 and any(getattr(self, name) % self.groups for name in ("IC", "OC")):
            raise WorkloadError(
                "groups must divide the numbers of input and output channels",
                f"groups={self.groups} with IC={given.IC} and OC={given.OC}",
                f"They divide by {gcd(given.IC, given.OC)}.",
            )
        inner = given.IC.high if isinstance(given.IC, Dim) else given.IC
        self._require_sums(inner // self.groups * prod(self.kernel))

    def _sides(self, option: str, least: int) -> Any:
        """Returns an option as one value for each dimension of the image; pads as pairs."""
        given, count = getattr(self, option), len(self.image)
        sides = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
        pairs = [tuple(side) if isinstance(side, (tuple, list)) else (side, side) for side in sides]
        numbers = [number for pair in pairs for number in pair]
        right = len(pairs) == count and all(len(pair) == 2 for pair in pairs)
        right &= all(type(number) is int and number >= least for number in numbers)
        if option != "padding":
            right &= all(pair[0] == pair[1] for pair in pairs)
        if not right:
            raise WorkloadError(
                f"{option} must be a number of {least} or more, or one for each of {', '.join(self.image)}"
                + (", or a pair of numbers (before, after) for each" if option == "padding" else ""),
                f"{option}={given!r}",
                f"For example {option}={max(1, least)}.",
            )
        return tuple(pairs if option == "padding" else (pair[0] for pair in pairs))

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The kernel's positions along each dimension of the image."""
        sides = zip(self.image, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(
            Window(name, getattr(self, name), kernel, stride, pads[0], pads[1], dilation)
            for name, kernel, stride, pads, dilation in sides
        )

    @property
    def depthwise(self) -> bool:
        """True if each output channel sees one input channel, its own."""
        given: Any = self
        return bool(given.IC == given.OC == self.groups > 1)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Images, output pixels, groups, output channels of a group, and the elements under the kernel, each
        with its role. Groups are separate products; groups of one channel are the columns of one product,
        each with its own channel of the input."""
        given: Any = self
        products = 1 if self.depthwise else self.groups
        return (
            Axis("N", given.N, "rows"),
            *(Axis(f"O{window.dim}", window, "rows") for window in self.windows),
            *([Axis("G", products, "batch")] if products > 1 else ()),
            Axis("OC", _share(given.OC, products), "cols"),
            *(Axis(f"K{window.dim}", window.kernel, "depth") for window in self.windows),
            *(() if self.depthwise else (Axis("IC", _share(given.IC, self.groups), "depth"),)),
        )

    @property
    def signature(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of the operands, in the order of a call, and of ``out``."""
        images, *image, inner, outer = named(self, self.DIMENSIONS)
        out = (images, *self.windows, outer)
        shapes: dict[str, tuple[Size, ...]] = {"x": (images, *image, inner)}
        shapes["w"] = (outer, _share(inner, self.groups), *(window.kernel for window in self.windows))
        if precision_of(self).scaled:
            shapes["scale"] = (outer,)
        if self.bias:
            shapes["bias"] = (outer,)
        if self.residual:
            shapes["residual"] = out
        return {**shapes, "out": out}

    def reference(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Returns the result in float64: the sum of shifted images times the kernel's elements. An int8
        output is clipped to its range, but not rounded."""
        x = np.pad(inputs["x"].astype(np.float64), [(0, 0), *self.padding, (0, 0)])
        w = inputs["w"].astype(np.float64)
        windows = list(zip(self.windows, inputs["x"].shape[1:], strict=False))
        result: npt.NDArray[np.float64] = np.zeros(
            (len(x), *(window.positions(size) for window, size in windows), len(w))
        )
        for element in product(*map(range, self.kernel)):
            met: Any = [each.over(size, at) for (each, size), at in zip(windows, element, strict=True)]
            under: Any = (slice(None), slice(None), *element)
            result += self._by_group(x[(slice(None), *met)], w[under])
        return self._finished(result, inputs)

    def _by_group(self, x: FloatArray, w: FloatArray) -> Any:
        """Returns the product of ``x[..., IC]`` and ``w[OC, IC / groups]``, group by group."""
        split = x.reshape(*x.shape[:-1], self.groups, w.shape[1])
        by_group = w.reshape(self.groups, len(w) // self.groups, w.shape[1])
        return np.einsum("...gi,goi->...go", split, by_group, optimize=True).reshape(*x.shape[:-1], len(w))

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as a JSON value, options included."""
        return {
            "operator": self.operator,
            **self._sizes_to_json(),
            "kernel": list(self.kernel),
            "stride": list(self.stride),
            "padding": [list(pair) for pair in self.padding],
            "dilation": list(self.dilation),
            "groups": self.groups,
            "bias": self.bias,
            "activation": self.activation,
            "residual": self.residual,
            **self._types_to_json(),
        }

    def __str__(self) -> str:
        dims = " ".join(f"{name}={getattr(self, name)}" for name in self.DIMENSIONS)
        options = [f"kernel={_text(self.kernel)}"]
        for option, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            text = _text(getattr(self, option))
            options += [] if text == str(usual) else [f"{option}={text}"]
        options += [] if self.groups == 1 else [f"groups={self.groups}"]
        parts = (self.operator, dims, *options, precision_of(self).shown(self.out_dtype), str(self.epilogue))
        return " ".join(filter(None, parts))


def _share(channels: Any, groups: int) -> Any:
    """Returns the number of channels of each group; of a single one the number, range or name of all."""
    return channels if groups == 1 else channels // groups


def _text(sides: Sequence[Any]) -> str:
    """Returns an option's values as short as they can be written: ``1``, ``1x2`` or ``(0,1)x(1,1)``."""
    texts = []
    for side in sides:
        pair = side if isinstance(side, tuple) else (side, side)
        texts.append(str(pair[0]) if pair[0] == pair[1] else f"({pair[0]},{pair[1]})")
    return texts[0] if len(set(texts)) == 1 else "x".join(texts)


@dataclass(frozen=True)
class Conv2d(Convolution):
    """A convolution over images: ``y[n, oh, ow, oc]`` is the sum over ``kh``, ``kw`` and ``ic`` of
    ``x[n, oh * stride + kh * dilation - padding, ..., ic] * w[oc, ic, kh, kw]``, with an epilogue.

    Operands are ``x[N, H, W, IC]``, ``w[OC, IC / groups, KH, KW]`` (PyTorch's order), ``bias[OC]``,
    ``residual[N, OH, OW, OC]`` and ``y[N, OH, OW, OC]``, where ``OH`` and ``OW`` are
    ``(size + padding before and after - dilation * (kernel - 1) - 1) // stride + 1``, as in PyTorch.

    Args:
        N: the number of images.
        H, W: the height and the width of an image, in pixels.
        IC, OC: the numbers of input and output channels; they may be ranges if ``groups`` is 1.
        kernel, stride, dilation: a number, or one for each of H and W.
        padding: the number of zeros around the image: a number, one for each of H and W, or a pair
            ``(before, after)`` for each.
        groups: the number of groups of channels; the output channels of a group see its input channels only.
        bias, activation, residual: see :class:`~dietlab.problem.Epilogue`.
        dtype: ``float32``, ``float16`` or ``bfloat16`` for operands and output; sums are float32. Or ``int8``
            for ``x`` and ``w``, without zero points: products are summed exactly, in int32, and multiplied by
            ``scale[OC]`` in float32, before a float32 bias.
        out_dtype: the type of the output if operands are int8, ``float32`` (None) or ``int8``; see
            :class:`~dietlab.problem.Dense`.

    Raises:
        WorkloadError: if an extent or option is invalid, the smallest image gives no output, channels of
            several groups are a range, or sums of int8 products could exceed int32 (more than 131071 terms).
    """

    N: Dim | int
    H: Dim | int
    W: Dim | int
    IC: Dim | int
    OC: Dim | int

    DIMENSIONS = ("N", "H", "W", "IC", "OC")
    image = ("H", "W")
    operator = "conv2d"


@dataclass(frozen=True)
class Conv1d(Convolution):
    """A convolution over sequences, ``x[N, L, IC]`` and ``w[OC, IC / groups, KL]``; see :class:`Conv2d`.

    Args:
        N: the number of sequences.
        L: the length of a sequence.
        IC, OC: the numbers of input and output channels, or ranges; see :class:`Conv2d`.
        kernel, stride, dilation: numbers.
        padding: the number of zeros before and after the sequence, or ``((before, after),)``.
        groups: the number of groups of channels.
        bias, activation, residual: see :class:`~dietlab.problem.Epilogue`.
        dtype, out_dtype: the types of operands and output.

    Raises:
        WorkloadError: if an extent or option is invalid, the shortest sequence gives no output, or sums of
            int8 products could exceed int32.
    """

    N: Dim | int
    L: Dim | int
    IC: Dim | int
    OC: Dim | int

    DIMENSIONS = ("N", "L", "IC", "OC")
    image = ("L",)
    operator = "conv1d"

"""A convolution at one shape in TVM's tensor expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dietlab.problem import WORKING
from dietlab.problem.convolution import Convolution


def convolved(work: Convolution, x: Any, weight: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the sum of products at a position ``(n, .., oc)``.

    The image is padded first, in a separate stage, which the search may inline or keep::

        y[n, oh, ow, oc] = sum_kh,kw,ic padded[n, oh * stride + kh * dilation, .., ic] * w[oc, ic, kh, kw]

    Args:
        x: the images.
        weight: a function that reads the weights at the position ``(oc, ic, kh, kw)``.
    """
    from tvm import te, topi

    before, after = zip((0, 0), *work.padding, (0, 0), strict=True)
    image = topi.nn.pad(x, before, after, name="padded") if any(before + after) else x
    inner = int(x.shape[-1]) // work.groups
    taps = [te.reduce_axis((0, extent), name=f"k{number}") for number, extent in enumerate(work.kernel)]
    channel = te.reduce_axis((0, inner), name="ic")

    def product(*at: Any) -> Any:
        n, *pixel, oc = at
        places = [
            position * stride + tap * dilation
            for position, tap, stride, dilation in zip(pixel, taps, work.stride, work.dilation, strict=True)
        ]
        first = 0
        if work.groups > 1:
            first = oc // (work.OC // work.groups) * inner  # type: ignore[attr-defined]
        read = image(n, *places, first + channel).astype(WORKING.name)
        return te.sum(read * weight(oc, channel, *taps).astype(WORKING.name), axis=[*taps, channel])

    return product

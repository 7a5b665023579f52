"""The programs that MetaSchedule tunes: one shape of a workload, in TVM's tensor expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dietlab.problem import NO_EPILOGUE, WORKING, Shape, Workload
from dietlab.problem.convolution import Convolution
from dietlab.problem.dimensions import operand_sizes


def static_program(workload: Workload, shape: Shape, *, free_layout: bool = False) -> Any:
    """Returns a module whose ``main(x, w, [bias], [residual], out)`` computes the workload at one shape.

    Operands have the layout of the workload. For every type, sums and the epilogue are float32, and the
    result is rounded once::

        y[.., i, j] = sum_k float32(x[.., i, k]) * float32(w[.., j, k])
        z[.., i, j] = dtype(activation(y[.., i, j] + bias[j]) + residual[.., i, j])

    Args:
        free_layout: whether the search may change the layout of the weights. They start K-major
            (:func:`k_major`), because vectorisation looks at strides before the layout is rewritten.
    """
    import tvm
    from tvm import te

    sizes = operand_sizes(workload, shape)
    order = k_major(len(sizes["w"])) if free_layout else tuple(range(len(sizes["w"])))
    sizes["w"] = tuple(sizes["w"][axis] for axis in order)
    operands = {
        name: te.placeholder(size, workload.dtype, name) for name, size in sizes.items() if name != "out"
    }
    w = operands["w"]

    def weight(*at: Any) -> Any:
        return w(*(at[axis] for axis in order))

    if isinstance(workload, Convolution):
        product = _convolved(workload, operands["x"], weight)
    else:
        product = _multiplied(workload, operands["x"], weight)
    attrs = {"layout_free_placeholders": [w]} if free_layout else None
    result = te.compute(sizes["out"], product, name="y", attrs=attrs)
    if workload.epilogue != NO_EPILOGUE or result.dtype != workload.dtype:
        result = _finished(workload, operands, result)
    # create_prim_func turns the attribute into layout_free_buffers = [1] of the function.
    function = te.create_prim_func([*operands.values(), result]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})


def k_major(dims: int) -> tuple[int, ...]:
    """Returns the order of the dimensions of weights in which the columns come last: ``w[K, N]`` of
    ``w[N, K]``, ``w[KH, KW, IC, OC]`` of a convolution's ``w[OC, IC, KH, KW]``."""
    return (*range(2, dims), 1, 0)


def _multiplied(workload: Workload, x: Any, weight: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the product of ``x`` and ``w`` at a position ``(.., i, j)``."""
    from tvm import te

    k = te.reduce_axis((0, x.shape[-1]), name="k")

    def product(*at: Any) -> Any:
        *batch, i, j = at
        place = (*batch, k, j) if workload.weights == "direct" else (*batch, j, k)
        return te.sum(_float32(x(*batch, i, k)) * _float32(weight(*place)), axis=k)

    return product


def _convolved(work: Convolution, x: Any, weight: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the sum of products at a position ``(n, .., oc)``.

    The image is padded first, in a separate stage, which the search may inline or keep::

        y[n, oh, ow, oc] = sum_kh,kw,ic padded[n, oh * stride + kh * dilation, .., ic] * w[oc, ic, kh, kw]

    ``weight`` reads the weights at the position ``(oc, ic, kh, kw)``.
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
        read = _float32(image(n, *places, first + channel))
        return te.sum(read * _float32(weight(oc, channel, *taps)), axis=[*taps, channel])

    return product


def _finished(workload: Workload, operands: dict[str, Any], product: Any) -> Any:
    """Returns the product with its epilogue. Schedules fuse the epilogue into the product's write-back."""
    from tvm import te

    from dietlab.lower.activation import activated

    epilogue = workload.epilogue

    def finish(*at: Any) -> Any:
        value = product(*at)
        if epilogue.bias:
            value = value + _float32(operands["bias"](at[-1]))

        def add(value: Any) -> Any:
            return value + _float32(operands["residual"](*at)) if epilogue.residual else value

        finished = epilogue.finish(value, partial(activated, epilogue.activation), add)
        return finished.astype(workload.dtype)

    return te.compute(product.shape, finish, name="z")


def _float32(value: Any) -> Any:
    return value.astype(WORKING.name)

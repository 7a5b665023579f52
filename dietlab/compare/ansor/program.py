"""The programs that MetaSchedule tunes: one shape of a workload, in TVM's tensor expressions."""

from __future__ import annotations

from typing import Any

from dietlab.problem import NO_EPILOGUE, WORKING, Shape, Workload
from dietlab.problem.dimensions import operand_sizes


def static_program(workload: Workload, shape: Shape, *, free_layout: bool = False) -> Any:
    """Returns a module whose ``main(x, w, [bias], [residual], out)`` computes the workload at one shape.

    Operands have the layout of the workload. For every type, sums and the epilogue are float32, and the
    result is rounded once::

        y[.., i, j] = sum_k float32(x[.., i, k]) * float32(w[.., j, k])
        z[.., i, j] = dtype(activation(y[.., i, j] + bias[j]) + residual[.., i, j])

    Args:
        free_layout: whether the search may change the layout of the weights. They start K-major, ``w[K, N]``,
            because vectorisation looks at strides before the layout is rewritten.
    """
    import tvm
    from tvm import te

    sizes = operand_sizes(workload, shape)
    if free_layout:
        sizes["w"] = sizes["w"][::-1]
    operands = {
        name: te.placeholder(size, workload.dtype, name) for name, size in sizes.items() if name != "out"
    }
    x, w = operands["x"], operands["w"]
    direct = free_layout or workload.weights == "direct"
    k = te.reduce_axis((0, sizes["x"][-1]), name="k")

    def product(*at: Any) -> Any:
        *batch, i, j = at
        weight = w(*batch, k, j) if direct else w(*batch, j, k)
        return te.sum(_float32(x(*batch, i, k)) * _float32(weight), axis=k)

    attrs = {"layout_free_placeholders": [w]} if free_layout else None
    result = te.compute(sizes["out"], product, name="y", attrs=attrs)
    if workload.epilogue != NO_EPILOGUE or result.dtype != workload.dtype:
        result = _finished(workload, operands, result)
    # create_prim_func turns the attribute into layout_free_buffers = [1] of the function.
    function = te.create_prim_func([*operands.values(), result]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})


def _finished(workload: Workload, operands: dict[str, Any], product: Any) -> Any:
    """Returns the product with its epilogue. Schedules fuse the epilogue into the product's write-back."""
    from tvm import te

    from dietlab.lower.activation import activated

    epilogue = workload.epilogue

    def finish(*at: Any) -> Any:
        value = product(*at)
        if epilogue.bias:
            value = value + _float32(operands["bias"](at[-1]))
        value = activated(epilogue.activation, value)
        if epilogue.residual:
            value = value + _float32(operands["residual"](*at))
        return value.astype(workload.dtype)

    return te.compute(product.shape, finish, name="z")


def _float32(value: Any) -> Any:
    return value.astype(WORKING.name)

"""A module of TensorIR for a GPU becomes one shared library that holds the kernels' cubins."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dietlab.base.errors import BuildError
from dietlab.lower.artifact import Artifact
from dietlab.lower.compiler import export, instructions_of, last_line, require_linker, tvm_module
from dietlab.machine import Hardware
from dietlab.machine.instruction_sets import Requirements
from dietlab.targets.cuda.limits import gpu_of
from dietlab.targets.cuda.lowering.cubin import Cubin
from dietlab.targets.cuda.lowering.driver import module_maker
from dietlab.targets.cuda.lowering.nvcc import compile_cubin
from dietlab.targets.cuda.occupancy import blocks_per_sm

JIT = "tvm_callback_cuda_compile"
"""The function that TVM's CUDA part calls to compile a source."""

HOST = {"kind": "llvm", "mcpu": "x86-64-v2"}
"""The target of the host's code, which only chooses and launches: any processor of the last fifteen years
runs it."""


@dataclass(frozen=True)
class Lowered:
    """Host and device halves of a module, after TVM's passes."""

    host: Any
    device: Any
    target: Any


def target_of(hardware: Hardware, **changed: int) -> Any:
    """Returns TVM's target for one GPU, with a host that launches.

    Args:
        changed: the attributes that are added to the attributes of dietlab's kernels, or replace them.
    """
    gpu = gpu_of(hardware)
    attributes = {
        "kind": "cuda",
        "arch": gpu.arch,
        "max_num_threads": gpu.threads_per_block,
        "max_threads_per_block": gpu.threads_per_block,
        "thread_warp_size": gpu.warp_threads,
        "max_shared_memory_per_block": gpu.smem_per_block_bytes,
        "host": HOST,
    }
    return tvm_module().target.Target({**attributes, **changed})


def lower(module: Any, hardware: Hardware) -> Lowered:
    """Splits a module into host and GPU code, ready for code generation.

    The passes are those of TVM's pipeline for hand-written kernels, except those that the CUDA compiler
    repeats: unrolled loops stay loops and variables keep their names, so that the source is readable.

    Raises:
        BuildError: if a pass fails.
    """
    tvm = tvm_module()
    target = target_of(hardware)
    try:
        with tvm.transform.PassContext(), target:
            split = tvm.ir.transform.Sequential(passes(target))(module)
            host, device = (tvm.tirx.transform.Filter(keep)(split) for keep in (_on_host, _on_device))
            finish_host, finish_device = _finishers(bfloat16="bfloat16" in module.script())
            return Lowered(finish_host(host), finish_device(device), target)
    except Exception as error:  # TVM raises several exception types
        raise BuildError("it must be possible to lower the program", last_line(error)) from error


def passes(target: Any) -> list[Any]:
    """Returns the passes from TensorIR with explicit threads to host functions that launch device
    functions."""
    from tvm import s_tir, tirx

    steps = tirx.transform
    return [
        steps.BindTarget(target),
        steps.LowerTIRx(),
        s_tir.transform.UnifyThreadBinding(),
        steps.LowerTIRxOpaque(),
        steps.FlattenBuffer(),
        steps.BF16ComputeLegalize(),
        steps.VectorizeLoop(True),
        steps.VerifyMemory(),
        steps.AnnotateEntryFunc(),
        steps.SplitHostDevice(),
        steps.MakePackedAPI(),
    ]


def _finishers(*, bfloat16: bool) -> tuple[Any, Any]:
    """Returns the passes for host and device. The pass that replaces bfloat16 fails on some pointers cast to
    numbers, so a module without bfloat16 goes without it.
    """
    from tvm import ir, tirx

    steps = tirx.transform
    known = [steps.BF16StorageLegalize()] if bfloat16 else []
    host = ir.transform.Sequential([*known, steps.LowerTVMBuiltin(), steps.LowerIntrin()])
    device = ir.transform.Sequential([*known, steps.LowerWarpMemory(), steps.LowerIntrin()])
    return host, device


def _on_host(function: Any) -> bool:
    return bool(function.attrs["target"].kind.name == "llvm")


def _on_device(function: Any) -> bool:
    return not _on_host(function)


def cuda_source(lowered: Lowered) -> str:
    """Returns the CUDA C++ of the device half."""
    with _no_compiling():
        return str(_build(lowered.device, lowered.target).inspect_source("cuda"))


@contextmanager
def _no_compiling() -> Iterator[None]:
    """Keeps TVM's CUDA part, if it is loaded, from compiling: only the source is needed."""
    import tvm_ffi

    own = tvm_ffi.get_global_func(JIT, allow_missing=True)
    tvm_ffi.register_global_func(JIT, lambda source: b"", override=True)
    try:
        yield
    finally:
        if own is not None:
            tvm_ffi.register_global_func(JIT, own, override=True)


_KERNEL = re.compile(r'^extern "C" __global__ [^;{]*\{\n.*?^\}\n', re.MULTILINE | re.DOTALL)


def kernel_texts(source: str) -> list[str]:
    """Returns the kernels of a CUDA source, without the helpers around them."""
    return _KERNEL.findall(source)


def _build(module: Any, target: Any) -> Any:
    tvm = tvm_module()
    try:
        with target:
            return tvm.get_global_func(f"target.build.{target.kind.name}")(module, target)
    except Exception as error:
        raise BuildError("TVM must be able to generate code", last_line(error)) from error


def compile_library(
    module: Any, hardware: Hardware, path: Path, *, assemble: Callable[[str, str], Cubin] = compile_cubin
) -> Artifact:
    """Compiles ``module`` into the shared library ``path``, whose kernels are cubins.

    Args:
        assemble: a function that makes a cubin of CUDA C++ and the name of an architecture.

    Raises:
        BuildError: if TVM, the CUDA compiler or the linker fails.
        MissingDependencyError: if there is no CUDA compiler.
    """
    started = perf_counter()
    linker = require_linker()
    lowered = lower(module, hardware)
    source = cuda_source(lowered)
    source, cubin = without_spills(source, gpu_of(hardware).arch, assemble)
    host = _build(lowered.host, lowered.target.host)
    host.import_module(_device_module(lowered.device, cubin))
    export(host, path, linker)
    return Artifact(
        path,
        cubin.code_bytes,
        cubin.code_hash,
        perf_counter() - started,
        requires=Requirements(
            platform.machine(), instructions_of(lowered.target.host), gpu_of(hardware).arch
        ),
        resources=resources_of(cubin, lowered.device, hardware),
        source=source,
    )


def without_spills(source: str, arch: str, assemble: Callable[[str, str], Cubin]) -> tuple[str, Cubin]:
    """Returns the source and cubin. Kernels that spilled are compiled again with all registers of a block.

    By default the CUDA compiler takes fewer registers, so that more blocks fit a multiprocessor, and spills a
    little. A launch bound of one block allows all (CUDA C Programming Guide, launch bounds).
    """
    cubin = assemble(source, arch)
    spilled = [re.escape(name) for name, kernel in cubin.kernels.items() if kernel.spill_bytes]
    if not spilled:
        return source, cubin
    bounds = rf"__launch_bounds__\((\d+)\)(?= (?:{'|'.join(spilled)})\()"
    source = re.sub(bounds, r"__launch_bounds__(\1, 1)", source)
    return source, assemble(source, arch)


def resources_of(cubin: Cubin, device: Any, hardware: Hardware) -> dict[str, int]:
    """Returns, over all kernels of a library, the largest use of each resource and the fewest blocks that fit
    a multiprocessor."""
    launches = {str(f.attrs["global_symbol"]): launch_of(f) for f in device.functions.values()}
    used = [
        (kernel, threads, kernel.shared_bytes + dynamic)
        for name, kernel in cubin.kernels.items()
        for threads, dynamic in [launches[name]]
    ]
    if not used:
        return {}
    return {
        "registers": max(kernel.registers for kernel, _, _ in used),
        "spill_bytes": max(kernel.spill_bytes for kernel, _, _ in used),
        "shared_bytes": max(shared for _, _, shared in used),
        "blocks_per_sm": min(
            blocks_per_sm(gpu_of(hardware), threads, kernel.registers, shared)
            for kernel, threads, shared in used
        ),
    }


def launch_of(function: Any) -> tuple[int, int]:
    """Returns two numbers: of threads in a block, and of bytes in its dynamic shared memory."""
    threads, shared = 1, 0
    for node in _statements(function.body):
        kind = type(node).__name__
        if kind == "AttrStmt" and node.attr_key == "thread_extent":
            if str(node.node.thread_tag).startswith("threadIdx"):
                threads *= int(node.value)
        elif kind == "AllocBuffer" and str(node.buffer.scope()) == "shared.dyn":
            itemsize = tvm_module().DataType(str(node.buffer.dtype)).itemsize
            shared += int(node.buffer.shape[0]) * itemsize
    return threads, shared


def _statements(statement: Any) -> Iterator[Any]:
    """Yields a statement and all statements inside it."""
    yield statement
    parts = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    for part in (*(getattr(statement, "seq", None) or ()), *parts):
        if part is not None:
            yield from _statements(part)


def _device_module(device: Any, cubin: Cubin) -> Any:
    """Returns TVM's module of the kernels, with the cubin and each kernel's arguments."""
    import tvm_ffi

    described = {"tvm_version": tvm_module().__version__, "func_info": launch_table(device)}
    table = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")(json.dumps(described))
    return module_maker()(cubin.data, "cubin", table, {})


def launch_table(device: Any) -> dict[str, dict[str, Any]]:
    """Returns for each kernel the types of its arguments and its launch parameters (grid, block, shared
    memory).
    """
    return {
        str(function.attrs["global_symbol"]): {
            "name": str(function.attrs["global_symbol"]),
            "arg_types": [_argument(parameter) for parameter in function.params],
            "launch_param_tags": [str(tag) for tag in function.attrs["tirx.kernel_launch_params"]],
            "arg_extra_tags": [int(_is_descriptor(parameter)) for parameter in function.params],
        }
        for function in device.functions.values()
    }


def _is_descriptor(parameter: Any) -> bool:
    """Returns whether a parameter is a descriptor for bulk copies, 128 bytes passed by value."""
    pointed = getattr(parameter.ty, "element_type", None)
    return type(pointed).__name__ == "TensorMapType"


def _argument(parameter: Any) -> str:
    kind = str(getattr(parameter.ty, "dtype", "handle"))
    return kind if kind.startswith(("int", "uint", "float", "bool")) else "handle"

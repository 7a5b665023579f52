"""Who takes part on a GPU, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from dietlab.errors import MeasureError
from dietlab.evaluation.contenders import LibraryContender
from dietlab.evaluation.gpu import GPU_VENDORS
from dietlab.evaluation.gpu.clock import Clock
from dietlab.evaluation.gpu.cublaslt import open_cublaslt
from dietlab.evaluation.gpu.pytorch import Compiled, Eager
from dietlab.evaluation.gpu.tensors import Tensor, Tensors
from dietlab.evaluation.vendors import Call
from dietlab.evaluation.vendors.interface import absent
from dietlab.shapes import Shape
from dietlab.workloads import Workload

SMEM_BYTES = 99 << 10
"""Of a block, where PyTorch does not say: what every GPU from compute capability 8.6 on has at least."""


class GpuContender(Protocol):
    """Whoever takes part: a vendor's library, a compiler, or a library of ours."""

    def kind(self, workload: Workload) -> str:
        """How the report groups it: ``"plain"``, ``"tuned"`` and so on.

        Raises:
            NoFormError: if it cannot compute such a workload.
        """

    def version(self) -> str: ...

    def bind(self, workload: Workload, operands: Tensors, out: Tensor, plan: int | None) -> Call:
        """A call without arguments on PyTorch's current stream: it writes ``out``, or returns a fresh tensor
        if it cannot. ``plan`` overrides a decision tree and is None for all who have none.

        Whoever binds keeps the tensors."""

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        """Records the calls inside of it into a CUDA graph."""


@dataclass(frozen=True)
class Setting:
    """What contenders are made with: PyTorch, the device's name, a clock, and options of the request."""

    torch: Any
    device: str
    clock: Clock
    options: Mapping[str, Any]


class Library:
    """A library of ours, as built, called through tvm_ffi."""

    def __init__(self, setting: Setting) -> None:
        self._torch = setting.torch
        self._library = LibraryContender(setting.options["library"])

    def kind(self, workload: Workload) -> str:
        return self._library.kind(workload)

    def version(self) -> str:
        return self._library.version()

    def bind(self, workload: Workload, operands: Tensors, out: Tensor, plan: int | None) -> Call:
        constants = {name: operands[name] for name in workload.constants}
        variables = {name: tensor for name, tensor in operands.items() if name not in constants}
        return self._library.prepare(workload, constants, Shape.of()).bind(variables, out, plan)

    @contextmanager
    def capture(self, graph: Any) -> Iterator[None]:
        """Arguments are converted when a call is bound, so that tvm_ffi is told the stream here."""
        import tvm_ffi

        with self._torch.cuda.graph(graph):
            stream = self._torch.cuda.current_stream()
            with tvm_ffi.use_raw_stream(tvm_ffi.device(str(stream.device)), stream.cuda_stream):
                yield


def _triton(setting: Setting) -> GpuContender:
    if setting.device != "cuda":
        raise absent("triton with a GPU", f"the device {setting.device}")
    try:
        from dietlab.evaluation.gpu.triton_matmul import TritonMatmul
    except ImportError as error:
        raise absent("triton", error) from None
    properties = setting.torch.cuda.get_device_properties(0)
    return TritonMatmul(setting.torch, int(getattr(properties, "shared_memory_per_block_optin", SMEM_BYTES)))


MAKERS: dict[str, Callable[[Setting], GpuContender]] = {
    "cublas": lambda setting: Eager(setting.torch, setting.device, "cublas"),
    "cublaslt": lambda setting: Eager(setting.torch, setting.device, "cublaslt"),
    "cublaslt-tuned": lambda setting: open_cublaslt(setting.torch, setting.device, setting.clock),
    "torch-compile": lambda setting: Compiled(setting.torch, setting.device),
    "triton": _triton,
    "library": Library,
}
"""Contenders by the name that a request opens them by."""


def make_gpu_contender(name: str, setting: Setting) -> GpuContender:
    """The contender of that name.

    Raises:
        MissingDependencyError: if its library is not here.
        MeasureError: if there is no such contender.
    """
    if name not in MAKERS:
        known = ", ".join([*GPU_VENDORS, "library"])
        raise MeasureError(f"a contender on a GPU is one of {known}", repr(name))
    return MAKERS[name](setting)

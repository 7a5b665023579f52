"""Contenders of an evaluation on a GPU, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from dietlab.base.errors import MeasureError
from dietlab.compare.ansor.contender import tuned_library
from dietlab.compare.contenders import LibraryContender
from dietlab.compare.target import evaluation_target
from dietlab.compare.vendor import absent
from dietlab.lower.runtime import load_library
from dietlab.measure.timing.contender import Call, Contender, NotTunedError, Plan
from dietlab.problem import Shape, Workload
from dietlab.targets.cuda.contenders import VENDORS
from dietlab.targets.cuda.contenders.cublaslt import open_cublaslt
from dietlab.targets.cuda.contenders.pytorch import Compiled, Eager
from dietlab.targets.cuda.contenders.tensors import Tensor, Tensors
from dietlab.targets.cuda.gpu import Gpu
from dietlab.tuning.operator import bound

SMEM_BYTES = 99 << 10
"""Bytes of shared memory of a block, where PyTorch does not tell: every GPU from compute capability 8.6 on
has at least this."""


class GpuContender(Protocol):
    """A contender on a GPU whose operands all come with every call: a vendor's library, or a compiler."""

    def kind(self, workload: Workload) -> str:
        """Returns the group in the report: ``"plain"``, ``"tuned"`` and so on.

        Raises:
            NoFormError: if it cannot compute such a workload.
        """

    def version(self) -> str: ...

    def bind(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        """Returns a call without arguments on PyTorch's current stream: it writes ``out``, or returns a fresh
        tensor if it cannot. The caller keeps the tensors."""

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        """Records the calls inside of it into a CUDA graph."""


@dataclass(frozen=True)
class GpuSetting:
    """The setting that contenders are made in: PyTorch, the name of its device, that as what times calls, and
    options of the request."""

    torch: Any
    device: str
    gpu: Gpu
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Unprepared:
    """A contender that prepares nothing, behind the interface of those that do."""

    contender: GpuContender

    def kind(self, workload: Workload) -> str:
        return self.contender.kind(workload)

    def version(self) -> str:
        return self.contender.version()

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        return self.contender.capture(graph)

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> UnpreparedLayer:
        return UnpreparedLayer(self.contender, workload, constants)


@dataclass(frozen=True)
class UnpreparedLayer:
    contender: GpuContender
    workload: Workload
    constants: Tensors

    def bind(self, operands: Tensors, out: Tensor, plan: Plan) -> Call:
        return self.contender.bind(self.workload, {**self.constants, **operands}, out)


class Library(LibraryContender):
    """A library of ours, as built, called through tvm_ffi."""

    def __init__(self, setting: GpuSetting) -> None:
        super().__init__(setting.options["library"])
        self._torch = setting.torch

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        return _recorded(self._torch, graph)


class TunedPrograms:
    """One program of MetaSchedule's for each shape of a folder, called through tvm_ffi."""

    def __init__(self, setting: GpuSetting) -> None:
        self._torch, self._device = setting.torch, setting.device
        self._folder = str(setting.options["library"])
        self._programs: dict[Shape, Any] = {}

    def kind(self, workload: Workload) -> str:
        evaluation_target("cuda").require_form(workload)
        return "per-shape tuning"

    def version(self) -> str:
        return f"MetaSchedule of TVM {version('apache-tvm')}"

    def bind(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        """Returns the call.

        Raises:
            NotTunedError: if there is no program for the shape.
        """
        names = [name for name in workload.signature if name != "out"]
        program = self._program(_shape_of(workload, operands))
        return bound(program, [*(operands[name] for name in names), out], None)

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        return _recorded(self._torch, graph)

    def _program(self, shape: Shape) -> Any:
        if shape not in self._programs:
            try:
                path, _ = tuned_library(self._folder, shape)
            except MeasureError as error:
                raise NotTunedError(error.invariant, error.value, error.remedy) from None
            self._programs[shape] = load_library(path, self._device)
        return self._programs[shape]


def _shape_of(workload: Workload, operands: Tensors) -> Shape:
    """Returns the shape that the operands have."""
    return Shape.of(
        **{
            extent: int(size)
            for name, tensor in operands.items()
            for extent, size in zip(workload.signature[name], tensor.shape, strict=True)
            if isinstance(extent, str)
        }
    )


@contextmanager
def _recorded(torch: Any, graph: Any) -> Iterator[None]:
    """Records calls of TVM's libraries. Arguments are converted when a call is bound, so that tvm_ffi is told
    the stream here."""
    import tvm_ffi

    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream()
        with tvm_ffi.use_raw_stream(tvm_ffi.device(str(stream.device)), stream.cuda_stream):
            yield


def _triton(setting: GpuSetting) -> GpuContender:
    if setting.device != "cuda":
        raise absent("triton with a GPU", f"the device {setting.device}")
    try:
        from dietlab.targets.cuda.contenders.triton_matmul import TritonMatmul
    except ImportError as error:
        raise absent("triton", error) from None
    properties = setting.torch.cuda.get_device_properties(0)
    return TritonMatmul(setting.torch, int(getattr(properties, "shared_memory_per_block_optin", SMEM_BYTES)))


MAKERS: dict[str, Callable[[GpuSetting], GpuContender]] = {
    "cublas": lambda setting: Eager(setting.torch, setting.device, "cublas"),
    "cublaslt": lambda setting: Eager(setting.torch, setting.device, "cublaslt"),
    "cublaslt-tuned": lambda setting: open_cublaslt(setting.torch, setting.device, setting.gpu),
    "torch-compile": lambda setting: Compiled(setting.torch, setting.device),
    "triton": _triton,
    "ansor": TunedPrograms,
}
"""Contenders that prepare nothing, by the name that a request opens them by."""


def make_gpu_contender(name: str, setting: GpuSetting) -> Contender:
    """Returns the contender of that name.

    Raises:
        MissingDependencyError: if its library is not here.
        MeasureError: if there is no such contender.
    """
    if name == "library":
        return Library(setting)
    if name not in MAKERS:
        known = ", ".join([*VENDORS, "library", "ansor"])
        raise MeasureError(f"a contender on a GPU is one of {known}", repr(name))
    return Unprepared(MAKERS[name](setting))

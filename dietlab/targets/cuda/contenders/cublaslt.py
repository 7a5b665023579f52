"""cuBLASLt with the fastest algorithm of its heuristic's list, for each shape.

The library is PyTorch's copy, called through its C interface (cuBLAS documentation, "Using the cuBLASLt
API"). PyTorch itself takes the heuristic's first choice; its TunableOp, up to release 2.13, tries no other on
NVIDIA's GPUs. cuBLASLt's matrices are column-major: it reads a row-major matrix as the transpose, so it
computes ``y.T[N, T] = w[N, K] @ x.T[K, T]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.measure.timing.contender import Call, NoFormError, Prepared, WithConstants
from dietlab.problem import Shape, Workload
from dietlab.targets.cuda.contenders.tensors import FLOATS, GpuSetting, Tensor, Tensors

REQUESTED = 32
"""The most algorithms of the heuristic's list that are timed."""
WORKSPACE_BYTES = 32 << 20
"""The size of the workspace in bytes: cuBLAS's documentation recommends 32 MiB for Hopper."""
TUNING_SECONDS, TUNING_BLOCKS = 0.001, 3
"""The seconds of a block while algorithms are compared, and the number of blocks of each algorithm. The
fastest block counts."""

COMPUTE_32F, SCALE_32F = 68, 0
"""A ``cublasComputeType_t``, for products and sums in float32 without TF32; and the ``cudaDataType_t`` of
alpha and beta."""
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""The ``cudaDataType_t`` of each type."""
TRANSPOSED_A, EPILOGUE, BIAS_POINTER, BIAS_TYPE = 3, 7, 8, 26
"""Values of ``cublasLtMatmulDescAttributes_t``."""
BATCH_COUNT, BATCH_STRIDE = 5, 6
"""Values of ``cublasLtMatrixLayoutAttribute_t``."""
MOST_WORKSPACE, REDUCTIONS = 1, 3
"""Values of ``cublasLtMatmulPreferenceAttributes_t``."""
REDUCED_IN_FLOAT32 = 2
"""The ``cublasLtReductionScheme_t`` by which parts of a split sum are added up in float32, not in the
output's type."""
EPILOGUES = {
    (False, "none"): 1,
    (False, "relu"): 2,
    (True, "none"): 4,
    (True, "relu"): 6,
    (False, "gelu_tanh"): 32,
    (True, "gelu_tanh"): 36,
}
"""The ``cublasLtEpilogue_t`` by bias and activation."""


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``, which is opaque."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Product:
    """One column-major product: ``d[m, n] = op(a)[m, k] @ b[k, n]``, ``batch`` times.

    Args:
        transposed: whether ``a`` lies as ``[k, m]``.
    """

    m: int
    n: int
    k: int
    batch: int
    transposed: bool
    dtype: str

    @classmethod
    def of(cls, workload: Workload, operands: Tensors, out: Tensor) -> Product:
        x = operands["x"]
        batch = x.shape[0] if x.ndim == 3 else 1
        m, n, k = int(out.shape[-1]), int(out.shape[-2]), int(x.shape[-1])
        return cls(m, n, k, int(batch), workload.weights != "direct", workload.dtype)

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of ``a``, ``b`` and ``d`` as stored; the rows are the leading dimension."""
        a = (self.k, self.m) if self.transposed else (self.m, self.k)
        return a, (self.k, self.n), (self.m, self.n)


class CublasLt:
    """The C library.

    Args:
        library: the library as :mod:`ctypes` loads it.
        stream: the handle of the stream that calls go to.
        workspace: :data:`WORKSPACE_BYTES` on the GPU, which all calls share: they run one after the other.

    Descriptors live as long as the process, which ends with the session.
    """

    def __init__(self, library: Any, stream: Callable[[], int], workspace: Tensor) -> None:
        self._library, self._stream, self._workspace = library, stream, workspace
        self._handle = self._made("cublasLtCreate")

    def version(self) -> int:
        return int(self._library.cublasLtGetVersion())

    def layouts(self, product: Product) -> list[Any]:
        """Returns the descriptions of ``a``, ``b`` and ``d``."""
        made = []
        for rows, cols in product.sizes:
            extents = ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(rows)
            layout = self._made("cublasLtMatrixLayoutCreate", DATA_TYPES[product.dtype], *extents)
            if product.batch > 1:
                self._set("MatrixLayout", layout, BATCH_COUNT, ctypes.c_int32(product.batch))
                self._set("MatrixLayout", layout, BATCH_STRIDE, ctypes.c_int64(rows * cols))
            made.append(layout)
        return made

    def description(self, product: Product, epilogue: int, bias: int = 0) -> Any:
        """Returns the description of the product; ``bias`` is the address of a vector of length ``m``."""
        made = self._made("cublasLtMatmulDescCreate", COMPUTE_32F, SCALE_32F)
        self._set("MatmulDesc", made, TRANSPOSED_A, ctypes.c_int32(product.transposed))
        self._set("MatmulDesc", made, EPILOGUE, ctypes.c_uint32(epilogue))
        if bias:
            self._set("MatmulDesc", made, BIAS_POINTER, ctypes.c_void_p(bias))
            self._set("MatmulDesc", made, BIAS_TYPE, ctypes.c_int32(DATA_TYPES[product.dtype]))
        return made

    def choices(self, description: Any, layouts: Sequence[Any]) -> list[HeuristicResult]:
        """Returns the heuristic's list, the most promising first."""
        preference = self._made("cublasLtMatmulPreferenceCreate")
        self._set("MatmulPreference", preference, MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        self._set("MatmulPreference", preference, REDUCTIONS, ctypes.c_uint32(REDUCED_IN_FLOAT32))
        a, b, d = layouts
        found, count = (HeuristicResult * REQUESTED)(), ctypes.c_int()
        given = self._handle, description, a, b, d, d, preference
        self._call("cublasLtMatmulAlgoGetHeuristic", *given, REQUESTED, found, ctypes.byref(count))
        return [choice for choice in found[: count.value] if choice.state == 0]

    def call(
        self,
        description: Any,
        layouts: Sequence[Any],
        addresses: Sequence[int],
        choice: HeuristicResult,
        beta: float,
    ) -> Call:
        """Returns ``d = epilogue(a @ b + beta * c)``; ``addresses`` are the addresses of ``a``, ``b``, ``c``
        and ``d``.
        """
        a, b, d = layouts
        one, scale = ctypes.c_float(1.0), ctypes.c_float(beta)
        at_a, at_b, at_c, at_d = map(ctypes.c_void_p, addresses)
        run, stream, refused = self._library.cublasLtMatmul, self._stream, self._refused
        matrices = ctypes.byref(one), at_a, a, at_b, b, ctypes.byref(scale), at_c, d, at_d, d
        workspace = ctypes.c_void_p(self._workspace.data_ptr()), ctypes.c_size_t(WORKSPACE_BYTES)
        before = self._handle, description, *matrices, ctypes.byref(choice.algorithm), *workspace

        def call() -> None:
            status = run(*before, ctypes.c_void_p(stream()))
            if status:
                raise refused("cublasLtMatmul", status)

        return call

    def _made(self, name: str, *arguments: Any) -> Any:
        handle = ctypes.c_void_p()
        self._call(name, ctypes.byref(handle), *arguments)
        return handle

    def _set(self, owner: str, handle: Any, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"cublasLt{owner}SetAttribute", handle, attribute, ctypes.byref(value), size)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise self._refused(name, status)

    @staticmethod
    def _refused(name: str, status: int) -> MeasureError:
        return MeasureError(f"cuBLASLt's {name} must succeed", f"cublasStatus_t {status}")


class TunedCublasLt:
    """The contender: each shape's algorithms are timed once, with hot operands.

    Args:
        library: cuBLASLt (default: PyTorch's copy of it).
    """

    name, package = "cublaslt-tuned", "torch"
    dtypes = FLOATS
    computes = ("dense", "batch-matmul", "matmul")

    def __init__(self, setting: GpuSetting, library: CublasLt | None = None) -> None:
        self._library = library or open_cublaslt(setting.torch, setting.device)
        self._gpu = setting.gpu  # times the algorithms as the contender will be
        self._layouts: dict[Product, list[Any]] = {}
        self._best: dict[Product, HeuristicResult] = {}

    def version(self) -> str:
        return f"cuBLASLt {self._library.version()}, fastest of {REQUESTED} at most"

    def kind(self, workload: Workload) -> str:
        """Returns ``"tuned"``.

        Raises:
            NoFormError: for an epilogue that cuBLASLt does not have.
        """
        epilogue = workload.epilogue
        known = (epilogue.bias, epilogue.activation) in EPILOGUES
        if not known or (epilogue.residual and epilogue.activation != "none"):
            raise NoFormError("cuBLASLt must have the epilogue", epilogue, "Compare with torch-compile.")
        return "tuned"

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        product, epilogue = Product.of(workload, operands, out), workload.epilogue
        if product not in self._layouts:
            self._layouts[product] = self._library.layouts(product)
        layouts = self._layouts[product]
        bias = operands["bias"].data_ptr() if epilogue.bias else 0
        description = self._library.description(product, EPILOGUES[epilogue.bias, epilogue.activation], bias)
        added = operands["residual"] if epilogue.residual else out
        addresses = [t.data_ptr() for t in (operands["w"], operands["x"], added, out)]

        def call_of(choice: HeuristicResult) -> Call:
            beta = 1.0 if epilogue.residual else 0.0
            return self._library.call(description, layouts, addresses, choice, beta)

        if product not in self._best:
            self._best[product] = self._fastest(self._library.choices(description, layouts), call_of)
        return call_of(self._best[product])

    def _fastest(
        self, choices: Sequence[HeuristicResult], call_of: Callable[[HeuristicResult], Call]
    ) -> HeuristicResult:
        timed: list[tuple[float, int]] = []
        for number, choice in enumerate(choices):
            try:
                block = self._gpu.block([call_of(choice)], "hot", TUNING_SECONDS, self, None)
            except MeasureError:  # a choice that the library itself refuses
                continue
            timed.append((min(block.run() for _ in range(TUNING_BLOCKS)), number))
        if not timed:
            raise MeasureError("cuBLASLt's heuristic must propose an algorithm that runs", len(choices))
        return choices[min(timed)[1]]


def open_cublaslt(torch: Any, device: str) -> CublasLt:
    """Returns PyTorch's copy of the library, on PyTorch's current stream.

    Raises:
        MissingDependencyError: without a GPU, or if the library is not where PyTorch finds it.
    """
    if device != "cuda":
        raise MissingDependencyError("cuBLASLt needs a GPU", device, "Leave this contender out.")
    name = f"libcublasLt.so.{str(torch.version.cuda).partition('.')[0]}"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise MissingDependencyError(
            f"{name} must be installed", error, "Install a build of PyTorch for CUDA, which brings it."
        ) from None
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    return CublasLt(library, lambda: torch.cuda.current_stream().cuda_stream, workspace)

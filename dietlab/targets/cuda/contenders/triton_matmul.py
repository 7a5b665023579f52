"""A blocked matrix product in Triton, tuned for each shape; only where Triton is installed.

The method and the configurations are those of Triton's tutorial on matrix multiplication: programs own a
tile of the output each, neighbouring programs share operands in L2 (grouped order), loads wrap around at the
edges of rows and columns, and the depth is masked. The program here is written anew, with a batch as the
grid's second axis and float32 sums of float32 products (``ieee``: no TF32).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dietlab.compare.vendor import absent
from dietlab.measure.timing.contender import Call, NoFormError, Prepared, WithConstants
from dietlab.problem import NO_EPILOGUE, Shape, Workload
from dietlab.targets.cuda.contenders.tensors import FLOATS, GpuSetting, Tensor, Tensors

CONFIGURATIONS = (
    (128, 256, 64, 3, 8),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 5, 2),
    (32, 64, 32, 5, 2),
    (128, 256, 128, 3, 8),
    (256, 128, 128, 3, 8),
    (256, 64, 128, 4, 4),
    (64, 256, 128, 4, 4),
    (128, 128, 128, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 32, 64, 4, 4),
)
"""The tried configurations: rows, columns and depth of a tile, pipeline stages, warps."""
GROUP = 8
"""The number of row tiles whose programs are neighbours and share operands in L2."""
SMEM_BYTES = 99 << 10
"""The size of a block's shared memory in bytes, if PyTorch does not report it: every GPU from compute
capability 8.6 on has at least as much."""
WARM_MS, REPEAT_MS = 5, 20
"""The milliseconds of warm-up and of timing for each configuration."""


class TritonMatmul:
    """The contender.

    Configurations that need more shared memory than a block has are not compiled.

    Raises:
        MissingDependencyError: without a GPU, or without Triton.
    """

    name, package = "triton", "triton"
    dtypes = FLOATS
    computes = ("dense", "batch-matmul", "matmul")

    def __init__(self, setting: GpuSetting) -> None:
        if setting.device != "cuda":
            raise absent("triton with a GPU", f"the device {setting.device}")
        try:
            triton: Any = importlib.import_module("triton")
            importlib.import_module("triton.testing")
        except ImportError as error:
            raise absent("triton", error) from None
        from dietlab.targets.cuda.contenders.triton_kernel import matmul

        properties = setting.torch.cuda.get_device_properties(0)
        smem_bytes = int(getattr(properties, "shared_memory_per_block_optin", SMEM_BYTES))
        self._version = triton.__version__
        configs = [
            triton.Config(
                {"ROWS": rows, "COLS": cols, "DEPTH": depth, "GROUP": GROUP},
                num_stages=stages,
                num_warps=warps,
            )
            for rows, cols, depth, stages, warps in CONFIGURATIONS
        ]
        # Rows only bound loops and masks: one program serves those that 16 divides and all others.
        program = triton.jit(matmul, do_not_specialize=["M"])
        tuned = triton.autotune(
            configs=configs,
            key=["M", "N", "K"],
            prune_configs_by={"early_config_prune": partial(_fitting, smem_bytes)},
            do_bench=partial(triton.testing.do_bench, warmup=WARM_MS, rep=REPEAT_MS),
        )
        self._program = tuned(program)

    def version(self) -> str:
        return f"Triton {self._version}, fastest of {len(CONFIGURATIONS)} configurations at most"

    def kind(self, workload: Workload) -> str:
        """Returns ``"tuned"``.

        Raises:
            NoFormError: for an epilogue: the tutorial's product has none.
        """
        if workload.epilogue != NO_EPILOGUE:
            raise NoFormError("the product must have no epilogue, as in the tutorial", workload.epilogue)
        return "tuned"

    def prepare(self, workload: Workload, constants: Tensors, shape: Shape) -> Prepared:
        return WithConstants(partial(self._bound, workload), constants)

    def _bound(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        x, w, y = (t if t.ndim == 3 else t.unsqueeze(0) for t in (operands["x"], operands["w"], out))
        cols, depth = (2, 1) if workload.weights == "direct" else (1, 2)
        sizes = (x.shape[1], y.shape[2], x.shape[2])
        batches = x.stride(0), w.stride(0), y.stride(0)
        strides = *batches, x.stride(1), w.stride(depth), w.stride(cols), y.stride(1)
        launch = self._program[_grid(sizes, x.shape[0])]
        return lambda: launch(x, w, y, *sizes, *strides)


def _grid(sizes: Sequence[int], batch: int) -> Callable[[Any], tuple[int, int]]:
    """Returns one program for each tile of each product, by the configuration that is tried."""

    return lambda config: (-(-sizes[0] // config["ROWS"]) * -(-sizes[1] // config["COLS"]), batch)


def _fitting(smem_bytes: int, configs: Sequence[Any], arguments: Any, **_: Any) -> list[Any]:
    """Returns the configurations whose stages fit into shared memory."""
    itemsize = arguments["x"].element_size()

    def bytes_of(config: Any) -> int:
        tile = config.kwargs
        return int((tile["ROWS"] + tile["COLS"]) * tile["DEPTH"] * itemsize * config.num_stages)

    return [config for config in configs if bytes_of(config) <= smem_bytes]

"""A blocked matrix product in Triton, tuned for each shape; only where Triton is installed.

The method and the configurations are those of Triton's tutorial on matrix multiplication: programs own a
tile of the output each, neighbouring programs share operands in L2 (grouped order), loads wrap around at the
edges of rows and columns, and the depth is masked. The program here is written anew, with a batch as the
grid's second axis and float32 sums of float32 products (``ieee``: no TF32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.testing  # type: ignore[import-not-found, import-untyped, unused-ignore]

from dietlab.measure.timing.contender import Call, NoFormError
from dietlab.problem import NO_EPILOGUE, Workload
from dietlab.targets.cuda.contenders.tensors import Tensor, Tensors

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
"""Rows, columns and depth of a tile, pipeline stages, warps."""
GROUP = 8
"""Row tiles that neighbouring programs share operands of in L2."""
WARM_MS, REPEAT_MS = 5, 20
"""Milliseconds of warm-up and of timing for each configuration."""


def _matmul(  # type: ignore[no-untyped-def]
    x,
    w,
    y,
    M,
    N,
    K,
    x_batch,
    w_batch,
    y_batch,
    x_row,
    w_depth,
    w_col,
    y_row,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Triton reads this text itself: only its own types may stand at arguments.
    row_tiles = tl.cdiv(M, ROWS)
    in_group = GROUP * tl.cdiv(N, COLS)
    number = tl.program_id(0)
    first_tile = (number // in_group) * GROUP
    height = min(row_tiles - first_tile, GROUP)
    row_tile = first_tile + (number % in_group) % height
    col_tile = (number % in_group) // height
    batch = tl.program_id(1).to(tl.int64)

    rows = row_tile * ROWS + tl.arange(0, ROWS)
    cols = col_tile * COLS + tl.arange(0, COLS)
    steps = tl.arange(0, DEPTH)
    x_tile = x + batch * x_batch + (rows % M)[:, None] * x_row + steps[None, :]
    w_tile = w + batch * w_batch + steps[:, None] * w_depth + (cols % N)[None, :] * w_col
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for done in range(0, tl.cdiv(K, DEPTH)):
        left = K - done * DEPTH
        left_part = tl.load(x_tile, mask=steps[None, :] < left, other=0.0)
        right_part = tl.load(w_tile, mask=steps[:, None] < left, other=0.0)
        total = tl.dot(left_part, right_part, total, input_precision="ieee")
        x_tile += DEPTH
        w_tile += DEPTH * w_depth
    y_tile = y + batch * y_batch + rows[:, None] * y_row + cols[None, :]
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_tile, total.to(y.dtype.element_ty), mask=inside)


class TritonMatmul:
    """The contender.

    Args:
        smem_bytes: shared memory of one block at most; configurations that need more are not compiled.
    """

    def __init__(self, torch: Any, smem_bytes: int) -> None:
        self._torch = torch
        configs = [
            triton.Config(
                {"ROWS": rows, "COLS": cols, "DEPTH": depth, "GROUP": GROUP},
                num_stages=stages,
                num_warps=warps,
            )
            for rows, cols, depth, stages, warps in CONFIGURATIONS
        ]
        # Rows only bound loops and masks: one program serves those that 16 divides and all others.
        program = triton.jit(_matmul, do_not_specialize=["M"])
        tuned = triton.autotune(
            configs=configs,
            key=["M", "N", "K"],
            prune_configs_by={"early_config_prune": partial(_fitting, smem_bytes)},
            do_bench=partial(triton.testing.do_bench, warmup=WARM_MS, rep=REPEAT_MS),
        )
        self._program = tuned(program)

    def version(self) -> str:
        return f"Triton {triton.__version__}, fastest of {len(CONFIGURATIONS)} configurations at most"

    def kind(self, workload: Workload) -> str:
        """Returns ``"tuned"``.

        Raises:
            NoFormError: for an epilogue, which the tutorial has none of.
        """
        if workload.epilogue != NO_EPILOGUE:
            raise NoFormError("the tutorial's product has no epilogue", workload.epilogue)
        return "tuned"

    def bind(self, workload: Workload, operands: Tensors, out: Tensor) -> Call:
        x, w, y = (t if t.ndim == 3 else t.unsqueeze(0) for t in (operands["x"], operands["w"], out))
        cols, depth = (2, 1) if workload.weights == "direct" else (1, 2)
        sizes = (x.shape[1], y.shape[2], x.shape[2])
        strides = (
            x.stride(0),
            w.stride(0),
            y.stride(0),
            x.stride(1),
            w.stride(depth),
            w.stride(cols),
            y.stride(1),
        )
        launch = self._program[_grid(sizes, x.shape[0])]
        return lambda: launch(x, w, y, *sizes, *strides)

    def capture(self, graph: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._torch.cuda.graph(graph)
        return context


def _grid(sizes: Sequence[int], batch: int) -> Callable[[Any], tuple[int, int]]:
    """Returns one program for each tile of each product, by the configuration that is tried."""

    def grid(config: Any) -> tuple[int, int]:
        tiles = triton.cdiv(sizes[0], config["ROWS"]) * triton.cdiv(sizes[1], config["COLS"])
        return tiles, batch

    return grid


def _fitting(smem_bytes: int, configs: Sequence[Any], arguments: Any, **_: Any) -> list[Any]:
    """Returns the configurations whose stages fit into shared memory."""
    itemsize = arguments["x"].element_size()

    def bytes_of(config: Any) -> int:
        tile = config.kwargs
        return int((tile["ROWS"] + tile["COLS"]) * tile["DEPTH"] * itemsize * config.num_stages)

    return [config for config in configs if bytes_of(config) <= smem_bytes]

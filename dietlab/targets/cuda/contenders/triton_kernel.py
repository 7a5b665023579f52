"""The program of :mod:`dietlab.targets.cuda.contenders.triton_matmul`: Triton is imported here only."""

from __future__ import annotations

import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]


def matmul(  # type: ignore[no-untyped-def]
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

"""Tasks of suites for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from dietlab.compare.lineup import own_vendors
from dietlab.compare.suites.every_layer import EveryLayer
from dietlab.compare.suites.images import resnet50
from dietlab.compare.suites.lengths import (
    BERT_GPU_LENGTHS,
    DECODER_LENGTHS,
    LENGTHS,
    LLM_GPU_LENGTHS,
    LLM_TUNED,
    NO_LIBRARIES,
    PAPER_GPU_LENGTHS,
    PAPER_LENGTHS,
    PAPER_ROWS,
)
from dietlab.compare.suites.task import GPU_KERNELS, TINY, TINY_TUNED, Task, batch_tasks, image_tasks
from dietlab.problem import USUAL, Dense, Dim

NVIDIA_AGAINST = ("cublas", "cublaslt", "cublaslt-tuned")
"""Contenders on a GPU that need no compiler."""
GPU_AGAINST = (*own_vendors("cuda", "dense"), "largest-shape", "oracle")


def tiny_gpu_tasks() -> tuple[Task, ...]:
    """Returns a tiny dense layer, and a tiny dense operator for several, on a GPU."""
    against = ("largest-shape", "oracle")
    lengths = dict.fromkeys(LENGTHS, (1, 7))
    layers = EveryLayer(((64, 32), (96, 64)), ((37, 19),), lengths, lengths, NO_LIBRARIES)
    several = replace(TINY, N=Dim(16, 96), K=Dim(16, 64))
    return (
        Task("dense-tiny", TINY, TINY_TUNED[::2], against),
        Task("layers-tiny", several, TINY_TUNED[::2], against, layers=layers),
    )


def paper_gpu() -> tuple[Task, ...]:
    """Returns the paper's operators in its precision: a dense layer of 16 T rows, and both batched
    products."""
    rows = {effort: tuple(PAPER_ROWS * t for t in lengths) for effort, lengths in PAPER_GPU_LENGTHS.items()}
    dense = Task(
        "dense-k768-n2304",
        Dense(T=Dim(PAPER_ROWS, 128 * PAPER_ROWS), N=2304, K=768),
        tuple((PAPER_ROWS * length, 1.0) for length in PAPER_LENGTHS),
        GPU_AGAINST,
        rows,
        max_kernels=GPU_KERNELS,
    )
    on_gpu = partial(replace, against=GPU_AGAINST, lengths=PAPER_GPU_LENGTHS, max_kernels=GPU_KERNELS)
    return (dense, *map(on_gpu, batch_tasks()))


def gpu_dense_task(
    cols: int,
    depth: int,
    dtype: str,
    tuned: tuple[tuple[int, float], ...],
    lengths: Mapping[str, tuple[int, ...]],
) -> Task:
    """Returns a dense layer on a GPU for all of ``lengths``; its name ends with the type, if that is not
    float32."""
    high = max(max(chosen) for chosen in lengths.values())
    return Task(
        f"dense-k{depth}-n{cols}" if dtype == USUAL else f"dense-k{depth}-n{cols}-{dtype}",
        Dense(T=Dim(1, high), N=cols, K=depth, dtype=dtype),
        tuned,
        GPU_AGAINST,
        lengths,
        max_kernels=GPU_KERNELS,
    )


def bert_gpu_task(dtype: str) -> Task:
    """Returns a dense operator on a GPU that serves BERT-base's layers, and two of BERT-large that tuning
    never sees."""
    rows = tuple((PAPER_ROWS * length, 1.0) for length in PAPER_LENGTHS)
    work = Dense(T=Dim(PAPER_ROWS, 128 * PAPER_ROWS), N=Dim(64, 4096), K=Dim(64, 4096), dtype=dtype)
    held_out = ((1024, 1024), (4096, 1024))
    layers = EveryLayer("bert-base", held_out, BERT_GPU_LENGTHS, BERT_GPU_LENGTHS, NO_LIBRARIES)
    return _gpu_layers_task("bert-base", work, rows, layers)


def decoder_gpu_task() -> Task:
    """Returns a dense operator on a GPU that serves the layers of a decoder with 7e9 parameters, and three of
    others that tuning never sees."""
    work = Dense(T=Dim(1, 4096), N=Dim(1024, 14336), K=Dim(1024, 14336), dtype="bfloat16")
    tuned = ((4096, 4096), (12288, 4096), (11008, 4096), (4096, 11008))
    held_out = ((14336, 4096), (4096, 14336), (5120, 5120))
    layers = EveryLayer(tuned, held_out, DECODER_LENGTHS, DECODER_LENGTHS, NO_LIBRARIES)
    return _gpu_layers_task("decoder", work, LLM_TUNED, layers)


def _gpu_layers_task(
    name: str, work: Dense, tuned: tuple[tuple[int, float], ...], layers: EveryLayer
) -> Task:
    end = "" if work.dtype == USUAL else f"-{work.dtype}"
    return Task(f"dense-{name}{end}", work, tuned, GPU_AGAINST, layers=layers, max_kernels=GPU_KERNELS)


def llm_gpu() -> tuple[Task, ...]:
    """Returns three layers of a served model in bfloat16."""
    sizes = ((4096, 4096), (4096, 14336), (14336, 4096))
    return tuple(gpu_dense_task(*size, "bfloat16", LLM_TUNED, LLM_GPU_LENGTHS) for size in sizes)


def first_gpu() -> tuple[Task, ...]:
    """Returns the operators of the paper and of a served model for a GPU that is available for minutes only,
    the most informative first: the paper's dense layer, a layer in bfloat16, then the rest."""
    (dense, *batched), (layer, *layers) = paper_gpu(), llm_gpu()
    return tuple(replace(task, against=NVIDIA_AGAINST) for task in (dense, layer, *batched, *layers))


def resnet50_gpu() -> tuple[Task, ...]:
    """Returns the 3x3 layers of ResNet-50 without stride, in float32 and bfloat16."""
    layers = {
        name if dtype == USUAL else f"{name}-{dtype}": (replace(work, dtype=dtype), images)
        for dtype in (USUAL, "bfloat16")
        for name, (work, images) in resnet50().items()
        if work.kernel == (3, 3) and work.stride == (1, 1)
    }
    return image_tasks(layers, "cuda", GPU_KERNELS)

"""The shares of a whole model's time: in contractions, in attention, in the rest."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.compare.results.row import TimeShares
from dietlab.lab.models.runtimes import Run, onnx_session

PARTS = {
    "contractions": (
        "dietlab::linear",
        "dietlab::grouped_linear",
        "aten::linear",
        "aten::addmm",
        "aten::mm",
        "aten::_grouped_mm",
        "mkl::_mkl_linear",
        "mkldnn::_linear_pointwise",
        "zentorch::zentorch_linear_unary",
        "zentorch::zentorch_linear_unary_binary",
    ),
    "attention": (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "zentorch::zentorch_sdpa",
        "dietlab::batch_matmul",
        "aten::bmm",
    ),
}
"""PyTorch's names of products with weights, of which ours compute the activation, too; and of fused attention
(both batched products and the softmax), or of the products alone."""

PART_OF = {name: part for part, names in PARTS.items() for name in names}

PRODUCTS = ("MatMul", "FusedMatMul", "Gemm")
"""ONNX Runtime's products, of attention if an operand is a batch of heads: it has four dimensions."""

CALLS, SECONDS = 10, 1.0
"""Calls over which a profiler sums, if they take no longer: a profile of one short call would hold a slow
moment of a shared processor."""

CALL = "a call of the model"


def time_shares(run: Run, words: Any, calls: int | None = None) -> TimeShares:
    """Returns the shares of a call's time on the calling thread.

    Args:
        run: a model of PyTorch; it was called with such words before.
        words: ``[batch, T]``.
        calls: over which the profiler sums (default: at most :data:`CALLS`, for :data:`SECONDS`).
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in _enough(calls):
            with record_function(CALL):
                run(words)
    times = Counter[str]()
    for event in profiled.events():
        if event.name == CALL:
            times[CALL] += event.cpu_time_total
        elif event.name in PART_OF and not any(name in PART_OF for name in _callers(event)):
            times[PART_OF[event.name]] += event.cpu_time_total
    return TimeShares(*(times[part] / times[CALL] for part in PARTS))


def _enough(calls: int | None) -> Iterator[None]:
    """Yields once for each call, or until they have taken long enough."""
    until = time.monotonic() + SECONDS
    for done in range(CALLS if calls is None else calls):
        if calls is None and done and time.monotonic() >= until:
            return
        yield


def _callers(event: Any) -> Iterator[str]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event.name


def onnx_shares(path: Path, threads: int, words: Any, calls: int | None = None) -> TimeShares:
    """Returns the shares of a call's time in ONNX Runtime, by its own profiler.

    Args:
        path: the model's file.
        words: ``[batch, T]``, of PyTorch.
        calls: over which the profiler sums (default: as :func:`time_shares`); one more goes before them.
    """
    with TemporaryDirectory() as folder:
        session = onnx_session(path, threads, str(Path(folder) / "calls"))
        session.run(None, {"words": words.numpy()})
        for _ in _enough(calls):
            session.run(None, {"words": words.numpy()})
        return shares_of_trace(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")))


def shares_of_trace(events: Iterable[Mapping[str, Any]]) -> TimeShares:
    """Returns the shares of all calls but the first in a trace of ONNX Runtime."""
    events = [event for event in events if "ts" in event]
    starts = [event["ts"] for event in events if event["name"] == "model_run"]
    later = [event for event in events if event["ts"] >= sorted(starts)[1]]
    total = sum(event["dur"] for event in later if event["name"] == "model_run")
    contractions = attention = 0
    for event in later:
        operator = event.get("args", {}).get("op_name")
        if operator in PRODUCTS and not _of_heads(event["args"]):
            contractions += event["dur"]
        elif operator in (*PRODUCTS, "Softmax"):
            attention += event["dur"]
    return TimeShares(contractions / total, attention / total)


def _of_heads(args: Mapping[str, Any]) -> bool:
    shapes = [shape for operand in args["input_type_shape"] for shape in operand.values()]
    return any(len(shape) > 3 for shape in shapes)

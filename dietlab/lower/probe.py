"""Measures a CPU's roofline: ``python -m dietlab.lower.probe`` reads a hardware description.

Two loops: multiply-adds in registers only, and a sum over an array of a given size. The figures are
the best of many short samples, because a roofline is what the machine can do and not what it does
while others use it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dietlab.hardware import Hardware
from dietlab.lower.compiler import compile_library
from dietlab.lower.cpu.tir import stack_buffer, vector
from dietlab.lower.runtime import load_library

CHAINS = 12
"""Independent accumulators; more than latency x units of any processor that the space knows."""

STEPS = 1 << 14
"""Multiply-adds of each accumulator in one call."""

SAMPLES = 60
"""Calls of the probe, of which the fastest counts."""

ONE_CORE_BYTES = 4 << 20
"""Bytes that one core reads for its bandwidth: beyond every private cache, within a last-level cache."""


def main() -> None:
    hardware = Hardware.from_json(json.load(sys.stdin))
    with tempfile.TemporaryDirectory() as folder:
        artifact = compile_library(_probes(hardware), hardware, Path(folder) / "probe.so")
        print(json.dumps(_measure(load_library(artifact.path, cores=hardware.cores), hardware)))


def _measure(library: tvm_ffi.Module, hardware: Hardware) -> dict[str, float]:
    lanes = hardware.cpu.lanes
    seed, sums = np.full(2 * lanes, 0.5, np.float32), np.zeros(CHAINS * lanes, np.float32)
    flops = 2 * CHAINS * lanes * STEPS
    cached = np.ones(ONE_CORE_BYTES // 4, np.float32)
    memory = np.ones(max(4 * hardware.cpu.l3_bytes, 64 << 20) // 4, np.float32)
    totals = np.zeros((hardware.cores, CHAINS * lanes), np.float32)
    one = np.zeros((1, CHAINS * lanes), np.float32)
    return {
        "peak_gflops": round(flops / _best(lambda: library.multiply_add(seed, sums), SAMPLES) / 1e9, 1),
        "l3_gbps": round(cached.nbytes / _best(lambda: library.stream_one(cached, one), SAMPLES) / 1e9, 1),
        "dram_gbps": round(memory.nbytes / _best(lambda: library.stream_all(memory, totals), 12) / 1e9, 1),
    }


def compile_fma_probe(hardware: Hardware, path: Path) -> dict[str, Any]:
    """Returns the multiply-add loop alone, some 50 us a call: ``library`` and the floats of its arguments,
    ``seed`` and ``sums``. Elsewhere it tells whether the processor runs at its usual speed.

    Raises:
        BuildError: if it does not compile.
    """
    lanes = hardware.cpu.lanes
    artifact = compile_library(tvm.IRModule({"multiply_add": _multiply_add(lanes)}), hardware, path)
    return {"library": str(artifact.path), "seed": 2 * lanes, "sums": CHAINS * lanes}


def _best(call: Callable[[], object], samples: int) -> float:
    call()
    best = float("inf")
    for _ in range(samples):
        started = perf_counter()
        call()
        best = min(best, perf_counter() - started)
    return best


def _probes(hardware: Hardware) -> Any:
    lanes = hardware.cpu.lanes
    return tvm.IRModule(
        {
            "multiply_add": _multiply_add(lanes),
            "stream_one": _stream("stream_one", 1, lanes),
            "stream_all": _stream("stream_all", hardware.cores, lanes),
        }
    )


def _multiply_add(lanes: int) -> Any:
    """Returns ``for step: for c in chains: acc[c] = acc[c] * a + b``, all of it in registers."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name("multiply_add")
        T.func_attr({"tirx.noalias": True, "global_symbol": "multiply_add"})
        seed = T.match_buffer(T.arg("seed", T.handle()), (2 * lanes,), align=4)
        sums = T.match_buffer(T.arg("sums", T.handle()), (CHAINS * lanes,), align=4)
        chains = stack_buffer(CHAINS * lanes)
        slots = [vector(c * lanes, lanes) for c in range(CHAINS)]
        for slot in slots:
            T.buffer_store(chains, sums[slot], [slot])
        with T.serial(0, STEPS):
            for slot in slots:
                value = chains[slot] * seed[vector(0, lanes)] + seed[vector(lanes, lanes)]
                T.buffer_store(chains, value, [slot])
        for slot in slots:
            T.buffer_store(sums, chains[slot], [slot])
    return builder.get()


def _stream(name: str, cores: int, lanes: int) -> Any:
    """Returns ``for i: acc[i % chains] += array[i]``, a contiguous share for each core."""
    width = CHAINS * lanes
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, "global_symbol": name})
        floats = tirx.Var("floats", "int64")
        array = T.match_buffer(T.arg("array", T.handle()), (floats,), align=4)
        sums = T.match_buffer(T.arg("sums", T.handle()), (cores, width), align=4)
        share = floats // (width * cores)
        core_loop = T.serial if cores == 1 else T.parallel
        with core_loop(0, tirx.IntImm("int64", cores)) as core:
            chains = stack_buffer(width)
            slots = [vector(c * lanes, lanes) for c in range(CHAINS)]
            for slot in slots:
                T.buffer_store(chains, tirx.Broadcast(tirx.FloatImm("float32", 0), lanes), [slot])
            with T.serial(0, share) as i:
                for c, slot in enumerate(slots):
                    start = (core * share + i) * width + c * lanes
                    T.buffer_store(chains, chains[slot] + array[vector(start, lanes)], [slot])
            for slot in slots:
                T.buffer_store(sums, chains[slot], [core, slot])
    return builder.get()


if __name__ == "__main__":
    main()

"""Measures a CPU's roofline: ``python -m dietlab.targets.cpu.probe`` reads a hardware description.

There are two loops: multiply-adds in registers only, and a sum over an array of a given size. Where the
bandwidth of larger arrays falls, the last-level cache ends. The best of many short samples counts: a roofline
is the most that the machine can do, not what it does while others use it.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dietlab.lower.compiler import compiled, export, require_linker
from dietlab.lower.runtime import load_library
from dietlab.lower.store import STORE, fingerprint
from dietlab.machine import Hardware
from dietlab.problem import FloatArray
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.lowering import target_of

CHAINS = 12
"""The number of independent accumulators: more than latency x units of any processor that the space knows."""

STEPS = 1 << 14
"""The number of multiply-adds of each accumulator in one call."""

SAMPLES = 60
"""The number of calls of the probe, of which the fastest counts."""

ONE_CORE_BYTES = 4 << 20
"""The number of bytes that one core reads for its bandwidth: beyond every private cache, within a last-level
cache."""

LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 64 << 20, 1 << 29
"""Bounds of the number of bytes that are read for the bandwidth of memory: between them, four times the size
of the last-level cache."""

SIZES_A_DOUBLING = 2
"""The number of sizes on the curve of bandwidth for each doubling."""

EDGE_BYTES = 1 << 28
"""The least number of bytes that are read at each of these sizes, in some 10 ms. The fastest call counts."""

EDGE = 0.8
"""Largest ratio of memory's bandwidth to the last-level cache's at which the cache's end shows."""


def main() -> None:
    hardware = Hardware.from_json(json.load(sys.stdin))
    with tempfile.TemporaryDirectory() as folder:
        path = write_probes(("multiply_add", "stream_one", "stream_all"), hardware, Path(folder) / "probe.so")
        print(json.dumps(_measure(load_library(path, cores=hardware.cores), hardware)))


def write_probes(loops: Sequence[str], hardware: Hardware, path: Path) -> Path:
    """Writes a library of :func:`~dietlab.targets.cpu.lowering.probe_loops.probe_loops` to ``path``, and
    returns the path. A library that was built before comes from the store, without TVM, whose import takes a
    second."""
    limits = cpu_of(hardware)
    built_for = f"{limits.llvm_cpu} {limits.lanes} {hardware.cores}"
    key = f"probe {' '.join(loops)} {built_for} {fingerprint(hardware.kind)}"

    def make() -> None:
        from dietlab.targets.cpu.lowering.probe_loops import probe_loops

        module = probe_loops(loops, limits.lanes, hardware.cores)
        export(compiled(module, target_of(hardware)), path, require_linker())

    STORE.write(path, key, make)
    return path


def _measure(library: Any, hardware: Hardware) -> dict[str, float]:
    lanes = cpu_of(hardware).lanes
    seed, sums = np.full(2 * lanes, 0.5, np.float32), np.zeros(CHAINS * lanes, np.float32)
    flops = 2 * CHAINS * lanes * STEPS
    cached = np.ones(ONE_CORE_BYTES // 4, np.float32)
    memory_bytes = min(max(4 * cpu_of(hardware).l3_bytes, LEAST_MEMORY_BYTES), MOST_MEMORY_BYTES)
    memory = np.ones(memory_bytes // 4, np.float32)
    totals = np.zeros((hardware.cores, CHAINS * lanes), np.float32)
    one = np.zeros((1, CHAINS * lanes), np.float32)

    def from_one(array: FloatArray, samples: int) -> float:
        return array.nbytes / _best(lambda: library.stream_one(array, one), samples) / 1e9

    def peak() -> float:
        return flops / _best(lambda: library.multiply_add(seed, sums), SAMPLES) / 1e9

    # A neighbour on the other half of a core halves the peak for tenths of a second. So the peak is taken
    # again between the other measurements, which last for seconds.
    peaks = [peak()]
    found = {
        "l3_gbps": from_one(cached, SAMPLES),
        "dram_gbps": memory.nbytes / _best(lambda: library.stream_all(memory, totals), 12) / 1e9,
    }
    sizes = [int(ONE_CORE_BYTES * 2 ** (i / SIZES_A_DOUBLING)) for i in range(64)]
    fits = [size for size in sizes if size <= memory.nbytes]
    curve = {}
    for size in fits:
        curve[size] = from_one(memory[: size // 4], max(2, EDGE_BYTES // size))
        peaks.append(peak())
    edge = cached_bytes({**curve, ONE_CORE_BYTES: found["l3_gbps"]})
    return {
        **{name: round(value, 1) for name, value in {"peak_gflops": max(peaks), **found}.items()},
        **({} if edge is None else {"l3_mib": round(edge / (1 << 20), 1)}),
    }


def cached_bytes(curve: Mapping[int, float]) -> int | None:
    """Returns the size at which the last-level cache ends, in bytes; None if cache and memory differ too
    little (:data:`EDGE`). The largest array counts whose speed is a quarter of the way from memory's to the
    cache's, in logarithms. Both speeds are medians of the sizes on their side of the step that fits best,
    since other work makes single sizes slower.

    Args:
        curve: the bandwidth in GB/s by the bytes of an array, from one that is cached to one that is not.
    """
    sizes = sorted(curve)
    logs = np.log([curve[size] for size in sizes])
    steps = [(logs[:i], logs[i:]) for i in range(1, len(logs))]
    sides = min(steps, key=lambda step: sum(np.abs(side - np.median(side)).sum() for side in step))
    cached, memory = map(float, map(np.median, sides))
    if memory > cached + math.log(EDGE):
        return None
    least = memory + (cached - memory) / 4
    return max(size for size, speed in zip(sizes, logs, strict=True) if speed > least)


def compile_fma_probe(hardware: Hardware, path: Path) -> dict[str, Any]:
    """Compiles the multiply-add loop, some 50 us a call, which shows whether the processor runs at its usual
    speed. Returns its ``library``, and the numbers of floats in its arguments ``seed`` and ``sums``.

    Raises:
        BuildError: if it does not compile.
        ImportError: if TVM is not installed.
    """
    library = write_probes(["multiply_add"], hardware, path)
    lanes = cpu_of(hardware).lanes
    return {"library": str(library), "seed": 2 * lanes, "sums": CHAINS * lanes}


def _best(call: Callable[[], object], samples: int) -> float:
    call()
    best = float("inf")
    for _ in range(samples):
        started = perf_counter()
        call()
        best = min(best, perf_counter() - started)
    return best


if __name__ == "__main__":
    main()

"""The loops that measure a CPU, in TensorIR: multiply-adds in registers, and the sum of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.lowering.loop_nest import each_core
from dietlab.targets.cpu.lowering.tir import constant, function, stack_buffer, vector
from dietlab.targets.cpu.probe import CHAINS, STEPS


def probe_loops(names: Sequence[str], lanes: int, cores: int) -> Any:
    """Returns a module with some of the loops ``multiply_add``, ``stream_one``, ``stream_all``.

    Args:
        lanes: the number of float32 lanes of a vector.
        cores: the number of cores that ``stream_all`` uses.
    """
    loops = {
        "multiply_add": lambda: _multiply_add(lanes),
        "stream_one": lambda: _stream("stream_one", 1, lanes),
        "stream_all": lambda: _stream("stream_all", cores, lanes),
    }
    return tvm.IRModule({name: loops[name]() for name in names})


def _multiply_add(lanes: int) -> Any:
    """Returns ``for step: for c in chains: acc[c] = acc[c] * a + b``, all of it in registers."""
    with function("multiply_add", exported=True) as builder:
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
    with function(name, exported=True) as builder:
        floats = tirx.Var("floats", "int64")
        array = T.match_buffer(T.arg("array", T.handle()), (floats,), align=4)
        sums = T.match_buffer(T.arg("sums", T.handle()), (cores, width), align=4)
        share = floats // (width * cores)
        with each_core(cores) as core:
            chains = stack_buffer(width)
            slots = [vector(c * lanes, lanes) for c in range(CHAINS)]
            for slot in slots:
                T.buffer_store(chains, constant(0.0, lanes), [slot])
            with T.serial(0, share) as i:
                for c, slot in enumerate(slots):
                    start = (core * share + i) * width + c * lanes
                    T.buffer_store(chains, chains[slot] + array[vector(start, lanes)], [slot])
            for slot in slots:
                T.buffer_store(sums, chains[slot], [core, slot])
    return builder.get()

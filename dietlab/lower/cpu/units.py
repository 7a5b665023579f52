"""One step of each unit that multiplies operands of less than 32 bits (:data:`~dietlab.hardware.UNITS`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.lower.cpu.tile import Tile
from dietlab.lower.cpu.tir import constant, int64, lanes_of, vector
from dietlab.space import CpuMicroKernel

MADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""LLVM's names of ``vpmaddwd`` by the lanes of the sums."""

DPBF16 = "dietlab_dpbf16"
DPBF16_CODE = f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @{DPBF16}(<16 x float> %s, <16 x i32> %a, <16 x i32> %b) alwaysinline {{
  %x = bitcast <16 x i32> %a to <32 x bfloat>
  %w = bitcast <16 x i32> %b to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %s, <32 x bfloat> %x,
    <32 x bfloat> %w)
  ret <16 x float> %r
}}
"""
"""LLVM's ``vdpbf16ps`` on words, as TVM has no vectors of bfloat16."""


def unit_code(tile: Tile) -> AbstractContextManager[object]:
    """Returns the frame of a compute stage, with what its unit brings into the module."""
    if tile.kernel.unit == "bf16dot" and not tile.geometry.emulated:
        frame: AbstractContextManager[object] = T.attr(int64(0), "pragma_import_llvm", DPBF16_CODE)
        return frame
    return nullcontext()


def x_words(kernel: CpuMicroKernel, depth: Any) -> Any:
    """Returns the words from one row of the input to the next, as a unit reads it; ``depth`` in steps."""
    return depth * (kernel.facts.staged_words or 1)


def first_sums(tile: Tile, j: int) -> Any:
    """Returns the value that the accumulators of vector ``j`` begin with: the bias of bfloat16; of int8 what
    makes up for inputs that were made unsigned, or zero."""
    bias = tile.geometry.epilogue.bias
    if tile.geometry.dtype == "int8":
        corrects = tile.kernel.facts.corrects
        return tile.w[j, 0, vector(0, tile.lanes)] if corrects else lanes_of(0, tile.lanes, "int32")
    return _head(tile, j, 0) if bias else constant(0.0, tile.lanes)


def scaled(tile: Tile, sums: Any, j: int) -> Any:
    """Returns int32 sums of vector ``j`` in float32, times its scales, plus its bias."""
    value = tirx.Cast(f"float32x{tile.lanes}", sums) * _head(tile, j, 1)
    return value + _head(tile, j, 2) if tile.geometry.epilogue.bias else value


def _head(tile: Tile, j: int, row: int) -> Any:
    """Returns a row of float32 values before the weights of a panel."""
    return tirx.reinterpret(f"float32x{tile.lanes}", tile.w[j, row, vector(0, tile.lanes)])


def unit_step(tile: Tile, k: Any) -> None:
    """Emits one step of the reduction, 32 bits of each weight: an instruction for each word of the input.

    Draws, for ``maddwd`` and one row and vector::

        before                            after
        for j in range(4):                acc += maddwd(broadcast(x[2k]), int16(first half of w[k]))
          acc += x[4k + j] * w[4k + j]    acc += maddwd(broadcast(x[2k + 1]), int16(second half of w[k]))
    """
    words, row = tile.kernel.facts.staged_words, k + tile.geometry.head_rows
    for part in range(words):
        weights = [T.bind(_weights(tile, j, row, part)) for j in range(tile.vectors)]
        for i in range(tile.kernel.rows):
            x = T.bind(tirx.Broadcast(tile.x[i, k * words + part], tile.lanes))
            for j in range(tile.vectors):
                slot = tile.slot(i, j)
                sums = _multiply_add(tile, tile.accumulators[slot], x, weights[j])
                T.buffer_store(tile.accumulators, sums, [slot])


def _weights(tile: Tile, j: int, row: Any, part: int) -> Any:
    """Returns the weights of vector ``j`` that a part of a step multiplies."""
    lanes, unit = tile.lanes, tile.kernel.unit
    if unit == "maddwd":
        half = tile.w[j, row, vector(part * lanes // 2, lanes // 2)]
        return tirx.Cast(f"int16x{2 * lanes}", tirx.reinterpret(f"int8x{2 * lanes}", half))
    word = tile.w[j, row, vector(0, lanes)]
    if unit == "bf16fma":
        return _bfloat16(word, part, lanes)
    return word


def _bfloat16(word: Any, part: int, lanes: int) -> Any:
    """Returns the first or second bfloat16 of each word as float32."""
    if part:
        return tirx.reinterpret(f"float32x{lanes}", word & lanes_of(-1 << 16, lanes, "int32"))
    return tirx.reinterpret(f"float32x{lanes}", word << lanes_of(16, lanes, "int32"))


def _multiply_add(tile: Tile, sums: Any, x: Any, w: Any) -> Any:
    """Returns ``sums`` and the products of one instruction; ``x`` are words of the staged input."""
    lanes, unit = tile.lanes, tile.kernel.unit
    if unit == "maddwd":
        pairs = tirx.reinterpret(f"int16x{2 * lanes}", x)
        return sums + tirx.call_llvm_intrin(f"int32x{lanes}", MADDWD[lanes], pairs, w)
    if unit == "bf16fma":
        return sums + tirx.reinterpret(f"float32x{lanes}", x) * w
    if tile.geometry.emulated:
        return _dpbusd(sums, x, w, lanes) if unit == "vnni" else _dpbf16ps(sums, x, w, lanes)
    if unit == "vnni":
        bytes_of = [tirx.reinterpret(f"int8x{4 * lanes}", words) for words in (x, w)]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return tirx.call_llvm_intrin(f"int32x{lanes}", name, sums, *bytes_of)
    return tirx.call_pure_extern(f"float32x{lanes}", DPBF16, sums, x, w)


def _dpbusd(sums: Any, x: Any, w: Any, lanes: int) -> Any:
    """Returns what ``vpdpbusd`` does: unsigned bytes of ``x`` times signed bytes of ``w``, without
    saturation."""
    for byte in range(4):
        unsigned = (x >> lanes_of(8 * byte, lanes, "int32")) & lanes_of(255, lanes, "int32")
        signed = (w << lanes_of(24 - 8 * byte, lanes, "int32")) >> lanes_of(24, lanes, "int32")
        sums = sums + unsigned * signed
    return sums


def _dpbf16ps(sums: Any, x: Any, w: Any, lanes: int) -> Any:
    """Returns what ``vdpbf16ps`` does, but for subnormal numbers, which that takes as zero."""
    for part in (1, 0):
        sums = sums + _bfloat16(x, part, lanes) * _bfloat16(w, part, lanes)
    return sums

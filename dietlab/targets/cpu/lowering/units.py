"""One step of each unit that multiplies operands of less than 32 bits
(:data:`~dietlab.targets.cpu.units.UNITS`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.targets.cpu.kernel import TILE_REGISTERS, CpuMicroKernel, weight_tiles
from dietlab.targets.cpu.lowering.geometry import Tile
from dietlab.targets.cpu.lowering.tir import constant, instruction, int64, vector
from dietlab.targets.cpu.units import WORD_BYTES, CpuUnit

MADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""LLVM's names of ``vpmaddwd``, by the number of lanes of the sums."""

MATRIX: Mapping[CpuUnit, str] = {"amxint8": "llvm.x86.tdpbssd", "amxbf16": "llvm.x86.tdpbf16ps"}
"""LLVM's names of the instructions that multiply tile registers."""

TILE_LOAD = "llvm.x86.tileloadd64"

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
    """Returns the frame of a compute stage, which adds its unit's LLVM code to the module."""
    if tile.kernel.unit == "bf16dot" and not tile.geometry.emulated:
        frame: AbstractContextManager[object] = T.attr(int64(0), "pragma_import_llvm", DPBF16_CODE)
        return frame
    return nullcontext()


def x_words(kernel: CpuMicroKernel, depth: Any) -> Any:
    """Returns the number of words from one row of the input to the next, as a unit reads them. ``depth`` is
    in steps."""
    return depth * (kernel.facts.staged_words or 1)


def first_sums(tile: Tile, j: int) -> Any:
    """Returns the value that the accumulators of vector ``j`` begin with: the bias, if sums are not scaled
    before it; the correction for inputs that were made unsigned; or zero."""
    precision, bias = tile.geometry.precision, tile.geometry.epilogue.bias
    if tile.kernel.facts.corrects:
        return tile.w[j, 0, vector(0, tile.lanes)]
    return _head(tile, j, 0) if bias and not precision.scaled else constant(0, tile.lanes, precision.sums)


def finished(tile: Tile, sums: Any, j: int) -> Any:
    """Returns the sums of vector ``j`` in float32: scaled sums times their scales and plus the bias; the sums
    of a matrix unit plus the bias."""
    if not tile.geometry.precision.scaled:
        return sums + _head(tile, j, 0) if tile.groups and tile.geometry.epilogue.bias else sums
    value = tirx.Cast(f"float32x{tile.lanes}", sums) * _head(tile, j, 1)
    return value + _head(tile, j, 2) if tile.geometry.epilogue.bias else value


def _head(tile: Tile, j: int, row: int) -> Any:
    """Returns a row of float32 values before the weights of a panel."""
    return tirx.reinterpret(f"float32x{tile.lanes}", tile.w[j, row, vector(0, tile.lanes)])


def unit_step(tile: Tile, k: Any) -> None:
    """Emits one step of the reduction, 32 bits of each weight: an instruction for each word of the input.

    For example, for ``maddwd`` and one row and vector::

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


class MatrixRegisters(NamedTuple):
    """The tile registers of a micro-kernel: accumulators by group and vector, weights, and inputs."""

    sums: tuple[int, ...]
    weights: tuple[int, ...]
    inputs: tuple[int, ...]


def matrix_registers(kernel: CpuMicroKernel, lanes: int) -> MatrixRegisters:
    """Returns the tile registers of a micro-kernel. Weights have the last ones, whatever the height."""
    vectors = kernel.vectors(lanes)
    sums = kernel.rows // kernel.facts.tile_rows * vectors
    weights = TILE_REGISTERS - weight_tiles(vectors)
    every = tuple(range(TILE_REGISTERS))
    return MatrixRegisters(every[:sums], every[weights:], every[sums:weights])


def matrix_step(tile: Tile, k: Any) -> None:
    """Emits the instructions of a matrix unit for the steps from ``k`` on: a product for each group of rows
    and vector of weights, each loaded once."""
    if tile.geometry.emulated:
        _matrix_step_in_vectors(tile, k)
        return
    registers = matrix_registers(tile.kernel, tile.lanes)
    name = MATRIX[tile.kernel.unit]
    x_bytes, w_bytes = (int64(WORD_BYTES * extent) for extent in (tile.depth, tile.lanes))
    for m, group in enumerate(tile.groups):
        x = registers.inputs[m % len(registers.inputs)]
        instruction(TILE_LOAD, x, tile.x.access_ptr("r", offset=group * tile.depth + k), x_bytes)
        for j in range(tile.vectors):
            w = registers.weights[j % len(registers.weights)]
            if m == 0:
                rows = tile.geometry.panel_rows(tile.depth)
                at = (j * rows + tile.geometry.head_rows + k) * tile.lanes
                instruction(TILE_LOAD, w, tile.w.access_ptr("r", offset=at), w_bytes)
            instruction(name, registers.sums[m * tile.vectors + j], x, w)


def _matrix_step_in_vectors(tile: Tile, k: Any) -> None:
    """Emits :func:`matrix_step` in plain vector operations."""
    lanes, facts = tile.lanes, tile.kernel.facts
    dot = partial(_dpbusd, signed=True) if tile.kernel.unit == "amxint8" else _dpbf16ps
    for m, group in enumerate(tile.groups):
        with T.serial(int64(0), tile.height) as i, T.serial(int64(0), int64(facts.tile_steps)) as s:
            x = T.bind(tirx.Broadcast(tile.x[group + i, k + s], lanes))
            for j in range(tile.vectors):
                slot = tile.slot(m * facts.tile_rows + i, j)
                w = tile.w[j, tile.geometry.head_rows + k + s, vector(0, lanes)]
                sums = dot(tile.accumulators[slot], x, w, lanes)
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
        return tirx.reinterpret(f"float32x{lanes}", word & constant(-1 << 16, lanes, "int32"))
    return tirx.reinterpret(f"float32x{lanes}", word << constant(16, lanes, "int32"))


def _multiply_add(tile: Tile, sums: Any, x: Any, w: Any) -> Any:
    """Returns ``sums`` and the products of one instruction; ``x`` are words of the staged input."""
    lanes, unit = tile.lanes, tile.kernel.unit
    if unit == "maddwd":
        pairs = tirx.reinterpret(f"int16x{2 * lanes}", x)
        return sums + tirx.call_llvm_intrin(f"int32x{lanes}", MADDWD[lanes], pairs, w)
    if unit == "bf16fma":
        return sums + tirx.reinterpret(f"float32x{lanes}", x) * w
    if tile.geometry.emulated:
        return (_dpbusd if unit == "vnni" else _dpbf16ps)(sums, x, w, lanes)
    if unit == "vnni":
        bytes_of = [tirx.reinterpret(f"int8x{4 * lanes}", words) for words in (x, w)]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return tirx.call_llvm_intrin(f"int32x{lanes}", name, sums, *bytes_of)
    return tirx.call_pure_extern(f"float32x{lanes}", DPBF16, sums, x, w)


def _dpbusd(sums: Any, x: Any, w: Any, lanes: int, *, signed: bool = False) -> Any:
    """Returns the result of ``vpdpbusd``: unsigned bytes of ``x`` times signed bytes of ``w``, without
    saturation. With ``signed``, returns the result of ``tdpbssd``."""
    for byte in range(4):
        mine = _byte(x, byte, lanes)
        if not signed:
            mine = mine & constant(255, lanes, "int32")
        sums = sums + mine * _byte(w, byte, lanes)
    return sums


def _byte(words: Any, byte: int, lanes: int) -> Any:
    """Returns a byte of each word, with its sign."""
    return (words << constant(24 - 8 * byte, lanes, "int32")) >> constant(24, lanes, "int32")


def _dpbf16ps(sums: Any, x: Any, w: Any, lanes: int) -> Any:
    """Returns the result of ``vdpbf16ps`` and ``tdpbf16ps``. The instructions take subnormal numbers as zero;
    this function does not."""
    for part in (1, 0):
        sums = sums + _bfloat16(x, part, lanes) * _bfloat16(w, part, lanes)
    return sums

"""A micro-kernel of AMX, whose accumulators are tile registers of up to 16 rows by 16 words.

Groups of rows have equal heights, so that one configuration of the tile registers serves a whole call. For
example, 37 rows are three groups of 13. The last one begins early and computes two rows a second time::

    rows      0 ........ 12 13 ........ 25
                                     24 ........ 36
    groups    0             1        2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dietlab.machine.system import ARCH_REQ_XCOMP_PERM, SYS_ARCH_PRCTL, XFEATURE_XTILEDATA
from dietlab.targets.cpu.kernel import TILE_REGISTERS, CpuMicroKernel
from dietlab.targets.cpu.lowering.compute_stage import multiply_add
from dietlab.targets.cpu.lowering.geometry import Geometry, Tile
from dietlab.targets.cpu.lowering.loop_nest import Tiling
from dietlab.targets.cpu.lowering.micro_kernel import declared, tile_name, write_row
from dietlab.targets.cpu.lowering.tir import ceil_div, constant, function, instruction, int64, stack_buffer
from dietlab.targets.cpu.lowering.units import matrix_registers
from dietlab.targets.cpu.units import UNITS, WORD_BYTES, CpuUnit

CONFIGURATION_BYTES, COLUMN_BYTES_AT, ROWS_AT = 64, 16, 48
"""The operand of ``ldtilecfg``, in bytes: its size, the offset of the registers' bytes per row (16 bits
each), and the offset of the registers' numbers of rows (8 bits each) (Intel 64 and IA-32 Architectures
Software Developer's Manual, volume 2)."""

ROW_BYTES = 64
"""The size of a row of a tile register, in bytes."""

READY = "dietlab_amx_ready"
READY_CODE = f"""
@dietlab_amx = linkonce_odr global i32 0
define linkonce_odr i32 @{READY}() {{
  %known = load i32, ptr @dietlab_amx
  %ready = icmp eq i32 %known, 1
  br i1 %ready, label %done, label %ask
ask:
  %answer = call i64 asm sideeffect "syscall", "={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 {SYS_ARCH_PRCTL}, i64 {ARCH_REQ_XCOMP_PERM}, i64 {XFEATURE_XTILEDATA})
  %granted = icmp eq i64 %answer, 0
  %found = zext i1 %granted to i32
  store i32 %found, ptr @dietlab_amx
  br label %done
done:
  %result = phi i32 [ 1, %0 ], [ %found, %ask ]
  ret i32 %result
}}
"""
"""LLVM code that requests AMX's registers from the system at the first call, as
:func:`~dietlab.machine.system.amx_permitted` does: without permission their first use ends the process."""

FORBIDDEN = (
    "the system lets this process use AMX's registers: it does not; run it under Linux 5.16 or later, or "
    "build the library for a processor without AMX"
)


@contextmanager
def permitted(geometry: Geometry, units: Iterable[CpuUnit]) -> Iterator[None]:
    """Requests AMX's registers before what is emitted inside, if one of ``units`` needs them."""
    matrix = any(UNITS[unit].matrix for unit in units) and not geometry.emulated
    with T.attr(int64(0), "pragma_import_llvm", READY_CODE) if matrix else nullcontext():
        if matrix:
            ready = tirx.call_extern("int32", READY)
            with T.Assert(ready == 1, FORBIDDEN, "RuntimeError"):
                pass
        yield


@contextmanager
def configured(tiling: Tiling) -> Iterator[Any]:
    """Configures a core's tile registers for what is emitted inside, and yields the rows of a group: weights
    have 16 rows, all others as many as a group.

    For example::

        before               after
        the loops            ldtilecfg: registers 0 .. 8 - w have g rows, w registers 16
                             the loops
                             tilerelease
    """
    facts = tiling.kernel.facts
    groups = ceil_div(tiling.rows, facts.tile_rows)
    height = T.bind(int64(ceil_div(tiling.rows, tirx.max(int64(groups), int64(1)))))
    if tiling.geometry.emulated:
        yield height
        return
    table = stack_buffer(CONFIGURATION_BYTES, "uint8")
    for at in range(CONFIGURATION_BYTES):
        T.buffer_store(table, tirx.IntImm("uint8", 1 if at == 0 else 0), [at])
    weights = matrix_registers(tiling.kernel, tiling.geometry.lanes).weights
    for register in range(TILE_REGISTERS):
        rows = tirx.IntImm("uint8", facts.tile_steps) if register in weights else tirx.Cast("uint8", height)
        T.buffer_store(table, tirx.IntImm("uint8", ROW_BYTES), [COLUMN_BYTES_AT + 2 * register])
        T.buffer_store(table, rows, [ROWS_AT + register])
    instruction("llvm.x86.ldtilecfg", table.access_ptr("r"))
    yield height
    instruction("llvm.x86.tilerelease")


def matrix_tile_function(kernel: CpuMicroKernel, geometry: Geometry) -> Any:
    """Returns ``tile(x, w, y, ...)``, which computes the groups from ``group`` on: ``kernel.rows`` rows if
    all are full.

    For example, for two groups and two vectors::

        tilezero c00, c01, c10, c11
        for k in range(0, depth, 16):
          tileload a0, b0;  tdp c00, a0, b0
          tileload b1;      tdp c01, a0, b1
          tileload a1;      tdp c10, a1, b0
                            tdp c11, a1, b1
        tilestore c00, c01, c10, c11                # to the stack
        for i in range(height):
          y[row(group) + i, :] = epilogue(c0[i, :])
          y[row(group + 1) + i, :] = epilogue(c1[i, :])

    ``x`` and ``y`` (and ``residual``) point at row 0, and at the tile's first column. Other arguments are
    those of :func:`~dietlab.targets.cpu.lowering.micro_kernel.tile_function`, ``rows`` (of the output),
    ``group``, and ``height`` (of each group).
    """
    with function(tile_name(kernel, "exact")) as builder:
        given, tile = declared(kernel, geometry, "exact")
        height, last = given["height"], T.bind(given["rows"] - given["height"])
        number = kernel.rows // kernel.facts.tile_rows
        starts = tuple(T.bind(tirx.min((given["group"] + m) * height, last)) for m in range(number))
        tile = replace(tile, groups=starts, height=height)
        _start(tile)
        multiply_add(tile, given.get("ahead"), given.get("tiles"))
        _store(tile)
        with T.serial(int64(0), height) as i:
            for m, start in enumerate(starts):
                write_row(tile, m * kernel.facts.tile_rows + i, at=start + i)
    return builder.get()


def _start(tile: Tile) -> None:
    """Emits the constant that accumulators begin with."""
    if not tile.geometry.emulated:
        for register in matrix_registers(tile.kernel, tile.lanes).sums:
            instruction("llvm.x86.tilezero", register)
        return
    zero = constant(0, tile.lanes, tile.geometry.precision.sums)
    for i, j in tile.places:
        T.buffer_store(tile.accumulators, zero, [tile.slot(i, j)])


def _store(tile: Tile) -> None:
    """Emits the stores of the accumulators to the stack, where the epilogue reads them by rows."""
    if tile.geometry.emulated:
        return
    kernel = tile.kernel
    for m in range(len(tile.groups)):
        for j in range(tile.vectors):
            offset = m * kernel.facts.tile_rows * kernel.cols + j * tile.lanes
            register = matrix_registers(kernel, tile.lanes).sums[m * tile.vectors + j]
            pointer = tile.accumulators.access_ptr("w", offset=offset)
            instruction("llvm.x86.tilestored64", register, pointer, int64(kernel.cols * WORD_BYTES))

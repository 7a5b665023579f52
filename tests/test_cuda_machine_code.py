"""What the compiler's machine code spends instructions on, and that it stays so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest
from conftest import cli
from cuda_samples import CONTEXT, DENSE, typed

from dietlab.base.errors import BuildError, MissingDependencyError
from dietlab.machine import Hardware
from dietlab.problem import Workload
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cuda.compiler_report import COLUMNS
from dietlab.targets.cuda.lowering.compiler import cuda_source, lower, without_spills
from dietlab.targets.cuda.lowering.cubin import Cubin
from dietlab.targets.cuda.lowering.geometry import BlockGeometry
from dietlab.targets.cuda.lowering.library import library_module
from dietlab.targets.cuda.lowering.machine_code import (
    MachineCode,
    figures,
    find_tool,
    machine_code,
    parse,
    require_tool,
)
from dietlab.targets.cuda.lowering.nvcc import compile_cubin, compilers

COMMAND = "compile dense --dim T=1:64 --dim N=64 --dim K=64 --hardware h200 --sample 1 --machine-code"
H200 = Hardware.preset("h200")

PRINTED = """
	code for sm_90a
		Function : second
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;      /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 STG.E.U16 desc[UR4][R2.64], R5 ;
        /*0020*/                   LD.E.64 R2, [R4] ;
        /*0030*/                   LD.E R6, [R8] ;
        /*0040*/              @P1  STG.E.128 desc[UR4][R2.64], R8 ;
        /*0050*/                   LD.E R6, [R8] ;
{loop}
        /*{end}*/              @P6 BRA 0x60 ;
        /*fff0*/                   STL [R1], R5 ;
		Function : empty
        /*0000*/                   EXIT ;
"""


def printed(body: list[str]) -> dict[str, MachineCode]:
    lines = [f"        /*{0x60 + 16 * n:04x}*/    {text} ;" for n, text in enumerate(body)]
    return dict(parse(PRINTED.format(loop="\n".join(lines), end=f"{0x60 + 16 * len(body):04x}")))


def test_printed_machine_code_is_counted() -> None:
    code = printed(["FFMA R1, R2, R3, R1"] * 30 + ["@P0 MUFU.RCP R4, R4", "I2F R5, R5", "BAR.SYNC 0x0"])
    second = code["second"]
    assert [len(loop) for loop in second.loops] == [34]
    assert second.main_loop == {"FFMA": 30, "MUFU": 1, "I2F": 1, "BAR": 1, "BRA": 1}
    assert second.multiplying_percent == pytest.approx(100 * 30 / 34)
    assert (second.divisions, second.two_byte_stores, second.spills, second.most_loads) == (2, 1, 1, 3)
    assert code["empty"].main_loop == {"EXIT": 1} and code["empty"].loops == ()
    assert figures(code)["loop_instructions"] == 34


def test_loops_around_loops_do_not_count() -> None:
    inner = ["FFMA R1, R2, R3, R1"] * 40 + ["@P1 BRA 0x60", "I2F R5, R5"]
    outer = printed(inner)["second"]
    assert [len(loop) for loop in outer.loops] == [41] and outer.divisions == 0


def test_a_missing_tool_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dietlab.targets.cuda.lowering.machine_code.package_folders", list)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependencyError, match=r"cuobjdump and nvdisasm.*dietlab\[cuda\]"):
        require_tool()
    assert "cuobjdump" in cli(*COMMAND.split(), exits=2).output


# What nvcc makes of micro-kernels

compiled = pytest.mark.skipif(
    find_tool() is None or next(compilers(), None) is None,
    reason="needs nvcc, and cuobjdump with nvdisasm (pip install 'dietlab[cuda]')",
)
HALF = replace(DENSE, N=4096, K=4096, dtype="bfloat16")


@cache
def code(work: Workload, key: str) -> Mapping[str, MachineCode]:
    """A scheme's own kernels for many rows, and for an odd number of them, which may have two heights."""
    scheme, geometry = Scheme.from_key(key), BlockGeometry.of(work, H200)
    most = work.dims[geometry.rows].high
    called = [{geometry.rows: rows} for rows in (most, most - 9)]
    module = library_module(geometry, [scheme], Leaf(0), only=[called])
    _, cubin = without_spills(cuda_source(lower(module, H200)), H200.limits.arch, compile_cubin)
    return machine_code(cubin)


def wide(work: Workload, key: str) -> MachineCode:
    """The kernel with the widest copies."""
    return max(code(work, key).values(), key=lambda each: each.multiplying_percent)


FP32 = ("128x128x16.t16x16.s3", "128x64x16.t16x16.s3.b2", "64x128x16.t8x32.s3")
SPLIT = {"16x64x32.t4x16.s4.k4": (DENSE, 16), "64x128x64.g1x1.s5.k4": (HALF, 64)}
OTHERS = ("128x128x32.w2x2.s4", "128x256x64.g2x1.s4", "16x64x64.w1x4.s4.k4", "16x128x64.x1x2.s8.k4")


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize("key", FP32)
def test_large_fp32_tiles_mostly_multiply(key: str) -> None:
    assert wide(DENSE, key).multiplying_percent >= 85


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize("key", [*FP32, *SPLIT, *OTHERS, "64x64x16.t8x16.s3.even"])
def test_no_loop_divides_and_nothing_spills(key: str) -> None:
    """The default cover of fp32 has kernels of two heights; those of a cluster share the reduction."""
    work = DENSE if ".t" in key else HALF
    for kernel in code(work, key).values():
        assert kernel.loops and kernel.divisions == 0 and kernel.spills == 0


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize("key", [*OTHERS, "64x128x64.g1x1.s5.k4"])
def test_no_output_is_stored_by_two_bytes(key: str) -> None:
    assert all(kernel.two_byte_stores == 0 for kernel in code(HALF, key).values())


@compiled
@pytest.mark.cuda_compile
@pytest.mark.parametrize("key", SPLIT)
def test_sums_of_a_cluster_are_read_before_any_is_stored(key: str) -> None:
    work, least = SPLIT[key]
    assert wide(work, key).most_loads >= least


@compiled
@pytest.mark.cuda_compile
def test_rows_of_dynamic_length_are_copied_wide_where_they_can_be() -> None:
    kernels = code(typed(CONTEXT, "float16"), "64x64x32.w2x2.s3").values()
    copies = [[each.name for each in kernel.instructions if each.family == "LDGSTS"] for kernel in kernels]
    assert any(names and all(name.endswith("128") for name in names) for names in copies)
    assert min(kernel.main_loop.total() for kernel in kernels) < 100


@compiled
def test_a_damaged_cubin_is_told() -> None:
    with pytest.raises(BuildError, match="cuobjdump must be able to print a cubin"):
        machine_code(Cubin("sm_90a", b"no cubin", {}))


@compiled
@pytest.mark.cuda_compile
def test_the_command_shows_machine_code() -> None:
    shown = cli(*COMMAND.split(), "--json").output
    assert '"multiplying_percent"' in shown and '"two_byte_stores": 0' in shown


def test_only_a_gpu_s_micro_kernel_can_be_named() -> None:
    refused = cli(*COMMAND.split(), "--scheme", "4x16.u4.ws.p0", exits=2)
    assert "--scheme must name a GPU's micro-kernel" in refused.output


def test_a_micro_kernel_multiplies_the_operator_s_type() -> None:
    refused = cli(*COMMAND.split(), "--scheme", "64x64x64.g1x1.s3", exits=2)
    rule = r"--scheme must name a micro-kernel whose unit multiplies float32; got .* for float16 or bfloat16"
    assert re.search(rule, " ".join(refused.output.split()))


def test_a_command_whose_micro_kernels_are_all_refused_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def spilled(*_: object, **__: object) -> pd.DataFrame:
        row = {"scheme": "64x64x16.t8x16.s3", "status": "refused", "reason": "8 bytes are spilled"}
        return pd.DataFrame([row], columns=["scheme", *COLUMNS])

    monkeypatch.setattr("dietlab.cli.compile.frame_compiled", spilled)
    command = COMMAND.removesuffix(" --machine-code").split()
    refused = cli(*command, "--scheme", "64x64x16.t8x16.s3", exits=2).output
    assert "1 tried, 1 refused" in refused
    assert "one of the micro-kernels must compile; got 8 bytes are spilled (1 of 1)" in refused


@pytest.mark.parametrize(
    ("depth", "dtype", "key", "rule"),
    [
        (64, "float32", "512x512x64.t16x16.s3", "a thread's sums, operands and copies fit its registers"),
        (33, "bfloat16", "64x64x64.p1x1.s4", "lines begin at multiples of 16 bytes; got 64x64x64.p1x1.s4."),
    ],
)
def test_a_named_micro_kernel_keeps_the_limits_of_the_space(
    depth: int, dtype: str, key: str, rule: str
) -> None:
    command = COMMAND.replace("K=64", f"K={depth}").split()
    refused = " ".join(cli(*command, "--dtype", dtype, "--scheme", key, exits=2).output.split())
    assert "--scheme must name a micro-kernel that fits: " in refused and rule in refused

"""Operands of less than 32 bits on CPUs: each unit, by its own instruction where it is and by its definition
elsewhere, and the machine code for processors that are not here."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from click.testing import CliRunner
from conftest import in_turn
from programs import fenced

from dietlab.base.errors import BuildError, DispatchError, SpaceError, WorkloadError
from dietlab.cli import main
from dietlab.lower.program import compile_plans, source_of
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, dtypes_of, require_dtype, tolerance
from dietlab.scheme import Leaf, Scheme, build_space
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.lowering import compile_packing, target_of
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.library import library_module
from dietlab.targets.cpu.lowering.units import matrix_registers
from dietlab.targets.cpu.units import UNITS, CpuUnit
from dietlab.tuning import Dispatcher, Operator, build

T = Dim(1, 16)
ROWS = (1, 2, 3, 5, 7, 16, 17, 33, 100)
AVX512 = Hardware.preset("zen4-1core")

WORK: dict[str, tuple[Dense, ...]] = {
    "int8": (
        Dense(T, 37, 23, dtype="int8", bias=True),
        Dense(T, 64, 64, dtype="int8", out_dtype="int8"),
        Dense(T, 61, 77, True, "int8", activation="relu", residual=True, out_dtype="int8"),
        Dense(T, 33, 17, True, "int8", activation="gelu_erf", residual=True),
        Dense(T, 1, 1, dtype="int8"),
        Dense(T, 37, 192, True, "int8", activation="gelu_erf", residual=True),
        Dense(T, 96, 64, dtype="int8", out_dtype="int8"),
    ),
    "bfloat16": (
        Dense(T, 37, 23, dtype="bfloat16"),
        Dense(T, 64, 64, True, "bfloat16", activation="gelu_tanh", residual=True),
        Dense(T, 1, 1, True, "bfloat16"),
        Dense(T, 33, 96, dtype="bfloat16", residual=True),
        Dense(T, 128, 32, True, "bfloat16", activation="gelu_tanh", residual=True),
    ),
}
BASES = ("3x2.u2.ws.p0", "4x1.u1.is.p0", "2x2.u1.ws.p24a", "5x1.u4.ws.p16")
MATRIX_BASES = ("32x2.u32.ws.p0", "16x6.u16.is.p0", "16x4.u16.ws.p24a", "96x1.u16.ws.p16")
"""Two groups of rows by two vectors; registers for weights that are used in turns; and many groups."""
HERE = Hardware.detect(measure=False).with_cores(1)
AMX = replace(AVX512, limits=replace(AVX512.limits, llvm_cpu="sapphirerapids"))
ARM = replace(HERE, limits=replace(HERE.limits, llvm_cpu="generic", vector_bytes=16))


def schemes_of(unit: CpuUnit, lanes: int) -> list[CpuScheme]:
    """The bases with widths in vectors, for one unit, in both ways of composition."""
    keys = []
    for number, base in enumerate(MATRIX_BASES if UNITS[unit].matrix else BASES):
        rows, rest = base.split("x", 1)
        vectors, rest = rest.split(".", 1)
        keys.append(f"{rows}x{int(vectors) * lanes}.{rest}.{unit}.{('even', 'rest')[number % 2]}")
    return [Scheme.from_key(key) for key in keys]


class UnitProgram:
    """All plans of one operator in a library; an emulated one is laid out for ``described`` and runs here."""

    def __init__(
        self, work: Dense, described: Hardware, unit: CpuUnit, folder: Path, emulated: bool, cores: int = 1
    ) -> None:
        self.work, self.schemes = work, schemes_of(unit, described.limits.lanes)
        geometry = replace(Geometry.of(work, described.with_cores(cores), self.schemes), emulated=emulated)
        module = library_module(geometry, self.schemes, Leaf(0), every_plan=True)
        artifact = compile_packing(module, geometry, HERE.with_cores(cores), folder / "units.so")
        self.library = load_library(artifact.path, cores=cores)

    def packed(self, inputs: Mapping[str, Any]) -> Any:
        packed = aligned_empty((int(self.library.packed_floats(*inputs["w"].shape)),))
        packed.fill(np.nan)
        self.library.pack(*(as_tensor(walled(inputs[name])) for name in self.work.constants), packed)
        return packed

    def check(self, inputs: Mapping[str, Any], packed: Any) -> None:
        right, allowed = self.work.reference(inputs), tolerance(self.work, inputs)
        dtype = require_dtype(dtypes_of(self.work)["out"]).numpy
        # What is not written is as wrong as can be.
        unwritten = np.where(right > 0, -128, 127).astype(dtype)
        given = [as_tensor(walled(inputs["x"]))]
        others = [as_tensor(walled(inputs[name])) for name in ("residual",) if name in inputs]
        for plan, scheme in enumerate(self.schemes):
            out = walled(unwritten)
            self.library.run_plan(*given, packed, *others, as_tensor(out), plan)
            error = np.abs(out.astype(np.float64) - right).max(initial=0.0)
            assert error <= allowed, (str(self.work), scheme.key, right.shape, error, allowed)


def walled(array: Any) -> Any:
    """A copy that ends where memory ends that may be touched."""
    words = fenced(np.zeros(-(-array.nbytes // 4), np.float32)).view(np.uint8)
    copy = words[words.size - array.nbytes :].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def check_all(program: UnitProgram) -> None:
    packed = None
    for rows in ROWS:
        inputs = program.work.inputs(Shape.of(T=rows), seed=3)
        packed = program.packed(inputs) if packed is None else packed
        program.check(inputs, packed)


def fills(unit: CpuUnit, work: Dense) -> bool:
    """Whether a unit's instructions fill the reduction."""
    return not UNITS[unit].matrix or work.K % (UNITS[unit].per_step * UNITS[unit].tile_steps) == 0


def each_unit() -> list[Any]:
    """Every unit with the operators that fill it; in `make test` with one of them, in turn."""
    found = []
    for row, (unit, facts) in enumerate(UNITS.items()):
        works = [work for work in WORK.get(facts.dtype, ()) if fills(unit, work)]
        found += [
            pytest.param(unit, work, marks=() if row % len(works) == column else pytest.mark.thorough)
            for column, work in enumerate(works)
        ]
    return found


@pytest.mark.parametrize(("unit", "work"), each_unit())
def test_unit_is_right_on_every_processor(unit: CpuUnit, work: Dense, tmp_path: Path) -> None:
    """By its own instruction here, or as its definition says in the layout of a processor that has it."""
    has = unit in HERE.limits.units(work.dtype)
    check_all(UnitProgram(work, HERE if has else AVX512, unit, tmp_path, emulated=not has))


@pytest.mark.parametrize("unit", [unit for unit, facts in UNITS.items() if facts.processors])
def test_instruction_is_right_where_it_is(unit: CpuUnit, tmp_path: Path) -> None:
    work = next(work for work in WORK[UNITS[unit].dtype] if fills(unit, work))
    if unit not in HERE.limits.units(work.dtype):
        pytest.skip(f"this processor, {HERE.limits.llvm_cpu} to LLVM, has no {unit}")
    check_all(UnitProgram(work, HERE, unit, tmp_path, emulated=False, cores=2))


INT8_UNITS = [unit for unit, facts in UNITS.items() if facts.dtype == "int8"]


@pytest.mark.parametrize(("unit", "out_dtype"), in_turn(INT8_UNITS, ("float32", "int8")))
def test_int8_at_the_ends_of_its_range_is_exact(unit: CpuUnit, out_dtype: str, tmp_path: Path) -> None:
    """-128 x -128 in every term, where 16-bit sums of two products would overflow, and every sign."""
    work = Dense(T, 37, 64, dtype="int8", out_dtype=out_dtype)
    has = unit in HERE.limits.units("int8")
    program = UnitProgram(work, HERE if has else AVX512, unit, tmp_path, emulated=not has)
    # Sums are up to 2**20: with a power of two every result is exact in float32.
    scale = np.full(37, 2.0**-13 if out_dtype == "int8" else 1.0, np.float32)
    for x_end, w_end in product(np.array([-128, 127], np.int8), repeat=2):
        inputs = {"x": np.full((5, 64), x_end), "w": np.full((37, 64), w_end), "scale": scale}
        program.check(inputs, program.packed(inputs))
    saturated = work.reference(
        {"x": np.full((1, 64), -128), "w": np.full((37, 64), -128), "scale": np.ones(37)}
    )
    assert saturated.max() == (127 if out_dtype == "int8" else 2**20)


def test_deepest_int8_sum_fits_int32(tmp_path: Path) -> None:
    depth = 2**17 - 1
    work = Dense(T, 3, depth, dtype="int8")
    unit = next(unit for unit in HERE.limits.units("int8") if fills(unit, work))
    program = UnitProgram(work, HERE, unit, tmp_path, emulated=False)
    ends = {"x": np.full((2, depth), -128, np.int8), "w": np.full((3, depth), -128, np.int8)}
    inputs = {**ends, "scale": np.ones(3, np.float32)}
    assert work.reference(inputs).max() > 2**31 - 2**15
    program.check(inputs, program.packed(inputs))
    with pytest.raises(WorkloadError, match="131071 terms"):
        replace(work, K=depth + 1)


def test_int8_that_cannot_be_is_refused() -> None:
    for wrong in ({"activation": "gelu_erf", "out_dtype": "int8"}, {"out_dtype": "float16"}):
        with pytest.raises(WorkloadError):
            Dense(T, 8, 8, dtype="int8", **wrong)
    with pytest.raises(WorkloadError, match="float32 operands is float32"):
        Dense(T, 8, 8, out_dtype="int8")
    with pytest.raises(WorkloadError):
        BatchMatmul(T, 2, 8, "nt", "int8")


def test_values_survive_json() -> None:
    for work in (*WORK["int8"], *WORK["bfloat16"], Dense(T, 8, 8)):
        assert Dense.from_json(work.to_json()) == work
    assert "out_dtype" not in Dense(T, 8, 8, dtype="bfloat16").to_json()


def library_of(work: Workload, folder: Path) -> Operator:
    scheme = next(s for s in build_space(work, HERE) if s.rows == 3)
    return build(Dispatcher(work, HERE, (scheme,), Leaf(0)), folder)


def test_operator_takes_arrays_and_refuses_scales_that_are_no_numbers(tmp_path: Path) -> None:
    work = Dense(T, 24, 20, dtype="int8", bias=True)
    inputs = work.inputs(Shape.of(T=4))
    operator = library_of(work, tmp_path)
    out = operator(*inputs.values())
    assert out.dtype == np.float32 and np.abs(out - work.reference(inputs)).max() <= tolerance(work, inputs)
    for wrong in (np.nan, np.inf):
        scale = inputs["scale"].copy()
        scale[7] = wrong
        with pytest.raises(WorkloadError, match=r"scale\[7\]"):
            operator.pack(inputs["w"], inputs["bias"], scale=scale)
    with pytest.raises(DispatchError, match="to pack must be w, scale, bias"):
        operator.pack(inputs["w"], inputs["bias"])
    with pytest.raises(DispatchError):
        operator.pack(inputs["w"], inputs["bias"], scale=inputs["scale"])(inputs["x"].astype(np.float32))
    nothing = operator.pack(inputs["w"], inputs["bias"], scale=np.zeros(24, np.float32))(inputs["x"])
    assert (nothing == inputs["bias"]).all()


def test_bfloat16_operator_takes_both_kinds_of_arrays_and_keeps_what_is_no_number(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    work = Dense(T, 24, 20, dtype="bfloat16")
    inputs = work.inputs(Shape.of(T=4))
    layer = library_of(work, tmp_path).pack(inputs["w"])
    special = inputs["x"].copy()
    special[0, 3], special[1, 3], special[2, 3] = np.nan, np.inf, -np.inf
    out = layer(special).astype(np.float32)
    signs = np.sign(inputs["w"][:, 3].astype(np.float32))
    assert np.isnan(out[0]).all()
    assert (out[1] == signs * np.inf).all() and (out[2] == -signs * np.inf).all()
    assert np.isfinite(out[3]).all()
    tensor = torch.from_numpy(inputs["x"].astype(np.float32)).bfloat16()
    assert (layer(tensor).float().numpy() == layer(inputs["x"]).astype(np.float32)).all()


def test_units_are_those_of_the_processor() -> None:
    units = [AVX512.limits.units(dtype) for dtype in ("float32", "int8", "bfloat16")]
    assert units == [("fma",), ("vnni", "maddwd"), ("bf16dot", "bf16fma")]
    assert Hardware.preset("haswell-1core").limits.units("int8") == ("maddwd",)
    assert ARM.limits.units("int8") == () and ARM.limits.units("bfloat16") == ("bf16fma",)
    assert AMX.limits.units("int8") == ("amxint8", "vnni", "maddwd")
    assert AMX.limits.units("bfloat16") == ("amxbf16", "bf16dot", "bf16fma")
    assert AVX512.peak_for("int8") == 4 * (AVX512.peak_gflops or 0) and ARM.peak_for("int8") is None


def test_space_has_units_of_the_operands_type_only() -> None:
    for dtype, units in (("int8", {"vnni"}), ("bfloat16", {"bf16dot", "bf16fma"}), ("float32", {"fma"})):
        found = {s.kernel.unit for s in build_space(Dense(T, 256, 256, dtype=dtype), AVX512)}
        assert found == units
    for work, processor in (
        (Dense(T, 64, 64, dtype="int8"), ARM),
        (Dense(T, 64, 64, dtype="float16"), AVX512),
        (Dense(T, 64, 64, dtype="int8", constant=False), AVX512),
        (Dense(T, 64, Dim(8, 64), dtype="int8"), AVX512),
    ):
        with pytest.raises(SpaceError, match="at least one scheme"):
            build_space(work, processor)
    with pytest.raises(SpaceError, match=r"rejected candidates: the micro-kernel's unit multiplies int8 \("):
        build_space(Dense(T, 64, 64, dtype="int8"), Hardware.preset("h100"))


def test_tiles_of_amx_fit_its_registers_and_fill_the_reduction() -> None:
    for dtype, step in (("int8", 64), ("bfloat16", 32)):
        found = build_space(Dense(T, 256, 4 * step, dtype=dtype), AMX)
        tiles = {(s.rows // 16, s.cols // 16) for s in found if s.kernel.facts.matrix}
        assert tiles == {(1, n) for n in range(1, 7)} | {(m, 1) for m in range(2, 7)} | {(2, 2)}
        for scheme in found:
            registers = matrix_registers(scheme.kernel, 16)
            used = (*registers.sums, *registers.weights, *registers.inputs)
            assert not scheme.kernel.facts.matrix or (sorted(used) == list(range(8)) and all(registers))
        uneven = build_space(Dense(T, 256, 4 * step + 4, dtype=dtype), AMX)
        assert {s.kernel.facts.tile_rows for s in uneven} == {1}


FORBIDDEN = """
import ctypes, sys
# A filter of system calls in which arch_prctl(ARCH_REQ_XCOMP_PERM, ...) fails.
rules = [(0x20, 0, 0, 0), (0x15, 0, 3, 158), (0x20, 0, 0, 16), (0x15, 0, 1, 0x1023),
         (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
class Rule(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jumps", ctypes.c_ubyte * 2), ("k", ctypes.c_uint)]
class Rules(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("first", ctypes.c_void_p)]
table = (Rule * len(rules))(*((code, (yes, no), k) for code, yes, no, k in rules))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Rules(len(rules), ctypes.addressof(table))), 0, 0) == 0
from dietlab.machine import Hardware
from dietlab.targets.cpu.machine import amx_permitted
assert not amx_permitted()
assert Hardware.detect(measure=False).limits.llvm_cpu != "sapphirerapids"
if len(sys.argv) > 1:
    import numpy as np
    from pathlib import Path
    from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
    library = load_library(Path(sys.argv[1]), cores=1)
    w, scale, packed = np.ones((96, 64), np.int8), np.ones(96, np.float32), None
    packed = aligned_empty((int(library.packed_floats(96, 64)),))
    library.pack(*map(as_tensor, (w, scale)), packed)
    try:
        library.run(*map(as_tensor, (np.ones((3, 64), np.int8), packed, np.zeros((3, 96), np.int8))))
    except Exception as error:
        print(error)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="arch_prctl is Linux's, on x86-64"
)
def test_amx_that_the_system_forbids_is_no_unit_and_no_fault(tmp_path: Path) -> None:
    """In a process whose system refuses the tiles: another family is detected, and a library that has them
    says so in place of the instruction that would end the process."""
    arguments = []
    if "amxint8" in HERE.limits.units("int8"):
        scheme = Scheme.from_key("16x32.u16.ws.p0.amxint8.even")
        arguments = [str(compile_plans(WORK["int8"][-1], HERE, [scheme], Leaf(0), tmp_path / "a.so").path)]
    command = [sys.executable, "-c", FORBIDDEN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert not arguments or "lets this process use AMX" in done.stdout, (done.stdout, done.stderr)


def test_program_of_a_matrix_unit_can_be_read() -> None:
    text = source_of(WORK["int8"][-1], AMX, Scheme.from_key("32x32.u16.ws.p0.amxint8.even"))
    assert text.count("tdpbssd") >= 4 and "tilestored64" in text


def test_wrong_unit_is_no_program(tmp_path: Path) -> None:
    work = Dense(T, 64, 64, dtype="int8")
    other = Scheme.from_key("3x16.u1.ws.p0.even")
    with pytest.raises(BuildError, match="multiplies int8"):
        compile_plans(work, HERE, [other], Leaf(0), tmp_path / "a.so")
    mixed = [Scheme.from_key(f"3x16.u1.ws.p0.{unit}.even") for unit in ("maddwd", "vnni")]
    with pytest.raises(BuildError, match="packed in one layout"):
        Geometry.of(work, AVX512, mixed)


def test_keys_name_the_unit() -> None:
    for unit in UNITS:
        size = "32x16.u32" if UNITS[unit].matrix else "6x16.u2"
        key = f"{size}.ws.p0a.even" if unit == "fma" else f"{size}.ws.p0a.{unit}.even"
        assert Scheme.from_key(key).key == key and Scheme.from_key(key).kernel.unit == unit
    with pytest.raises(SpaceError):
        Scheme.from_key("6x16.u2.ws.p0a.mmx.even")
    for odd in ("6x16.u16", "16x16.u2"):
        with pytest.raises(SpaceError, match="multiples of 16 and 16"):
            Scheme.from_key(f"{odd}.ws.p0a.amxint8.even")


CODE = {
    "maddwd": ("znver3", "5x16.u1.ws.p0.maddwd.even", "vpmaddwd", 20),
    "vnni": ("sapphirerapids", "12x32.u1.ws.p0.vnni.even", "vpdpbusd", 24),
    "amxint8": ("sapphirerapids", "32x32.u32.ws.p0.amxint8.even", "tdpbssd", 8),
    "amxbf16": ("sapphirerapids", "16x96.u16.ws.p0.amxbf16.even", "tdpbf16ps", 6),
    "bf16dot": ("sapphirerapids", "12x32.u1.ws.p0.bf16dot.even", "vdpbf16ps", 24),
    "bf16fma": ("znver3", "4x16.u1.ws.p0.bf16fma.even", "vfmadd", 16),
}


@pytest.mark.parametrize("unit", CODE)
def test_inner_loop_is_the_instruction_and_saves_no_register(unit: str) -> None:
    """Compiled for a processor that need not be here: as many of the instruction in the loop as the tile has
    vectors (twice, where a step takes two), and no vector goes to the stack and back."""
    llvm_cpu, key, instruction, count = CODE[unit]
    lanes = 8 if llvm_cpu == "znver3" else 16
    described = Hardware.preset("haswell-1core" if lanes == 8 else "zen4-1core")
    described = replace(described, limits=replace(described.limits, llvm_cpu=llvm_cpu))
    scheme = Scheme.from_key(key)
    depth = 256 * scheme.kernel.facts.tile_steps
    work = Dense(Dim(scheme.rows, scheme.rows), 256, depth, dtype=scheme.kernel.facts.dtype)
    geometry = Geometry.of(work, described, [scheme])
    only = [[{"T": scheme.rows}]]
    with tvm.transform.PassContext(disabled_pass=["tirx.NarrowDataType"]):
        module = library_module(geometry, [scheme], Leaf(0), only=only)
        built = tvm.compile(module, target=target_of(described), tir_pipeline="tirx")
    loops = loop_bodies(built.mod.inspect_source("asm"))
    # LLVM may repeat a short loop's body.
    counts = [sum(instruction in line for line in body) for body in loops]
    inner = [body for body, found in zip(loops, counts, strict=True) if found and found % count == 0]
    assert inner, counts
    if scheme.kernel.facts.matrix:
        inner = [min(inner, key=len)]  # around it stands the loop that reads what tiles left on the stack
    registers = "%zmm" if lanes == 16 else "%ymm"
    for body in inner:
        to_or_from_stack = rf"{registers}\d+, -?\d*\(%rsp|\(%rsp.*{registers}"
        moved = [line for line in body if re.search(to_or_from_stack, line)]
        assert not moved, moved


def loop_bodies(assembly: str) -> list[list[str]]:
    """Returns the instructions from each label to a jump back to it."""
    lines = [line.strip() for line in assembly.splitlines()]
    places = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    bodies = []
    for number, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.\w+)$", line)
        if jump and places.get(jump[1], number) < number:
            bodies.append(lines[places[jump[1]] : number])
    return bodies


def test_command_line_names_the_types(tmp_path: Path) -> None:
    options = ["--dim", "T=1:8", "--dim", "N=64", "--dim", "K=64", "--dtype", "int8", "--out-dtype", "int8"]
    shown = CliRunner().invoke(main, ["space", *options])
    assert shown.exit_code == 0, shown.output
    assert ("int8" in shown.output and "maddwd" in shown.output) or "vnni" in shown.output

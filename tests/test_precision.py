"""A type of operands is one value: what follows from it, and a new one is known by its entry alone."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatch

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT

from dietlab.base.errors import DietlabError, WorkloadError
from dietlab.lower.runtime import as_tensor
from dietlab.machine import Hardware
from dietlab.problem import (
    PRECISIONS,
    USUAL,
    WORKING,
    BatchMatmul,
    Dense,
    Dim,
    Precision,
    Shape,
    dtypes_of,
    precision_of,
    require_workload,
    tolerance,
    workload_from_json,
)
from dietlab.scheme import build_space
from dietlab.targets.cpu.device import HostOutput
from dietlab.targets.cpu.units import UNITS, WORD_BYTES
from dietlab.targets.cuda.unit import PIECES, TENSOR_CORES_SINCE

COMPARED = {
    "lab/published/tables.py": "tables of others' layers, which are of one type",
    "targets/cpu/contenders/onnx_runtime.py": "another form of ONNX for int8",
    "targets/cpu/contenders/pytorch.py": "forms that oneDNN has for a type",
    "targets/cuda/contenders/pytorch.py": "forms that cuBLAS has for a type",
    "targets/cuda/lowering/compiler.py": "TVM's passes for bfloat16",
}
"""The modules that compare with the name of a type, and why."""

NAMED = (
    "problem/precision.py",
    "targets/cpu/units.py",
    "targets/cuda/unit.py",
    "targets/cpu/lowering/*.py",  # in instructions and their operands
    "targets/cuda/lowering/compiler.py",
    "targets/cuda/ansor.py",  # TVM's rules by type
    "targets/*/contenders/*.py",
    "compare/suites/suite.py",
    "compare/suites/gpu.py",
    "compare/results/criteria.py",
    "lab/*.py",
)
"""The modules that may name a type other than the usual one: units, vendors, what is measured and asked."""


def constants(node: ast.AST) -> set[object]:
    return {found.value for found in ast.walk(node) if isinstance(found, ast.Constant)}


def test_no_other_module_compares_with_the_name_of_a_type() -> None:
    compared, named = set(), set()
    for path in sorted((ROOT / "dietlab").rglob("*.py")):
        name, tree = path.relative_to(ROOT / "dietlab").as_posix(), ast.parse(path.read_text())
        comparisons = [node for node in ast.walk(tree) if isinstance(node, (ast.Compare, ast.MatchValue))]
        if any(constants(node) & {*PRECISIONS} for node in comparisons):
            compared.add(name)
        if constants(tree) & {*PRECISIONS} - {USUAL}:
            named.add(name)
    assert compared == set(COMPARED)
    assert not [name for name in named if not any(fnmatch(name, pattern) for pattern in NAMED)]
    assert len(named) <= 20


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_types_of_operands_follow_from_that_of_the_operator(dtype: str) -> None:
    work = Dense(4, 3, 5, True, dtype, residual=True)
    precision = precision_of(work)
    assert precision is PRECISIONS[dtype]
    inputs = {name: str(array.dtype) for name, array in work.inputs(Shape.of()).items()}
    assert {**inputs, "out": dtypes_of(work)["out"]} == dtypes_of(work)
    assert precision_of(work, "out").name == (precision.outputs[0] if precision.scaled else dtype)
    assert ("scale" in work.signature) == precision.scaled
    assert precision.narrow == (precision.itemsize < 4)


def test_whole_numbers_have_exact_sums_of_bounded_length() -> None:
    int8 = PRECISIONS["int8"]
    assert int8.ends == (np.iinfo(np.int8).min, np.iinfo(np.int8).max)
    assert int8.longest == 2**17 - 1 and WORKING.longest is None
    assert int8.rounded(np.float32([-999, -2.5, 3.5, 999])).tolist() == [-128, -2, 4, 127]
    assert int8.rounding(1e9) == 0.5 and WORKING.rounding(1e9) == 0.0
    assert PRECISIONS["float16"].rounding(1.0) == (2.0**-10 + 2.0**-24) / 2
    drawn = int8.standard_normal((1, 2), (10000,)).astype(float)
    assert np.std(drawn) == pytest.approx(int8.deviation, rel=0.05)


def test_units_multiply_types_that_there_are() -> None:
    for facts in UNITS.values():
        assert facts.per_step * PRECISIONS[facts.dtype].itemsize == WORD_BYTES
    assert {name for pieces in PIECES.values() for name in pieces.types} <= {*PRECISIONS}
    assert set(TENSOR_CORES_SINCE) == set(PIECES["mma"].types)


FLOAT8 = Precision("float8_e4m3fn", 1, 4, 2.0**-9, guard=-448.0, dlpack=10)


def test_a_new_type_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRECISIONS, FLOAT8.name, FLOAT8)
    work = Dense(Dim(1, 8), 3, 5, True, FLOAT8.name)
    require_workload(work)
    assert str(work) == "dense T=1..8 N=3 K=5 float8_e4m3fn +bias"
    assert workload_from_json(json.loads(json.dumps(work.to_json()))) == work
    assert work.bytes(Shape.of(T=2)) == 10 + 15 + 3 + 6
    inputs = work.inputs(Shape.of(T=2))
    assert {array.dtype for array in inputs.values()} == {np.dtype(ml_dtypes.float8_e4m3fn)}
    right = work.reference(inputs)
    stored = FLOAT8.rounded(right.astype(np.float32)).astype(float)
    assert (np.abs(stored - right) <= tolerance(work, inputs)).all()
    assert str(as_tensor(inputs["x"]).dtype) == "float8_e4m3fn"
    output = HostOutput((2, 3), FLOAT8.numpy)
    output.poison()
    assert output.intact and np.isnan(output.array.astype(float)).all()
    output.buffer[0] = 1.0
    assert not output.intact
    hardware = Hardware.preset("zen4-1core")
    assert hardware.peak_for(FLOAT8.name) is None
    with pytest.raises(DietlabError, match="the micro-kernel's unit multiplies float8_e4m3fn"):
        build_space(work, hardware)
    h100 = Hardware.preset("h100")
    assert h100.peak_for(FLOAT8.name) is None and h100.peak_for("float16") == h100.limits.half_gflops
    with pytest.raises(DietlabError, match="the micro-kernel's unit multiplies float8_e4m3fn"):
        build_space(work, h100)
    with pytest.raises(WorkloadError, match="an output of float8_e4m3fn operands is float8_e4m3fn"):
        Dense(4, 3, 5, dtype=FLOAT8.name, out_dtype="float32")


def test_a_new_scaled_type_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = Precision("int4", 1, 3, 1.0, "int32", ("float32", "int4"), (-8, 7), 2.0, dlpack=0)
    monkeypatch.setitem(PRECISIONS, "int4", scaled)
    work = Dense(4, 3, 5, dtype="int4", out_dtype="int4", activation="relu")
    require_workload(work)
    assert str(work) == "dense T=4 N=3 K=5 int4 to int4 relu"
    assert list(work.signature) == ["x", "w", "scale", "out"]
    inputs = work.inputs(Shape.of())
    assert np.abs(work.reference(inputs)).max() <= 8 and tolerance(work, inputs) >= 0.5
    with pytest.raises(
        WorkloadError, match=f"sums of int4 products must have at most {(2**31 - 1) // 64} terms"
    ):
        Dense(4, 3, 2**26, dtype="int4")
    with pytest.raises(WorkloadError, match="dtype is one of float32, float16, bfloat16"):
        BatchMatmul(4, 3, 5, dtype="int4")

"""What lowering decides by itself is a value: it changes the program, and files say it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import in_turn, python
from schemes import cpu_scheme

from dietlab.base.errors import BuildError, DietlabError, RecordError
from dietlab.compare.study import Study
from dietlab.lower.decisions import DEFAULTS, UNRECORDED, Lowering
from dietlab.lower.program import compile_plans
from dietlab.machine import Hardware
from dietlab.measure import RecordStore, SyntheticRunner, read_records
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet, Workload, tolerance
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.library import library_module
from dietlab.targets.cpu.lowering.micro_kernel import tile_function
from dietlab.tuning import Dispatcher, Operator, build

PROCESSOR = replace(Hardware.preset("haswell-1core"), peak_gflops=100.0, dram_gbps=20.0)
LAYER = Dense(T=Dim(1, 64), N=48, K=512)
EVERY = Dense(T=Dim(1, 64), N=Dim(1, 256), K=Dim(1, 512))
PRODUCTS = BatchMatmul(Dim(1, 64), 3, 24, "nt")
OTHERWISE: dict[str, tuple[Any, Workload, str]] = {
    "short_rows": (5, PRODUCTS, "4x16.u2.ws.p0.even"),
    "least_ahead_bytes": (1 << 12, PRODUCTS, "4x16.u2.ws.p0a.even"),
    "prefetch_all_from": (2.5, LAYER, "4x16.u2.ws.p0a.even"),
    "rows_l2_share": (0.25, LAYER, "4x16.u2.ws.p0.even"),
    "single_tile_whole_depth": (False, LAYER, "4x16.u2.ws.p0.k256.even"),
    "single_tile_own_lines": (False, LAYER, "4x16.u2.ws.p0a.even"),
    "rows_together": (2, EVERY, "4x16.u2.ws.p0.even"),
}
"""Another value of each field, and an operator and a scheme whose program it changes."""

ALL_OTHERWISE = Lowering(**{name: value for name, (value, _, _) in OTHERWISE.items()})


def script(work: Workload, key: str, lowering: Lowering) -> str:
    schemes = [Scheme.from_key(key)]
    module = library_module(Geometry.of(work, PROCESSOR, schemes, lowering), schemes, Leaf(0))
    return str(module.script(show_meta=False))


@pytest.mark.parametrize("name", [field.name for field in fields(Lowering)])
def test_every_decision_changes_a_program(name: str) -> None:
    value, work, key = OTHERWISE[name]
    assert script(work, key, Lowering(**{name: value})) != script(work, key, DEFAULTS)


PROGRAMS: list[tuple[Workload, str]] = [
    (EVERY, "13x16.u4.ws.p0a.even"),
    (EVERY, "5x32.u3.ws.p24a.k256.rest"),
    (LAYER, "6x16.u4.ws.p0a.k256.even"),
    (PRODUCTS, "4x16.u2.ws.p0a.even"),
    (replace(PRODUCTS, form="nn", D=21), "7x16.u4.ws.p16.even"),
]
LOWERINGS = (ALL_OTHERWISE, DEFAULTS, Lowering(rows_together=0, short_rows=0))


@pytest.mark.parametrize(
    ("program", "lowering"),
    in_turn(PROGRAMS, LOWERINGS),
    ids=lambda one: one[1] if isinstance(one, tuple) else None,
)
def test_programs_are_right_whatever_was_decided(
    program: tuple[Workload, str], lowering: Lowering, here: Hardware, tmp_path: Path
) -> None:
    work, key = program
    dispatcher = Dispatcher(work, here, (Scheme.from_key(key),), Leaf(0))
    op = build(dispatcher, tmp_path, lowering=lowering)
    for rows, cols, depth in ((1, 1, 1), (5, 40, 19), (14, 256, 512), (33, 65, 300), (61, 48, 256)):
        sizes = {name: {"T": rows, "N": cols, "K": depth}[name] for name in work.dims}
        inputs = work.inputs(Shape.of(**sizes))
        error = np.abs(op(*inputs.values()) - work.reference(inputs)).max()
        assert error <= tolerance(work, inputs), sizes
    assert Operator(op.path.parent, op.manifest).lowering == lowering
    assert json.loads((op.path.parent / "manifest.json").read_text())["lowering"] == lowering.to_json()


def test_tiles_that_are_no_whole_vectors_are_refused(tmp_path: Path) -> None:
    wide = Hardware.preset("zen4-1core")
    dispatcher = Dispatcher(EVERY, wide, (Scheme.from_key("14x8.u4.ws.p0a.even"),), Leaf(0))
    with pytest.raises(BuildError, match=r"columns of a tile .* multiple of 16"):
        build(dispatcher, tmp_path)


# Rows whose distance only the call knows


@pytest.mark.parametrize(("rows", "pointers"), [(1, 1), (3, 1), (4, 2), (14, 5)])
def test_three_rows_share_a_pointer_where_their_distance_is_a_variable(rows: int, pointers: int) -> None:
    scheme = cpu_scheme(rows, 8, 4, edge="even")

    def hidden(work: Workload) -> int:
        geometry = Geometry.of(work, PROCESSOR, [scheme])
        return str(tile_function(scheme.kernel, geometry, "exact").script()).count("launder")

    assert hidden(EVERY) == pointers + 1  # and the weights
    assert hidden(LAYER) == 0


def innermost(library: Path, multiply_adds: int) -> list[list[str]]:
    """The loops of that many multiply-adds with none inside them, as machine instructions."""
    how = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    lines = subprocess.run(how, capture_output=True, text=True, check=True).stdout.splitlines()
    code = [
        (int(at, 16), text)
        for at, _, text in (line.partition(":") for line in lines)
        if text.strip() and re.fullmatch(r"\s*[0-9a-f]+", at)
    ]
    numbers = {at: number for number, (at, _) in enumerate(code)}
    loops = []
    for number, (_, text) in enumerate(code):
        jump = re.match(r"\s*j\w+\s+([0-9a-f]+)", text)
        if jump and (begin := numbers.get(int(jump[1], 16), number)) < number:
            loops.append([line for _, line in code[begin : number + 1]])
    return [loop for loop in loops if sum("vfmadd" in line for line in loop) == multiply_adds]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="nothing here reads machine code")
def test_rows_that_share_pointers_are_not_spilled(tmp_path: Path) -> None:
    """Of 14 rows with a pointer each most are read from the stack in every step."""

    def reads(lowering: Lowering) -> int:
        path = tmp_path / "library.so"
        only = [[Shape.of(T=14, N=64, K=64)]]
        schemes = [Scheme.from_key("14x8.u4.ws.p0a.even")]
        compile_plans(EVERY, PROCESSOR, schemes, Leaf(0), path, only=only, lowering=lowering)
        loops = innermost(path, 14 * 4)
        assert loops
        pattern = r"(mov|add)\s.*\(%rsp\),%r"
        return min(sum(re.search(pattern, line) is not None for line in loop) for loop in loops)

    assert reads(DEFAULTS) <= 4 and reads(Lowering(rows_together=0)) >= 14


# The value


def test_it_is_read_back_as_it_was_written() -> None:
    assert Lowering.from_json(json.loads(json.dumps(ALL_OTHERWISE.to_json()))) == ALL_OTHERWISE
    assert set(OTHERWISE) == set(UNRECORDED) == set(DEFAULTS.to_json())


@pytest.mark.parametrize("old", [None, {}, {"short_rows": 16}])
def test_what_a_file_does_not_say_is_what_was_decided_when_files_began_to(old: Any) -> None:
    assert Lowering.from_json(old) == Lowering(**{**UNRECORDED, **(old or {})})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"short": 3},
            r"a lowering must have the fields short_rows, .*; got short\. Open it with the version",
        ),
        ({"short_rows": -1}, "short_rows needs a int, 0 or more; got -1"),
        ({"short_rows": 2.5}, "short_rows needs a int, 0 or more; got 2.5"),
        ({"single_tile_own_lines": 1}, "single_tile_own_lines needs a bool"),
        ({"rows_l2_share": 1.5}, "rows_l2_share must be above 0 and at most 1; got 1.5"),
        ({"rows_l2_share": 0}, "rows_l2_share must be above 0 and at most 1; got 0"),
    ],
)
def test_what_is_none_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(DietlabError, match=message) as caught:
        Lowering.from_json(value)
    assert isinstance(caught.value, (BuildError, RecordError))


def test_it_is_known_without_tvm() -> None:
    python("-c", "import sys; sys.modules['tvm'] = None; import dietlab.lower.decisions")


# In files


def study_in(folder: Path) -> Study:
    layer = Dense(T=Dim(1, 16), N=64, K=32)
    return Study.create(folder, layer, PROCESSOR, ShapeSet.uniform(layer, n=2), "smoke")


def test_records_say_it_and_those_of_another_are_refused_by_name(tmp_path: Path) -> None:
    study = study_in(tmp_path / "study")
    study.tune(SyntheticRunner(study.hardware))
    path = study.folder / "records.jsonl"
    assert read_records(path).lowering == DEFAULTS
    assert read_records(path).header["lowering"] == DEFAULTS.to_json()
    known = len(RecordStore(path, study.header).records)
    other = {**study.header, "lowering": Lowering(short_rows=16, rows_together=0).to_json()}
    message = "short_rows was 32, is 16, rows_together was 3, is 0. Tune into a new folder"
    with pytest.raises(RecordError, match=message):
        RecordStore(path, other)
    assert len(read_records(path).records) == known


def test_records_of_before_it_was_recorded_are_gone_on_with(tmp_path: Path) -> None:
    study = study_in(tmp_path / "study")
    header = {name: value for name, value in study.header.items() if name != "lowering"}
    path = tmp_path / "records.jsonl"
    RecordStore(path, header)
    assert read_records(path).lowering == Lowering(**UNRECORDED)
    RecordStore(path, study.header)

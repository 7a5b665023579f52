"""Parallel coordinates, the table of trials, the shared choice and the kernel inspector."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dietlab as dl
from dietlab.base.errors import MissingDependencyError, RecordError, SpaceError, WorkloadError
from dietlab.measure import Record
from dietlab.problem import Shape
from dietlab.targets.cpu.lowering.assembly import read_assembly
from dietlab.targets.cpu.view.padding_explorer import padding_explorer
from dietlab.tuning import TuningRun
from dietlab.view.figures.coordinates import frame_space, plot_space, shapes_measured
from dietlab.view.static.picture import redraw
from dietlab.view.widgets import kernel_inspector
from dietlab.view.widgets.choice import Choice
from dietlab.view.widgets.coordinates_explorer import ALL, coordinates_explorer
from dietlab.view.widgets.kernel_inspector import frame_kernel, inspect_kernel
from dietlab.view.widgets.table_filter import rows_that_fit
from dietlab.view.widgets.trials_table import PAGE_ROWS, trials_table

ZEN4 = dl.Hardware.preset("zen4-1core")
WORK = dl.Dense(T=dl.Dim(1, 128), N=768, K=256)
KEY = "6x32.u4.ws.p0"


# --- the choice ---------------------------------------------------------------------------------


def test_a_choice_is_a_scheme_or_none() -> None:
    choice = Choice()
    assert choice.scheme is None and choice.micro_kernel is None
    choice.choose(KEY)
    assert choice.scheme == dl.Scheme.from_key(KEY) and choice.micro_kernel == choice.scheme.kernel
    choice.choose(None)
    assert choice.key == ""
    for wrong in (7, ["6x32"], b"6x32"):
        with pytest.raises(SpaceError, match="a choice must be a scheme or its key"):
            choice.choose(wrong)  # type: ignore[arg-type]
    with pytest.raises(SpaceError, match="a scheme's key reads like"):
        choice.choose("no key")
    assert choice.key == ""


def test_the_padding_explorer_shows_the_tile_of_the_choice() -> None:
    choice = Choice()
    explorer = choice.link(padding_explorer(WORK, ZEN4))
    choice.choose("5x48.u8.is.p0")
    assert (explorer.values["rows"], explorer.values["cols"]) == (5, 48)
    explorer.controls["rows"].value = 4
    assert choice.key == "4x48.u8.is.p0"
    kept = explorer.values
    choice.choose("8x4096.u1.ws.p0")
    assert explorer.values == kept
    choice.choose("128x64x16.t16x16.s3.even")
    assert explorer.values == kept
    with pytest.raises(SpaceError, match="a control for schemes can be linked"):
        choice.link(dl.space_explorer(WORK, ZEN4))


# --- parallel coordinates -----------------------------------------------------------------------


def test_each_scheme_is_a_line_to_its_speed(synthetic_run: TuningRun) -> None:
    at = shapes_measured(synthetic_run)[0]
    frame = frame_space(synthetic_run)
    assert set(frame["scheme"]) == {scheme.key for scheme in synthetic_run.schemes}
    known = {r.scheme.key: r for r in synthetic_run.records if r.ok and r.shape == at}
    assert set(frame["scheme"][frame["measured"]]) == set(known) and known
    for row in frame[frame["measured"]].itertuples():
        # Measurements of a scheme differ by noise.
        assert row.seconds == pytest.approx(known[row.scheme].seconds, rel=0.15)
        assert row.gflops * row.seconds * 1e9 == pytest.approx(synthetic_run.space.workload.flops(at))
    (lines,) = plot_space(synthetic_run).data
    assert lines.type == "parcoords" and lines.dimensions[-1].label == "GFLOP/s"
    assert list(lines.line.color) == frame["gflops"].tolist()
    assert all(len(set(dim.values)) > 1 for dim in lines.dimensions)
    (space,) = plot_space(synthetic_run.space).data
    assert len(space.dimensions[0].values) == len(synthetic_run.space)


def test_the_static_picture_draws_lines_and_fades_what_is_not_brushed(synthetic_run: TuningRun) -> None:
    key = frame_space(synthetic_run)["scheme"].iloc[0]
    figure = plot_space(synthetic_run, scheme=key)
    axes = redraw(figure).axes[0]
    faded, shown = axes.collections[:2]
    assert len(shown.get_segments()) == 1
    assert len(faded.get_segments()) == len(synthetic_run.schemes) - 1
    (whole,) = plot_space(synthetic_run).data
    texts = [text.get_text() for text in axes.texts]
    assert [dim.label for dim in whole.dimensions if dim.label not in texts] == []
    assert not [text.get_text() for text in redraw(figure).texts if "Not in this picture" in text.get_text()]
    assert len(redraw(figure).axes) > 1 or axes.child_axes, "the colours have a key"


def test_a_space_of_something_else_is_refused(synthetic_run: TuningRun) -> None:
    with pytest.raises(SpaceError, match="a TuningRun or a Space; got list"):
        plot_space([])  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="an extent for each of T; got N=8"):
        frame_space(synthetic_run, Shape.of(N=8))
    with pytest.raises(SpaceError, match="one of the table; got nobody"):
        plot_space(synthetic_run, scheme="nobody")
    empty = replace(synthetic_run, records=())
    assert plot_space(empty).layout.annotations[0].text == "nothing was measured"
    assert "got no records" in coordinates_explorer(empty).drawn.note


def test_the_explorer_of_coordinates_follows_a_choice(synthetic_run: TuningRun) -> None:
    choice = Choice()
    explorer = coordinates_explorer(synthetic_run, choice)
    assert explorer.values["scheme"] == ALL
    keys = explorer.controls["scheme"].options[1:]
    choice.choose(keys[3])
    assert explorer.values["scheme"] == keys[3] and "place " in explorer.drawn.numbers[keys[3]]
    explorer.controls["scheme"].value = keys[5]
    assert choice.key == keys[5]
    explorer.controls["shape"].value = explorer.controls["shape"].options[-1]
    assert explorer.frame["measured"].sum() < len(explorer.frame) + 1


# --- the filter ---------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "scheme": ["8x32.u4", "6x16.u1", "8x16.u2"],
        "rows": [8, 6, 8],
        "T": [64, 64, 8],
        "seconds": [1.0, np.nan, 3.0],
        "order": ["ws", "is", None],
    }
)


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("", [0, 1, 2]),
        ("8X", [0, 2]),
        ("rows >= 8 and T == 64", [0]),
        ("rows >= 8 or order == 'is'", [0, 1, 2]),
        ("not rows == 8", [1]),
        ("6 < rows <= 8", [0, 2]),
        ("seconds > 0", [0, 2]),
        ("rows * T > 500", [0]),
        ("-rows < -7", [0, 2]),
        ("T / (rows - rows) > 1", [0, 1, 2]),
        ("scheme == '6x16.u1'", [1]),
        ("1 == 1", [0, 1, 2]),
        ("1 / 0 > 2", [0, 1, 2]),
    ],
)
def test_conditions_choose_rows(text: str, fitting: list[int]) -> None:
    assert np.flatnonzero(rows_that_fit(FRAME, text)).tolist() == fitting


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rows >=", "a filter must be a condition"),
        ("height > 3", "a condition must name columns; got height. They are: scheme, rows"),
        ("rows > 'a'", "a number can only be compared with a number"),
        ("order > 3", "a number can only be compared with a number"),
        ("__import__('os').system('true') == 0", "can only have columns, numbers and texts"),
        ("rows == [8]", "can only have columns, numbers and texts"),
        ("(lambda: 1)() == 1", "can only have columns, numbers and texts"),
        ("rows and T == 3", "each part of a condition must compare; got rows"),
        ("order + 1 > 2", "arithmetic needs numbers"),
        ("'a' * 9999999999 == 'b'", "arithmetic needs numbers"),
        ("rows == 1 and " * 60 + "T == 2", "at most 300"),
    ],
)
def test_a_bad_condition_is_a_sentence(text: str, complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint.replace("(", r"\(").replace(")", r"\)")):
        rows_that_fit(FRAME, text)


@given(text=st.text(alphabet="rowsT <>=()'+-*/8.andot[]", max_size=20))
def test_any_text_filters_or_is_refused(text: str) -> None:
    try:
        fitting = rows_that_fit(FRAME, text).shape
    except RecordError as error:
        fitting = (3,) if "; got " in str(error) else ()
    assert fitting == (3,)


# --- the table ----------------------------------------------------------------------------------


def test_the_table_sorts_filters_and_pages(synthetic_run: TuningRun) -> None:
    table = trials_table(synthetic_run)
    whole = synthetic_run.to_frame()
    assert table.frame.equals(whole) and len(table.model.shown["rows"]) == PAGE_ROWS
    table.model.asked = {"sort": "gflops", "count": 1}
    assert table.frame["gflops"].dropna().is_monotonic_increasing
    table.model.asked = {"sort": "gflops", "count": 2}
    assert table.frame["gflops"].dropna().is_monotonic_decreasing and table.model.shown["descending"]
    first = table.model.shown["rows"][0]
    table.controls["page"].value = 2
    assert table.model.shown["rows"][0] != first
    table.controls["filter"].value = "rows >= 8 and T == 64"
    expected = whole[(whole["rows"] >= 8) & (whole["T"] == 64)]
    assert set(table.frame["record"]) == set(expected["record"]) and table.controls["page"].value == 1
    before = table.frame
    table.controls["filter"].value = "rows >= <b>"
    assert "a filter must be a condition" in unescape(table.note) and "<b>'" not in table.note
    assert table.frame.equals(before)
    table.controls["filter"].value = "nothing like it"
    assert table.frame.empty and table.model.shown["rows"] == [] and "0 of" in table.note
    table.model.asked = {"sort": "no column", "scheme": "no key", "count": 3}
    assert table.choice.key == ""


def test_what_all_trials_have_in_common_is_a_sentence_and_no_column(synthetic_run: TuningRun) -> None:
    table = trials_table(synthetic_run)
    names = [name for name, _ in table.model.shown["columns"]]
    counts = synthetic_run.to_frame().astype(str).nunique()
    assert "order" in names and {"record", "scheme", "status", "seconds", "gflops"} <= set(names)
    assert all(counts[name] > 1 for name in names if name not in ("status",))
    assert counts["unit"] == 1 and "unit" not in names and "unit fma" in table.note
    table.controls["filter"].value = "unit == 'fma'"
    assert len(table.frame) == len(synthetic_run.records)
    assert all(len(row) == len(names) for row in table.model.shown["rows"])


def test_a_row_that_is_clicked_is_the_choice_of_the_others(synthetic_run: TuningRun) -> None:
    choice = Choice()
    table, explorer = trials_table(synthetic_run, choice), coordinates_explorer(synthetic_run, choice)
    key = table.model.shown["schemes"][2]
    table.model.asked = {"scheme": key, "count": 1}
    assert choice.key == explorer.values["scheme"] == table.model.shown["chosen"] == key
    last = str(table.frame["scheme"].iloc[-1])
    choice.choose(last)
    assert last in table.model.shown["schemes"]
    bundle, _ = table._repr_mimebundle_()
    assert key in bundle["text/html"] or "<table" in bundle["text/html"]


def test_a_table_needs_records_and_shows_failures(synthetic_run: TuningRun) -> None:
    with pytest.raises(RecordError, match="must be a TuningRun; got DataFrame"):
        trials_table(synthetic_run.to_frame())
    with pytest.raises(RecordError, match="needs records; got none"):
        trials_table(replace(synthetic_run, records=()))
    failed = Record(synthetic_run.schemes[0], Shape.of(T=8), "crashed")
    table = trials_table(replace(synthetic_run, records=(failed,)))
    names = [name for name, _ in table.model.shown["columns"]]
    assert table.model.shown["rows"][0][names.index("seconds")] == ""


# --- the inspector ------------------------------------------------------------------------------

LOOP = """f:
\tvmovups\t%zmm1, 8(%rsp)
.LBB0_1:
\txorl\t%eax, %eax
.LBB0_2:
\tvmovaps\t(%rdx), %zmm2
\t.p2align\t4
\tvfmadd231ps\t%zmm1, %zmm2, %zmm3
\tvmovups\t64(%rsp), %zmm4
\tjne\t.LBB0_2
\tcmpq\t%rax, %rbx
\tjne\t.LBB0_1
\tjmp\t.LBB0_9
.LBB0_9:
\tretq"""


def test_the_inner_loop_is_found_and_counted() -> None:
    found = read_assembly(LOOP.splitlines())
    assert len(found.loop) == 4 and found.loop[0] == "vmovaps (%rdx), %zmm2"
    assert (found.multiply_adds, found.vector_registers, found.loop_spills, found.spills) == (1, 4, 1, 2)
    assert read_assembly([]).loop == read_assembly(["f:", "\tret"]).loop == ()


def test_the_bound_of_a_kernel_is_in_parts() -> None:
    frame = frame_kernel(WORK, ZEN4, KEY)
    assert frame["share"].sum() == pytest.approx(1) and (frame["bound_seconds"] >= 0).all()
    bound = dl.cost.adaptation_cost(WORK, ZEN4).bound([dl.Scheme.from_key(KEY)], [Shape.of(T=128)])[0, 0]
    assert frame["bound_seconds"].sum() == pytest.approx(bound)
    with pytest.raises(SpaceError, match="a Scheme, its key or a Choice; got 3"):
        inspect_kernel(WORK, ZEN4, 3)  # type: ignore[arg-type]
    with pytest.raises(SpaceError, match="a scheme's key reads like"):
        inspect_kernel(WORK, ZEN4, "no key")


def test_the_inspector_follows_the_choice() -> None:
    pytest.importorskip("tvm")
    choice = Choice()
    inspector = inspect_kernel(WORK, ZEN4, choice)
    assert not any(inspector.sections.values())
    choice.choose(KEY)
    assert "@T.prim_func" in unescape(inspector.sections["TensorIR"])
    assert "vfmadd" in inspector.sections["assembly of the inner loop"]
    # 12 accumulators and at least one register of each operand; none of them spilt.
    registers = inspector.sections["registers"]
    assert "vector registers of the loop" in registers and " of 32<" in registers
    assert "stack in the loop</td><td>0<" in registers
    before = inspector.sections
    choice.choose("2x16.u1.ws.p0")
    assert inspector.sections != before and KEY not in inspector._title.value
    choice.choose("128x64x16.t16x16.s3.even")
    assert "made for" in inspector.sections["TensorIR"]
    assert "<h4>TensorIR</h4>" in inspector._repr_mimebundle_()[0]["text/html"]


def test_without_a_compiler_a_tab_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise MissingDependencyError("building needs the package apache-tvm", "none", "pip install it")

    for name in ("_source", "_compiled"):
        monkeypatch.setattr(kernel_inspector, name, missing)
    inspector = inspect_kernel(WORK, ZEN4, KEY)
    for name in ("TensorIR", "assembly of the inner loop", "registers"):
        assert "building needs the package apache-tvm" in inspector.sections[name]
    assert "No call on T=128 takes less than" in inspector.sections["parts of the bound"]

"""What a prompt and a notebook show of a value: short whatever its size, and true to it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from statistics import geometric_mean
from timeit import repeat
from typing import Any

import pandas as pd
import pytest
from conftest import python
from schemes import cpu_scheme, cuda_scheme

import dietlab as dl
from dietlab import view
from dietlab.base.cards import (
    ROWS,
    WHOLE,
    Card,
    Carded,
    Fold,
    Listing,
    Quantity,
    bytes_text,
    cell_text,
    seconds_text,
)
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ContenderInfo
from dietlab.compare.study import Study
from dietlab.lab import lessons
from dietlab.machine import Hardware
from dietlab.measure import RecordFile
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.scheme import Scheme, build_space
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.tuning import choose_portfolio

QKV = Dense(T=Dim(1, 128), N=2304, K=768)
LONG = Dense(T=Dim(1, 2048), N=2304, K=768)
ZEN4 = Hardware.preset("zen4-1core")

VALUES: dict[str, Callable[[Path], Carded]] = {
    "space": lambda _: build_space(QKV, ZEN4),
    "space of a GPU": lambda _: build_space(LONG, Hardware.preset("h100")),
    "run": lambda _: lessons.replayed_run(),
    "portfolio": lambda _: choose_portfolio(lessons.replayed_run(), max_kernels=8),
    "dispatcher": lambda _: lessons.replayed_dispatcher(),
    "report": lambda _: lessons.report(),
    "report on two cores": lambda _: lessons.report(2),
    "records": lambda _: lessons.recorded(),
    "shapes": lambda _: ShapeSet.traffic(LONG, "serving").split(),
    "hardware": lambda _: ZEN4,
    "GPU": lambda _: Hardware.preset("h200"),
    "study": lambda path: Study.create(path, LONG, ZEN4, ShapeSet.every(LONG)),
}


class Page(HTMLParser):
    """A card as a browser reads it: tags that are open, texts by tag, and rows of tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1], data))
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def of(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]

    @property
    def facts(self) -> dict[str, str]:
        return dict(zip(self.of("dt"), self.of("dd"), strict=True))


def page(value: Carded) -> Page:
    return Page(value._repr_html_())


# --- every type -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_value_of_real_size_is_shown_on_one_line_and_on_one_card(name: str, tmp_path: Path) -> None:
    value = VALUES[name](tmp_path / "study")
    text, html = repr(value), value._repr_html_()
    assert text.startswith(f"<{type(value).__name__} ") and text.endswith(">")
    assert "\n" not in text and len(text) <= 400
    assert str(value) == text
    assert len(html.encode()) <= 20_000
    found = Page(html)
    assert not found.open, "every tag is closed"
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert found.of("summary") and found.tags.count("details") == len(found.of("summary"))
    for label, number in found.facts.items():
        assert f"{number} {label}" in text, "the text and the card are made of the same facts"


def test_style_reaches_no_further_than_the_card() -> None:
    (style,) = page(ZEN4).of("style")
    selectors = [each for rule in re.findall(r"([^{}]+)\{", style) for each in rule.strip().split(",")]
    assert selectors and all(selector.strip().startswith(".dietlab-card") for selector in selectors)
    for variable in re.findall(r"var\((--[^)]*)", style):
        assert "," in variable, "a page that is not JupyterLab's has no such variable"


def test_what_is_not_ours_is_escaped() -> None:
    name = '<script>alert("x")</script> & co'
    chip = replace(ZEN4, name=name, source="<b>a data sheet</b>")
    report = replace(lessons.report(), notes=("<i>noisy</i>",), contenders=(ContenderInfo("<u>", "plain"),))
    for value in (chip, build_space(QKV, chip), replace(report, hardware={"name": name})):
        html = value._repr_html_()
        assert "<script>" not in html and "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; co" in html
        assert "<b>a data" not in html and "<i>" not in html and "<u>" not in html
        assert name in repr(value)


def test_names_and_texts_of_any_length_leave_a_card_small() -> None:
    chip = replace(ZEN4, name="x" * 10_000, source="y" * 10_000)
    assert len(repr(chip)) <= 400 and len(chip._repr_html_()) <= 20_000


def test_long_table_shows_its_first_rows_and_says_how_many_more_there_are() -> None:
    asked: list[int] = []

    def cells(item: int) -> tuple[int]:
        asked.append(item)
        return (item,)

    def rows(count: int) -> list[list[str]]:
        section = Fold("Numbers", lambda: Listing(("number",), range(count), cells))
        return Page(Card("Numbers", "some", (Quantity("1", "fact"),), (section,)).html).rows[1:]

    assert rows(1488) == [*([str(i)] for i in range(ROWS)), ["... 1,480 more"]]
    assert asked == list(range(ROWS)), "nothing is computed for rows that are not shown"
    assert rows(WHOLE) == [[str(i)] for i in range(WHOLE)]
    assert rows(0) == []


def test_sections_without_rows_are_left_out() -> None:
    html = Card("Empty", "value", (), (Fold("Failures", lambda: Listing(("reason",), ())),)).html
    assert "Failures" not in html


CELLS = {1088: "1,088", 0.12345678: "0.1235", True: "yes", False: "no", None: "", math.nan: "", "ws": "ws"}


@pytest.mark.parametrize(("value", "text"), CELLS.items())
def test_cells(value: Any, text: str) -> None:
    assert cell_text(value) == text


def test_units_suit_the_amount() -> None:
    times = (83.14e-6, 1.5e-3, 12.04, 1080.0, None, math.nan)
    assert [seconds_text(t) for t in times] == ["83.1 us", "1.50 ms", "12.0 s", "18 min", "", ""]
    assert [bytes_text(n) for n in (512, 32 << 10, 3 << 19)] == ["512 bytes", "32 KiB", "1.5 MiB"]


# --- what they say ----------------------------------------------------------------------------


def test_card_of_a_space_counts_its_micro_kernels_and_what_was_rejected() -> None:
    space = build_space(QKV, ZEN4)
    found, table = page(space), space.rejections
    assert found.facts == {
        "schemes": f"{len(space):,}",
        "micro-kernels": f"{len(space.micro_kernels):,}",
        "candidates rejected": f"{table['rejected'].sum():,}",
    }
    assert [f"... {len(space) - ROWS:,} more"] in found.rows
    assert ["rows", "30", "1 to 30"] in found.rows and ["order", "2", "is, ws"] in found.rows
    for row in table.itertuples():
        assert any(cells[:2] == [row.reason, f"{row.rejected:,}"] for cells in found.rows)


def test_text_of_a_large_space_takes_microseconds() -> None:
    space = build_space(QKV, ZEN4)
    assert len(space) > 1500
    assert min(repeat(lambda: repr(space), number=20, repeat=20)) / 20 < 300e-6


def test_values_are_shown_without_tvm_pandas_or_plotly() -> None:
    code = """import sys, dietlab as dl
space = dl.build_space(dl.Dense(T=dl.Dim(1, 8), N=64, K=32), dl.Hardware.preset('zen4-1core'))
print(repr(space), len(space._repr_html_()))
assert not {'tvm', 'pandas', 'plotly', 'ipywidgets'} & set(sys.modules), sys.modules.keys()"""
    python("-c", code)


def test_card_of_a_run_has_the_best_and_the_failures() -> None:
    run = lessons.replayed_run()
    first = run.records[0]
    broken = replace(first, status="build_failed", seconds=None, reason="the compiler <said> so")
    found = page(replace(run, records=(*run.records, broken)))
    best = max(record.gflops(QKV) for record in run.records)
    assert found.facts["measurements"] == f"{len(run.measurements) + 1}"
    assert found.facts["schemes"] == f"{run.trials}"
    assert (found.facts["failed"], found.facts["at best"]) == ("1", f"{best:.1f} GFLOP/s")
    assert ["build_failed", "1", "the compiler <said> so"] in found.rows
    fastest = min((r for r in run.records if r.shape == Shape.of(T=24)), key=lambda r: r.seconds or 1)
    cells = ["T=24", fastest.scheme.key, "ok", seconds_text(fastest.seconds)]
    assert [*cells, cell_text(fastest.gflops(QKV))] in found.rows


def test_card_of_records_counts_them_and_names_the_cache() -> None:
    file = lessons.recorded()
    kernels = {record.scheme for record in file.records}
    assert page(file).facts == {
        "measurements": f"{len(file.records):,}",
        "schemes": f"{len(kernels):,}",
        "failed": "0",
        "cache": "hot",
    }
    assert (file.workload, file.hardware) == (lessons.workload(), lessons.hardware())


def test_card_of_records_of_nobody_knows_what() -> None:
    file = RecordFile({"workload": {"operator": "sort"}}, lessons.recorded().records[:3])
    assert "3 measurements" in repr(file) and "without an operator" in repr(file)


def test_card_of_a_report_has_the_speedup_over_the_best_prepacked_vendor() -> None:
    report = lessons.report()
    found = page(report)
    line = next(s for s in report.summary if s.contender == "best prepacked vendor" and s.cache == "hot")
    prepacked = {c.name for c in report.contenders if c.kind == "prepacked"}
    fastest: dict[Shape, Any] = {}
    for row in report.rows:
        if row.cache == "hot" and row.contender in prepacked:
            fastest[row.shape] = min(row, fastest.get(row.shape, row), key=lambda r: r.seconds_median)
    mean = geometric_mean(row.speedup for row in fastest.values())
    assert found.facts["over best prepacked vendor (hot cache)"] == f"{mean:.2f}x"
    assert found.facts["at worst"] == f"{line.worst_speedup:.2f}x"
    assert found.facts["shapes"] == "128"
    regret = report.quality["hot"]["mean_regret_percent"]
    assert ["hot", "mean regret percent", f"{regret:.4g}"] in found.rows


def test_a_report_of_nothing_or_without_a_length_says_what_it_is_of() -> None:
    report = Report({"operator": "sort"}, {"name": "a CPU"}, {}, {}, {}, ())
    assert repr(report) == "<Report sort on a CPU: 0 shapes, 0 contenders>"
    assert "details" not in page(report).tags
    static = Report(dl.Dense(T=8, N=16, K=32).to_json(), {})
    assert (static.length, static.title, static.padding) == ("", "dense T=8 N=16 K=32", ())


def test_card_of_a_portfolio_and_its_dispatcher_agree_with_them() -> None:
    portfolio, dispatcher = choose_portfolio(lessons.replayed_run()), lessons.replayed_dispatcher()
    found, tree = page(portfolio), page(dispatcher)
    assert found.facts["micro-kernels"] == str(len(portfolio.micro_kernels))
    assert found.facts["mean slowdown"] == f"{portfolio.curve[-1][1]:.3f}x"
    assert tree.facts["mean slowdown"] == f"{dispatcher.expected_slowdown:.3f}x"
    assert tree.facts["rules"] == str(dispatcher.to_source().count("return"))
    first = next(row for row in tree.rows if row[:1] == ["1"])
    assert first[3] == dispatcher.scheme(Shape.of(T=1)).key


def test_card_of_a_shape_set_has_its_range_and_shares() -> None:
    shapes = ShapeSet.weighted(QKV, {5: 1, 24: 3}).split(0.5)
    assert repr(shapes) == "<ShapeSet T=5..24: 2 shapes, 1 held out>"
    assert [row[1] for row in page(shapes).rows[1:]] == ["25.0 %", "75.0 %"]
    assert repr(ShapeSet.of({Shape(()): 1.0})) == "<ShapeSet a static operator: 1 shape>"


def test_card_of_a_processor_has_every_figure_with_its_unit() -> None:
    found = page(ZEN4)
    assert found.facts == {
        "core": "1",
        "float32 peak": f"{ZEN4.total_gflops:.0f} GFLOP/s",
        "memory": f"{ZEN4.dram_gbps:.0f} GB/s",
    }
    assert ["dram", f"{ZEN4.dram_gbps:g} GB/s"] in found.rows
    assert ["l2", bytes_text(ZEN4.limits.l2_bytes)] in found.rows
    assert ["llvm cpu", ZEN4.limits.llvm_cpu] in found.rows
    assert page(Hardware.preset("h100")).facts["multiprocessors"] == "132"


def test_card_of_a_study_tells_which_stages_were_done(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "dense", QKV, ZEN4, ShapeSet.uniform(QKV))
    (study.folder / "records.jsonl").write_bytes(b"x" * 2048)
    (study.folder / "library").mkdir()
    (study.folder / "library" / "library.so").write_bytes(b"x" * 1024)
    rows = page(study).rows
    assert ["build", "library/library.so", "1 KiB"] in rows
    assert ["tune", "records.jsonl", "2 KiB"] in rows and ["evaluate", "report.json", "not yet"] in rows
    assert "quick effort, draft strategy" in repr(study)


def test_schemes_are_written_as_their_keys() -> None:
    cpu, cuda = cpu_scheme(8, 32, 4, "ws", 16, "even"), cuda_scheme(64, 64, 16, 16, 16)
    assert str(cpu) == cpu.key == "8x32.u4.ws.p16.even"
    assert str(cuda) == cuda.key == "64x64x16.t16x16.s2"
    assert repr(cpu).startswith("Scheme(kernel=CpuMicroKernel(rows=8, cols=32, unroll=4, prefetch=16, ")


# --- tables -----------------------------------------------------------------------------------


def test_rejections_are_shown_to_the_last_letter() -> None:
    table = build_space(QKV, ZEN4).rejections
    longest = max(table["reason"], key=len)
    assert len(longest) > pd.get_option("display.max_colwidth")
    assert longest in table._repr_html_()
    assert longest not in pd.DataFrame(table)._repr_html_(), "everybody else's tables are as they were"


def test_frame_of_a_space_has_a_column_for_each_parameter() -> None:
    space = build_space(QKV, ZEN4)
    frame = space.to_frame()
    assert len(frame) == len(space)
    row, kernel = frame.iloc[-1], space.schemes[-1]
    assert isinstance(kernel.kernel, CpuMicroKernel)
    assert cpu_scheme(**row.drop("scheme")) == Scheme.from_key(row["scheme"]) == kernel
    gpu = build_space(LONG, Hardware.preset("t4")).to_frame()
    assert {"scheme", "step", "down", "across", "stages", "unit", "splits"} <= set(gpu.columns)


def test_frames_of_a_run_and_of_records_are_the_records() -> None:
    run = lessons.replayed_run()
    frame = run.to_frame()
    assert frame["record"].tolist() == list(range(1, len(run.records) + 1))
    for row, record in zip(frame.itertuples(), run.records, strict=True):
        plan, seconds = record.scheme, (record.seconds, record.gflops(QKV), record.spread)
        assert (row.T, row.scheme, row.rows) == (record.shape["T"], plan.key, plan.rows)
        assert (row.seconds, row.gflops, row.spread) == seconds
    failed = replace(run.records[0], status="timeout", seconds=None, reason="slow")
    (last,) = replace(run, records=(failed,)).to_frame().itertuples()
    assert math.isnan(last.seconds) and math.isnan(last.gflops)
    assert (last.status, last.reason) == ("timeout", "slow")
    assert list(replace(run, records=()).to_frame().columns[:3]) == ["record", "T", "scheme"]
    file = lessons.recorded()
    assert file.to_frame()["seconds"].sum() == pytest.approx(sum(r.seconds or 0 for r in file.records))


def test_frame_of_a_portfolio_is_its_table_of_seconds() -> None:
    portfolio = choose_portfolio(lessons.replayed_run())
    frame = portfolio.to_frame()
    assert (frame["slowdown"] >= 1 - 1e-12).all()
    assert frame.groupby("T")["weight"].first().sum() == pytest.approx(1)
    wide = frame.pivot(index="scheme", columns="T", values="expected_seconds")
    for plan, seconds in zip(portfolio.schemes, portfolio.seconds, strict=True):
        known = [s if math.isfinite(s) else math.nan for s in seconds]
        assert wide.loc[plan.key].tolist() == pytest.approx(known, nan_ok=True)


def test_frame_of_a_dispatcher_says_what_it_chooses() -> None:
    dispatcher = lessons.replayed_dispatcher()
    frame = dispatcher.to_frame()
    assert (
        frame["low"].tolist()[1:]
        == (frame["high"].tolist()[:-1] + pd.Series(1)[0].repeat(len(frame) - 1)).tolist()
    )
    for row in frame.itertuples():
        assert row.scheme == dispatcher.schemes[row.plan].key == dispatcher.scheme(Shape.of(T=row.low)).key
    assert frame["high"].isna().tolist() == [False] * (len(frame) - 1) + [True]


def test_frame_of_a_shape_set() -> None:
    shapes = ShapeSet.traffic(QKV, "bert").split()
    frame = shapes.to_frame()
    assert frame["weight"].tolist() == list(shapes.weights)
    assert {Shape.of(T=t) for t in frame["T"][frame["held_out"]]} == shapes.held_out


def test_frame_of_hardware_is_a_row_with_every_figure() -> None:
    (row,) = ZEN4.to_frame().to_dict("records")
    assert (row["name"], row["kind"], row["cores"]) == (ZEN4.name, "cpu", 1)
    assert (row["l2_bytes"], row["dram_gbps"]) == (ZEN4.limits.l2_bytes, ZEN4.dram_gbps)
    assert Hardware.preset("h100").to_frame()["registers_per_sm"].tolist() == [65536]


def test_every_value_with_a_table_calls_it_to_frame() -> None:
    values = [getattr(dl, name) for name in dl.__all__]
    offered = {value.__name__ for value in values if hasattr(value, "to_frame")}
    known = "ResultTable Dispatcher Hardware Portfolio Report ShapeSet Space TuningRun"
    assert offered >= {*known.split()}
    named = [value.__name__ for value in values if inspect.isfunction(vars_of(value).get("frame"))]
    assert not named, "a method frame(); an explorer's property is the table that it shows now"


def vars_of(value: Any) -> dict[str, Any]:
    return {name: member for cls in getattr(value, "__mro__", ()) for name, member in vars(cls).items()}


APART = (
    "dietlab.view.widgets.panel_plots",
    "dietlab.lab.strategies.figures",
    "dietlab.view.figures.ratios",
    "dietlab.view.figures.table",
)
"""Figures of a panel's state, which only a panel has, of values that are tables themselves, and of a table
that the reader made."""


def test_every_figure_is_at_the_top_with_its_table() -> None:
    halves = [name for name in dl.__all__ if name.startswith(("frame_", "plot_"))]
    assert len(halves) > 30
    for found in walk_packages(view.__path__, "dietlab.view."):
        module = import_module(found.name)
        for name, value in vars(module).items():
            half = name.startswith(("frame_", "plot_")) and value.__module__ == found.name
            assert not half or found.name in APART or getattr(dl, name, None) is value, name
    plots, frames = ({n.removeprefix(h) for n in halves if n.startswith(h)} for h in ("plot_", "frame_"))
    assert plots - frames == {"bench_roofline", "bench_speedup"}, "they draw a report's tables"

"""``docs/results.md``, the README's table and its picture are what ``data/results`` says."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import gpu_picture
import gpu_text
import model_table as model_table_module
import pytest
from claims_page import claims_page
from conftest import ROOT
from model_table import model_table
from readme_table import END, START, readme_table, with_block
from results_index import INDEX, Machine, read_index
from results_page import MEANINGS, ablation_text, on_gpu, results_page
from results_text import MISSED, target_of, value_of
from search_page import search_page
from speedup_picture import DARK, LIGHT, Curve, Theme, curve_of, draw, is_drawn
from test_bench_layers import HAND_MADE

from dietlab.base.errors import RecordError
from dietlab.compare.results import by_workload, summarise
from dietlab.compare.results.criteria import GPU_CRITERIA
from dietlab.compare.results.row import OURS
from dietlab.compare.results.table import COLUMNS, ResultTable
from dietlab.lab.ablation import SYMBOLIC
from dietlab.lab.reproduce.findings import claims_table
from dietlab.lab.reproduce.paper import DENSE, read_claims
from dietlab.tuning.strategies.paper import PaperStrategy

RESULTS = ROOT / "data" / "results"
PAGE = ROOT / "docs" / "results.md"
README = (ROOT / "README.md").read_text(encoding="utf-8")
REMEDY = "run python docs/make_results.py"
LARGEST = 120 * 1024
"""Bytes of a picture: the README should open at once."""


@pytest.fixture(scope="module")
def machines() -> tuple[Machine, ...]:
    return read_index(RESULTS)


@pytest.fixture(scope="module")
def curve(machines: tuple[Machine, ...]) -> Curve:
    return curve_of(machines[0])


# --- what is committed --------------------------------------------------------------------------


def test_page_is_what_the_tables_say(machines: tuple[Machine, ...]) -> None:
    assert PAGE.read_text(encoding="utf-8") == results_page(machines), REMEDY


def test_claims_are_what_the_data_say() -> None:
    page = claims_page(ROOT / "data")
    assert (ROOT / "docs/claims.md").read_text(encoding="utf-8") == page


def test_the_page_on_searching_is_what_the_data_say() -> None:
    page = search_page(ROOT / "docs", ROOT / "data")
    assert (ROOT / "docs/search.md").read_text(encoding="utf-8") == page, REMEDY


def test_the_page_on_the_papers_search_has_its_constants() -> None:
    page = " ".join((ROOT / "docs/search_paper.md").read_text(encoding="utf-8").split())
    paper = PaperStrategy()
    assert f"a population of {paper.population}" in page and f"{paper.generations} generations" in page
    assert f"with probability {paper.mutation};" in page and f"{paper.kept} kept" in page
    assert f"{paper.warm_up} samples" in page and f"for every {paper.sharpening} trials" in page


def test_the_page_on_pytorch_has_the_table_of_the_models() -> None:
    page = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
    table = model_table(RESULTS)
    assert "the best of all" in table
    assert with_block(page, table, model_table_module.START, model_table_module.END) == page, REMEDY


def test_a_claim_that_nobody_looks_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    text = "id,experiment,claim,source,reported\nmoon,dense,the moon,section 9,1.5\n"
    (tmp_path / "paper" / "claims.csv").write_text(text, encoding="utf-8")
    with pytest.raises(KeyError, match="moon"):
        claims_page(tmp_path)


def test_readme_has_the_table_of_the_same_data(machines: tuple[Machine, ...]) -> None:
    assert with_block(README, readme_table(machines)) == README, REMEDY


def test_what_the_pages_say_of_gpus_is_what_the_data_say(machines: tuple[Machine, ...]) -> None:
    (machine,) = (machine for machine in machines if on_gpu(machine.bench))
    said = gpu_text.gpu_sentence(machines)
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    assert with_block(README, said, gpu_text.START, gpu_text.END) == README, REMEDY
    for block in gpu_text.page_blocks(ROOT / "data", machine):
        assert with_block(page, *block) == page, REMEDY
    # A value never looks like a goal that it misses, and the miss is marked.
    lines = [x for x in by_workload(machine.bench, GPU_CRITERIA) if x.cache == "rotating"]
    for what, beginning in gpu_text.HEADLINES.values():
        found = [x for x in lines if x.criterion.what == what and x.workloads[0].startswith(beginning)]
        least = min(found, key=lambda line: line.value)
        missed = f" (goal {target_of(least.criterion)} ✗)" if least.met is False else ""
        greatest = value_of(max(found, key=lambda line: line.value))
        told = " to ".join(dict.fromkeys([value_of(least), greatest]))
        assert f" at {told}{missed} cuBLAS" in said.replace("\n", " ")
    on_cpus = [machine for machine in machines if not on_gpu(machine.bench)]
    assert gpu_text.gpu_sentence(on_cpus) == "It is measured on x86-64 CPUs."


def test_every_machine_that_measured_the_papers_layer_stands_in_the_claims(
    machines: tuple[Machine, ...],
) -> None:
    measured = {m.name for m in machines if any(report.name == DENSE for report in m.bench.reports)}
    claims = read_claims(ROOT / "data" / "paper" / "claims.csv")
    _, rows = claims_table(claims, RESULTS)
    assert measured and measured <= {row[3].partition(",")[0] for row in rows}


def test_a_name_tells_the_type_of_an_operator(machines: tuple[Machine, ...]) -> None:
    """As the page says of all tables."""
    assert "They are in float32 unless their names end in another type." in PAGE.read_text(encoding="utf-8")
    tables = [result.table for machine in machines for result in machine.results if result.is_table]
    for report in (report for table in tables for report in table.reports):
        dtype = report.operator.dtype
        assert report.name.endswith(dtype) or dtype == "float32", report.name


STALE = re.compile(
    r"(nothing|nobody|no \w+)\b[^.;:|,)]*\b(measured|timed)\b[^.;:|,)]*\b(yet|here|so far)\b"
    r"|\b(measured|timed)\b[^.;:|,)]*\byet\b|\beverything (here )?is (in )?(b?float|int|fp)",
    re.IGNORECASE,
)
"""Sentences on what was not measured: nothing makes them again when it was."""


@pytest.mark.parametrize(
    "text",
    [
        "nothing was measured on a\nGPU yet.",
        "which no GPU has timed yet",
        "No time on a GPU was measured here.",
        "Everything is\nfloat32.",
    ],
)
def test_sentences_that_a_measurement_would_belie_are_known(text: str) -> None:
    assert STALE.search(" ".join(text.split()))


def test_no_page_says_what_the_next_measurement_would_belie() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/**/README.md")]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages}
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        told = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        texts[path.name] = "\n\n".join(told)
    found = {name: STALE.findall(" ".join(text.split())) for name, text in texts.items()}
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.file)
def test_picture_is_of_the_same_data(theme: Theme, curve: Curve) -> None:
    path = ROOT / "docs" / theme.file
    assert is_drawn(curve.fingerprint, path), REMEDY
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("theme", gpu_picture.THEMES, ids=lambda theme: theme.file)
def test_picture_of_a_gpu_is_of_the_same_data(theme: Theme, machines: tuple[Machine, ...]) -> None:
    (machine,) = (machine for machine in machines if on_gpu(machine.bench))
    lines = gpu_picture.lines_of(machine)
    layers = [f"bfloat16, N = {n}, K = {k}" for n, k in ((4096, 4096), (4096, 14336), (14336, 4096))]
    products = [f"float32, batched {form}, B = 192, D = 64" for form in ("NN", "NT")]
    assert {*lines} == {"float32, N = 2304, K = 768", *layers, *products}
    path = ROOT / "docs" / theme.file
    assert is_drawn(gpu_picture.fingerprint(lines), path), REMEDY
    assert path.stat().st_size < LARGEST


# --- what it says -------------------------------------------------------------------------------


def test_every_miss_is_marked_and_listed(machines: tuple[Machine, ...]) -> None:
    text = results_page(machines)
    for machine in machines:
        section = text.split(f"\n## {machine.name}\n")[1].split("\n## ")[0].split("\n### ")[1]
        missed = [line for line in summarise(machine.bench) if line.met is False]
        assert missed and section.count(MISSED) == len(missed)
        listed = [line for line in section.splitlines() if line.startswith("- ") and ", target " in line]
        assert len(listed) == len(missed)
        for line, said in zip(missed, listed, strict=True):
            assert line.criterion.what in said and value_of(line) in said


def test_a_miss_never_looks_like_its_target(machines: tuple[Machine, ...]) -> None:
    for line in summarise(machines[0].bench):
        target = line.criterion.target
        if line.criterion.unit == "x" and target and (limit := target.at_least):
            close = replace(line, value=limit - 0.001, met=False)
            assert value_of(close) == f"{limit - 0.001:.3f}x"
            assert value_of(replace(line, value=limit, met=True)) == f"{limit:.2f}x"


def test_an_ablation_gives_symbolic_extents_over_constant_ones_of_the_same_tile() -> None:
    found = ResultTable.load(RESULTS / "zen4-ablation.csv.gz")
    seconds = {
        OURS: 1.0,
        SYMBOLIC: 1.01,
        "8 rows": 2.0,
        f"8 rows, {SYMBOLIC}": 1.0,
        f"4 rows, {SYMBOLIC}": 3.0,
    }
    (report,) = found.reports
    first = report.rows[0]
    rows = (replace(first, contender=name, seconds_median=us, speedup=us) for name, us in seconds.items())
    table = replace(found, reports=(replace(report, rows=tuple(rows)),))
    text = ablation_text(table)
    assert "| the micro-kernel | 1.010x |" in text and "| 8 rows           | 0.500x |" in text
    assert "4 rows" not in text, "its tile with constants was not timed"
    assert SYMBOLIC not in ablation_text(found)


def test_an_ablation_of_several_operators_has_a_table_of_each() -> None:
    (report,) = ResultTable.load(RESULTS / "zen4-ablation.csv.gz").reports
    rows = tuple(row for row in report.rows if row.contender in (OURS, "bound checks"))
    reports = (replace(report, name=name, rows=rows) for name in ("first", "second"))
    text = ablation_text(ResultTable(tuple(reports)))
    assert text.count("| bound checks |") == 2 and "`first`" in text and "`second`" in text
    assert "epilogue" not in text


def test_every_column_is_explained() -> None:
    assert set(MEANINGS) == set(COLUMNS)


def test_curve_is_the_summary_at_each_length(machines: tuple[Machine, ...], curve: Curve) -> None:
    frame = machines[0].bench.to_frame()
    chosen = frame[(frame["threads"] == 1) & (frame["cache"] == "rotating") & frame["correct"]]
    chosen = chosen[(chosen["kind"] == "prepacked") & chosen["workload"].str.startswith("dense")]
    best = chosen.loc[chosen.groupby(["workload", "T"])["seconds_median"].idxmin()]
    by_length = best.groupby("T")["speedup"]
    assert curve.lengths == tuple(by_length.groups)
    assert curve.least == pytest.approx(by_length.min().tolist())
    assert curve.greatest == pytest.approx(by_length.max().tolist())
    rows = zip(curve.least, curve.mean, curve.greatest, strict=True)
    assert all(low <= mean <= high for low, mean, high in rows)


# --- another machine ------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    shutil.copytree(RESULTS, folder)
    return folder


def edited(folder: Path, name: str) -> None:
    """Adds a machine of this name with the Xeon's table."""
    for ending in (".csv.gz", ".json"):
        shutil.copy(folder / f"xeon-bench{ending}", folder / f"{name}-bench{ending}")
    index = json.loads((folder / INDEX).read_text())
    entry = {
        "file": f"{name}-bench.csv.gz",
        "title": "BERT-base",
        "measured": "2031-01-01, 10:00",
        "commands": ["dietlab bench --out runs/new"],
    }
    index["machines"].append(
        {"name": name, "processor": "A new processor", "setting": "alone", "tables": [entry]}
    )
    (folder / INDEX).write_text(json.dumps(index))


def test_another_machine_needs_files_and_an_entry_only(copied: Path) -> None:
    edited(copied, "zen9")
    machines = read_index(copied)
    text = results_page(machines)
    assert "\n## zen9\n\nA new processor; alone." in text and "dietlab bench --out runs/new" in text
    header, *_ = readme_table(machines).splitlines()
    assert re.findall(r"zen9, [\w ]+core", header) == ["zen9, one core"]


@pytest.mark.parametrize("change", ["no entry", "no file"])
def test_a_table_without_entry_and_an_entry_without_table_are_refused(copied: Path, change: str) -> None:
    if change == "no entry":
        shutil.copy(copied / "xeon-bench.csv.gz", copied / "zen9-bench.csv.gz")
    else:
        (copied / "xeon-bench.csv.gz").unlink()
    with pytest.raises(RecordError, match=r"lists every result once.*(zen9|xeon)-bench\.csv\.gz"):
        read_index(copied)


# --- writing ----------------------------------------------------------------------------------------


def test_picture_is_recognised_by_its_data(curve: Curve, tmp_path: Path) -> None:
    path = tmp_path / "speedup.png"
    assert not is_drawn(curve.fingerprint, path)
    draw(curve, LIGHT, path)
    assert is_drawn(curve.fingerprint, path)
    twice = replace(curve, mean=tuple(2 * mean for mean in curve.mean))
    assert not is_drawn(twice.fingerprint, path)


@pytest.mark.parametrize("text", ["", START, END + START, START + END + START + END])
def test_readme_without_a_place_for_the_table_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="has a place for its table"):
        with_block(text, "table")
    assert with_block(f"a\n{START}\nold\n{END}\nb", "new") == f"a\n{START}\nnew\n{END}\nb"


def test_a_table_of_layers_joins_the_page(copied: Path) -> None:
    HAND_MADE.save(copied / "zen4-layers.csv.gz")
    index = json.loads((copied / INDEX).read_text())
    entry = {"title": "Every layer", "measured": "2031-01-01, 10:00", "commands": ["dietlab bench"]}
    index["machines"][0]["tables"].append({"file": "zen4-layers.csv.gz", **entry})
    (copied / INDEX).write_text(json.dumps(index))
    found = read_index(copied)
    section = results_page(found).split("### Every layer\n")[1].split("\n## ")[0]
    worst = next(line for line in section.splitlines() if "library, worst layer" in line)
    assert ">= 0.95x" in worst and "0.91x (dense-every-layer, K = 301, N = 97) **missed**" in worst
    assert "By layer:" in section and "By length:" in section and "| K=301,N=97 " in section
    assert "peak memory of tuning" in section and "0.60 GB" in section
    assert readme_table(found) == readme_table(read_index(RESULTS))

"""The README and the pages in docs: examples run, on a small operator in place of BERT's; links are right."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Context, Group
from click.testing import CliRunner
from conftest import ROOT

import dietlab as dl
from dietlab.cli.main import main as command
from dietlab.measure import SyntheticRunner
from dietlab.problem import tolerance
from dietlab.scheme import Leaf
from dietlab.targets.cpu.contenders import CONTENDERS

PAGES = ("README.md", "CONTRIBUTING.md", "data/README.md", "data/results/README.md")
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").glob("*.md")))
}
README, LIBRARY = TEXTS["README.md"], TEXTS["docs/library.md"]
LINES = 150
"""Most lines of the README: it is read in one sitting."""

SMALLER = {
    "Dim(1, 128)": "Dim(1, 24)",
    "2304": "80",
    "768": "32",
    "(43, ": "(7, ",
    "n=8)": "n=2)",
    "detect()": "detect(measure=False)",
    'effort="quick"': 'effort="smoke"',
    "ShapeSet.every(dense)": "ShapeSet.uniform(dense, n=3)",
    '["mkl", "openblas", "oracle"], tuned=run': '["openblas", "oracle"], tuned=run, effort="smoke"',
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def smaller(text: str) -> str:
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the names that the README's ten lines leave."""
    folder = tmp_path_factory.mktemp("readme")
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(smaller(blocks(README, "python")[0]), names)
    return folder, names


# --- examples ---------------------------------------------------------------------------------


def test_examples_use_every_substitution() -> None:
    text = "\n".join(blocks(README, "python") + blocks(LIBRARY, "python"))
    assert [old for old in SMALLER if old not in text] == []


def test_ten_lines_tune_build_and_evaluate(loop: tuple[Path, dict[str, Any]]) -> None:
    folder, names = loop
    assert (folder / "runs/dense/library/library.so").is_file()
    assert names["run"].trials > 0
    assert len(names["dispatcher"].micro_kernels) <= 8
    rows = names["report"].rows
    assert {row.contender for row in rows} >= {"dietlab", "openblas", "oracle"}
    assert all(row.correct for row in rows)
    assert len(names["shapes"]) == 2


def test_ten_lines_are_ten() -> None:
    assert len([line for line in blocks(README, "python")[0].splitlines() if line]) == 10


@pytest.mark.thorough
def test_a_model_in_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With computed times and a smaller model; PyTorch's compiler writes no code."""
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    block = blocks(README, "python")[1]
    assert len([line for line in block.splitlines() if line]) <= 10
    small = "BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96)"
    for old, new in {
        "BertConfig()": small,
        "optimize(model)": 'optimize(model, effort="smoke", observers=[])',
        "dynamic=True": 'dynamic=True, backend="aot_eager"',
    }.items():
        assert old in block
        block = block.replace(old, new)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    studies = import_module("dietlab.compare.suites.studies")
    runner = lambda hardware, timing: nullcontext(SyntheticRunner(hardware))  # noqa: E731
    monkeypatch.setattr(studies, "LocalRunner", runner)
    before, names = torch.get_num_threads(), dict[str, Any]()
    try:
        exec(block, names)
    finally:
        torch.set_num_threads(before)
    layers = [m for m in names["model"].modules() if type(m).__name__ == "Linear"]
    assert {type(layer).__module__ for layer in layers} == {"dietlab.torch.layers"}
    assert names["hidden"].shape == (1, 43, 64)


def test_loading_example(loop: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = loop
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(smaller(blocks(LIBRARY, "python")[0]), names)
    np.testing.assert_allclose(names["y"], np.full((7, 80), 32.0), rtol=1e-6)


def test_convolution_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a library of one micro-kernel, with the operator of the command above it."""
    command_line = next(line for line in LIBRARY.splitlines() if line.startswith("dietlab tune conv2d"))
    for option in ("N=1", "H=7:80", "W=7:80", "IC=64", "OC=96", "--kernel 3", "--padding 1", "runs/conv3x3"):
        assert option in command_line
    sides = dict.fromkeys("HW", dl.Dim(7, 80))
    work = dl.Conv2d(N=1, **sides, IC=64, OC=96, kernel=3, padding=1)
    here = dl.Hardware.detect(measure=False).with_cores(1)
    scheme = next(s for s in dl.build_space(work, here) if s.rows == 3)
    dl.build(dl.Dispatcher(work, here, (scheme,), Leaf(0)), tmp_path / "runs" / "conv3x3")
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in blocks(LIBRARY, "py") if "runs/conv3x3" in block)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["y"].shape == (1, 33, 47, 96) and (names["y"][0, 1:-1, 1:-1] == 9 * 64).all()


def test_int8_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a library of one micro-kernel."""
    work = dl.Dense(T=dl.Dim(1, 8), N=24, K=20, dtype="int8")
    here = dl.Hardware.detect(measure=False).with_cores(1)
    scheme = next(s for s in dl.build_space(work, here) if s.rows == 3)
    dl.build(dl.Dispatcher(work, here, (scheme,), Leaf(0)), tmp_path / "runs" / "dense-int8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"dl": dl, **work.inputs(dl.Shape.of(T=4))}
    inputs = {name: names[name] for name in ("x", "w", "scale")}
    exec(blocks(LIBRARY, "py")[0], names)
    assert np.abs(names["y"] - work.reference(inputs)).max() <= tolerance(work, inputs)


def test_example_of_a_network_s_convolutions() -> None:
    (block,) = (block for block in blocks(LIBRARY, "py") if "dl.convolutions" in block)
    exec(block, {"dl": dl})


def test_library_runs_without_dietlab(loop: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = loop
    unused = "\nimport sys\nassert not {'dietlab', 'tvm'} & set(sys.modules)\n"
    script = smaller(blocks(LIBRARY, "python")[1]) + unused
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commands_exist() -> None:
    lines = [line.split() for text in TEXTS.values() for b in blocks(text, "sh") for line in b.splitlines()]
    dietlab = [words for words in lines if words and words[0] == "dietlab"]
    assert len(dietlab) >= 8
    for _, name, *arguments in dietlab:
        found = command.get_command(Context(command), name)
        if isinstance(found, Group):
            found = found.commands[arguments[0]]
        options = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= options, name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    made = {words[1] for words in lines if words and words[0] == "make"}
    assert {"quickstart", "test"} <= made
    assert all(f"\n{target}:" in makefile for target in made)


# --- what the quickstart prints -----------------------------------------------------------------


def form(line: str) -> str:
    """A line without figures, this machine's name, who takes part, and the widths of columns."""
    line = re.sub(r"\bon [^,:]+", "on PROCESSOR", line)
    names = ("best prepacked vendor", "best plain vendor", *sorted(CONTENDERS, key=len, reverse=True))
    line = re.sub(rf"^(\w+) +({'|'.join(map(re.escape, names))}) +\d", r"\1 NAME 0", line)
    line = re.sub(r"(?<= )-(?= )", "1.00x", line)
    line = re.sub(r"\d+ min \d+ s", "1 s", line)
    return re.sub(r"[ -]+", " ", re.sub(r"\d+(\.\d+)?", "#", line)).strip()


def test_quickstart_prints_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements come from a model of a machine here: only the form of the lines is compared."""
    monkeypatch.chdir(tmp_path)
    quickstart, stages = map(import_module, ("dietlab.cli.quickstart", "dietlab.cli.stages"))
    monkeypatch.setattr(quickstart, "QUICKSTART", {"T": "1:24", "N": "80", "K": "32"})
    monkeypatch.setattr(quickstart, "QUICKSTART_AGAINST", ("openblas",))
    monkeypatch.setattr(
        stages, "LocalRunner", lambda hardware, timing: nullcontext(SyntheticRunner(hardware))
    )
    arguments = ["quickstart", "--effort", "smoke", "--shapes", "uniform:2", "--out", "runs/quickstart"]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    printed = {form(line) for line in done.stdout.splitlines()}
    (shown,) = blocks(README, "text")
    lines = [line for line in shown.splitlines() if line != "..."]
    assert len(lines) >= 12
    assert [line for line in lines if form(line) not in printed] == [], "paste a new run into the README"


# --- words and links ----------------------------------------------------------------------------


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= LINES


def test_readme_says_at_once_what_was_measured_on_a_gpu() -> None:
    """``tests/test_results_page.py`` holds what it says against the data."""
    title, first, *_ = README.split("\n\n")
    assert title == "# dietlab" and "on the GPU [H200]" in first and first.count("x cuBLAS") == 2


TERMS = (
    "best vendor library",
    "micro-kernel",
    "plan",
    "dispatcher",
    "plain",
    "prepacked",
    "held-out",
    "rotating",
    "ansor",
    "oracle",
    "portfolio",
)
"""Words of the project that the README uses."""


@pytest.mark.parametrize("term", TERMS)
def test_readme_explains_a_word_where_it_is_used_first(term: str) -> None:
    """The place that explains a word has it in italics."""
    prose = re.sub(r"<picture>.*?</picture>", "", README, flags=re.S)
    first = re.search(rf"(\*?)\b{term}s?\b", prose, re.I)
    assert first is not None and first[1] == "*", prose[first.start() - 40 : first.end()] if first else term


@pytest.mark.parametrize("word", ["regret", "roofline", "interleaved", "p0a", "winner", "dear"])
def test_readme_does_without(word: str) -> None:
    assert not re.search(rf"\b{word}\b", README, re.I)


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
    local = [target for target in targets if not target.startswith("https://")]
    assert [target for target in local if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)]+\.md)\)", README))
    # Parts of docs/results.md and docs/search.md.
    parts = {"docs/results_intro.md", "docs/search_intro.md", "docs/search_paper.md"}
    assert linked == {page for page in TEXTS if page.startswith("docs/")} - parts

"""Lint, types, layers and the budgets of the code's structure."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

import dietlab
import dietlab.view

PACKAGE = ROOT / "dietlab"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400
CHECKS = {
    "ruff": ["-m", "ruff", "check", "."],
    "mypy": ["-m", "mypy"],
    "layers": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_check_passes(check: str) -> None:
    command = [sys.executable, *CHECKS[check]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_are_short_and_none_is_called_utils() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert len(lengths) > 40
    assert not {name: n for name, n in lengths.items() if n > MOST_LINES}
    assert not [name for name in lengths if Path(name).stem in ("utils", "util", "helpers", "misc", "common")]
    assert sorted(lengths.values())[len(lengths) // 2] <= 140


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_module_says_what_it_is_and_never_unpickles(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    if path.name != "carried.py":  # makes what the process that asks entered, which no file tells of
        picklers = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
        assert not {name for name in imported if name.split(".")[0] in picklers}


def test_what_is_unpickled_comes_from_the_process_that_asks() -> None:
    """Only a worker's loop makes known what was entered elsewhere; it reads its parent's pipe."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "dietlab.base.carried"
        if "enter" in {alias.name for alias in node.names}
    }
    assert users == {"measure/timing/process.py"}


def test_nine_functions_of_ten_are_short() -> None:
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert sum(n < 40 for n in lengths) >= 0.9 * len(lengths)


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import dietlab, sys; assert not {'tvm','plotly','ipywidgets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
    every_name = "import dietlab; [getattr(dietlab, name) for name in dietlab.__all__]"
    subprocess.run([sys.executable, "-c", every_name], check=True, cwd=ROOT)


def test_unknown_name_is_an_attribute_error() -> None:
    assert "Dense" in dir(dietlab)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dietlab.nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'plot_speedups'\. Did you mean 'plot_speedup'\?"):
        dietlab.plot_speedups  # noqa: B018


def test_public_names_are_listed_once() -> None:
    """The lines that type checkers read are the list at run time; ``dietlab`` has those of its views, too."""
    for package in (dietlab, dietlab.view):
        lines = Path(package.__file__ or "").read_text(encoding="utf-8").splitlines()
        listed = [line.split()[-1] for line in lines if line.startswith("    from ") and " as " in line]
        assert len(listed) == len(set(listed)) and set(listed) <= set(package.__all__)
    here, views = set(dietlab.__all__), set(dietlab.view.__all__)
    assert views - here == set(dietlab.IN_VIEW_ONLY) and len(views & here) > 60


def test_an_argument_in_the_place_of_another_is_named(tmp_path: Path) -> None:
    """Each stage says which argument is wrong and where a right one comes from, before it does anything."""
    work, hardware = dietlab.Dense(dietlab.Dim(1, 8), 16, 4), dietlab.Hardware.preset("zen4-1core")
    shapes, space = dietlab.ShapeSet.uniform(work), dietlab.build_space(work, hardware)
    runner = dietlab.SyntheticRunner(hardware)
    swapped: list[tuple[Callable[[], object], str]] = [
        (
            lambda: dietlab.build_space(hardware, work),
            "second .* build_space must be of class Hardware; got .*Dense",
        ),
        (
            lambda: dietlab.tune(shapes, space, runner),
            "first .* tune must be of class Space; got .* ShapeSet. The order",
        ),
        (
            lambda: dietlab.tune(space, runner, shapes),
            "second .* tune must be of class ShapeSet; got .*SyntheticRunner",
        ),
        (lambda: dietlab.choose_portfolio(shapes), r"choose_portfolio must be of class Known.*tune\(\)"),
        (
            lambda: dietlab.train_dispatcher(shapes),
            r"train_dispatcher must be of class Portfolio.*choose_portfolio",
        ),
        (
            lambda: dietlab.build(space, tmp_path),
            "build must be of class Dispatcher; got .*Space. train_dispatcher",
        ),
        (
            lambda: dietlab.evaluate("runs/x", shapes),
            "evaluate must be of class Operator; got 'runs/x'. dietlab.load",
        ),
        (
            lambda: dietlab.plot_tuning([]),
            "frame_tuning and plot_tuning must be of class TuningRun; got .*list",
        ),
    ]
    for call, complaint in swapped:
        with pytest.raises(dietlab.DietlabError, match=complaint):
            call()


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Importing a submodule sets an attribute of the package, which would win over a lazy name."""
    for package in (dietlab, dietlab.view):
        folder = Path(package.__file__ or "").parent
        modules = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
        assert not modules & set(package.__all__)


IN_OTHER_WORDS = re.compile(
    r"\b(so many|whoever|(of|under) (its|their) own|ask(s|ed|ing)? (in time|into|for .{0,30}ahead)|"
    r"asked for ahead|less 1|dear(er|est)?|the same with|much the same)\b",
    re.IGNORECASE,
)
"""Phrases of a private vocabulary. The field says: prefetch, minus, expensive, a count by its name."""

QUESTION = re.compile(r"(What|How|Whether|Where|When|Who|Which|The same|As|Those|These)\b")
"""Beginnings of a docstring that leave out its subject or its verb."""


def _documented(tree: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """Yields name, docstring and whether it is a function's whose first word must be a verb."""
    for node in ast.walk(tree):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            decorators = " ".join(ast.unparse(d) for d in getattr(node, "decorator_list", ()))
            # The help of a command is an imperative, as everywhere on a command line.
            free = "property" in decorators or "command" in decorators or "group" in decorators
            yield getattr(node, "name", "module"), text, isinstance(node, ast.FunctionDef) and not free


@pytest.mark.parametrize("room", sorted({path.relative_to(PACKAGE).parts[0] for path in MODULES}))
def test_docstrings_begin_with_a_verb_or_a_noun(room: str) -> None:
    wrong = []
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] == room:
            for name, text, is_function in _documented(ast.parse(path.read_text())):
                verb = re.fullmatch(r"[A-Z][a-z]+s", text.split()[0].strip(",.:"))
                if QUESTION.match(text) or (is_function and not verb):
                    wrong.append(f"{path.name}: {name}: {text.splitlines()[0]}")
    assert not wrong


def test_texts_have_the_words_of_the_field() -> None:
    texts = {path: path.read_text() for path in MODULES}
    assert {p.name: found[0] for p, text in texts.items() if (found := IN_OTHER_WORDS.search(text))} == {}

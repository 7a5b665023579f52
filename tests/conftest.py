"""What the tests share: small operators, processors, a synthetic tuning run and golden files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dense, Dim, ShapeSet
from dietlab.scheme import build_space
from dietlab.tuning import EFFORTS, Portfolio, TuningRun, choose_portfolio, tune

if TYPE_CHECKING:
    from cuda_emulation.operators import Emulated

    from dietlab.compare.study import Study
    from dietlab.targets.cuda.lowering.nvcc import Compiler

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"

# The same examples in every run, so that a red test is red again; `make test-explore` looks for new ones.
settings.register_profile("dietlab", deadline=None, max_examples=60, derandomize=True)
# Each says whether it draws anew: hypothesis' own default depends on the environment variable CI.
settings.register_profile("explore", deadline=None, max_examples=300, derandomize=False, print_blob=True)
settings.load_profile("dietlab")
# jsonschema's optional checker of IRIs takes four seconds to import, and no notebook has an IRI.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
# TVM's pool reads it when it starts; one process runs libraries for one core and for two.
os.environ.setdefault("TVM_NUM_THREADS", "2")
# Threads of two tests that wait for each other on the same cores double the time of both, so the processes
# and kernels that this one starts compute on one core each. Contenders set their own.
for setting in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(setting, "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the files in tests/golden.")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deals a file at a time to each process, and all of the browser's to one: they share a Chromium and a
    Jupyter server, which would start in two processes at once on two cores."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "browser" if nodeid.startswith("tests/browser/") else str(super()._split_scope(nodeid))

    return ByFile(config, log)


Golden = Callable[[str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(name, text)``: ``text`` is what stands in ``tests/golden/name``."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest with --update-golden, then read the diff"
        assert text == path.read_text(encoding="utf-8"), "run pytest with --update-golden, then read the diff"

    return check


def trace(figure: Any, name: str) -> Any:
    """Returns the first trace of that name."""
    return next(one for one in figure.data if one.name == name)


def in_turn(first: Iterable[Any], second: Sequence[Any]) -> list[Any]:
    """Returns all pairs as parameters of a test. `make test` takes one pair of each ``first``, with every
    ``second`` in turn; the other pairs are thorough."""
    return [
        pytest.param(one, other, marks=() if row % len(second) == column else pytest.mark.thorough)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
    ]


def cli(*arguments: object, exits: int = 0) -> Result:
    """Runs ``dietlab`` with these arguments in this process; it ends with the status ``exits``."""
    from dietlab.cli import main

    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == exits, (done.output, done.exception)
    return done


def python(
    *arguments: object, path: Iterable[Path] = (ROOT,), exits: int = 0, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process that imports from the folders of ``path``; it ends with ``exits``."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **variables}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == exits, done.stdout + done.stderr
    return done


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """Fails where a process that the test started outlives it."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not left, left


@pytest.fixture
def workers_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "tests"), str(ROOT))))


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """This machine's CUDA compiler; a test that needs one is skipped where there is none."""
    from dietlab.targets.cuda.lowering.nvcc import compilers

    found = next(compilers(), None)
    if found is None:
        pytest.skip("no CUDA compiler is installed (pip install nvidia-cuda-nvcc nvidia-cuda-cccl)")
    return found


@pytest.fixture(scope="module")
def emulated() -> Iterator[Emulated]:
    """Operators on the stub driver, in a process of their own."""
    from cuda_emulation.operators import emulated_operators

    with emulated_operators() as operators:
        yield operators


@pytest.fixture(autouse=True)
def gradients_stay_on() -> Iterator[None]:
    """A contender turns gradients off for its whole process, which here is that of all tests."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch with one thread, as many as the studies of its tests are for."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def here() -> Hardware:
    """One core of the processor that runs the tests."""
    return Hardware.detect(measure=False).with_cores(1)


@pytest.fixture(scope="session")
def block_study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study of the convolution of a PyTorch block; no test changes it."""
    from convolutions_of_torch import block, study_of

    return study_of(block()[0], here, tmp_path_factory.mktemp("convolutions of torch"))


@pytest.fixture
def tuned_block(block_study: Study) -> Any:
    """The block, whose convolution a library computes."""
    from convolutions_of_torch import block

    from dietlab.torch import replace_layers

    return replace_layers(block(), block_study)


@pytest.fixture(scope="session")
def synthetic_run() -> TuningRun:
    """A search for Dense(T=1..128) whose times are computed: the same on every machine."""
    workload, hardware = Dense(T=Dim(1, 128), N=768, K=256), Hardware.preset("haswell-1core")
    shapes = ShapeSet.uniform(workload)
    effort = replace(EFFORTS["quick"], decisions=240)
    return tune(build_space(workload, hardware), shapes, SyntheticRunner(hardware), effort)


@pytest.fixture(scope="session")
def portfolio_of(synthetic_run: TuningRun) -> Callable[[int], Portfolio]:
    """``portfolio_of(n)``: the portfolio of that search with at most ``n`` micro-kernels, chosen once."""
    return cache(lambda most: choose_portfolio(synthetic_run, max_kernels=most))

"""What the tests share: small operators, processors, a synthetic tuning run and golden files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dense, Dim, ShapeSet
from dietlab.scheme import build_space
from dietlab.tuning import EFFORTS, TuningRun, tune

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


def in_turn(first: Iterable[Any], second: Sequence[Any]) -> list[Any]:
    """Returns all pairs as parameters of a test. `make test` takes one pair of each ``first``, with every
    ``second`` in turn; the other pairs are thorough."""
    return [
        pytest.param(one, other, marks=() if row % len(second) == column else pytest.mark.thorough)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
    ]


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
def synthetic_run() -> TuningRun:
    """A search for Dense(T=1..128) whose times are computed: the same on every machine."""
    workload, hardware = Dense(T=Dim(1, 128), N=768, K=256), Hardware.preset("haswell-1core")
    shapes = ShapeSet.uniform(workload)
    effort = replace(EFFORTS["quick"], decisions=240)
    return tune(build_space(workload, hardware), shapes, SyntheticRunner(hardware), effort)

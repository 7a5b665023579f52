"""Operators that a child process builds for a GPU and runs on the stub driver (:mod:`.operator_worker`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.measure.timing.process import WorkerProcess
from dietlab.problem import Workload
from dietlab.scheme import Leaf, Tree
from dietlab.scheme.tree import tree_to_json

TESTS = Path(__file__).parent.parent
SECONDS = 240.0
FIRST = Leaf(0)


class Emulated:
    """The child process."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    def ask(
        self,
        workload: Workload,
        plans: list[str],
        tree: Tree = FIRST,
        hardware: str = "h100",
        every_plan: bool = False,
        only: list[list[int]] | None = None,
        cores: int | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Asks for what ``more`` says of a library of these plans, for a GPU with so many ``cores``."""
        request = {"workload": workload.to_json(), "plans": plans, "tree": tree_to_json(tree), **more}
        built = {"hardware": hardware, "cores": cores, "every_plan": every_plan, "only": only}
        return self._worker.ask({**request, **built}, SECONDS)

    def run(
        self, workload: Workload, plans: list[str], sizes: list[Any], tree: Tree = FIRST, **options: Any
    ) -> list[dict[str, Any]]:
        """Calls the library at each size, of all dimensions or of each by name: with ``plan`` instead of the
        tree's, with operands that begin ``shift`` bytes behind an aligned address, or on a stream of its own
        (``own_stream``)."""
        usual = {"plan": None, "shift": 0, "own_stream": False}
        found: list[dict[str, Any]] = self.ask(workload, plans, tree, sizes=sizes, **{**usual, **options})[
            "found"
        ]
        return found

    def check(self, *args: Any, **options: Any) -> list[dict[str, Any]]:
        """Runs, and asserts that every result is right and came from one launch."""
        found = self.run(*args, **options)
        for case in found:
            assert not case["failure"], case
            assert case["error"] is not None and case["error"] <= case["tolerance"], case
            assert len(case["launches"]) == 1, case
        return found


@contextmanager
def emulated_operators() -> Iterator[Emulated]:
    path = os.pathsep.join(map(str, (TESTS, TESTS.parent)))
    environment = {"PYTHONPATH": path, "TVM_CUDA_COMPILE_MODE": "nvcc"}
    with (
        TemporaryDirectory(prefix="dietlab-emulated-") as folder,  # the worker is ended, and leaves its files
        WorkerProcess("cuda_emulation.operator_worker", {**environment, "TMPDIR": folder}) as worker,
    ):
        yield Emulated(worker)

"""A study whose libraries compute layers of small PyTorch models, and what the tests ask of such models."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dense, Dim, ShapeSet

torch = pytest.importorskip("torch")

from dietlab.torch import Linear  # noqa: E402
from dietlab.torch.chains import Chain, parts_of, steps_named  # noqa: E402

EVERY = Dense(T=Dim(1, 64), N=Dim(16, 256), K=Dim(16, 256))


def synthetic_study(hardware: Hardware, folder: Path) -> Study:
    """Returns a study of layers of 16 to 256 features; its times are made up, its libraries are real."""
    shapes = ShapeSet.layers([(48, 32), (200, 100)], lengths=[1, 8, 64], workload=EVERY)
    made = Study.create(folder, EVERY, hardware, shapes, "smoke")
    made.tune(SyntheticRunner(hardware))
    return made


@cache
def shared_study(hardware: Hardware, folder: Path) -> Study:
    """Returns the study that all tests of a process share, with its libraries; none of them changes it."""
    return synthetic_study(hardware, folder / "study")


def close(found: Any, wanted: Any) -> None:
    """Asserts that two tensors are of one type and have the same numbers, but for float32's rounding."""
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


def same(model: Any, original: Any, x: Any) -> None:
    """Asserts that two models compute the same, without gradients; neither changes ``x``.

    Sums of hundreds are compared by the largest of them: they have cancelled.
    """
    with torch.no_grad():
        found, wanted = model(x.clone()), original(x.clone())
    scale = max(1.0, float(wanted.nan_to_num(0.0, 0.0, 0.0).abs().max())) if wanted.numel() else 1.0
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6 * scale + 1e-5, equal_nan=True)


def computed_with(parent: Any) -> list[str]:
    """Returns the activation that each tuned layer of a module computes at its next call."""
    steps = (
        steps_named(parent, parent.dietlab_steps) if isinstance(parent, Chain) else list(parent.children())
    )
    pairs = parts_of(steps) if isinstance(parent, Chain) else ((step, "", None) for step in steps)
    return [activation for step, activation, _ in pairs if isinstance(step, Linear)]


LOADED = """
import sys, torch
folder = sys.argv[1]
model, words = torch.load(f"{folder}/model.pt", weights_only=False)
with torch.no_grad():
    torch.save(model(input_ids=words)[0], f"{folder}/found.pt")
"""


def called_elsewhere(model: Any, words: Any, folder: Path) -> Any:
    """Returns what a saved model of transformers computes in a process that only loads and calls it."""
    torch.save((model, words), folder / "model.pt")
    command = [sys.executable, "-c", LOADED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "found.pt")

"""Contenders that compute convolutions: right in every form they have, and what they do to memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np  # noqa
import pytest

from dietlab.compare.vendor import contender_env
from dietlab.measure.timing.process import WorkerProcess
from dietlab.problem import Conv1d, Conv2d, Dim, Shape
from dietlab.problem.convolution import Convolution
from dietlab.targets.cpu.contenders import VENDORS

torch = pytest.importorskip("torch")

WORKER = "dietlab.targets.cpu.contenders.worker"
CACHE_BYTES = {"l2_bytes": 1 << 14, "l3_bytes": 1 << 20}
SIDE = Dim(5, 40)
LAYER = Conv2d(N=1, H=SIDE, W=SIDE, IC=12, OC=24, padding=1)
SEQUENCE = Conv1d(N=2, L=Dim(9, 60), IC=6, OC=10, kernel=5, padding=2, stride=2, bias=True)
FORMS: tuple[Convolution, ...] = (
    LAYER,
    replace(LAYER, N=Dim(1, 3), stride=2, bias=True),
    replace(LAYER, kernel=(3, 5), dilation=(2, 1), activation="relu", bias=True),
    replace(LAYER, padding=((0, 1), (2, 1)), kernel=(2, 4), residual=True),
    replace(LAYER, kernel=1, padding=0, activation="gelu_erf", residual=True),
    replace(LAYER, kernel=1, padding=0, stride=2),
    replace(LAYER, IC=3, kernel=7, padding=3, stride=2, activation="gelu_tanh"),
    SEQUENCE,
    replace(SEQUENCE, padding=((4, 0),), stride=1, dilation=3, kernel=2, residual=True, activation="relu"),
)
GROUPED = (
    replace(LAYER, groups=3),
    replace(LAYER, OC=12, groups=12, bias=True, residual=True),
    replace(LAYER, groups=12, stride=2, padding=((1, 2), (0, 1))),
    replace(SEQUENCE, IC=10, groups=10, activation="relu"),
)
COMPUTING = [name for name, made in VENDORS.own.items() if "conv2d" in made.computes]  # type: ignore[attr-defined]


def opening(contender: str, work: Convolution, threads: int = 1) -> dict[str, object]:
    return {
        "op": "open",
        "contender": contender,
        "workload": work.to_json(),
        "threads": threads,
        "options": CACHE_BYTES,
    }


def shapes_of(work: Convolution) -> list[Shape]:
    """Returns the ends of the ranges, and sizes between them."""
    return [
        Shape.of(**{name: min(dim.high, dim.low + step) for name, dim in work.dims.items()})
        for step in (0, 7, 12, 100)
    ]


@pytest.fixture(params=COMPUTING)
def vendor(request: pytest.FixtureRequest) -> Iterator[tuple[str, WorkerProcess]]:
    with WorkerProcess(WORKER, contender_env(1)) as worker:
        answer = worker.ask(opening(request.param, LAYER), 120)
        if "absent" in answer:
            pytest.skip(answer["absent"])
        yield request.param, worker


def test_a_vendor_is_right_at_every_size(vendor: tuple[str, WorkerProcess]) -> None:
    name, worker = vendor
    for work in (*FORMS, *GROUPED):
        opened = worker.ask(opening(name, work), 60)
        assert ("absent" in opened) == (name == "im2col" and work.groups > 1), opened
        for seed, shape in enumerate(shapes_of(work)) if "absent" not in opened else ():
            answer = worker.ask({"op": "check", "shape": shape.to_json(), "seed": seed}, 60)
            assert answer["correct"], (str(work), shape, answer)
            assert answer["max_error"] <= answer["tolerance"]

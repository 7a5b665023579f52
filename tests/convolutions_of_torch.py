"""Convolutions of small PyTorch models, a study whose library computes them, and what tests ask of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dim, ShapeSet

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dietlab.torch.chains import parts_of, steps_named  # noqa: E402
from dietlab.torch.convolution import Convolution  # noqa: E402
from dietlab.torch.convolution_groups import ends_and_between  # noqa: E402
from dietlab.torch.convolution_operator import operator_of  # noqa: E402

THREE = Dim(1, 3)
"""The usual numbers of images."""

FEW = 1
"""The number of micro-kernels in a library of these tests, which is built in a second."""


def study_of(layer: nn.Module, hardware: Hardware, folder: Path, images: Any = THREE) -> Study:
    """Returns a study of a convolution; its times are made up, its libraries are real."""
    sizes = (images, *[Dim(9, 30)] * len(layer.kernel_size))
    work = operator_of(layer, sizes)
    made = Study.create(folder / "study", work, hardware, shapes_of(work), "smoke", max_kernels=FEW)
    made.tune(SyntheticRunner(hardware))
    made.dispatch()
    return made


def shapes_of(work: Any) -> ShapeSet:
    """Returns shapes to tune an operator for."""
    return ShapeSet.of(dict.fromkeys(ends_and_between(work.dims), 1.0))


def block() -> nn.Sequential:
    """Returns a convolution with its norm and activation, in evaluation mode."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(6, 20, 3, padding=1, bias=False), nn.BatchNorm2d(20), nn.ReLU())
    return with_statistics(made).eval()


def with_statistics(model: nn.Module) -> nn.Module:
    """Gives each norm of a model statistics of its own."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.running_mean.uniform_(-1, 1)
                module.running_var.uniform_(0.5, 2)
                for parameter in module.parameters():
                    parameter.uniform_(0.5, 2)
    return model


def counts(model: Callable[..., Any], x: Any) -> Counter[str]:
    """Returns how often a call of a model calls each operator."""
    with torch.no_grad(), torch.profiler.profile() as profiled:
        model(x)
    return Counter({event.key: event.count for event in profiled.key_averages()})


def calls(model: Callable[..., Any], x: Any) -> int:
    """Returns how many convolutions libraries compute in a call; PyTorch may compute the operator too."""
    counted = counts(model, x)
    return counted["dietlab::convolution"] - counted["aten::convolution"]


def told_by(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """Returns what a call warns its user of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        function(*arguments, **options)
    return [str(warning.message) for warning in told if issubclass(warning.category, UserWarning)]


def fused(chain: Any) -> list[tuple[str, bool]]:
    """Returns the activation of each convolution of a chain, and whether its norm is folded."""
    parts = parts_of(steps_named(chain, chain.dietlab_steps))
    return [(how, norm is not None) for step, how, norm in parts if isinstance(step, Convolution)]

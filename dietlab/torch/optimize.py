"""Replaces the layers of a model by tuned ones, and tunes first if this machine has no study."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from dietlab.base.errors import DietlabError
from dietlab.base.events import Observer, audience
from dietlab.base.shipped import data_path
from dietlab.compare.results import ResultTable
from dietlab.compare.results.report import study_folder
from dietlab.compare.study import Study
from dietlab.compare.suites.studies import built
from dietlab.compare.suites.suite import every_layer_task
from dietlab.compare.suites.task import Task
from dietlab.machine import Hardware
from dietlab.problem import Dense
from dietlab.problem.dims import Dim, holds
from dietlab.problem.layers import layers_of
from dietlab.torch.choices import Choice, linear_choices
from dietlab.torch.convolution_studies import choices_for, tune_all, watching
from dietlab.torch.experts import experts_of, layer_weights, replace_experts
from dietlab.torch.found import ModelLayer, convolutions_in, layers_in
from dietlab.torch.image_sizes import sizes_met
from dietlab.torch.libraries import unfit
from dietlab.torch.operators import require_compiled
from dietlab.torch.replace import replace_chosen
from dietlab.torch.sentences import CONVOLUTIONS, LINEAR, warn_of

STUDIES = Path("dietlab") / "studies"
"""Default folder of studies, inside the user's cache folder (XDG base directories)."""

LEAST_SERVED = 0.5
"""The least share of a model's multiply-adds that an existing study must serve; else a new one is tuned."""

WORTH_TUNING = 0.01
"""The least share of a model's multiply-adds for which a layer size is tuned. Wider ranges, for a classifier
of two classes or an adapter of rank 8, make tuning longer for all layers."""


def optimize(
    model: torch.nn.Module,
    folder: str | Path | None = None,
    *,
    examples: Iterable[Any] | None = None,
    effort: str = "quick",
    observers: Iterable[Observer] | None = None,
) -> torch.nn.Module:
    """Replaces the linear layers of a model, those of its experts, and its convolutions by tuned ones, in
    place; returns the model.

    One study serves all linear layers. If a study in the folder serves most of their work, it is used;
    otherwise one is tuned. Convolutions that differ in nothing but their channels have one study, tuned for
    the sizes between those of the examples; a library computes images of all other sizes, too. Those with
    groups or with few input channels have one each. A study is tuned once, for as many cores as PyTorch has
    threads; later models use it, and stopped tuning is resumed. Layers that no study serves stay PyTorch's.

    Args:
        model: a model in float32 on the CPU.
        folder: the folder of studies (default: ``~/.cache/dietlab/studies``).
        examples: inputs of the model with its smallest and its largest images, from which the sizes in the
            model follow; each is one argument, a tuple of arguments, or a mapping from names to arguments.
            The model is called with each, in evaluation mode. With None, convolutions are computed by studies
            in the folder only.
        effort: the effort of tuning.
        observers: the observers of tuning (default: a progress bar).

    Raises:
        DietlabError: if the model has no layer that a library can compute, or ``examples`` is empty.
        MissingDependencyError: without a C++ compiler, if the operators were not compiled before.
        MeasureError: if tuning fails.

    Warns:
        UserWarning: names the layers that stay PyTorch's, with the reason; and batch norms in training mode,
            which are computed apart.
    """
    require_compiled()
    inputs = [] if examples is None else list(examples)
    if examples is not None and not inputs:
        rule = "examples must have at least one input of the model"
        raise DietlabError(rule, "none", "Leave examples out where no convolution needs them.")
    mixtures = [module for _, module in experts_of(model)]
    work = _work(model, mixtures)
    hardware = Hardware.detect(measure=False).with_cores(torch.get_num_threads())
    home = Path(folder) if folder is not None else default_folder()
    given = None if observers is None else tuple(observers)
    choices = _of_convolutions(model, inputs, home, hardware, effort)
    windows = dict.fromkeys(choice for _, choice in choices if isinstance(choice, Study))
    if not work and not windows:
        raise _nothing(model, mixtures, choices)
    sought = [*([LINEAR] if work else []), *([CONVOLUTIONS] if choices else [])]
    if work:
        linear = _study_of_linears(work, home, hardware, effort, given)
        choices = [*linear_choices(model, [linear]), *choices]
    if untuned := [study for study in windows if not _is_tuned(study)]:
        tune_all(untuned, home, given)
    with watching(given if untuned else (), "layers", "build") as listeners:
        sentences = replace_chosen(model, choices, sought, listeners)
    warn_of(sentences)
    return replace_experts(model, linear) if work and mixtures else model


def _of_convolutions(
    model: torch.nn.Module, examples: Iterable[Any], home: Path, hardware: Hardware, effort: str
) -> list[tuple[ModelLayer, Choice]]:
    """Returns the convolutions of a model with their studies, or the reasons why they stay PyTorch's."""
    found = convolutions_in(model)
    if not found:
        return []
    met = sizes_met(model, [layer.module for layer in found], examples)
    there = [study for study in _studies(home) if _is_here(study, hardware)]
    return choices_for(found, met, there, home, hardware, effort)


def _study_of_linears(
    work: Mapping[tuple[int, int], int],
    home: Path,
    hardware: Hardware,
    effort: str,
    observers: Iterable[Observer] | None,
) -> Study:
    """Returns a tuned study for linear layers: the one in a folder that serves most, or a new one."""
    studies = [study for study in _studies(home) if _is_of(study, hardware)]
    study = max(studies, key=lambda study: _served(study, work), default=None)
    if study is None or _served(study, work) < LEAST_SERVED * sum(work.values()):
        task = task_for(size for size, part in work.items() if part >= WORTH_TUNING * sum(work.values()))
        measured = Hardware.detect().with_cores(hardware.cores)
        names = (f"{study_folder(task.name, measured.cores)}-{number}" for number in count())
        place = next(folder for name in names if not (folder := home / name).exists())
        study = Study.create(
            place, task.workload, measured, task.shapes, effort, max_kernels=task.max_kernels
        )
    if not _is_tuned(study):
        print(_announcement(study), file=sys.stderr)
        with watching(observers, "tune", "search", "decide", "build") as listeners:
            built(study, audience(listeners))
    return study


def default_folder() -> Path:
    """Returns the default folder of studies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / STUDIES


def task_for(sizes: Iterable[tuple[int, int]]) -> Task:
    """Returns the task of tuning one library for all layers, with ranges widened to include ``sizes`` (N,
    K)."""
    task = every_layer_task()
    work, layers = task.workload, task.layers
    assert isinstance(work, Dense) and isinstance(work.N, Dim) and isinstance(work.K, Dim) and layers
    outside = [(n, k) for n, k in sorted(sizes) if n not in work.N or k not in work.K]
    if not outside:
        return task
    wide = replace(
        work, N=_holding(work.N, (n for n, _ in outside)), K=_holding(work.K, (k for _, k in outside))
    )
    tuned = (*((layer.N, layer.K) for layer in layers_of(layers.tuned)), *outside)
    return replace(task, workload=wide, layers=replace(layers, tuned=tuned))


def _holding(dim: Dim, extents: Iterable[int]) -> Dim:
    """Returns a range widened to include some extents."""
    every = (dim.low, dim.high, *extents)
    return Dim(min(every), max(every))


def _studies(home: Path) -> Iterator[Study]:
    """Yields the readable studies of a folder, by name."""
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        try:
            yield Study.open(path)
        except DietlabError:
            continue


def _work(model: torch.nn.Module, mixtures: Iterable[torch.nn.Module]) -> dict[tuple[int, int], int]:
    """Returns the multiply-adds per row of a model's linear layers that a library can compute, by the layers'
    size (N, K); a module of experts counts as one expert."""
    work = Counter[tuple[int, int]]()
    for one in _linear_weights(model, mixtures):
        if not unfit(one):
            n, k = one.shape[-2:]
            work[n, k] += n * k
    return work


def _linear_weights(model: torch.nn.Module, mixtures: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    weights = [layer.weights for layer in layers_in(model) if layer.weights is not None]
    return weights + [layer for module in mixtures for layer in layer_weights(module)]


def _nothing(
    model: torch.nn.Module,
    mixtures: Iterable[torch.nn.Module],
    choices: Sequence[tuple[ModelLayer, Choice]],
) -> DietlabError:
    """Returns the error for a model without a layer that a library can compute."""
    weights = _linear_weights(model, mixtures)
    reasons = [layer.reason for layer in layers_in(model) if layer.reason] + [unfit(w) for w in weights]
    what = ["linear layer"] if reasons or not choices else []
    reasons += [str(choice) for _, choice in choices]
    what += ["convolution"] if choices else []
    text = "; ".join(dict.fromkeys(reasons))
    kinds = " and ".join(f"{kind}s" for kind in what)
    lacks = f"whose {kinds} no library can compute: {text}" if text else "which has no linear layer"
    return DietlabError(
        f"a model must have a {' or '.join(('linear layer', *(['convolution'] if choices else [])))} "
        "in float32 on the CPU",
        f"{type(model).__name__}, {lacks}",
        "Convert the model by model.float().cpu()." if weights else "",
    )


def _is_of(study: Study, hardware: Hardware) -> bool:
    """Returns whether a study, perhaps a stopped one, is of linear layers on this processor and its cores."""
    return isinstance(study.workload, Dense) and _is_here(study, hardware)


def _is_here(study: Study, hardware: Hardware) -> bool:
    return study.hardware.is_same_as(hardware) and study.hardware.cores == hardware.cores


def _served(study: Study, work: Mapping[tuple[int, int], int]) -> int:
    """Returns the multiply-adds of the layers that a study serves."""
    held: Any = study.workload
    return sum(part for (n, k), part in work.items() if holds(held.N, n) and holds(held.K, k))


def _is_tuned(study: Study) -> bool:
    try:
        study.dispatcher()
    except DietlabError:
        return False
    return True


def _announcement(study: Study) -> str:
    """Returns a text on the tuning, with its time on the machines of the recorded results."""
    usual, recorded = every_layer_task().name, list[str]()
    for path in sorted(data_path("results").glob("*-layers*.csv.gz")):
        for report in ResultTable.load(path).reports:
            if report.name == usual and (seconds := report.tuning.get("total_seconds")):
                place = f"{report.used} of {report.processor_name}"
                recorded.append(f"{seconds:.0f} s on {place}")
    return (
        f"dietlab tunes linear layers for this machine, once; it took {', '.join(recorded) or 'minutes'}. "
        f"The study is kept in {study.folder}."
    )

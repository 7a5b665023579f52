"""Replaces the linear layers of a model by tuned ones, and tunes first where this machine has no study."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch

from dietlab.bench.studies import built
from dietlab.bench.suite import Task, every_layer_task
from dietlab.cards import counted
from dietlab.dims import Dim, holds
from dietlab.errors import DietlabError
from dietlab.events import Observer, audience
from dietlab.hardware import Hardware
from dietlab.layers import layers_of
from dietlab.results import ResultTable
from dietlab.results.report import study_folder
from dietlab.shipped import data_path
from dietlab.study import Study
from dietlab.torch.experts import experts_of, layer_weights, replace_experts
from dietlab.torch.replace import linears, replace_linears
from dietlab.view import ProgressBar
from dietlab.workloads import Dense

STUDIES = Path("dietlab") / "studies"
"""Where studies that no one gave a folder are kept, in the folder for such things (XDG base directories)."""


def optimize(
    model: torch.nn.Module,
    folder: str | Path | None = None,
    *,
    effort: str = "quick",
    observers: Iterable[Observer] | None = None,
) -> torch.nn.Module:
    """Replaces the linear layers of a model, and those of its experts, by those of this machine's study, in
    place, and returns it.

    A study that stands in the folder and serves all layers is taken; tuning that was stopped goes on.
    Otherwise one is tuned, for as many cores as PyTorch has threads: once, and for the next model as well.

    Args:
        model: float32, on the CPU.
        folder: where studies are looked for and kept (default: ``~/.cache/dietlab/studies``).
        effort: of tuning.
        observers: of tuning (default: a progress bar).

    Raises:
        DietlabError: if the model has no linear layer in float32 on the CPU.
        MeasureError: if tuning fails.

    Warns:
        UserWarning: as :func:`~dietlab.torch.replace_linears`.
    """
    mixtures = [module for _, module in experts_of(model)]
    weights = [linear.weight for *_, linear in linears(model)]
    weights += [layers for module in mixtures for layers in layer_weights(module)]
    sizes = {(w.shape[-2], w.shape[-1]) for w in weights if w.dtype is torch.float32 and w.is_cpu}
    if not sizes:
        raise DietlabError(
            "the model has linear layers in float32 on the CPU",
            type(model).__name__,
            "model.float().cpu() makes it such a model.",
        )
    hardware = Hardware.detect(measure=False).with_cores(torch.get_num_threads())
    home = Path(folder) if folder is not None else default_folder()
    study = next((s for s in _studies(home) if _serves(s, hardware, sizes)), None)
    if study is None:
        task = task_for(sizes)
        measured = Hardware.detect().with_cores(hardware.cores)
        names = (f"{study_folder(task.name, measured.cores)}-{number}" for number in count())
        place = next(folder for name in names if not (folder := home / name).exists())
        study = Study.create(
            place, task.workload, measured, task.shapes, effort, max_kernels=task.max_kernels
        )
    if not _is_tuned(study):
        print(_announcement(study), file=sys.stderr)
        if observers is not None:
            built(study, audience(observers))
        else:
            with ProgressBar("tune", ("search", "decide", "build")) as bar:
                built(study, audience([bar]))
    replace_linears(model, study)
    return replace_experts(model, study) if mixtures else model


def default_folder() -> Path:
    """Returns the folder of studies that no one gave another."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / STUDIES


def task_for(sizes: Iterable[tuple[int, int]]) -> Task:
    """Returns the task of one library for every layer, widened to hold layers of other ``sizes`` (N, K)."""
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
    """Returns a range that holds the extents too."""
    every = (dim.low, dim.high, *extents)
    return Dim(min(every), max(every))


def _studies(home: Path) -> Iterator[Study]:
    """Yields the studies of a folder that can be opened, by name."""
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        try:
            yield Study.open(path)
        except DietlabError:
            continue


def _serves(study: Study, hardware: Hardware, sizes: Iterable[tuple[int, int]]) -> bool:
    """Returns whether a study, perhaps one that was stopped, is of these layers, processor and cores."""
    work = study.workload
    return (
        isinstance(work, Dense)
        and study.hardware.is_same_as(hardware)
        and study.hardware.cores == hardware.cores
        and all(holds(work.N, n) and holds(work.K, k) for n, k in sizes)
    )


def _is_tuned(study: Study) -> bool:
    try:
        study.dispatcher()
    except DietlabError:
        return False
    return True


def _announcement(study: Study) -> str:
    """Says what is tuned, and how long that took on the machines of the recorded results."""
    usual, recorded = every_layer_task().name, list[str]()
    for path in sorted(data_path("results").glob("*-layers*.csv.gz")):
        for report in ResultTable.load(path).reports:
            if report.name == usual and (seconds := report.tuning.get("total_seconds")):
                place = f"{counted(report.threads, 'core')} of {report.processor_name}"
                recorded.append(f"{seconds:.0f} s on {place}")
    return (
        f"dietlab tunes linear layers for this machine, once; it took {', '.join(recorded) or 'minutes'}. "
        f"The study is kept in {study.folder}."
    )

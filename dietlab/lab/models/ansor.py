"""A model whose dense layers run through programs that were tuned for exactly their shapes: per-shape Ansor.

MetaSchedule tunes one program for each layer (N, K) and number of rows, batch x T. Each layer has a folder
(``n768-k3072-bias``), in which tuning again goes on where it was interrupted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.errors import DietlabError
from dietlab.base.events import Audience
from dietlab.base.shipped import data_path
from dietlab.compare.ansor.contender import AnsorResult, tune_static
from dietlab.compare.results import ResultTable
from dietlab.lab.models.zoo import Model
from dietlab.machine import Hardware
from dietlab.problem import Dense, Shape, ShapeSet
from dietlab.problem.dims import Dim

if TYPE_CHECKING:
    import torch

MOST_LENGTHS = 8
"""The most lengths that a model is tuned for, as many as the paper's figure 8 has: each takes a tuning of
minutes for every layer."""


def tune_layers(
    model: Model, hardware: Hardware, lengths: ShapeSet, folder: Path, trials: int, listeners: Audience
) -> tuple[AnsorResult, ...]:
    """Tunes each dense layer of a model for each length, or loads what ``folder`` has with the same settings.

    Args:
        trials: candidates that are measured for each layer and length, at most.

    Returns:
        One result for each layer and length; its shape is T (rows), N and K.

    Raises:
        DietlabError: for more than :data:`MOST_LENGTHS` lengths.
        MissingDependencyError: without PyTorch, ``transformers``, or what the tuner needs.
        MeasureError: if no candidate of a layer could be timed.
    """
    layers = {_name(linear): linear for linear in _linears(model.build())}
    wanted = [(name, model.batch * shape["T"]) for shape in lengths for name in sorted(layers)]
    if len(lengths) > MOST_LENGTHS:
        raise DietlabError(
            f"a model is tuned by ansor for at most {MOST_LENGTHS} lengths",
            f"{len(lengths)}: {len(wanted)} tunings of {trials} trials{_duration(len(wanted) * trials)}",
            "Choose some, as in --ansor-lengths 5,62,128.",
        )
    results = list[AnsorResult]()
    with listeners.stage("ansor", len(wanted), "shape") as progress:
        for name, rows in wanted:
            n, k = layers[name].out_features, layers[name].in_features
            work = Dense(Dim(rows, rows), n, k, bias=layers[name].bias is not None)
            shape, observers = Shape.of(T=rows), listeners.observers
            found = tune_static(work, hardware, shape, folder / name, trials, observers=observers)
            results.append(replace(found, shape=Shape.of(T=rows, N=n, K=k)))
            progress.advance()
    return tuple(results)


def with_programs(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """Lets every linear layer of a model run through the programs in ``folder``, in place, and returns the
    model. An activation behind a layer stays PyTorch's: MetaSchedule's rules for a CPU know no GELU. So do
    experts, whose rows only the call knows."""
    from dietlab.torch.static_linear import StaticLinear

    for linear in _linears(model):
        linear.__class__ = StaticLinear
        linear.folder = str((folder / _name(linear)).resolve())
    return model


def _linears(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """Returns the linear layers of PyTorch in a model, once each."""
    import torch

    return [module for module in model.modules() if type(module) is torch.nn.Linear]


def _name(linear: torch.nn.Linear) -> str:
    bias = "" if linear.bias is None else "-bias"
    return f"n{linear.out_features}-k{linear.in_features}{bias}"


def _duration(trials: int) -> str:
    """Returns how long trials take at the pace of the recorded ones; empty if none were recorded."""
    paths = data_path("results").glob("*-ansor.csv.gz")
    tunings = [report.tuning for path in paths for report in ResultTable.load(path).reports]
    seconds, count = (
        sum(sum(tuning.get(figure, {}).values()) for tuning in tunings)
        for figure in ("ansor_seconds", "ansor_trials")
    )
    return f", which take about {seconds / count * trials:.0f} s" if count else ""

"""A model in other forms: a file for ONNX Runtime, machine code that PyTorch compiled ahead of time, and
dense layers through programs that were tuned for exactly their shapes (per-shape Ansor).

MetaSchedule tunes one program for each layer (N, K) and number of rows, batch x T. Each layer has a folder
(``n768-k3072-bias``), in which tuning again goes on where it was interrupted.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, MissingDependencyError
from dietlab.base.events import Audience
from dietlab.base.files import UNFINISHED
from dietlab.base.shipped import data_path
from dietlab.compare.ansor.contender import AnsorResult, tune_static
from dietlab.compare.results import ResultTable
from dietlab.lab.models.given import WORDS
from dietlab.lab.models.zoo import Model
from dietlab.machine import Hardware
from dietlab.problem import Dense, Shape, ShapeSet
from dietlab.problem.dims import Dim

if TYPE_CHECKING:
    import torch

ONNX_FILE = "model.onnx"


def example_of(model: Model) -> torch.Tensor:
    """Returns an input that a model is traced with; it is no shape that a model may be specialised for."""
    return model.input(Shape.of(**{model.given.dim: model.given.example(model.range)}))


def _axes(model: Model, **ends: int) -> dict[int, Any]:
    """Returns the axes of an input that PyTorch takes for dynamic, of one size from ``min`` to ``max``."""
    import torch

    step = model.given.step
    size = torch.export.Dim("size", **{end: extent // step for end, extent in ends.items()})
    return dict.fromkeys(model.given.axes, size if step == 1 else step * size)


def write_onnx(model: Model, home: Path) -> Path:
    """Returns the path of a model's file for ONNX Runtime, for any batch and size. If there is none, writes
    the file with its weights, whole or not at all, to a folder named after the weights."""
    folder = home / f"{model.name}-{_digest(model)}"
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(UNFINISHED, dir=home) as unfinished:
            made = Path(unfinished) / folder.name
            made.mkdir()
            _export(model, made / ONNX_FILE)
            made.rename(folder)
    return folder / ONNX_FILE


def _digest(model: Model) -> str:
    """Returns a name for the configuration and the weights: their files' names, sizes and times."""
    about: list[Any] = [model.configuration.to_dict()]
    if model.weights:
        files = sorted(Path(model.weights).expanduser().resolve().iterdir())
        about += [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _export(model: Model, path: Path) -> None:
    import torch

    # It says of packages that have nothing to do with the model that they are not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    dims = {0: torch.export.Dim("batch"), **_axes(model)}
    example = example_of(replace(model, batch=2))
    try:
        with _quiet():
            torch.onnx.export(
                _hidden(model.build()),
                (example,),
                str(path),
                input_names=["input"],
                output_names=["hidden"],
                dynamic_shapes=(dims,),
                dynamo=True,
                verbose=False,
            )
    except ImportError as error:
        rule = "writing a model for ONNX Runtime needs onnx and onnxscript"
        raise MissingDependencyError(rule, error, "pip install 'dietlab[models]'.") from None
    except torch.onnx.OnnxExporterError as error:
        rule = f"ONNX must have a form for each operator of {model.name}"
        raise MissingDependencyError(rule, _reason(error), "Leave onnxruntime out.") from None


def compile_ahead(model: Model, module: torch.nn.Module, *, freezing: bool = False) -> Any:
    """Returns a model as PyTorch compiles it ahead of time, for the model's batch and any of its sizes. A
    call runs no Python: no module, and no guard of the compiler. ``module`` is the model, perhaps with other
    layers inside. ``freezing`` makes weights constants, which PyTorch then packs."""
    import torch

    traced = model.given.example(model.range)
    dims = _axes(model, min=min(model.range.low, traced), max=max(model.range.high, traced))
    try:
        with _quiet(), TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.pt2")
            program = torch.export.export(_hidden(module), (example_of(model),), dynamic_shapes=(dims,))
            configs = {"freezing": freezing}
            package = torch._inductor.aoti_compile_and_package(
                program, package_path=path, inductor_configs=configs
            )
            return torch._inductor.aoti_load_package(package)
    except Exception as error:  # PyTorch's exporter and compiler have no class of errors in common
        rule = f"PyTorch must be able to compile {model.name} ahead of time"
        raise MissingDependencyError(rule, _reason(error), "Leave it out.") from error


def _hidden(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a model whose only argument is its input and whose only result is the last layer's output."""
    import torch

    class Hidden(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.model(given)[0]

    return Hidden().eval()


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _reason(error: Exception) -> str:
    """Returns the first line of an error's cause, which names the operator."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return str(error).strip().partition("\n")[0] or type(error).__name__


# --- per-shape Ansor --------------------------------------------------------------------------


MOST_LENGTHS = 8
"""The most lengths that a model is tuned for, as many as the paper's figure 8 has: each length takes a tuning
of minutes for every layer."""


def tune_layers(
    model: Model, hardware: Hardware, lengths: ShapeSet, folder: Path, trials: int, listeners: Audience
) -> tuple[AnsorResult, ...]:
    """Tunes each dense layer for each length, or loads what ``folder`` has with the same settings."""
    if model.given is not WORDS:
        rule = "whole models with convolutions are not tuned by ansor for each size"
        raise MissingDependencyError(rule, model.name, "Leave ansor out.")
    layers = {_name(linear): linear for linear in _linears(model.build())}
    wanted = [(name, model.rows(shape)) for shape in lengths for name in sorted(layers)]
    if len(lengths) > MOST_LENGTHS:
        raise DietlabError(
            f"a model can be tuned by ansor for at most {MOST_LENGTHS} lengths",
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
    """Makes every linear layer of a model run the programs in ``folder``, in place; returns the model.
    PyTorch still computes the activation behind a layer, since MetaSchedule's rules for a CPU know no GELU.
    It also computes experts, since only the call knows the number of their rows."""
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
    return f"n{linear.out_features}-k{linear.in_features}{'' if linear.bias is None else '-bias'}"


def _duration(trials: int) -> str:
    """Returns a text with the time that trials take at the pace of the recorded trials; empty if none were
    recorded.
    """
    paths = data_path("results").glob("*-ansor.csv.gz")
    tunings = [report.tuning for path in paths for report in ResultTable.load(path).reports]
    seconds, count = (
        sum(sum(each.get(name, {}).values()) for each in tunings)
        for name in ("ansor_seconds", "ansor_trials")
    )
    return f", which take about {seconds / count * trials:.0f} s" if count else ""

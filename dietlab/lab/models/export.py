"""A model as a file: for ONNX Runtime, and as machine code that PyTorch compiled ahead of time."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import MissingDependencyError
from dietlab.base.files import UNFINISHED
from dietlab.lab.models.zoo import Model
from dietlab.problem import Shape
from dietlab.problem.dims import Dim

if TYPE_CHECKING:
    import torch

ONNX_FILE = "model.onnx"

EXAMPLE = 7
"""Tokens of the words that a model is traced with: more than 1, which PyTorch would take for a constant, and
no size of any layer."""


def write_onnx(model: Model, home: Path) -> Path:
    """Returns the file of a model for ONNX Runtime, for any batch and length, which is written unless it is
    there. It is in a folder with its weights that is named after them, and whole or absent.

    Args:
        home: a folder for such folders.

    Raises:
        MissingDependencyError: without ``onnx`` and ``onnxscript``.
    """
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
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    try:
        with _quiet():
            torch.onnx.export(
                _hidden(model.build()),
                (torch.zeros(2, EXAMPLE, dtype=torch.long),),
                str(path),
                input_names=["words"],
                output_names=["hidden"],
                dynamic_shapes=(dims,),
                dynamo=True,
                verbose=False,
            )
    except ImportError as error:
        raise MissingDependencyError(
            "a model is written for ONNX Runtime by onnx and onnxscript",
            error,
            "pip install 'dietlab[models]'.",
        ) from None
    except torch.onnx.OnnxExporterError as error:
        raise MissingDependencyError(
            f"ONNX has a form for each operator of {model.name}", _reason(error), "Leave onnxruntime out."
        ) from None


def compile_ahead(model: Model, module: torch.nn.Module, *, freezing: bool = False) -> Any:
    """Returns a model as PyTorch compiles it ahead of time, for the model's batch and any of its lengths.

    Nothing in a call is Python any more: no module, and no guard of the compiler.

    Args:
        module: is that model, perhaps with other layers inside.
        freezing: take weights for constants, which are packed then.

    Raises:
        MissingDependencyError: if PyTorch cannot export or compile it.
    """
    import torch

    lengths = Dim(min(model.T.low, EXAMPLE), max(model.T.high, EXAMPLE))  # the words it is traced with, too
    length = torch.export.Dim("length", min=lengths.low, max=lengths.high)
    try:
        with _quiet(), TemporaryDirectory() as folder:
            program = torch.export.export(
                _hidden(module), (model.words(Shape.of(T=EXAMPLE)),), dynamic_shapes=({1: length},)
            )
            package = torch._inductor.aoti_compile_and_package(
                program,
                package_path=str(Path(folder) / "model.pt2"),
                inductor_configs={"freezing": freezing},
            )
            return torch._inductor.aoti_load_package(package)
    except Exception as error:  # PyTorch's exporter and compiler have no class of errors in common
        raise MissingDependencyError(
            f"PyTorch compiles {model.name} ahead of time", _reason(error), "Leave it out."
        ) from error


def _hidden(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a model of words alone, whose result is the last layer's output alone."""
    import torch

    class Hidden(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=words)[0]

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

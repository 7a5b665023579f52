"""Runtimes of a whole model: PyTorch as it is and compiled, ONNX Runtime, ZenDNN, PyTorch with dietlab."""

from __future__ import annotations

import copy
import importlib
import logging
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.errors import MissingDependencyError
from dietlab.hardware.detect import processor_vendor
from dietlab.models.zoo import Model
from dietlab.results.row import OURS

if TYPE_CHECKING:
    import torch

Words = Any
Run = Callable[[Words], Any]
"""Computes ``[batch, T, hidden]`` of words ``[batch, T]``, all PyTorch tensors."""

OURS_EAGER = f"{OURS}-eager"
"""Ours in a model that PyTorch did not compile; :data:`~dietlab.results.row.OURS` is in one that it did."""

KINDS: Mapping[str, str] = {
    "torch": "eager",
    "torch-compile": "compiled",
    "onnxruntime": "prepacked",
    "zentorch": "prepacked",
    OURS_EAGER: "eager",
    OURS: "compiled",
}
"""How each runs the model."""


def runtime(name: str, original: torch.nn.Module, options: Mapping[str, Any]) -> tuple[Run, str]:
    """Returns one that runs the model, by name, and its version.

    Args:
        original: shares its weights; it stays as it is.
        options: ``studies``, three folders (dense layers, scores, context), or the first alone; ``onnx``,
            the model's file; ``threads``.

    Raises:
        MissingDependencyError: if it is not installed, or not for this processor.
    """
    import torch

    if name == "onnxruntime":
        return onnx_runtime(Path(options["onnx"]), int(options["threads"]))
    if name == "zentorch":
        require_zentorch()
        return compiled(original, backend="zentorch"), f"zentorch {version('zentorch')}"
    known = f"PyTorch {torch.__version__}"
    if name == "torch":
        return called(original), known
    if name == "torch-compile":
        return compiled(original), known
    ours = replaced(original, options["studies"])
    return (called if name == OURS_EAGER else compiled)(ours), known


def called(model: torch.nn.Module) -> Run:
    """Returns the model as a function of words."""
    return lambda words: model(input_ids=words)[0]


def compiled(model: torch.nn.Module, **options: Any) -> Run:
    """Returns the model compiled for any length."""
    import torch

    return called(torch.compile(model, dynamic=True, **options))


def replaced(original: torch.nn.Module, studies: list[str]) -> torch.nn.Module:
    """Returns a twin of a model, with the same weights, whose layers run through libraries."""
    from dietlab.torch import replace_attention, replace_experts, replace_linears
    from dietlab.torch.experts import experts_of

    shared = {id(weights): weights for weights in original.parameters()}
    twin = replace_linears(copy.deepcopy(original, shared), studies[0])
    if any(True for _ in experts_of(twin)):
        twin = replace_experts(twin, studies[0])
    return replace_attention(twin, *studies[1:]) if len(studies) > 1 else twin


def require_zentorch() -> None:
    """Checks that ZenDNN's compiler is here and made for this processor."""
    if processor_vendor() != "AuthenticAMD":
        raise MissingDependencyError("zentorch runs on AMD's processors", processor_vendor() or "another")
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if "avx512f" not in flags:
        raise MissingDependencyError(
            "zentorch compiles models for processors with AVX-512", "this one has none", "Leave it out."
        )
    try:
        importlib.import_module("zentorch")
    except (ImportError, OSError) as error:
        raise MissingDependencyError(
            "zentorch is installed, for this version of PyTorch", error, "pip install 'dietlab[zendnn]'."
        ) from None


def onnx_runtime(path: Path, threads: int) -> tuple[Run, str]:
    """Returns ONNX Runtime with a model's file."""
    try:
        import onnxruntime
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "onnxruntime is installed", error, "pip install 'dietlab[onnxruntime,models]'."
        ) from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    # Idle threads must not spin while another contender is timed.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def run(words: Words) -> Any:
        return torch.from_numpy(session.run(None, {"words": words.numpy()})[0])

    return run, f"ONNX Runtime {onnxruntime.__version__}"


def write_onnx(model: Model, path: Path) -> Path:
    """Writes a model for ONNX Runtime, for any batch and length, unless the file is there.

    Raises:
        MissingDependencyError: without ``onnx`` and ``onnxscript``.
    """
    if path.exists():
        return path
    import torch

    class Outer(torch.nn.Module):  # type: ignore[misc]
        """Of the model's results only the last layer's output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model.build()

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=words)[0]

    # It says of packages that have nothing to do with the model that they are not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.onnx.export(
                Outer().eval(),
                (torch.zeros(2, 7, dtype=torch.long),),
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
    return path

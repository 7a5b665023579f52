"""Runtimes of a whole model: PyTorch as it is and compiled, ONNX Runtime, ZenDNN, PyTorch with dietlab."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dietlab.errors import MissingDependencyError
from dietlab.files import UNFINISHED
from dietlab.hardware.detect import processor_vendor
from dietlab.models.ansor import with_programs
from dietlab.models.zoo import Model
from dietlab.results.row import OURS

if TYPE_CHECKING:
    import torch

ONNX_FILE = "model.onnx"

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
    "ansor": "scheduler",
    OURS_EAGER: "eager",
    OURS: "compiled",
}
"""How each runs the model."""


def runtime(name: str, original: torch.nn.Module, options: Mapping[str, Any]) -> tuple[Run, str]:
    """Returns one that runs the model, by name, and its version.

    Args:
        original: shares its weights; it stays as it is.
        options: ``studies``, three folders (dense layers, scores, context), or the first alone; ``onnx``,
            the model's file; ``ansor``, the folder of programs for each layer; ``threads``.

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
    if name == "ansor":
        twin = with_programs(twin_of(original), Path(options["ansor"]))
        return compiled(twin), f"{known}, MetaSchedule of TVM {version('apache-tvm')}"
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

    twin = replace_linears(twin_of(original), studies[0])
    if any(True for _ in experts_of(twin)):
        twin = replace_experts(twin, studies[0])
    return replace_attention(twin, *studies[1:]) if len(studies) > 1 else twin


def twin_of(original: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a model that shares its weights."""
    return copy.deepcopy(original, {id(weights): weights for weights in original.parameters()})


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
    session = onnx_session(path, threads)

    def run(words: Words) -> Any:
        return torch.from_numpy(session.run(None, {"words": words.numpy()})[0])

    return run, f"ONNX Runtime {onnxruntime.__version__}"


def onnx_session(path: Path, threads: int, profile: str = "") -> Any:
    """Returns a session of ONNX Runtime; with ``profile`` its trace goes to a file whose name begins so."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    # Idle threads must not spin while another contender is timed.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    settings.enable_profiling = bool(profile)
    settings.profile_file_prefix = profile
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


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
    """Returns what tells apart models of other weights: their files' names, sizes and times, and the
    configuration."""
    about: list[Any] = [model.configuration.to_dict()]
    if model.weights:
        files = sorted(Path(model.weights).expanduser().resolve().iterdir())
        about += [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _export(model: Model, path: Path) -> None:
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

"""Runtimes of a whole model: PyTorch as it is, compiled, and compiled ahead of time, each with and without
dietlab; ONNX Runtime; OpenVINO; ZenDNN."""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.results.row import ANSOR, OURS
from dietlab.lab.models.ansor import with_programs
from dietlab.lab.models.export import EXAMPLE, compile_ahead
from dietlab.lab.models.zoo import Model
from dietlab.problem import Shape
from dietlab.targets.cpu.contenders.open_vino import OpenVino
from dietlab.targets.cpu.machine import processor_vendor

if TYPE_CHECKING:
    import torch

Words = Any
Run = Callable[[Words], Any]
"""Computes ``[batch, T, hidden]`` of words ``[batch, T]``, all PyTorch tensors."""

OURS_EAGER, OURS_COMPILED = f"{OURS}-eager", f"{OURS}-compile"
"""Ours in a model as PyTorch runs it, and in one that it compiles at the first call;
:data:`~dietlab.compare.results.row.OURS` is in one that was compiled ahead of time."""

ALSO_OURS = (OURS_EAGER, OURS_COMPILED)
"""No rivals of ours."""

FROZEN = "torch-compile-frozen"
"""PyTorch's compiler with frozen weights: the only form in which it packs them where the number of rows is
dynamic, by oneDNN."""

TORCH_AHEAD, FROZEN_AHEAD = "torch-aot", "torch-aot-frozen"
AHEAD = (OURS, TORCH_AHEAD, FROZEN_AHEAD, ANSOR, "openvino")
"""Those that were compiled ahead of time, of which PyTorch's profiler sees hardly any operation."""

KINDS: Mapping[str, str] = {
    "torch": "eager",
    "torch-compile": "compiled",
    FROZEN: "prepacked",
    TORCH_AHEAD: "compiled",
    FROZEN_AHEAD: "prepacked",
    "onnxruntime": "prepacked",
    "openvino": "prepacked",
    "zentorch": "prepacked",
    ANSOR: "scheduler",
    OURS_EAGER: "eager",
    OURS_COMPILED: "compiled",
    OURS: "compiled",
}
"""How each runs the model."""


def runtime(
    name: str, model: Model, original: torch.nn.Module, options: Mapping[str, Any]
) -> tuple[Run, str]:
    """Returns one that runs the model, by name, and its version.

    Args:
        model: and the lengths that it is compiled for.
        original: is that model, and shares its weights; it stays as it is.
        options: ``studies``, three folders (dense layers, scores, context), or the first alone; ``onnx``,
            the model's file; ``ansor``, the folder of programs for each layer; ``threads``.

    Raises:
        MissingDependencyError: if it is not installed, or not for this processor or model.
    """
    import torch

    if name == "onnxruntime":
        return onnx_runtime(Path(options["onnx"]), int(options["threads"]))
    if name == "openvino":
        return open_vino(model, original, int(options["threads"]))
    if name == "zentorch":
        require_zentorch()
        return compiled(original, backend="zentorch"), f"zentorch {version('zentorch')}"
    twin, about = original, [f"PyTorch {torch.__version__}"]
    if name in (OURS, *ALSO_OURS):
        twin = replaced(original, options["studies"])
    elif name == ANSOR:
        twin = with_programs(twin_of(original), Path(options["ansor"]))
    if name in AHEAD:
        run: Run = compile_ahead(model, twin, freezing=name == FROZEN_AHEAD)
        about.append("ahead of time")
    elif name in ("torch", OURS_EAGER):
        run = called(twin)
    else:
        if name == FROZEN:
            import torch._inductor.config

            # In this process from now on: torch.compile passes over options={"freezing": True}.
            torch._inductor.config.freezing = True
        run = compiled(twin)
    if name in (FROZEN, FROZEN_AHEAD):
        about.append("weights packed by oneDNN")
    if name == ANSOR:
        about.append(f"MetaSchedule of TVM {version('apache-tvm')}")
    return run, ", ".join(about)


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


def open_vino(model: Model, original: torch.nn.Module, threads: int) -> tuple[Run, str]:
    """Returns OpenVINO with a model that it converts, which gets a mask of ones beside the words.

    Without one its attention is wrong for as many words as a vector has float32 values, and more, if the
    first call had one word (2026.4.1; ``findings/openvino_first_length.sh``)."""
    import torch

    vendor, words = OpenVino(threads), model.words(Shape.of(T=EXAMPLE))
    example = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    logger = logging.getLogger()
    level = logger.level
    try:
        converted = vendor.library.convert_model(original, example_input=example)
    except Exception as error:  # OpenVINO's and PyTorch's have no class in common
        found = str(error).strip().rpartition("\n")[2].removeprefix("-- ")  # operators
        raise MissingDependencyError(
            f"OpenVINO has a form for each operator of {model.name}", found, "Leave openvino out."
        ) from error
    finally:
        logger.setLevel(level)  # converting makes it that of errors (2026.4.1), for every library
    request = vendor.compiled(converted).create_infer_request()

    def run(words: Words) -> Any:
        given = {"input_ids": words.numpy(), "attention_mask": torch.ones_like(words).numpy()}
        return torch.from_numpy(request.infer(given, share_inputs=True, share_outputs=True)[0])

    return run, vendor.version()

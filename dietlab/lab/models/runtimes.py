"""Runtimes of a whole model: PyTorch as it is, compiled, and compiled ahead of time, each with and without
dietlab; ONNX Runtime; OpenVINO; ZenDNN. And the shares of their time in contractions, attention and the
rest."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.compare.results.row import ANSOR, OURS, TimeShares
from dietlab.compare.study import Study
from dietlab.lab.models.forms import compile_ahead, example_of, with_programs
from dietlab.lab.models.zoo import Model
from dietlab.problem import BatchMatmul, Dense
from dietlab.targets.cpu.contenders.open_vino import OpenVino
from dietlab.targets.cpu.machine import processor_vendor

if TYPE_CHECKING:
    import torch

Input = Any
Run = Callable[[Input], Any]
"""A function that computes a model's last hidden state from its input, both PyTorch tensors."""

OURS_EAGER, OURS_COMPILED = f"{OURS}-eager", f"{OURS}-compile"
"""The names of contenders with dietlab's layers: in a model that PyTorch runs eagerly, and in a model that it
compiles at the first call. :data:`~dietlab.compare.results.row.OURS` is the contender with these layers in a
model compiled ahead of time."""

ALSO_OURS = (OURS_EAGER, OURS_COMPILED)
"""The contenders with dietlab's layers that are no rivals of :data:`OURS`."""

FROZEN = "torch-compile-frozen"
"""The contender that is PyTorch's compiler with frozen weights. Only in this form does the compiler pack
weights, by oneDNN, where the number of rows is dynamic."""

TORCH_AHEAD, FROZEN_AHEAD = "torch-aot", "torch-aot-frozen"
AHEAD = (OURS, TORCH_AHEAD, FROZEN_AHEAD, ANSOR, "openvino")
"""The contenders that are compiled ahead of time: PyTorch's profiler sees hardly any of their operations."""

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
"""The kind of each contender: how it runs the model."""


def runtime(
    name: str, model: Model, original: torch.nn.Module, options: Mapping[str, Any]
) -> tuple[Run, str]:
    """Returns the function with which the contender ``name`` runs the model, and the contender's version.

    Args:
        options: the contender's options: ``studies``, the folders of studies of its layers and attention;
            ``onnx``, the model's file; ``ansor``, the folder of programs for each layer; ``threads``, the
            number of threads.
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
    return lambda given: model(given)[0]


def compiled(model: torch.nn.Module, **options: Any) -> Run:
    """Returns the model compiled for any size."""
    import torch

    return called(torch.compile(model, dynamic=True, **options))


def replaced(original: torch.nn.Module, studies: list[str]) -> torch.nn.Module:
    """Returns a twin of a model, with the same weights, whose layers run through libraries.

    Raises:
        StudyError: if no layer runs through a library.
    """
    from dietlab.torch import replace_attention, replace_experts, replace_layers
    from dietlab.torch.experts import experts_of
    from dietlab.torch.layers import TunedLayer

    layers, attention = by_use(map(Study.open, studies))
    twin = replace_layers(twin_of(original), *layers)
    if not any(isinstance(module, TunedLayer) for module in twin.modules()):
        found = "; ".join(str(study.workload) for study in layers)
        raise StudyError("the studies must serve some layer of the model", found)
    if any(True for _ in experts_of(twin)):
        twin = replace_experts(twin, next(study for study in layers if isinstance(study.workload, Dense)))
    return replace_attention(twin, *attention) if attention else twin


def by_use(studies: Iterable[Study]) -> tuple[list[Study], list[Study]]:
    """Returns the studies of a model's layers, and those of attention's scores and context."""
    layers, attention = list[Study](), dict[str, Study]()
    for study in studies:
        if isinstance(study.workload, BatchMatmul):
            attention[study.workload.form] = study
        else:
            layers.append(study)
    return layers, [attention[form] for form in ("nt", "nn") if form in attention]


def twin_of(original: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a model that shares its weights."""
    return copy.deepcopy(original, {id(weights): weights for weights in original.parameters()})


def require_zentorch() -> None:
    """Checks that ZenDNN's compiler is here and made for this processor."""
    if processor_vendor() != "AuthenticAMD":
        raise MissingDependencyError("zentorch needs an AMD processor", processor_vendor() or "another")
    if "avx512f" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        rule = "zentorch needs a processor with AVX-512"
        raise MissingDependencyError(rule, "this one has none", "Leave it out.")
    try:
        importlib.import_module("zentorch")
    except (ImportError, OSError) as error:
        rule = "zentorch must be installed, for the installed version of PyTorch"
        raise MissingDependencyError(rule, error, "pip install 'dietlab[zendnn]'.") from None


def onnx_runtime(path: Path, threads: int) -> tuple[Run, str]:
    """Returns ONNX Runtime with a model's file."""
    try:
        import onnxruntime
        import torch
    except ImportError as error:
        remedy = "pip install 'dietlab[onnxruntime,models]'."
        raise MissingDependencyError("onnxruntime must be installed", error, remedy) from None
    session = onnx_session(path, threads)

    (only,) = session.get_inputs()

    def run(given: Input) -> Any:
        return torch.from_numpy(session.run(None, {only.name: given.numpy()})[0])

    return run, f"ONNX Runtime {onnxruntime.__version__}"


def onnx_session(path: Path, threads: int, profile: str = "") -> Any:
    """Returns a session of ONNX Runtime; with ``profile`` it writes a trace to a file whose name begins with
    it."""
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
    """Returns OpenVINO with a model that it converts; a model of words gets a mask of ones with them.

    Without a mask, if the first call had one word, attention is wrong for calls with at least as many words
    as a vector has float32 values (2026.4.1; ``findings/openvino_first_length.sh``)."""
    import torch

    vendor, example = OpenVino(threads), example_of(model)
    named = dict(zip(model.given.names, (example, torch.ones_like(example)), strict=False))
    logger = logging.getLogger()
    level = logger.level
    try:
        converted = vendor.library.convert_model(original, example_input=named if len(named) > 1 else example)
    except Exception as error:  # OpenVINO's and PyTorch's have no class in common
        found = str(error).strip().rpartition("\n")[2].removeprefix("-- ")  # operators
        rule = f"OpenVINO must have a form for each operator of {model.name}"
        raise MissingDependencyError(rule, found, "Leave openvino out.") from error
    finally:
        logger.setLevel(level)  # converting makes it that of errors (2026.4.1), for every library
    request = vendor.compiled(converted).create_infer_request()

    def run(given: Input) -> Any:
        inputs = (given.numpy(), torch.ones_like(given).numpy())[: len(named)]
        return torch.from_numpy(request.infer(inputs, share_inputs=True, share_outputs=True)[0])

    return run, vendor.version()


# --- where the time goes ----------------------------------------------------------------------


PARTS = {
    "contractions": (
        "dietlab::linear",
        "dietlab::convolution",
        "dietlab::grouped_linear",
        "aten::linear",
        "aten::addmm",
        "aten::mm",
        "aten::_grouped_mm",
        "aten::convolution",
        "aten::conv1d",
        "aten::conv2d",
        "mkl::_mkl_linear",
        "mkldnn::_linear_pointwise",
        "mkldnn::_convolution_pointwise",
        "mkldnn::_convolution_pointwise_",
        "zentorch::zentorch_linear_unary",
        "zentorch::zentorch_linear_unary_binary",
    ),
    "attention": (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "zentorch::zentorch_sdpa",
        "dietlab::batch_matmul",
        "aten::bmm",
    ),
}
"""PyTorch's names of operations by part. Contractions are products with weights; dietlab's contractions
compute the activation, too. Attention consists of the fused operation (both batched products and the
softmax), or of the batched products alone."""

PART_OF = {name: part for part, names in PARTS.items() for name in names}

PRODUCTS = ("MatMul", "FusedMatMul", "Gemm")
"""ONNX Runtime's names of products. A product belongs to attention if an operand has four dimensions, a batch
of heads."""

CONVOLUTIONS = ("Conv", "FusedConv")
"""ONNX Runtime's names of convolutions."""

CALLS, SECONDS = 10, 1.0
"""The most calls over which a profiler sums, and the seconds after which it stops. A profile of one short
call might hold a slow moment of a shared processor."""

CALL = "a call of the model"


def time_shares(run: Run, given: Input, calls: int | None = None) -> TimeShares:
    """Returns the shares of a call's time on the calling thread.

    Args:
        run: a model of PyTorch that was called with an input of this shape before.
        given: the input.
        calls: the number of calls over which the profiler sums (default: at most :data:`CALLS`, for
            :data:`SECONDS`).
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in _enough(calls):
            with record_function(CALL):
                run(given)
    times = Counter[str]()
    for event in profiled.events():
        if event.name == CALL:
            times[CALL] += event.cpu_time_total
        elif event.name in PART_OF and not any(name in PART_OF for name in _callers(event)):
            times[PART_OF[event.name]] += event.cpu_time_total
    return TimeShares(*(times[part] / times[CALL] for part in PARTS))


def _enough(calls: int | None) -> Iterator[None]:
    """Yields ``calls`` times or, without a number, up to :data:`CALLS` times within :data:`SECONDS`."""
    until = time.monotonic() + SECONDS
    for done in range(CALLS if calls is None else calls):
        if calls is None and done and time.monotonic() >= until:
            return
        yield


def _callers(event: Any) -> Iterator[str]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event.name


def onnx_shares(path: Path, threads: int, given: Input, calls: int | None = None) -> TimeShares:
    """Returns the shares of a call's time in ONNX Runtime, by its own profiler."""
    with TemporaryDirectory() as folder:
        session = onnx_session(path, threads, str(Path(folder) / "calls"))
        inputs = {session.get_inputs()[0].name: given.numpy()}
        session.run(None, inputs)
        for _ in _enough(calls):
            session.run(None, inputs)
        return shares_of_trace(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")))


def shares_of_trace(events: Iterable[Mapping[str, Any]]) -> TimeShares:
    """Returns the shares of all calls but the first in a trace of ONNX Runtime."""
    events = [event for event in events if "ts" in event]
    starts = [event["ts"] for event in events if event["name"] == "model_run"]
    later = [event for event in events if event["ts"] >= sorted(starts)[1]]
    total = sum(event["dur"] for event in later if event["name"] == "model_run")
    contractions = attention = 0
    for event in later:
        operator = event.get("args", {}).get("op_name")
        if operator in CONVOLUTIONS or (operator in PRODUCTS and not _of_heads(event["args"])):
            contractions += event["dur"]
        elif operator in (*PRODUCTS, "Softmax"):
            attention += event["dur"]
    return TimeShares(contractions / total, attention / total)


def _of_heads(args: Mapping[str, Any]) -> bool:
    shapes = [shape for operand in args["input_type_shape"] for shape in operand.values()]
    return any(len(shape) > 3 for shape in shapes)

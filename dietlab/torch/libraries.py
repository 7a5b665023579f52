"""The libraries of a study for a model's layers: one for each epilogue, built once and kept in the study."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dietlab.base.errors import DietlabError, StudyError
from dietlab.compare.study import EPILOGUES, Study
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Conv1d, Conv2d, Dense
from dietlab.problem.dims import holds
from dietlab.torch.gpu_library import KIND
from dietlab.torch.gpu_linear import unfit_for_gpu
from dietlab.torch.operators import require_compiled
from dietlab.tuning import Dispatcher, build, load

Kind = TypeVar("Kind", Dense, BatchMatmul, Conv1d, Conv2d)

SERVED = "dietlab_served"
"""The attribute of a module of ``transformers`` that holds its :class:`Served`."""


@dataclass(frozen=True)
class Served(Generic[Kind]):
    """The products of a module of ``transformers`` that libraries compute.

    Unpickling or copying calls ``register``, so that a saved model finds its functions in another process.

    Attributes:
        register: a function that registers with ``transformers`` the functions that call the libraries.
        products: the operators, each with the folder of its library.
    """

    register: Callable[[], None]
    products: tuple[tuple[Kind, str], ...]

    def __reduce__(self) -> Any:
        """Returns how to unpickle it."""
        return serve, (self.register, *self.products)


def serve(register: Callable[[], None], *products: tuple[Kind, str]) -> Served[Kind]:
    """Registers a module's functions and returns its products that libraries compute."""
    register()
    return Served(register, products)


def library_of(study: Study, **epilogue: object) -> str:
    """Returns the folder of a study's library with an epilogue such as ``bias=True``, and builds it on first
    use.

    The folder's name is a digest of the dispatcher. A study that was tuned further gets new libraries, while
    a process keeps the libraries that it opened.

    Raises:
        StudyError: if the study was not tuned.
        BuildError: if the library does not compile.
        MissingDependencyError: for a CPU's study, without the operators of C++.
    """
    if not is_for_gpu(study):
        require_compiled()
    dispatcher = replace(study.dispatcher(), workload=replace(study.workload, **epilogue))  # type: ignore[type-var]
    return built_beside(dispatcher, study.folder / EPILOGUES)


def built_beside(dispatcher: Dispatcher, epilogues: Path) -> str:
    """Returns the folder of a dispatcher's library among those of its study, and builds it on first use.

    Raises:
        BuildError: if the library does not compile.
    """
    digest = sha256(json.dumps(dispatcher.to_json(), sort_keys=True).encode()).hexdigest()[:12]
    home = epilogues / digest
    try:
        operator = load(home)
    except DietlabError:
        operator = build(dispatcher, home)
    return str(operator.path.parent.resolve())


def is_for_gpu(study: Study) -> bool:
    """Returns whether a study's libraries are for a GPU."""
    return study.hardware.kind == KIND


def require_served(study: Study, operator: type[Kind], what: str, *, on_gpu: bool = False) -> Kind:
    """Returns the workload of a study after checking its operator and processor.

    Args:
        on_gpu: whether a GPU's study serves, too. Its layers need a GPU that runs its code
            (:func:`~dietlab.torch.gpu_linear.unfit_for_gpu`).

    Raises:
        StudyError: if it is of another operator, or not of this processor.

    Warns:
        UserWarning: if the study's number of cores is not PyTorch's number of threads.
    """
    if not isinstance(study.workload, operator):
        raise StudyError(f"{what} need a study of {operator.__name__}", study.workload)
    if is_for_gpu(study):
        if not on_gpu:
            raise StudyError(
                f"{what} need a study of a CPU", study.hardware.name, "PyTorch computes them on a GPU."
            )
        require_gpu_of(study)
        return study.workload
    if not study.hardware.is_same_as(Hardware.detect(measure=False)):
        raise StudyError("the study needs this processor", study.hardware.name, "Tune here: `dietlab tune`.")
    threads, cores = torch.get_num_threads(), study.hardware.cores
    if threads != cores:
        warnings.warn(
            f"the study is for {cores} cores, and PyTorch runs {threads} threads: "
            f"torch.set_num_threads({cores}) makes them equal, `dietlab tune --threads {threads}` tunes for "
            "those",
            stacklevel=3,
        )
    return study.workload


def require_gpu_of(study: Study) -> None:
    """Checks that a GPU of this machine runs the code of a study's libraries.

    Raises:
        StudyError: if none does.

    Warns:
        UserWarning: if it is another GPU than the one that the study was tuned for.
    """
    from dietlab.targets.cuda.limits import gpu_of
    from dietlab.targets.cuda.machine import detect_gpus

    tuned, arch, found = study.hardware, gpu_of(study.hardware).arch, detect_gpus()
    able = [gpu for gpu in found if gpu_of(gpu).runs(arch)]
    if not able:
        here = ", ".join(f"{gpu.name} with {gpu_of(gpu).arch}" for gpu in found) or "none"
        raise StudyError(
            f"the study of {tuned.name} needs a GPU that runs code for {arch}",
            here,
            "Tune here: `dietlab tune --target cuda`.",
        )
    if not any(gpu.is_same_as(tuned) for gpu in able):
        here = able[0].name if able[0].name != tuned.name else f"{tuned.name} with other limits"
        warnings.warn(f"the study was tuned for {tuned.name}, and this is {here}", stacklevel=4)


def unfit(weights: Tensor) -> str:
    """Returns why no library for a CPU can compute a layer with these weights; empty if one may."""
    if weights.is_inference():
        return "its weights are inference tensors, whose changes PyTorch does not count"
    if weights.dtype is not torch.float32 or not weights.is_cpu:
        return f"its weights are {weights.dtype} on {weights.device.type}, not float32 on the CPU"
    if weights.layout is not torch.strided:
        return f"its weights are stored as {weights.layout}"
    return ""


def unserved(weights: Tensor, study: Study) -> str:
    """Returns why a study of ``Dense`` does not serve weights ``[..., N, K]``; empty if it does."""
    work: Any = study.workload
    gpu = is_for_gpu(study)
    reason = unfit_for_gpu(weights, work.dtype, study.hardware) if gpu else unfit(weights)
    if reason:
        return reason
    for name, extent, tuned in zip("NK", weights.shape[-2:], (work.N, work.K), strict=True):
        if not holds(tuned, extent):
            return f"{name} = {extent}, and the study was tuned for {name} = {tuned}"
    return ""

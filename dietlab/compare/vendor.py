"""Registries of vendors, the environment of their processes, and functions to write a vendor with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Literal

from dietlab.base.contracts import shown
from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.base.registry import Registry
from dietlab.compare.target import BOUNDS
from dietlab.measure.timing.contender import Call, Contender, NoFormError, Operands
from dietlab.measure.timing.threads import pool_env
from dietlab.problem import Workload

GELU_FORM = {"gelu_tanh": "tanh", "gelu_erf": "none"}
"""PyTorch's names of the approximations of a GELU."""

CONVOLUTIONS = ("conv1d", "conv2d")
"""The names of convolutions in a vendor's ``computes`` and ``default``."""

__all__ = [
    "CONVOLUTIONS",
    "IN_FLOAT32",
    "Call",
    "Contender",
    "Kind",
    "NoFormError",
    "Operands",
    "absent",
    "contender_env",
    "require_constant_weights",
    "sequence",
    "without_gelu",
]

Kind = Literal["plain", "prepacked"]

IN_FLOAT32 = (
    "Contenders on the CPU compute float32 products in float32: PyTorch's float32_matmul_precision and "
    "oneDNN's fpmath mode are set so in their processes, whatever they are elsewhere."
)
"""A remark for reports on the precision of float32."""

NAMES_OF_OURS = ("dietlab", "library", "libraries", *BOUNDS)
"""Names of contenders that are no vendors."""

Maker = Callable[[Any], Contender]
"""Makes a vendor, in its process, from the one argument that all vendors of a target get."""


def vendors(noun: str, group: str, own: Iterable[Any], made_with: str) -> Registry[Maker]:
    """Returns the vendors of a target by name; others can enter more.

    Args:
        noun: a vendor in words, with its article.
        group: the group of the entry points by which installed packages enter vendors.
        own: classes in dietlab, each with a ``name``.
        made_with: the classes' argument in words, for the error message.
    """

    def taken(name: str, value: object) -> Maker:
        if not callable(value) or (isinstance(value, type) and not hasattr(value, "prepare")):
            remedy = f"Enter {type(value).__name__} itself." if hasattr(value, "prepare") else ""
            raise MeasureError(
                f"the contender {name} must be entered as a class with prepare, made with {made_with}",
                shown(value),
                remedy,
            )
        return value

    makers = {made.name: made for made in own}
    return Registry(noun, group, makers, taken, MeasureError, reserved=NAMES_OF_OURS, travels=True)


def defaults(known: Registry[Maker]) -> tuple[str, ...]:
    """Returns the contenders that take part in every evaluation that names none."""
    return tuple(name for name, made in known.own.items() if getattr(made, "default", True) is True)


def defaults_of(made: Any) -> tuple[str, ...]:
    """Returns the operators in whose evaluations alone a vendor takes part without being named."""
    default = getattr(made, "default", True)
    return () if isinstance(default, bool) else tuple(default)


def packages(known: Registry[Maker]) -> dict[str, str]:
    """Returns, for each package, the contenders that need it, such as ``"contenders mkl, mkl-packed"``."""
    needs: dict[str, list[Any]] = {}
    for made in known.own.values():
        if package := getattr(made, "package", ""):
            needs.setdefault(package, []).append(made)
    return {
        package: f"contender{'s' if len(made) > 1 else ''} {', '.join(one.name for one in made)}"
        + (f", {made[0].where}" if hasattr(made[0], "where") else "")
        for package, made in needs.items()
    }


def contender_env(threads: int) -> dict[str, str]:
    """Returns variables for the environment of a contender's process; OpenMP runtimes read them once.

    - Idle threads of one contender must not spin while another is timed: ``KMP_BLOCKTIME`` is in
      milliseconds, ``OPENBLAS_THREAD_TIMEOUT`` is the logarithm to base 2 of clock cycles; for TVM's pool see
      :func:`~dietlab.measure.timing.threads.pool_env`.
    - ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` keeps PyTorch from importing installed extensions, which may replace
      its operators: the contender torch is PyTorch only.
    - ``ZENDNNL_MATMUL_WEIGHT_CACHE=0`` keeps ZenDNN from storing weights that come with a call, and from
      packing them in place.
    - ``ONEDNN_DEFAULT_FPMATH_MODE=STRICT``, also by its older name, keeps oneDNN from computing float32 in
      bfloat16, which a user's setting may allow. A setting of PyTorch is reset by
      :func:`~dietlab.targets.cpu.contenders.pytorch.in_float32`.

    Args:
        threads: cores that the contender may use.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        **pool_env(threads),
        "OMP_DYNAMIC": "FALSE",
        "MKL_DYNAMIC": "FALSE",
        "KMP_BLOCKTIME": "1",
        "OPENBLAS_THREAD_TIMEOUT": "22",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "ZENDNNL_MATMUL_WEIGHT_CACHE": "0",
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
        "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
    }


def sequence(steps: Sequence[Call]) -> Call:
    """Returns one call that runs the steps in their order.

    Args:
        steps: calls without arguments.
    """
    if len(steps) == 1:
        return steps[0]

    def call() -> None:
        for step in steps:
            step()

    return call


def require_constant_weights(workload: Workload) -> Kind:
    """Returns ``"prepacked"``, the kind of a vendor that packs weights.

    Args:
        workload: the operator to compute.

    Raises:
        NoFormError: if the weights come with every call.
    """
    if "w" not in workload.constants:
        raise NoFormError(
            "a contender that packs weights needs constant weights",
            f"{workload}, whose operands all come with every call",
            "Compare with the plain contenders.",
        )
    return "prepacked"


def without_gelu(workload: Workload, library: str) -> None:
    """Refuses activations for which a BLAS has no vectorised function.

    Args:
        workload: the operator to compute.
        library: the library's name, for the message.

    Raises:
        NoFormError: for a GELU.
    """
    if workload.epilogue.activation not in ("none", "relu"):
        raise NoFormError(
            f"{library} must be able to compute the activation",
            workload.epilogue.activation,
            "Compare with torch, onednn-packed or onnxruntime.",
        )


def absent(library: str, reason: object) -> MissingDependencyError:
    """Returns the error for a library that is not installed.

    Args:
        library: its name, for the message.
        reason: the reason of its absence, such as the error of its import.
    """
    package = library.split()[0]
    return MissingDependencyError(
        f"the library {library} must be installed",
        reason,
        f"Install it (pip install {package}), or leave this contender out.",
    )


def import_torch() -> ModuleType:
    """Returns PyTorch, or raises :class:`MissingDependencyError`."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise absent("torch", error) from None

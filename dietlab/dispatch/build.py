"""Compiles a dispatcher into one shared library with a manifest beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dietlab.dispatch.dispatcher import Dispatcher
from dietlab.dispatch.operator import LIBRARY_NAME, MANIFEST_NAME, SCHEMA_VERSION, Operator, load
from dietlab.errors import BuildError, require_type
from dietlab.files import write_json
from dietlab.lower.contraction import called_dims
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.lower.runtime import find_runtime
from dietlab.lower.target import lower_target
from dietlab.shapes import Shape
from dietlab.workloads import Workload

PACKAGES = ("dietlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost-cpu")


def build(
    dispatcher: Dispatcher,
    path: str | Path,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Shape]] | None = None,
    lowering: Lowering = DEFAULTS,
) -> Operator:
    """Builds ``path/library/`` and returns the operator in it, ready to call.

    The folder holds ``library.so`` (needs neither Python nor TVM's compiler), ``manifest.json`` and,
    if the operator runs on several cores, a copy of TVM's runtime, whose thread pool it uses.

    Args:
        dispatcher: the schemes to compile and the tree over them.
        path: the folder that gets ``library/``.
        every_plan: whether any scheme can be run on any shape, for comparing them; such a library has
            more code.
        only: for each scheme the shapes that it will be called with (default: any). For measurement
            only: other shapes have undefined results.
        lowering: the decisions for a CPU that no scheme names; the manifest keeps them.

    Raises:
        BuildError: if the program does not compile, no linker is installed, or ``dispatcher`` is of another
            class.
    """
    require_type(
        "the first argument of build", dispatcher, Dispatcher, BuildError, "train_dispatcher() returns one."
    )
    from dietlab.lower.program import compile_plans

    folder, hardware = Path(path) / "library", dispatcher.hardware
    artifact = compile_plans(
        dispatcher.workload,
        hardware,
        dispatcher.schemes,
        dispatcher.tree,
        folder / "building.so",
        every_plan=every_plan,
        only=only,
        lowering=lowering,
    )
    runtimes = lower_target(hardware.kind).runtimes(hardware.cores)
    manifest = {
        **dispatcher.to_json(),
        "schema_version": SCHEMA_VERSION,
        "micro_kernels": [kernel.key for kernel in dispatcher.micro_kernels],
        "packs": artifact.packs,
        "lowering": lowering.recorded(hardware),
        "entries": entries(dispatcher.workload, every_plan=every_plan, packs=artifact.packs),
        "code_bytes": artifact.code_bytes,
        "file_bytes": artifact.path.stat().st_size,
        "needs": ["libtvm_ffi.so", *runtimes],
        "resources": dict(artifact.resources),
        "rules": dispatcher.to_source(),
        "versions": versions(),
    }
    try:
        # A process that has the old library open keeps it: the file is replaced, never rewritten.
        artifact.path.replace(folder / LIBRARY_NAME)
        _copy_runtimes(folder, runtimes)
        write_json(folder / MANIFEST_NAME, manifest)
    except OSError as error:
        raise BuildError("the library can be written", f"{folder}: {error}") from error
    return load(folder)


def entries(workload: Workload, *, every_plan: bool, packs: bool = True) -> dict[str, str]:
    """Returns the library's functions with the shapes of their arguments, for its manifest."""
    shapes = {name: f"{name} [{', '.join(map(str, shape))}]" for name, shape in workload.signature.items()}
    out = shapes.pop("out").replace("out", "y", 1)
    packs = packs and bool(workload.constants)
    constants = [shapes.pop(name) for name in workload.constants] if packs else []
    operands = [*shapes.values()]
    if constants:
        operands.insert(1, "packed")
    call = ", ".join([*operands, out])
    dims = ", ".join(called_dims(workload))
    found = {
        "run": f"run({call})",
        "plan": f"plan({dims}) -> number of the scheme",
        "idle": f"idle({dims}) -> 0",
    }
    if every_plan:
        found["run_plan"] = f"run_plan({call}, plan)"
    return {**found, "pack": f"pack({', '.join(constants)}, packed)"} if constants else found


def _copy_runtimes(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        runtime = find_runtime(name)
        if runtime is not None:
            shutil.copyfile(runtime, folder / name)


def versions() -> dict[str, str]:
    """Returns the installed versions of the packages that a library depends on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

"""Compiles a dispatcher into one shared library with a manifest beside it."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dietlab.dispatch.dispatcher import Dispatcher
from dietlab.dispatch.operator import LIBRARY_NAME, MANIFEST_NAME, SCHEMA_VERSION, Operator, load
from dietlab.errors import BuildError
from dietlab.lower.runtime import RUNTIME_NAME, find_runtime

PACKAGES = ("dietlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost-cpu", "scikit-learn")


def build(dispatcher: Dispatcher, path: str | Path) -> Operator:
    """Builds ``path/library/`` and returns the operator in it, ready to call.

    The folder holds ``library.so`` (needs neither Python nor TVM's compiler), ``manifest.json`` and,
    if the operator runs on several cores, a copy of TVM's runtime, whose thread pool it uses.

    Raises:
        BuildError: if the program does not compile, or no linker is installed.
    """
    from dietlab.lower.compiler import compile_library
    from dietlab.lower.geometry import Geometry
    from dietlab.lower.library import library_module

    folder = Path(path) / "library"
    geometry = Geometry.of(dispatcher.workload, dispatcher.hardware, dispatcher.micro_kernels)
    module = library_module(geometry, dispatcher.micro_kernels, dispatcher.tree)
    artifact = compile_library(module, dispatcher.hardware, folder / "building.so")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        **{k: v for k, v in dispatcher.to_json().items() if k != "schema_version"},
        "packed_shape": geometry.packed_shape,
        "entries": {
            "run": "run(x [T, K], packed, y [T, N])",
            "run_plan": "run_plan(x, packed, y, plan)",
            "plan": "plan(T) -> number of the micro-kernel",
            "pack": "pack(w [N, K], bias [N], packed)" if geometry.has_bias else "pack(w [N, K], packed)",
        },
        "code_bytes": artifact.code_bytes, "file_bytes": artifact.path.stat().st_size,
        "needs": ["libtvm_ffi.so"] + ([RUNTIME_NAME] if geometry.cores > 1 else []),
        "rules": dispatcher.to_source(), "versions": versions(),
    }  # fmt: skip
    try:
        # A process that has the old library open keeps it: the file is replaced, never rewritten.
        artifact.path.replace(folder / LIBRARY_NAME)
        _copy_runtime(folder, geometry.cores)
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BuildError("the library can be written", f"{folder}: {error}") from error
    return load(folder)


def _copy_runtime(folder: Path, cores: int) -> None:
    runtime = find_runtime()
    if cores > 1 and runtime is not None:
        shutil.copyfile(runtime, folder / RUNTIME_NAME)


def versions() -> dict[str, str]:
    """Installed versions of the packages that decide what a library is."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

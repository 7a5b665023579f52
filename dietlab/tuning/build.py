"""Compiles a dispatcher into one shared library with a manifest beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from dietlab.base.errors import BuildError, DietlabError, require_type
from dietlab.base.files import remedy_of, replacing, turn, write_json
from dietlab.lower.contraction import called_dims
from dietlab.lower.decisions import DEFAULTS, Lowering
from dietlab.lower.runtime import find_runtime
from dietlab.lower.target import lower_target, recorded_lowering
from dietlab.problem import Shape, Workload
from dietlab.tuning.dispatcher import Dispatcher
from dietlab.tuning.manifest import LIBRARY_NAME, MANIFEST_NAME, SCHEMA_VERSION, installed, read_manifest
from dietlab.tuning.operator import Operator, lock_of

PACKAGES = ("dietlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost-cpu")


def build(
    dispatcher: Dispatcher,
    path: str | Path,
    *,
    every_plan: bool = False,
    only: Sequence[Sequence[Shape]] | None = None,
    lowering: Lowering = DEFAULTS,
) -> Operator:
    """Builds ``path/library/`` and returns its operator, ready to call on a machine like that of the
    dispatcher; elsewhere each call raises an error.

    Processes that build into one folder take turns. A process that waited uses the library that another
    process has built, if both libraries are the same.

    The folder holds ``library.so``, which needs neither Python nor TVM's compiler, and ``manifest.json``. If
    the operator runs on several cores, the folder also holds a copy of TVM's runtime, whose thread pool the
    operator uses.

    Args:
        dispatcher: the schemes to compile, and the tree that chooses among them.
        path: the folder that gets ``library/``.
        every_plan: whether any scheme can be run on any shape, to compare schemes; such a library has more
            code.
        only: for each scheme, the shapes that it will be called with (default: any shape). Use this for
            measurements only: on other shapes results are undefined.
        lowering: the decisions for a CPU that no scheme contains; the manifest keeps them.

    Raises:
        BuildError: if the program does not compile, no linker is installed, the library cannot be written,
            or ``dispatcher`` is of another class.
        StudyError: if another process has been building there for very long.
    """
    require_type(
        "the first argument of build", dispatcher, Dispatcher, BuildError, "train_dispatcher() returns one."
    )
    folder = Path(path) / "library"
    request = Request(dispatcher, every_plan, only, lowering)
    try:
        with turn(lock_of(folder), "one process at a time builds a library into a folder") as waited:
            if waited and (built := request.built_before(folder)):
                return built
            return request.build(folder)
    except OSError as error:
        raise BuildError("the library must be writable", f"{folder}: {error}", remedy_of(error)) from error


@dataclass(frozen=True)
class Request:
    """The arguments of :func:`build`."""

    dispatcher: Dispatcher
    every_plan: bool
    only: Sequence[Sequence[Shape]] | None
    lowering: Lowering

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The part of the manifest that records the request."""
        only, dispatcher = self.only, self.dispatcher
        return {
            **dispatcher.to_json(),
            "schema_version": SCHEMA_VERSION,
            "micro_kernels": [kernel.key for kernel in dispatcher.micro_kernels],
            "every_plan": self.every_plan,
            "only": None if only is None else [[shape.to_json() for shape in called] for called in only],
            "lowering": recorded_lowering(self.lowering, dispatcher.hardware),
            "rules": dispatcher.to_source(),
            "versions": versions(),
        }

    def built_before(self, folder: Path) -> Operator | None:
        """Returns the operator that another process has just built into a folder, if that operator is the
        same."""
        try:
            manifest = read_manifest(folder)
            wanted = json.loads(json.dumps(self.recorded))
            same = all(manifest.get(name) == value for name, value in wanted.items())
            return Operator(folder, manifest, elsewhere=True) if same else None
        except DietlabError:
            return None

    def build(self, folder: Path) -> Operator:
        """Compiles into a folder that no other process writes to."""
        from dietlab.lower.program import compile_plans

        dispatcher, hardware = self.dispatcher, self.dispatcher.hardware
        artifact = compile_plans(
            dispatcher.workload,
            hardware,
            dispatcher.schemes,
            dispatcher.tree,
            folder / "building.so",
            every_plan=self.every_plan,
            only=self.only,
            lowering=self.lowering,
        )
        runtimes = lower_target(hardware.kind).runtimes(hardware.cores)
        data = artifact.path.read_bytes()
        manifest = {
            **self.recorded,
            "packs": artifact.packs,
            "entries": entries(dispatcher.workload, every_plan=self.every_plan, packs=artifact.packs),
            "code_bytes": artifact.code_bytes,
            "file_bytes": len(data),
            "digest": sha256(data).hexdigest(),
            "requires": artifact.requires and artifact.requires.to_json(),
            "needs": ["libtvm_ffi.so", *runtimes],
            "resources": dict(artifact.resources),
        }
        # A process that has the old library open keeps it: the file is replaced, never rewritten.
        artifact.path.replace(folder / LIBRARY_NAME)
        for name in runtimes:
            if (runtime := find_runtime(name)) is not None:
                with replacing(folder / name) as unfinished:
                    shutil.copyfile(runtime, unfinished)
        write_json(folder / MANIFEST_NAME, manifest, error=BuildError)
        return Operator(folder, manifest, elsewhere=True)


def entries(workload: Workload, *, every_plan: bool, packs: bool = True) -> dict[str, str]:
    """Returns the library's functions with the shapes of their arguments, for the library's manifest."""
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


def versions() -> dict[str, str]:
    """Returns the installed versions of the packages that a library depends on."""
    return installed(*PACKAGES)

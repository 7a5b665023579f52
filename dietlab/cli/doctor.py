"""``dietlab doctor``: checks that this machine has what dietlab needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import click

from dietlab.base.cards import bytes_text, counted
from dietlab.base.errors import DietlabError
from dietlab.base.registry import Registry
from dietlab.cli.options import json_option, show
from dietlab.compare.vendor import packages
from dietlab.lower.compiler import require_linker
from dietlab.lower.store import MOST_BYTES, STORE
from dietlab.machine import Hardware
from dietlab.machine.system import amx_permitted, flags, quota, usable_cores
from dietlab.targets.cpu.contenders import VENDORS
from dietlab.targets.cpu.limits import cpu_of
from dietlab.tuning import load

TESTED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
NEEDED = ("apache-tvm", "apache-tvm-ffi", "numpy", "pandas", "xgboost-cpu")
OPTIONAL = {
    **packages(VENDORS),
    "nvidia-matmul-heuristics": "`dietlab heuristics`",
    "plotly": "figures and HTML reports",
    "matplotlib": "pictures of figures",
    "ipywidgets": "live figures and TuningPanel",
    "jupyterlab": "`dietlab lab`",
}


@dataclass(frozen=True)
class Finding:
    what: str
    found: str
    ok: bool
    needed: bool = True


def examine(libraries: Iterable[str] = ()) -> list[Finding]:
    """Examines Python, processor, linker, packages and libraries. A missing item is a finding, not an
    error."""
    findings = [
        Finding("Python", sys.version.split()[0], sys.version_info >= (3, 10)),
        _tried("processor", _processor),
        _share(),
        *_amx(),
        _tried("C++ compiler (links libraries)", require_linker),
    ]
    findings += [_package(name) for name in NEEDED]
    findings.append(_store())
    findings += [_package(name, why) for name, why in OPTIONAL.items()]
    findings += [
        _tried(f"{registry.noun} of others, {name}", partial(_added, registry, name), needed=False)
        for registry in Registry.all
        for name in registry.added
    ]
    return [*findings, *(_tried(f"library {path}", partial(load, path)) for path in libraries)]


def _tried(what: str, find: Callable[[], object], needed: bool = True) -> Finding:
    """Returns the result of ``find``, or its error's sentence, as a finding."""
    try:
        return Finding(what, str(find()), ok=True, needed=needed)
    except DietlabError as error:
        return Finding(what, str(error), ok=False, needed=needed)


def _processor() -> str:
    hardware = Hardware.detect(measure=False)
    cpu = cpu_of(hardware)
    return (
        f"{hardware.name}, {hardware.cores} cores, {cpu.vector_bytes * 8}-bit vectors, L2 "
        f"{cpu.l2_bytes >> 10} KiB, L3 {cpu.l3_bytes >> 20} MiB, target {cpu.llvm_cpu}"
    )


def _share() -> Finding:
    """Returns the number of cores that this process may use."""
    cores, allowed = usable_cores(), len(os.sched_getaffinity(0))
    limit = quota()
    within = "" if limit is None else f", {limit:g} by the container's quota"
    return Finding("cores", f"{cores} of {os.cpu_count()}; {allowed} by affinity{within}", ok=True)


def _amx() -> list[Finding]:
    """Returns whether the system permits AMX to this process, if the processor has it."""
    if "amx_tile" not in flags():
        return []
    permitted = amx_permitted()
    found = "permitted" if permitted else "the system does not permit it: libraries for it are refused"
    return [Finding("AMX", found, ok=permitted, needed=False)]


def _store() -> Finding:
    """Returns the size of the store of compiled programs, which later studies reuse, or why it keeps none."""
    if refusal := STORE.refusal():
        lost = (
            f"{STORE.folder} cannot be written ({refusal}), so that every study compiles all programs again"
        )
        remedy = "Set the environment variable HOME to a folder that can be written to."
        return Finding("store of compiled programs", f"{lost}. {remedy}", ok=False, needed=False)
    entries, size = STORE.size()
    kept = f"{counted(entries, 'program')}, {bytes_text(size)} of {bytes_text(MOST_BYTES)}, in {STORE.folder}"
    return Finding("store of compiled programs", kept, ok=True)


def _added(registry: Registry[Any], name: str) -> str:
    """Loads an entry that a package or this process added to a registry, and returns where it comes from."""
    registry.found(name)
    return registry.added[name]


def _package(name: str, why: str = "") -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, f"not installed{f' ({why})' if why else ''}", ok=False, needed=not why)
    tested = TESTED.get(name)
    if tested and version != tested:
        return Finding(name, f"{version}; tested with {tested}, others may crash", ok=False)
    return Finding(name, version, ok=True, needed=not why)


@click.command()
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...", type=click.Path())
@click.option(
    "--empty-store",
    is_flag=True,
    help="First remove all compiled programs; they are compiled again when needed.",
)
@json_option
def doctor(libraries: tuple[str, ...], empty_store: bool, as_json: bool) -> None:
    """Check that this machine has what dietlab needs.

    With a LIBRARY or a study's folder, also check that it runs here: it is whole, and for these versions and
    this processor.
    """
    if empty_store:
        STORE.clear()
    findings = examine(libraries)
    text = "\n".join(
        f"{'ok  ' if f.ok else 'MISS' if f.needed else '-   '} {f.what}: {f.found}" for f in findings
    )
    show([vars(f) for f in findings], as_json, text)
    if any(f.needed and not f.ok for f in findings):
        raise SystemExit(1)

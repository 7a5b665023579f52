"""Manifests of libraries, and the checks that a library is whole and runs on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dietlab.base.errors import DispatchError
from dietlab.base.files import read_json, reading
from dietlab.lower.runtime import RUNTIME_NAME, ffi_version
from dietlab.lower.target import lower_target
from dietlab.machine.instruction_sets import Requirements

SCHEMA_VERSION = 3
LIBRARY_NAME = "library.so"
MANIFEST_NAME = "manifest.json"

FIELDS: Mapping[str, type] = {
    "workload": dict,
    "hardware": dict,
    "schemes": list,
    "micro_kernels": list,
    "packs": bool,
    "code_bytes": int,
    "file_bytes": int,
    "needs": list,
    "versions": dict,
}
"""The fields that every manifest of this schema has, with their types."""

FFI, RUNTIME = "apache-tvm-ffi", "apache-tvm"
"""The packages that libraries call. Every library calls the first package; libraries for several cores or a
GPU also call the second."""

RIGHT_FIELDS = "the manifest of a library must have all its fields"

AGAIN = "Build it again: `dietlab build`."


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a library."""
    path = folder / MANIFEST_NAME
    with reading(DispatchError, f"a library must have a readable {MANIFEST_NAME} beside it", path, AGAIN):
        manifest = read_json(path)
    schema = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if schema != SCHEMA_VERSION:
        raise DispatchError(f"a library must have schema {SCHEMA_VERSION}", f"{schema!r} in {path}", AGAIN)
    require_fields(path, manifest)
    return dict(manifest)


def require_fields(path: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that a manifest has all :data:`FIELDS`, each of the right type."""
    missing = [name for name in FIELDS if name not in manifest]
    if missing:
        rule = "the manifest of a library must have all of its fields"
        raise DispatchError(rule, f"{path} without {', '.join(missing)}", AGAIN)
    for name, expected in FIELDS.items():
        if type(manifest[name]) is not expected:
            raise DispatchError(
                f"the field {name} of a library's manifest must be of type {expected.__name__}",
                f"{path}: {manifest[name]!r:.80}",
                AGAIN,
            )


def require_whole(library: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that a library's file is the file in its manifest: loading a truncated file would end the
    process."""
    try:
        data = library.read_bytes()
    except OSError as error:
        raise DispatchError("a library must be readable", f"{library}: {error}", AGAIN) from None
    if len(data) != manifest["file_bytes"]:
        raise DispatchError(
            f"the file must be a compiled library for this machine, with the file_bytes of its manifest, "
            f"{manifest['file_bytes']}",
            f"{library} with {len(data)}",
            f"Copy it again, whole, with its manifest. {AGAIN}",
        )
    digest = manifest.get("digest")  # earlier manifests have none
    if digest is not None and sha256(data).hexdigest() != digest:
        raise DispatchError(
            "the file must be a compiled library for this machine, with the SHA-256 of its manifest",
            f"{library}, which was changed or is of another build",
            f"Copy it again, with its manifest. {AGAIN}",
        )


def require_versions(manifest: Mapping[str, Any]) -> None:
    """Checks that the packages that a library calls have the versions that the library was built with. The
    packages' interfaces change between releases, even in a post release of tvm-ffi (0.1.13.post2, apache/tvm
    pull request 20094): a call of another version may end the process."""
    here = {FFI: ffi_version()}
    if RUNTIME_NAME in manifest["needs"]:
        here |= installed(RUNTIME)
    for package, found in here.items():
        built = manifest["versions"].get(package)
        if built != found:
            known = built or "which its manifest does not name"
            raise DispatchError(
                f"a library must run with the {package} that it was built with, {known}",
                f"{package} {found}",
                f"pip install {package}=={built}, or build it again: `dietlab build`." if built else AGAIN,
            )


def refusal(library: Path, manifest: Mapping[str, Any]) -> DispatchError | None:
    """Returns an error if this machine cannot run a library; else None. Without this check, a call would end
    the process with an illegal instruction."""
    hardware, recorded = manifest["hardware"], manifest.get("requires")
    with reading(DispatchError, RIGHT_FIELDS, library.parent / MANIFEST_NAME, AGAIN):
        requires = None if recorded is None else Requirements.from_json(recorded)
        missing = lower_target(hardware["kind"]).lacking(requires, hardware, manifest["schemes"])
    if not missing:
        return None
    return DispatchError(
        f"a library needs a machine that runs its code; {library} is for {hardware['name']}",
        missing,
        "Load it on such a machine, or tune and build for this one: `dietlab tune`.",
    )


def installed(*packages: str) -> dict[str, str]:
    """Returns the versions of the installed ones among some packages."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found

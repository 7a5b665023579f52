"""The manifest of a study: its operator, processor and shapes, and the settings of its tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dietlab.base.errors import StudyError
from dietlab.base.files import read_json, reading, write_json
from dietlab.machine import Hardware
from dietlab.problem import ShapeSet, Workload, workload_from_json, workload_to_json
from dietlab.problem.dims import is_shape_of
from dietlab.tuning import versions
from dietlab.tuning.settings import Settings

SCHEMA_VERSION = 3
MANIFEST, RECORDS = "manifest.json", "records.jsonl"

PARTS: Mapping[str, Callable[[Any], Any]] = {
    "workload": workload_from_json,
    "hardware": Hardware.from_json,
    "shapes": ShapeSet.from_json,
    "settings": Settings.settings_in,
}
"""The readers of a manifest's parts, in the order of the fields of :class:`Manifest`."""


@dataclass(frozen=True)
class Manifest:
    """The contents of a study's ``manifest.json`` without date and versions. ``settings`` are the values of
    :class:`~dietlab.tuning.settings.Settings` by name."""

    workload: Workload
    hardware: Hardware
    shapes: ShapeSet
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Returns the manifest in a folder, or raises :class:`StudyError` without one of this schema."""
        path, remedy = folder / MANIFEST, "`dietlab tune --out FOLDER` makes a study in a new folder."
        if (folder / RECORDS).exists():
            remedy += f" With `--transfer-from {folder / RECORDS}` it starts from the records of this one."
        with reading(StudyError, f"a study folder must have a readable {MANIFEST}", path, remedy):
            value = read_json(path)
        schema = value.get("schema_version") if isinstance(value, dict) else None
        if schema != SCHEMA_VERSION:
            other = f"Open it with the version of dietlab that made it, or tune again: {remedy}"
            raise StudyError(f"a study must have schema {SCHEMA_VERSION}", f"{schema!r} in {path}", other)
        found = []
        for name, from_json in PARTS.items():
            with reading(StudyError, f"the {MANIFEST} of a study must have its {name}, whole", path, remedy):
                found.append(from_json(value if name == "settings" else value[name]))
        workload, _, shapes, _ = found
        if outside := [str(shape) for shape in shapes if not is_shape_of(workload.dims, shape)]:
            invariant = f"the shapes of a study must be shapes of {workload}"
            raise StudyError(invariant, f"{path}: {', '.join(outside):.100}", remedy)
        return cls(*found)

    def write(self, folder: Path) -> None:
        """Writes the file, whole or not at all."""
        value = {
            "schema_version": SCHEMA_VERSION,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "workload": workload_to_json(self.workload),
            "hardware": self.hardware.to_json(),
            "shapes": self.shapes.to_json(),
            **self.settings,
            "versions": versions(),
        }
        write_json(folder / MANIFEST, value, error=StudyError)

    def require_same(self, other: Manifest, folder: Path) -> None:
        """Raises :class:`StudyError` if ``other`` differs from this manifest of the study in ``folder``.
        Measured peaks of the processor, and the effort, may differ."""
        mine, theirs = (
            {"workload": one.workload, "shapes": one.shapes, **one.settings, "effort": None}
            for one in (self, other)
        )
        for what, value in mine.items():
            if value != theirs[what]:
                rule = f"the study in {folder} must be continued with its own {what}"
                raise StudyError(rule, theirs[what], f"It has {value}.")
        here, there = self.hardware, other.hardware
        if not here.is_same_as(there) or here.cores != there.cores:
            raise StudyError(
                f"the study in {folder} must be continued on its own processor",
                f"{there.name}, {there.cores} cores",
                f"It was made on {here.name}, {here.cores} cores; use another folder.",
            )

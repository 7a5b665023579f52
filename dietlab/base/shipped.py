"""Finds data and notebooks that come with dietlab: recorded measurements and tables of results.

A clone of the repository has them in its folders ``data`` and ``notebooks``; a built package has copies,
made by ``setup.py``.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from shutil import copyfile

from dietlab.base.errors import RecordError

PACKAGE = Path(__file__).resolve().parent.parent
PACKAGED = PACKAGE / "files"
"""The folder of the copies in a built package; a clone has none."""


def shipped_folder(name: str) -> Path:
    """Returns the path of ``"data"`` or ``"notebooks"``."""
    return (PACKAGED if PACKAGED.is_dir() else PACKAGE.parent) / name


def data_names() -> tuple[str, ...]:
    """Returns the names that :func:`data_path` takes, in alphabetical order."""
    folder = shipped_folder("data")
    return tuple(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))


def data_path(name: str) -> Path:
    """Returns the path of data that come with dietlab, such as ``"quickstart/records.jsonl.gz"``.

    Args:
        name: a file or a folder, relative to the folder ``data``, with forward slashes.

    Raises:
        RecordError: if there is no such file or folder.
    """
    names = data_names()
    if not any(known == name or known.startswith(f"{name}/") for known in names):
        near = get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
        raise RecordError(
            "the name of the data must be one of dietlab.base.shipped.data_names()",
            repr(name),
            f"Similar names are {', '.join(near)}." if names else "The package was built without its data.",
        )
    return shipped_folder("data") / name


def copy_notebooks(folder: str | Path) -> tuple[Path, ...]:
    """Copies the notebooks, and the modules that they import, to a folder; existing files stay as they are.

    Args:
        folder: the folder to copy to, which is made if it is missing.

    Returns:
        The new files, in alphabetical order.

    Raises:
        RecordError: if the package was built without its notebooks.
    """
    source, target = shipped_folder("notebooks"), Path(folder)
    names = sorted(path.name for kind in ("*.ipynb", "*.py") for path in source.glob(kind))
    if not names:
        raise RecordError("the package must include its notebooks", source, "Install it from a full wheel.")
    target.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not (target / name).exists()]
    for name in missing:
        copyfile(source / name, target / name)
    return tuple(target / name for name in missing)

"""Places of the libraries of saved models, whose studies may have moved; ``place_of`` in ``libraries.h`` does
the same without Python."""

from __future__ import annotations

import os
from pathlib import Path

from dietlab.compare.study import EPILOGUES
from dietlab.tuning.manifest import LIBRARY_NAME

_searched: list[Path] = []


def search_in(folder: Path) -> None:
    """Adds a folder in which to look for libraries."""
    _searched.append(folder)


def place_of(folder: str) -> Path:
    """Returns the present place of a library's folder (``STUDY/epilogues/DIGEST/library``): the folder
    itself, or one of the same name in a searched folder. The digest identifies the library's contents."""
    place = Path(folder)
    if (place / LIBRARY_NAME).is_file():
        return place
    name = Path(place.parent.name, place.name)
    given = filter(None, os.environ.get("DIETLAB_LIBRARIES", "").split(":"))
    for root in (*map(Path, given), *_searched):
        studies = sorted(root.iterdir()) if root.is_dir() else []
        for beside in (root, root / EPILOGUES, *(study / EPILOGUES for study in studies)):
            if (beside / name / LIBRARY_NAME).is_file():
                return beside / name
    return place

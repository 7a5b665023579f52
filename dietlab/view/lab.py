"""Says what to install where a package of the extra ``lab`` is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dietlab.base.errors import MissingDependencyError


def missing_lab(what: str, reason: object) -> MissingDependencyError:
    """Returns the error for ``what`` needs a package of the extra ``lab``."""
    return MissingDependencyError(f"{what} need the extra lab", reason, "pip install 'dietlab[lab]'.")


@contextmanager
def lab_imports(what: str) -> Iterator[None]:
    """Turns a failed import into an error that names the extra.

    Args:
        what: the views that need the extra, in the plural, such as ``"figures"``.
    """
    try:
        yield
    except ImportError as error:
        raise missing_lab(what, error) from error

"""A table of pandas that shows long texts whole. Import it inside functions: pandas takes long to load."""

from __future__ import annotations

import pandas as pd


class WholeTexts(pd.DataFrame):  # type: ignore[misc]  # pandas comes without types
    """A table that shows long texts whole, whatever ``display.max_colwidth`` is.

    Selections and results of computations are usual tables.
    """

    def __repr__(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return str(super().__repr__())

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.max_colwidth", None):
            shown: str | None = super()._repr_html_()
        return shown

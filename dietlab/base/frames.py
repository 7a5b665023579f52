"""A table of pandas that is shown whole. Import this where a table is made: pandas takes long to load."""

from __future__ import annotations

import pandas as pd


class WholeTexts(pd.DataFrame):  # type: ignore[misc]  # pandas comes without types
    """A table whose texts are shown to their end, without touching everybody's ``display.max_colwidth``.

    What is selected or computed from it is a usual table.
    """

    def __repr__(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return str(super().__repr__())

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.max_colwidth", None):
            shown: str | None = super()._repr_html_()
        return shown

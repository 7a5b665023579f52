"""Views: plots, widgets, progress and reports over the records and results of any stage."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "dietlab.view.progress": ("LogObserver", "ProgressBar"),
    "dietlab.view.panel": ("TuningPanel",),
    "dietlab.view.html_report": ("render_html", "render_text", "write_html"),
    "dietlab.view.plots": tuple(
        f"{half}_{figure}"
        for half in ("frame", "plot")
        for figure in (
            "speedup", "latency", "throughput", "padding", "tuning", "phases", "portfolio_curve",
        )
    ),
    "dietlab.view.plans": ("frame_plans", "plot_plans"),
    "dietlab.view.traffic": ("frame_traffic", "plot_traffic", "traffic_words"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from dietlab.view.html_report import *  # noqa: F403
    from dietlab.view.panel import TuningPanel as TuningPanel
    from dietlab.view.plans import *  # noqa: F403
    from dietlab.view.plots import *  # noqa: F403
    from dietlab.view.progress import *  # noqa: F403
    from dietlab.view.traffic import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Loads a view when it is first used: plotly and ipywidgets are heavy."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dietlab.view' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)

"""Views: plots, widgets, progress and reports over the records and results of any stage."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "dietlab.view.progress": ("LogObserver",),
    "dietlab.view.progress_bar": ("ProgressBar",),
    "dietlab.view.explore_cost": ("cost_lab", "frame_ranking", "plot_ranking"),
    "dietlab.view.explore_dispatch": ("dispatch_explorer", "frame_dispatch", "plot_dispatch"),
    "dietlab.view.explorer": ("Drawn", "Explorer"),
    "dietlab.view.live": ("LiveFigure", "show"),
    "dietlab.view.padding_figures": ("frame_tiling", "frame_waste", "plot_tiling", "plot_waste"),
    "dietlab.view.panel": ("TuningPanel",),
    "dietlab.view.slowdown": ("frame_slowdown", "plot_slowdown"),
    "dietlab.view.explore_padding": ("padding_explorer",),
    "dietlab.view.explore_space": ("frame_funnel", "plot_funnel", "space_explorer"),
    "dietlab.view.explore_speedup": ("speedup_explorer",),
    "dietlab.view.html_report": ("render_html", "render_text", "write_html"),
    "dietlab.view.plots": tuple(
        f"{half}_{figure}"
        for half in ("frame", "plot")
        for figure in (
            "speedup",
            "latency",
            "throughput",
            "padding",
        )
    ),
    "dietlab.view.tuning_plots": tuple(
        f"{half}_{figure}" for half in ("frame", "plot") for figure in ("tuning", "phases", "portfolio_curve")
    ),
    "dietlab.view.plans": ("frame_plans", "plot_plans"),
    "dietlab.view.traffic": ("frame_traffic", "plot_traffic", "traffic_words"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from dietlab.view.explore_cost import cost_lab as cost_lab
    from dietlab.view.explore_dispatch import dispatch_explorer as dispatch_explorer
    from dietlab.view.explore_padding import padding_explorer as padding_explorer
    from dietlab.view.explore_space import space_explorer as space_explorer
    from dietlab.view.explore_speedup import speedup_explorer as speedup_explorer
    from dietlab.view.explorer import Drawn as Drawn
    from dietlab.view.explorer import Explorer as Explorer
    from dietlab.view.html_report import *  # noqa: F403
    from dietlab.view.live import LiveFigure as LiveFigure
    from dietlab.view.live import show as show
    from dietlab.view.padding_figures import plot_tiling as plot_tiling
    from dietlab.view.padding_figures import plot_waste as plot_waste
    from dietlab.view.panel import TuningPanel as TuningPanel
    from dietlab.view.plans import *  # noqa: F403
    from dietlab.view.plots import *  # noqa: F403
    from dietlab.view.progress import *  # noqa: F403
    from dietlab.view.progress_bar import ProgressBar as ProgressBar
    from dietlab.view.slowdown import frame_slowdown as frame_slowdown
    from dietlab.view.slowdown import plot_slowdown as plot_slowdown
    from dietlab.view.traffic import *  # noqa: F403
    from dietlab.view.tuning_plots import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Loads a view when it is first used: plotly and ipywidgets are heavy."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dietlab.view' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)

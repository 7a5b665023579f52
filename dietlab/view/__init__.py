"""Views: plots, widgets, progress and reports over the records and results of any stage.

A ``plot_x`` draws the table of ``frame_x``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.lazy import lazy_names, loader

if TYPE_CHECKING:  # the one list of public names, which is read at run time, too
    from dietlab.view.figures.bench import frame_worst as frame_worst
    from dietlab.view.figures.bench import plot_bench_roofline as plot_bench_roofline
    from dietlab.view.figures.bench import plot_bench_speedup as plot_bench_speedup
    from dietlab.view.figures.coordinates import frame_space as frame_space
    from dietlab.view.figures.coordinates import plot_space as plot_space
    from dietlab.view.figures.layers import frame_layers as frame_layers
    from dietlab.view.figures.layers import frame_lengths as frame_lengths
    from dietlab.view.figures.layers import plot_layers as plot_layers
    from dietlab.view.figures.layers import plot_lengths as plot_lengths
    from dietlab.view.figures.padding import frame_policies as frame_policies
    from dietlab.view.figures.padding import frame_tiling as frame_tiling
    from dietlab.view.figures.padding import frame_waste as frame_waste
    from dietlab.view.figures.padding import plot_tiling as plot_tiling
    from dietlab.view.figures.padding import plot_waste as plot_waste
    from dietlab.view.figures.plans import frame_plans as frame_plans
    from dietlab.view.figures.plans import plot_plans as plot_plans
    from dietlab.view.figures.predictions import frame_importances as frame_importances
    from dietlab.view.figures.predictions import frame_predictions as frame_predictions
    from dietlab.view.figures.predictions import plot_importances as plot_importances
    from dietlab.view.figures.predictions import plot_predictions as plot_predictions
    from dietlab.view.figures.results import frame_latency as frame_latency
    from dietlab.view.figures.results import frame_padding as frame_padding
    from dietlab.view.figures.results import frame_speedup as frame_speedup
    from dietlab.view.figures.results import frame_throughput as frame_throughput
    from dietlab.view.figures.results import plot_latency as plot_latency
    from dietlab.view.figures.results import plot_padding as plot_padding
    from dietlab.view.figures.results import plot_speedup as plot_speedup
    from dietlab.view.figures.results import plot_throughput as plot_throughput
    from dietlab.view.figures.roofline import frame_below_roofline as frame_below_roofline
    from dietlab.view.figures.roofline import frame_roofline as frame_roofline
    from dietlab.view.figures.roofline import plot_roofline as plot_roofline
    from dietlab.view.figures.shape_map import frame_map as frame_map
    from dietlab.view.figures.shape_map import plot_map as plot_map
    from dietlab.view.figures.slowdown import frame_slowdown as frame_slowdown
    from dietlab.view.figures.slowdown import plot_slowdown as plot_slowdown
    from dietlab.view.figures.speedup import frame_against as frame_against
    from dietlab.view.figures.speedup import frame_parts as frame_parts
    from dietlab.view.figures.speedup import plot_against as plot_against
    from dietlab.view.figures.tile_picture import plot_tile_reads as plot_tile_reads
    from dietlab.view.figures.tile_reads import frame_tile_reads as frame_tile_reads
    from dietlab.view.figures.time_shares import frame_time_shares as frame_time_shares
    from dietlab.view.figures.time_shares import plot_time_shares as plot_time_shares
    from dietlab.view.figures.traffic import frame_traffic as frame_traffic
    from dietlab.view.figures.traffic import plot_traffic as plot_traffic
    from dietlab.view.figures.traffic import traffic_words as traffic_words
    from dietlab.view.figures.tuning import frame_phases as frame_phases
    from dietlab.view.figures.tuning import frame_portfolio_curve as frame_portfolio_curve
    from dietlab.view.figures.tuning import frame_tuning as frame_tuning
    from dietlab.view.figures.tuning import plot_phases as plot_phases
    from dietlab.view.figures.tuning import plot_portfolio_curve as plot_portfolio_curve
    from dietlab.view.figures.tuning import plot_tuning as plot_tuning
    from dietlab.view.pages.report import render_html as render_html
    from dietlab.view.pages.report import render_text as render_text
    from dietlab.view.pages.report import write_html as write_html
    from dietlab.view.progress import LogObserver as LogObserver
    from dietlab.view.progress_bar import ProgressBar as ProgressBar
    from dietlab.view.static.saving import save as save
    from dietlab.view.widgets.choice import Choice as Choice
    from dietlab.view.widgets.coordinates_explorer import coordinates_explorer as coordinates_explorer
    from dietlab.view.widgets.cost_lab import cost_lab as cost_lab
    from dietlab.view.widgets.cost_lab import frame_ranking as frame_ranking
    from dietlab.view.widgets.cost_lab import plot_ranking as plot_ranking
    from dietlab.view.widgets.dispatch_explorer import dispatch_explorer as dispatch_explorer
    from dietlab.view.widgets.dispatch_explorer import frame_dispatch as frame_dispatch
    from dietlab.view.widgets.dispatch_explorer import plot_dispatch as plot_dispatch
    from dietlab.view.widgets.explorer import Drawn as Drawn
    from dietlab.view.widgets.explorer import Explorer as Explorer
    from dietlab.view.widgets.kernel_inspector import KernelInspector as KernelInspector
    from dietlab.view.widgets.kernel_inspector import frame_kernel as frame_kernel
    from dietlab.view.widgets.kernel_inspector import inspect_kernel as inspect_kernel
    from dietlab.view.widgets.live import LiveFigure as LiveFigure
    from dietlab.view.widgets.live import show as show
    from dietlab.view.widgets.panel import TuningPanel as TuningPanel
    from dietlab.view.widgets.roofline_explorer import roofline_explorer as roofline_explorer
    from dietlab.view.widgets.space_explorer import frame_funnel as frame_funnel
    from dietlab.view.widgets.space_explorer import plot_funnel as plot_funnel
    from dietlab.view.widgets.space_explorer import space_explorer as space_explorer
    from dietlab.view.widgets.speedup_explorer import speedup_explorer as speedup_explorer
    from dietlab.view.widgets.tile_reads_explorer import tile_reads_explorer as tile_reads_explorer
    from dietlab.view.widgets.trials_table import TrialsTable as TrialsTable
    from dietlab.view.widgets.trials_table import trials_table as trials_table

_HOMES = lazy_names(Path(__file__))

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # so that a type checker knows no other names
    __getattr__ = loader(__name__, _HOMES)

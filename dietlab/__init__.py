"""dietlab: tune a tensor operator for all shapes at once, and ship it as one library.

The whole loop::

    import dietlab as dl

    hw = dl.Hardware.detect()
    dense = dl.Dense(T=dl.Dim(1, 128), N=2304, K=768)
    shapes = dl.ShapeSet.uniform(dense, n=8)
    space = dl.build_space(dense, hw)
    run = dl.tune(space, shapes, runner=dl.LocalRunner(hw), effort="quick")
    portfolio = dl.choose_portfolio(run, shapes, max_kernels=8)
    dispatcher = dl.train_dispatcher(portfolio, shapes)
    op = dl.build(dispatcher, "runs/dense")
    report = dl.evaluate(op, dl.ShapeSet.every(dense), against=["openblas", "oracle"], tuned=run)

Names are loaded when they are first used: importing the package imports neither TVM nor plotly nor
ipywidgets.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "dietlab.base.errors": ("DietlabError",),
    "dietlab.machine": ("Hardware",),
    "dietlab.targets.cpu.limits": ("CpuLimits",),
    "dietlab.targets.cuda.limits": ("GpuLimits",),
    "dietlab.problem": (
        "BatchMatmul",
        "Dense",
        "Dim",
        "Shape",
        "ShapeSet",
        "make_workload",
        "workload_from_json",
    ),
    "dietlab.scheme": ("MicroKernel", "Scheme", "Space", "build_space"),
    "dietlab.targets.cpu.kernel": ("CpuMicroKernel",),
    "dietlab.targets.cuda.kernel": ("CudaMicroKernel",),
    "dietlab.lower.program": ("source_of",),
    "dietlab.measure": (
        "Budget",
        "LocalRunner",
        "RemoteRunner",
        "Record",
        "RecordStore",
        "ReplayRunner",
        "SyntheticRunner",
        "Timing",
        "Trial",
        "read_records",
    ),
    "dietlab.cost": ("CostModel", "evaluate_model", "f_occ", "f_pad", "fit_cost_model", "padding_waste"),
    "dietlab.tuning": (
        "EFFORTS",
        "STRATEGIES",
        "Dispatcher",
        "Effort",
        "Operator",
        "Portfolio",
        "TuningRun",
        "build",
        "choose_portfolio",
        "load",
        "survey",
        "train_dispatcher",
        "tune",
    ),
    "dietlab.compare": ("evaluate",),
    "dietlab.targets.cpu.contenders": ("CONTENDERS",),
    "dietlab.compare.results": ("Report", "ResultTable"),
    "dietlab.compare.study": ("Study",),
    "dietlab.base.shipped": ("data_path",),
    "dietlab.base.background": ("BackgroundRun", "run_in_background"),
    "dietlab.targets.cpu.view.padding_explorer": ("padding_explorer",),
    "dietlab.targets.cuda.view.waves": ("frame_wave_times", "frame_waves", "plot_waves"),
    "dietlab.targets.cuda.view.waves_explorer": ("waves_explorer",),
    "dietlab.view": (
        "Choice",
        "LogObserver",
        "ProgressBar",
        "TuningPanel",
        "coordinates_explorer",
        "cost_lab",
        "dispatch_explorer",
        "frame_against",
        "frame_below_roofline",
        "frame_dispatch",
        "frame_funnel",
        "frame_importances",
        "frame_kernel",
        "frame_latency",
        "frame_layers",
        "frame_lengths",
        "frame_map",
        "frame_padding",
        "frame_parts",
        "frame_phases",
        "frame_plans",
        "frame_policies",
        "frame_portfolio_curve",
        "frame_predictions",
        "frame_ranking",
        "frame_roofline",
        "frame_slowdown",
        "frame_space",
        "frame_speedup",
        "frame_throughput",
        "frame_tiling",
        "frame_time_shares",
        "frame_traffic",
        "frame_tuning",
        "frame_waste",
        "frame_worst",
        "inspect_kernel",
        "plot_against",
        "plot_bench_roofline",
        "plot_bench_speedup",
        "plot_dispatch",
        "plot_funnel",
        "plot_importances",
        "plot_latency",
        "plot_layers",
        "plot_lengths",
        "plot_map",
        "plot_padding",
        "plot_phases",
        "plot_plans",
        "plot_portfolio_curve",
        "plot_predictions",
        "plot_ranking",
        "plot_roofline",
        "plot_slowdown",
        "plot_space",
        "plot_speedup",
        "plot_throughput",
        "plot_tiling",
        "plot_time_shares",
        "plot_traffic",
        "plot_tuning",
        "plot_waste",
        "render_html",
        "render_text",
        "roofline_explorer",
        "save",
        "show",
        "space_explorer",
        "speedup_explorer",
        "trials_table",
        "write_html",
    ),
}
_LAB = {
    "dietlab.lab.heuristics.agreement": ("compare_with_heuristics", "frame_heuristics"),
    "dietlab.lab.heuristics.nvidia": ("Heuristics",),
}
"""Names of the laboratory, without which all else works."""

LABORATORY = (Path(__file__).parent / "lab").is_dir()
"""Whether the laboratory is installed."""

if LABORATORY:
    _HOMES |= _LAB
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]

if TYPE_CHECKING:
    from dietlab.base.background import BackgroundRun as BackgroundRun
    from dietlab.base.background import run_in_background as run_in_background
    from dietlab.base.errors import DietlabError as DietlabError
    from dietlab.base.shipped import data_path as data_path
    from dietlab.compare import *  # noqa: F403
    from dietlab.compare.results import *  # noqa: F403
    from dietlab.compare.study import Study as Study
    from dietlab.cost import *  # noqa: F403
    from dietlab.lab.heuristics.agreement import compare_with_heuristics as compare_with_heuristics
    from dietlab.lab.heuristics.agreement import frame_heuristics as frame_heuristics
    from dietlab.lab.heuristics.nvidia import Heuristics as Heuristics
    from dietlab.machine import *  # noqa: F403
    from dietlab.measure import *  # noqa: F403
    from dietlab.problem import *  # noqa: F403
    from dietlab.scheme import *  # noqa: F403
    from dietlab.targets.cpu.contenders import CONTENDERS as CONTENDERS
    from dietlab.targets.cpu.kernel import CpuMicroKernel as CpuMicroKernel
    from dietlab.targets.cpu.limits import CpuLimits as CpuLimits
    from dietlab.targets.cpu.view.padding_explorer import padding_explorer as padding_explorer
    from dietlab.targets.cuda.kernel import CudaMicroKernel as CudaMicroKernel
    from dietlab.targets.cuda.limits import GpuLimits as GpuLimits
    from dietlab.targets.cuda.view.waves import frame_wave_times as frame_wave_times
    from dietlab.targets.cuda.view.waves import frame_waves as frame_waves
    from dietlab.targets.cuda.view.waves import plot_waves as plot_waves
    from dietlab.targets.cuda.view.waves_explorer import waves_explorer as waves_explorer
    from dietlab.tuning import *  # noqa: F403
    from dietlab.view import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        from dietlab.base.errors import closest

        question = closest(name, _HOME_OF)
        raise AttributeError(f"module 'dietlab' has no attribute {name!r}{question and f'. {question}'}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

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

from pathlib import Path
from typing import TYPE_CHECKING

from dietlab.base.lazy import lazy_names, loader

if TYPE_CHECKING:  # the one list of public names, which is read at run time, too
    from dietlab.base.background import BackgroundRun as BackgroundRun
    from dietlab.base.background import run_in_background as run_in_background
    from dietlab.base.errors import DietlabError as DietlabError
    from dietlab.base.shipped import data_path as data_path
    from dietlab.compare import evaluate as evaluate
    from dietlab.compare.results import Report as Report
    from dietlab.compare.results import ResultTable as ResultTable
    from dietlab.compare.study import Study as Study
    from dietlab.cost import CostModel as CostModel
    from dietlab.cost import evaluate_model as evaluate_model
    from dietlab.cost import f_occ as f_occ
    from dietlab.cost import f_pad as f_pad
    from dietlab.cost import fit_cost_model as fit_cost_model
    from dietlab.cost import padding_waste as padding_waste
    from dietlab.lab.heuristics.agreement import compare_with_heuristics as compare_with_heuristics
    from dietlab.lab.heuristics.agreement import frame_heuristics as frame_heuristics
    from dietlab.lab.heuristics.nvidia import Heuristics as Heuristics
    from dietlab.lower.program import source_of as source_of
    from dietlab.machine import Hardware as Hardware
    from dietlab.measure import Budget as Budget
    from dietlab.measure import LocalRunner as LocalRunner
    from dietlab.measure import Record as Record
    from dietlab.measure import RecordStore as RecordStore
    from dietlab.measure import RemoteRunner as RemoteRunner
    from dietlab.measure import ReplayRunner as ReplayRunner
    from dietlab.measure import SyntheticRunner as SyntheticRunner
    from dietlab.measure import Timing as Timing
    from dietlab.measure import Trial as Trial
    from dietlab.measure import read_records as read_records
    from dietlab.problem import BatchMatmul as BatchMatmul
    from dietlab.problem import Conv1d as Conv1d
    from dietlab.problem import Conv2d as Conv2d
    from dietlab.problem import Dense as Dense
    from dietlab.problem import Dim as Dim
    from dietlab.problem import NetworkLayer as NetworkLayer
    from dietlab.problem import Shape as Shape
    from dietlab.problem import ShapeSet as ShapeSet
    from dietlab.problem import convolutions as convolutions
    from dietlab.problem import make_workload as make_workload
    from dietlab.problem import workload_from_json as workload_from_json
    from dietlab.scheme import MicroKernel as MicroKernel
    from dietlab.scheme import Scheme as Scheme
    from dietlab.scheme import Space as Space
    from dietlab.scheme import build_space as build_space
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
    from dietlab.tuning import EFFORTS as EFFORTS
    from dietlab.tuning import STRATEGIES as STRATEGIES
    from dietlab.tuning import Dispatcher as Dispatcher
    from dietlab.tuning import Effort as Effort
    from dietlab.tuning import Operator as Operator
    from dietlab.tuning import Portfolio as Portfolio
    from dietlab.tuning import TuningRun as TuningRun
    from dietlab.tuning import build as build
    from dietlab.tuning import choose_portfolio as choose_portfolio
    from dietlab.tuning import load as load
    from dietlab.tuning import survey as survey
    from dietlab.tuning import train_dispatcher as train_dispatcher
    from dietlab.tuning import tune as tune
    from dietlab.view import *  # noqa: F403

__version__ = "0.1.0"

LABORATORY = (Path(__file__).parent / "lab").is_dir()
"""Whether the laboratory is installed, without which all other names work."""

IN_VIEW_ONLY = ("Drawn", "Explorer", "KernelInspector", "LiveFigure", "TrialsTable", "traffic_words")
"""Names of ``dietlab.view`` for those who write widgets."""

_HOMES = {
    name: home
    for name, home in lazy_names(Path(__file__)).items()
    if name not in IN_VIEW_ONLY and (LABORATORY or not home.startswith("dietlab.lab."))
}

__all__ = ["__version__", *sorted(_HOMES)]

if not TYPE_CHECKING:  # so that a type checker knows no other names
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

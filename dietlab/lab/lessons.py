"""Recorded values that the notebooks share, and the plot that each of them adds a line to.

Everything here is of ``Dense(T=1..128, N=2304, K=768)`` on one core, with weights in cache. The lines are
recorded times; the vendors' line comes from another run on the same kind of processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import isfinite, log10
from numbers import Real
from random import Random
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError
from dietlab.base.shipped import data_path
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import fastest
from dietlab.cost import adaptation_cost, best_shape, fit_cost_model
from dietlab.machine import Hardware
from dietlab.measure import CacheState, Record, RecordFile, ReplayRunner, Timing, read_records
from dietlab.problem import Shape, ShapeSet, Workload, workload_from_json
from dietlab.scheme import Scheme, Space, build_space
from dietlab.tuning import EFFORTS, Dispatcher, TuningRun, choose_portfolio, train_dispatcher, tune, versions
from dietlab.view.figures.table import plot_table as plot_table
from dietlab.view.theme import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

RECORDS = "quickstart/records.jsonl.gz"
BENCH = "results/zen4-bench.csv.gz"
ABLATION = "results/zen4-ablation.csv.gz"

LONGEST = 128
"""The longest length of the records, in rows."""

MEASURED_ONCE = 256
"""The number of micro-kernels that the fourth notebook's cost model learns from."""

NEAR = 0.05
"""The relative error below which a prediction counts as right: repeated measurements differ by as much."""

YOURS = "your prediction"
MINE: dict[str, Any] = {"dash": "dashdot", "width": 3, "color": PALETTE["selected"]}
"""The line of a reader's prediction: no other line of a figure looks like it."""

Line = dict[int, float]
"""The microseconds of a call by T."""


# --- shipped data -----------------------------------------------------------------------------


@cache
def recorded() -> RecordFile:
    """Returns the records of 1088 micro-kernels with local padding on 16 lengths each, measured with
    weights in cache."""
    return read_records(data_path(RECORDS))


@cache
def report(cores: int = 1) -> Report:
    """Returns an evaluation on every T of 1..128, on 1 or 2 cores, with weights in cache and rotating."""
    return Report.load(data_path(f"results/zen4-{cores}core.report.json.gz"))


def workload() -> Workload:
    """Returns the dense layer of the records."""
    return workload_from_json(recorded().header["workload"])


def hardware() -> Hardware:
    """Returns the processor of the records, with one core."""
    return Hardware.from_json(recorded().header["hardware"])


def space() -> Space:
    """Returns the space of the recorded micro-kernels."""
    kernels = {record.scheme for record in recorded().records}
    return build_space(workload(), hardware(), edges=("padded",)).restricted_to(kernels)


def shapes() -> tuple[Shape, ...]:
    """Returns the 16 recorded lengths, ascending."""
    return tuple(sorted({record.shape for record in recorded().records}))


def microseconds() -> pd.DataFrame:
    """Returns the recorded times of a call (us), with a row for each micro-kernel, by key, and a column for
    each T.
    """
    return 1e6 * _recorded_table("seconds")


def noise() -> pd.DataFrame:
    """Returns the noise of these times, as shares of them (``Record.spread``)."""
    return _recorded_table("spread").copy()


@cache
def _recorded_table(column: str) -> pd.DataFrame:
    import pandas as pd

    rows: dict[str, Line] = {}
    for record in recorded().records:
        if record.seconds:
            rows.setdefault(record.scheme.key, {})[record.shape["T"]] = getattr(record, column)
    return pd.DataFrame.from_dict(rows, orient="index").sort_index(axis=0).sort_index(axis=1)


def about() -> str:
    """Returns the versions here, the versions of the records, and the processor of the records."""
    here, there = (
        ", ".join(f"{name} {version}" for name, version in packages.items())
        for packages in (versions(), recorded().header["versions"])
    )
    processor = hardware()
    on = f"{processor.name}, {processor.cores} core, {processor.peak_gflops:.0f} GFLOP/s peak"
    return f"here:          {here}\nrecorded with: {there}\nrecorded on:   {on}"


# --- values that several notebooks start from -------------------------------------------------


def once_each(count: int = MEASURED_ONCE, seed: int = 0) -> tuple[Record, ...]:
    """Returns one record of each of ``count`` random micro-kernels, at the length where it wastes least."""
    found = {(record.scheme, record.shape): record for record in recorded().records}
    cost, lengths = adaptation_cost(workload(), hardware()), shapes()
    drawn = Random(seed).sample(sorted({kernel for kernel, _ in found}), count)
    return tuple(found[kernel, best_shape(kernel, lengths, cost)] for kernel in drawn)


@cache
def replayed_run(strategy: str = "marginal") -> TuningRun:
    """Replays a joint search for the paper's eight lengths: 64 of the 1088 recorded micro-kernels."""
    # The records are of weights in cache.
    effort = replace(EFFORTS["quick"], decisions=96, timing=Timing())
    runner = ReplayRunner(recorded().records)
    return tune(space(), ShapeSet.uniform(workload(), n=8), runner, effort, strategy)


@cache
def replayed_dispatcher(max_kernels: int = 8) -> Dispatcher:
    """Trains the decision tree over at most ``max_kernels`` micro-kernels of :func:`replayed_run`."""
    run = replayed_run()
    return train_dispatcher(choose_portfolio(run, run.shapes, max_kernels), run.shapes)


# --- predictions that a reader enters ------------------------------------------------------------


def with_prediction(figure: go.Figure, prediction: float | Mapping[float, float] | None) -> go.Figure:
    """Draws a reader's prediction into the figure that answers it."""
    import plotly.graph_objects as go

    drawn = go.Figure(figure)
    if prediction is None:
        return drawn
    x: list[float] = []
    if isinstance(prediction, Mapping):
        points = {_number(at): _number(value) for at, value in sorted(prediction.items())}
        x, y = [*points], [*points.values()]
    else:
        y = [_number(prediction)]
    for axis, shown in ((drawn.layout.xaxis, x), (drawn.layout.yaxis, y)):
        if axis.type == "log" and min(shown, default=1.0) <= 0:
            raise DietlabError("a prediction on a logarithmic axis must be above 0", min(shown))
    if x:
        drawn.add_scatter(x=x, y=y, mode="lines+markers", line=MINE, name=YOURS)
        drawn.update_layout(showlegend=True)
    elif y:
        # Plotly takes a line's value, but its label's logarithm.
        label = {"y": log10(y[0])} if drawn.layout.yaxis.type == "log" else {}
        drawn.add_hline(y=y[0], line=MINE, annotation_text=YOURS, annotation_position="top left")
        drawn.layout.annotations[-1].update(label)
    return drawn


def judged(prediction: float | None, value: float, unit: str = "") -> str:
    """Returns a sentence that compares a reader's prediction with the value found: in percent or by a factor
    if both have the same sign, otherwise by their difference.
    """
    found = f"{value:.4g} {unit}".rstrip()
    if prediction is None:
        return f"it is {found}; you entered no prediction"
    mine = _number(prediction)
    words = f"you predicted {mine:.4g}, it is {found}"
    if not value or not mine:
        return words
    ratio = mine / value
    if abs(ratio - 1) < NEAR:
        return f"{words}: as good as right"
    if ratio < 0:
        off = f"{abs(mine - value):.4g} {unit}".rstrip()
    else:
        near = f"{abs(100 * (ratio - 1)):.0f} %"
        off = near if 0.5 < ratio < 2 else f"a factor of {max(ratio, 1 / ratio):.1f}"
    return f"{words}: {off} too {'high' if mine > value else 'low'}"


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        rule = "a prediction must be a finite number, or a dictionary of y by x"
        raise DietlabError(rule, repr(value), "None stands for none.")
    return float(value)


# --- the plot ---------------------------------------------------------------------------------


def vendor_line(cache_state: CacheState = "hot") -> tuple[str, Line]:
    """Returns the reference of all lines: the fastest prepacked vendor at each T, by its median time."""
    found = report()
    kinds = {contender.name: contender.kind for contender in found.contenders}
    rows = [row for row in found.rows if row.cache == cache_state and row.correct]
    prepacked = [row for row in rows if kinds.get(row.contender) == "prepacked"]
    best = {row.shape["T"]: 1e6 * row.seconds_median for row in fastest(prepacked)}
    return "best prepacked vendor", dict(sorted(best.items()))


def lines(upto: str = "07") -> dict[str, Line]:
    """Returns the lines of the plot that all notebooks share, up to the notebook of this number."""
    if upto not in _LINES:
        raise DietlabError(f"a notebook that adds a line must be one of {', '.join(_LINES)}", repr(upto))
    return {name: dict(_line(number)) for number, (name, _) in _LINES.items() if number <= upto}


@cache
def _line(number: str) -> Line:
    return _LINES[number][1]()


def largest_kernel() -> str:
    """Returns the key of the micro-kernel that is fastest for the largest T."""
    return str(microseconds()[LONGEST].idxmin())


def _padded_to_longest() -> Line:
    """Returns the line of padding to the longest: every call costs as much as 128 rows."""
    return dict.fromkeys(map(int, microseconds()), float(microseconds()[LONGEST].min()))


def _one_kernel_medians() -> Line:
    """Returns one micro-kernel's median times. A record keeps the time of the fastest block and the ratio by
    which the median is above it."""
    key = largest_kernel()
    mine = [record for record in recorded().records if record.scheme.key == key]
    return {r.shape["T"]: 1e6 * (r.seconds or 0.0) * (1 + r.spread) for r in mine}


def _by_model() -> Line:
    """Returns the times of the micro-kernels that a model predicts to be fastest. The model is fitted on one
    measurement of each of :data:`MEASURED_ONCE` micro-kernels.
    """
    model = fit_cost_model(workload(), hardware(), once_each())
    return _fastest_by(model.seconds, space().schemes)


def _fastest_by(predict: Callable[..., Any], kernels: Sequence[Scheme]) -> Line:
    """Returns the recorded times of the micro-kernels with the least predicted time."""
    best = predict(kernels, shapes()).argmin(axis=0)
    return _recorded({shape: kernels[int(i)].key for shape, i in zip(shapes(), best, strict=True)})


def _recorded(chosen: Mapping[Shape, str]) -> Line:
    times = microseconds()
    return {shape["T"]: float(times.at[key, shape["T"]]) for shape, key in chosen.items()}


_LINES: dict[str, tuple[str, Callable[[], Line]]] = {
    "01": ("padded to 128", _padded_to_longest),
    "02": ("one micro-kernel, padded", lambda: _recorded(dict.fromkeys(shapes(), largest_kernel()))),
    "03": ("the same, median of blocks", _one_kernel_medians),
    "04": ("chosen by a cost model", _by_model),
    "05": ("joint search", lambda: _fastest_by(replayed_run().seconds_table, replayed_run().schemes)),
    "06": ("dispatcher", lambda: _recorded({s: replayed_dispatcher().scheme(s).key for s in shapes()})),
    "07": ("oracle", lambda: {int(T): float(least) for T, least in microseconds().min().items()}),
}

"""An explorer of padding: the tiles of one shape, the padding in them, and the waste of other ways to pad."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from dietlab.compare.results.policies import PLANS
from dietlab.cost import adaptation_cost, f_pad
from dietlab.machine import Hardware
from dietlab.problem import Dim, Shape, Workload, at_layer, extents, length_dim
from dietlab.problem.shapes import only_dim
from dietlab.scheme import Edge, Scheme, edges_of, plan_on
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.space import MAX_VECTORS
from dietlab.targets.cpu.space import limits as cpu_limits
from dietlab.view.figures.base import hovering, new_figure
from dietlab.view.figures.padding import (
    SHOWN,
    THIS,
    add_key,
    frame_policies,
    frame_tiling,
    frame_waste,
    tiling_titles,
    tiling_trace,
    waste_trace,
)
from dietlab.view.figures.shape_map import middle
from dietlab.view.figures.traffic import COLOURS
from dietlab.view.theme import GRID, OPEN, PALETTE
from dietlab.view.widgets.arguments import hardware_of, workload_of
from dietlab.view.widgets.controls import Control, Number, OneOf

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from dietlab.compare.study import Study
    from dietlab.view.widgets.explorer import Explorer


MAP_TRACE = 1
"""The index of the heat map's trace: a click on it chooses a shape and a height."""
MAP_BAR = {"x": 0.475, "y": 0.21, "len": 0.46, "thickness": 12, "title": {"side": "right"}}
MOST_CORES = 16
EXTENT = "Extent of this dimension of the problem (a count)"
ROWS = "Rows of the output that one call of the micro-kernel computes (a count)"
COLS = "Columns of the output that one call of the micro-kernel computes (a count; whole vectors)"
COMPOSITION = "How rows that are no multiple of the tile are covered: by tiles of several heights, or padded"
CORES = "Cores that share the tiles (a count)"
EDGE_WORDS: Mapping[Edge, str] = {
    "even": "on: rows shared out evenly",
    "rest": "on: full tiles and a rest",
    "padded": "off: local padding",
    "partitioned": "off: loop partitioning",
}


def padding_explorer(workload: Workload | Study, hardware: Hardware | Study | str) -> Explorer:
    """Explores padding for a chosen shape and micro-kernel. Shows the tiles of the output with the padded
    part coloured, and the waste and the idle cores as numbers. Below are the waste over shapes and tile
    heights and the waste of the usual serving policies.

    Every dynamic dimension has a slider; the heat map is over the length. A click on the map chooses a shape
    and a height. ``explorer.frame`` is the table of :func:`frame_tiling`.

    Args:
        workload: an operator with a dynamic dimension, or a study of one.
        hardware: the CPU whose number of cores the explorer begins with, the name of a preset, or a study on
            a CPU.

    Raises:
        WorkloadError: if ``workload`` is no operator, or no dimension is dynamic.
        HardwareError: if ``hardware`` is no CPU.
    """
    return _explorer(workload_of(workload), hardware_of(hardware))


def _explorer(workload: Workload, hardware: Hardware) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    name = length_dim(workload)

    def draw(rows: int, cols: int, edge: Edge, cores: int, **bound: int) -> Drawn:
        scheme, shape = Scheme(CpuMicroKernel(rows, cols), edge), Shape.of(**{name: bound.pop(name)})
        layer = at_layer(workload, bound)
        chip, sizes = hardware.with_cores(cores), extents(layer, shape)
        return Drawn(
            _figure(layer, hardware, scheme, shape),
            frame_tiling(scheme, sizes["rows"], sizes["cols"]),
            _numbers(layer, chip, scheme, shape),
            _note(layer, chip, scheme),
            scheme=scheme.key,
        )

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        if point.get("trace") != MAP_TRACE:
            return {}
        return {name: round(point["x"]), "rows": round(point["y"])}

    controls = _controls(workload, hardware, name)
    groups = {"Shape": list(workload.dims), "Tile": ["rows", "cols", "edge"], "Hardware": ["cores"]}
    opener = "dl.padding_explorer(workload, hardware)"
    return Explorer(draw, controls, clicked, groups=groups, opener=opener)


def _controls(workload: Workload, hardware: Hardware, name: str) -> dict[str, Control]:
    lanes, registers = cpu_of(hardware).lanes, cpu_of(hardware).vector_registers

    def slider(label: str, tooltip: str, value: int, low: int, high: int, step: int = 1) -> Number:
        return Number(value, low, high, step, label=label, tooltip=tooltip)

    edges: tuple[Edge, ...] = ("even", "rest", *edges_of("paper", workload, hardware))
    compositions = [(EDGE_WORDS[edge], edge) for edge in edges]
    tallest = max(1, (registers - 1) // 2 - 1)  # two vectors wide, with operands beside the accumulators
    dim = workload.dims[name]
    others = {other: ends for other, ends in workload.dims.items() if other != name}
    return {
        name: slider(name, EXTENT, dim.low + (dim.high - dim.low) // 3, dim.low, dim.high),
        **{other: slider(other, EXTENT, middle(ends), ends.low, ends.high) for other, ends in others.items()},
        "rows": slider("tile: rows", ROWS, tallest, 1, registers),
        "cols": slider("tile: columns", COLS, 2 * lanes, lanes, MAX_VECTORS * lanes, lanes),
        "edge": OneOf(edges[-1], compositions, label="composition", tooltip=COMPOSITION),
        "cores": slider("cores", CORES, hardware.cores, 1, max(MOST_CORES, 2 * hardware.cores)),
    }


# --- numbers and words ------------------------------------------------------------------------


def _numbers(workload: Workload, chip: Hardware, scheme: CpuScheme, shape: Shape) -> dict[str, str]:
    sizes = extents(workload, shape)
    plan, useful = plan_on(scheme, workload, shape), f_pad(sizes, scheme.cover_tile)
    busy = adaptation_cost(workload, chip).static(scheme, shape) / useful
    products = f" in each of {sizes['batch']} products" if sizes["batch"] > 1 else ""
    rows = " + ".join(f"{r.tiles} x {r.scheme.rows}" for r in plan.regions)
    return {
        "rows of the tiles": rows,
        "tiles": f"{plan.tiles} down, {ceil(sizes['cols'] / scheme.cols)} across{products}",
        "padding waste": f"{100 * (1 - useful):.1f} %",
        "executed for one needed": f"{1 / useful:.2f} multiply-adds",
        "idle": f"{100 * (1 - busy):.1f} % of the time of {chip.cores} core{'s' * (chip.cores > 1)}",
    }


def _note(workload: Workload, chip: Hardware, scheme: CpuScheme) -> str:
    """Returns a sentence: either that the space has the micro-kernel, or the first limit that it breaks."""
    broken = next((limit for limit in cpu_limits(workload, chip) if limit.excess(scheme) > 0), None)
    hint = "Click the map to choose its shape and height."
    if broken is None:
        return f"A micro-kernel of this size fits {chip.name}. {hint}"
    found = f"{broken.measure(scheme):,.0f} {broken.unit}, at most {broken.most:,.0f}"
    why = f"{broken.reason} ({found})"
    return f"No micro-kernel of this size is in the space: it breaks the limit {why}. {hint}"


# --- the figure -------------------------------------------------------------------------------


def _figure(workload: Workload, hardware: Hardware, scheme: CpuScheme, shape: Shape) -> go.Figure:
    """Draws the output in tiles and, below, the map of waste and the policies."""
    name, dim = only_dim(workload)
    sizes = extents(workload, shape)
    heights = range(1, cpu_of(hardware).vector_registers + 1)
    waste = frame_waste(workload, scheme, heights, _window(dim, shape[name]))
    outputs = f"{sizes['rows']} x {sizes['cols']} outputs{' of a product' if sizes['batch'] > 1 else ''}"
    title = f"{shape}: {outputs} in tiles of {scheme.rows} x {scheme.cols}"
    figure = new_figure(waste, title, None)
    figure.add_trace(tiling_trace(scheme, sizes["rows"], sizes["cols"]))
    drawn = waste_trace(waste, name)
    drawn.update(xaxis="x2", yaxis="y2", colorbar=MAP_BAR)
    figure.add_trace(drawn)
    figure.add_scatter(
        x=[shape[name]],
        y=[scheme.rows],
        xaxis="x2",
        yaxis="y2",
        mode="markers",
        hoverinfo="skip",
        name="chosen",
        showlegend=False,
        marker={"symbol": f"circle{OPEN}", "size": 14, "color": PALETTE["ours"], "line": {"width": 3}},
    )
    _add_policies(figure, workload, scheme, shape)
    add_key(figure)
    _lay_out(figure, name, tiling_titles(scheme, sizes["rows"], sizes["cols"]))
    return figure


def _window(dim: Dim, extent: int) -> range:
    """Returns at most :data:`SHOWN` successive extents, with ``extent`` among them. A sample of a longer
    range would miss the period of the tiles."""
    low = max(dim.low, min(extent - SHOWN // 2, dim.high - SHOWN + 1))
    return range(low, min(dim.high, low + SHOWN - 1) + 1)


def _add_policies(figure: go.Figure, workload: Workload, scheme: CpuScheme, shape: Shape) -> None:
    frame = frame_policies(workload, scheme, shape)
    rows = list(frame.itertuples())
    figure.add_bar(
        x=[_two_lines(row.policy) for row in rows],
        y=100 * frame["padding_waste"],
        xaxis="x3",
        yaxis="y3",
        showlegend=False,
        name="policies",
        marker={"color": [COLOURS[PLANS if row.policy == THIS else row.policy] for row in rows]},
        text=[f"{100 * row.padding_waste:.1f} %" for row in rows],
        textposition="outside",
        **hovering(frame, partial(_hover, shape)),
    )


def _hover(shape: Shape, row: Any) -> str:
    waste = (
        f"<b>{100 * row.padding_waste:.1f} % of the multiply-adds are padding</b><br>{row.policy} at {shape}"
    )
    return f"{waste}<br>{row.executed_for_one_needed:.2f} are executed for one that is needed"


def _two_lines(policy: str) -> str:
    """Returns the name of a policy, such as ``to multiples of 16``, in two lines that fit below its bar."""
    return policy.removeprefix("to ").replace("this ", "this<br>").replace(" of ", "<br>of ")


def _lay_out(figure: go.Figure, name: str, titles: tuple[str, str]) -> None:
    down, across = titles
    grid = {"gridcolor": GRID, "zerolinecolor": GRID}
    bare = {"showgrid": False, "zeroline": False}
    policies = {"text": "plan, or padding to", "standoff": 6}
    figure.update_layout(
        height=680,
        bargap=0.3,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom"},
        margin={"t": 80, "b": 80},
        xaxis={**bare, "anchor": "y", "title": {"text": across}},
        yaxis={**bare, "domain": [0.58, 1], "autorange": "reversed", "title": {"text": down}},
        xaxis2={**bare, "domain": [0, 0.47], "anchor": "y2", "title": {"text": f"{name} (extent)"}},
        yaxis2={**bare, "domain": [0, 0.42], "anchor": "x2", "title": {"text": "height of the tile (rows)"}},
        xaxis3={**bare, "domain": [0.68, 1], "anchor": "y3", "tickangle": 0, "title": policies},
        yaxis3={
            **grid,
            "domain": [0, 0.42],
            "anchor": "x3",
            "range": [0, 108],
            "title": {"text": "waste (%)"},
        },
    )

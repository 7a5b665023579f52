"""The space in parallel coordinates: a line for each scheme, through its parameters to its speed."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import SpaceError, WorkloadError
from dietlab.problem import Shape
from dietlab.scheme import Space
from dietlab.tuning import TuningRun
from dietlab.view.figures.base import new_figure
from dietlab.view.theme import SCALE, TEXT

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

GFLOP = 1e9
MOST_TICKS = 12
"""The most ticks with names of values on an axis: the names of more would overlap."""
FADED = "rgba(118,118,118,0.12)"
"""The colour of lines outside the brushed range."""
TIMES = ("measured", "seconds", "gflops")


def frame_space(source: TuningRun | Space, shape: Shape | None = None) -> pd.DataFrame:
    """Returns one row for each scheme: ``scheme`` (its key) and its parameters. Rows of a run also have
    ``seconds`` of a call on one shape, useful ``gflops`` (GFLOP/s), and ``measured``: whether the scheme was
    measured on this shape. The time of a measured scheme is the one that the run settled on, without the
    delays of slow moments; other times are predicted.

    Args:
        source: a run (its measured schemes are shown) or a space (its schemes have no times).
        shape: the shape whose times a run gives (default: the one with most successful records).

    Raises:
        SpaceError: if ``source`` is neither.
        WorkloadError: if the shape has other dimensions than the operator.
    """
    import pandas as pd

    if isinstance(source, Space):
        return source.to_frame()
    if not isinstance(source, TuningRun):
        raise SpaceError(
            "frame_space and plot_space show a TuningRun or a Space",
            type(source).__name__,
            "dietlab.tune() makes a run, dietlab.build_space() a space.",
        )
    timed = [record for record in source.records if record.ok]
    if not timed:
        return pd.DataFrame(columns=["scheme", *TIMES])
    at = shape or shapes_measured(source)[0]
    workload = source.space.workload
    if set(at.to_json()) != set(workload.dims):
        raise WorkloadError(f"a shape must have an extent for each of {', '.join(workload.dims)}", str(at))
    measured = {record.scheme for record in timed if record.shape == at}
    seconds = source.expected_seconds(source.schemes, [at])[:, 0]
    rows = [
        {
            **scheme.columns,
            "measured": scheme in measured,
            "seconds": float(time),
            "gflops": workload.flops(at) / float(time) / GFLOP,
        }
        for scheme, time in zip(source.schemes, seconds, strict=True)
    ]
    return pd.DataFrame(rows)


def shapes_measured(run: TuningRun) -> list[Shape]:
    """Returns the shapes with a successful record, those with the most such records first."""
    counts = Counter(record.shape for record in run.records if record.ok)
    return sorted(counts, key=lambda shape: (-counts[shape], shape))


def plot_space(
    source: TuningRun | Space,
    shape: Shape | None = None,
    scheme: str | None = None,
    template: str | None = None,
) -> go.Figure:
    """Draws a line for each scheme through its parameters to its GFLOP/s; the line's colour shows GFLOP/s,
    too. Drag along an axis to brush it: lines outside the chosen range fade. Parameters that are the same in
    all schemes are left out.

    Args:
        source, shape: as in :func:`frame_space`.
        scheme: the key of a scheme to show alone.
        template: a plotly template, such as ``"plotly_dark"`` (default: a transparent background).

    Raises:
        SpaceError, WorkloadError: as :func:`frame_space`; SpaceError also if ``scheme`` is none of those
            shown.
    """
    frame = frame_space(source, shape)
    if isinstance(source, Space):
        title = f"Space of {source.workload}"
    else:
        at = shape or next(iter(shapes_measured(source)), "")
        title = f"Schemes of {source.space.workload} at {at}"
    return draw_space(frame, title, scheme, template)


def draw_space(
    frame: pd.DataFrame, title: str, scheme: str | None = None, template: str | None = None
) -> go.Figure:
    """Draws the figure of :func:`plot_space` from its table."""
    figure = new_figure(frame, title, template)
    if frame.empty:
        return figure
    if scheme and scheme not in set(frame["scheme"]):
        raise SpaceError("the shown scheme must be one of the table", scheme, "frame_space() lists them.")
    shown = [name for name in frame if name not in ("scheme", "measured", "seconds")]
    axes = [name for name in shown if frame[name].astype(str).nunique() > 1]
    chosen = frame["scheme"].eq(scheme).to_numpy() if scheme else None
    dimensions = [_dimension(frame[name], name, chosen) for name in axes]
    colour = frame["gflops"] if "gflops" in frame else frame[axes[0]].map(_code(frame[axes[0]])[0])
    figure.add_parcoords(
        dimensions=dimensions,
        line={
            "color": colour.astype(float),
            "colorscale": SCALE,
            "showscale": True,
            "colorbar": {"title": {"text": "" if "gflops" in frame else escape(axes[0])}},
        },
        unselected={"line": {"color": FADED}},
        tickfont={"color": TEXT},
        labelfont={"color": TEXT},
        rangefont={"color": TEXT},
    )
    figure.update_layout(height=480, margin={"l": 50, "r": 20, "t": 100, "b": 40})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _code(column: pd.Series) -> tuple[dict[Any, float], bool]:
    """Returns the position of each value on an axis, and whether the values are numbers. A number is its own
    position; other values have positions 0, 1, 2, ... in sorted order."""
    import pandas as pd

    numbers = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    values = sorted(column.dropna().unique(), key=lambda value: value if numbers else str(value))
    return {value: float(value) if numbers else float(at) for at, value in enumerate(values)}, numbers


def _dimension(column: pd.Series, name: str, chosen: Any) -> dict[str, Any]:
    """Returns an axis; if a scheme is chosen, the axis is brushed at the scheme's value."""
    places, numbers = _code(column)
    low = min(places.values(), default=0.0)
    at = column.map(places).astype(float).fillna(low)
    axis: dict[str, Any] = {
        "label": "GFLOP/s" if name == "gflops" else escape(name.replace("_", " ")),
        "values": at.tolist(),
    }
    if not numbers or len(places) <= MOST_TICKS:
        axis |= {"tickvals": list(places.values()), "ticktext": [escape(str(value)) for value in places]}
    if chosen is not None:
        value = float(at[chosen].iloc[0])
        room = max(1e-9, 0.005 * (max(places.values()) - low))
        axis["constraintrange"] = [value - room, value + room]
    return axis
